"""Reads the records with given sequence numbers. These come from a channel's dead-letter objects, a log, a
failed Lambda invocation, or Lambda's notice of one, which names the first and the last record of a batch.

    places = find_sequence_numbers(Path("errors.json").read_bytes())
    for record in fetch_records(client, "orders", places): ...       # or GoneRecord, UnreadableEntry
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ..adapters.json_stream import Defect, json_documents
from ..format.records import KinesisRecord, record_from_response
from ..shards.live_shard_map import StreamUnavailable
from ..shards.sequence_numbers import SequenceNumberError, parse_sequence_number, sequence_hint
from ..shards.starting_position import TRIM_HORIZON, at_record
from ..values import Value
from .calls import run_sync
from .cursor import Pace, ShardCursor
from .stream_reading import PATIENCE, POLL_INTERVAL, records_at

__all__ = ["GoneRecord", "RecordLocation", "UnreadableEntry", "fetch_records", "find_sequence_numbers"]

#: What the service says of a sequence number, or a shard, that it no longer has.
_GONE = ("InvalidArgumentException", "ResourceNotFoundException")


class RecordLocation(NamedTuple):
    """A sequence number and its shard, None where neither the source nor the number says it. With ``last``
    all records from that number to this one, ``size`` of them where that is known."""

    shard_id: str | None
    sequence_number: str
    last: str | None = None
    size: int | None = None

    def __str__(self) -> str:
        return self.sequence_number if self.last is None else f"{self.sequence_number} to {self.last}"


class GoneRecord(Value):
    """A record that the stream does not give any more: its retention is over, or it is of another stream.
    Of a place with ``last``: some of its records."""

    location: RecordLocation
    reason: str


class UnreadableEntry(NamedTuple):
    """A part of the source, at ``line`` from 1, that may name records and cannot be read."""

    line: int
    reason: str


def find_sequence_numbers(data: bytes) -> list[RecordLocation | UnreadableEntry]:
    """Every sequence number in ``data``, once, in the order in which they are there: texts or whole numbers,
    one a line or in a list; or members of JSON objects at any depth that are called sequenceNumber in any
    case, with or without underscores, beside a shardId or below one, or startSequenceNumber and
    endSequenceNumber of Lambda's notice (``KinesisBatchInfo``).

    JSON in a member's text is read, too (``body``, ``payload``).
    """
    locations: dict[RecordLocation | UnreadableEntry, None] = {}
    for document in json_documents([data]):
        if isinstance(document, Defect):
            locations[UnreadableEntry(document.line, f"not JSON: {document.reason}")] = None
            continue
        value = document.value
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, (dict, list)):
                places = _places(item, None, document.line)
            else:
                places = iter([_place(None, item, document.line)])
            locations.update(dict.fromkeys(places))
    return list(locations)


def _places(value: Any, shard_id: str | None, line: int) -> Iterator[RecordLocation | UnreadableEntry]:
    if isinstance(value, list):
        for item in value:
            yield from _places(item, shard_id, line)
    elif isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            yield from _places(json.loads(value), shard_id, line)
        except (ValueError, RecursionError):  # a text that only begins like JSON
            return
    elif isinstance(value, dict):
        named = {name.lower().replace("_", ""): item for name, item in value.items()}
        own = named.get("shardid")
        event_shard, _, event_number = str(named.get("eventid") or "").rpartition(":")  # as Lambda names it
        own = own if isinstance(own, str) and own else event_shard
        shard_id = own or shard_id
        first, last = named.get("startsequencenumber"), named.get("endsequencenumber")
        if "ddbstreambatchinfo" in named:
            yield UnreadableEntry(
                line, "a notice of DynamoDB Streams: these are no records of a Kinesis stream"
            )
            return
        if first is not None and last is not None:
            yield _range(shard_id, first, last, named.get("batchsize"), line)
        number = named.get("sequencenumber")
        if number is None and event_shard.startswith("shardId-") and "kinesis" not in named:
            number = event_number
        if number is not None and not isinstance(number, (dict, list)):
            yield _place(shard_id, number, line)
        for item in value.values():
            if isinstance(item, (dict, list, str)):
                yield from _places(item, shard_id, line)


def _place(shard_id: str | None, number: Any, line: int) -> RecordLocation | UnreadableEntry:
    text = number.strip() if isinstance(number, str) else str(number) if type(number) is int else ""
    try:
        parse_sequence_number(text)
    except SequenceNumberError:
        rounded = " (a number whose last digits are lost)" if isinstance(number, float) else ""
        return UnreadableEntry(line, f"{str(number)[:60]} is no sequence number{rounded}")
    hint = sequence_hint(text) if shard_id is None else None
    return RecordLocation(hint.shard_id if hint is not None else shard_id, text)


def _range(
    shard_id: str | None, first: Any, last: Any, size: Any, line: int
) -> RecordLocation | UnreadableEntry:
    """All records from ``first`` to ``last``."""
    begin, end = _place(shard_id, first, line), _place(shard_id, last, line)
    if isinstance(begin, UnreadableEntry) or isinstance(end, UnreadableEntry):
        return begin if isinstance(begin, UnreadableEntry) else end
    if int(begin.sequence_number) > int(end.sequence_number):
        return UnreadableEntry(line, "endSequenceNumber is below startSequenceNumber")
    return begin._replace(last=end.sequence_number, size=size if type(size) is int else None)


def fetch_records(
    client: Any, stream: str, places: Iterable[RecordLocation | UnreadableEntry], *, read_on: int = 1
) -> Iterator[KinesisRecord | GoneRecord | UnreadableEntry]:
    """The record at each place, once, or why there is none; an `UnreadableEntry` as it is. Raises
    StreamUnavailable.

    ``read_on``: records asked for at a time, where places in order are near each other. Two calls for each
    that is not among those just read.
    """
    shard_id, first, last, records = "", 0, -1, dict[str, Mapping[str, Any]]()
    yielded: set[tuple[str, str]] = set()
    for place in places:
        # CHN-3: "Of records that were asked for by sequence number each MUST be given, or named as gone; what
        # cannot be read of the list MUST be named with its line."
        if isinstance(place, UnreadableEntry):
            yield place
            continue
        number, reason = place.sequence_number, "the stream does not hold it any more"
        if place.shard_id is None:
            yield GoneRecord(place, "nothing says its shard")
            continue
        if place.last is not None:
            numbers = set[str]()
            for record in _between(client, stream, place.shard_id, int(number), int(place.last)):
                numbers.add(record["SequenceNumber"])
                if (place.shard_id, record["SequenceNumber"]) not in yielded:
                    yielded.add((place.shard_id, record["SequenceNumber"]))
                    yield record_from_response(record, place.shard_id)
            whole = {number, place.last} <= numbers and len(numbers) >= (place.size or 0)
            if not whole:
                of = f" of {place.size}" if place.size is not None else ""
                yield GoneRecord(
                    place, f"the stream holds {len(numbers)}{of} records of it, and not all any more"
                )
            continue
        if (place.shard_id, number) in yielded:
            continue
        if place.shard_id != shard_id or not first <= int(number) <= last:
            cursor = ShardCursor(client, stream, place.shard_id, at_record(number), patience=PATIENCE)
            try:
                page = run_sync(records_at(cursor, read_on))
            except StreamUnavailable as error:
                if error.code not in _GONE:
                    raise
                page, reason = [], error.reason
            records = {record["SequenceNumber"]: record for record in page}
            shard_id, first, last = place.shard_id, int(number), max(map(int, records), default=int(number))
        yielded.add((place.shard_id, number))
        yield (
            record_from_response(records[number], shard_id)
            if number in records
            else GoneRecord(place, reason)
        )


def _between(client: Any, stream: str, shard_id: str, first: int, last: int) -> Iterator[Mapping[str, Any]]:
    """The records of a shard from number ``first`` to ``last``, as many as it still holds. Raises
    StreamUnavailable."""
    # Where the first is gone the service may refuse its number, but the others may be there.
    for begin in (at_record(str(first)), TRIM_HORIZON):
        pace = Pace(1 / POLL_INTERVAL, None)
        cursor = ShardCursor(client, stream, shard_id, begin, pace=pace, patience=PATIENCE)
        try:
            while not cursor.at_tip:
                for record in cursor.fetch().records:
                    if int(record["SequenceNumber"]) > last:
                        return
                    if int(record["SequenceNumber"]) >= first:
                        yield record
        except StreamUnavailable as error:
            if error.code not in _GONE:
                raise
        else:
            return
