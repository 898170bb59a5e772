"""Fetches the records with given sequence numbers: of a list, or of Lambda's notice of a failed batch.

locations = find_sequence_numbers(Path("numbers.txt").read_bytes())
for record in fetch_records(client, "orders", locations): ...    # or GoneRecord, UnreadableEntry
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from ..adapters.json_stream import Defect, json_documents
from ..adapters.shapes import stream_in
from ..aws_errors import NO_RECORD, failure_text
from ..base.arguments import argument_error, check_arguments
from ..base.values import KW_ONLY, Value
from ..format.records import KinesisRecord, record_from_response
from ..shards.live_shard_map import StreamUnavailable
from ..shards.sequence_numbers import SequenceNumberError, parse_sequence_number, sequence_hint
from ..shards.starting_position import TRIM_HORIZON, at_record
from ..shards.stream_name import may_be_one, stream_name
from .calls import run_sync
from .cursor import Pace, ShardCursor
from .stream_reading import PATIENCE, POLL_INTERVAL, records_at

__all__ = ["GoneRecord", "RecordLocation", "UnreadableEntry", "fetch_records", "find_sequence_numbers"]

#: Why a part of a list without a sequence number is an UnreadableEntry.
NAMES_NONE = "it is no sequence number, and no notice of Lambda (KinesisBatchInfo)"
#: Members that hold a notice as text: of a message of SQS, of one of SNS.
_ENVELOPES = ("body", "Message")
#: The service's error codes for a sequence number, or a shard, that it no longer has.
_GONE = ("InvalidArgumentException", "ResourceNotFoundException")


class RecordLocation(Value):
    """A sequence number and its shard (None where neither the source nor the sequence number names it). With
    ``last``: all records from that number to this one, ``size`` of them (None if that is not known).
    ``stream``: the name or ARN that the source names."""

    shard_id: str | None
    sequence_number: str
    _: KW_ONLY
    last: str | None = None
    size: int | None = None
    stream: str | None = None

    def __str__(self) -> str:
        return self.sequence_number if self.last is None else f"{self.sequence_number} to {self.last}"


class GoneRecord(Value):
    """A record that the stream does not have, or some records of a location: their retention is over, or they
    are of another stream."""

    location: RecordLocation
    reason: str


class UnreadableEntry(Value):
    """A part of the source that may name records and cannot be read, or does not say which they are.
    ``line``: its line, from 1; None where it is not known."""

    line: int | None
    reason: str


def find_sequence_numbers(data: bytes) -> list[RecordLocation | UnreadableEntry]:
    """Every sequence number in ``data``, once, in the order of the source.

    It takes a sequence number, or ``shardId:number``, on each line; a list of them in JSON; and the notice
    that Lambda sends after a failed batch (``KinesisBatchInfo``), as one JSON object or one a line, also as
    the ``body`` of SQS or the ``Message`` of SNS. What is neither is an UnreadableEntry with its line.

    Raises TypeError for what is not bytes."""
    if not isinstance(data, bytes):
        raise argument_error(
            "find_sequence_numbers", "data", data, give="bytes, as Path(...).read_bytes() does"
        )
    entries: dict[RecordLocation | UnreadableEntry, None] = {}
    for document in json_documents([data]):
        # CHN-3, as below
        if isinstance(document, Defect):
            begin = data.rfind(b"\n", 0, document.offset) + 1
            lines = data[begin : document.end].decode("utf-8", "replace").split("\n")
            for number, line in enumerate(lines, document.line):
                if words := line.strip(" \t\r\ufeff"):
                    entries[_of_text(words.strip(' ,"'), number)] = None
        else:
            entries.update(dict.fromkeys(_of_value(document.value, document.line)))
    return list(entries)


def _of_value(value: Any, line: int) -> Iterator[RecordLocation | UnreadableEntry]:
    """What a JSON document names: a number, a list of numbers, or notices."""
    items = value if isinstance(value, list) else [value]
    if not items:
        yield UnreadableEntry(line, NAMES_NONE)
    for item in items:
        if isinstance(item, dict):
            yield from _notices(item, line)
        elif isinstance(item, str):
            yield _of_text(item, line)
        else:
            yield _location(None, None, item, line)


def _of_text(text: str, line: int) -> RecordLocation | UnreadableEntry:
    """A sequence number, or a shard and a number as Lambda's eventID has them."""
    shard_id, _, number = text.rpartition(":")
    return _location(shard_id or None, None, number, line)


