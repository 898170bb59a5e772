"""Reads a message field by field and finds its defects, with their offsets in the frame: slow and exact, for
messages that the fast decoders do not find sound. With ``strict=False`` it reads as the KCL's protobuf does.
It reads one user record at a time: a list of all would take hundreds of times the memory of their bytes.
Specification: spec/01-aggregated-record.md, MSG."""

from collections.abc import Iterator
from typing import Any, NamedTuple

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
from .hash_keys import explicit_hash_key_value, java_text
from .limits import DIGEST_SIZE, MAGIC, MAX_NESTING, MAX_PARTITION_KEY_LENGTH
from .records import Tag

VARINT, FIXED64, LENGTH_DELIMITED, START_GROUP, END_GROUP, FIXED32 = range(6)


class Field(NamedTuple):
    """One field: its tag is at ``offset``, its value from ``start`` to ``end``, a group with its end tag.
    ``value``: the number of a varint, else 0."""

    number: int
    wire_type: int
    offset: int
    start: int
    end: int
    value: int


def read_varint(
    data: bytes, pos: int, end: int, *, strict: bool = True, record_index: int | None = None
) -> tuple[int, int]:
    """The varint at ``pos`` and the offset after it; unless strict, the low 64 bits of a larger one. Raises
    MalformedMessage."""
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
        if strict:
            raise MalformedMessage(code="varint-overflow", offset=start, record_index=record_index)
        value &= 2**64 - 1
    return value, pos


def fields(
    data: bytes,
    start: int,
    end: int,
    *,
    nesting: int = 0,
    strict: bool = True,
    record_index: int | None = None,
    group: tuple[int, int] | None = None,
) -> Iterator[Field]:
    """The fields of the message between ``start`` and ``end``, in the order of the bytes. ``nesting``: how
    many messages and groups are around it. ``group``: number and offset of the group whose fields these are;
    its end tag is the last of them. Raises MalformedMessage."""

    def broken(code: MalformedCode, offset: int) -> MalformedMessage:
        return MalformedMessage(code=code, offset=offset, record_index=record_index)

    pos = start
    new = tuple.__new__  # Field.__new__ takes twice as long
    while pos < end:
        offset = pos
        tag = data[pos]
        if tag < 0x80:  # one byte, nearly always
            pos += 1
        else:
            tag, pos = read_varint(data, pos, end, strict=strict, record_index=record_index)
            if not strict:
                tag &= 0xFFFFFFFF  # Java reads tags as 32 bits and drops what is above
        number, wire_type = tag >> 3, tag & 7
        # MSG-1: "The message MUST be well-formed protobuf: field numbers from 1 to 2^29 - 1, wire types 0 to
        # 5, every length within the message or group around it, every group closed by its own end tag."
        if not 1 <= number < 2**29:
            raise broken("field-number", offset)
        value, begin = 0, pos
        if wire_type in (VARINT, LENGTH_DELIMITED):
            if pos < end and data[pos] < 0x80:
                value = data[pos]
                pos += 1
            else:
                value, pos = read_varint(data, pos, end, strict=strict, record_index=record_index)
            if wire_type == LENGTH_DELIMITED:
                begin = pos
                pos += value if strict else value & 0xFFFFFFFF
                value = 0
        elif wire_type == FIXED64:
            pos += 8
        elif wire_type == FIXED32:
            pos += 4
        elif wire_type == START_GROUP:
            # MSG-4: "Messages and groups nested more than 100 deep MUST be refused."
            if nesting >= MAX_NESTING:
                raise broken("too-deep", offset)
            inside = fields(
                data, pos, end,
                nesting=nesting + 1, strict=strict, record_index=record_index, group=(number, offset),
            )  # fmt: skip
            for field in inside:
                pos = field.end
            begin = offset
        elif wire_type == END_GROUP:
            if group is None or group[0] != number:
                raise broken("stray-end-group", offset)
        else:
            raise broken("wire-type", offset)
        if pos > end:
            raise broken("truncated", offset)
        yield new(Field, (number, wire_type, offset, begin, pos, value))
        if wire_type == END_GROUP:
            return
    if group is not None:
        raise broken("unterminated-group", group[1])


#: Where the message begins in a frame: behind the magic.
_START = len(MAGIC)
#: How many defects outside of user records a `Message` lists; it counts the rest.
MAX_LISTED_DEFECTS = 100

