"""Functions that read a stream, for asyncio. Names, arguments, results and errors are those of
`kpl_codec.aws`.

    >>> import asyncio
    >>> from aiobotocore.session import get_session
    >>> from kpl_codec.aws.aio import fetch_lineage, fetch_shard_map, read_record, read_stream
    >>> async def read() -> None:
    ...     async with get_session().create_client("kinesis") as client:
    ...         shard_map = await fetch_shard_map(client, "orders")
    ...         print(list(shard_map) == list(await fetch_lineage(client, "orders")))
    ...         first, *others = [record async for record in read_stream(client, "orders")]
    ...         again = await read_record(
    ...             client, "orders", shard_id=first.shard_id, sequence_number=first.sequence_number
    ...         )
    ...         print(again == first)
    >>> asyncio.run(read())
    True
    True

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
