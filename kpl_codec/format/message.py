"""Reads a sound message into an AggregatedRecord, and writes user records into a message.

The compiled parser or `quick_parse` reads every sound message. For any other they return None, and wire.py
finds what is wrong and where. Specification: spec/01-aggregated-record.md, MSG and ENC.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any, overload

from ..base.compiled import prefer_compiled
from ..errors import EncodeError
from .hash_keys import java_integer
from .limits import MAX_HASH_KEY, MAX_NESTING, MAX_PARTITION_KEY_LENGTH
from .records import Tag, UserRecord
from .wire import END_GROUP, FIXED32, FIXED64, LENGTH_DELIMITED, START_GROUP, VARINT, read_varint


class AggregatedRecord(Sequence[UserRecord]):
    """A decoded aggregated record: a sequence of UserRecords, which are made when they are asked for. The
    tables hold the keys, as text. The other lists have an item for each user record: its indices into the
    tables (-1: it has no explicit hash key; ``explicit_hash_key_indices`` is None if no user record has one),
    its ``data``, and its ``tags`` (None: no user record has tags)."""

    __slots__ = (
        *("partition_key_table", "explicit_hash_key_table", "partition_key_indices"),
        *("explicit_hash_key_indices", "data", "tags"),
    )

    def __init__(
        self,
        partition_key_table: tuple[str, ...],
        explicit_hash_key_table: tuple[str, ...],
        partition_key_indices: Sequence[int],
        explicit_hash_key_indices: Sequence[int] | None,
        data: Sequence[bytes],
        tags: Sequence[tuple[Tag, ...]] | None,
    ) -> None:
        self.partition_key_table = partition_key_table
        self.explicit_hash_key_table = explicit_hash_key_table
        self.partition_key_indices = partition_key_indices
        self.explicit_hash_key_indices = explicit_hash_key_indices
        self.data = data
        self.tags = tags

    def columns(self) -> tuple[Any, ...]:
        """The parts, in the order of the constructor's arguments."""
        return tuple(getattr(self, name) for name in self.__slots__)

    def __len__(self) -> int:
        return len(self.data)

    @overload
    def __getitem__(self, index: int) -> UserRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[UserRecord]: ...
    def __getitem__(self, index: int | slice) -> UserRecord | list[UserRecord]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        ehk = self.explicit_hash_key_indices[index] if self.explicit_hash_key_indices is not None else -1
        return UserRecord(
            self.partition_key_table[self.partition_key_indices[index]],
            self.data[index],
            self.explicit_hash_key_table[ehk] if ehk >= 0 else None,
            self.tags[index] if self.tags is not None else (),
        )

    def partition_keys(self) -> Iterator[str]:
        """The partition key of every user record, in order."""
        return map(self.partition_key_table.__getitem__, self.partition_key_indices)

    def explicit_hash_keys(self) -> Iterator[str | None] | None:
        """The explicit hash key (or None) of every user record, in order; None if no user record has one."""
        indices = self.explicit_hash_key_indices
        # Index -1 gives the None at the end.
        return None if indices is None else map((*self.explicit_hash_key_table, None).__getitem__, indices)

    def __iter__(self) -> Iterator[UserRecord]:
        if _user_records is not None and type(self.data) is list:
            return iter(_user_records(UserRecord, *self.columns()))
        keys = self.explicit_hash_keys() or repeat(None)
        tags = repeat(()) if self.tags is None else self.tags
        return map(UserRecord, self.partition_keys(), self.data, keys, tags)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AggregatedRecord) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # the parts are lists

    def __repr__(self) -> str:
        return (
            f"<AggregatedRecord of {len(self)} user records, {len(self.partition_key_table)} partition keys>"
        )


_user_records = prefer_compiled("user_records", None)


def _skip(message: bytes, pos: int, end: int, tag: int, nesting: int) -> int:
    """The offset after the value of an unknown field, which may be a group. Raises ValueError for defects."""
    groups: list[int] = []
    while True:
        # MSG-1: field numbers from 1 to 2^29 - 1.
        if not 8 <= tag < 2**32:
            raise ValueError("field number")
        kind = tag & 7
        if kind == VARINT:
            _, pos = read_varint(message, pos, end)
        elif kind == LENGTH_DELIMITED:
            size, pos = read_varint(message, pos, end)
            pos += size
        elif kind in (FIXED64, FIXED32):
            pos += 8 if kind == FIXED64 else 4
        elif kind == START_GROUP and nesting + len(groups) < MAX_NESTING:
            groups.append(tag)
        elif kind != END_GROUP or not groups or groups.pop() != tag - 1:
            raise ValueError("wire type or group")
        if pos > end:
            raise ValueError("truncated")
        if not groups:
            return pos
        tag, pos = read_varint(message, pos, end)


