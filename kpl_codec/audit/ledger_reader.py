"""Reads the ledgers of one side (producers or consumers): their rows, and where rows may be lacking.

A writer's members are numbered from 0; a member that was read twice counts once. Rows may be lacking where a
member's number is skipped, and at the damaged end of a file. Specification: spec/15-audit.md, section 15.1.
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
from ..ledger.ledger_rows import Row, row_of

_NAME: Final = re.compile(r"(?:Copy of )?(.{1,200}?)-(\d{1,12})" + re.escape(SUFFIX) + r".*")
#: How a member begins: its header comes first.
MARK: Final = b'{"%s":' % WRITER.encode()
#: How each member begins in a file: the header of gzip without flags and time.
_GZIP: Final = b"\x1f\x8b\x08" + bytes(5)
#: The most bytes of a member's text. No ledger writes more, and gzip's CRC would show that only at the end.
_MOST_TEXT: Final = 16 << 20
_JSON: Final = json.JSONDecoder()


class Origin(NamedTuple):
    """Whose rows a ledger holds: the stream, its ARN, the side (produced or handled); None where not
    known."""

    stream: str | None = None
    stream_arn: str | None = None
    side: str | None = None

    def is_of(self, stream: str | None, arn: str | None) -> bool:
        """Whether the rows may be of that stream. (A queue's ARN names no stream.)"""
        if self.stream_arn is not None and ":stream/" not in self.stream_arn:
            return True
        pairs = (stream, self.stream), (arn, self.stream_arn)
        return all(None in pair or pair[0] == pair[1] for pair in pairs)


class _Writer:
    """What was read of one writer."""

    def __init__(self) -> None:
        self.origin = Origin()
        self.members: set[int] = set()
        self.contents: set[tuple[int, int]] = set()  # of each member its number, and the hash of its rows
        self.next_part = -1  # the first member of the part after the last one that was seen
        self.end: int | None = None
        #: Damaged places: the file, and the member before it (-1: none).
        self.damage: dict[tuple[str, int], None] = {}


class UnreadableInput(NamedTuple):
    """Something in a file that could not be read: why, how often, and in which row or line (from 1) first."""

    file: str
    why: str
    times: int = 1
    row: int | None = None


class Hole(NamedTuple):
    """Rows that a writer's ledger, or a file, may lack; ``why`` in words."""

    writer: str
    why: str


class LedgerReader:
    """Reads all ledgers of one side, and keeps what could not be read of them and of tables. ``headers``: how
    many headers of members were read, valid or not. ``lost``: which files may lack rows. ``unread``: why a
    file cannot be read."""

    def __init__(self) -> None:
        self._unreadable: dict[tuple[str, str], UnreadableInput] = {}
        self.lost: dict[Hole, None] = {}
        self.unread: dict[str, str] = {}
        self.headers = 0
        self._writers = defaultdict[str, _Writer](_Writer)
        self._last_member = "", -1  # the writer and the number of the member that was read last

    def __bool__(self) -> bool:
        return bool(self._writers)

    @property
    def unreadable(self) -> list[UnreadableInput]:
        return list(self._unreadable.values())

    def report(self, file: str, why: str, times: int = 1, row: int | None = None, example: str = "") -> None:
        """Note that something in a file could not be read. ``example``: the text that ``why`` is about; the
        first of several is kept."""
        entry = self._unreadable.get((file, why), UnreadableInput(file, example + why, 0, row))
        self._unreadable[file, why] = entry._replace(times=entry.times + times)

    def report_lost(self, file: str, why: str, row: int | None = None) -> None:
        """Note that something in a file could not be read, so that rows of the ledger may be lost."""
        self.lost[Hole(file, why)] = None
        self.report(file, why, row=row)

    @property
    def origins(self) -> set[Origin]:
        return {writer.origin for writer in self._writers.values() if writer.members}

    def add_gzip(self, file: str, data: bytes) -> Iterator[tuple[Origin, list[Row]]]:
        """The rows of a ledger's file, member by member, and whose they are."""
        match = _NAME.fullmatch(file)
        self._last_member = (match[1], int(match[2]) - 1) if match else ("", -1)
        for text in _members(data) if data else [b""]:
            if text.startswith(MARK):
                yield from self.add_lines(file, io.BytesIO(text))
            else:
                name, member = self._last_member
                self._writers[name].damage[file, member] = None

    def add_lines(self, file: str, lines: Iterable[bytes]) -> Iterator[tuple[Origin, list[Row]]]:
        """The rows of each member in a text. Lines that belong to none are passed over."""
        numbered = enumerate(lines, 1)
        for number, line in numbered:
            if (at := line.find(MARK)) < 0:
                continue
            self.headers += 1
            header = _facts(line[at:])
            if not _is_header(header):
                self.report_lost(file, "a header that is cut, changed or of another version", number)
                continue
            facts = [header, *(_facts(row) for _, row in islice(numbered, header["lines"] - 1))]
            if len(facts) < header["lines"] or any(WRITER in row for row in facts[1:]):
                self.report_lost(file, "a member that lacks lines, or is mixed with other text", number)
                continue
            name, member = self._last_member = header[WRITER], header["member"]
            writer, rows = self._writers[name], list[Row]()
            parsed = [row_of(line_facts) or str(line_facts.get("kind")) for line_facts in facts]
            content = member, hash(tuple(parsed))
            if content not in writer.contents:
                # AUD-29: "A forked process MUST be a writer of its own; of two members of a writer that have
                # one number and differ, the rows of both MUST be read, and the audit MUST NOT say complete."
                if member in writer.members:
                    self.report_lost(file, f"two members {member} of one writer, which differ", number)
                writer.members.add(member)
                writer.contents.add(content)
                writer.origin = Origin(header["stream"], header.get("stream_arn"), header["side"])
                for row in parsed:
                    if isinstance(row, Row):
                        rows.append(row)
                    elif row == "end":
                        writer.end = member
                    elif row == "part_end":
                        writer.next_part = max(writer.next_part, member + 1)
                    elif row != "header":
                        self.report_lost(file, "a line that is no row of a ledger", number)
                yield writer.origin, rows

    def holes(self, side: str, stream: str | None = None, arn: str | None = None) -> list[Hole]:
        """Where rows of that stream may be lacking. Call it when all rows have been read."""
        holes = [*self.lost]
        for name, writer in sorted(self._writers.items()):
            if writer.origin.side not in (None, side) or not writer.origin.is_of(stream, arn):
                continue
            last = -1
            for member in [*sorted(writer.members), writer.next_part + 1]:
                if member > last + 1:
                    which = f"member {last + 1}" + f" to {member - 1}" * (member > last + 2)
                    holes.append(Hole(name, f"{which}: not there, or not whole"))
                last = max(last, member)
            # AUD-5: "A producer's ledger without its end, and one whose count of members skips one, MUST make
            # the audit incomplete."
            # AUD-7: "A consumer's rows MUST be stored before the records count as handled": a consumer
            # without an end has named all that will not come again.
            if side == "produced" and writer.members and writer.end != max(writer.members):
                holes.append(Hole(name, "it was not closed, or its end is not there"))
            for file, member in writer.damage:
                # What is lacking before a later member is missed by the count; and behind the end nothing is.
                if max(writer.members, default=-1) <= member != writer.end:
                    holes.append(Hole(name or file, f"{file} is damaged, or cut off"))
        return holes


def _facts(line: bytes) -> dict[str, Any]:
    """The JSON object that a line begins with; {} for a line without one, and for text that is no Unicode."""
    try:
        facts, _ = _JSON.raw_decode(line.decode())
        if b"\\u" in line:  # half of a surrogate pair, which nothing can print or write
            json.dumps(facts, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _is_header(facts: dict[str, Any]) -> bool:
    types = [type(facts.get(key)) for key in (WRITER, "member", "lines", "stream", "stream_arn")]
    return (
        types in ([str, int, int, str, str], [str, int, int, str, type(None)])
        and 0 <= facts["member"] < 1 << 53
        and 0 < facts["lines"] <= MEMBER_ROWS + 2
        and (facts.get("side"), facts.get("version")) in (("produced", VERSION), ("handled", VERSION))
    )


def _members(data: bytes) -> Iterator[bytes]:
    """The text of each member of a gzip file; b"" for a damaged one, and for other bytes between them."""
    at = 0
    while at < len(data):
        end = data.find(_GZIP, at + 1)
        piece = data[at : end if end > 0 else len(data)]
        unpack = zlib.decompressobj(31)
        with suppress(zlib.error):
            text = unpack.decompress(piece, _MOST_TEXT)
        if unpack.eof:
            yield text
        if unpack.unused_data or not unpack.eof:
            yield b""
        at += len(piece)
