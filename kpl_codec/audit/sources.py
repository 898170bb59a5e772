"""Reads the files of an audit to their last byte: each line is given, or a gap that says what cannot be read.

bytes   gzip, by its content: any header, any number of members, gzip in gzip up to three times. A member
        whose CRC is wrong or not there gives nothing, and is a gap; the next whole member goes on.
text    lines; a line with a zero byte is a gap (a hole in a file, UTF-16, binary)."""

from __future__ import annotations

import hashlib
import io
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import Any, BinaryIO, Final, NamedTuple, cast

import pyarrow as pa

from ..captures import Location, plan
from ..captures.files import HIDDEN, NO_FILE

#: How a member of gzip begins, and how often gzip may be in gzip.
_GZIP: Final = b"\x1f\x8b\x08"
_LAYERS: Final = 3
#: Bytes that are read at a time; the most bytes of a text that is kept whole, and of a line.
_CHUNK: Final = 1 << 20
_MOST_TEXT: Final = 16 << 20
_MOST_LINE: Final = 32 << 20


class InputFile(NamedTuple):
    """A file of an audit. ``size``: in bytes, or `NO_FILE` or `HIDDEN`. ``data``: its bytes, if it was read
    already."""

    place: Location
    name: str
    size: int
    data: bytes | None = None

    @property
    def folder(self) -> str:
        return self.place.path.rpartition("/")[0]


class Cut(bytes):
    """A line without an end: the last one of a file, or before a gap."""


class Gap(NamedTuple):
    """Bytes that cannot be read."""

    why: str


#: What a text is made of: its lines without their ends.
Lines = Iterable[bytes | Gap]


class Hole(NamedTuple):
    """What cannot be read, or is not there. ``file``: a file, or a writer. ``row``: in which row or line
    (from 1) first. ``kind``: "rows" of a file that name nothing or cannot be read, "bytes" of a file that are
    damaged, "members" of a writer that are not there."""

    file: str
    why: str
    times: int
    row: int | None
    kind: str


