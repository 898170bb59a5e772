"""Reads streams and shard maps from Kinesis with boto3; `kpl_codec.aws.aio` does so
with aiobotocore. Names are imported on first use, so that neither client library needs the other.

    >>> from kpl_codec.aws import fetch_records, fetch_shard_map, find_sequence_numbers, kinesis_client
    >>> from kpl_codec.aws import fetch_lineage, read_record, read_stream
    >>> client = kinesis_client(region="us-east-1")
    >>> len(fetch_shard_map(client, "orders").open_shards), list(fetch_lineage(client, "orders"))
    (2, ['shardId-000000000000', 'shardId-000000000001'])
    >>> records = list(read_stream(client, "orders"))
    >>> first = records[0]
    >>> first == read_record(
    ...     client, "orders", shard_id=first.shard_id, sequence_number=first.sequence_number
    ... )
    True
    >>> wanted = find_sequence_numbers(f"{first.sequence_number}\\n4.95e55".encode())
    >>> for found in fetch_records(client, "orders", wanted):
    ...     print(found == first, getattr(found, "reason", ""))
    True...
    False 4.95e+55 is no sequence number (its last digits are lost: it has to be text)
    >>> fetch_shard_map(client, "no-such-stream")
    Traceback (most recent call last):
    kpl_codec.shards.live_shard_map.StreamUnavailable: ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.lazy import lazy_names

if TYPE_CHECKING:  # what `lazy_names` gives, for type checkers
    from ..shards.live_shard_map import StreamUnavailable as StreamUnavailable
    from .client import kinesis_client as kinesis_client
    from .fetch_by_sequence_number import GoneRecord as GoneRecord
    from .fetch_by_sequence_number import RecordLocation as RecordLocation
    from .fetch_by_sequence_number import UnreadableEntry as UnreadableEntry
    from .fetch_by_sequence_number import fetch_records as fetch_records
    from .fetch_by_sequence_number import find_sequence_numbers as find_sequence_numbers
    from .stream_reading import fetch_lineage as fetch_lineage
    from .stream_reading import fetch_shard_map as fetch_shard_map
    from .stream_reading import read_record as read_record
    from .stream_reading import read_stream as read_stream

_READERS = ("fetch_lineage", "fetch_shard_map", "read_record", "read_stream")
_FETCHERS = ("GoneRecord", "RecordLocation", "UnreadableEntry", "fetch_records", "find_sequence_numbers")
_HOMES = {
    "kinesis_client": "client",
    "StreamUnavailable": "cursor",
    **dict.fromkeys(_READERS, "stream_reading"),
    **dict.fromkeys(_FETCHERS, "fetch_by_sequence_number"),
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
