"""Which user records may be written, and the sizes of fields.

Specification: spec/01-aggregated-record.md, ENC-1.
"""

from __future__ import annotations

from ..errors import EncodeError, HashKeyError
from ..limits import MAX_PARTITION_KEY_LENGTH
from .hash_keys import parse_hash_key
from .records import Tag, UserRecord


def varint_size(value: int) -> int:
    """Bytes of ``value`` (0 to 2^64 - 1) as a minimal varint: 1 to 10."""
    if value < 0x4000:
        return 1 if value < 0x80 else 2
    return (value.bit_length() + 6) // 7


def field_size(length: int) -> int:
    """Bytes of a length-delimited field of ``length`` bytes whose number is below 16."""
    return 1 + varint_size(length) + length


def check(record: UserRecord, record_index: int | None = None) -> None:
    """Raises EncodeError, with the index, for a user record that must not be written.

    Decoders accept more than this (an empty partition key, explicit hash key "007"). What this library
    writes, every consumer accepts.
    """
    key, data, explicit_hash_key, tags = record
    # ENC-1: "A user record MUST have a partition key of 1 to 256 code points that has a UTF-8 form,
    # and data in bytes; its explicit hash key, if any, MUST be canonical decimal from 0 to 2^128 - 1."
    if type(key) is not str:
        code, field = "partition-key-type", "partition_key"
    elif not key:
        code, field = "partition-key-empty", "partition_key"
    elif len(key) > MAX_PARTITION_KEY_LENGTH:
        code, field = "partition-key-too-long", "partition_key"
    elif not (key.isascii() or _has_utf_8(key)):
        code, field = "partition-key-utf-8", "partition_key"
    elif type(data) is not bytes:
        code, field = "data-type", "data"
    elif explicit_hash_key is not None and not _is_canonical(explicit_hash_key):
        code, field = "explicit-hash-key", "explicit_hash_key"
    elif tags and not all(isinstance(tag, Tag) and _has_utf_8(tag.key, tag.value or "") for tag in tags):
        code, field = "tag", "tags"
    else:
        return
    raise EncodeError(code=code, field=field, record_index=record_index)


def _is_canonical(text: str) -> bool:
    try:
        parse_hash_key(text)
    except HashKeyError:
        return False
    return True


def _has_utf_8(*texts: str) -> bool:
    try:
        "".join(texts).encode()
    except (TypeError, UnicodeEncodeError):
        return False
    return True
