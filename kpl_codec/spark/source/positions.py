"""Where a read begins and ends, from the options. Specification: spec/07-spark-source.md, SPK-64, SPK-65."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ...errors import KplError
from ...shards.place import LATEST, TRIM_HORIZON, Place, after_record, at_record, at_time

#: Where to begin or end: every shard at one place, or some shards each at its own.
Position = Place | Mapping[str, Place]

#: Letters of Java's DateTimeFormatter, as the Databricks source takes them, and what Python calls them.
_JAVA_FIELDS: Final = {
    "yyyy": "%Y", "uuuu": "%Y", "yy": "%y", "MM": "%m", "MMM": "%b", "MMMM": "%B", "dd": "%d", "HH": "%H",
    "hh": "%I", "mm": "%M", "ss": "%S", "SSS": "%f", "SSSSSS": "%f", "a": "%p", "EEE": "%a", "DDD": "%j",
}  # fmt: skip
_ZONE_LETTERS: Final = re.compile(r"(Z+|z+|X+|x+|V+)$")
#: Hours from UTC of the zones that Java's short names stand for.
_ZONES: Final = {
    "UTC": 0, "GMT": 0, "Z": 0, "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8,
    "PDT": -7,
}  # fmt: skip


class OptionError(KplError, ValueError):
    """``option`` has ``value``, which is not ``expected``."""

    code = "option"
    requirement = "SPK-64"
    option: str
    value: object
    expected: str
    text = "option {option} = {value!r}: expected {expected}"


def parse_position(option: str, text: str) -> Position:
    """TRIM_HORIZON, LATEST, a time (ISO 8601, or ms since 1970; AT_TIMESTAMP may stand before it), or JSON:
    {shard id: any of these, or a sequence number, or {"iteratorType": ..., "iteratorPosition": ...}}, or
    {"at_timestamp": time, "format": pattern of Java}.

    A sequence number is included, as a start and as an end. Raises OptionError.
    """
    if not text.lstrip().startswith("{"):
        return _place(option, text)
    try:
        found = json.loads(text)
    except ValueError:
        raise OptionError(option=option, value=text, expected="JSON") from None
    if "at_timestamp" in found:
        return at_time(_milliseconds(_java_time(option, str(found["at_timestamp"]), found.get("format"))))
    return {
        shard_id: _shard_place(option, value)
        for shard_id, value in found.items()
        if shard_id != "metadata"  # the awslabs connector's own
    }


def _milliseconds(moment: datetime) -> int:
    return round(moment.astimezone(timezone.utc).timestamp() * 1000)


def _place(option: str, text: str) -> Place:
    word = text.strip()
    if word.upper() in ("TRIM_HORIZON", "EARLIEST"):
        return TRIM_HORIZON
    if word.upper() == "LATEST":
        return LATEST
    when = word[len("AT_TIMESTAMP") :].strip() if word.upper().startswith("AT_TIMESTAMP") else word
    if when.isascii() and when.isdigit() and len(when) <= 15:
        return at_time(int(when))
    return at_time(_milliseconds(_iso_time(option, when)))


def _iso_time(option: str, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith(("Z", "z")) else text)
    except ValueError:
        expected = "TRIM_HORIZON, LATEST, a time (2026-11-21T10:00:00Z, or ms since 1970) or JSON by shard"
        raise OptionError(option=option, value=text, expected=expected) from None
    if moment.tzinfo is None:
        # A time without a zone depends on the machine.
        raise OptionError(option=option, value=text, expected="a time with its zone, as 2026-11-21T10:00:00Z")
    return moment


def _java_time(option: str, text: str, pattern: str | None) -> datetime:
    """A time as the Databricks source takes it: with the zone as its last word."""
    if pattern is None:
        return _iso_time(option, text)
    expected = f"a time written as {pattern!r}, with its zone as the last word"
    fields = _ZONE_LETTERS.sub("", pattern).rstrip()
    when, _, zone = text.rpartition(" ")
    if fields == pattern.rstrip() or not when:
        raise OptionError(option=option, value=text, expected=expected)
    python = re.sub(r"'([^']*)'|([A-Za-z])\2*", _python_field, fields)
    try:
        return datetime.strptime(when, python).replace(tzinfo=_zone(zone))
    except (ValueError, ZoneInfoNotFoundError):
        raise OptionError(option=option, value=text, expected=expected) from None


def _python_field(java: re.Match[str]) -> str:
    if java[1] is not None:
        return java[1].replace("%", "%%")  # quoted text
    return _JAVA_FIELDS.get(java[0], "\0")  # matches nothing


def _zone(name: str) -> tzinfo:
    offset = re.fullmatch(r"(?:UTC|GMT)?([+-])(\d\d):?(\d\d)", name)
    if offset:
        minutes = int(offset[2]) * 60 + int(offset[3])
        return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    if name.upper() in _ZONES:
        return timezone(timedelta(hours=_ZONES[name.upper()]))
    return ZoneInfo(name)


def _shard_place(option: str, value: Any) -> Place:
    start = option == "startingPosition"
    if isinstance(value, Mapping):
        kind, place = str(value.get("iteratorType", "")), str(value.get("iteratorPosition", ""))
        if kind == "AFTER_SEQUENCE_NUMBER" and place:
            return after_record(place)
        if kind == "AT_SEQUENCE_NUMBER" and place:
            return at_record(place) if start else after_record(place)
        return _place(option, f"{kind} {place}".strip())
    text = str(value)
    if text.isascii() and text.isdigit() and len(text) > 15:
        return at_record(text) if start else after_record(text)
    return _place(option, text)
