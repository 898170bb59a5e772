"""The ledgers of one side, read: their rows, and where rows may be lacking.

A writer's members are numbered from 0. One that was read twice counts once. Where the count skips one, its
rows are lost, and so may be those behind the last one of a file that is damaged at its end.
Specification: spec/15-audit.md, AUD-3 to AUD-7.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ..ledger.ledger import LINE, SUFFIX, VERSION
from ..ledger.ledger_rows import SEQUENCE_NUMBER, Ranges, Row, row_of

_NAME: Final = re.compile(r"(?:Copy of )?(.{1,200}?)-(\d{1,12})" + re.escape(SUFFIX) + r".*")
#: What a line of a ledger begins with.
MARK: Final = b'{"%s":' % LINE.encode()
_GZIP: Final = b"\x1f\x8b\x08\x00"
#: Text of a member at most. What is larger was not written by a ledger, and its CRC comes too late.
_MOST_TEXT: Final = 16 << 20
#: Damaged places of a file after which the rest of it is left alone.
_MOST_DAMAGE: Final = 100
_MOST_NUMBER: Final = 1 << 53


class Hole(NamedTuple):
    """Rows that a ledger may lack; ``why`` in words. ``ranges``: between which Kinesis records they lie, None
    if that is not known."""

    writer: str
    why: str
    ranges: Ranges | None = None


class UnreadableInput(NamedTuple):
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
    """What was read of one writer."""

    def __init__(self) -> None:
        self.origin = Origin()
        self.members: set[int] = set()
        self.last = self.last_part = -1
        self.follows = -1  # a member that is there, or was
        self.end: int | None = None
        self.early: list[Row] = []  # of a log, before a header was read
        #: Between which sequence numbers the rows of members lie: from one, to before another.
        self.named: list[tuple[int, int, Ranges]] = []
        self.bad: list[str] = []

    @property
    def is_whole(self) -> bool:
        return self.end == self.last == len(self.members) - 1

    def ranges(self, start: int, stop: int) -> Ranges | None:
        """Between which Kinesis records the rows of some members lie; None if that is not known."""
        found: dict[str, tuple[str, str]] = {}
        for first, last, ranges in sorted(self.named, key=lambda named: named[:2]):
            if first <= start < last:
                for shard_id, (low, high) in ranges.items():
                    known = found.get(shard_id, (low, high))
                    found[shard_id] = min(low, known[0], key=int), max(high, known[1], key=int)
                start = last
        return found if start >= stop else None


class LedgerReader:
    """All ledgers of one side. ``unreadable``: what could not be read, `told` of all files."""

    def __init__(self) -> None:
        self._writers = defaultdict[str, _Writer](_Writer)
        #: Files that are damaged: which, their writer, part, and the member before that; -1: there is none.
        self._torn: dict[tuple[str, str | None, int, int], None] = {}
        #: Log lines that are a ledger's, readable or not.
        self.marked = 0
        self._unreadable: dict[tuple[str, str], UnreadableInput] = {}
        self._dark: list[Hole] = []

    def __bool__(self) -> bool:
        return bool(self._writers or self._torn)

    @property
    def unreadable(self) -> list[UnreadableInput]:
        return list(self._unreadable.values())

    @property
    def origins(self) -> set[Origin]:
        return {writer.origin for writer in self._writers.values()}

    def tell(self, file: str, why: str, times: int = 1, row: int | None = None) -> None:
        """Something in a file could not be read."""
        known = self._unreadable.get((file, why), UnreadableInput(file, why, 0, row))
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
        writer, part, member = (match[1], int(match[2]), -1) if match else (None, 0, -1)
        for text in _members(data) if data else (None,):
            lines = [] if text is None else text.rstrip(b"\n").split(b"\n")
            header = _facts(lines[0]) if lines else None
            whole = header and header.get("kind") == "header" and header.get("lines") == len(lines)
            if header is None or not whole or not _is_ours(header, header):
                self._torn[name, writer, part, member] = None
                if header and header.get("version", VERSION) != VERSION:
                    self.lose(name, "another version of the format: a newer kpl_codec may read it")
            else:
                writer, part, member = header[LINE], header["part"], header["member"]
                if member not in self._writers[writer].members:
                    rows = self._rows(name, header, map(_facts, lines))
                    yield self._writers[writer].origin, rows

    def add_lines(self, name: str, lines: Iterable[bytes]) -> Iterator[tuple[Origin, list[Row]]]:
        """The rows of those log lines that are a ledger's."""
        for number, line in enumerate(lines, 1):
            at = line.find(MARK)
            if at < 0:
                continue
            self.marked += 1
            facts = _facts(line[at:]) or {}
            which = {key: facts.pop(key, None) for key in _WHICH}
            if which["crc32"] != _crc(facts) or not _is_ours(which, facts):
                why = "a line of a ledger that cannot be read: it is cut or changed, or of another version"
                self.lose(name, why, row=number)
                continue
            writer = self._writers[which[LINE]]
            if which["member"] not in writer.members:
                writer.early += self._rows(name, which, [facts], number)
                if writer.origin.side is not None:
                    rows, writer.early = writer.early, []
                    yield writer.origin, rows

    def rest(self) -> Iterator[tuple[Origin, list[Row]]]:
        """The rows of writers of which no header was read. To be asked for when all files were read."""
        for writer in self._writers.values():
            yield writer.origin, writer.early

    def _rows(
        self,
        name: str,
        which: Mapping[str, Any],
        lines: Iterable[Mapping[str, Any] | None],
        number: int | None = None,
    ) -> list[Row]:
        """The rows of a member, and what else its lines say."""
        writer, member, found, bad = self._writers[which[LINE]], which["member"], list[Row](), 0
        writer.members.add(member)
        writer.last, writer.last_part = max(writer.last, member), max(writer.last_part, which["part"])
        for line in lines:
            facts = line or {}
            kind, row = facts.get("kind"), row_of(facts)
            writer.named += _named(facts.get("named"), member)
            if row is not None:
                found.append(row)
            elif kind == "header" and _is_ours(which, facts):
                writer.origin = Origin(facts["stream"], facts.get("stream_arn"), facts["side"])
            elif kind == "end":
                writer.end = member
            elif kind == "part_end":
                writer.follows = max(writer.follows, member + 1)
            else:
                bad += 1
        if bad:
            writer.bad.append(f"a line of member {member} that is no row of a ledger")
            self.tell(name, writer.bad[-1], bad, number)
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
            later = part < writer.last_part or -1 < member < writer.last
            ours = writer.origin.side in (None, side) and writer.origin.is_of(stream, arn)
            if ours and not later and not writer.is_whole:
                found.append(Hole(owner or file, f"{file} is damaged, or cut off"))
        return found

    def _holes_of(self, name: str, writer: _Writer, side: str) -> Iterator[Hole]:
        for why in writer.bad:
            yield Hole(name, why)
        before = -1
        for member in [*sorted(writer.members), writer.follows + 1]:
            if member > before + 1:
                which = f"member {before + 1}" + f" to {member - 1}" * (member > before + 2)
                yield Hole(name, f"{which}: not there, or not whole", writer.ranges(before + 1, member))
            before = max(before, member)
        # AUD-5: "A producer's ledger without its end, and one whose count of members skips one, MUST make the
        # audit incomplete."
        # AUD-7: "A consumer's rows MUST be stored before the records count as handled": a consumer without an
        # end has named all that will not come again.
        if side == "produced" and writer.end != writer.last:
            yield Hole(name, "it was not closed, or its end is not there")


