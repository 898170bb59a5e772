"""What the KCL delivers, by our code and by the executable spec, against the KCL itself (`tests/kcl`).

Each frame is on a shard whose range is not known, all hash keys, a half of them, or one that ends beside a
hash key of the frame.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import kpl_codec as kpl
from spec.reference import kcl as reference
from spec.reference.model import effective_hash_key
from tests.kcl.real_kcl import RealKcl, UserRecord

from . import corpus
from .invariants import field, frame, varint

#: The last hash key.
LAST = 2**128 - 1


def varints(value: int) -> list[bytes]:
    """``value`` as it is, padded, with bits that 32 or 64 bits do not hold, and too long."""
    higher = [varint(value | 1 << bit) for bit in (29, 31, 32, 33, 35, 63, 64, 69)]
    return [varint(value), varint(value, 2), varint(value, 10), *higher, varint(value, 11)]


def odd_fields() -> Iterator[bytes]:
    """Fields of every number and wire type that mean something, whole and cut, in every spelling."""
    content = {0: b"\x00", 1: b"12345678", 2: b"\x01a", 3: b"\x08\x01", 5: b"1234"}
    for number in (0, 1, 2, 3, 4, 5, 15):
        for wire_type in range(8):
            for tag in varints(number << 3 | wire_type):
                inner = content.get(wire_type, b"")
                yield tag + inner
                if wire_type == 3:
                    yield from (tag + inner + end for end in varints(number << 3 | 4))
                    yield tag + inner + varint((number ^ 1) << 3 | 4)
                    yield tag + inner
        yield from (varint(number << 3) + value for value in varints(0))
        yield from (varint(number << 3 | 2) + size + b"a" for size in varints(1))
    yield from (tag + b"\x00" for tag in map(varint, (2**29 - 8, 2**32 - 8, 2**32, 2**32 + 8)))


def placed() -> Iterator[bytes]:
    """Every odd field at every place: before, between and behind the fields of the message, of a user
    record and of a tag, and inside groups and unknown fields of each."""
    key, record, tag = b"\x0a\x01a", b"\x08\x00\x1a\x01x", b"\x0a\x01k\x12\x01v"
    for odd in odd_fields():
        in_record: list[bytes] = [odd]
        in_tag: list[bytes] = [odd]
        for around in (b"\x2b%b\x2c", b"\x1b%b\x1c", b"\x2b\x33%b\x34\x2c", b"\x2b\x08\x01%b\x2c"):
            in_record.append(around % odd)
            in_tag.append(around % odd)
        in_record.append(field(0x2A, odd))
        for inner in in_tag:
            in_record += [field(0x22, inner + tag), field(0x22, tag + inner)]
        for inner in in_record:
            yield key + field(0x1A, inner + record)
            yield key + field(0x1A, record + inner)
            yield key + inner + field(0x1A, record)
            yield inner + key + field(0x1A, record)
            yield key + field(0x1A, record) + inner


def a_range(data: bytes, chance: random.Random) -> kpl.HashKeyRange | None:
    """A shard's range: not known, all, a half, or one that ends at a hash key of the frame or beside it."""
    kind = chance.randrange(5)
    if kind == 0:
        return None
    keys = [(row.partition_key, row.explicit_hash_key) for row in by_policy(data, None) if row.aggregated]
    if kind in (1, 2) or not keys:
        return kpl.HashKeyRange(*chance.choice([(0, LAST), (0, LAST // 2), (LAST // 2 + 1, LAST)]))
    end = min(max(effective_hash_key(*chance.choice(keys)) + chance.choice([-1, 0, 1]), 0), LAST)
    return kpl.HashKeyRange(*((0, end) if kind == 3 else (end, LAST)))


def by_policy(data: bytes, hash_key_range: kpl.HashKeyRange | None) -> list[UserRecord]:
    """What the policy "kcl" delivers."""
    record = kpl.KinesisRecord("outer", data, "1")
    return [
        UserRecord(
            row.aggregated, row.sub_sequence_number, row.partition_key or "", row.explicit_hash_key, row.data
        )
        for row in kpl.deaggregate([record], "kcl", hash_key_range=hash_key_range)
    ]


def by_executable_spec(data: bytes, hash_key_range: kpl.HashKeyRange | None) -> list[UserRecord]:
    """What `spec.reference.kcl` delivers."""
    shard = hash_key_range or kpl.HashKeyRange(0, LAST)
    delivered = reference.deliver(data, shard.starting_hash_key, shard.ending_hash_key)
    if delivered.raw:
        return [UserRecord(False, 0, "outer", None, data)]
    return [
        UserRecord(True, number, key, explicit_hash_key, content)
        for number, (key, content, explicit_hash_key) in enumerate(delivered.user_records)
    ]


def differences(kcl: RealKcl, data: bytes, hash_key_range: kpl.HashKeyRange | None) -> list[str]:
    """Who says something else than the KCL of ``data``, and what."""
    truth = kcl.deaggregate(data, hash_key_range)
    found = [
        f"{ours.__name__}: {ours(data, hash_key_range)}"
        for ours in (by_policy, by_executable_spec)
        if ours(data, hash_key_range) != truth
    ]
    explained = kpl.explain(data, hash_key_range=hash_key_range).kcl
    if (explained.raw, explained.delivered) != (not all(row.aggregated for row in truth), len(truth)):
        found.append(f"explain: {explained}")
    return [f"{data.hex()} in {hash_key_range}\n  the KCL: {truth}\n  {one}" for one in found]


def frames(chance: random.Random, count: int) -> Iterator[bytes]:
    """Of the vectors, all of them first, then damaged ones: their messages, or the data as it is."""
    seeds = sorted({seed for seed in corpus.frames() if len(seed) < 3000})
    yield from map(_data, seeds[:count])
    for _ in range(count - len(seeds)):
        yield _data(corpus.damaged(seeds, chance))


def _data(seed: bytes) -> bytes:
    return frame(seed[1:]) if seed[:1] == corpus.MESSAGE else seed[1:]


def compare(kcl: RealKcl, datas: Iterable[bytes], chance: random.Random) -> tuple[int, int, list[str]]:
    """How many there were, how many of them the KCL opened, and all differences."""
    asked = opened = 0
    found: list[str] = []
    for data in datas:
        hash_key_range = a_range(data, chance)
        asked += 1
        opened += any(row.aggregated for row in kcl.deaggregate(data, hash_key_range))
        found += differences(kcl, data, hash_key_range)
    return asked, opened, found
