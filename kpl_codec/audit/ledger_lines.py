"""Reads ledgers in any text: the members of writers, and what is not there of them. Specification:
spec/15-audit.md, section 15.1.

A line with the mark ``kpl_ledger`` is decoded from the outermost JSON that holds it, and its values are
walked; a text among them that has the mark is decoded in the same way. So a member is found in a ledger's
file, in a line of a log with any prefix, and in the JSON that a log service puts around it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from zlib import crc32

from ..ledger.ledger import MEMBER_ROWS, VERSION, WRITER
from ..ledger.ledger_rows import Row, is_unicode, line_of, row_of
from ..shards.stream_name import Stream
from .sources import MEMBER_END, Cut, Gap, Holes, Lines

#: The mark of a header, with any number of escapes.
MARK: Final = re.compile(rb'kpl_ledger(?=(\\*"|\\*u0022)\s*:)')
_MARK: Final = re.compile(MARK.pattern.decode())
#: A key of a row: a line of a log with it, and without the mark, is a part of a member.
_KEY: Final = re.compile(
    rb'(sequence_number|user_records|at_ms|digest|error_code|stream_arn|kpl_ledger)\\*"\s*:'
)
_END: Final = re.compile(rb'[0-9a-f]\\*"\}')
_BRACKET: Final = re.compile(r"[{\[]")
_JSON: Final = json.JSONDecoder()
#: The keys of a header, in order, without its CRC.
_HEADER: Final = (WRITER, "member", "lines", "version", "side", "stream", "stream_arn")


class Origin(NamedTuple):
    """Whose rows a ledger or a table holds: the stream, its ARN (None where not known), the side (produced or
    handled)."""

    stream: str
    stream_arn: str | None = None
    side: str = "handled"

    def __str__(self) -> str:
        return self.stream_arn or self.stream

    def is_of(self, stream: Stream) -> bool:
        """Whether the rows may be of that stream."""
        return not stream.is_another(Stream(self.stream, self.stream_arn))


class _Writer:
    """The members of one writer: their CRCs, by number."""

    def __init__(self) -> None:
        self.members: dict[int, set[int]] = {}
        self.next_part = -1  # the first member after the last finished part: it exists, or did
        self.ends: set[int] = set()


class LedgerBook:
    """The members of all ledgers of one side. ``headers``: how many were read, valid or not."""

    def __init__(self, holes: Holes) -> None:
        self._holes = holes
        self.headers = 0
        self._writers: dict[tuple[str, Origin], _Writer] = {}

    @property
    def origins(self) -> set[Origin]:
        return {origin for _, origin in self._writers}

    def read(self, file: str, lines: Lines) -> Iterator[tuple[Origin, list[Row]]]:
        """The rows of each member in a text, and whose they are; a member that was read before gives none."""
        return _File(self, self._holes, file).read(lines)

    def add(self, origin: Origin, facts: dict[str, Any], parsed: list[Row | str]) -> bool:
        """Note a member. Returns whether it is new."""
        number = facts["member"]
        writer = self._writers.setdefault((facts[WRITER], origin), _Writer())
        known = writer.members.setdefault(number, set())
        if facts["crc"] in known:
            return False
        # AUD-29: "A forked process MUST be a writer of its own; of two members of a writer that have one
        # number and differ, the rows of both MUST be read, and the audit MUST NOT say complete."
        if known:
            why = f"two members {number}, which differ"
            self._holes.add(facts[WRITER], why, kind="members")
        known.add(facts["crc"])
        writer.ends |= {number} if "end" in parsed else set()
        writer.next_part = max(writer.next_part, number + 1 if "part_end" in parsed else -1)
        return True

    def close(self, side: str, stream: Stream | None = None) -> None:
        """Note which members of writers of that stream (None: any) are not there. Call it when all was
        read."""
        for (name, origin), writer in sorted(self._writers.items(), key=repr):
            if origin.side != side or (stream is not None and not origin.is_of(stream)):
                continue
            last = -1
            for member in [*sorted(writer.members), writer.next_part + 1]:
                if member > last + 1:
                    which = f"member {last + 1}" + f" to {member - 1}" * (member > last + 2)
                    self._holes.add(name, f"{which}: not there, or not whole", kind="members")
                last = max(last, member)
            # AUD-5: "A producer's ledger without its end, and one whose count of members skips one, MUST make
            # the audit incomplete."
            # AUD-7: "A consumer's rows MUST be stored before the records count as handled": a consumer
            # without an end has named all that will not come again.
            if side == "produced" and max(writer.members) not in writer.ends:
                self._holes.add(name, "it was not closed, or its end is not there", kind="members")


def _rows_in(objects: list[dict[str, Any]]) -> list[Row | str] | None:
    """The rows of a member, and the kinds of its other lines; None if it was changed."""
    parsed: list[Row | str] = []
    texts: list[str] = []
    for facts in objects:
        kind = facts.get("kind")
        row = kind if kind in ("header", "end", "part_end") else row_of(facts)
        if row is None:
            return None
        texts.append(line_of(row) if isinstance(row, Row) else f'{{"kind":"{kind}"}}')
        parsed.append(row)
    # AUD-30: "A member's header MUST have the CRC-32 of the member's text without that key; a member with
    # another one gives no row."
    head = json.dumps({key: objects[0].get(key) for key in _HEADER}, separators=(",", ":"))
    texts[0] = f"{head[:-1]},{texts[0][1:]}"
    if objects[0]["crc"] != crc32("\n".join(texts).encode()):
        return None
    return parsed


class _File:
    """One file: the members in it, and the lines that belong to none."""

    def __init__(self, book: LedgerBook, holes: Holes, file: str) -> None:
        self._book, self._holes, self._file = book, holes, file
        self._objects: list[dict[str, Any]] = []  # of the member that is being read, its header first
        self._row = 0  # where that begins
        self._headers = 0
        self._long = False  # whether some members have several lines
        self._strays: list[int | None] = [None, None]  # the first line of no member; the first like a row
        self._last_cut: int | None = None  # the last line without an end
        self._open_end = False  # whether that may lack something

    def read(self, lines: Lines) -> Iterator[tuple[Origin, list[Row]]]:
        for number, line in enumerate(lines, 1):
            if isinstance(line, Cut) and line.strip():
                self._last_cut = number
            if isinstance(line, Gap):
                self._break()
                self._holes.add(self._file, line.why, kind="bytes")
            elif line.find(b"kpl_ledger") >= 0:
                yield from self._headers_of(line, number)
            elif self._objects and (facts := _object(line)) is not None:
                self._objects.append(facts)
                yield from self._finish()
            else:
                self._break()
                self._stray(line, number)
        self._break()
        stray = self._strays[0] if self._long else self._strays[1]
        if self._headers and stray is not None:
            self._holes.add(self._file, "a row of a ledger that belongs to no member", stray)
        self._book.headers += self._headers
        # (A ledger's writer ends each line. In a log the last line feed may be missing, and nothing with it.)
        if self._last_cut is not None and (self._open_end or self._long):
            self._holes.add(self._file, "its last line is cut", self._last_cut)

    def _headers_of(self, line: bytes, number: int) -> Iterator[tuple[Origin, list[Row]]]:
        try:
            found = [*_headers_in(line.decode())]
        except (ValueError, RecursionError):
            found = []
        valid = [facts for facts in found if _is_header(facts)]
        if not valid or len(valid) != len(MARK.findall(line)):
            self._holes.add(self._file, "a header that is cut, changed or of another version", number)
        self._headers += max(len(valid), 1)
        self._break()
        for facts in valid:
            self._break()
            self._long |= facts["lines"] > 1
            self._objects, self._row = [facts], number
            yield from self._finish()

    def _finish(self) -> Iterator[tuple[Origin, list[Row]]]:
        facts = self._objects[0]
        if len(self._objects) < facts["lines"]:
            return
        objects, self._objects = self._objects, []
        if (parsed := _rows_in(objects)) is None:
            why = "a member that was changed, or has a line that is no row of a ledger"
            self._holes.add(self._file, why, self._row)
            return
        origin = Origin(facts["stream"], facts.get("stream_arn"), facts["side"])
        if self._book.add(origin, facts, parsed):
            yield origin, [row for row in parsed if isinstance(row, Row)]

    def _break(self) -> None:
        """End the member that is being read, if it lacks lines."""
        if self._objects:
            why = "a member that lacks lines, or is mixed with other text"
            self._holes.add(self._file, why, self._row)
            self._objects = []

    def _stray(self, line: bytes, number: int) -> None:
        if self._strays[0] is None and line.strip():
            self._strays[0] = number
        if self._strays[1] is None and _may_be_part(line):
            self._strays[1] = number
        self._open_end |= isinstance(line, Cut) and bool(line.strip() and (self._headers or line.count(b"{")))


def _may_be_part(line: bytes) -> bool:
    """Whether a line of a log may be a part of a ledger's line: a key, an object that is cut, or its end."""
    is_end = MEMBER_END.search(line) or (_END.search(line) and line.count(b"}") > line.count(b"{"))
    return bool(is_end or _KEY.search(line)) or _has_cut_object(line.decode("utf-8", "replace"))


