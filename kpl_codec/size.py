"""Which user records may be written, and the exact size of an aggregate, kept as it grows.

The size is that of the bytes written, to the byte, frame included. Sizes are decided here only.
Specification: spec/01-aggregated-record.md, ENC-1 to ENC-6.
"""

from __future__ import annotations

from .errors import EncodeError, HashKeyError
from .hash_keys import parse_hash_key
from .limits import FRAME_OVERHEAD, MAX_PARTITION_KEY_LENGTH
from .records import UserRecord


def varint_size(value: int) -> int:
    """Bytes of ``value`` (0 to 2^64 - 1) as a minimal varint: 1 to 10."""
    return (max(value.bit_length(), 1) + 6) // 7


def field_size(length: int) -> int:
    """Bytes of a length-delimited field of ``length`` bytes whose number is below 16."""
    return 1 + varint_size(length) + length


def check(record: UserRecord, record_index: int | None = None) -> None:
    """Refuse a user record that must not be written. Raises EncodeError with its place.

    Decoders are more generous than this (an aggregate may hold an empty partition key, or "007");
    what we write, every producer and consumer accepts.
    """

    def refuse(code: str, field: str) -> EncodeError:
        return EncodeError(code=code, field=field, record_index=record_index)

    # ENC-1: "A user record MUST have a partition key of 1 to 256 code points that has a UTF-8 form,
    # and data in bytes; its explicit hash key, if any, MUST be canonical decimal from 0 to 2^128 - 1."
    key = record.partition_key
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
    if type(record.data) is not bytes:
        raise refuse("data-type", "data")
    if record.explicit_hash_key is not None:
        try:
            parse_hash_key(record.explicit_hash_key)
        except HashKeyError:
            raise refuse("explicit-hash-key", "explicit_hash_key") from None
    for tag in record.tags:
        try:
            tag.key.encode()
            if tag.value is not None:
                tag.value.encode()
        except (AttributeError, UnicodeEncodeError):
            raise refuse("tag", "tags") from None


class AggregateSize:
    """The size of the aggregate of the user records added so far, in bytes, as written.

    ``after(record)`` answers without adding, in constant time; ``add(record)`` adds. State: the key
    tables seen so far and the running total. An empty aggregate has size 0: there is no such thing.
    """

    __slots__ = ("_body", "_explicit_hash_keys", "_partition_keys", "count")

    def __init__(self) -> None:
        self._partition_keys: dict[str, int] = {}
        self._explicit_hash_keys: dict[str, int] = {}
        self._body = 0
        self.count = 0

    @property
    def size(self) -> int:
        return FRAME_OVERHEAD + self._body if self.count else 0

    def _cost(self, record: UserRecord) -> int:
        cost = 0
        pk_index = self._partition_keys.get(record.partition_key)
        if pk_index is None:
            pk_index = len(self._partition_keys)
            cost += field_size(len(record.partition_key.encode()))
        inner = 1 + varint_size(pk_index) + field_size(len(record.data))
        if record.explicit_hash_key is not None:
            ehk_index = self._explicit_hash_keys.get(record.explicit_hash_key)
            if ehk_index is None:
                ehk_index = len(self._explicit_hash_keys)
                cost += field_size(len(record.explicit_hash_key.encode()))
            inner += 1 + varint_size(ehk_index)
        for tag in record.tags:
            body = field_size(len(tag.key.encode()))
            if tag.value is not None:
                body += field_size(len(tag.value.encode()))
            inner += field_size(body)
        return cost + field_size(inner)

    def after(self, record: UserRecord) -> int:
        """What `size` would be with ``record`` added."""
        return FRAME_OVERHEAD + self._body + self._cost(record)

    def add(self, record: UserRecord) -> None:
        """Count ``record`` in. The size is exact for user records that `check` passes."""
        # ENC-6: "The size an aggregate is said to have MUST be the number of bytes written for it."
        self._body += self._cost(record)
        self._partition_keys.setdefault(record.partition_key, len(self._partition_keys))
        if record.explicit_hash_key is not None:
            self._explicit_hash_keys.setdefault(record.explicit_hash_key, len(self._explicit_hash_keys))
        self.count += 1
