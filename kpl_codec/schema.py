"""The proto2 message of spec/kpl.proto, built into a descriptor pool of our own.

No generated code: that refuses older protobuf runtimes, and its names clash with aws_kinesis_agg's in
the default pool. Two departures from the text of kpl.proto, neither visible on the wire:

* ``explicit_hash_key_index`` has a default that no table can hold (2^64 - 1), so that "absent" costs
  no question per record;
* `UNTAGGED` lacks ``tags``, which no known producer but aiokpl writes, and `PLAIN` lacks explicit hash
  keys as well: reading without them is quicker, and runtime.py notices when there were some.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

#: What `explicit_hash_key_index` reads as when it is absent: 2^64 - 1.
ABSENT = 2**64 - 1

_PACKAGE = "kpl_codec"
_Field = descriptor_pb2.FieldDescriptorProto


def _file(name: str, *, hash_keys: bool, tags: bool) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name=f"kpl_codec/{name}.proto", package=_PACKAGE, syntax="proto2"
    )

    def message(message_name: str, *fields: tuple[Any, ...]) -> None:
        descriptor = file.message_type.add(name=message_name)
        for number, field_name, label, kind, default in fields:
            field = descriptor.field.add(name=field_name, number=number, label=label)
            if isinstance(kind, str):
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = kind
            if default is not None:
                field.default_value = default

    optional, required, repeated = _Field.LABEL_OPTIONAL, _Field.LABEL_REQUIRED, _Field.LABEL_REPEATED
    record: list[tuple[Any, ...]] = [
        (1, "partition_key_index", required, _Field.TYPE_UINT64, None),
        (3, "data", required, _Field.TYPE_BYTES, None),
    ]
    tables: list[tuple[Any, ...]] = [
        (1, "partition_key_table", repeated, _Field.TYPE_STRING, None),
        (3, "records", repeated, "Record", None),
    ]
    if hash_keys:
        record.append((2, "explicit_hash_key_index", optional, _Field.TYPE_UINT64, str(ABSENT)))
        tables.append((2, "explicit_hash_key_table", repeated, _Field.TYPE_STRING, None))
    if tags:
        message(
            "Tag",
            (1, "key", required, _Field.TYPE_STRING, None),
            (2, "value", optional, _Field.TYPE_STRING, None),
        )
        record.append((4, "tags", repeated, "Tag", None))
    message("Record", *record)
    message("AggregatedRecord", *tables)
    return file


def _build(name: str, *, hash_keys: bool, tags: bool) -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file(name, hash_keys=hash_keys, tags=tags))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.AggregatedRecord"))


#: Message class with every field of kpl.proto.
TAGGED: Any = _build("tagged", hash_keys=True, tags=True)
#: The same without Record.tags.
UNTAGGED: Any = _build("untagged", hash_keys=True, tags=False)
#: The same without explicit hash keys: neither their table nor their indices.
PLAIN: Any = _build("plain", hash_keys=False, tags=False)


def _outline() -> Any:
    file = _file("outline", hash_keys=True, tags=False)
    records = next(field for field in file.message_type[-1].field if field.name == "records")
    records.type = _Field.TYPE_BYTES
    records.ClearField("type_name")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.AggregatedRecord"))


#: The same with each user record left as bytes.
OUTLINE: Any = _outline()
