"""UserRecord, Tag, KinesisRecord, and the rule for user records that may be written (ENC-1)."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..base.arguments import argument_error
from ..base.values import Value
from ..errors import EncodeError, HashKeyError
from .hash_keys import format_hash_key, is_canonical
from .limits import MAX_HASH_KEY, MAX_PARTITION_KEY_LENGTH


def short(value: object) -> str:
    """A str or bytes cut to its first 8 items, with their number; others whole."""
    if isinstance(value, (str, bytes)) and len(value) > 12:
        return f"{value[:8]!r}... of {len(value)}"
    return "{...}" if isinstance(value, Mapping) else repr(value)


def shown_fields(record: Any) -> dict[str, str]:
    """The fields that are not None or empty, as text; keys and data are cut short."""
    return {
        name: (short if name in _CUT else repr)(value)
        for name in record.__match_args__
        if (value := getattr(record, name)) not in (None, ())
    }


def short_fields(record: Any) -> str:
    fields = (f"{name}={text}" for name, text in shown_fields(record).items())
    return f"{type(record).__name__}({', '.join(fields)})"


#: Fields that may hold an application's data, which `repr` cuts short.
_CUT = {"partition_key", "partition_keys", "explicit_hash_key", "data", "key", "value", "event_record"}


class Tag(Value):
    """A tag of a user record: its name, and its value, None if it has none. The KPL and the KCL define tags
    but never read or write them."""

    key: str
    value: str | None = None

    def __repr__(self) -> str:
        return short_fields(self)


def _hash_key_text(number: int) -> str:
    try:
        return format_hash_key(number)
    except HashKeyError:
        raise EncodeError(code="explicit-hash-key", field="explicit_hash_key") from None


class UserRecord(Value, from_int=("explicit_hash_key", _hash_key_text)):
    """What an application puts: a partition key (1 to 256 characters), data as bytes, perhaps an explicit
    hash key (decimal text; None: the MD5 of the partition key decides) and tags, which no consumer reads. The
    constructor takes ``explicit_hash_key`` as a number, too, and raises EncodeError for one that is not from
    0 to 2^128 - 1."""

    partition_key: str
    data: bytes
    explicit_hash_key: str | None = None
    tags: tuple[Tag, ...] = ()

    if TYPE_CHECKING:

        def __init__(
            self,
            partition_key: str,
            data: bytes,
            explicit_hash_key: str | int | None = None,
            tags: tuple[Tag, ...] = (),
        ) -> None: ...

    def __repr__(self) -> str:
        return short_fields(self)


Opener = Literal["kcl", "other"]
"""Who has opened an aggregated record: the KCL, or Firehose, aws_kinesis_agg and others."""


class OpenedBefore(Value):
    """What is known of a Kinesis record that somebody else has opened. ``by``: who. ``marked``: whether its
    source calls it aggregated. ``user_records``: those of it that are here, each with its sub-sequence number
    (None if it has none), its partition key and its explicit hash key."""

    by: Opener
    marked: bool
    user_records: tuple[tuple[int | None, str | None, str | None], ...]

    def __repr__(self) -> str:
        here = len(self.user_records)
        return f"OpenedBefore(by={self.by!r}, marked={self.marked}, user_records=<{here}>)"

    @property
    def aggregated(self) -> bool:
        """Whether it was an aggregated record. A plain record has the sub-sequence number 0, too."""
        return self.marked or any(sub for sub, _, _ in self.user_records)

    @property
    def whole(self) -> bool:
        """Whether no user record is seen to be missing: their numbers count from 0 without a gap."""
        numbers = {sub for sub, _, _ in self.user_records}
        return None not in numbers and len(numbers) == 1 + max(filter(None, numbers), default=0)


class KinesisRecord(Value):
    """A record of a stream as GetRecords returns it, aggregated or plain.

    ``partition_key``: None on a stream that distributes records AUTO. ``explicit_hash_key``: None from every
    call that reads. ``sub_sequence_number``: of a user record that the KCL or Firehose has deaggregated; it
    is not opened again, whatever its data looks like. ``record_id``: from a queue, whose records have no
    shard and no sequence number. ``stream``: the ARN of its stream, or its name; None where the source does
    not say it. `deaggregate` judges no record by the shard map of another stream. ``opened_before``: of such
    a user record, what `kpl_codec.adapters` has read of its Kinesis record; None where nothing is known.
    """

    partition_key: str | None
    data: bytes
    sequence_number: str | None = None
    shard_id: str | None = None
    approximate_arrival_timestamp: datetime | None = None
    explicit_hash_key: str | None = None
    sub_sequence_number: int | None = None
    record_id: str | None = None
    stream: str | None = None
    opened_before: OpenedBefore | None = None

    def __repr__(self) -> str:
        return short_fields(self)


def same_content(one: KinesisRecord, other: KinesisRecord) -> bool:
    """Whether two records of one name (shard, sequence number, sub-sequence number) are copies."""
    # LIN-12: "Records of one shard, sequence number and sub-sequence number MUST be taken for copies only if
    # their data are the same, and their keys as far as both are known; else they MUST be an error."
    keys = (
        (one.partition_key, other.partition_key),
        (one.explicit_hash_key, other.explicit_hash_key),
    )
    return one.data == other.data and not any(a != b for a, b in keys if a is not None and b is not None)


def opened_before(
    by: Opener, marked: bool, sub: int | None, partition_key: str | None, explicit_hash_key: str | None
) -> OpenedBefore | None:
    """What one user record by itself shows; None for a Kinesis record that nobody has opened."""
    if sub is None and not marked:
        return None
    return OpenedBefore(by, marked, ((sub, partition_key, explicit_hash_key),))


def own_number(record: KinesisRecord) -> int | None:
    """Its sub-sequence number; None for -1, too, as CAP-32 has it. Raises ValueError for what is none."""
    sub: Any = record.sub_sequence_number
    if sub is None or sub == -1:
        return None
    # CAP-32: "another number below 0, and what is no number, MUST be refused."
    if isinstance(sub, bool) or not hasattr(type(sub), "__index__") or not 0 <= sub < 1 << 63:
        give = "give a number from 0 to 2^63 - 1, or None"
        raise ValueError(f"sub_sequence_number of a KinesisRecord is {sub!r:.40}, {give}")
    return int(sub)


def opening_of(record: KinesisRecord) -> OpenedBefore | None:
    """Its ``opened_before``, or what its own fields show. Raises ValueError as `own_number` does."""
    if record.opened_before is not None or record.sub_sequence_number is None:
        return record.opened_before
    return opened_before("other", False, own_number(record), record.partition_key, record.explicit_hash_key)


_Item = TypeVar("_Item")


def with_siblings(items: Iterable[_Item]) -> Iterator[_Item]:
    """``items`` in order; user records of one Kinesis record that stand one behind the other, opened before,
    learn of one another. Items that are no KinesisRecords pass."""
    # PLC-6: "User records that were opened before, and stand one behind the other with the same stream, shard
    # and sequence number, MUST be taken for those of one Kinesis record; it was an aggregated record if one
    # of them has a sub-sequence number above 0 or a mark that says so."
    run: list[Any] = []
    name: tuple[Any, ...] | None = None
    for item in items:
        if isinstance(item, KinesisRecord):
            own = None
            if item.sequence_number is not None and opening_of(item) is not None:
                own = item.stream, item.shard_id, item.sequence_number
            if own != name:
                yield from _joined(run)
                run, name = [], own
        if name is None:
            yield item
        else:
            run.append(item)
    yield from _joined(run)


def _joined(run: list[Any]) -> Iterator[Any]:
    """``run`` with what all of its KinesisRecords show of the one that they came in."""
    openings = [opening for item in run if isinstance(item, KinesisRecord) and (opening := opening_of(item))]
    joined = OpenedBefore(
        "kcl" if any(opening.by == "kcl" for opening in openings) else "other",
        any(opening.marked for opening in openings),
        tuple(dict.fromkeys(one for opening in openings for one in opening.user_records)),
    )
    for item in run:
        yield item.replace(opened_before=joined) if isinstance(item, KinesisRecord) else item


def as_kinesis_record(record: object) -> KinesisRecord:
    """Raises TypeError for anything but a KinesisRecord with bytes."""
    if isinstance(record, KinesisRecord):
        if type(record.data) is bytes:
            return record
        if isinstance(record.data, (bytes, bytearray, memoryview)):
            return record.replace(data=bytes(record.data))
    raise kinesis_record_type_error(record, "in one of its items")


def kinesis_record_type_error(value: object, at: str = "") -> Exception:
    """The error for an argument that is no iterable of KinesisRecords with bytes. ``at``: as of
    `argument_error`."""
    if isinstance(value, KinesisRecord) and not isinstance(value.data, bytes):
        data = type(value.data).__name__
        return TypeError(
            f"KinesisRecord.data must be bytes, got {data}: base64.b64decode decodes base64 text"
        )
    give = (
        "a list of KinesisRecords: kpl_codec.adapters.kinesis_records makes them from events, responses and "
        "captures; kpl_codec.aws_lambda.user_records reads an event"
    )
    return argument_error("deaggregate", "kinesis_records", value, give=give, at=at)


def user_record_type_error(item: object, index: int | None) -> TypeError:
    at = "" if index is None else f" at index {index}"
    hint = "kpl_codec.UserRecord(partition_key, data) makes one"
    return TypeError(f"expected UserRecord items, got {type(item).__name__}{at}: {hint}")


def check(record: UserRecord, record_index: int | None = None) -> None:
    """Raises EncodeError for a user record that must not be written, and TypeError for another type. Decoders
    accept more: an empty partition key, an explicit hash key "007"."""
    if type(record) is not UserRecord:
        raise user_record_type_error(record, record_index)
    key, data, explicit_hash_key, tags = record._values(record)
    got: str | None = None
    # ENC-1: "A user record MUST have a partition key of 1 to 256 code points that has a UTF-8 form,
    # and data in bytes; its explicit hash key, if any, MUST be canonical decimal from 0 to 2^128 - 1."
    if type(key) is not str:
        code, field, got = "partition-key-type", "partition_key", type(key).__name__
    elif not key:
        code, field = "partition-key-empty", "partition_key"
    elif len(key) > MAX_PARTITION_KEY_LENGTH:
        code, field, got = "partition-key-too-long", "partition_key", str(len(key))
    elif not (key.isascii() or _has_utf_8(key)):
        code, field = "partition-key-utf-8", "partition_key"
    elif type(data) is not bytes:
        code, field, got = "data-type", "data", type(data).__name__
    elif explicit_hash_key is not None and not (
        is_canonical(explicit_hash_key, 39) and int(explicit_hash_key) <= MAX_HASH_KEY
    ):
        code, field = "explicit-hash-key", "explicit_hash_key"
    elif tags and not (type(tags) in (tuple, list) and all(map(_is_tag, tags))):
        code, field = "tag", "tags"
    else:
        return
    raise EncodeError(code=code, field=field, record_index=record_index, got=got)


def _is_tag(tag: object) -> bool:
    return isinstance(tag, Tag) and _has_utf_8(tag.key, tag.value or "")


def _has_utf_8(*texts: str) -> bool:
    try:
        "".join(texts).encode()
    except (TypeError, UnicodeEncodeError):
        return False
    return True


def without_none(**fields: Any) -> dict[str, Any]:
    """The members of a JSON object or a response that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def record_from_response(
    record: Mapping[str, Any], shard_id: str, stream: str | None = None
) -> KinesisRecord:
    """A record of boto3's GetRecords, which names neither its shard nor its stream."""
    return KinesisRecord(
        record.get("PartitionKey"),
        bytes(record["Data"]),
        record["SequenceNumber"],
        shard_id,
        record.get("ApproximateArrivalTimestamp"),
        stream=stream,
    )