def _has_cut_object(value: Any) -> bool:
    if isinstance(value, (dict, list)):
        return any(map(_has_cut_object, value.values() if isinstance(value, dict) else value))
    at = value.find('{"') if isinstance(value, str) else -1
    try:
        return at >= 0 and _has_cut_object(_JSON.raw_decode(value, at)[0])
    except (ValueError, RecursionError):
        return True


def _object(line: bytes) -> dict[str, Any] | None:
    """The JSON object that a line is; None for any other line."""
    try:
        facts = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return facts if isinstance(facts, dict) else None


def _headers_in(text: str) -> Iterator[dict[str, Any]]:
    """The objects with the mark in a text, however deep."""
    at = 0
    while mark := _MARK.search(text, at):
        value, at = _outermost(text, at, mark.start())
        yield from _headers_of_value(value)


def _outermost(text: str, at: int, mark: int) -> tuple[Any, int]:
    """The JSON value that holds the mark, from the first bracket that begins one, and its end; None if none
    does."""
    while bracket := _BRACKET.search(text, at, mark):
        at = bracket.end()
        try:
            value, end = _JSON.raw_decode(text, bracket.start())
        except (ValueError, RecursionError):
            continue
        if end > mark:
            return value, end
        at = end
    return None, mark + 1


def _headers_of_value(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict) and WRITER in value:
        yield value
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _headers_of_value(inner)
    elif isinstance(value, str) and _MARK.search(value):
        yield from _headers_in(value)


def _is_header(facts: dict[str, Any]) -> bool:
    types = [type(facts.get(key)) for key in (WRITER, "member", "lines", "crc", "stream", "stream_arn")]
    if types[:5] != [str, int, int, int, str] or types[5] not in (str, type(None)):
        return False
    return (
        0 <= facts["member"] < 1 << 53
        and 0 < facts["lines"] <= MEMBER_ROWS + 2
        and facts.get("version") == VERSION
        and facts.get("side") in ("produced", "handled")
        and is_unicode(facts[WRITER], facts["stream"], facts.get("stream_arn") or "")
    )
