"""Hypothesis strategies for user records and aggregates, sound and defective."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from typing import NamedTuple

from hypothesis import strategies as st

from ...base.values import Value
from ...format.limits import MAGIC, MAX_HASH_KEY
from ...format.records import Tag, UserRecord

_TEXT = st.characters(exclude_categories=["Cs"])


def partition_keys() -> st.SearchStrategy[str]:
    """Partition keys Kinesis takes: 1 to 256 characters; few different ones, so that they repeat."""
    return (
        st.sampled_from("abcd")
        | st.text(_TEXT, min_size=1, max_size=20)
        | st.text(_TEXT, min_size=250, max_size=256)
    )


def hash_keys() -> st.SearchStrategy[int]:
    """Hash keys, 0 to 2^128 - 1, their ends and middle often."""
    return st.sampled_from([0, 1, MAX_HASH_KEY // 2, MAX_HASH_KEY // 2 + 1, MAX_HASH_KEY]) | st.integers(
        0, MAX_HASH_KEY
    )


def explicit_hash_keys() -> st.SearchStrategy[str]:
    """Explicit hash keys as AWS takes them: canonical decimal."""
    return hash_keys().map(str)


def tags() -> st.SearchStrategy[tuple[Tag, ...]]:
    """Tags of a user record: none, or up to three."""
    text = st.text(_TEXT, max_size=8)
    return st.just(()) | st.lists(st.builds(Tag, text, st.none() | text), max_size=3).map(tuple)


def user_records(
    *,
    keys: st.SearchStrategy[str] | None = None,
    data: st.SearchStrategy[bytes] | None = None,
    with_tags: bool = True,
) -> st.SearchStrategy[UserRecord]:
    """User records that may be written. Half of them have an explicit hash key."""
    return st.builds(
        UserRecord,
        partition_keys() if keys is None else keys,
        st.binary(max_size=200) if data is None else data,
        st.none() | explicit_hash_keys(),
        tags() if with_tags else st.just(()),
    )


def _varint(value: int, length: int = 1) -> bytes:
    """``value`` as a varint of at least ``length`` bytes (1 to 10)."""
    out = bytearray()
    while value >= 0x80 or len(out) + 1 < length:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, value: int | bytes, length: int = 1) -> bytes:
    """A varint or length-delimited field; its varints have at least ``length`` bytes."""
    if isinstance(value, int):
        return _varint(number << 3, length) + _varint(value, length)
    return _varint(number << 3 | 2, length) + _varint(len(value), length) + value


def _frame(message: bytes) -> bytes:
    return MAGIC + message + hashlib.md5(message, usedforsecurity=False).digest()


class _Draft(NamedTuple):
    """An aggregate before it is bytes: the two tables, the fields of each user record, and more fields."""

    partition_keys: list[bytes]
    explicit_hash_keys: list[bytes]
    records: list[list[bytes]]
    rest: list[bytes]

    def frame(self) -> bytes:
        parts = [_field(1, key) for key in self.partition_keys]
        parts += [_field(2, key) for key in self.explicit_hash_keys]
        parts += [_field(3, b"".join(fields)) for fields in self.records]
        return _frame(b"".join(parts + self.rest))


def _tag(tag: Tag) -> bytes:
    value = b"" if tag.value is None else _field(2, tag.value.encode())
    return _field(4, _field(1, tag.key.encode()) + value)


def _draft(records: tuple[UserRecord, ...]) -> _Draft:
    pks = list(dict.fromkeys(record.partition_key for record in records))
    ehks = list(dict.fromkeys(r.explicit_hash_key for r in records if r.explicit_hash_key is not None))
    rows = []
    for record in records:
        fields = [_field(1, pks.index(record.partition_key))]
        if record.explicit_hash_key is not None:
            fields.append(_field(2, ehks.index(record.explicit_hash_key)))
        rows.append([*fields, _field(3, record.data), *map(_tag, record.tags)])
    return _Draft([key.encode() for key in pks], [key.encode() for key in ehks], rows, [])


class Aggregate(Value):
    """User records, and the data of a Kinesis record that holds them."""

    user_records: tuple[UserRecord, ...]
    data: bytes


def _records(max_records: int, with_tags: bool) -> st.SearchStrategy[tuple[UserRecord, ...]]:
    return st.lists(user_records(with_tags=with_tags), min_size=1, max_size=max_records).map(tuple)


@st.composite
def aggregated_records(draw: st.DrawFn, *, max_records: int = 20, with_tags: bool = True) -> Aggregate:
    """Sound aggregates of 1 to ``max_records`` user records, byte for byte as the KPL writes them."""
    records = draw(_records(max_records, with_tags))
    return Aggregate(records, _draft(records).frame())


_UNKNOWN_FIELDS = st.sampled_from(
    [
        _field(15, 1),
        _field(16, b"unknown"),
        _varint(9 << 3 | 5) + b"1234",
        _varint(9 << 3 | 1) + b"12345678",
        _varint(9 << 3 | 3) + _field(1, 7) + _field(3, b"no user record") + _varint(9 << 3 | 4),
        _field(2**29 - 1, 2**64 - 1),
    ]
)


@st.composite
def non_canonical_records(draw: st.DrawFn, *, max_records: int = 10, with_tags: bool = True) -> Aggregate:
    """Sound aggregates in unusual but legal bytes: fields in any order, unknown fields, repeated scalars
    (the last one counts), long varints, unused and repeated table entries."""
    records = draw(_records(max_records, with_tags))
    draft = _draft(records)
    longer = st.integers(1, 4)

    def shuffle(fields: list[bytes], fixed: list[bytes]) -> list[bytes]:
        """``fields`` in any order, and ``fixed`` among them in their own."""
        marks = draw(st.permutations(fields + [b""] * len(fixed)))
        rest = iter(fixed)
        return [field or next(rest) for field in marks]

    # A spare entry at the front moves every index of its table by one.
    spare_pk, spare_ehk = draw(st.booleans()), draw(st.booleans())
    pks = [b"unused"] * spare_pk + draft.partition_keys
    ehks = [b"0"] * spare_ehk + draft.explicit_hash_keys
    rows = []
    for record in records:
        scalars = []
        pk_index = draft.partition_keys.index(record.partition_key.encode()) + spare_pk
        pk_field = _field(1, pk_index, draw(longer))
        first = _field(1, draw(st.integers(0, 2**64 - 1))) if draw(st.booleans()) else b""
        scalars.append(first + pk_field)
        if record.explicit_hash_key is not None:
            ehk_index = draft.explicit_hash_keys.index(record.explicit_hash_key.encode()) + spare_ehk
            scalars.append(_field(2, ehk_index, draw(longer)))
        first = _field(3, b"overwritten") if draw(st.booleans()) else b""
        scalars.append(first + _field(3, record.data, draw(longer)))
        scalars += draw(st.lists(_UNKNOWN_FIELDS, max_size=2))
        row = b"".join(shuffle(scalars, list(map(_tag, record.tags))))
        rows.append(_field(3, row, draw(longer)))
    # Entries and user records each keep their own order; the three lists interleave freely.
    lists = [[_field(1, key, draw(longer)) for key in pks], [_field(2, key) for key in ehks], rows]
    lists.append(draw(st.lists(_UNKNOWN_FIELDS, max_size=2)))
    order = draw(st.permutations([i for i, fields in enumerate(lists) for _ in fields]))
    queues = [iter(fields) for fields in lists]
    return Aggregate(records, _frame(b"".join(next(queues[i]) for i in order)))


class DefectiveFrame(Value):
    """Data with exactly one defect: ``code`` is that of the error, ``record_index`` the user record it
    is in (None: the frame or a table). ``user_records``: those of the sound aggregate that was damaged."""

    code: str
    data: bytes
    record_index: int | None
    user_records: tuple[UserRecord, ...]


def _digest(draw: st.DrawFn, draft: _Draft, at: int) -> bytes:
    data = bytearray(draft.frame())
    data[draw(st.integers(4, len(data) - 1))] ^= draw(st.integers(1, 255))
    return bytes(data)


def _add(place: str, *odd: bytes) -> Callable[..., bytes]:
    """One of ``odd`` more at the end of a place: "record", or a list of the draft. (No user record uses an
    entry that is more in a table.)"""

    def breaks(draw: st.DrawFn, draft: _Draft, at: int) -> bytes:
        fields = draft.records[at] if place == "record" else getattr(draft, place)
        fields.append(draw(st.sampled_from(odd)))
        return draft.frame()

    return breaks


def _without(number: int) -> Callable[..., bytes]:
    def breaks(draw: st.DrawFn, draft: _Draft, at: int) -> bytes:
        draft.records[at] = [field for field in draft.records[at] if field[0] >> 3 != number]
        return draft.frame()

    return breaks


def _index(number: int, table: str) -> Callable[..., bytes]:
    def breaks(draw: st.DrawFn, draft: _Draft, at: int) -> bytes:
        size = len(getattr(draft, table))
        odd = (_field(number, index) for index in (size, size + 1, 2**31, 2**32, 2**63, 2**64 - 1))
        return _add("record", *odd)(draw, draft, at)

    return breaks


def _no_records(draw: st.DrawFn, draft: _Draft, at: int) -> bytes:
    draft.records.clear()
    return draft.frame()


def _no_hash_key(draw: st.DrawFn, draft: _Draft, at: int) -> bytes:
    draft.records[at].append(_field(2, len(draft.explicit_hash_keys)))
    return _add("explicit_hash_keys", *_BROKEN_HASH_KEYS)(draw, draft, at)


_BROKEN_UTF_8 = [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80"]
_BROKEN_HASH_KEYS = [b"", b"abc", b" 5", b"5.0", b"0x10", b"-1", str(2**128).encode()]

#: Every defect: its error code, whether it lies in one user record, and how to make it.
DEFECTS: dict[str, tuple[str, bool, Callable[..., bytes]]] = {
    "digest": ("checksum-mismatch", False, _digest),
    "truncated field": ("truncated", False, _add("rest", b"\x2a\x05abc")),
    "truncated varint": ("truncated", False, _add("rest", b"\x28\xff")),
    "varint of 11 bytes": ("varint-too-long", False, _add("rest", b"\x28" + b"\x80" * 10 + b"\x01")),
    "varint beyond 64 bits": ("varint-overflow", False, _add("rest", b"\x28" + b"\xff" * 9 + b"\x7f")),
    "index beyond 64 bits": ("varint-overflow", True, _add("record", b"\x08" + b"\xff" * 9 + b"\x7f")),
    "index beyond 64 bits, 0 if cut": (
        "varint-overflow",
        True,
        _add("record", b"\x08" + b"\x80" * 9 + b"\x02"),
    ),
    "field number above 29 bits": ("field-number", False, _add("rest", _varint(2**35 + (5 << 3)) + b"\x01")),
    "field number 0": ("field-number", False, _add("rest", b"\x00\x01")),
    "wire type 7": ("wire-type", False, _add("rest", b"\x2f")),
    "end tag alone": ("stray-end-group", False, _add("rest", b"\x2c")),
    "group without end": ("unterminated-group", False, _add("rest", b"\x2b\x28\x01")),
    "101 groups deep": ("too-deep", False, _add("rest", b"\x2b" * 101 + b"\x2c" * 101)),
    "records as a group": ("wrong-wire-type", False, _add("rest", b"\x1b\x08\x00\x1a\x01a\x1c")),
    "table entry as a varint": ("wrong-wire-type", False, _add("rest", b"\x08\x01")),
    "index as bytes": ("wrong-wire-type", True, _add("record", b"\x0a\x01\x00")),
    "data as a varint": ("wrong-wire-type", True, _add("record", b"\x18\x01")),
    "user record cut": ("truncated", True, _add("record", b"\x2a\x05abc")),
    "no partition_key_index": ("missing-field", True, _without(1)),
    "no data": ("missing-field", True, _without(3)),
    "tag without key": ("missing-field", True, _add("record", _field(4, _field(2, b"value")))),
    "partition_key_index out of table": ("index-out-of-table", True, _index(1, "partition_keys")),
    "explicit_hash_key_index out of table": ("index-out-of-table", True, _index(2, "explicit_hash_keys")),
    "partition key not UTF-8": ("key-utf-8", False, _add("partition_keys", *_BROKEN_UTF_8)),
    "explicit hash key not UTF-8": ("key-utf-8", False, _add("explicit_hash_keys", *_BROKEN_UTF_8)),
    "partition key too long": ("key-too-long", False, _add("partition_keys", b"k" * 257, "é".encode() * 300)),
    "explicit hash key no number": ("hash-key", False, _no_hash_key),
    "no user records": ("no-user-records", False, _no_records),
}


@st.composite
def defective_frames(
    draw: st.DrawFn, *, max_records: int = 5, names: Collection[str] = tuple(DEFECTS)
) -> DefectiveFrame:
    """Aggregates that were sound before one thing was broken: one of ``names``, keys of `DEFECTS`."""
    records = draw(_records(max_records, with_tags=False))
    name = draw(st.sampled_from(list(names)))
    code, in_record, breaks = DEFECTS[name]
    at = draw(st.integers(0, len(records) - 1))
    return DefectiveFrame(code, breaks(draw, _draft(records), at), at if in_record else None, records)


def plain_data() -> st.SearchStrategy[bytes]:
    """Data of plain records: anything without the magic, and the magic with too little behind it."""
    return st.binary(max_size=200).filter(lambda data: data[:4] != MAGIC) | st.binary(max_size=16).map(
        lambda data: MAGIC + data
    )