def _texts(message: bytes, pos: int, end: int) -> tuple[str | None, str | None]:
    """Key and value of a tag. Raises ValueError for defects."""
    key = value = None
    while pos < end:
        tag, pos = read_varint(message, pos, end)
        if tag >> 3 > 2:
            pos = _skip(message, pos, end, tag, 2)
            continue
        size, pos = read_varint(message, pos, end)
        if tag not in (0x0A, 0x12) or pos + size > end:
            raise ValueError("tag")
        text = message[pos : pos + size].decode()
        key, value = (text, value) if tag == 0x0A else (key, text)
        pos += size
    return key, value


def _user_record(message: bytes, pos: int, end: int) -> tuple[int, int, bytes, tuple[Tag, ...]]:
    """Indices of partition key and explicit hash key (-1: none), data and tags of a user record with its
    fields in any order. Raises ValueError for defects."""
    pk, ehk = -1, -1
    data: bytes | None = None
    tags: list[Tag] = []
    while pos < end:
        tag = message[pos]
        if tag < 0x80:
            pos += 1
        else:
            tag, pos = read_varint(message, pos, end)
        if tag >> 3 > 4:
            pos = _skip(message, pos, end, tag, 1)
            continue
        if pos < end and message[pos] < 0x80:
            value, pos = message[pos], pos + 1
        else:
            value, pos = read_varint(message, pos, end)
        # MSG-12: of a field that may stand once, the last one counts.
        if tag == 0x08:
            pk = value
            continue
        if tag == 0x10:
            ehk = value
            continue
        start, pos = pos, pos + value
        if pos > end or tag not in (0x1A, 0x22):
            raise ValueError("length or wire type")
        if tag == 0x1A:
            data = message[start:pos]
        else:
            key, text = _texts(message, start, pos)
            if key is None:
                raise ValueError("tag without key")
            tags.append(Tag(key, text))
    if data is None or pk < 0:
        raise ValueError("partition key or data missing")
    return pk, ehk, data, tuple(tags)


def quick_parse(message: bytes) -> tuple[Any, ...] | None:
    """The `columns` of the AggregatedRecord in a sound ``message``, else None, as `_native/wire.h`. User
    records without tags, with their fields in the order of the numbers, take the shortest way. An unused
    entry of the explicit hash key table that is no hash key becomes ""."""
    tables: dict[int, list[bytes]] = {0x0A: [], 0x12: []}
    partition_key_indices: list[int] = []
    explicit_hash_key_indices: list[int] = []
    payloads: list[bytes] = []
    tags: list[tuple[Tag, ...]] | None = None
    none: tuple[Tag, ...] = ()
    pos, size = 0, len(message)
    try:
        while pos < size:
            tag = message[pos]
            pos += 1
            if tag not in _KNOWN:
                tag, pos = read_varint(message, pos - 1, size)
                if tag >> 3 > 3:
                    pos = _skip(message, pos, size, tag, 0)
                    continue
            # Nearly every number has one byte: only the others cost a call.
            length = message[pos]
            pos += 1
            if length >= 0x80:
                length, pos = read_varint(message, pos - 1, size)
            end = pos + length
            if end > size:
                return None
            if tag != 0x1A:
                tables[tag].append(message[pos:end])
                pos = end
                continue
            start, pk, ehk, own, plain = pos, -1, -1, none, False
            if message[pos] == 0x08:
                pk = message[pos + 1]
                pk, pos = (pk, pos + 2) if pk < 0x80 else read_varint(message, pos + 1, size)
                if message[pos] == 0x10:
                    ehk, pos = read_varint(message, pos + 1, size)
                if message[pos] == 0x1A:
                    length = message[pos + 1]
                    length, pos = (length, pos + 2) if length < 0x80 else read_varint(message, pos + 1, size)
                    plain = pos + length == end  # then all fields before also lie within the user record
            if plain:
                data = message[pos:end]
            else:
                pk, ehk, data, own = _user_record(message, start, end)
                if own and tags is None:
                    tags = [none] * len(payloads)
            partition_key_indices.append(pk)
            explicit_hash_key_indices.append(ehk)
            payloads.append(data)
            if tags is not None:
                tags.append(own)
            pos = end
        partition_keys = tuple(map(bytes.decode, tables[0x0A]))
        explicit_hash_keys = tuple(map(bytes.decode, tables[0x12]))
    except (IndexError, KeyError, ValueError):
        return None
    longest = max(map(len, partition_keys + explicit_hash_keys), default=0)
    if not payloads or longest > MAX_PARTITION_KEY_LENGTH:
        return None
    last = max(explicit_hash_key_indices)
    if max(partition_key_indices) >= len(partition_keys) or last >= len(explicit_hash_keys):
        return None
    usable = tuple(key if _is_hash_key(key) else "" for key in explicit_hash_keys)
    # KEY-8: an entry that no user record uses may be anything.
    if "" in usable and any(ehk >= 0 and not usable[ehk] for ehk in explicit_hash_key_indices):
        return None
    return (
        *(partition_keys, usable, partition_key_indices),
        *(None if last < 0 else explicit_hash_key_indices, payloads, tags),
    )


