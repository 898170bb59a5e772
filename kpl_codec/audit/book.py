"""The ledgers of one side, read: their rows, and where rows may be lacking.

    files      gzip members ──┐
                              ├──▶ Book ──▶ members of writers ──▶ rows, holes
    logs       lines ─────────┘

A writer's members are numbered from 0. One that was read twice counts once; where the count skips one, its
rows are lost, and so are those behind the last one of a file that is damaged at its end.
Specification: spec/15-audit.md, AUD-3 to AUD-7.
"""

from __future__ import annotations

import json
import re
import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ..ledger import SEQUENCE_NUMBER, Ranges, Row, row_of
from .ledger import LINE, SUFFIX, VERSION

_NAME: Final = re.compile(r"(?:.*[/\\])?(?:Copy of )?(.{1,200}?)-(\d{1,12})" + re.escape(SUFFIX) + r".*")
#: What a line of a ledger begins with.
MARK: Final = b'{"%s":' % LINE.encode()
_GZIP: Final = b"\x1f\x8b\x08\x00"
#: Text of a member at most. What is larger was not written by a ledger, and its CRC comes too late.
_MOST_TEXT: Final = 16 << 20
#: Damaged places of a file after which the rest of it is left alone.
_MOST_DAMAGE: Final = 100
_MOST_LINE: Final = 1 << 16
_MOST_NUMBER: Final = 1 << 53


class Hole(NamedTuple):
    """Rows that a ledger may lack; ``why`` in words. ``ranges``: between which Kinesis records they lie, None
    if that is not known."""

    writer: str
    why: str
    ranges: Ranges | None = None


class Unreadable(NamedTuple):
    """What of a file could not be read, how often, and where that was first (row or line, from 1)."""

    file: str
    why: str
    times: int = 1
    row: int | None = None


class Origin(NamedTuple):
    """Whose rows they are; None where it is not known."""

    stream: str | None = None
    stream_arn: str | None = None
    side: str | None = None

    def is_of(self, stream: str | None, arn: str | None) -> bool:
        """Whether they may be of that stream. (A queue's ARN names no stream.)"""
        other = self.stream_arn
        if other is not None and ":stream/" not in other:
            return True
        if None not in (stream, self.stream) and stream != self.stream:
            return False
        return None in (arn, other) or arn == other


class _Writer:
    """The members of one writer that were read whole, as intervals; and those of which lines are there."""

    def __init__(self) -> None:
        self.origin = Origin()
        self.starts: list[int] = []
        self.stops: list[int] = []
        self.partial: dict[int, dict[int, Mapping[str, Any]]] = {}
        self.covers: list[tuple[int, int, Ranges]] = []
        self.end: int | None = None
        self.last_part = 0
        self.follows = -1  # a member that is there, or was
        self.bad: list[str] = []

    def has(self, member: int) -> bool:
        at = bisect_right(self.starts, member) - 1
        return at >= 0 and member < self.stops[at]

    def add(self, member: int) -> None:
        at = bisect_right(self.starts, member)
        joins_left = at > 0 and self.stops[at - 1] == member
        joins_right = at < len(self.starts) and self.starts[at] == member + 1
        if joins_left:
            self.stops[at - 1] = self.stops.pop(at) if joins_right else member + 1
            del self.starts[at : at + joins_right]
        elif joins_right:
            self.starts[at] = member
        else:
            self.starts.insert(at, member)
            self.stops.insert(at, member + 1)

    @property
    def is_whole(self) -> bool:
        return self.starts == [0] and self.end is not None and self.stops == [self.end + 1]

    def ranges(self, start: int, stop: int) -> Ranges | None:
        """Between which Kinesis records the rows of some members lie; None if that is not known."""
        found: dict[str, tuple[str, str]] = {}
        for first, last, ranges in sorted(self.covers, key=lambda cover: cover[:2]):
            if first <= start < last:
                for shard_id, (low, high) in ranges.items():
                    known = found.get(shard_id, (low, high))
                    found[shard_id] = min(low, known[0], key=int), max(high, known[1], key=int)
                start = last
        return found if start >= stop else None


