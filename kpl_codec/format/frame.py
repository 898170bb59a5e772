"""The frame around an aggregated record's message: magic, message, MD5.

    0               4                  N          N+15
    +---+---+---+---+==================+---+...+---+
    |  MAGIC NUMBER | PROTOBUF MESSAGE |    MD5    |
    +---+---+---+---+==================+---+...+---+

It knows bytes only; message.py and wire.py read the message.
Specification: spec/01-aggregated-record.md, FRM-1 to FRM-4.
"""

from __future__ import annotations

from ..errors import ChecksumMismatch, NotAggregated
from ..limits import DIGEST_SIZE, FRAME_OVERHEAD, MAGIC
from .disguises import disguise_of
from .md5 import md5


def looks_aggregated(data: bytes) -> bool:
    """Whether ``data`` starts like a frame and is long enough for one; the digest is not checked."""
    # FRM-1: "An aggregated record MUST start with the four bytes F3 89 9A C2."
    # FRM-2: "Data with at most 16 bytes after the magic MUST be taken for a plain record."
    return data[:4] == MAGIC and len(data) > FRAME_OVERHEAD


def split_frame(data: bytes) -> bytes:
    """The message inside ``data``. Raises NotAggregated, ChecksumMismatch."""
    if not looks_aggregated(data):
        disguise = disguise_of(data)
        if disguise is None:
            raise NotAggregated(offset=0, length=len(data))
        raise NotAggregated(offset=0, length=len(data), disguise=disguise)
    message = data[4:-DIGEST_SIZE]
    actual = md5(message)
    # FRM-3: "The last 16 bytes MUST be the MD5 digest of the message, the bytes between magic and
    # digest."
    # FRM-4: "Data that starts with the magic, is long enough and ends in another digest MUST NOT be
    # opened; a strict decoder reports it"
    if data[-DIGEST_SIZE:] != actual:
        raise ChecksumMismatch(
            offset=len(data) - DIGEST_SIZE, expected=data[-DIGEST_SIZE:].hex(), actual=actual.hex()
        )
    return message


def join_frame(message: bytes) -> bytes:
    """The frame around ``message``; the inverse of `split_frame` for every non-empty message."""
    return b"".join((MAGIC, message, md5(message)))
