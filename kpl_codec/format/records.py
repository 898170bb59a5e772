"""User record, tag, Kinesis record; which user records may be written (ENC-1). ``data`` is always ``bytes``.

A user record and a tag have the fields of the format's messages, which never get another: named tuples.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import EncodeError, HashKeyError
from ..lazy import repr_html
from ..limits import MAX_PARTITION_KEY_LENGTH
from ..values import Value
from .hash_keys import format_hash_key, parse_hash_key

if TYPE_CHECKING:
    from typing_extensions import Self


def short(value: object) -> str:
    """``value`` for people who look at a record: of a text or bytes no more than the first few."""
    if isinstance(value, (str, bytes)) and len(value) > 12:
        return f"{value[:8]!r}... of {len(value)}"
    return "{...}" if isinstance(value, Mapping) else repr(value)


def shown_fields(record: Any) -> dict[str, str]:
    """The fields of a record as text: keys and data are cut short; those without content are left out."""
    return {
        name: (short if name in _CUT else repr)(value)
        for name in record.__match_args__
        if (value := getattr(record, name)) not in (None, ())
    }


def short_fields(record: Any) -> str:
    """A ``__repr__`` for records."""
    fields = (f"{name}={text}" for name, text in shown_fields(record).items())
    return f"{type(record).__name__}({', '.join(fields)})"


#: Fields that may hold what an application put.
_CUT = {"partition_key", "partition_keys", "explicit_hash_key", "data", "key", "value", "event_record"}


class Tag(NamedTuple):
    """A tag of a user record. The KPL and the KCL define tags but never read or write them."""

    key: str
    value: str | None = None

    def __repr__(self) -> str:
        return short_fields(self)


class _Fields(NamedTuple):
    partition_key: str
    data: bytes
    explicit_hash_key: str | None
    tags: tuple[Tag, ...]


class UserRecord(_Fields):
    """What an application puts: a partition key (1 to 256 characters), data, rarely an explicit hash key or
    tags.

    ``explicit_hash_key`` is the text in the bytes; this library writes it as canonical decimal. It may be
    given as a number: then EncodeError is raised for one that is not from 0 to 2^128 - 1.
    """

    __slots__ = ()

    def __new__(
        cls,
        partition_key: str,
        data: bytes,
        explicit_hash_key: str | int | None = None,
        tags: tuple[Tag, ...] = (),
    ) -> "Self":
        if type(explicit_hash_key) is int:
            try:
                explicit_hash_key = format_hash_key(explicit_hash_key)
            except HashKeyError:
                raise EncodeError(code="explicit-hash-key", field="explicit_hash_key") from None
        return tuple.__new__(cls, (partition_key, data, explicit_hash_key, tags))

    def __repr__(self) -> str:
        return short_fields(self)


class KinesisRecord(Value):
    """One record of a stream as GetRecords gives it, aggregated or plain.

    ``partition_key`` is None where the service gives none (streams that distribute records AUTO).
    ``explicit_hash_key`` is known to producers only; no read call returns it.
    ``sub_sequence_number`` is known where the record was deaggregated before (by the KCL, by Firehose);
    then, also if it is 0, this is a user record, whatever its data looks like.
    ``record_id`` is what a queue gives: it names no shard and no sequence number.
    """

    partition_key: str | None
    data: bytes
    sequence_number: str | None = None
    shard_id: str | None = None
    approximate_arrival_timestamp: datetime | None = None
    explicit_hash_key: str | None = None
    sub_sequence_number: int | None = None
    record_id: str | None = None

    _repr_html_ = repr_html

    def __repr__(self) -> str:
        return short_fields(self)


def user_record_type_error(item: object, index: int | None) -> TypeError:
    """The error for an item that is no UserRecord; ``index``: its place in the list, from 0."""
    at = "" if index is None else f" at index {index}"
    made_by = "kpl_codec.UserRecord(partition_key, data) makes one"
    return TypeError(f"expected UserRecord items, got {type(item).__name__}{at}: {made_by}")


def check(record: UserRecord, record_index: int | None = None) -> None:
    """Raises EncodeError for a user record that must not be written, and TypeError for what is none, both
    with the index.

    Decoders accept more than this (an empty partition key, explicit hash key "007"). What this library
    writes, every consumer accepts.
    """
    if not isinstance(record, tuple) or len(record) != 4:
        raise user_record_type_error(record, record_index)
    key, data, explicit_hash_key, tags = record
    got: object = None
    # ENC-1: "A user record MUST have a partition key of 1 to 256 code points that has a UTF-8 form,
    # and data in bytes; its explicit hash key, if any, MUST be canonical decimal from 0 to 2^128 - 1."
    if type(key) is not str:
        code, field, got = "partition-key-type", "partition_key", type(key).__name__
    elif not key:
        code, field = "partition-key-empty", "partition_key"
    elif len(key) > MAX_PARTITION_KEY_LENGTH:
        code, field, got = "partition-key-too-long", "partition_key", len(key)
    elif not (key.isascii() or _has_utf_8(key)):
        code, field = "partition-key-utf-8", "partition_key"
    elif type(data) is not bytes:
        code, field, got = "data-type", "data", type(data).__name__
    elif explicit_hash_key is not None and not _is_canonical(explicit_hash_key):
        code, field = "explicit-hash-key", "explicit_hash_key"
    elif tags and not (type(tags) in (tuple, list) and all(map(_is_tag, tags))):
        code, field = "tag", "tags"
    else:
        return
    known = {} if got is None else {"got": str(got)}
    raise EncodeError(code=code, field=field, record_index=record_index, **known)


def _is_canonical(text: str) -> bool:
    try:
        parse_hash_key(text)
    except HashKeyError:
        return False
    return True


def _is_tag(tag: object) -> bool:
    return isinstance(tag, Tag) and _has_utf_8(tag.key, tag.value or "")


def _has_utf_8(*texts: str) -> bool:
    try:
        "".join(texts).encode()
    except (TypeError, UnicodeEncodeError):
        return False
    return True


def record_from_response(record: Mapping[str, Any], shard_id: str) -> KinesisRecord:
    """A record of boto3's own GetRecords answer, which does not name its shard. It is not checked again."""
    return KinesisRecord(
        record.get("PartitionKey"),
        bytes(record["Data"]),
        record["SequenceNumber"],
        shard_id,
        record.get("ApproximateArrivalTimestamp"),
    )