def _notices(document: dict[str, Any], line: int) -> Iterator[RecordLocation | UnreadableEntry]:
    """The batches of Lambda's notices: of the document itself, of its ``Records``, or of a message's text."""
    batch = document.get("KinesisBatchInfo")
    if isinstance(batch, dict):
        first, last = batch.get("startSequenceNumber"), batch.get("endSequenceNumber")
        if first is None or last is None:
            yield UnreadableEntry(line, "one of startSequenceNumber and endSequenceNumber is missing")
        else:
            shard_id = batch.get("shardId")
            shard_id = shard_id if isinstance(shard_id, str) and shard_id else None
            yield _location(shard_id, stream_in(batch), first, line, last, batch.get("batchSize"))
        return
    records = document.get("Records", document.get("Messages"))
    if isinstance(records, list) and records:
        for record in records:
            inner = record.get("Sns", record) if isinstance(record, dict) else {}
            yield from _notices(inner if isinstance(inner, dict) else {}, line)
        return
    for name in (*_ENVELOPES, "Body"):
        with suppress(ValueError, RecursionError):
            inner = json.loads(text) if isinstance(text := document.get(name), str) else None
            if isinstance(inner, dict):
                yield from _notices(inner, line)
                return
    yield UnreadableEntry(line, NAMES_NONE)


def _location(
    shard_id: str | None, stream: str | None, number: Any, line: int, last: Any = None, size: Any = None
) -> RecordLocation | UnreadableEntry:
    numbers: list[str] = []
    for value in (number,) if last is None else (number, last):
        text = value.strip() if isinstance(value, str) else str(value) if type(value) is int else ""
        try:
            parse_sequence_number(text)
        except SequenceNumberError:
            hint = " (its last digits are lost: it has to be text)" if isinstance(value, float) else ""
            return UnreadableEntry(line, f"{str(value)[:60]} is no sequence number{hint}")
        numbers.append(text)
    if int(numbers[-1]) < int(numbers[0]):
        return UnreadableEntry(line, "endSequenceNumber is below startSequenceNumber")
    if shard_id is None and (sequence := sequence_hint(numbers[0])) is not None:
        shard_id = sequence.shard_id
    end = None if last is None else numbers[1]
    return RecordLocation(shard_id, numbers[0], last=end, size=_size(size), stream=stream)


def _size(size: Any) -> int | None:
    """The size of a batch: a whole number, or its text."""
    with suppress(ValueError, TypeError, OverflowError):
        if not isinstance(size, bool) and int(size) == float(size):
            return int(size)
    return None


_GIVE: Final = "what find_sequence_numbers gives, or RecordLocations"


def fetch_records(
    client: Any, stream: str, locations: Iterable[RecordLocation | UnreadableEntry], *, read_on: int = 1
) -> Iterator[KinesisRecord | GoneRecord | UnreadableEntry]:
    """The record at each location, once, or a `GoneRecord`, also for a location of another stream; an
    `UnreadableEntry` as it is, and one behind a range with more records than its batch had. Raises
    StreamUnavailable.

    It makes two calls for each location whose record the last call did not return. ``read_on``: the number of
    records of a call, for locations in order and near each other.
    """
    check_arguments("fetch_records", locals())
    if isinstance(locations, (str, bytes, Mapping)) or not isinstance(locations, Iterable):
        raise argument_error("fetch_records", "locations", locations, give=_GIVE)
    return _records_of(client, stream, locations, read_on)