#: The names and wire types of a message's fields, by number; those of kpl.proto.
Schema = dict[int, tuple[str, int]]
AGGREGATED_RECORD: Schema = {
    1: ("partition_key_table", LENGTH_DELIMITED),
    2: ("explicit_hash_key_table", LENGTH_DELIMITED),
    3: ("records", LENGTH_DELIMITED),
}
RECORD: Schema = {
    1: ("partition_key_index", VARINT),
    2: ("explicit_hash_key_index", VARINT),
    3: ("data", LENGTH_DELIMITED),
    4: ("tags", LENGTH_DELIMITED),
}
TAG: Schema = {1: ("key", LENGTH_DELIMITED), 2: ("value", LENGTH_DELIMITED)}


class WireRecord(NamedTuple):
    """One user record as the bytes have it; absent fields are None."""

    record_index: int
    offset: int
    end: int
    partition_key_index: int | None
    explicit_hash_key_index: int | None
    data: bytes | None
    tags: tuple[Tag, ...]
    defects: tuple[DecodeError, ...]


class Message:
    """The message in ``frame``, read once: its key tables (None: an entry that is no key), the number of user
    records, and the defects outside of them. Raises MalformedMessage.

    ``defects``: the first MAX_LISTED_DEFECTS of ``defect_count``, in the order of the bytes. ``unused``: a
    warning of the first unused entry that is no explicit hash key.
    """

    __slots__ = (
        *("_end", "_strict", "_used", "data", "defect_count", "defects", "explicit_hash_keys"),
        *("partition_keys", "record_count"),
    )

    def __init__(self, frame: bytes, *, strict: bool = True) -> None:
        self.data = frame
        self._end = len(frame) - DIGEST_SIZE
        self._strict = strict
        self._used: set[int | None] | None = None
        self.partition_keys: list[str | None] = []
        self.explicit_hash_keys: list[str | None] = []
        self.record_count = 0
        self.defects: list[DecodeError] = []
        self.defect_count = 0
        for field in fields(frame, _START, self._end, strict=strict):
            name, wire_type = AGGREGATED_RECORD.get(field.number, ("", -1))
            if not name:
                continue  # MSG-11: "Unknown fields MUST be skipped, whatever their number and wire type."
            if field.wire_type != wire_type:
                if strict:
                    self._add(_wrong_wire_type(name, field, wire_type, None))
            elif name == "records":
                self._count_record(field)
            else:
                self._add_entry(name, field)

    def _add(self, defect: DecodeError) -> None:
        self.defect_count += 1
        if len(self.defects) < MAX_LISTED_DEFECTS:
            self.defects.append(defect)

    def _inside(self, outer: Field, nesting: int, record_index: int) -> Iterator[Field]:
        return fields(
            self.data, outer.start, outer.end,
            nesting=nesting, strict=self._strict, record_index=record_index,
        )  # fmt: skip

    def _count_record(self, outer: Field) -> None:
        # The user record is read to its end: if it is malformed, so is the message.
        index = self.record_count
        for field in self._inside(outer, 1, index):
            if field.number == 4 and field.wire_type == LENGTH_DELIMITED:
                for _ in self._inside(field, 2, index):
                    pass
        self.record_count += 1

    def _add_entry(self, name: str, field: Field) -> None:
        table = self.partition_keys if field.number == 1 else self.explicit_hash_keys
        raw = self.data[field.start : field.end]
        entry: str | DecodeError
        if self._strict:
            entry = _strict_key(raw, name, len(table), field.start)
        else:
            entry = java_text(raw)
        if isinstance(entry, InvalidHashKey):
            # KEY-8: "An unused entry of the explicit hash key table that is no hash key MUST NOT make an
            # aggregate defective."
            if self._used is None:
                self._used = {record.explicit_hash_key_index for record in self.records()}
            if entry.index in self._used:
                self._add(entry)
        elif isinstance(entry, DecodeError):
            self._add(entry)
        table.append(None if isinstance(entry, DecodeError) else entry)

    def records(self) -> Iterator[WireRecord]:
        """The user records, each with the defects of its fields."""
        index = 0
        for field in fields(self.data, _START, self._end, strict=self._strict):
            if field.number == 3 and field.wire_type == LENGTH_DELIMITED:
                yield self._record(field, index)
                index += 1

    def _record(self, outer: Field, index: int) -> WireRecord:
        values: dict[str, Any] = {}
        tags: list[Tag] = []
        defects: list[DecodeError] = []
        wrong: set[str] = set()
        for field in self._inside(outer, 1, index):
            name, wire_type = RECORD.get(field.number, ("", -1))
            if name and field.wire_type != wire_type:
                wrong.add(name)
                defects.append(_wrong_wire_type(name, field, wire_type, index))
            # MSG-12: "Fields MUST be accepted in any order; of a field that may stand once, the last one
            # counts."
            elif name == "tags":
                tags.append(self._tag(field, index, defects))
            elif name:
                values[name] = self.data[field.start : field.end] if name == "data" else field.value
        # MSG-6: "A user record without partition_key_index or data MUST be refused, and so must a tag
        # without a key."
        for name in ("partition_key_index", "data"):
            if name not in values and name not in wrong:
                defects.append(MissingField(field=name, offset=outer.offset, record_index=index))
        pk, ehk, payload = map(values.get, ("partition_key_index", "explicit_hash_key_index", "data"))
        defects.sort(key=_offset)
        return WireRecord(index, outer.offset, outer.end, pk, ehk, payload, tuple(tags), tuple(defects))

    def _tag(self, outer: Field, record_index: int, defects: list[DecodeError]) -> Tag:
        texts: dict[str, str] = {}
        wrong = False
        for field in self._inside(outer, 2, record_index):
            name, wire_type = TAG.get(field.number, ("", -1))
            if name and field.wire_type != wire_type:
                wrong = True
                defects.append(_wrong_wire_type(f"tags.{name}", field, wire_type, record_index))
            elif name:
                raw = self.data[field.start : field.end]
                try:
                    texts[name] = raw.decode()
                except UnicodeDecodeError as error:
                    texts[name] = ""
                    if self._strict:
                        at: dict[str, Any] = {
                            "offset": field.start + error.start,
                            "record_index": record_index,
                        }
                        table = f"tags.{name}"
                        defects.append(InvalidKey(code="key-utf-8", table=table, index=record_index, **at))
        if "key" not in texts and not (self._strict and wrong):
            defects.append(MissingField(field="tags.key", offset=outer.offset, record_index=record_index))
        return Tag(texts.get("key", ""), texts.get("value"))

    def defects_of(self, record: WireRecord) -> list[DecodeError]:
        """The defects of one user record, in the order of the bytes: of its fields, and of its indices (a bad
        table entry is a defect of every user record that uses it)."""
        defects = list(record.defects)
        for table, index, entries in (
            ("partition_key_table", record.partition_key_index, self.partition_keys),
            ("explicit_hash_key_table", record.explicit_hash_key_index, self.explicit_hash_keys),
        ):
            if index is None:
                continue
            at: dict[str, Any] = {"offset": record.offset, "record_index": record.record_index}
            # MSG-7: "An index MUST be below the number of entries of its table, all 64 bits of it counted."
            if index >= len(entries):
                defects.append(IndexOutOfTable(table=table, index=index, size=len(entries), **at))
            elif entries[index] is None:
                defects.append(InvalidKey(code="key-unusable", table=table, index=index, **at))
        return sorted(defects, key=_offset)

    def first_defect(self) -> DecodeError | None:
        """The defect that `decode` raises, the first in the order of the bytes."""
        first = self.defects[0] if self.defects else None
        # MSG-10: "An aggregated record without user records MUST be refused."
        if not self.record_count and first is None:
            return NoUserRecords(offset=_START)
        for record in self.records():
            if first is not None and record.offset > _offset(first):
                break
            # Where a user record comes before the bad table entry that it uses, the entry is the defect.
            others = [defect for defect in self.defects_of(record) if defect.code != "key-unusable"]
            if others:
                return others[0] if first is None or _offset(others[0]) < _offset(first) else first
        return first


def _strict_key(data: bytes, table: str, index: int, offset: int) -> str | DecodeError:
    # MSG-8: "Every table entry and every text of a tag MUST be valid UTF-8, also one that does not count
    # (MSG-12)."
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


def _wrong_wire_type(name: str, field: Field, expected: int, record_index: int | None) -> WrongWireType:
    # MSG-5: "A known field with another wire type MUST be refused."
    return WrongWireType(
        field=name,
        wire_type=field.wire_type,
        expected=expected,
        offset=field.offset,
        record_index=record_index,
    )


def _offset(defect: DecodeError) -> int:
    return defect.offset or 0
