"""The frame around an aggregated record's message: magic, message, MD5.

    0               4                  N          N+15
    +---+---+---+---+==================+---+...+---+
    |  MAGIC NUMBER | PROTOBUF MESSAGE |    MD5    |
    +---+---+---+---+==================+---+...+---+

This module also finds disguises of frames: a frame that was turned into text, or written with other first
bytes, looks like plain data, and no consumer opens it. Specification: spec/01-aggregated-record.md, FRM.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal

from ..base.compiled import md5
from ..errors import ChecksumMismatch, NotAggregated
from .compression import DecompressionError, compression_of, decompress
from .limits import DIGEST_SIZE, FRAME_OVERHEAD, MAGIC

TextEncoding = Literal[
    "base64",
    "base64 of base64",
    "hexadecimal digits",
    "Latin-1 text",
    "Windows-1252 text",
    "text with lost bytes",
    "text with escapes",
    "a list of numbers",
    "a Python literal",
    "a frame with a foreign magic",
]

#: How a byte is printed: with a backslash, and as spaced digits behind a head.
_ESCAPES: Final = ("\\x%02x", "\\x%02X", "\\%03o", "\\u%04x", "\\u%04X")
_SPACED: Final = (
    *((b"", form, sep) for form in ("%02x", "%02X") for sep in " :"),
    (b"<Buffer ", "%02x", " "),
)


def _printed(form: str, separator: str = "") -> bytes:
    return separator.join(form % byte for byte in MAGIC).encode()


#: The first bytes of each disguise. In base64 the magic fills five digits and part of a sixth.
BEGINNINGS: dict[bytes, TextEncoding] = {
    b"84maw": "base64",
    b'"84maw': "base64",  # as a JSON text
    b"ODRtYX": "base64 of base64",
    MAGIC.hex().encode(): "hexadecimal digits",
    MAGIC.hex().upper().encode(): "hexadecimal digits",
    MAGIC.decode("latin-1").encode(): "Latin-1 text",
    # Invalid bytes were replaced by U+FFFD; the tag of the first key follows.
    "\ufffd\ufffd\n".encode(): "text with lost bytes",
    b"b'\\xf3\\x89\\x9a\\xc2": "a Python literal",
    MAGIC.decode("cp1252").encode(): "Windows-1252 text",
    # What programs print of bytes: in C, Elixir (which has << >>), Node, JSON and hex dumps.
    **{quote + _printed(form): "text with escapes" for quote in (b"", b'"') for form in _ESCAPES},
    **{head + _printed("%d", sep): "a list of numbers" for head in (b"<<", b"[") for sep in (", ", ",")},
    **{head + _printed(form, sep): "hexadecimal digits" for head, form, sep in _SPACED},
}
#: What is left of the magic and the tag of the first key, where each byte that is no text was left out, or
#: is a question mark.
_REST_OF_MAGIC: Final = (b"\n", b"????\n")
#: The head of the first user record in what is left: its size, key 0, no or one explicit hash key, the size
#: of its data. (Of a size above 127 a byte may be left out.)
_FIRST_RECORD: Final = re.compile(rb"\x1a[\0-\x7f]{1,2}\x08\0(\x10[\0-\x7f])?\x1a[\0-\x7f]")
#: How data begins that may be a disguise, but for a foreign magic.
DISGUISE_STARTS: Final = (*BEGINNINGS, *_REST_OF_MAGIC)


#: A frame with a foreign magic has the last three bytes of the magic, or the tag of a field of an aggregated
#: record as fifth byte; other data is not hashed. (erlmld and ex_kpl change the first byte of the magic, and
#: can compress message and digest.)
MAGIC_END: Final = MAGIC[1:]
FIRST_TAGS: Final = (b"\x0a", b"\x12", b"\x1a")


def disguise_of(data: bytes) -> TextEncoding | None:
    """The disguise of the aggregated record in ``data``; None if there is none. First bytes decide; for
    base64 the digits, for a foreign magic the digest."""
    encoding = next((name for start, name in BEGINNINGS.items() if data.startswith(start)), None)
    if encoding == "base64 of base64":
        inner = disguise_of(_decode_text(data))
        return encoding if inner == "base64" else None
    if encoding == "base64" and not _decode_text(data.strip(b'"')).startswith(MAGIC):
        return None
    if encoding is None and _has_foreign_magic(data):
        return "a frame with a foreign magic"
    if encoding is None and _has_lost_bytes(data):
        return "text with lost bytes"
    return encoding


def _has_lost_bytes(data: bytes) -> bool:
    """Whether ``data`` begins as an aggregated record does of which only the bytes that are text are left."""
    start = next((start for start in _REST_OF_MAGIC if data.startswith(start)), None)
    if start is None:
        return False
    at = len(start) - 1
    while data[at : at + 1] in (b"\n", b"\x12") and at + 1 < len(data):  # keys, explicit hash keys
        at += 2 + data[at + 1]
    return _FIRST_RECORD.match(data, at) is not None


def _has_foreign_magic(data: bytes) -> bool:
    """Whether four other bytes than the magic are in front of a message and its digest, compressed or not."""
    if len(data) <= FRAME_OVERHEAD or data.startswith(MAGIC):
        return False
    body = data[len(MAGIC) :]
    if data[1:4] == MAGIC_END and compression_of(body) is not None:
        with suppress(DecompressionError):
            body = decompress(body)
    elif data[1:4] != MAGIC_END and body[:1] not in FIRST_TAGS:
        return False
    message, digest = body[:-DIGEST_SIZE], body[-DIGEST_SIZE:]
    return md5(message) == digest


def _decode_text(text: bytes) -> bytes:
    try:
        return binascii.a2b_base64(text)
    except binascii.Error:
        return b""


def looks_aggregated(data: bytes) -> bool:
    """Whether ``data`` starts like a frame and is long enough; the digest is not checked."""
    # FRM-1: "An aggregated record MUST start with the four bytes F3 89 9A C2."
    # FRM-2: "Data with at most 16 bytes after the magic MUST be taken for a plain record."
    return data[:4] == MAGIC and len(data) > FRAME_OVERHEAD


def split_frame(data: bytes) -> bytes:
    """The message in a frame. Raises NotAggregated, ChecksumMismatch."""
    if not looks_aggregated(data):
        raise NotAggregated(offset=0, length=len(data), disguise=disguise_of(data))
    message = data[4:-DIGEST_SIZE]
    actual = md5(message)
    # FRM-3: "The last 16 bytes MUST be the MD5 digest of the message, the bytes between magic and
    # digest."
    # FRM-4: "Data that starts with the magic, is long enough and ends in another digest MUST NOT be
    # opened; a strict decoder reports it"
    if data[-DIGEST_SIZE:] != actual:
        raise ChecksumMismatch(
            offset=len(data) - DIGEST_SIZE,
            expected=data[-DIGEST_SIZE:].hex(),
            actual=actual.hex(),
            sound=sound_end(data) if MAGIC in message or data.endswith((b"\n", b"\r")) else None,
        )
    return message


def sound_end(
    data: bytes,
    start: int = 0,
    *,
    whatever_follows: bool = False,
    spend: Callable[[int], bool] = lambda size: True,
) -> int | None:
    """Where the frame that begins at ``start`` ends, if its digest is right. Unless ``whatever_follows``,
    only the end of the data, a line end or another frame may be behind it: that is faster. ``spend``: called
    with the size in bytes of each user record; if it returns False the search ends."""
    import hashlib  # late: an import costs a Lambda function time

    digest = hashlib.md5(usedforsecurity=False)
    hashed = end = start + len(MAGIC)
    # Each turn reads the head of a table entry or of a user record, with the length of the field.
    while data[end : end + 1] in FIRST_TAGS:
        size = shift = 0
        for at in range(end + 1, end + 6):
            byte = data[at] if at < len(data) else 0
            size, shift = size | (byte & 127) << shift, shift + 7
            if byte < 128:
                break
        end = at + 1 + size
        behind = end + DIGEST_SIZE
        if behind > len(data) or not spend(size):
            return None
        follows = data[behind : behind + 1] in (b"", b"\r", b"\n") or data.startswith(MAGIC, behind)
        if follows or whatever_follows:
            digest.update(memoryview(data)[hashed:end])
            hashed = end
            if digest.digest() == data[end:behind]:
                return behind
    return None


def join_frame(message: bytes) -> bytes:
    """The frame around ``message``; the inverse of `split_frame` for every non-empty message."""
    return b"".join((MAGIC, message, md5(message)))
