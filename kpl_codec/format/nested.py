"""Aggregated records within other data: in base64, hexadecimal digits or compression, behind a header, and as
a user record of another aggregate. Nobody opens them: a deaggregator looks at the first four bytes of a
Kinesis record's data, once.

Only a frame whose digest is right counts, so other data is never taken for one. Knows bytes only.
Specification: spec/03-deaggregation.md, NST-1.
"""

from __future__ import annotations

import re
from binascii import a2b_base64, unhexlify
from collections.abc import Iterator
from contextlib import suppress

from ..compiled import md5
from ..limits import DIGEST_SIZE, FRAME_OVERHEAD, LARGEST_MAX_RECORD_SIZE, MAGIC
from .compression import DecompressionError, beginning, compression_of, decompress

#: A sign begins in so many first bytes; so many are looked at. As in _native/nested.h.
_SIGNS_WITHIN, _HEAD = 32, 48
#: Bytes of text that are looked at: digits of digits of digits of those.
_TEXT_HEAD = 8 * 54
_LEAST = FRAME_OVERHEAD + 1
#: Layers that are taken off one after the other; of one user record all together, and signs of a layer that
#: are followed: hostile data has many.
_LAYERS, _MOST, _PLACES = 3, 16, 8
#: How a frame begins, compressed data, and text of either behind a header.
_SIGN = re.compile(
    rb"\xf3\x89\x9a\xc2|\x1f\x8b\x08|\x28\xb5\x2f\xfd|x[\x01\x5e\x9c\xda]|84maw|f3899ac2|F3899AC2|H4sI"
)
#: Text that may be digits: of a frame at least, behind white space and the quote of JSON.
_TEXT = re.compile(rb'[ \t\r\n"]{0,16}([A-Za-z0-9+/_\r\n-]{28,})(=*)')
_HEX = re.compile(rb"[0-9a-fA-F]*")
_URL = bytes.maketrans(b"-_", b"+/")


def layers_around(data: bytes) -> tuple[str, ...] | None:
    """What is around an aggregated record within ``data``, from the outside in: "in base64", "in gzip",
    "behind 5 bytes"; () if ``data`` is one itself. None if there is none that is sound."""
    if not may_nest(data):
        return None
    todo: list[tuple[tuple[str, ...], int, bytes]] = [((), 0, data)]
    for layers, count, inner in todo:  # which grows
        # NST-1: "A check MUST report each sound aggregated record that deaggregation leaves inside data: one
        # that begins in the first 32 bytes, also after up to three layers of base64, hexadecimal digits or
        # compression were undone; it MUST NOT report other data."
        for at in _places(inner):
            around = (*layers, f"behind {at} bytes") if at else layers
            if _is_frame(memoryview(inner)[at:]):
                return around
            if count < _LAYERS and len(todo) < _MOST:
                found = _unwrap(inner[at:], _LAYERS - count - 1)
                todo += [((*around, f"in {name}"), count + 1, made) for name, made in found]
    return None


def describe_nested(layers: tuple[str, ...], user_record: int | None) -> str:
    """What is said of an aggregated record with ``layers`` around it. ``user_record``: the number
    of the one that it is in; None: it is in a plain record."""
    where = "" if user_record is None else f"user record {user_record}: "
    return where + ", ".join(("an aggregated record", *reversed(layers))) + ": no consumer opens it"


def _is_frame(data: memoryview) -> bool:
    return (
        len(data) >= _LEAST and bytes(data[:4]) == MAGIC and md5(data[4:-DIGEST_SIZE]) == data[-DIGEST_SIZE:]
    )


def _places(data: bytes) -> list[int]:
    """Where something may begin: at each sign, and where text does."""
    places = {sign.start() for sign in _SIGN.finditer(data, 0, _HEAD) if sign.start() < _SIGNS_WITHIN}
    text = _TEXT.match(data)
    return sorted(places if text is None else places | {text.start(1)})[:_PLACES]


def _unwrap(data: bytes, layers: int) -> Iterator[tuple[str, bytes]]:
    """What compression, base64 or hexadecimal digits hold, if a frame may be within, in so many layers."""
    compression = compression_of(data)
    if compression is None:
        if may_nest(_decode_text(data[:_TEXT_HEAD].rstrip(b"="))[1], layers):
            yield _decode_text(data)
    elif may_nest(beginning(data, _TEXT_HEAD), layers):
        with suppress(DecompressionError):
            yield compression, decompress(data, LARGEST_MAX_RECORD_SIZE)


def _decode_text(data: bytes) -> tuple[str, bytes]:
    """The digits with which ``data`` begins, decoded; b"" if they are too few."""
    text = _TEXT.match(data)
    digits = b"" if text is None else b"".join(text[1].split())
    # Digits that may be hexadecimal are: no base64 of a frame has only such.
    hexadecimal = _HEX.match(digits)
    if hexadecimal is not None and hexadecimal.end() >= 2 * _LEAST:
        return "hexadecimal digits", unhexlify(digits[: hexadecimal.end() // 2 * 2])
    if text is None or (text[2] and (len(digits) + len(text[2])) % 4):  # padding may be left out, not cut
        return "base64", b""
    whole = digits[: len(digits) - (len(digits) % 4 == 1)].translate(_URL)
    return "base64", a2b_base64(whole + b"=" * (-len(whole) % 4))


def may_nest(head: bytes, layers: int = _LAYERS) -> bool:
    """Whether an aggregated record may be within data that begins like that."""
    if len(head) < _LEAST:
        return False
    sign = _SIGN.search(head, 0, _HEAD)
    if sign is not None and sign.start() < _SIGNS_WITHIN:
        return True
    text = _TEXT.match(head, 0, _TEXT_HEAD) if layers else None
    return text is not None and may_nest(_decode_text(text[1])[1], layers - 1)
