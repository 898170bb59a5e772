"""Reads ledgers of one side: their rows, and where rows may be lacking.

A writer's members are numbered from 0. One that was read twice counts once. Where the count skips one, its
rows are lost, and so may be those behind the last one of a file that is damaged at its end.
Specification: spec/15-audit.md, AUD-3 to AUD-7.
"""

from __future__ import annotations

import io
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple

from ..ledger.ledger import MEMBER_ROWS, SUFFIX, VERSION, WRITER
from ..ledger.ledger_rows import SEQUENCE_NUMBER, Ranges, Row, row_of

_NAME: Final = re.compile(r"(?:Copy of )?(.{1,200}?)-(\d{1,12})" + re.escape(SUFFIX) + r".*")
#: How a member begins: its header comes first.
MARK: Final = b'{"%s":' % WRITER.encode()
#: How each member begins in a file, after compression: no flags, and no time.
_GZIP: Final = b"\x1f\x8b\x08" + bytes(5)
#: Bytes of a member's text at most: what is larger was not written by a ledger, and its CRC comes too late.
_MOST_TEXT: Final = 16 << 20
#: Damaged places of a file after which the rest of it is left alone.
_MOST_DAMAGE: Final = 100
_MOST_NUMBER: Final = 1 << 53
_JSON: Final = json.JSONDecoder()


class Hole(NamedTuple):
    """Rows that a ledger may lack; ``why`` in words. ``ranges``: between which Kinesis records they lie, None
    if that is not known. ``is_cut``: all of it is a member without its end, as a writer leaves it that is
    killed: its rows did not count yet."""

    writer: str
    why: str
    ranges: Ranges | None = None
    is_cut: bool = False


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
        if self.stream_arn is not None and ":stream/" not in self.stream_arn:
            return True
        pairs = (stream, self.stream), (arn, self.stream_arn)
        return all(None in pair or pair[0] == pair[1] for pair in pairs)


class _Writer:
    """What was read of one writer."""

    def __init__(self) -> None:
        self.origin = Origin()
        self.members: set[int] = set()
        self.last = -1
        self.follows = -1  # a member that is there, or was
        self.end: int | None = None
        #: Between which sequence numbers the rows of members lie: from one, to before another.
        self.named: list[tuple[int, int, Ranges]] = []

    def takes(self, member: int, facts: dict[str, Any]) -> bool:
        """Whether this line of a member is about the writer; if so, what it says."""
        kind = facts.get("kind")
        self.named += _ranges_before(facts.get("named"), member)
        if kind == "end":
            self.end = member
        elif kind == "part_end":
            self.follows = max(self.follows, member + 1)
        return kind in ("header", "end", "part_end")

    def ranges(self, start: int, stop: int) -> Ranges | None:
        """Between which Kinesis records the rows of some members lie; None if that is not known."""
        parts = (ranges for first, end, ranges in self.named if first <= start and stop <= end)
        return next(parts, None)  # (what says it of two parts is lost, too, if the hole is in both)