class Book:
    """All ledgers of one side. ``unreadable``: what could not be read, `told` of all files."""

    def __init__(self) -> None:
        self._writers = defaultdict[str, _Writer](_Writer)
        #: Files that are damaged: which, their writer, part, and the member before that; -1: there is none.
        self._torn: dict[tuple[str, str | None, int, int], None] = {}
        #: Log lines that are a ledger's, readable or not.
        self.marked = 0
        self._unreadable: dict[tuple[str, str], Unreadable] = {}
        self._dark: list[Hole] = []

    def __bool__(self) -> bool:
        return bool(self._writers or self._torn)

    @property
    def unreadable(self) -> list[Unreadable]:
        return list(self._unreadable.values())

    @property
    def origins(self) -> set[Origin]:
        return {writer.origin for writer in self._writers.values()}

    def tell(self, file: str, why: str, times: int = 1, row: int | None = None) -> None:
        """Something in a file could not be read."""
        known = self._unreadable.get((file, why), Unreadable(file, why, 0, row))
        self._unreadable[file, why] = known._replace(times=known.times + times)

    def lose(self, file: str, why: str, ranges: Ranges | None = None, row: int | None = None) -> None:
        """A file could not be read, so that what it says is lost."""
        if (file, why) not in self._unreadable:
            self._dark.append(Hole(file, why, ranges))
        self.tell(file, why, row=row)

    # -- reading ------------------------------------------------------------------------------

    def add_gzip(self, name: str, data: bytes) -> Iterator[tuple[Origin, list[Row]]]:
        """The rows of a ledger's file, member by member, and whose they are."""
        match = _NAME.fullmatch(name)
        writer, part, member = match[1] if match else None, int(match[2]) if match else 0, -1
        if not data:
            self._torn[name, writer, part, member] = None
        for text in _members(data):
            lines = [] if text is None else text.rstrip(b"\n").split(b"\n")
            header = _facts(lines[0]) if lines else None
            if header is None or header.get("lines") != len(lines) or not _is_known(header):
                if header and type(header.get("version")) is int and header["version"] > VERSION:
                    self.lose(name, f"version {header['version']} of the format: a newer kpl_codec reads it")
                self._torn[name, writer, part, member] = None
                continue
            writer, part, member = header[LINE], header["part"], header["member"]
            if not self._writers[writer].has(member):
                rows = [_facts(line) for line in lines[1:]]
                found = self._whole(name, header, rows)
                yield self._writers[writer].origin, found

    def add_lines(self, name: str, lines: Iterable[bytes]) -> Iterator[tuple[Origin, list[Row]]]:
        """The rows of those log lines that are a ledger's: a member is given when all its lines are there."""
        for number, line in enumerate(lines, 1):
            at = line.find(MARK)
            if at < 0:
                continue
            self.marked += 1
            facts = _facts(line[at:])
            crc = None if facts is None else facts.pop("crc32", None)
            which = {} if facts is None else {key: facts.pop(key, None) for key in _WHICH}
            text = json.dumps(facts, separators=(",", ":")).encode()
            if facts is None or crc != zlib.crc32(text) or not _is_known({**facts, **which}):
                why = "a line of a ledger that cannot be read: it is cut or changed, or of a newer version"
                self.lose(name, why, row=number)
                continue
            writer, member = self._writers[which[LINE]], which["member"]
            if writer.has(member):
                continue
            seen = writer.partial.setdefault(member, {})
            seen[which["line"]] = facts
            header = seen.get(0)
            if header is not None and len(seen) == header["lines"]:
                del writer.partial[member]
                rows = [seen.get(index) for index in range(1, len(seen))]
                yield writer.origin, self._whole(name, {**header, **which}, rows, number)

    def rest(self) -> Iterator[tuple[Origin, list[Row]]]:
        """The rows of members of which lines are lost. To be asked for when all files were read."""
        for writer in self._writers.values():
            for seen in writer.partial.values():
                rows = (row_of(facts) for number, facts in seen.items() if number)
                yield writer.origin, [row for row in rows if row is not None]

    def _whole(
        self,
        name: str,
        header: Mapping[str, Any],
        rows: Iterable[Mapping[str, Any] | None],
        line: int | None = None,
    ) -> list[Row]:
        """The rows of a member, all lines of which are there."""
        writer, found, ranges = self._writers[header[LINE]], list[Row](), list[Mapping[str, Any]]()
        writer.origin = Origin(header["stream"], header["stream_arn"], header["side"])
        writer.add(header["member"])
        writer.last_part = max(writer.last_part, header["part"])
        for facts in rows:
            kind = None if facts is None else facts.get("kind")
            row = None if facts is None else row_of(facts)
            if row is not None:
                found.append(row)
            elif facts is not None and kind == "range":
                ranges.append(facts)
            elif kind == "end":
                writer.end = header["member"]
            elif kind == "part_end":
                writer.follows = max(writer.follows, header["member"] + 1)
            else:
                why = f"a line of member {header['member']} that is no row of a ledger"
                self.tell(name, why, row=line)
                writer.bad.append(why)
        writer.covers += _covers(ranges)
        return found

    # -- what may be lacking ------------------------------------------------------------------

    def holes(self, side: str, stream: str | None = None, arn: str | None = None) -> list[Hole]:
        """Where rows of that stream may be lacking. To be asked for when all rows were read."""
        found = list(self._dark)
        for name, writer in sorted(self._writers.items()):
            if writer.origin.side in (None, side) and writer.origin.is_of(stream, arn):
                found += self._holes_of(name, writer, side)
        for file, owner, part, member in self._torn:
            writer = self._writers.get(owner or "", _Writer())
            # What comes behind the damage is missed by the count. And a write that failed was tried again.
            later = part < writer.last_part or (member >= 0 and writer.stops[-1] > member + 1)
            if later or writer.is_whole:
                continue
            if writer.origin.side in (None, side) and writer.origin.is_of(stream, arn):
                found.append(Hole(owner or file, f"{file} is damaged, or cut off"))
        return found

    def _holes_of(self, name: str, writer: _Writer, side: str) -> Iterator[Hole]:
        for why in writer.bad:
            yield Hole(name, why)
        starts = [*writer.starts, max([writer.follows, *writer.partial]) + 1]
        at = 0
        for start, stop in zip(starts, [*writer.stops, 0], strict=True):
            if start > at:
                count = f"member {at} is" if start == at + 1 else f"members {at} to {start - 1} are"
                yield Hole(name, f"{count} not there, or not whole", writer.ranges(at, start))
            at = max(at, stop)
        # AUD-5: "A producer's ledger without its end, and one whose count of members skips one, MUST make the
        # audit incomplete."
        # AUD-7: "A consumer's rows MUST be stored before the records count as handled": a consumer without an
        # end has named all that will not come again.
        if side == "produced" and (writer.end is None or writer.stops[-1:] != [writer.end + 1]):
            yield Hole(name, "it was not closed, or its end is not there")


