"""Captured Kinesis records in files -> Arrow batches, and every unreadable bit as a row of its own.

    pieces = plan(["captures/"])                 # on the driver: lists files, opens none
    for batch in read_piece(pieces[0]): ...      # anywhere: batches of CAPTURE_SCHEMA

Reads JSON (one value a line, many values a line, one value over many lines; GetRecords answers, Lambda
events, Firehose transformation events: whatever `kpl_codec.adapters` knows), also compressed, and
Parquet with the column names of the Kinesis connectors. Bytes are read as bytes: a file that is not
UTF-8, ends early, or holds 10 MiB of nothing makes a row with its place, and the reading goes on.
Places are exact: the byte offset of the JSON value, or the row in the Parquet file.

Memory: one line or one Parquet row group. A line over MAX_LINE bytes is passed over and reported.
Specification: spec/07-spark.md, SPK-10 to SPK-16.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

import pyarrow as pa
from pyarrow import fs

from ...errors import CaptureError
from .parquet import read_parquet
from .rows import Rows, first_line
from .text import PIECE_BYTES, Unpacked, compression, read_text


class InputError(CaptureError):
    """There is nothing to read at ``path``. ``code``: no-such-path, no-files, bad-path, unreadable."""

    code: str
    field: str = "path"
    requirement = "SPK-10"
    path: str
    reason: str = ""
    text = "cannot read {path}: {code}"


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a file: the values (or row groups) that start at byte ``start`` or later, before ``stop``."""

    path: str
    start: int
    stop: int
    size: int

    @property
    def whole(self) -> bool:
        return self.start == 0 and self.stop == self.size


def is_local(path: str) -> bool:
    """Whether ``path`` is a plain path of this machine, not a URI."""
    return "://" not in path and not path.startswith("file:")


def open_path(path: str) -> tuple[fs.FileSystem, str]:
    if is_local(path):
        return fs.LocalFileSystem(), os.path.abspath(path)
    try:
        return fs.FileSystem.from_uri(path.replace("s3a://", "s3://", 1).replace("s3n://", "s3://", 1))  # type: ignore[no-any-return]
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(code="bad-path", path=path, reason=str(error)) from None


def plan(paths: Iterable[str], piece_bytes: int = PIECE_BYTES) -> list[Piece]:
    """The pieces of all files at or under ``paths``, by name. Hidden ones (``.x``, ``_x``) are left out.

    A path is local or a URI that `pyarrow.fs` knows (s3, gs, abfs, hdfs). Raises InputError.
    """
    # SPK-10: "Every value in every file at or under a path MUST be read exactly once, however files are cut
    # into pieces; a path that is not there, or holds no file, is refused at once."
    pieces = []
    for path in paths:
        system, inner = open_path(path)
        prefix = path[: len(path) - len(inner)] if path.endswith(inner) and "://" in path else ""
        info = system.get_file_info(inner)
        if info.type == fs.FileType.NotFound:
            raise InputError(code="no-such-path", path=path)
        if info.type == fs.FileType.Directory:
            try:
                found = system.get_file_info(fs.FileSelector(inner, recursive=True))
            except OSError as error:
                raise InputError(code="unreadable", path=path, reason=str(error)) from None
            depth = len(PurePosixPath(inner).parts)
            if is_local(path):
                found += system.get_file_info(_dangling(inner))
            found = [
                file
                for file in found
                if file.type != fs.FileType.Directory
                and not any(part[0] in "._" for part in PurePosixPath(file.path).parts[depth:])
            ]
            if not found:
                raise InputError(code="no-files", path=path)
        else:
            found = [info]
        for file in sorted(found, key=lambda file: str(file.path)):
            if file.type != fs.FileType.File:
                pieces.append(Piece(prefix + file.path, 0, 0, -1))
                continue
            size = file.size or 0
            cuts = [0]
            if compression(file.path) is None:
                cuts = list(range(0, max(size, 1), piece_bytes))
            pieces += [
                Piece(prefix + file.path, start, stop, size)
                for start, stop in zip(cuts, [*cuts[1:], size], strict=True)
            ]
    return pieces


def _dangling(folder: str) -> list[str]:
    """Links under ``folder`` to files that are not there: a listing leaves them out."""
    files = (os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)
    return [path for path in files if not os.path.exists(path)]


def read_piece(piece: Piece) -> Iterator[pa.RecordBatch]:
    """Batches of CAPTURE_SCHEMA. Raises nothing for what is in the file; `kpl_codec.errors` has no say
    over a machine that runs out of memory."""
    rows = Rows(piece.path)
    if piece.size == 0:
        rows.unreadable("empty", "the file is empty", 0)
        yield from rows.take()
        return
    if piece.size < 0:
        rows.unreadable("file", "not a file: a pipe, or a link to nothing", 0)
        yield from rows.take()
        return
    position = piece.start
    try:
        system, inner = open_path(piece.path)
        with system.open_input_file(inner) as source:
            magic = source.read(4)
            source.seek(0)
            if magic == b"PAR1":
                yield from read_parquet(piece, source, rows)
                return
            kind = compression(piece.path)
            stream = source if kind is None else Unpacked(source, kind)
            for position in read_text(stream, piece, rows):  # noqa: B007  where a failure would be
                yield from rows.take()
    except (OSError, pa.ArrowException) as error:
        # SPK-12: "A file that cannot be read, or not to its end, MUST be reported as file with
        # the place; what was read before it counts, and so do the other files."
        rows.unreadable("file", first_line(error), position)
    # SPK-11: "A file without a byte in it, or of white space alone, also unpacked, MUST be reported as
    # empty."
    if piece.whole and not rows.seen:
        rows.unreadable("empty", "nothing but white space in it", 0)
    yield from rows.take()
