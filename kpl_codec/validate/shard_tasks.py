"""A shard of a stream as part of a task: its Kinesis records in batches, as of a captured file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from ..captures.capture_rows import CaptureRows
from ..format.records import record_from_response
from ..shards.stream_name import stream_of

if TYPE_CHECKING:
    from ..aws.fetch_by_sequence_number import RecordLocation, UnreadableEntry
    from ..aws.stream_reading import Start


@dataclass(frozen=True, slots=True)
class ShardPart:
    """A shard of ``stream`` (a name or an ARN) from ``start`` to what arrived at ``until``, so that a second
    reading gives the same. ``connection``: arguments of `kpl_codec.aws.client.kinesis_client`."""

    connection: Mapping[str, Any]
    stream: str
    shard_id: str
    start: Start
    until: datetime
    #: If given, just these records of it.
    only: tuple[RecordLocation | UnreadableEntry, ...] | None = None
    #: Nobody knows how many bytes it holds. One is read in this process, several in processes of their own.
    weight: ClassVar[int] = 5 * 1024 * 1024


def shard_parts(connection: Mapping[str, Any], stream: str, start: Start) -> list[ShardPart]:
    """Every shard that the stream has now. Raises StreamUnavailable."""
    from ..aws.client import kinesis_client
    from ..aws.list_shards import fetch_lineage

    client = kinesis_client(**connection)
    times: list[datetime] = []
    # The service's own clock: this machine's may be behind, and what arrived meanwhile would not be read.
    client.meta.events.register("after-call.kinesis", lambda parsed, **_: times.append(_date_of(parsed)))
    lineage = fetch_lineage(client, stream)
    return [ShardPart(connection, stream, shard_id, start, max(times)) for shard_id in lineage]


def only_parts(of: ShardPart, places: Iterable[RecordLocation | UnreadableEntry]) -> list[ShardPart]:
    """A part with each shard's places of those. ``of``: any part of the stream."""
    shards: defaultdict[str, list[RecordLocation | UnreadableEntry]] = defaultdict(list)
    for place in places:
        shards[getattr(place, "shard_id", None) or ""].append(place)
    return [replace(of, shard_id=shard_id, only=tuple(some)) for shard_id, some in shards.items()]


def _date_of(response: Mapping[str, Any]) -> datetime:
    """When the service sent ``response``: whole seconds, rounded up."""
    date = response["ResponseMetadata"]["HTTPHeaders"].get("date")
    now = parsedate_to_datetime(date) if date else datetime.now(timezone.utc)
    return now.replace(microsecond=0) + timedelta(seconds=1)


def read_shard(part: ShardPart) -> Iterator[pa.RecordBatch]:
    from ..aws.client import kinesis_client
    from ..aws.cursor import Pace, ShardCursor
    from ..aws.fetch_by_sequence_number import GoneRecord, UnreadableEntry, fetch_records
    from ..aws.stream_reading import PATIENCE, POLL_INTERVAL, position_of

    rows, name = CaptureRows(None), stream_of(part.stream).name
    client, pace = kinesis_client(**part.connection), Pace(1 / POLL_INTERVAL, None)
    if part.only is not None:
        for index, item in enumerate(fetch_records(client, part.stream, part.only)):
            if isinstance(item, GoneRecord):
                where = f"{item.location.shard_id or 'no shard'}, sequence number {item.location}"
                rows.unreadable("gone", f"{where}: {item.reason}", index)
            elif isinstance(item, UnreadableEntry):
                rows.unreadable("only", f"--only: {item.reason}", index, item.line)
            else:
                rows.record(item, name)
        yield from rows.take()
        return
    cursor = ShardCursor(
        client, part.stream, part.shard_id, position_of(part.start), pace=pace, patience=PATIENCE
    )
    while not cursor.at_tip:
        records = cursor.fetch().records
        # Times of arrival are only nearly in order: the first later one is not the end.
        in_time = [
            fields
            for fields in records
            if (when := fields.get("ApproximateArrivalTimestamp")) is None or when <= part.until
        ]
        for fields in in_time:
            rows.record(record_from_response(fields, part.shard_id), name)
        if rows.full():
            yield from rows.take()
        if records and not in_time:
            break
    yield from rows.take()
