"""Fetches the records with given sequence numbers, which come from a channel's dead-letter objects, a log, or
Lambda's notice of a failed batch.

    locations = find_sequence_numbers(Path("errors.json").read_bytes())
    for record in fetch_records(client, "orders", locations): ...    # or GoneRecord, UnreadableEntry
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from typing import Any, NamedTuple

from ..adapters.json_stream import Defect, json_documents
from ..adapters.shapes import stream_in
from ..arguments import argument_error, check_arguments
from ..format.records import KinesisRecord, record_from_response
from ..shards.live_shard_map import StreamUnavailable
from ..shards.sequence_numbers import SequenceNumberError, parse_sequence_number, sequence_hint
from ..shards.starting_position import TRIM_HORIZON, at_record
from ..shards.stream_name import may_be_one, stream_name
from ..values import Value, describe_fields
from .calls import run_sync
from .cursor import Pace, ShardCursor
from .stream_reading import PATIENCE, POLL_INTERVAL, records_at

__all__ = ["GoneRecord", "RecordLocation", "UnreadableEntry", "fetch_records", "find_sequence_numbers"]

#: Why a document without a sequence number is an UnreadableEntry.
NAMES_NONE = "it names no sequence number in a form that is known"
#: Members with a sequence number, or a list of them, in lower case: ours, and those of a Lambda handler's
#: response (``batchItemFailures``).
_NUMBERS = ("sequencenumber", "sequencenumbers", "itemidentifier")
#: Where JSON may begin within a text, and what reads it from there.
_BRACKET, _DECODER = re.compile(r"\[+|\{"), json.JSONDecoder()
#: An error so near to the end of a part may come from its end.
_LONGEST_TOKEN = 16
#: How many characters, and how many times as many as a text has, are tried where brackets begin no JSON.
_EFFORT, _MOST_EFFORT = 1 << 20, 16
#: A line that is a number, or a shard and a number.
_NUMBER_LINE = re.compile(r"(\S+:)?[0-9]+")
#: A sequence number of the service has 56 digits.
_OF_THE_SERVICE = re.compile(r"[1-9][0-9]{54,}")
#: The service's error codes for a sequence number, or a shard, that it no longer has.
_GONE = ("InvalidArgumentException", "ResourceNotFoundException")


@describe_fields(
    shard_id="The shard's id; None where neither the source nor the sequence number names it.",
    sequence_number="The sequence number, of the first record if there are several.",
    last="The sequence number of the last of several records; None of one record.",
    size="How many records; None if that is not known.",
    stream="The name or ARN of the stream that the source names; None if it names none.",
)
class RecordLocation(NamedTuple):
    """A sequence number and its shard. With ``last``: all records from that number to this one."""

    shard_id: str | None
    sequence_number: str
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


@describe_fields(
    line="The line of the source, from 1; None where it is not known.", reason="Why it cannot be read."
)
class UnreadableEntry(NamedTuple):
    """A part of the source that may name records and cannot be read, or does not say which they are."""

    line: int | None
    reason: str


def find_sequence_numbers(data: bytes) -> list[RecordLocation | UnreadableEntry]:
    """Every sequence number in ``data``, once, in the order of the source.

    It takes text or whole numbers, one a line or in a list, and JSON objects with these members at any depth:
    sequenceNumber, in any case, with or without underscores, beside a shardId or below one; itemIdentifier of
    a handler's response (``batchItemFailures``); startSequenceNumber and endSequenceNumber of Lambda's notice
    (``KinesisBatchInfo``). A document that names none is an UnreadableEntry. It also reads JSON in the text
    of a member (``body``, ``payload``), also in the middle of it, as a log's ``message`` has it."""
    entries: dict[RecordLocation | UnreadableEntry, None] = {}
    documents = list(json_documents([data]))
    not_json = {document.line for document in documents if isinstance(document, Defect)}
    for document in documents:
        # CHN-3, as below
        if isinstance(document, Defect):
            begin = data.rfind(b"\n", 0, document.offset) + 1
            entries.update(dict.fromkeys(_of_lines(data[begin : document.end], document)))
        elif document.line not in not_json or isinstance(document.value, (dict, list)):
            found = list(_find(document.value, None, None, document.line, numbers=True))
            nothing = UnreadableEntry(document.line, NAMES_NONE)
            entries.update(dict.fromkeys(found or ([nothing] if document.value != [] else [])))
    return list(entries)


def _of_lines(text: bytes, broken: Defect) -> Iterator[RecordLocation | UnreadableEntry]:
    """What the lines of a ``text`` that is not JSON name: a line that is a number by itself, as in a list
    with a header, or that has JSON in it, as in a log. The others are named together."""
    unread: list[int] = []
    for number, line in enumerate(text.decode("utf-8", "replace").split("\n"), broken.line):
        words = line.strip(' \t\r,"\ufeff\x1e')
        found = list(_find(words, None, None, number, numbers=True)) if _NUMBER_LINE.fullmatch(words) else []
        for value in () if found else _values_within(line):
            found += _find(value, None, None, number, numbers=False)
        yield from found
        if words and not found:
            unread.append(number)
    for _, several in groupby(enumerate(unread), lambda pair: pair[1] - pair[0]):
        first, *others = (number for _, number in several)
        to = f"; so are the lines to {others[-1]}" if others else ""
        yield UnreadableEntry(first, f"not JSON: {broken.reason}{to}")


