"""Aggregated records that something turned into text: no consumer opens them; they look like plain data."""

from __future__ import annotations

import binascii
from typing import Literal

from ..limits import MAGIC

Disguise = Literal["base64", "hexadecimal digits", "Latin-1 text", "text with lost bytes", "a Python literal"]

#: How data in each disguise begins. base64: the magic number's four bytes fill five digits and part of one.
BEGINNINGS: dict[bytes, Disguise] = {
    b"84maw": "base64",
    b'"84maw': "base64",  # as a JSON text
    MAGIC.hex().encode(): "hexadecimal digits",
    MAGIC.hex().upper().encode(): "hexadecimal digits",
    MAGIC.decode("latin-1").encode(): "Latin-1 text",
    # Bytes that are not UTF-8 replaced by U+FFFD; what follows is the tag of the first key.
    "\ufffd\ufffd\n".encode(): "text with lost bytes",
    b"b'\\xf3\\x89\\x9a\\xc2": "a Python literal",
}


def disguise_of(data: bytes) -> Disguise | None:
    """As what ``data`` shows an aggregated record, None if it does not.

    Only how it begins is looked at, and for base64 whether its digits decode.
    """
    found = next((name for start, name in BEGINNINGS.items() if data.startswith(start)), None)
    if found == "base64":
        try:
            if not binascii.a2b_base64(data.strip(b'"')).startswith(MAGIC):
                return None
        except binascii.Error:
            return None
    return found
