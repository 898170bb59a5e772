"""Compression of a user record's data: a producer's setting compresses it, a reader's argument decompresses
it.

    gzip   1F 8B 08       RFC 1952
    zlib   78 01|5E|9C|DA RFC 1950
    zstd   28 B5 2F FD    RFC 8878; needs Python 3.14 or the extra zstd

gzip and zstd may have several parts, one after the other (RFC 1952, 2.2; RFC 8878, 3.1): their contents are
one. Specification: spec/05-producer.md, ZIP.
"""

from __future__ import annotations

import sys
import zlib
from typing import Any, ClassVar, Final, Literal, get_args

from ..base.arguments import argument_error, check_arguments
from ..base.lazy import install
from ..errors import DecodeError

Compression = Literal["gzip", "zlib", "zstd"]
#: The most bytes that one user record's data is decompressed to if the reader gives no limit.
DEFAULT_MAX_DECOMPRESSED_SIZE: Final = 64 * 1024 * 1024

_GZIP, _ZSTD = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
STARTS = (_GZIP, _ZSTD, *_ZLIB)


class DecompressionError(DecodeError):
    """Data that starts like compressed data and cannot be decompressed. ``code``: compressed-damaged
    (damaged, cut short, or with bytes after the end), decompressed-too-large (more than
    ``max_decompressed_size`` bytes), no-zstd."""

    code: Literal["compressed-damaged", "decompressed-too-large", "no-zstd"]
    requirement = "ZIP-4"
    compression: Compression
    max_decompressed_size: int | None = None
    todo = "Raise `max_decompressed_size` if the data may be that large; None delivers it as it is."
    texts: ClassVar[dict[str, str]] = {
        "compressed-damaged": "data starts like {compression}, but is damaged or something else",
        "decompressed-too-large": "{compression} data becomes more than {max_decompressed_size} bytes",
        "no-zstd": f"zstd data needs Python 3.14 or later, or: {install('backports.zstd>=1')}",
    }


def zstd_module() -> Any:
    """The module of Python 3.14 or of the extra zstd; None where there is neither."""
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        try:
            from backports import zstd  # type: ignore[no-redef, unused-ignore]
        except ImportError:
            return None
    return zstd


def compression_of(data: bytes) -> Compression | None:
    """The name of the compression, by the first bytes of ``data``; None for other data."""
    if not data.startswith(STARTS):
        return None
    return "gzip" if data.startswith(_GZIP) else "zstd" if data.startswith(_ZSTD) else "zlib"


def compress(data: bytes, compression: Compression) -> bytes:
    """``data`` compressed, unless that does not make it smaller. `decompress` undoes it either way. Raises
    ValueError for an unknown compression, ModuleNotFoundError for zstd where there is none.

        >>> import kpl_codec as kpl
        >>> packed = kpl.compress(b"data " * 100, "gzip")
        >>> len(packed) < 500, kpl.decompress(packed) == b"data " * 100, kpl.decompress(b"plain")
        (True, True, b'plain')
        >>> try:
        ...     kpl.decompress(packed, max_decompressed_size=99)
        ... except kpl.DecompressionError as error:
        ...     print(error.code, error.max_decompressed_size)
        decompressed-too-large 99
    """
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise argument_error("compress", "data", data, give="bytes")
    if compression not in get_args(Compression):
        kind = ValueError if isinstance(compression, str) else TypeError
        raise argument_error("compress", "compression", compression, kind, "gzip, zlib or zstd")
    # ZIP-1: "A producer with compression MUST change the data of a user record only, to gzip (RFC 1952), zlib
    # (RFC 1950) or zstd (RFC 8878)."
    if compression == "zstd":
        zstd = zstd_module()
        if zstd is None:
            raise ModuleNotFoundError(f"zstd needs Python 3.14 or later, or: {install('backports.zstd>=1')}")
        compressed: bytes = zstd.compress(data)
    else:
        # The header of gzip has no time: the same data always gives the same bytes.
        packer = zlib.compressobj(wbits=31 if compression == "gzip" else 15)
        compressed = packer.compress(data) + packer.flush()
    # ZIP-2: "Data MUST be compressed if that makes it smaller, or if it starts like compressed data; other
    # data MUST stay as it is."
    return compressed if len(compressed) < len(data) or compression_of(data) is not None else data