def _find(
    value: Any, shard_id: str | None, stream: str | None, line: int, *, numbers: bool
) -> Iterator[RecordLocation | UnreadableEntry]:
    """What ``value`` names. ``numbers``: a text or number in it is a sequence number."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):  # of a text that only begins like JSON
            value = json.loads(value)
    if isinstance(value, str) and not numbers:
        for inner in _values_within(value):
            yield from _find(inner, shard_id, stream, line, numbers=False)
    if isinstance(value, list):
        each = [
            list(_find(item, shard_id, stream, line, numbers=numbers or _is_number(item))) for item in value
        ]
        others = any(each)
        for item, found in zip(value, each, strict=True):
            yield from found
            if not found and isinstance(item, dict) and others:
                yield UnreadableEntry(line, f"an item of a list: {NAMES_NONE}")
    elif isinstance(value, dict):
        members = {name.lower().replace("_", ""): item for name, item in value.items()}
        if "ddbstreambatchinfo" in members:
            yield UnreadableEntry(line, "a notice of DynamoDB Streams: no records of a Kinesis stream")
            return
        event_shard, _, event_number = str(members.get("eventid") or "").rpartition(":")  # as Lambda names it
        own_shard = members.get("shardid")
        shard_id = (own_shard if isinstance(own_shard, str) and own_shard else event_shard) or shard_id
        stream = stream_in(value) or stream
        first, last = members.get("startsequencenumber"), members.get("endsequencenumber")
        if first is not None and last is not None:
            yield _location(shard_id, stream, first, line, last, members.get("batchsize"))
        elif (
            first is not None
            or last is not None
            or members.keys() & {"startsequencenumber", "endsequencenumber"}
        ):
            yield UnreadableEntry(line, "one of startSequenceNumber and endSequenceNumber is missing")
        number = members.get("sequencenumber")
        if number is None and event_shard.startswith("shardId-") and "kinesis" not in members:
            yield _location(shard_id, stream, event_number, line)
        for name, item in value.items():
            folded = name.lower().replace("_", "")
            is_number = item is not None and folded in _NUMBERS
            entries = list(_find(item, shard_id, stream, line, numbers=is_number))
            if not entries and (is_number or folded == "kinesisbatchinfo"):
                entries.append(UnreadableEntry(line, f"{str(item)[:60]} is no sequence number"))
            yield from entries
    elif numbers:
        # A pipe names a failed record by shard and number.
        named, _, number = value.rpartition(":") if isinstance(value, str) else ("", "", value)
        yield _location(named or shard_id, stream, number, line)


def _values_within(text: str) -> Iterator[Any]:
    """The JSON objects and lists within a text, as a log's message has them."""
    at, effort = 0, _EFFORT + _MOST_EFFORT * len(text)  # CAP-12, as in json_stream.py
    while (bracket := _BRACKET.search(text, at)) is not None:
        found = _value_at(text, bracket.start())
        if isinstance(found, int):
            # Lists that begin side by side are broken by the same damage.
            at, effort = max(bracket.end() - 1, bracket.start() + 1), effort - found
        else:
            value, at = found
            yield value
        if effort < 0:
            yield {"sequenceNumber": "a text with more brackets than are tried"}
            return


def _value_at(text: str, begin: int) -> tuple[Any, int] | int:
    """The JSON object or list that begins there, and where it ends; else how many characters were tried."""
    size = 4096
    while True:
        # Python counts the lines before an error: of a long text that would cost much time.
        part = text[begin : begin + size]
        try:
            value, end = _DECODER.raw_decode(part)
            return value, begin + end
        except json.JSONDecodeError as error:
            end = len(part) if error.msg.startswith("Unterminated string") else error.pos
            if end < len(part) - _LONGEST_TOKEN or begin + size >= len(text):
                return end
        except RecursionError:
            return sys.getrecursionlimit()
        except ValueError:  # a number of thousands of digits
            return len(part)
        size *= 4


def _is_number(item: Any) -> bool:
    """Whether an item of a list, of which nothing says what it holds, is a sequence number."""
    return isinstance(item, (str, int)) and _OF_THE_SERVICE.fullmatch(str(item)) is not None


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
    return RecordLocation(shard_id, numbers[0], end, _size(size), stream)


def _size(size: Any) -> int | None:
    """The size of a batch: a whole number, or its text."""
    with suppress(ValueError, TypeError, OverflowError):
        if not isinstance(size, bool) and int(size) == float(size):
            return int(size)
    return None


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
    return _records_of(client, stream, locations, read_on)


def _records_of(
    client: Any, stream: str, locations: Iterable[RecordLocation | UnreadableEntry], read_on: int
) -> Iterator[KinesisRecord | GoneRecord | UnreadableEntry]:
    shard_id, first, last, records = "", 0, -1, dict[str, Mapping[str, Any]]()
    yielded: set[tuple[str, str]] = set()
    for location in locations:
        # CHN-3: "Of records that were asked for by sequence number each MUST be given, or named as gone; what
        # cannot be read of the list MUST be named with its line."
        if isinstance(location, UnreadableEntry):
            yield location
            continue
        if not isinstance(location, RecordLocation):
            give = "what find_sequence_numbers gives, or RecordLocations"
            raise argument_error("fetch_records", "locations", location, give=give)
        number, reason = location.sequence_number, "the stream does not hold it any more"
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
                refusal = error.reason
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
                page, reason = [], error.reason
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
