"""Reads streams and shard maps from Kinesis, and schemas from Glue, with boto3; `kpl_codec.aws.aio` with
aiobotocore. Names are imported on first use, so the asyncio parts need no boto3 and the others no
aiobotocore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names, require_extras

with require_extras("kpl_codec.aws"):
    import botocore as _botocore  # noqa: F401 - every part needs it; aiobotocore brings it, too

if TYPE_CHECKING:  # what `lazy_names` gives, for type checkers
    from ..shards.live_shard_map import StreamUnavailable as StreamUnavailable
    from .client import kinesis_client as kinesis_client
    from .fetch_by_sequence_number import GoneRecord as GoneRecord
    from .fetch_by_sequence_number import RecordLocation as RecordLocation
    from .fetch_by_sequence_number import UnreadableEntry as UnreadableEntry
    from .fetch_by_sequence_number import fetch_records as fetch_records
    from .fetch_by_sequence_number import find_sequence_numbers as find_sequence_numbers
    from .glue_schema_registry import SchemaRegistry as SchemaRegistry
    from .stream_reading import fetch_lineage as fetch_lineage
    from .stream_reading import fetch_shard_map as fetch_shard_map
    from .stream_reading import read_record as read_record
    from .stream_reading import read_stream as read_stream

_HOMES = {
    "fetch_shard_map": "stream_reading",
    "fetch_lineage": "stream_reading",
    "StreamUnavailable": "cursor",
    "kinesis_client": "client",
    "read_stream": "stream_reading",
    "read_record": "stream_reading",
    "SchemaRegistry": "glue_schema_registry",
    "GoneRecord": "fetch_by_sequence_number",
    "UnreadableEntry": "fetch_by_sequence_number",
    "RecordLocation": "fetch_by_sequence_number",
    "fetch_records": "fetch_by_sequence_number",
    "find_sequence_numbers": "fetch_by_sequence_number",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
