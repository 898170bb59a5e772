"""Detects aggregated records that were turned into text. No consumer opens them: they look like plain
data."""

from __future__ import annotations

import binascii
from typing import Literal

from ..limits import MAGIC

Disguise = Literal[
    "base64",
    "base64 of base64",
    "hexadecimal digits",
    "Latin-1 text",
    "text with lost bytes",
    "a Python literal",
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


def disguise_of(data: bytes) -> Disguise | None:
    """The disguise of an aggregated record in ``data``, None if it has none.

    It checks only the first bytes, and for base64 whether the digits decode.
    """
    found = next((name for start, name in BEGINNINGS.items() if data.startswith(start)), None)
    if found == "base64 of base64":
        inner = disguise_of(_decoded(data))
        return found if inner == "base64" else None
    if found == "base64" and not _decoded(data.strip(b'"')).startswith(MAGIC):
        return None
    return found


def _decoded(text: bytes) -> bytes:
    """The bytes of base64; none where it is not."""
    try:
        return binascii.a2b_base64(text)
    except binascii.Error:
        return b""
