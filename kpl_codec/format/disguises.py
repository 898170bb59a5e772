"""Detects aggregated records that were turned into text, or written with other first bytes. No consumer opens
them: they look like plain data."""

from __future__ import annotations

import binascii
from contextlib import suppress
from typing import Final, Literal

from ..limits import DIGEST_SIZE, FRAME_OVERHEAD, MAGIC
from .compression import DecompressionError, compression_of, decompress
from .md5 import md5

Disguise = Literal[
    "base64",
    "base64 of base64",
    "hexadecimal digits",
    "Latin-1 text",
    "text with lost bytes",
    "a Python literal",
    "a frame with a foreign magic",
]

#: The first bytes of each disguise. In base64 the four bytes of the magic fill five digits and part of a
#: sixth.
BEGINNINGS: dict[bytes, Disguise] = {
    b"84maw": "base64",
    b'"84maw': "base64",  # as a JSON text
    b"ODRtYX": "base64 of base64",
    MAGIC.hex().encode(): "hexadecimal digits",
    MAGIC.hex().upper().encode(): "hexadecimal digits",
    MAGIC.decode("latin-1").encode(): "Latin-1 text",
    # Invalid bytes were replaced by U+FFFD; the tag of the first key follows.
    "\ufffd\ufffd\n".encode(): "text with lost bytes",
    b"b'\\xf3\\x89\\x9a\\xc2": "a Python literal",
}


#: Only data with one of these can be a frame with a foreign magic: the last three bytes of the magic, or a
#: field of an aggregated record after four bytes. Not all is hashed. (erlmld and ex_kpl change the first byte
#: of the magic; if they are told to, they compress message and digest.)
MAGIC_END: Final = MAGIC[1:]
FIRST_TAGS: Final = (b"\x0a", b"\x12", b"\x1a")


def disguise_of(data: bytes) -> Disguise | None:
    """The disguise of an aggregated record in ``data``, None if it has none: by its first bytes, for base64
    its digits, for a foreign magic its digest."""
    found = next((name for start, name in BEGINNINGS.items() if data.startswith(start)), None)
    if found == "base64 of base64":
        inner = disguise_of(_decoded(data))
        return found if inner == "base64" else None
    if found == "base64" and not _decoded(data.strip(b'"')).startswith(MAGIC):
        return None
    if found is None and _has_foreign_magic(data):
        return "a frame with a foreign magic"
    return found


def _has_foreign_magic(data: bytes) -> bool:
    """Whether four bytes that are not the magic stand before a message and its digest, compressed or not."""
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


def _decoded(text: bytes) -> bytes:
    """The bytes of base64; none where it is not."""
    try:
        return binascii.a2b_base64(text)
    except binascii.Error:
        return b""