#: The members of a log line that say which line it is.
_WHICH: Final = (LINE, "part", "member", "line")


def _facts(line: bytes) -> dict[str, Any] | None:
    """The JSON object that a line begins with, or is."""
    try:
        facts, _ = json.JSONDecoder().raw_decode(line[:_MOST_LINE].decode())
    except (ValueError, RecursionError):
        return None
    return facts if isinstance(facts, dict) else None


def _is_known(facts: Mapping[str, Any]) -> bool:
    """Whether that is a header of our version, or another line of a log, that says which it is."""
    numbers = facts.get("member"), facts.get("part"), facts.get("line", 0), facts.get("lines", 1)
    if not all(type(one) is int and 0 <= one < _MOST_NUMBER for one in numbers):
        return False
    if type(facts.get(LINE)) is not str or len(facts[LINE]) > 200:
        return False
    if facts.get("line", 0):
        return True
    texts = [facts.get(key) for key in ("stream", "side")]
    arn = facts.get("stream_arn", 0)
    return (
        facts.get("version") == VERSION
        and facts.get("lines", 0) > 0
        and all(type(text) is str and len(text) <= _MOST_LINE for text in texts)
        and (arn is None or type(arn) is str)
        and texts[1] in ("produced", "handled")
    )


def _covers(lines: list[Mapping[str, Any]]) -> list[tuple[int, int, Ranges]]:
    """What the range lines of one member, which has all of them, say of which members."""
    found = defaultdict[tuple[Any, Any], dict[str, tuple[str, str]]](dict)
    for facts in lines:
        ranges = found[facts.get("from_member"), facts.get("to_member")]
        shard_id, *ends = (facts.get(key) for key in ("shard", "sequence_number", "last_sequence_number"))
        if shard_id is not None:
            if not all(type(end) is str and SEQUENCE_NUMBER.fullmatch(end) for end in ends):
                return []
            ranges[str(shard_id)] = str(ends[0]), str(ends[1])
    return [
        (first, last, ranges)
        for (first, last), ranges in found.items()
        if type(first) is int and type(last) is int and 0 <= first < last
    ]


def _members(data: bytes) -> Iterator[bytes | None]:
    """The text of each whole member of a gzip file; None for a stretch that is none."""
    at = damage = 0
    while at < len(data):
        text, end = _member(data, at)
        if text is None:
            damage += 1
            end = data.find(_GZIP, at + 1)
            end = len(data) if end < 0 or damage >= _MOST_DAMAGE else end
        yield text
        at = end


def _member(data: bytes, at: int) -> tuple[bytes | None, int]:
    """The text of the member at byte ``at``, None for one that is not whole, and where it ends."""
    unpack, parts, size, step = zlib.decompressobj(31), [], 0, 1 << 10
    try:
        while at < len(data) and not unpack.eof and size <= _MOST_TEXT:
            parts.append(unpack.decompress(data[at : at + step], _MOST_TEXT + 1 - size))
            size += len(parts[-1])
            at, step = min(at + step, len(data)), min(2 * step, 1 << 16)
    except zlib.error:
        return None, at
    whole = unpack.eof and 0 < size <= _MOST_TEXT
    return (b"".join(parts) if whole else None), at - len(unpack.unused_data)
