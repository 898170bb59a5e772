"""Walks the bytes of a message and says where they break.

The slow, exact decoder: pure Python, one field at a time, with the offset of everything. The fast
decoders (message.py, _speedups) give up where they are not certain; what this module then says is
what holds. It also reads as leniently as the KCL's protobuf does, for kcl.py, and feeds explain.py.

Offsets count from the start of ``data``, which is the whole frame. Memory stays linear in the input:
records are walked, never listed.
Specification: spec/01-aggregated-record.md, MSG-1 to MSG-10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..errors import (
    DecodeError,
    HashKeyError,
    IndexOutOfTable,
    InvalidHashKey,
    InvalidKey,
    MalformedCode,
    MalformedMessage,
    MissingField,
    NoUserRecords,
    WrongWireType,
)
from ..limits import MAX_NESTING, MAX_PARTITION_KEY_LENGTH
from .hash_keys import explicit_hash_key_value
from .records import Tag

VARINT, FIXED64, LENGTH_DELIMITED, START_GROUP, END_GROUP, FIXED32 = range(6)

#: How many frame-level defects `scan` keeps; it counts the rest.
MAX_KEPT_DEFECTS = 100

#: Field numbers, names and wire types of kpl.proto, message by message.
AGGREGATED_RECORD = {
    1: ("partition_key_table", LENGTH_DELIMITED),
    2: ("explicit_hash_key_table", LENGTH_DELIMITED),
    3: ("records", LENGTH_DELIMITED),
}
RECORD = {
    1: ("partition_key_index", VARINT),
    2: ("explicit_hash_key_index", VARINT),
    3: ("data", LENGTH_DELIMITED),
    4: ("tags", LENGTH_DELIMITED),
}
TAG = {1: ("key", LENGTH_DELIMITED), 2: ("value", LENGTH_DELIMITED)}


class Field(NamedTuple):
    """One field: its tag stands at ``offset``, its value fills ``start`` to ``end`` (of a group: all
    of it, end tag included). ``value`` is a varint's number, else 0."""

    number: int
    wire_type: int
    offset: int
    start: int
    end: int
    value: int


def read_varint(
    data: bytes, pos: int, end: int, *, lenient: bool = False, record_index: int | None = None
) -> tuple[int, int]:
    """The varint at ``pos`` and the offset behind it. Raises MalformedMessage (truncated,
    varint-too-long, varint-overflow; the last not when ``lenient``, which keeps the low 64 bits)."""
    value = shift = 0
    start = pos
    while True:
        if pos >= end:
            raise MalformedMessage(code="truncated", offset=start, record_index=record_index)
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        # MSG-2: "A varint MUST NOT be longer than 10 bytes."
        if shift == 70:
            raise MalformedMessage(code="varint-too-long", offset=start, record_index=record_index)
    if value >> 64:
        # MSG-3: "A varint whose value does not fit 64 bits MUST be refused."
        if not lenient:
            raise MalformedMessage(code="varint-overflow", offset=start, record_index=record_index)
        value &= 2**64 - 1
    return value, pos


def fields(
    data: bytes,
    start: int,
    end: int,
    *,
    nesting: int = 0,
    lenient: bool = False,
    record_index: int | None = None,
) -> Iterator[Field]:
    """The fields of the message between ``start`` and ``end``, in the order of the bytes.

    ``nesting``: how many messages stand around this one. Raises MalformedMessage.
    """

    def broken(code: MalformedCode, offset: int) -> MalformedMessage:
        return MalformedMessage(code=code, offset=offset, record_index=record_index)

    groups: list[tuple[int, int]] = []  # (field number, offset) of the groups we are inside
    outer = start
    pos = start
    new = tuple.__new__  # the named one's own takes twice as long
    while pos < end:
        offset = pos
        tag = data[pos]
        if tag < 0x80:  # one byte, as nearly all
            pos += 1
        else:
            tag, pos = read_varint(data, pos, end, lenient=lenient, record_index=record_index)
            if lenient:
                tag &= 0xFFFFFFFF  # Java reads tags as 32 bits and drops what is above
        number, wire_type = tag >> 3, tag & 7
        # MSG-1: "The message MUST be well-formed protobuf: field numbers from 1 to 2^29 - 1, wire types
        # 0 to 5, every length inside its surroundings, every group closed by its own end tag."
        if not 1 <= number < 2**29:
            raise broken("field-number", offset)
        value, begin = 0, pos
        if wire_type in (VARINT, LENGTH_DELIMITED):
            if pos < end and data[pos] < 0x80:
                value = data[pos]
                pos += 1
            else:
                value, pos = read_varint(data, pos, end, lenient=lenient, record_index=record_index)
            if wire_type == LENGTH_DELIMITED:
                begin = pos
                pos += value & 0xFFFFFFFF if lenient else value
                value = 0
        elif wire_type == FIXED64:
            pos += 8
        elif wire_type == FIXED32:
            pos += 4
        elif wire_type == START_GROUP:
            # MSG-4: "Messages and groups nested more than 100 deep MUST be refused."
            if nesting + len(groups) >= MAX_NESTING:
                raise broken("too-deep", offset)
            if not groups:
                outer = offset
            groups.append((number, offset))
            continue
        elif wire_type == END_GROUP:
            if not groups or groups[-1][0] != number:
                raise broken("stray-end-group", offset)
            groups.pop()
            if not groups:
                yield new(Field, (number, START_GROUP, outer, outer, pos, 0))
            continue
        else:
            raise broken("wire-type", offset)
        if pos > end:
            raise broken("truncated", offset)
        if not groups:
            yield new(Field, (number, wire_type, offset, begin, pos, value))
    if groups:
        raise broken("unterminated-group", groups[-1][1])


