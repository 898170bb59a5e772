"""Lists the files under a path and cuts them into pieces that can be read in parallel. Opens none of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

from .location import InputError, Location

#: Files above this size are cut into pieces of it.
PIECE_BYTES = 64 * 1024 * 1024


@contextmanager
def readable(path: str) -> Iterator[None]:
    """Raises InputError (unreadable) in place of what pyarrow raises in the block, and for a column that is
    missing."""
    try:
        yield
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError(code="unreadable", path=path, reason=reason) from None


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a file: the values (or row groups) that start at byte ``start`` or later, before ``stop``.
    ``size`` is the file's, in bytes; -1 where the path is no file."""

    path: str
    start: int
    stop: int
    size: int

    @property
    def weight(self) -> int:
        return self.stop - self.start


def plan(paths: Iterable[str], *, piece_bytes: int = PIECE_BYTES) -> list[Piece]:
    """The pieces of all files at or under ``paths``, by name, each file once. Hidden ones (``.x``, ``_x``)
    are left out. Raises InputError."""
    # SPK-10: "Every value in every file at or under a path MUST be read exactly once, however files are cut
    # into pieces; a path that is not there, or holds no file, is refused at once."
    files: dict[str, int] = {}
    for path in paths:
        files |= {name: files.get(name, size) for name, size in _files(path)}
    return [
        Piece(name, start, max(0, min(start + piece_bytes, size)), size)
        for name, size in files.items()
        for start in range(0, max(size, 1), piece_bytes)
    ]


def _files(path: str) -> list[tuple[str, int]]:
    """The files at or under ``path`` by name, and their sizes; -1 for anything but a file."""
    location = Location(path)
    system, inner = location.opened()
    info = location.info()
    if info.type == fs.FileType.NotFound:
        raise InputError(code="no-such-path", path=path)
    found = [info]
    if info.type == fs.FileType.Directory:
        try:
            found = system.get_file_info(fs.FileSelector(inner, recursive=True))
            found += system.get_file_info(_broken_links(inner)) if location.is_local else []
        except (UnicodeError, OSError) as error:
            reason = str(error)
            if isinstance(error, UnicodeError):
                reason = "a file in it has a name that is not UTF-8: rename it"
            raise InputError(code="unreadable", path=path, reason=reason) from None
        hidden = re.compile(re.escape(inner) + r"(/.*)?/[._].*", re.DOTALL)
        found = [one for one in found if one.type != fs.FileType.Directory and not hidden.match(one.path)]
        if not found:
            raise InputError(code="no-files", path=path)
    return sorted(
        (location.path + file.path[len(inner) :], (file.size or 0) if file.type == fs.FileType.File else -1)
        for file in found
    )


def _broken_links(folder: str) -> list[str]:
    """Links under ``folder`` to missing files, which a listing leaves out."""
    files = (os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)
    return [path for path in files if not os.path.exists(path)]
