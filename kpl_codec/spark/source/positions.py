"""Parses the options ``startingPosition`` and ``endingPosition``, and checks them against the stream."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any, ClassVar, Final

from ...errors import KplError
from ...shards.starting_position import (
    LATEST,
    TRIM_HORIZON,
    StartingPosition,
    after_record,
    at_record,
    at_time,
)
from .offsets import OffsetError, StreamOffset, is_sequence_number

#: Where to begin or end: one place for every shard, or a place for each shard that is named.
Position = StartingPosition | Mapping[str, StartingPosition]
#: Where a streaming query begins: also an offset of another query's checkpoint.
Start = Position | StreamOffset

#: Milliseconds by which the clocks of two machines may differ.
_CLOCK_SKEW: Final = 60_000
#: The beginning of 2013, before which there was no Kinesis, and the end of the year 9999, in ms since 1970.
_FIRST_TIME: Final = 1_356_998_400_000
_LAST_TIME: Final = 253_402_300_799_999


class OptionError(KplError, ValueError):
    """An option of the data source is unknown, or has a wrong value. ``expected``: what it can have, or what
    may be meant."""

    code: str = "option"
    requirement = "SPK-64"
    option: str
    value: object
    expected: str
    text = "option {option} = {value!r}: expected {expected}"
    texts: ClassVar[dict[str, str]] = {
        "unknown-option": "kpl-kinesis has no option {option}: {expected}",
        "catalog-table": "kpl-kinesis cannot be a table of Spark's catalog, which hands on none of its"
        " options: use CREATE TEMPORARY VIEW ... USING `kpl-kinesis` OPTIONS (...), save() or start()",
    }
    codes = ("option", "unknown-option", "catalog-table")
    concerns = "The Spark query, which did not start."
    todo = "Give the option of kpl-kinesis that the error names one of the values that it lists."


class InvalidPosition(Exception):
    """A text is no valid value of an option. ``args``: what is expected, and perhaps the part of the text
    that is wrong."""


class PlacesByShard(dict[str, StartingPosition]):
    """A place for each shard that is named. ``stream_name``: the stream that they are of, if that is said."""

    stream_name: str | None = None


def start_position(text: str, *, start: bool = True) -> Start:
    """Parse TRIM_HORIZON, LATEST, a time (ISO 8601, or ms since 1970, perhaps after AT_TIMESTAMP), or JSON:
    {"at_timestamp": time}, or {shard id: any of these, a sequence number, or {"iteratorType": ...,
    "iteratorPosition": ...}}. The record of a sequence number is read, as a start and as an end. A start
    can be an offset of this source, too. Raises InvalidPosition."""
    if not text.lstrip().startswith("{"):
        return _place(text)
    try:
        members = json.loads(text, object_pairs_hook=_unique_members)
    except (ValueError, RecursionError):
        raise InvalidPosition("JSON") from None
    if "at_timestamp" in members:
        if len(members) > 1 or not isinstance(members["at_timestamp"], str):
            raise InvalidPosition("at_timestamp alone, as 2026-11-21T10:00:00Z")
        return _place(members["at_timestamp"])
    if members.keys() & {"shards", "version"}:
        return _offset(members, start=start)
    stream_name = _stream_of_metadata(members.pop("metadata", {}))
    places = PlacesByShard(
        (shard_id, _shard_place(value, start=start))
        for shard_id, value in members.items()
        # What follows a shard that was read to its end begins at the places of its children.
        if not (isinstance(value, Mapping) and value.get("iteratorType") == "SHARD_END")
    )
    if not places:  # a batch read would read nothing
        raise InvalidPosition("JSON with a place for one shard at least that was not read to its end")
    places.stream_name = stream_name
    return places


end_position = partial(start_position, start=False)


def _offset(members: Mapping[str, Any], *, start: bool) -> StreamOffset:
    if not start:
        raise InvalidPosition(
            "a place, or JSON by shard: only startingPosition can be an offset of a checkpoint"
        )
    try:
        offset = StreamOffset.from_json(members, members.get("stream", ""))
    except OffsetError as error:
        raise InvalidPosition(f"an offset of kpl-kinesis (this one: {error.reason})") from None
    if not offset.shards:
        raise InvalidPosition("an offset of kpl-kinesis that has shards")
    return offset


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        raise InvalidPosition("each name once", next(name for name in names if names.count(name) > 1))
    return members


def check_position(option: str, position: Position, shard_ids: Collection[str], now: int) -> None:
    """Raise OptionError for a shard that is not among ``shard_ids``, and for a time that is after ``now`` (ms
    since 1970) by more than clocks may differ."""
    # SPK-91: "A position that names a shard that the stream does not list, or a time to come, MUST be
    # refused before anything is read, and so MUST an end before the start, or of a shard that has no start."
    by_shard = {} if isinstance(position, StartingPosition) else position
    places = [position] if isinstance(position, StartingPosition) else by_shard.values()
    if unknown := sorted(by_shard.keys() - set(shard_ids)):
        expected = f"one of the {len(shard_ids)} shards that the stream lists"
        raise OptionError(option=option, value=unknown[0], expected=expected)
    for place in places:
        if place.kind == "AT_TIMESTAMP" and place.time_ms > now + _CLOCK_SKEW:
            value = datetime.fromtimestamp(place.time_ms // 1000, timezone.utc).isoformat()
            raise OptionError(option=option, value=value, expected="a time that is not to come, or LATEST")


def check_order(starts: Mapping[str, StartingPosition], ends: Mapping[str, StartingPosition]) -> None:
    """Raise OptionError for a shard that has an end and no start, and for an end before the start, where both
    name a record or both a time."""
    for shard_id, end in ends.items():
        start = starts.get(shard_id)
        if start is None:
            expected = "a shard that startingPosition names: it is read from there"
            raise OptionError(option="endingPosition", value=shard_id, expected=expected)
        if start.names_record and end.names_record:
            reversed_ = start.lowest > end.lowest
        else:
            reversed_ = start.kind == end.kind == "AT_TIMESTAMP" and start.time_ms > end.time_ms
        if reversed_:
            expected = f"a place on {shard_id} that is not before startingPosition ({start.value})"
            raise OptionError(option="endingPosition", value=end.value, expected=expected)


def _place(text: str) -> StartingPosition:
    word = text.strip()
    if word.upper() in ("TRIM_HORIZON", "EARLIEST"):
        return TRIM_HORIZON
    if word.upper() == "LATEST":
        return LATEST
    when = re.sub("^AT_TIMESTAMP", "", word, flags=re.IGNORECASE).strip()
    try:
        milliseconds = int(when) if re.fullmatch("[0-9]{1,15}", when) else _iso_time(when)
    except OverflowError:  # a time in year 1 or 9999 that is outside these years in UTC
        milliseconds = -1
    except ValueError:
        expected = "TRIM_HORIZON, LATEST, a time (2026-11-21T10:00:00Z, or ms since 1970) or JSON by shard"
        raise InvalidPosition(expected, when) from None
    # SPK-115: "A position at a time before 2013, when there was no Kinesis, or after the year 9999 MUST be
    # refused, with what it is in the unit that is expected: seconds are no milliseconds."
    if not _FIRST_TIME <= milliseconds <= _LAST_TIME:
        time = datetime(1970, 1, 1) + timedelta(milliseconds=max(0, min(milliseconds, _LAST_TIME)))
        unit = f", in ms since 1970 ({when} ms is {time:%Y-%m-%d}; seconds take three more digits)"
        raise InvalidPosition(f"a time from 2013 to 9999{unit if when.isdigit() else ''}", when)
    return at_time(milliseconds)


def _iso_time(text: str) -> int:
    moment = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith(("Z", "z")) else text)
    if moment.tzinfo is None:
        # A time without a zone depends on the machine.
        raise InvalidPosition("a time with its zone, as 2026-11-21T10:00:00Z", text)
    return round(moment.timestamp() * 1000)


#: Members of the awslabs connector's offsets, by shard and beside the shards.
_MEMBERS: Final = ("iteratorType", "iteratorPosition", "subSequenceNumber", "isLast")
_METADATA: Final = ("batchId", "streamName")


def _stream_of_metadata(metadata: Any) -> str | None:
    """The stream that the awslabs connector names beside the shards."""
    if not isinstance(metadata, Mapping):
        raise InvalidPosition("metadata as the awslabs connector writes it", str(metadata))
    _refuse_others(metadata, _METADATA)
    name = metadata.get("streamName")
    return None if name is None else str(name)


def _refuse_others(members: Mapping[str, Any], known: tuple[str, ...]) -> None:
    # SPK-127: "Each member of a position that another program has written MUST be understood or refused by
    # name, and no user record passed over."
    if other := next((name for name in members if name not in known), None):
        raise InvalidPosition(f"none but the members {', '.join(known)}", other)


def _shard_place(value: Any, *, start: bool) -> StartingPosition:
    if isinstance(value, Mapping):
        _refuse_others(value, _MEMBERS)
        kind, place = str(value.get("iteratorType", "")), str(value.get("iteratorPosition", ""))
        sub, is_last = str(value.get("subSequenceNumber", -1)), str(value.get("isLast", "")).lower()
        if not re.fullmatch("-1|[0-9]{1,9}", sub):
            raise InvalidPosition("a subSequenceNumber, -1 for none", sub)
        if is_last not in ("true", "false", ""):
            raise InvalidPosition("isLast true or false", is_last)
        if kind in ("AFTER_SEQUENCE_NUMBER", "AT_SEQUENCE_NUMBER"):
            if not is_sequence_number(place):
                raise InvalidPosition("a sequence number", place)
            # Within an aggregated record: it is read again, so that the rest of it comes.
            within = sub != "-1" and is_last != "true"
            at_it = start and (kind == "AT_SEQUENCE_NUMBER" or within)
            return at_record(place) if at_it else after_record(place)
        if sub != "-1":
            raise InvalidPosition("a subSequenceNumber with a sequence number only", sub)
        return _place(f"{kind} {place}".strip())
    text = str(value)
    if is_sequence_number(text) and len(text) > 15:
        return at_record(text) if start else after_record(text)
    return _place(text)
