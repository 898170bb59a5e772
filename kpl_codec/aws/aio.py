"""Functions that read a stream, for asyncio. Names, arguments, results and errors are those of
`kpl_codec.aws`.

    async with get_session().create_client("kinesis") as client:       # aiobotocore.session
        shard_map = await fetch_shard_map(client, "orders")
        async for record in read_stream(client, "orders"): ...

``client``: an aiobotocore client of Kinesis. A boto3 client would block the event loop.
"""

from ..base.lazy import public_names, require_extras

with require_extras("kpl_codec.aws.aio"):
    from .calls import async_function
    from .stream_reading import (
        async_fetch_lineage,
        async_fetch_shard_map,
        async_read_record,
        async_read_stream,
    )

__all__ = ["fetch_lineage", "fetch_shard_map", "read_record", "read_stream"]
__dir__ = public_names(__name__)

fetch_lineage = async_function(async_fetch_lineage)
fetch_shard_map = async_function(async_fetch_shard_map)
read_record = async_function(async_read_record)
read_stream = async_function(async_read_stream)
