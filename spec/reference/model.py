"""Chapters 1 and 2, executable: frame, varints, message, user records, tags; parse and build.

Read it from top to bottom beside 01-aggregated-record.md. `parse` gives the user records, or raises
`Refused`, which names every requirement that the bytes break. No offsets, no speed, no laziness.
"""

from __future__ import annotations

import hashlib
import sys
import unicodedata
from typing import Any, NamedTuple

from construct import (
    Byte,
    Bytes,
    Check,
    Checksum,
    ChecksumError,
    Computed,
    Const,
    Construct,
    ConstructError,
    Container,
    ExplicitError,
    ExprAdapter,
    GreedyBytes,
    GreedyRange,
    LazyBound,
    Pass,
    Prefixed,
    RepeatUntil,
    Struct,
    Switch,
    Terminated,
    this,
)

# A hundred groups, one in the other, make construct call itself some two thousand times (MSG-4).
sys.setrecursionlimit(max(sys.getrecursionlimit(), 10_000))


class Refused(Exception):
    """The bytes break these requirements, in no order. ``plain``: they are no frame at all."""

    def __init__(self, *requirements: str) -> None:
        super().__init__(", ".join(requirements))
        self.requirements = frozenset(requirements)
        self.plain = "FRM-1" in self.requirements or "FRM-2" in self.requirements


class _Broken(ExplicitError):
    """An error that construct's GreedyRange does not take for the end of the list."""

    def __init__(self, requirement: str) -> None:
        super().__init__(requirement)
        self.requirement = requirement


def _refuse(requirement: str) -> Any:
    raise _Broken(requirement)


# --- 1.1 Frame -----------------------------------------------------------------------------------

MAGIC = bytes.fromhex("F3899AC2")  # FRM-1

Frame = Struct(
    "magic" / Const(MAGIC),
    "message" / Bytes(lambda this: this._params.size - len(MAGIC) - 16),
    "digest" / Checksum(Bytes(16), lambda message: hashlib.md5(message).digest(), this.message),  # FRM-3
    Terminated,
)


def parse_frame(data: bytes) -> bytes:
    """The message in the frame. Raises Refused."""
    if not data.startswith(MAGIC):
        raise Refused("FRM-1")
    if len(data) - len(MAGIC) <= 16:
        raise Refused("FRM-2")
    try:
        return Frame.parse(data, size=len(data)).message
    except ChecksumError:
        raise Refused("FRM-3") from None


def build_frame(message: bytes) -> bytes:
    return Frame.build({"message": message}, size=len(message) + len(MAGIC) + 16)


# --- 1.2 Message: protobuf's wire format ------------------------------------------------------------


def _varint_value(parts: Any, context: Any) -> int:
    if len(parts) > 10:
        _refuse("MSG-2")
    value = sum((part & 0x7F) << 7 * place for place, part in enumerate(parts))
    return value if value < 2**64 else _refuse("MSG-3")


def _varint_parts(value: int, context: Any) -> list[int]:
    parts = [value >> 7 * place & 0x7F for place in range(10) if place == 0 or value >> 7 * place]
    return [part | 0x80 for part in parts[:-1]] + parts[-1:]


#: Seven bits a byte, the lowest first; the top bit says that more follow.
Varint = ExprAdapter(
    RepeatUntil(lambda part, parts, context: part < 0x80 or len(parts) > 10, Byte),
    _varint_value,
    _varint_parts,
)

VARINT, FIXED64, LENGTH_DELIMITED, START_GROUP, END_GROUP, FIXED32 = range(6)


def _field_tag(value: int, context: Any) -> Container:
    number, wire_type = divmod(value, 8)
    if not 1 <= number < 2**29 or wire_type > 5:
        _refuse("MSG-1")
    return Container(number=number, wire_type=wire_type)


#: What stands before every value: the field's number and the wire type of the value.
FieldTag = ExprAdapter(Varint, _field_tag, lambda tag, context: tag.number << 3 | tag.wire_type)


