"""Which user records may be written, and the sizes of fields.

Specification: spec/01-aggregated-record.md, ENC-1.
"""

from __future__ import annotations

from ..errors import EncodeError, HashKeyError
from ..limits import MAX_HASH_KEY, MAX_PARTITION_KEY_LENGTH
from .hash_keys import parse_hash_key
from .records import UserRecord

_LARGEST_HASH_KEY = str(MAX_HASH_KEY)


def varint_size(value: int) -> int:
    """Bytes of ``value`` (0 to 2^64 - 1) as a minimal varint: 1 to 10."""
    if value < 0x4000:
        return 1 if value < 0x80 else 2
    return (value.bit_length() + 6) // 7


def field_size(length: int) -> int:
    """Bytes of a length-delimited field of ``length`` bytes whose number is below 16."""
    return 1 + varint_size(length) + length


def _is_canonical(text: str) -> bool:
    """Whether `parse_hash_key` would accept an explicit hash key; fast for nearly all."""
    return (
        type(text) is str
        and 0 < len(text) <= len(_LARGEST_HASH_KEY)
        and text.isascii()
        and text.encode().isdigit()
        and (text[0] != "0" or text == "0")
        # Texts of equally many digits sort as their numbers do.
        and (len(text) < len(_LARGEST_HASH_KEY) or text <= _LARGEST_HASH_KEY)
    )


def check(record: UserRecord, record_index: int | None = None) -> None:
    """Raises EncodeError, with the index, for a user record that must not be written.

    Decoders accept more than this (an empty partition key, explicit hash key "007"). What this library
    writes, every consumer accepts.
    """
    key, data, explicit_hash_key, tags = record
    if (
        type(key) is str
        and 0 < len(key) <= MAX_PARTITION_KEY_LENGTH
        and key.isascii()
        and type(data) is bytes
        and not tags
        and (explicit_hash_key is None or _is_canonical(explicit_hash_key))
    ):
        return  # nearly every user record

    def refuse(code: str, field: str) -> EncodeError:
        return EncodeError(code=code, field=field, record_index=record_index)

    # ENC-1: "A user record MUST have a partition key of 1 to 256 code points that has a UTF-8 form,
    # and data in bytes; its explicit hash key, if any, MUST be canonical decimal from 0 to 2^128 - 1."
    if type(key) is not str:
        raise refuse("partition-key-type", "partition_key")
    if not key:
        raise refuse("partition-key-empty", "partition_key")
    if len(key) > MAX_PARTITION_KEY_LENGTH:
        raise refuse("partition-key-too-long", "partition_key")
    if not key.isascii():
        try:
            key.encode()
        except UnicodeEncodeError:
            raise refuse("partition-key-utf-8", "partition_key") from None
    if type(data) is not bytes:
        raise refuse("data-type", "data")
    if explicit_hash_key is not None:
        try:
            parse_hash_key(explicit_hash_key)
        except HashKeyError:
            raise refuse("explicit-hash-key", "explicit_hash_key") from None
    for tag in tags:
        try:
            tag.key.encode()
            if tag.value is not None:
                tag.value.encode()
        except (AttributeError, UnicodeEncodeError):
            raise refuse("tag", "tags") from None
