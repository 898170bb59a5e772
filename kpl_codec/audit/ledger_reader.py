"""Reads a ledger: text, compressed by gzip or not, each of whose lines is a line of a ledger. Specification:
spec/15-audit.md, section 15.1.

A member counts when its own CRC is right, whatever is around it: so a file may be joined, unpacked or packed
again. Behind damage in gzip the next member of gzip goes on."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from functools import partial
from typing import Any, BinaryIO, Final
from zlib import crc32

from ..ledger.ledger import MEMBER_ROWS, VERSION, WRITER
from ..ledger.ledger_rows import KINDS, Row, is_unicode, line_of, row_of
from .lost_parts import LostPart
from .writers import Member, Origin

#: How a member of gzip begins.
GZIP: Final = b"\x1f\x8b\x08"
#: Bytes that are read at a time, and the most of a line. (No line of a ledger is longer than 12,000.)
_CHUNK: Final = 1 << 20
#: The kinds of lines that are no rows.
_OTHER_KINDS: Final = ("header", "end", "part_end")
#: The keys of a header, in order, without its CRC.
_HEADER: Final = (WRITER, "member", "lines", "version", "side", "stream", "stream_arn")
_DAMAGED: Final = "gzip that is damaged, or cut off"
_TOO_LONG: Final = "a line of more than 1 MiB"
_NO_END: Final = "its last line does not end: what stood behind it may be cut off"
_LACKS_LINES: Final = "a member that lacks lines, or is mixed with other text"
_CHANGED: Final = "a member that was changed, or has a line that is no row of a ledger"
_NO_LINE: Final = (
    "a line that is damaged, or of something else: `grep -oh '{\"kpl_ledger\".*}' LOG > NEW.ledger.jsonl` "
    "takes the lines of a ledger out of a log"
)


class NoLedger(Exception):
    """The first line of a file is no line of a ledger. ``head``: how its text begins."""

    def __init__(self, head: bytes) -> None:
        super().__init__(head)
        self.head = head


def read_ledger(file: str, source: BinaryIO) -> Iterator[Member | LostPart]:
    """The members of a ledger, and what is lost of it. Raises NoLedger before anything is given; OSError."""
    open_member: _OpenMember | None = None
    number = 0  # of this line
    known = False  # whether the file is a ledger
    for line in _lines(source):
        if isinstance(line, str):
            if line == _TOO_LONG and not known:
                raise NoLedger(_head(source))
            if open_member is not None:
                yield LostPart(file, _LACKS_LINES, open_member.begin)
            yield LostPart(file, line, kind="bytes")
            open_member, known = None, True
            continue
        number += 1
        if not line.strip():
            continue
        facts = _object(line)
        is_line = facts is not None and (WRITER in facts or facts.get("kind") in (*KINDS, *_OTHER_KINDS))
        if not is_line and not known:
            raise NoLedger(_head(source))
        known = True
        if open_member is not None and (facts is None or WRITER in facts):
            yield LostPart(file, _LACKS_LINES, open_member.begin)
            open_member = None
        if facts is None or not is_line:
            yield LostPart(file, _NO_LINE, number)
        elif WRITER not in facts and open_member is None:
            yield LostPart(file, "a row of a ledger that belongs to no member", number)
        elif WRITER in facts and not _is_header(facts):
            yield LostPart(file, "a header that is changed, or of another version", number)
        else:
            open_member = open_member or _OpenMember(facts, number)
            open_member.add(facts)
            if open_member.lines == open_member.header["lines"]:
                yield open_member.closed() or LostPart(file, _CHANGED, open_member.begin)
                open_member = None
    if open_member is not None:
        yield LostPart(file, _LACKS_LINES, open_member.begin)


class _OpenMember:
    """A member that is being read. ``begin``: the number of the header line. Of a line only its row is kept:
    what anybody writes into a ledger costs little memory."""

    def __init__(self, header: dict[str, Any], begin: int) -> None:
        self.header, self.begin = header, begin
        self.lines = self._crc = 0
        self._rows: list[Row] = []
        self._kinds = set[str]()
        self._changed = False

    def add(self, facts: dict[str, Any]) -> None:
        """The next line, its JSON read."""
        kind, row = facts.get("kind"), None
        if kind in _OTHER_KINDS:
            text = f'{{"kind":"{kind}"}}'
            self._kinds.add(kind)
        elif (row := row_of(facts)) is not None:
            text = line_of(row)
            self._rows.append(row)
        else:
            text, self._changed = "", True
        if not self.lines:
            head = json.dumps({key: self.header.get(key) for key in _HEADER}, separators=(",", ":"))
            text = f"{head[:-1]},{text[1:]}"
        else:
            text = f"\n{text}"
        self._crc = crc32(text.encode(), self._crc)
        self.lines += 1

    def closed(self) -> Member | None:
        """The member, all its lines added; None if it was changed."""
        # AUD-30: "A member's header MUST have the CRC-32 of the member's text without that key; a member with
        # another one gives no row."
        header = self.header
        if self._changed or header["crc"] != self._crc:
            return None
        origin = Origin(header["stream"], header.get("stream_arn"), header["side"])
        place = origin, header[WRITER], header["member"], header["crc"]
        return Member(*place, self._rows, "end" in self._kinds, "part_end" in self._kinds)


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


def _object(line: bytes) -> dict[str, Any] | None:
    """The JSON object that a line is; None for any other line."""
    try:
        facts = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return facts if isinstance(facts, dict) else None


# -- bytes -----------------------------------------------------------------------------------------


def _lines(source: BinaryIO) -> Iterator[bytes | str]:
    """The lines of a text without their ends. A str says why something is lost in its place."""
    rest = b""
    for text in _texts(source):
        if isinstance(text, str):
            yield text
            rest = b""
            continue
        *lines, rest = (rest + text).split(b"\n")
        yield from lines
        if len(rest) > _CHUNK:
            yield _TOO_LONG
            rest = b""
    if rest.strip():
        yield rest
        yield _NO_END


def _texts(source: BinaryIO) -> Iterator[bytes | str]:
    """The text of a file in pieces, unpacked if it is gzip. A str says why something is lost in its place."""
    source.seek(0)
    data = source.read(_CHUNK)
    if not data.startswith(GZIP[:2]):
        yield data
        yield from iter(partial(source.read, _CHUNK), b"")
        return
    while data or (data := source.read(_CHUNK)):
        begin = source.tell() - len(data)
        try:
            unpack = zlib.decompressobj(31)
            while not unpack.eof:
                yield unpack.decompress(data, _CHUNK)
                data = unpack.unconsumed_tail or unpack.unused_data or source.read(_CHUNK)
                if not (data or unpack.eof):
                    raise zlib.error(_DAMAGED)
        except zlib.error:
            yield _DAMAGED
            if (begin := _find(source, begin + 1)) < 0:
                return
            source.seek(begin)
            data = b""


def _find(source: BinaryIO, at: int) -> int:
    """Where the next member of gzip may begin, from ``at`` on; -1: nowhere."""
    source.seek(at)
    before = b""
    while chunk := source.read(_CHUNK):
        if (found := (before + chunk).find(GZIP)) >= 0:
            return at - len(before) + found
        at, before = at + len(chunk), (before + chunk)[-2:]
    return -1


def _head(source: BinaryIO) -> bytes:
    """The first 64 KiB of a text, or what is there of them."""
    head = b""
    for text in _texts(source):
        if isinstance(text, str) or len(head) >= 1 << 16:
            break
        head += text
    return head[: 1 << 16]