def _not_too_deep(this: Any) -> bool:
    return True if this.depth <= 100 else _refuse("MSG-4")


Field: Construct = Struct(
    "depth" / Computed(lambda this: this._.depth),
    "tag" / FieldTag,
    "value"
    / Switch(
        this.tag.wire_type,
        {
            VARINT: Varint,
            FIXED64: Bytes(8),
            LENGTH_DELIMITED: Prefixed(Varint, GreedyBytes),
            START_GROUP: LazyBound(lambda: Group),
            END_GROUP: Pass,
            FIXED32: Bytes(4),
        },
    ),
)

#: Fields up to the end tag of the same number.
Group = Struct(
    "number" / Computed(this._.tag.number),
    "depth" / Computed(this._.depth + 1),
    Check(_not_too_deep),
    "fields" / RepeatUntil(lambda field, fields, context: field.tag.wire_type == END_GROUP, Field),
    Check(lambda this: this.fields[-1].tag.number == this.number or _refuse("MSG-1")),
)

#: Fields up to the end of the bytes; an end tag has no business here.
Message = Struct(
    "depth" / Computed(this._params.nesting),
    "fields" / GreedyRange(Field),
    Terminated,
    Check(lambda this: all(field.tag.wire_type != END_GROUP for field in this.fields) or _refuse("MSG-1")),
)


def parse_fields(message: bytes, nesting: int = 0) -> list[Any]:
    """The fields of a message inside ``nesting`` others. Raises Refused."""
    try:
        return list(Message.parse(message, nesting=nesting).fields)
    except _Broken as error:
        raise Refused(error.requirement) from None
    except ConstructError:  # the bytes end inside a field
        raise Refused("MSG-1") from None


def build_fields(*fields: tuple[int, int, Any]) -> bytes:
    """The message of (number, wire type, value) fields, in this order."""
    items = [
        {"tag": Container(number=number, wire_type=wire_type), "value": value}
        for number, wire_type, value in fields
    ]
    return Message.build({"fields": items}, nesting=0)


# --- 1.2 Message: what the fields mean (kpl.proto) ---------------------------------------------------


class Tag(NamedTuple):
    key: str
    value: str | None = None


class UserRecord(NamedTuple):
    partition_key: str
    data: bytes
    explicit_hash_key: str | None = None
    tags: tuple[Tag, ...] = ()


class _Reader:
    """The known fields of one message by number; keeps the requirements that are broken on the way."""

    def __init__(self, message: bytes, nesting: int, wire_types: dict[int, int], broken: set[str]) -> None:
        self.broken = broken
        self.values: dict[int, list[Any]] = {number: [] for number in wire_types}
        self.wrong: set[int] = set()
        for field in parse_fields(message, nesting):
            if field.tag.number not in wire_types:
                continue  # MSG-11
            if field.tag.wire_type != wire_types[field.tag.number]:
                broken.add("MSG-5")
                self.wrong.add(field.tag.number)
            else:
                self.values[field.tag.number].append(field.value)

    def last(self, number: int, *, required: bool = False) -> Any:
        if self.values[number]:
            return self.values[number][-1]  # MSG-12
        if required and number not in self.wrong:
            self.broken.add("MSG-6")
        return None


def _text(value: bytes, broken: set[str]) -> str | None:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        broken.add("MSG-8")
        return None


def _key(value: bytes, broken: set[str]) -> str | None:
    text = _text(value, broken)
    if text is not None and len(text) > 256:
        broken.add("MSG-9")
        return None
    return text


