"""A stream, given by its name or by its ARN, from which its region is known.

stream_of("orders").argument                                    # {"StreamName": "orders"}
stream_of("arn:aws:kinesis:eu-west-1:123456789012:stream/orders").region      # "eu-west-1"
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any, Final, NamedTuple

from ..errors import KplError
from ..format.records import without_none

_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_ARN: Final = re.compile(r"arn:aws[a-z-]*:kinesis:([a-z0-9-]+):\d+:stream/([a-zA-Z0-9_.-]{1,128})")


class StreamNameError(KplError, ValueError):
    """A text that is neither the name nor the ARN of a Kinesis stream, or an ARN of another region."""

    code = "stream-name"
    requirement = "MAP-22"
    name: str
    reason: str = "give its name, or its ARN (arn:aws:kinesis:REGION:ACCOUNT:stream/NAME)"
    text = "no stream can be read as {name!r}: {reason}"
    todo = "Give the name or the ARN of a stream."


class SeveralStreams(KplError, ValueError):
    """Records of two streams cannot be compared with one shard map that does not name its stream."""

    code = "several-streams"
    requirement = "SPK-111"
    first: str
    second: str
    text = (
        "records of {first} and {second}, and the shard map does not say which of them it is of: "
        "`kpl-codec shards list --stream NAME --closed --json` writes one that does, and so does "
        "ShardMap.from_json(text, stream=NAME or ARN)"
    )
    concerns = "Whoever asked for verdicts. No record gets a verdict by another stream's map."
    todo = (
        "Check each stream with a map that names it: `kpl-codec shards list --stream NAME --closed --json` "
        "writes one, fetch_shard_map and ShardMap.from_json(text, stream=NAME or ARN) give one. Name streams "
        "of two regions or accounts by their ARNs."
    )


class Stream(NamedTuple):
    """A stream. ``arn`` and ``region``: None where only its name was given. ``created``: when it was created,
    None if that is not known."""

    name: str
    arn: str | None = None
    region: str | None = None
    created: datetime | None = None

    @property
    def argument(self) -> dict[str, str]:
        """The argument of a call that names the stream. An ARN works for streams of other accounts, too."""
        return {"StreamARN": self.arn} if self.arn else {"StreamName": self.name}

    @property
    def argument_of_get_records(self) -> dict[str, str]:
        """As `argument`, for GetRecords, which takes an ARN but no name, because its iterator names the
        stream."""
        return {"StreamARN": self.arn} if self.arn else {}

    def has(self, text: str | None) -> bool:
        """Whether a record that names ``text`` (a name, an ARN, None) as its stream may be of this one."""
        return text is None or may_be_one(text, self.arn or self.name)

    def is_another(self, other: Stream) -> bool:
        """Whether the two are certainly two streams, by their names or ARNs."""
        return self.name != other.name or (None not in (self.arn, other.arn) and self.arn != other.arn)


class StreamMatcher:
    """Finds the records that are not of a shard map's stream. Without a stream (None) every record counts as
    of it. With ``refuse``, all records that may be of it must name one stream. Threads may share it; it can
    be pickled."""

    def __init__(self, stream: Stream | None, *, refuse: bool = True) -> None:
        self._stream, self._refuse = stream, refuse
        self._first: dict[None, str] = {}

    def mismatches(self, names: Iterable[str | None]) -> list[str]:
        """Those of ``names``, the streams that records name, that are not the map's stream. Raises
        SeveralStreams."""
        others = []
        for name in names:
            if name is None:
                continue
            if self._stream is not None and not self._stream.has(name):
                others.append(name)
            elif self._refuse:
                # SPK-111: "Records of several streams MUST NOT be judged by one map that does not say which
                # of them it is of: whoever is given both refuses them, with what to do."
                first = self._first.setdefault(None, name)
                if not may_be_one(first, name):
                    raise SeveralStreams(first=first, second=name)
                if ":" not in first:  # an ARN says more than a name
                    self._first[None] = name
        return others


def stream_of(text: str) -> Stream:
    """The stream with this name or ARN. Raises StreamNameError; TypeError for what is no text."""
    if not isinstance(text, str):
        raise TypeError(f"a stream's name or ARN is a str, not a value of type {type(text).__name__}")
    if _NAME.fullmatch(text):
        return Stream(text)
    # MAP-22: "A stream MUST be taken by its name or its ARN wherever one is named, and an ARN is asked for in
    # its own region; what is neither is refused."
    match = _ARN.fullmatch(text)
    if match is None:
        raise StreamNameError(name=text)
    return Stream(match[2], text, match[1])


def may_be_one(one: str, other: str) -> bool:
    """Whether two names or ARNs may be of one stream."""
    one, other = (text.partition("/consumer/")[0] for text in (one, other))
    if ":" in one and ":" in other:
        return one == other
    return one.rpartition("/")[2] == other.rpartition("/")[2]


def streams_named(texts: Iterable[str], stream: Stream | None = None) -> list[str]:
    """The streams that ``texts``, names and ARNs, are of, or those that ``stream`` may be: their names, but
    ARNs of those with the same name."""
    arns: dict[str, set[str]] = {}
    for text in texts:
        if stream is None or stream.has(text):
            named = arns.setdefault(text.partition("/consumer/")[0].rpartition("/")[2], set())
            named.update([text.partition("/consumer/")[0]] if ":" in text else [])
    return sorted(
        text for name, of_name in arns.items() for text in (of_name if len(of_name) > 1 else [name])
    )


def stream_name(text: str | None) -> str | None:
    """The name of the stream that a record names by ``text``, a name or an ARN."""
    return text if text is None else text.partition("/consumer/")[0].rpartition("/")[2]


def name_beside(text: str, stream: Stream | None) -> str:
    """The name of the stream that a record names by ``text``; its ARN if it has the name of ``stream`` and is
    another one."""
    arn = text.partition("/consumer/")[0]
    name = arn.rpartition("/")[2]
    return arn if stream is not None and name == stream.name and not stream.has(arn) else name


def stream_members(stream: Stream) -> dict[str, Any]:
    """What names the stream in a response of DescribeStream."""
    created = stream.created and stream.created.isoformat()
    return without_none(StreamName=stream.name, StreamARN=stream.arn, StreamCreationTimestamp=created)


def stream_of_pages(pages: Sequence[Any]) -> Stream | None:
    """The inverse of `stream_members`: the stream that the first page of a listing names; None for
    ListShards."""
    page = pages[0] if pages and isinstance(pages[0], Mapping) else {}
    description = page.get("StreamDescription", page)
    if not isinstance(description, Mapping):
        return None
    name: Any = description.get("StreamARN") or description.get("StreamName")
    created = description.get("StreamCreationTimestamp")
    with suppress(StreamNameError, TypeError):
        stream = stream_of(name)
        with suppress(ValueError, OverflowError, OSError):
            if isinstance(created, str):
                created = datetime.fromisoformat(created)
            elif isinstance(created, (int, float)):
                created = datetime.fromtimestamp(created, timezone.utc)
        is_time = isinstance(created, datetime) and created.tzinfo is not None
        return stream._replace(created=created if is_time else None)
    return None