def _records_of(
    client: Any, stream: str, locations: Iterable[RecordLocation | UnreadableEntry], read_on: int
) -> Iterator[KinesisRecord | GoneRecord | UnreadableEntry]:
    shard_id, first, last, records = "", 0, -1, dict[str, Mapping[str, Any]]()
    yielded: set[tuple[str, str]] = set()
    for index, location in enumerate(locations):
        # CHN-3: "Of records that were asked for by sequence number each MUST be given, or named as gone; what
        # cannot be read of the list MUST be named with its line."
        if isinstance(location, UnreadableEntry):
            yield location
            continue
        if not isinstance(location, RecordLocation):
            raise argument_error("fetch_records", "locations", location, give=_GIVE, at=f"in item {index}")
        number, reason = location.sequence_number, NO_RECORD
        # CHN-4: "A location that names another stream MUST NOT be read from this one, and a range that holds
        # more records than its batch had MUST be named behind them."
        if location.stream is not None and not may_be_one(location.stream, stream):
            yield GoneRecord(location, f"it is of the stream {stream_name(location.stream)}")
            continue
        if location.shard_id is None:
            yield GoneRecord(location, "its shard is not known: put the shardId beside it")
            continue
        if location.last is not None:
            numbers = set[str]()
            refusal = None
            try:
                for record in _records_between(
                    client, stream, location.shard_id, int(number), int(location.last)
                ):
                    numbers.add(record["SequenceNumber"])
                    if (location.shard_id, record["SequenceNumber"]) not in yielded:
                        yielded.add((location.shard_id, record["SequenceNumber"]))
                        yield record_from_response(record, location.shard_id, stream)
            except StreamUnavailable as error:
                if error.code not in _GONE:
                    raise
                refusal = failure_text(error.code, error.reason)
            if not {number, location.last} <= numbers or len(numbers) < (location.size or 0):
                of = f" of {location.size}" if location.size is not None else ""
                held = f"the stream holds {len(numbers)}{of} records of it, and not all any more"
                yield GoneRecord(location, refusal or held)
            elif location.size is not None and len(numbers) > location.size:
                more = f"{location} holds {len(numbers)} records, and the batch had {location.size} of them"
                yield UnreadableEntry(None, f"{more}: the notice does not say which")
            continue
        if (location.shard_id, number) in yielded:
            continue
        if location.shard_id != shard_id or not first <= int(number) <= last:
            cursor = ShardCursor(client, stream, location.shard_id, at_record(number), patience=PATIENCE)
            try:
                page = run_sync(records_at(cursor, read_on))
            except StreamUnavailable as error:
                if error.code not in _GONE:
                    raise
                page, reason = [], failure_text(error.code, error.reason)
            records = {record["SequenceNumber"]: record for record in page}
            shard_id, first = location.shard_id, int(number)
            last = max(map(int, records), default=first)
        yielded.add((shard_id, number))
        if number in records:
            yield record_from_response(records[number], shard_id, stream)
        else:
            yield GoneRecord(location, reason)


def _records_between(
    client: Any, stream: str, shard_id: str, first: int, last: int
) -> Iterator[Mapping[str, Any]]:
    """The records that a shard still holds from ``first`` to ``last``. Raises StreamUnavailable, also where
    there is no such shard."""
    # If the first record is gone the service may refuse its number, but the others may be there.
    for position in (at_record(str(first)), TRIM_HORIZON):
        pace = Pace(1 / POLL_INTERVAL, None)
        cursor = ShardCursor(client, stream, shard_id, position, pace=pace, patience=PATIENCE)
        try:
            while not cursor.at_tip:
                for record in cursor.fetch().records:
                    if int(record["SequenceNumber"]) > last:
                        return
                    if int(record["SequenceNumber"]) >= first:
                        yield record
            return
        except StreamUnavailable as error:
            if error.code not in _GONE or position is TRIM_HORIZON:
                raise
