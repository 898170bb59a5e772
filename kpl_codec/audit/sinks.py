"""Where the chunks of a ledger's writer go: a folder, S3, or log lines.

Specification: spec/15-audit.md, AUD-3 and AUD-6.
"""

from __future__ import annotations

import base64
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .book import LINE, SUFFIX


class Sink(ABC):
    """Takes the chunks of one writer, in order; a segment begins with `begin`. Methods raise OSError."""

    #: Seconds and bytes after which another segment is begun.
    segment_seconds: float = 3600.0
    segment_bytes: int = 64 << 20
    #: Whether chunks are stored before their segment ends.
    at_once = True

    @abstractmethod
    def begin(self, segment: int) -> None: ...

    @abstractmethod
    def write(self, chunk: bytes, *, sync: bool) -> None:
        """With ``sync`` it returns when the chunk is stored for good."""

    def end(self) -> None:
        """The segment has all its chunks."""
        return


class FolderSink(Sink):
    """A file a segment, to which chunks are appended."""

    def __init__(self, folder: Path, writer: str) -> None:
        self._folder, self._writer = folder, writer
        self._file: Any = None

    def begin(self, segment: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self._writer}-{segment:06d}{SUFFIX}"
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115 - until `end`

    def write(self, chunk: bytes, *, sync: bool) -> None:
        view = memoryview(chunk)
        while view:  # (a full disk may take a part)
            view = view[self._file.write(view) :]
        if sync:
            os.fsync(self._file.fileno())

    def end(self) -> None:
        with self._file:
            os.fsync(self._file.fileno())


class S3Sink(Sink):
    """An object a segment, put when it is whole."""

    segment_seconds, segment_bytes, at_once = 60.0, 8 << 20, False

    def __init__(self, uri: str, writer: str, put: Callable[[str, bytes], None]) -> None:
        self._prefix, self._put = f"{uri.rstrip('/')}/{writer}", put

    def begin(self, segment: int) -> None:
        self._name, self._data = f"{self._prefix}-{segment:06d}{SUFFIX}", b""

    def write(self, chunk: bytes, *, sync: bool) -> None:
        self._data += chunk

    def end(self) -> None:
        self._put(self._name, self._data)


class LineSink(Sink):
    """A line of JSON a chunk, given to ``write_line`` (print, a logger's method)."""

    def __init__(self, write_line: Callable[[str], object], writer: str) -> None:
        self._write_line, self._writer = write_line, writer

    def begin(self, segment: int) -> None:
        self._segment = segment

    def write(self, chunk: bytes, *, sync: bool) -> None:
        text = base64.b64encode(chunk).decode()
        self._write_line(json.dumps({LINE: self._writer, "segment": self._segment, "chunk": text}))
