"""Lists the files under a path and cuts them into pieces that can be read in parallel. Opens none of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import ClassVar

import pyarrow as pa
from pyarrow import fs

from ..errors import CaptureError

#: Files above this size are cut into pieces of it.
PIECE_BYTES = 64 * 1024 * 1024


class InputError(CaptureError):
    """There is nothing to read at ``path``. ``code``: no-such-path, no-files, bad-path, unreadable."""

    code: str
    field: str = "path"
    requirement = "SPK-10"
    path: str
    reason: str = ""
    _WHAT: ClassVar = {
        "no-such-path": "no such file or folder",
        "no-files": "there is no file in it",
    }

    def describe(self) -> str:
        """The path, and why it cannot be read."""
        return f"cannot read {self.path}: {self.reason or self._WHAT.get(self.code, self.code)}"


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

    ``size`` is the file's, in bytes; -1 where the path is no file.
    """

    path: str
    start: int
    stop: int
    size: int


def is_local(path: str) -> bool:
    """Whether ``path`` is a plain path of this machine, not a URI."""
    return "://" not in path and not path.startswith("file:")


def open_path(path: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URI, and the path in it. Raises InputError (bad-path)."""
    if "\0" in path or not _is_utf_8(path):
        raise InputError(code="bad-path", path=path, reason="the name is not UTF-8, or has a zero byte")
    if is_local(path):
        return fs.LocalFileSystem(), os.path.abspath(path)
    try:
        return fs.FileSystem.from_uri(path.replace("s3a://", "s3://", 1).replace("s3n://", "s3://", 1))  # type: ignore[no-any-return]
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(code="bad-path", path=path, reason=str(error)) from None


def _is_utf_8(path: str) -> bool:
    """Whether pyarrow can take the path: Python's own names may have bytes that are not UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in path)


def plan(paths: Iterable[str], *, piece_bytes: int = PIECE_BYTES) -> list[Piece]:
    """The pieces of all files at or under ``paths``, by name. Hidden ones (``.x``, ``_x``) are left out.

    A path is local or a URI that `pyarrow.fs` knows (s3, gs, abfs, hdfs). A file that is under two of the
    paths is read once. Raises InputError.
    """
    # SPK-10: "Every value in every file at or under a path MUST be read exactly once, however files are cut
    # into pieces; a path that is not there, or holds no file, is refused at once."
    files: dict[str, int] = {}
    for path in paths:
        files |= {name: files.get(name, size) for name, size in _files(path)}
    pieces = []
    for name, size in files.items():
        cuts = list(range(0, size, piece_bytes)) or [0]
        pieces += [
            Piece(name, start, stop, size)
            for start, stop in zip(cuts, [*cuts[1:], max(size, 0)], strict=True)
        ]
    return pieces


def _files(path: str) -> list[tuple[str, int]]:
    """The files at or under ``path`` by name, and their sizes; -1 for anything but a file."""
    system, inner = open_path(path)
    prefix = path[: len(path) - len(inner)] if path.endswith(inner) and "://" in path else ""
    info = system.get_file_info(inner)
    if info.type == fs.FileType.NotFound:
        raise InputError(code="no-such-path", path=path)
    found = [info]
    if info.type == fs.FileType.Directory:
        try:
            found = system.get_file_info(fs.FileSelector(inner, recursive=True))
            if is_local(path):
                found += system.get_file_info(_broken_links(inner))
            depth = len(PurePosixPath(inner).parts)
            found = [
                file
                for file in found
                if file.type != fs.FileType.Directory
                and not any(part[0] in "._" for part in PurePosixPath(file.path).parts[depth:])
            ]
        except UnicodeError:
            reason = "a file in it has a name that is not UTF-8: rename it"
            raise InputError(code="unreadable", path=path, reason=reason) from None
        except OSError as error:
            raise InputError(code="unreadable", path=path, reason=str(error)) from None
        if not found:
            raise InputError(code="no-files", path=path)
    return sorted(
        (prefix + file.path, (file.size or 0) if file.type == fs.FileType.File else -1) for file in found
    )


def _broken_links(folder: str) -> list[str]:
    """Links under ``folder`` to missing files, which a listing leaves out."""
    files = (os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)
    return [path for path in files if not os.path.exists(path)]
