"""Decodes aggregated records to user records, and encodes user records. `message.parse` decodes sound
messages fast; `wire.Message` finds the defects of all others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

from ..base.arguments import argument_error, check_arguments
from ..base.compiled import md5, prefer_compiled
from ..errors import AggregateFull, EncodeError
from . import frame, wire
from .limits import DIGEST_SIZE, FRAME_OVERHEAD
from .message import AggregatedRecord, field_size, parse, serialize, tag_bytes, varint_size
from .records import UserRecord, check, user_record_type_error


def is_aggregated(data: bytes | bytearray | memoryview) -> bool:
    """Whether consumers open ``data``: it begins with the magic, has more than 16 bytes after it, and ends in
    the right digest. Its message may still be defective: `decode` finds that. Raises TypeError if it is not
    bytes."""
    if type(data) is not bytes:
        data = as_bytes(data, "is_aggregated")
    return frame.looks_aggregated(data) and md5(data[4:-DIGEST_SIZE]) == data[-DIGEST_SIZE:]


def decode(data: bytes | bytearray | memoryview) -> AggregatedRecord:
    """The user records in ``data``, at least one, in order, strictly by spec/01-aggregated-record.md.

    Raises NotAggregated for a plain record, ChecksumMismatch for a broken frame, else the first defect in the
    order of the bytes (MalformedMessage, WrongWireType, MissingField, InvalidKey, InvalidHashKey,
    IndexOutOfTable, NoUserRecords), with its offset in ``data``. Raises TypeError for anything but
    bytes.
    """
    if type(data) is not bytes:
        data = as_bytes(data, "decode")
    parsed = parse(frame.split_frame(data))
    if parsed is not None:
        return parsed
    message = wire.Message(data)
    defect = message.first_defect()
    if defect is not None:
        raise defect
    return aggregated_record(message)


def as_bytes(data: object, function: str) -> bytes:
    """``data`` as bytes. Raises TypeError, which names ``function``, for anything that is not bytes."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    give = (
        "bytes: decode base64 text with base64.b64decode; "
        "kpl_codec.adapters.kinesis_records reads events and answers"
    )
    raise argument_error(function, "data", data, give=give)


def aggregated_record(message: wire.Message) -> AggregatedRecord:
    """The user records of a sound message."""
    pk_indices, ehk_indices, payloads, tags = [], [], [], []
    for record in message.records():
        pk_indices.append(record.partition_key_index or 0)
        ehk_indices.append(-1 if record.explicit_hash_key_index is None else record.explicit_hash_key_index)
        payloads.append(record.data or b"")
        tags.append(record.tags)
    return AggregatedRecord(
        tuple(key or "" for key in message.partition_keys),
        tuple(key or "" for key in message.explicit_hash_keys),
        pk_indices,
        ehk_indices if max(ehk_indices) >= 0 else None,
        payloads,
        tags if any(tags) else None,
    )


def encode(user_records: Iterable[UserRecord]) -> bytes:
    """One aggregated record of the given user records (at least one), in their order: the bytes that the KPL
    writes for them. Raises EncodeError for a user record that must not be written, and TypeError for another
    type, both with its index.

        >>> import kpl_codec as kpl
        >>> users = [kpl.UserRecord("customer-1", b"one"), kpl.UserRecord("customer-4", b"two")]
        >>> data = kpl.encode(users)
        >>> len(data), kpl.is_aggregated(data), kpl.is_aggregated(b"plain")
        (62, True, False)
        >>> [(record.partition_key, record.data) for record in kpl.decode(data)]
        [('customer-1', b'one'), ('customer-4', b'two')]

    A builder says before each user record whether it still fits:

        >>> builder = kpl.AggregatedRecordBuilder(max_size=60)
        >>> for number in range(5):
        ...     try:
        ...         builder.add(kpl.UserRecord("customer-1", b"data"))
        ...     except kpl.AggregateFull as full:
        ...         print(len(builder), builder.size, full.size)
        ...         break
        2 52 62
        >>> data = builder.build()
    """
    if isinstance(user_records, _NO_LIST) or not hasattr(user_records, "__iter__"):
        give = "a list of UserRecords: kpl_codec.encode([kpl_codec.UserRecord(key, data)])"
        raise argument_error("encode", "user_records", user_records, give=give)
    return _encode(user_records)


#: Iterable types that hold no UserRecords.
_NO_LIST = (UserRecord, Mapping, str, bytes, bytearray, memoryview)


def encode_in_python(user_records: Iterable[UserRecord]) -> bytes:
    records = list(user_records)
    for index, record in enumerate(records):
        check(record, index)
    return frame.join_frame(serialize(records))