class WireRecord(NamedTuple):
    """One user record as it stands in the bytes. Absent fields are None; ``data`` is (start, end)."""

    record_index: int
    offset: int
    end: int
    partition_key_index: int | None
    explicit_hash_key_index: int | None
    data: tuple[int, int] | None
    tags: tuple[Tag, ...]
    defects: tuple[DecodeError, ...]


class Scan:
    """The key tables of a message, how many user records follow, and the defects outside of them.

    A table entry that is no key is None. ``defects`` holds the first MAX_KEPT_DEFECTS of
    ``defect_count``, in the order of the bytes.
    """

    __slots__ = ("defect_count", "defects", "explicit_hash_keys", "partition_keys", "record_count")

    def __init__(self) -> None:
        self.partition_keys: list[str | None] = []
        self.explicit_hash_keys: list[str | None] = []
        self.record_count = 0
        self.defects: list[DecodeError] = []
        self.defect_count = 0

    def add(self, defect: DecodeError) -> None:
        self.defect_count += 1
        if len(self.defects) < MAX_KEPT_DEFECTS:
            self.defects.append(defect)


def _strict_key(data: bytes, table: str, index: int, offset: int) -> str | DecodeError:
    # MSG-8: "Every table entry MUST be valid UTF-8."
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return InvalidKey(code="key-utf-8", table=table, index=index, offset=offset + error.start)
    # MSG-9: "A table entry longer than 256 code points MUST be refused before any user record is made
    # of it."
    if len(text) > MAX_PARTITION_KEY_LENGTH:
        return InvalidKey(code="key-too-long", table=table, index=index, offset=offset)
    if table == "explicit_hash_key_table":
        try:
            explicit_hash_key_value(text)
        except HashKeyError:
            return InvalidHashKey(index=index, offset=offset)
    return text


def scan(data: bytes, start: int, end: int, *, key: Callable[[bytes], str] | None = None) -> Scan:
    """Read the tables of the message between ``start`` and ``end`` and check its outline.

    With ``key`` (bytes to str) the reading is as lenient as the KCL's: wrong wire types are unknown
    fields, entries become whatever ``key`` makes of them. Raises MalformedMessage.
    """
    lenient = key is not None
    result = Scan()
    for field in fields(data, start, end, lenient=lenient):
        name, wire_type = AGGREGATED_RECORD.get(field.number, ("", -1))
        if not name:
            continue  # MSG-11: "Unknown fields MUST be skipped, whatever their number and wire type."
        if field.wire_type != wire_type:
            if not lenient:
                result.add(_wrong_wire_type(name, field, wire_type, None))
            continue
        if name == "records":
            # The walk of every record is part of the outline: a message with one broken record is no
            # message.
            for inner in fields(
                data, field.start, field.end, nesting=1, lenient=lenient, record_index=result.record_count
            ):
                if inner.number == 4 and inner.wire_type == LENGTH_DELIMITED:
                    for _ in fields(
                        data,
                        inner.start,
                        inner.end,
                        nesting=2,
                        lenient=lenient,
                        record_index=result.record_count,
                    ):
                        pass
            result.record_count += 1
            continue
        table = result.partition_keys if field.number == 1 else result.explicit_hash_keys
        raw = data[field.start : field.end]
        entry = key(raw) if key is not None else _strict_key(raw, name, len(table), field.start)
        if isinstance(entry, DecodeError):
            result.add(entry)
            table.append(None)
        else:
            table.append(entry)
    return result


def _wrong_wire_type(name: str, field: Field, expected: int, record_index: int | None) -> WrongWireType:
    # MSG-5: "A known field with another wire type MUST be refused."
    return WrongWireType(
        field=name,
        wire_type=field.wire_type,
        expected=expected,
        offset=field.offset,
        record_index=record_index,
    )