_KNOWN = (0x0A, 0x12, 0x1A)


def _is_hash_key(text: str) -> bool:
    value = java_integer(text)
    return value is not None and 0 <= value <= MAX_HASH_KEY


_parse = prefer_compiled("parse", quick_parse)


def parse(message: bytes) -> AggregatedRecord | None:
    """The aggregated record in a sound message; None if it is not sound."""
    parts = _parse(message)
    return None if parts is None else AggregatedRecord(*parts)


def varint(value: int) -> bytes:
    """``value`` (0 to 2^64 - 1) as a minimal varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint_size(value: int) -> int:
    """Bytes of ``value`` (0 to 2^64 - 1) as a minimal varint: 1 to 10."""
    return max(1, (value.bit_length() + 6) // 7)


def field_size(length: int) -> int:
    """Bytes of a length-delimited field of ``length`` bytes whose number is below 16."""
    return 1 + varint_size(length) + length


@lru_cache(65536)
def _number(tag: bytes, value: int) -> bytes:
    return tag + varint(value)


def _field(tag: bytes, value: bytes) -> bytes:
    return _number(tag, len(value)) + value


def tag_bytes(tag: Tag) -> bytes:
    body = _field(b"\x0a", tag.key.encode())
    if tag.value is not None:
        body += _field(b"\x12", tag.value.encode())
    return _field(b"\x22", body)


#: The fields of a user record, as a tuple.
_VALUES = UserRecord._values


def serialize(records: Iterable[UserRecord]) -> bytes:
    """The message of user records that `check` accepts. Raises EncodeError if there are none."""
    partition_keys: dict[str, int] = {}
    explicit_hash_keys: dict[str, int] = {}
    parts: list[bytes] = []
    for partition_key, data, explicit_hash_key, tags in map(_VALUES, records):
        # ENC-3: "Key tables MUST hold each distinct key once, in the order of first use."
        pk_index = partition_keys.setdefault(partition_key, len(partition_keys))
        inner = _number(b"\x08", pk_index)
        if explicit_hash_key is not None:
            ehk_index = explicit_hash_keys.setdefault(explicit_hash_key, len(explicit_hash_keys))
            inner += _number(b"\x10", ehk_index)
        inner += _number(b"\x1a", len(data))
        tail = b"".join(map(tag_bytes, tags)) if tags else b""
        parts += (_number(b"\x1a", len(inner) + len(data) + len(tail)), inner, data, tail)
    # ENC-2: "An aggregated record MUST hold at least one user record."
    if not parts:
        raise EncodeError(code="no-user-records", field="records", requirement="ENC-2")
    # ENC-4: "The message MUST be written as all partition keys, all explicit hash keys, all user
    # records, each user record's fields by ascending number, with minimal varints."
    tables = [_field(b"\x0a", key.encode()) for key in partition_keys]
    tables += [_field(b"\x12", key.encode()) for key in explicit_hash_keys]
    return b"".join(tables) + b"".join(parts)