_encode: Callable[..., bytes] = prefer_compiled("encode", encode_in_python)


def is_canonical(data: bytes) -> bool:
    """Whether `encode` would make the same bytes of the user records in ``data``. Raises DecodeError."""
    records = decode(data)
    try:
        return encode(records) == data
    except EncodeError:  # a user record that may be read but not written: explicit hash key "007"
        return False


class AggregatedRecordBuilder:
    """Collects user records up to ``max_size`` bytes of an aggregated record (None: no limit).

    ``add`` takes a user record whole, or raises and changes nothing: no user record gets lost between two
    aggregates. Threads may share a builder: compiled, they wait for each other; in pure Python, one of two
    that call it at the same moment gets RuntimeError.
    """

    def __init__(self, max_size: int | None = None) -> None:
        check_arguments("AggregatedRecordBuilder", {"max_size": max_size})
        self.max_size = max_size
        self._turn = [None]  # a lock: empty while a call changes the state; `pop` and `append` are atomic
        self.clear()

    def __len__(self) -> int:
        return len(self._records)

    @property
    def size(self) -> int:
        """Bytes that `build` would give now; 0 while there are no user records."""
        return self._size if self._records else 0

    def size_with(self, record: UserRecord) -> int:
        """The `size` with ``record`` added, whether or not it fits. Raises EncodeError."""
        check(record, len(self._records))
        key, data, explicit_hash_key, tags = record._values(record)
        after = self._size
        pk_index = self._partition_keys.get(key, len(self._partition_keys))
        if pk_index == len(self._partition_keys):
            after += field_size(len(key) if key.isascii() else len(key.encode()))
        inner = 1 + varint_size(pk_index) + field_size(len(data))
        if explicit_hash_key is not None:
            ehk_index = self._explicit_hash_keys.get(explicit_hash_key, len(self._explicit_hash_keys))
            if ehk_index == len(self._explicit_hash_keys):
                after += field_size(len(explicit_hash_key))  # one byte a digit
            inner += 1 + varint_size(ehk_index)
        return after + field_size(inner + sum(map(len, map(tag_bytes, tags))))

    def add(self, record: UserRecord) -> None:
        """Add ``record``. Raises EncodeError if it must not be written, AggregateFull if it does not fit."""
        if type(record) is not UserRecord:
            raise user_record_type_error(record, len(self))
        self._take_turn()
        try:
            after = self.size_with(record)
            # ENC-5: "A builder MUST take a user record whole or refuse it with an error that says so."
            if self.max_size is not None and after > self.max_size:
                count = len(self._records)
                raise AggregateFull(field="data", size=after, max_size=self.max_size, record_index=count)
            # ENC-6: "The size that a builder states for an aggregate MUST be the number of bytes that it
            # writes."
            self._size = after
            self._partition_keys.setdefault(record.partition_key, len(self._partition_keys))
            if record.explicit_hash_key is not None:
                self._explicit_hash_keys.setdefault(record.explicit_hash_key, len(self._explicit_hash_keys))
            self._records.append(record)
        finally:
            self._turn.append(None)

    def build(self) -> bytes:
        """The aggregated record of the user records. Raises EncodeError if there are none."""
        return frame.join_frame(serialize(self._records))

    def clear(self) -> list[UserRecord]:
        """Empty the builder. Returns its user records."""
        self._take_turn()
        records = getattr(self, "_records", [])
        self._records: list[UserRecord] = []
        self._size = FRAME_OVERHEAD
        self._partition_keys: dict[str, int] = {}
        self._explicit_hash_keys: dict[str, int] = {}
        self._turn.append(None)
        return records

    def __reduce__(self) -> NoReturn:
        raise TypeError("an AggregatedRecordBuilder cannot be copied or pickled: build() gives its bytes")

    def _take_turn(self) -> None:
        try:
            self._turn.pop()
        except IndexError:
            raise RuntimeError(
                "another add or clear of this AggregatedRecordBuilder is under way: nothing was changed; "
                "give each thread its own builder, or hold a lock"
            ) from None


#: The aggregated record of each builder; compiled code computes the MD5 digests in parallel.
build_many: Callable[[Iterable[AggregatedRecordBuilder]], list[bytes]] = prefer_compiled(
    "build_many", lambda builders: [builder.build() for builder in builders]
)


#: The `AggregatedRecordBuilder` that is used without the compiled extension.
PythonBuilder = AggregatedRecordBuilder
AggregatedRecordBuilder = prefer_compiled("AggregatedRecordBuilder", PythonBuilder)  # type: ignore[misc]