def parse_message(message: bytes) -> list[UserRecord]:
    """The user records of a message. Raises Refused."""
    broken: set[str] = set()
    outer = _Reader(message, 0, {1: LENGTH_DELIMITED, 2: LENGTH_DELIMITED, 3: LENGTH_DELIMITED}, broken)
    partition_keys = [_key(value, broken) for value in outer.values[1]]
    explicit_hash_keys = [_key(value, broken) for value in outer.values[2]]
    if not outer.values[3]:
        broken.add("MSG-10")

    def entry(table: list[str | None], index: int | None) -> str | None:
        if index is None:
            return None
        if index < len(table):
            return table[index]
        broken.add("MSG-7")
        return None

    user_records = []
    for value in outer.values[3]:
        record = _Reader(value, 1, {1: VARINT, 2: VARINT, 3: LENGTH_DELIMITED, 4: LENGTH_DELIMITED}, broken)
        partition_key = entry(partition_keys, record.last(1, required=True))
        explicit_hash_key = entry(explicit_hash_keys, record.last(2))
        if explicit_hash_key is not None and not is_hash_key(explicit_hash_key):  # KEY-8: only those in use
            broken.add("KEY-3")
        data = record.last(3, required=True)
        tags = []
        for inner in record.values[4]:
            tag = _Reader(inner, 2, {1: LENGTH_DELIMITED, 2: LENGTH_DELIMITED}, broken)
            tag.last(1, required=True)
            # MSG-8 is of each text, also of one that MSG-12 does not count.
            tag_key, tag_value = ([_text(raw, broken) for raw in tag.values[number]] for number in (1, 2))
            tags.append(Tag((tag_key or [""])[-1] or "", (tag_value or [None])[-1]))
        user_records.append(UserRecord(partition_key or "", data or b"", explicit_hash_key, tuple(tags)))
    if broken:
        raise Refused(*broken)
    return user_records


def parse(data: bytes) -> list[UserRecord]:
    """The user records of a Kinesis record's data, strictly. Raises Refused."""
    return parse_message(parse_frame(data))


# --- 1.3 Encoding --------------------------------------------------------------------------------


def build(user_records: list[UserRecord]) -> bytes:
    """The one aggregated record of these user records (ENC-3, ENC-4). They must be sound (ENC-1)."""

    def tag_fields(tag: Tag) -> bytes:
        value = [] if tag.value is None else [(2, LENGTH_DELIMITED, tag.value.encode())]
        return build_fields((1, LENGTH_DELIMITED, tag.key.encode()), *value)

    partition_keys = list(dict.fromkeys(record.partition_key for record in user_records))
    explicit_hash_keys = list(
        dict.fromkeys(r.explicit_hash_key for r in user_records if r.explicit_hash_key is not None)
    )
    records = []
    for record in user_records:
        fields: list[tuple[int, int, Any]] = [(1, VARINT, partition_keys.index(record.partition_key))]
        if record.explicit_hash_key is not None:
            fields.append((2, VARINT, explicit_hash_keys.index(record.explicit_hash_key)))
        fields.append((3, LENGTH_DELIMITED, record.data))
        fields += [(4, LENGTH_DELIMITED, tag_fields(tag)) for tag in record.tags]
        records.append(build_fields(*fields))
    return build_frame(
        build_fields(
            *((1, LENGTH_DELIMITED, key.encode()) for key in partition_keys),
            *((2, LENGTH_DELIMITED, key.encode()) for key in explicit_hash_keys),
            *((3, LENGTH_DELIMITED, record) for record in records),
        )
    )


# --- 2 Hash keys ---------------------------------------------------------------------------------


def big_integer(text: str) -> int | None:
    """KEY-3: what Java's BigInteger reads, which sees UTF-16 units; None where it throws."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    value = 0
    for character in digits:
        digit = unicodedata.decimal(character, None) if ord(character) < 2**16 else None
        if digit is None:
            return None
        value = value * 10 + digit
    return None if not digits else -value if text.startswith("-") else value


def is_hash_key(text: str) -> bool:
    value = big_integer(text)
    return value is not None and 0 <= value < 2**128


def effective_hash_key(partition_key: str, explicit_hash_key: str | None) -> int:
    """KEY-2 and KEY-4."""
    if explicit_hash_key is not None:
        value = big_integer(explicit_hash_key)
        assert value is not None
        return value
    digest = hashlib.md5(partition_key.encode()).digest()
    return sum(byte << 8 * place for place, byte in enumerate(reversed(digest)))
