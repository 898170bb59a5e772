"""Section 3.1, executable: the KCL's reading of a frame, on protobuf's own runtime.

The lenient decoder is not written but borrowed: protobuf's published runtime with the schema of
kpl.proto, keys as bytes, so that a text that is no UTF-8 can be turned into what Java makes of it. The
KCL uses Java's runtime, which reads tags and varints in its own way; `as_java_reads` says how.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from .model import MAGIC, big_integer, effective_hash_key

_FIELDS = {
    "Tag": ["required bytes key 1", "optional bytes value 2"],
    "Record": [
        "required uint64 partition_key_index 1",
        "optional uint64 explicit_hash_key_index 2",
        "required bytes data 3",
        "repeated Tag tags 4",
    ],
    "AggregatedRecord": [
        "repeated bytes partition_key_table 1",
        "repeated bytes explicit_hash_key_table 2",
        "repeated Record records 3",
    ],
}


def _message_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="reference.proto", package="reference", syntax="proto2")
    kinds = descriptor_pb2.FieldDescriptorProto
    for message, fields in _FIELDS.items():
        descriptor = file.message_type.add(name=message)
        for label, kind, name, number in map(str.split, fields):
            field = descriptor.field.add(name=name, number=int(number))
            field.label = kinds.Label.Value(f"LABEL_{label.upper()}")
            if kind in _FIELDS:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".reference.{kind}"
            else:
                field.type = kinds.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("reference.AggregatedRecord"))


AGGREGATED_RECORD = _message_class()
_KINDS = {("AggregatedRecord", 3): "Record", ("Record", 4): "Tag"}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    for end in range(at + 1, min(at + 10, len(data)) + 1):
        if data[end - 1] < 0x80:
            return sum((byte & 0x7F) << 7 * i for i, byte in enumerate(data[at:end])) % 2**64, end
    raise DecodeError("cut short, or longer than ten bytes")


def _written(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + _written(value >> 7)


def as_java_reads(data: bytes, kind: str = "AggregatedRecord") -> bytes:
    """The message with its varints as Java takes them: tags and lengths are their low 32 bits, values
    their low 64. Raises DecodeError for field number 0, which the C runtime takes inside a group."""
    out = bytearray()
    at = groups = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire_type = tag % 2**32 >> 3, tag & 7
        if number == 0:
            raise DecodeError("field number 0")
        out += _written(tag % 2**32)
        groups += (wire_type == 3) - (wire_type == 4)
        if wire_type == 0:
            value, at = _varint(data, at)
            out += _written(value)
        elif wire_type == 2:
            size, at = _varint(data, at)
            if size % 2**32 > len(data) - at:
                raise DecodeError("longer than its surroundings")
            inner, at = data[at : at + size % 2**32], at + size % 2**32
            if not groups and (kind, number) in _KINDS:
                inner = as_java_reads(inner, _KINDS[kind, number])
            out += _written(len(inner)) + inner
        elif wire_type in (1, 5):
            size = 8 if wire_type == 1 else 4
            out += data[at : at + size]
            at += size
    return bytes(out)


def read(message: bytes) -> Any:
    """The message as Java's protobuf has it, or None where that refuses it."""
    try:
        parsed = AGGREGATED_RECORD.FromString(as_java_reads(message))
    except DecodeError:
        return None
    return parsed if parsed.IsInitialized() else None


class Delivered(NamedTuple):
    """``raw``: the Kinesis record unopened. Else ``user_records`` (partition key, data, explicit hash
    key), and how many were ``dropped`` for which ``reason``."""

    raw: bool
    user_records: list[tuple[str, bytes, str | None]]
    dropped: int = 0
    reason: str | None = None


def java_text(data: bytes) -> str:
    """KCL-6: U+FFFD for what is no UTF-8, one for an encoded surrogate, whole or cut."""
    text = ""
    while data:
        try:
            return text + data.decode("utf-8")
        except UnicodeDecodeError as error:
            text += data[: error.start].decode("utf-8") + "\ufffd"
            bad, data = data[error.start : error.end], data[error.start :]
            surrogate = data[0] == 0xED and data[1:2] and 0xA0 <= data[1] <= 0xBF
            if surrogate:
                data = data[3:] if data[2:3] and 0x80 <= data[2] <= 0xBF else data[2:]
            else:
                data = data[len(bad) :]
    return text


def java_int(value: int) -> int:
    """Cast to a Java int: the low 32 bits, signed."""
    value %= 2**32
    return value - 2**32 if value >= 2**31 else value


def deliver(data: bytes, start: int = 0, end: int = 2**128 - 1) -> Delivered:
    """What a KCL consumer of the shard with hash keys ``start`` to ``end`` gets."""
    raw = Delivered(True, [])
    if data[:4] != MAGIC or len(data) <= 20 or hashlib.md5(data[4:-16]).digest() != data[-16:]:
        return raw  # KCL-1
    parsed = read(data[4:-16])
    if parsed is None:
        return raw  # KCL-1
    partition_keys = [java_text(key) for key in parsed.partition_key_table]
    explicit_hash_keys = [java_text(key) for key in parsed.explicit_hash_key_table]
    total = len(parsed.records)
    delivered: list[tuple[str, bytes, str | None]] = []
    for record in parsed.records:
        index = java_int(record.partition_key_index)
        if not 0 <= index < len(partition_keys):
            return Delivered(False, delivered, total - len(delivered), "index-out-of-table")  # KCL-3
        partition_key, explicit_hash_key = partition_keys[index], None
        if record.HasField("explicit_hash_key_index"):
            index = java_int(record.explicit_hash_key_index)
            if not 0 <= index < len(explicit_hash_keys):
                return Delivered(False, delivered, total - len(delivered), "index-out-of-table")  # KCL-3
            explicit_hash_key = explicit_hash_keys[index]
            if big_integer(explicit_hash_key) is None:
                return Delivered(False, delivered, total - len(delivered), "hash-key")  # KCL-3
        if not start <= effective_hash_key(partition_key, explicit_hash_key) <= end:
            return Delivered(False, [], total, "out-of-range")  # KCL-4
        delivered.append((partition_key, record.data, explicit_hash_key))
    return Delivered(False, delivered, 0, None if total else "no-user-records")  # KCL-2
