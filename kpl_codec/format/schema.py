"""The proto2 message of spec/kpl.proto, built into a descriptor pool of our own.

No generated code: that refuses older protobuf runtimes, and its names clash with aws_kinesis_agg's in
the default pool. `MESSAGE` is kpl.proto, but for a default of ``explicit_hash_key_index`` that no table
can hold (2^64 - 1): it cannot be seen on the wire, and "absent" costs no question per record.

`COLUMNS` parses the same bytes under another schema, for speed: it takes all ``records`` for one message
that comes in parts. Parts are merged, so that its repeated fields hold the indices and the data of all
user records. It does not tell which user record each came from.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

#: What `explicit_hash_key_index` reads as when it is absent: 2^64 - 1.
ABSENT = 2**64 - 1

_PACKAGE = "kpl_codec"
_Field = descriptor_pb2.FieldDescriptorProto


_OPTIONAL, _REQUIRED, _REPEATED = _Field.LABEL_OPTIONAL, _Field.LABEL_REQUIRED, _Field.LABEL_REPEATED


def _build(name: str, records: tuple[Any, ...], **messages: list[tuple[Any, ...]]) -> Any:
    """The class of AggregatedRecord with the field ``records`` and the other ``messages`` it needs.

    A field: number, name, label, type or name of a message, and perhaps its default.
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
#: All user records as one.
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
