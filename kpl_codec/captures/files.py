"""Reads and writes files and folders: on this machine, in S3 with boto3's settings (`aws.s3`), or at another
URI of `pyarrow.fs`. `plan` cuts files into pieces that can be read in parallel, and opens none of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, ClassVar, Literal
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from ..errors import KplError
from ..rendering.labels import plural

#: Bytes of a piece: larger files are cut into pieces.
PIECE_BYTES = 64 * 1024 * 1024
_S3 = ("s3://", "s3a://", "s3n://")
#: Sizes of a path that is no file, or a folder that cannot be listed, and of a file that is left out.
NO_FILE, HIDDEN = -1, -2
#: What a path is that has the size NO_FILE.
NOT_A_FILE = "not a file: a pipe, a link to nothing, or a folder that cannot be listed"
#: Why a file in a folder is left out. Results hold copies of what was checked, and user records that are
#: missing: read as input, they would count twice, or as handled.
LEFT_OUT = "names that begin with . or _, and results of kpl-codec"
#: Files that Spark and Hadoop write beside data: they are left out, and not reported.
_BOOKKEEPING = re.compile(r"_SUCCESS|_(committed|started)_\d+|\..*\.crc|\.DS_Store", re.DOTALL)
#: The key that the metadata of a Parquet file of results has. Its value: RUN/FOLDER/PART, or nothing.
RESULTS = b"kpl-codec.results"
#: The name that a file or folder has until it is complete: `Location.whole_file`, `results.new_results`.
UNFINISHED = re.compile(r"\..*\.[0-9a-f]{32}", re.DOTALL)
#: What an object store has of a job that has not ended.
_HALF_WRITTEN = re.compile(r"(.*/)_work/(tally|account|findings|kinesis-records)/", re.DOTALL)


#: What pyarrow raises for what it cannot read; the last of a Parquet file's footer that is damaged.
UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError)


class InputError(KplError, ValueError):
    """There is nothing to read at ``path``. ``code``: no-such-path, no-files, bad-path, unreadable, and
    not-whole of results that have lost a part."""

    code: str
    path: str
    reason: str = ""
    text = "cannot read {path}: {reason}"
    texts: ClassVar[dict[str, str]] = {
        "no-such-path": "cannot read {path}: no such file or folder",
        "no-files": "cannot read {path}: there is no file in it{reason}",
        "not-whole": "{path} is not whole: {reason}; run the job again, or copy all of its results",
    }
    concerns = "Whoever runs the command. Nothing was written."
    todo = "Check the path, and that this machine may read it."
    codes = ("no-such-path", "no-files", "bad-path", "unreadable", "not-whole")


@contextmanager
def readable(path: str, code: str = "unreadable") -> Iterator[None]:
    """A context that raises InputError (``code``, or no-such-path) in place of pyarrow's errors, and for a
    missing column."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(code="no-such-path", path=path) from None
    except (*UNREADABLE, KeyError) as error:
        text = getattr(error, "strerror", None) or str(error)
        reason = f"no column {error}" if isinstance(error, KeyError) else text.partition("\n")[0][:300]
        if text.startswith("Unrecognized filesystem type"):
            reason = "download it first, or give a path in S3 (s3://BUCKET/KEY)"
        elif "://" in path:
            reason += "; check the network and the credentials"
        raise InputError(code=code, path=path, reason=reason) from None


