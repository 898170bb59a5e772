"""Compressed files: recognises the format by the first bytes, and reads as much as possible."""

from __future__ import annotations

import bz2
import gzip
import zlib
from typing import Any

import pyarrow as pa

#: The first bytes of a file in each format.
_SIGNATURES = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}


def compression(head: bytes) -> str | None:
    """How a file is packed, by its first four bytes; its name does not matter."""
    return next((kind for start, kind in _SIGNATURES.items() if head.startswith(start)), None)


class Unpacked:
    """The bytes of a compressed file. `read` raises OSError where it is damaged, after all bytes before."""

    def __init__(self, source: Any, kind: str) -> None:
        self._block = 1 << 20
        if kind == "gzip":
            self._read: Any = gzip.GzipFile(fileobj=source).read1
        elif kind == "bz2":
            self._read = bz2.BZ2File(source).read1
        else:
            # At a break at most one such block before it is lost.
            self._block = 1 << 12
            self._read = pa.CompressedInputStream(source, kind).read

    def read(self, size: int) -> bytes:
        try:
            return bytes(self._read(min(size, self._block)))
        except (EOFError, zlib.error, pa.ArrowException) as error:
            raise OSError(str(error)) from None