def records(data: bytes, start: int, end: int, *, lenient: bool = False) -> Iterator[WireRecord]:
    """The user records of the message, one at a time, each with the defects of its own fields.

    Call `scan` first: this trusts the outline.
    """
    index = 0
    for field in fields(data, start, end, lenient=lenient):
        if field.number == 3 and field.wire_type == LENGTH_DELIMITED:
            yield _record(data, field, index, lenient)
            index += 1


def _record(data: bytes, outer: Field, index: int, lenient: bool) -> WireRecord:
    partition_key_index = explicit_hash_key_index = None
    payload: tuple[int, int] | None = None
    tags: list[Tag] = []
    defects: list[DecodeError] = []
    wrong: set[str] = set()
    for field in fields(data, outer.start, outer.end, nesting=1, lenient=lenient, record_index=index):
        name, wire_type = RECORD.get(field.number, ("", -1))
        if name and field.wire_type != wire_type:
            wrong.add(name)
            defects.append(_wrong_wire_type(name, field, wire_type, index))
        # MSG-12: "Fields MUST be accepted in any order; of a field that may stand once, the last one
        # counts."
        elif name == "partition_key_index":
            partition_key_index = field.value
        elif name == "explicit_hash_key_index":
            explicit_hash_key_index = field.value
        elif name == "data":
            payload = field.start, field.end
        elif name == "tags":
            tags.append(_tag(data, field, index, lenient, defects))
    # MSG-6: "A user record without partition_key_index or data MUST be refused, and so must a tag
    # without a key."
    for name, value in (("partition_key_index", partition_key_index), ("data", payload)):
        if value is None and name not in wrong:
            defects.append(MissingField(field=name, offset=outer.offset, record_index=index))
    return WireRecord(
        index,
        outer.offset,
        outer.end,
        partition_key_index,
        explicit_hash_key_index,
        payload,
        tuple(tags),
        tuple(sorted(defects, key=_offset)),
    )


def _tag(data: bytes, outer: Field, record_index: int, lenient: bool, defects: list[DecodeError]) -> Tag:
    texts: dict[str, str] = {}
    wrong = False
    for field in fields(data, outer.start, outer.end, nesting=2, lenient=lenient, record_index=record_index):
        name, wire_type = TAG.get(field.number, ("", -1))
        if name and field.wire_type != wire_type:
            wrong = True
            defects.append(_wrong_wire_type(f"tags.{name}", field, wire_type, record_index))
        elif name:
            raw = data[field.start : field.end]
            try:
                texts[name] = raw.decode()
            except UnicodeDecodeError as error:
                texts[name] = ""
                if not lenient:
                    defects.append(
                        InvalidKey(
                            code="key-utf-8",
                            table=f"tags.{name}",
                            index=record_index,
                            offset=field.start + error.start,
                            record_index=record_index,
                        )
                    )
    if "key" not in texts and (lenient or not wrong):
        defects.append(MissingField(field="tags.key", offset=outer.offset, record_index=record_index))
    return Tag(texts.get("key", ""), texts.get("value"))


def _offset(defect: DecodeError) -> int:
    return defect.offset or 0


def check(record: WireRecord, tables: Scan) -> list[DecodeError]:
    """Everything wrong with one user record, in the order of the bytes: its own fields, and its
    indices into ``tables`` (a bad table entry is a defect of every user record that uses it)."""
    found = list(record.defects)
    for table, index, entries in (
        ("partition_key_table", record.partition_key_index, tables.partition_keys),
        ("explicit_hash_key_table", record.explicit_hash_key_index, tables.explicit_hash_keys),
    ):
        if index is None:
            continue
        # MSG-7: "An index MUST be below the number of entries of its table, all 64 bits of it counted."
        if index >= len(entries):
            found.append(
                IndexOutOfTable(
                    table=table,
                    index=index,
                    size=len(entries),
                    offset=record.offset,
                    record_index=record.record_index,
                )
            )
        elif entries[index] is None:
            found.append(
                InvalidKey(
                    code="key-unusable",
                    table=table,
                    index=index,
                    offset=record.offset,
                    record_index=record.record_index,
                )
            )
    return sorted(found, key=_offset)


def first_defect(data: bytes, start: int, end: int) -> DecodeError | None:
    """The defect that `decode` raises: a malformed message, or else the first in the order of the
    bytes. None if the message is sound."""
    try:
        tables = scan(data, start, end)
    except MalformedMessage as error:
        return error
    first = tables.defects[0] if tables.defects else None
    # MSG-10: "An aggregated record without user records MUST be refused."
    if not tables.record_count and first is None:
        return NoUserRecords(offset=start)
    for record in records(data, start, end):
        if first is not None and record.offset > _offset(first):
            break
        # A user record that stands before the broken table entry it uses: the entry is the defect.
        found = [defect for defect in check(record, tables) if defect.code != "key-unusable"]
        if found:
            return found[0] if first is None or _offset(found[0]) < _offset(first) else first
    return first