@dataclass(frozen=True, init=False)
class Location:
    """A path of this machine, made absolute, or a URI, that ends in no slash. Methods raise InputError where
    they say so, else what `pyarrow.fs` raises, mostly OSError."""

    path: str

    def __init__(self, path: str | os.PathLike[str] | Location) -> None:
        text = path.path if isinstance(path, Location) else os.fspath(path)
        if text.startswith("file:"):
            text = unquote(urlsplit(text).path)
        if text.startswith(_S3):
            text = f"s3://{text.partition('://')[2]}"
        object.__setattr__(self, "path", text.rstrip("/") if "://" in text else os.path.abspath(text))

    def __truediv__(self, name: str) -> Location:
        return Location(f"{self.path}/{name}")

    def __str__(self) -> str:
        return self.path

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def is_local(self) -> bool:
        return "://" not in self.path

    def filesystem(self) -> tuple[fs.FileSystem, str]:
        """The file system, and the path in it, for functions of pyarrow. Raises InputError (bad-path)."""
        # pyarrow takes UTF-8 only; paths in Python may have other bytes.
        if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in self.path):
            reason = "the name is not UTF-8, or has a zero byte"
            raise InputError(code="bad-path", path=self.path, reason=reason)
        if self.is_local:
            return fs.LocalFileSystem(), self.path
        # SPK-47: "A path in S3 MUST be as good as one of this machine, for every argument that is a path,
        # with or without a slash at its end, with the credentials of `--profile` and `--role-arn`."
        if self.path.startswith("s3://"):
            from ..aws.s3 import S3Error, s3_file_system

            inner = self.path.removeprefix("s3://")
            try:
                return s3_file_system(inner.partition("/")[0]), inner
            except S3Error as error:
                raise InputError(code="bad-path", path=self.path, reason=error.describe()) from None
        of_google = self.path.startswith(("gs://", "gcs://")) and "?" not in self.path
        with readable(self.path, "bad-path"):
            # pyarrow's own limit for Google's storage is minutes.
            uri = self.path + ("?retry_limit_seconds=10" if of_google else "")
            return fs.FileSystem.from_uri(uri)  # type: ignore[no-any-return]

    def kind(self) -> Literal["file", "folder", "other"] | None:
        """Whether a file or a folder is there; None if nothing is. "other": a pipe, for example."""
        kinds: dict[str, Any] = {"NotFound": None, "File": "file", "Directory": "folder"}
        return kinds.get(self.info().type.name, "other")  # type: ignore[no-any-return]

    def info(self) -> fs.FileInfo:
        """The type, size and time of the file or folder. Raises InputError (unreadable)."""
        system, inner = self.filesystem()
        with readable(self.path):
            return system.get_file_info(inner)

    def files(self) -> list[Location]:
        """The folder's files and folders by name, without unfinished files; none if it does not exist."""
        names = sorted(file.base_name for file in self._infos())
        return [self / name for name in names if not UNFINISHED.fullmatch(name)]

    def hidden(self) -> list[str]:
        """The names in the folder that unfinished files and folders have; none if it does not exist."""
        names = sorted(file.base_name for file in self._infos())
        return [name for name in names if UNFINISHED.fullmatch(name)]

    def _infos(self) -> list[fs.FileInfo]:
        system, inner = self.filesystem()
        infos: list[fs.FileInfo] = system.get_file_info(fs.FileSelector(inner, allow_not_found=True))
        return infos

    def read(self) -> bytes:
        """All of the file. Raises InputError (no-such-path, unreadable)."""
        system, inner = self.filesystem()
        with readable(self.path), system.open_input_stream(inner) as source:
            return bytes(source.read())

    def rows(
        self, columns: list[str] | None = None, wanted: Any = None, schema: pa.Schema | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the folder's Parquet files that are ``wanted``. Raises InputError (unreadable)."""
        from pyarrow.dataset import ParquetFileFormat, ParquetFragmentScanOptions, dataset

        system, inner = self.filesystem()
        checked = ParquetFragmentScanOptions(page_checksum_verification=True)
        with readable(self.path):
            rows = dataset(inner, schema, ParquetFileFormat(default_fragment_scan_options=checked), system)
            yield from (batch for batch in rows.to_batches(columns=columns, filter=wanted) if batch.num_rows)

    def make_folder(self) -> Location:
        system, inner = self.filesystem()
        system.create_dir(inner, recursive=True)
        return self

    def delete(self) -> None:
        kind = self.kind()
        if kind is not None:
            system, inner = self.filesystem()
            (system.delete_dir if kind == "folder" else system.delete_file)(inner)

    def unfinished(self) -> Location:
        """A place beside this one for what gets this name when it is complete."""
        folder, _, name = self.path.rpartition("/")
        return Location(f"{folder}/.{name}.{uuid4().hex}")

    @contextmanager
    def whole_file(self) -> Iterator[Any]:
        """A file to write that gets its name when it is complete, so that several attempts may write it at
        once."""
        system, inner = self.filesystem()
        hidden = self.unfinished().filesystem()[1]
        with system.open_output_stream(hidden) as out:
            yield out
        system.move(hidden, inner)

    def write(self, data: bytes) -> None:
        """Write the file so that readers see the old one or the new one, never a part of one."""
        system, inner = self.filesystem()
        # An object appears when it is complete.
        with self.whole_file() if self.is_local else system.open_output_stream(inner) as out:
            out.write(data)

    def write_table(self, table: pa.Table, mark: bytes | None = None, part: str = "") -> None:
        """Write a Parquet file, with ``mark`` as a key of its metadata, and with checksums. ``part``: which
        part of results it is, and of which run."""
        table = table.replace_schema_metadata({mark: part}) if mark is not None else table
        with self.whole_file() as out:
            pq.write_table(table, out, write_page_checksum=True)

    def sweep(self) -> None:
        """Delete the files in the folder, if it is there, that killed attempts left unfinished."""
        for file in self._infos():
            if UNFINISHED.fullmatch(file.base_name):
                self.filesystem()[0].delete_file(file.path)

    def move_to(self, target: Location) -> None:
        """Move the folder, if it is there. An object store has no folders to move: file by file."""
        system, inner = self.filesystem()
        _, goal = target.filesystem()
        if not self.is_local:
            for file in self._infos():
                system.move(file.path, f"{goal}/{file.base_name}")
        elif self.kind() is not None:
            system.move(inner, goal)


@dataclass(frozen=True, slots=True)
class FileRange:
    """Part of a file: the values (or row groups) that start at byte ``start`` or later, before ``stop``.
    ``size``: of the whole file, in bytes; NO_FILE or HIDDEN where there is nothing to read."""

    path: str
    start: int
    stop: int
    size: int

    @property
    def weight(self) -> int:
        return self.stop - self.start


def plan(paths: Iterable[str], *, piece_bytes: int = PIECE_BYTES) -> list[FileRange]:
    """The pieces of all files at or under ``paths``, by name, each file once. A file in a folder whose name,
    or a folder's below it, begins with . or _, or that is in the results of a validation or an audit, has the
    size HIDDEN. Raises InputError."""
    # SPK-10: "Every value in every file at or under a path MUST be read exactly once, however files are cut
    # into pieces; a path that is not there, or holds no file, is refused at once."
    files: dict[str, int] = {}
    names: dict[str, str] = {}  # by the file that a link leads to
    for name, size in (file for path in paths for file in _files(path)):
        name = names.setdefault(_target(name), name)
        files[name] = max(files.get(name, HIDDEN), size)  # a hidden file may also be named itself
    return [
        FileRange(name, start, max(0, min(start + piece_bytes, size)), size)
        for name, size in files.items()
        for start in range(0, max(size, 1), piece_bytes)
    ]


def _files(path: str) -> list[tuple[str, int]]:
    """The files at or under ``path`` by name, and their sizes, NO_FILE or HIDDEN."""
    location = Location(path)
    try:
        listed = _listing(location)
    except (UnicodeError, OSError) as error:
        reason = str(error)
        if isinstance(error, UnicodeEncodeError):
            name = os.fsencode(error.object).decode(errors="backslashreplace")
            reason = f"a file in it has a name that is not UTF-8: rename {name}"
        raise InputError(code="unreadable", path=path, reason=reason) from None
    if listed is None:
        raise InputError(code="no-such-path", path=path)
    names = {name for name, _ in listed}
    results = tuple(_results_among(names))
    sizes, targets = {}, set[str]()

    def is_left_out(name: str) -> bool:
        return name.startswith(results) or re.search(r"/[._]", name[len(location.path) :]) is not None

    # A file that links lead to is read under its shortest name that is not hidden.
    for name, size in sorted(listed, key=lambda file: (is_left_out(file[0]), len(file[0]))):
        if is_left_out(name):
            if not size or _BOOKKEEPING.fullmatch(name.rpartition("/")[2]):
                continue
            size = HIDDEN
        if (target := _target(name)) not in targets:
            targets.add(target)
            sizes[name] = size
    if all(size == HIDDEN for size in sizes.values()):
        reason = f" but {plural(len(sizes), 'file')} left out: {LEFT_OUT}" if sizes else ""
        raise InputError(code="no-files", path=path, reason=reason)
    return sorted(sizes.items())


def _results_among(names: set[str]) -> Iterator[str]:
    """The folders of results among files, whole or half-written."""
    for name in names:
        if name.endswith("/report.html") and f"{name.removesuffix('report.html')}summary.json" in names:
            yield name.removesuffix("report.html")
        if (half := _HALF_WRITTEN.match(name)) is not None:
            yield half[1]


def _listing(location: Location) -> list[tuple[str, int]] | None:
    """The names of all files at or under ``location``, and their sizes or NO_FILE; None if nothing is there.
    Raises OSError, UnicodeError, InputError."""
    if location.is_local and location.kind() == "folder":
        return list(_walk(location.path))
    system, inner = location.filesystem()
    infos = [location.info()]
    if infos[0].type == fs.FileType.NotFound:
        return None
    if not location.is_local:
        # An object store has no folders: an object may have the name of one.
        below = system.get_file_info(fs.FileSelector(f"{inner}/", recursive=True, allow_not_found=True))
        infos += [one for one in below if one.path != inner]
    return [
        (location.path + one.path[len(inner) :], (one.size or 0) if one.type == fs.FileType.File else NO_FILE)
        for one in infos
        if one.type != fs.FileType.Directory
    ]


def _walk(folder: str) -> Iterator[tuple[str, int]]:
    """The files under a folder of this machine and their sizes, or NO_FILE. A folder that several links lead
    to is walked once, under its shortest name that is not hidden: links may lead back. Raises OSError (of
    ``folder`` itself), UnicodeError."""
    seen = set[str]()
    queue = [(False, len(folder), folder)]
    while queue:
        is_hidden, _, at = heappop(queue)
        if (real := os.path.realpath(at)) in seen:
            continue
        seen.add(real)
        try:
            entries = [*os.scandir(at)]
        except OSError:
            if at == folder:
                raise
            yield at, NO_FILE
            continue
        for entry in entries:
            entry.name.encode()  # raises where it is not UTF-8
            try:
                if entry.is_dir():
                    heappush(queue, (is_hidden or entry.name[0] in "._", len(entry.path), entry.path))
                else:
                    yield entry.path, entry.stat().st_size if entry.is_file() else NO_FILE
            except OSError:  # a link to itself, or one that is too long
                yield entry.path, NO_FILE


def _target(path: str) -> str:
    """The file that a path of this machine leads to."""
    return path if "://" in path else os.path.realpath(path)