class LedgerReader:
    """All ledgers of one side. ``marked``: how many headers were read, valid or not."""

    def __init__(self) -> None:
        self._writers = defaultdict[str, _Writer](_Writer)
        #: Damaged places: file, writer, the member before it (-1: none), and whether only an end is lacking.
        self._damage: dict[tuple[str, str, int, bool], None] = {}
        self._before = "", -1  # the writer and the number of the member that was read last
        self.marked = 0
        self._unreadable: dict[tuple[str, str], UnreadableInput] = {}
        self._holes: list[Hole] = []

    def __bool__(self) -> bool:
        return bool(self._writers or self._damage)

    @property
    def unreadable(self) -> list[UnreadableInput]:
        return list(self._unreadable.values())

    @property
    def origins(self) -> set[Origin]:
        return {writer.origin for writer in self._writers.values()}

    def report(self, file: str, why: str, times: int = 1, row: int | None = None) -> None:
        """Something in a file could not be read."""
        entry = self._unreadable.get((file, why), UnreadableInput(file, why, 0, row))
        self._unreadable[file, why] = entry._replace(times=entry.times + times)

    def report_lost(self, file: str, why: str, row: int | None = None) -> None:
        """Something in a file could not be read, so that what it says is lost."""
        if (file, why) not in self._unreadable:
            self._holes.append(Hole(file, why))
        self.report(file, why, row=row)

    # -- reading ------------------------------------------------------------------------------

    def add_gzip(self, file: str, data: bytes) -> Iterator[tuple[Origin, list[Row]]]:
        """The rows of a ledger's file, member by member, and whose they are."""
        match = _NAME.fullmatch(file)
        self._before = (match[1], int(match[2]) - 1) if match else ("", -1)
        for text, is_cut in _members(data) if data else [(b"", True)]:
            if text.startswith(MARK):
                yield from self.add_lines(file, io.BytesIO(text))
            else:
                self._damage[(file, *self._before, is_cut)] = None

    def add_lines(self, file: str, lines: Iterable[bytes]) -> Iterator[tuple[Origin, list[Row]]]:
        """The rows of each member in a text. Lines that belong to none are passed over."""
        numbered = enumerate(lines, 1)
        for number, line in numbered:
            if (at := line.find(MARK)) < 0:
                continue
            self.marked += 1
            header = _facts(line[at:])
            if not _is_header(header):
                why = "a line of a ledger that cannot be read: it is cut or changed, or of another version"
                self.report_lost(file, why, number)
                continue
            facts = [header, *(_facts(row) for _, row in islice(numbered, header["lines"] - 1))]
            if len(facts) < header["lines"] or any(WRITER in row for row in facts[1:]):
                why = "a member that lacks lines: the text is cut, or mixed with others"
                self.report_lost(file, why, number)
                continue
            name, member = self._before = header[WRITER], header["member"]
            if member not in self._writers[name].members:
                writer, rows = self._writers[name], list[Row]()
                writer.members.add(member)
                writer.last = max(writer.last, member)
                writer.origin = Origin(header["stream"], header["stream_arn"], header["side"])
                for line_facts in facts:
                    if row := row_of(line_facts):
                        rows.append(row)
                    elif not writer.takes(member, line_facts):
                        self.report_lost(file, "a line that is no row of a ledger", number)
                yield writer.origin, rows

    # -- what may be lacking ------------------------------------------------------------------

    def holes(self, side: str, stream: str | None = None, arn: str | None = None) -> list[Hole]:
        """Where rows of that stream may be lacking. To be asked for when all rows were read."""
        holes = list(self._holes)
        ours = {
            name: writer
            for name, writer in sorted(self._writers.items())
            if writer.origin.side == side and writer.origin.is_of(stream, arn)
        }
        for name, writer in ours.items():
            before = -1
            for member in [*sorted(writer.members), writer.follows + 1]:
                if member > before + 1:
                    which = f"member {before + 1}" + f" to {member - 1}" * (member > before + 2)
                    ranges = writer.ranges(before + 1, member)
                    holes.append(Hole(name, f"{which}: not there, or not whole", ranges))
                before = max(before, member)
            # AUD-5: "A producer's ledger without its end, and one whose count of members skips one, MUST make
            # the audit incomplete."
            # AUD-7: "A consumer's rows MUST be stored before the records count as handled": a consumer
            # without an end has named all that will not come again.
            if side == "produced" and writer.end != writer.last:
                holes.append(Hole(name, "it was not closed, or its end is not there"))
        for file, name, member, is_cut in self._damage:
            # What is lacking before a later member is missed by the count; and behind the end nothing is.
            writer = ours.get(name, _Writer())
            if (name in ours or name not in self._writers) and writer.last <= member != writer.end:
                holes.append(Hole(name or file, f"{file} is damaged, or cut off", is_cut=is_cut))
        return holes


def _facts(line: bytes) -> dict[str, Any]:
    """The JSON object that a line begins with; {} for what is none, or has text that is no Unicode."""
    try:
        facts, _ = _JSON.raw_decode(line.decode())
        if b"\\u" in line:  # half of a surrogate pair, which nothing can print or write
            json.dumps(facts, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _is_header(facts: dict[str, Any]) -> bool:
    numbers = facts.get("member"), facts.get("lines", 0)
    texts = facts.get(WRITER), facts.get("stream"), facts.get("stream_arn", 0) or ""
    return (
        all(type(one) is int and 0 <= one < _MOST_NUMBER for one in numbers)
        and all(type(text) is str for text in texts)
        and facts.get("side") in ("produced", "handled")
        and facts.get("version") == VERSION
        and 0 < facts["lines"] <= MEMBER_ROWS + 2
    )


def _ranges_before(value: Any, member: int) -> list[tuple[int, int, Ranges]]:
    """What a header or an end says of the members before it; nothing where that cannot be read."""
    first, by_shard = value if isinstance(value, list) and len(value) == 2 else (None, None)
    if type(first) is not int or first < 0 or not isinstance(by_shard, dict):
        return []
    for ends in by_shard.values():
        numbers = ends if isinstance(ends, list) and len(ends) == 2 else [None]
        if not all(type(one) is str and SEQUENCE_NUMBER.fullmatch(one) for one in numbers):
            return []
    return [(first, member, {shard_id: (low, high) for shard_id, (low, high) in by_shard.items()})]


def _members(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """The text of each member of a gzip file, b"" for a damaged one; and whether that lacks only its end."""
    at = damage = 0
    while at < len(data) and damage < _MOST_DAMAGE:
        end = data.find(_GZIP, at + 1)
        piece = data[at : end if end > 0 else len(data)]
        unpack, text, is_cut = zlib.decompressobj(31), b"", False
        with suppress(zlib.error):
            text = unpack.decompress(piece, _MOST_TEXT)
            is_cut = not unpack.unconsumed_tail
        if unpack.eof:
            yield text, False
        if noise := unpack.unused_data if unpack.eof else piece:
            yield b"", end < 0 and (_GZIP.startswith(noise) if unpack.eof else is_cut)
            damage += 1
        at += len(piece)