def _decompressor(compression: Compression) -> tuple[Any, tuple[type[Exception], ...]] | None:
    """A decompressor, and what it raises for damaged data; None where there is no zstd."""
    if compression == "zstd":
        zstd = zstd_module()
        return None if zstd is None else (zstd.ZstdDecompressor(), (zstd.ZstdError, EOFError))
    return zlib.decompressobj(wbits=31 if compression == "gzip" else 15), (zlib.error, EOFError, OSError)


def check_max_size(max_size: int, function: str = "decompress") -> int:
    """``max_decompressed_size`` of ``function``, or the largest size that the decompressors take. Raises
    ValueError for less than 1 byte, TypeError for what is no whole number."""
    if type(max_size) is not int or max_size < 1:
        name = "max_decompressed_size"
        check_arguments(function, {name: max_size}, required=(name,))
    return min(max_size, sys.maxsize - 1)


def decompress(data: bytes, max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE) -> bytes:
    """``data`` decompressed once if it starts like compressed data, else unchanged. Raises
    DecompressionError; it holds at most ``max_decompressed_size`` bytes and one more. ValueError for a size
    below 1."""
    max_size = check_max_size(max_decompressed_size)
    # ZIP-3: "A reader that is set to decompress MUST undo one compression of a user record whose data starts
    # like compressed data, and leave other data as it is."
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise argument_error("decompress", "data", data, give="bytes")
    compression = compression_of(data)
    if compression is None:
        return data
    tools = _decompressor(compression)
    if tools is None:
        raise DecompressionError(code="no-zstd", compression=compression)
    decompressor, damage = tools
    content: bytes
    try:
        content = decompressor.decompress(data, max_size + 1)
        complete = decompressor.eof and not decompressor.unused_data
        if decompressor.eof and not complete and compression != "zlib" and len(content) <= max_size:
            content, complete = _decompress_parts(data, compression, max_size + 1), True
    except damage:
        raise DecompressionError(code="compressed-damaged", compression=compression) from None
    # ZIP-4: "Data that cannot be decompressed, or only to more than the reader's limit, MUST be an error that
    # says which; it MUST NOT be shortened."
    if len(content) > max_size:
        raise DecompressionError(
            code="decompressed-too-large", compression=compression, max_decompressed_size=max_size
        )
    if not complete:
        raise DecompressionError(code="compressed-damaged", compression=compression)
    return content


def _decompress_parts(data: bytes, compression: Compression, size: int) -> bytes:
    """The first ``size`` bytes of all parts together, in linear time."""
    import gzip
    import io

    source = io.BytesIO(data)
    file = zstd_module().ZstdFile(source) if compression == "zstd" else gzip.GzipFile(fileobj=source)
    contents, left = [], size
    while left and (content := file.read(min(left, 1 << 20))):  # (`read` allocates the given size)
        contents.append(content)
        left -= len(content)
    return b"".join(contents)


def beginning(data: bytes, size: int) -> bytes:
    """The first bytes of what compressed ``data`` becomes, at most ``size``; b"" for other data."""
    compression = compression_of(data)
    tools = None if compression is None else _decompressor(compression)
    if compression is None or tools is None:
        return b""
    decompressor, damage = tools
    try:
        content: bytes = decompressor.decompress(data, size)
        if len(content) < size and decompressor.eof and decompressor.unused_data and compression != "zlib":
            content = _decompress_parts(data, compression, size)  # the first part may have few bytes, or none
    except damage:
        return b""
    return content
