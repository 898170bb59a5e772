"""The proto2 message of spec/kpl.proto, in a descriptor pool of its own.

There is no generated code: that would refuse older protobuf runtimes, and its names would clash with those of
aws_kinesis_agg in the default pool. `MESSAGE` is kpl.proto with one change: ``explicit_hash_key_index`` has
the default 2^64 - 1, which is outside every table. This does not change the bytes, and no presence check per
record is needed.

`COLUMNS` parses the same bytes under another schema, for speed: it reads all ``records`` as parts of one
message. protobuf merges the parts, so the repeated fields hold the indices and the data of all user records,
but not which user record each came from.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

#: `explicit_hash_key_index` where it is absent: 2^64 - 1.
ABSENT = 2**64 - 1

_PACKAGE = "kpl_codec"
_Field = descriptor_pb2.FieldDescriptorProto


_OPTIONAL, _REQUIRED, _REPEATED = _Field.LABEL_OPTIONAL, _Field.LABEL_REQUIRED, _Field.LABEL_REPEATED


def _build(name: str, records: tuple[Any, ...], **messages: list[tuple[Any, ...]]) -> Any:
    """The class of AggregatedRecord with the field ``records`` and the other ``messages`` it needs.

    A field: number, name, label, type or name of a message, optional default.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name=f"kpl_codec/{name}.proto", package=_PACKAGE, syntax="proto2"
    )
    messages["AggregatedRecord"] = [
        (1, "partition_key_table", _REPEATED, _Field.TYPE_STRING),
        (2, "explicit_hash_key_table", _REPEATED, _Field.TYPE_STRING),
        records,
    ]
    for message_name, fields in messages.items():
        descriptor = file.message_type.add(name=message_name)
        for number, field_name, label, kind, *default in fields:
            field = descriptor.field.add(name=field_name, number=number, label=label)
            if isinstance(kind, str):
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = kind
            if default:
                field.default_value = default[0]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.AggregatedRecord"))


#: The message class of kpl.proto.
MESSAGE: Any = _build(
    "message",
    (3, "records", _REPEATED, "Record"),
    Tag=[
        (1, "key", _REQUIRED, _Field.TYPE_STRING),
        (2, "value", _OPTIONAL, _Field.TYPE_STRING),
    ],
    Record=[
        (1, "partition_key_index", _REQUIRED, _Field.TYPE_UINT64),
        (2, "explicit_hash_key_index", _OPTIONAL, _Field.TYPE_UINT64, str(ABSENT)),
        (3, "data", _REQUIRED, _Field.TYPE_BYTES),
        (4, "tags", _REPEATED, "Tag"),
    ],
)
#: All user records as one message.
COLUMNS: Any = _build(
    "columns",
    (3, "records", _OPTIONAL, "Columns"),
    Columns=[
        (1, "partition_key_index", _REPEATED, _Field.TYPE_UINT64),
        (2, "explicit_hash_key_index", _REPEATED, _Field.TYPE_UINT64),
        (3, "data", _REPEATED, _Field.TYPE_BYTES),
        (4, "tags", _REPEATED, _Field.TYPE_BYTES),
    ],
)
