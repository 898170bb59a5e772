"""Reads the fields of a protobuf message, one after the other, with their offsets.

Offsets count from the start of ``data``, which is the whole frame.
Specification: spec/01-aggregated-record.md, MSG-1 to MSG-4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..errors import MalformedCode, MalformedMessage
from ..limits import MAX_NESTING

VARINT, FIXED64, LENGTH_DELIMITED, START_GROUP, END_GROUP, FIXED32 = range(6)


class Field(NamedTuple):
    """One field: its tag is at ``offset``, its value from ``start`` to ``end`` (of a group: all of it, with
    the end tag). ``value`` is the number of a varint, else 0."""

    number: int
    wire_type: int
    offset: int
    start: int
    end: int
    value: int


def read_varint(
    data: bytes, pos: int, end: int, *, strict: bool = True, record_index: int | None = None
) -> tuple[int, int]:
    """The varint at ``pos`` and the offset after it. Raises MalformedMessage (truncated, varint-too-long;
    varint-overflow only if strict, otherwise the low 64 bits are taken)."""
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
    """The fields of the message between ``start`` and ``end``, in the order of the bytes.

    ``nesting``: how many messages and groups enclose this one. ``group``: number and offset of the group
    whose fields they are; the last of them is then its end tag. ``strict``: as the specification demands,
    else as the KCL's protobuf does, which cuts numbers that are too large. Raises MalformedMessage.
    """

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
