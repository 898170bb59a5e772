"""Finds nested aggregates: aggregated records in a user record's data, in base64, hexadecimal digits or
compression, or behind a header. No consumer opens them. Specification: spec/03-deaggregation.md, NST-1."""

from __future__ import annotations

import re
from binascii import a2b_base64, unhexlify
from collections.abc import Iterator
from contextlib import suppress

from .codec import is_aggregated
from .compression import DecompressionError, beginning, compression_of, decompress
from .limits import FRAME_OVERHEAD, LARGEST_MAX_RECORD_SIZE, MAGIC

#: The first bytes of a frame, of compressed data, and of both in base64 or hexadecimal digits.
SIGNS = (
    *(MAGIC, b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"x\x01", b"x\x5e", b"x\x9c", b"x\xda"),
    *(b"84maw", b"f3899ac2", b"F3899AC2", b"H4sI"),
)
_SIGN = re.compile(b"|".join(map(re.escape, SIGNS)))
#: A sign begins within so many first bytes of the data, and ends within so many.
_SIGNS_WITHIN, _HEAD = 32, 48
#: Bytes of text that are decoded for a first look: three layers of digits around the longest sign.
TEXT_HEAD = 8 * 54
SHORTEST = FRAME_OVERHEAD + 1
#: How many layers are taken off one after the other; and, because hostile data may have many, how many layers
#: of one user record are decoded in all, and how many places in each are tried.
LAYERS, _MAX_DECODED, _MAX_PLACES = 3, 16, 8
#: Base64 or hexadecimal digits, as many as the shortest frame has, behind white space and the quote of JSON.
_TEXT = re.compile(rb'[ \t\r\n"]{0,16}([A-Za-z0-9+/_\r\n-]{28,})(=*)')
_HEX = re.compile(rb"[0-9a-fA-F]*")
_URL = bytes.maketrans(b"-_", b"+/")


def layers_around(data: bytes) -> tuple[str, ...] | None:
    """The layers around the nested aggregate in ``data``, from the outside in: "in base64", "in gzip",
    "behind 5 bytes"; () if ``data`` is an aggregated record itself. None if there is none."""
    if not may_nest(data):
        return None
    candidates: list[tuple[tuple[str, ...], int, bytes]] = [((), 0, data)]
    for layers, count, inner in candidates:  # the loop below appends to it
        # NST-1: "A check MUST report each sound aggregated record that deaggregation leaves inside data: one
        # that begins in the first 32 bytes, also after up to three layers of base64, hexadecimal digits or
        # compression were undone; it MUST NOT report other data."
        for at in _places(inner):
            around = (*layers, f"behind {at} bytes") if at else layers
            if inner.startswith(MAGIC, at) and is_aggregated(inner[at:]):
                return around
            if count < LAYERS and len(candidates) < _MAX_DECODED:
                for name, content in _decode_layer(inner[at:], LAYERS - count - 1):
                    candidates.append(((*around, f"in {name}"), count + 1, content))
    return None


def describe_nested(layers: tuple[str, ...], user_record: int | None) -> str:
    """A sentence on the nested aggregate with these ``layers``, in a user record or, with None, in a plain
    record."""
    where = "" if user_record is None else f"user record {user_record}: "
    return where + ", ".join(("an aggregated record", *reversed(layers))) + ": no consumer opens it"


def _places(data: bytes) -> list[int]:
    """Where a frame, compressed data or text may begin: at each sign, and at the first digit."""
    places = {sign.start() for sign in _SIGN.finditer(data, 0, _HEAD) if sign.start() < _SIGNS_WITHIN}
    text = _TEXT.match(data)
    return sorted(places if text is None else places | {text.start(1)})[:_MAX_PLACES]


def _decode_layer(data: bytes, layers: int) -> Iterator[tuple[str, bytes]]:
    """Name and content of the layer with which ``data`` begins, if a frame may be in it below ``layers``
    more."""
    compression = compression_of(data)
    if compression is None:
        heads = _decode_text(data[:TEXT_HEAD].rstrip(b"="))
        kinds = [kind for kind, head in heads if may_nest(head, layers)]
        if kinds:
            yield from ((kind, content) for kind, content in _decode_text(data) if kind in kinds)
    elif may_nest(beginning(data, TEXT_HEAD), layers):
        with suppress(DecompressionError):
            yield compression, decompress(data, LARGEST_MAX_RECORD_SIZE)


def _decode_text(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The kinds of digits with which ``data`` may begin, and what they decode to. Hexadecimal digits are
    digits of base64, too: a header of zeros, in base64, begins with many."""
    text = _TEXT.match(data)
    if text is None:
        return
    digits = b"".join(text[1].split())
    hexadecimal = _HEX.match(digits)
    if hexadecimal is not None and hexadecimal.end() >= 2 * SHORTEST:
        yield "hexadecimal digits", unhexlify(digits[: hexadecimal.end() // 2 * 2])
    if not text[2] or not (len(digits) + len(text[2])) % 4:  # padding may be left out, not cut
        digits = digits[: len(digits) - (len(digits) % 4 == 1)].translate(_URL)
        yield "base64", a2b_base64(digits + b"=" * (-len(digits) % 4))


def may_nest(head: bytes, layers: int = LAYERS) -> bool:
    """Whether data that begins with ``head`` may have a nested aggregate, below at most ``layers``."""
    if len(head) < SHORTEST:
        return False
    sign = _SIGN.search(head, 0, _HEAD)
    if sign is not None and sign.start() < _SIGNS_WITHIN:
        return True
    text = _TEXT.match(head, 0, TEXT_HEAD) if layers else None
    return text is not None and any(may_nest(content, layers - 1) for _, content in _decode_text(text[1]))