#: What a line of a log says before its own members.
_WHICH: Final = (LINE, "part", "member", "crc32")


def _facts(line: bytes) -> dict[str, Any] | None:
    """The JSON object that a line begins with, or is; None for one with text that is no Unicode."""
    try:
        facts, _ = json.JSONDecoder().raw_decode(line.decode())
        if b"\\u" in line:  # half of a surrogate pair, which nothing can print or write
            json.dumps(facts, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return facts if isinstance(facts, dict) else None


def _crc(facts: Mapping[str, Any]) -> int:
    """The CRC of a log line without what comes before it. (Its text is that of `json.dumps`.)"""
    try:
        return zlib.crc32(json.dumps(facts, separators=(",", ":")).encode())
    except RecursionError:
        return -1


def _is_ours(which: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Whether ``which`` says which member it is, and ``facts``, if they are a header, what that must say."""
    numbers = which.get("member"), which.get("part")
    if type(which.get(LINE)) is not str or not all(
        type(one) is int and 0 <= one < _MOST_NUMBER for one in numbers
    ):
        return False
    texts = facts.get("stream"), facts.get("side"), facts.get("stream_arn", 0) or ""
    known = facts.get("version") == VERSION and texts[1] in ("produced", "handled")
    return facts.get("kind") != "header" or (known and all(type(text) is str for text in texts))


def _named(said: Any, member: int) -> list[tuple[int, int, Ranges]]:
    """What a header or an end says of the members before it; nothing where that cannot be read."""
    first, by_shard = said if isinstance(said, list) and len(said) == 2 else (None, None)
    if type(first) is not int or first < 0 or not isinstance(by_shard, dict):
        return []
    for ends in by_shard.values():
        numbers = ends if isinstance(ends, list) and len(ends) == 2 else [None]
        if not all(type(one) is str and SEQUENCE_NUMBER.fullmatch(one) for one in numbers):
            return []
    return [(first, member, {shard_id: (low, high) for shard_id, (low, high) in by_shard.items()})]


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
