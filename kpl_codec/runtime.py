"""A sound message through protobuf's runtime: the quick parser where nothing is compiled.

Says None whenever it is not certain. Certain is: protobuf accepts it, required fields are there,
re-encoding what was understood gives as many bytes as came in (so there were no unknown fields, no
known field in another wire type, no field twice, no varint longer than need be), every key is one,
every index is inside its table, and there is at least one user record.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from google.protobuf.message import DecodeError, EncodeError

from .errors import HashKeyError
from .hash_keys import explicit_hash_key_value
from .limits import MAX_HASH_KEY, MAX_PARTITION_KEY_LENGTH
from .records import Tag
from .schema import ABSENT, OUTLINE, PLAIN, TAGGED, UNTAGGED

#: What AggregatedRecord is made of, in its order.
Parts = tuple[Any, ...]

_ABSENT_ON_THE_WIRE = b"\xff" * 9 + b"\x01"
# One pass a field: a tuple a user record would keep the garbage collector busy.
_PARTITION_KEY_INDEX = attrgetter("partition_key_index")
_EXPLICIT_HASH_KEY_INDEX = attrgetter("explicit_hash_key_index")
_DATA = attrgetter("data")
_LARGEST = str(MAX_HASH_KEY)


def parse(message: bytes) -> Parts | None:
    """The parts of the AggregatedRecord in ``message``, or None: not certain."""
    # Most messages have neither explicit hash keys nor tags; each attribute asked for costs its time.
    return _parse(message, PLAIN) or _parse(message, UNTAGGED) or _parse(message, TAGGED)


def outline(message: bytes) -> tuple[tuple[str, ...], tuple[str, ...], list[int]] | None:
    """Both key tables and the sizes of the user records, which stand at the end; None: not certain."""
    try:
        parsed = OUTLINE.FromString(message)
        parsed.DiscardUnknownFields()
        # Written again it is the same: nothing unknown, tables first, every length in the fewest bytes.
        if parsed.SerializeToString() != message or not parsed.records:
            return None
    except (DecodeError, UnicodeError):
        return None
    partition_keys, explicit_hash_keys = (
        tuple(parsed.partition_key_table),
        tuple(parsed.explicit_hash_key_table),
    )
    if not are_keys(partition_keys) or not are_hash_keys(explicit_hash_keys):
        return None
    return partition_keys, explicit_hash_keys, list(map(len, parsed.records))


def _parse(message: bytes, message_class: Any) -> Parts | None:
    try:
        parsed = message_class.FromString(message)
        parsed.DiscardUnknownFields()
        if len(parsed.SerializeToString()) != len(message):  # refuses missing fields as well
            return None
    except (DecodeError, EncodeError, UnicodeError):  # the pure-Python runtime checks UTF-8 itself
        return None
    records = list(parsed.records)
    partition_keys = tuple(parsed.partition_key_table)
    if not records or not are_keys(partition_keys):
        return None
    explicit_hash_keys: tuple[str, ...] = ()
    explicit_hash_key_indices: list[int] | None = None
    partition_key_indices = list(map(_PARTITION_KEY_INDEX, records))
    if max(partition_key_indices) >= len(partition_keys):
        return None
    if message_class is not PLAIN:
        explicit_hash_keys = tuple(parsed.explicit_hash_key_table)
        # ABSENT on the wire is an index out of table that cannot be told from absence.
        if not are_hash_keys(explicit_hash_keys) or _ABSENT_ON_THE_WIRE in message:
            return None
        indices = list(map(_EXPLICIT_HASH_KEY_INDEX, records))
        if min(indices) != ABSENT:
            explicit_hash_key_indices = [-1 if i == ABSENT else i for i in indices]
            if max(explicit_hash_key_indices) >= len(explicit_hash_keys):
                return None
    tags = _tags(records) if message_class is TAGGED else None
    if message_class is TAGGED and tags is None:
        return None
    return (
        partition_keys,
        explicit_hash_keys,
        partition_key_indices,
        explicit_hash_key_indices,
        list(map(_DATA, records)),
        tags,
    )


def _tags(records: Any) -> list[tuple[Tag, ...]] | None:
    try:
        tags = [tuple(Tag(t.key, t.value if t.HasField("value") else None) for t in r.tags) for r in records]
    except UnicodeError:
        return None
    if any(isinstance(text, bytes) for row in tags for tag in row for text in tag):
        return None
    return tags


def are_keys(keys: tuple[Any, ...]) -> bool:
    """Whether all entries of a table as protobuf gives them are keys (MSG-8, MSG-9)."""
    # upb hands out bytes for what is not UTF-8
    return not keys or (set(map(type, keys)) == {str} and max(map(len, keys)) <= MAX_PARTITION_KEY_LENGTH)


def are_hash_keys(keys: tuple[Any, ...]) -> bool:
    """Whether all entries of a table as protobuf gives them are explicit hash keys (KEY-3)."""
    if not keys:
        return True
    if not are_keys(keys):
        return False
    digits = "".join(keys)
    if digits.isascii() and digits.isdigit() and min(map(len, keys)) and max(map(len, keys)) <= len(_LARGEST):
        # Digits of the same number compare as the numbers do.
        return max([key for key in keys if len(key) == len(_LARGEST)], default="") <= _LARGEST
    try:
        for key in keys:
            explicit_hash_key_value(key)
    except HashKeyError:
        return False
    return True