class Holes:
    """The holes of one side. ``reach``: which Kinesis records the lost rows may name, by shard id and
    sequence number: of one shard ("SHARD", ""), with one number ("", "NUMBER"), or all ("", ""); of each the
    hole that reaches it, of several the least by its words: the order of files must not matter."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], Hole] = {}
        self.reach: dict[tuple[str, str], tuple[str, str]] = {}

    def add(
        self,
        where: str,
        why: str,
        row: int | None = None,
        *,
        times: int = 1,
        kind: str = "rows",
        shard: str | None = None,
        number: str | None = None,
    ) -> None:
        """Note a hole that reaches the Kinesis records with ``number``, else those of ``shard``, else all."""
        entry, reach = (why, where), ("" if number else shard or "", number or "")
        first = self._entries.get(entry, Hole(where, why, 0, row, kind))
        row = min((one for one in (row, first.row) if one is not None), default=None)
        self._entries[entry] = first._replace(times=first.times + times, row=row)
        self.reach[reach] = min(entry, self.reach.get(reach, entry))

    def reaching(self, shard_id: str, sequence_number: str) -> Hole | None:
        """The hole whose lost rows may name this Kinesis record, of several the one that reaches least."""
        reaches = ("", sequence_number), (shard_id, ""), ("", "")
        return next((self._entries[self.reach[one]] for one in reaches if one in self.reach), None)

    def __iter__(self) -> Iterator[Hole]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)


@dataclass
class ReadProgress:
    """Bytes of the files that were read, and of all of them. ``notes``: names of inputs that were left out or
    are empty, by the sentence about them."""

    read: int = 0
    size: int = 0
    notes: dict[str, list[str]] = field(default_factory=dict)

    def mebibytes(self) -> tuple[int, int]:
        """The same in MiB."""
        return self.read >> 20, -(-self.size >> 20)

    def note(self, text: str, name: str) -> None:
        """Keep the name of an input for a sentence that begins with ``text``."""
        self.notes.setdefault(text, []).append(name)


def files_of(paths: Iterable[str]) -> list[InputFile]:
    """The files under ``paths``, each once. Raises InputError."""
    sizes: dict[Location, int] = {}
    for piece in plan(paths):
        sizes[Location(piece.path)] = piece.size
    return [InputFile(place, place.name, size) for place, size in sizes.items()]


def size_of(files: Iterable[InputFile]) -> int:
    return sum(file.size for file in files if file.size not in (HIDDEN, NO_FILE))


def open_file(file: InputFile) -> Any:
    """The bytes of the file, without decompression; the caller may seek."""
    if file.data is not None:
        return pa.BufferReader(file.data)
    system, inner = file.place.filesystem()
    return system.open_input_file(inner)


def bytes_now(file: InputFile) -> int:
    """How many bytes it has now, or had when it was loaded. Raises OSError."""
    with open_file(file) as source:
        return int(source.size())


def loaded(file: InputFile) -> InputFile:
    """The file with its bytes, if it is small and not of this machine: each look at it would be a request."""
    is_here = file.place.is_local or file.size == NO_FILE or file.size > _MOST_TEXT
    return file if is_here else file._replace(data=file.place.read())


def digest_of_file(file: InputFile) -> bytes:
    """The SHA-256 of its bytes. Raises OSError."""
    digest = hashlib.sha256()
    with open_file(file) as source:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
    return digest.digest()


def lines_of(file: InputFile) -> Iterator[bytes | Gap]:
    """The lines of a file without their ends. Raises OSError."""
    with open_file(file) as source:
        yield from lines_in(source)


def lines_in(source: BinaryIO) -> Iterator[bytes | Gap]:
    """The lines of a text, compressed or not."""
    rest = b""
    for chunk in _texts(source, _LAYERS):
        if isinstance(chunk, Gap):
            yield from _line(Cut(rest))
            yield chunk
            rest = b""
            continue
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield _ZEROS if b"\0" in line else line
        if len(rest) > _MOST_LINE:
            yield _TOO_LONG
            rest = b""
    yield from _line(Cut(rest))


_ZEROS: Final = Gap("zero bytes: a hole in the file, UTF-16 or a binary format; unpack it, and write UTF-8")
_TOO_LONG: Final = Gap(f"a line of more than {_MOST_LINE >> 20} MiB")
_NOT_WHOLE: Final = Gap("gzip that is damaged, or cut off")


def _line(rest: Cut) -> Iterator[Cut | Gap]:
    if rest:
        yield _ZEROS if rest.count(0) else rest


def _texts(source: BinaryIO, layers: int) -> Iterator[bytes | Gap]:
    """The text in ``source`` in pieces."""
    source.seek(0)
    begins = source.read(2)
    if not begins or not _GZIP.startswith(begins):  # (of a file that is cut one byte is enough)
        source.seek(0)
        while chunk := source.read(_CHUNK):
            yield chunk
        return
    for kind, group in groupby(_members(source), type):
        head, pieces = b"", cast("Iterator[bytes]", group)
        while kind is bytes and len(head) < 2 and (piece := next(pieces, b"")):
            head += piece
        rest = chain([head] if head else (), pieces)
        if layers and head.startswith(_GZIP[:2]):  # gzip in gzip, up to the next gap
            yield from _texts(io.BytesIO(b"".join(rest)), layers - 1)
        else:
            yield from rest


def _members(source: BinaryIO) -> Iterator[bytes | Gap]:
    """The text of each member of gzip, in pieces that are not empty."""
    at = 0
    while True:
        begins, end = at, _end(source, at)
        if end == at:
            return
        while end < 0 and (begins := _find(source, begins + 1)) >= 0:
            end = _end(source, begins)
        if end < 0 or begins > at:
            yield _NOT_WHOLE
        if end < 0:
            return
        yield from filter(None, _unpacked(source, begins, zlib.decompressobj(31)))
        at = end


def _end(source: BinaryIO, at: int) -> int:
    """Where the member of gzip at ``at`` ends: ``at`` where nothing is, -1 for one that is not whole. (Each
    is unpacked twice: its checksum stands behind its text.)"""
    source.seek(at)
    if (begins := source.read(3)) != _GZIP:
        return -1 if begins else at
    unpack = zlib.decompressobj(31)
    try:
        for _ in _unpacked(source, at, unpack):
            pass
    except zlib.error:
        return -1
    return source.tell() - len(unpack.unused_data) if unpack.eof else -1


def _unpacked(source: BinaryIO, at: int, unpack: Any) -> Iterator[bytes]:
    source.seek(at)
    while not unpack.eof and (chunk := source.read(_CHUNK)):
        while chunk and not unpack.eof:
            yield unpack.decompress(chunk, _CHUNK)
            chunk = unpack.unconsumed_tail


def _find(source: BinaryIO, at: int) -> int:
    """Where the next member may begin, from ``at`` on; -1: nowhere."""
    source.seek(at)
    before = b""
    while chunk := source.read(_CHUNK):
        if (found := (before + chunk).find(_GZIP)) >= 0:
            return at - len(before) + found
        at, before = at + len(chunk), (before + chunk)[-2:]
    return -1


# -- texts that name nothing ----------------------------------------------------------------------

#: A number of a Kinesis record that nobody knows of; one that lost its digits; bytes in base64.
_LONG_NUMBER: Final = re.compile(rb"[0-9]{20}")
_OTHER_NAME: Final = re.compile(rb"[0-9](\.[0-9]+)?[eE]\+?[0-9]{2}|\S{72}")
_DIGITS: Final = re.compile(rb"[0-9]{1,129}")
_LAST_DIGITS: Final = re.compile(rb"[0-9]*\Z")
#: The last line of a ledger or of a part: what is left of a member whose other lines are gone.
MEMBER_END: Final = re.compile(rb'\{"kind":"(end|part_end)"\}')


class NameSearch:
    """Looks for what may name a user record, in lines that follow each other. ``is_put``: whether a sequence
    number is one that was put; without it any number of 20 digits may be."""

    def __init__(self, is_put: Any = None) -> None:
        self._is_put = is_put
        self._digits = b""  # that the line before ends with: its number goes on where lines were wrapped

    def finds(self, line: bytes | Gap) -> bool:
        """Whether the line, or a number that ends in it, may name a user record."""
        if isinstance(line, Gap):
            return True
        try:
            line.decode()
        except UnicodeDecodeError:
            return True
        text = self._digits + line.strip()
        if line.strip():
            self._digits = _LAST_DIGITS.findall(text[-129:])[0]
        if _OTHER_NAME.search(line) or b"kpl_ledger" in line or MEMBER_END.search(line):
            return True
        if self._is_put is None:
            return _LONG_NUMBER.search(line) is not None
        numbers = {*_DIGITS.findall(line), *_DIGITS.findall(text)[:1]}
        return any(self._is_put(number.decode()) for number in numbers)


def may_name(lines: Lines, is_put: Any = None) -> bool:
    """Whether a text may name a user record, by `NameSearch`."""
    return any(map(NameSearch(is_put).finds, lines))
