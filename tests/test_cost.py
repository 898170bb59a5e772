"""What a sound message costs does not depend on how it is written.

Counted, not timed: the bytecodes that Python runs. Compiled code opens every sound message and runs none
for a user record; `quick_parse` runs a few times as many as for a plain message of the same size and count.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import pytest

import kpl_codec as kpl
from fuzz.invariants import field, frame
from kpl_codec.base.compiled import speedups
from kpl_codec.deaggregation.policy_rules import POLICIES
from kpl_codec.format.message import quick_parse

from .every import every
from .examples import share
from .steps import steps

Fields = list[bytes]


KEYS = [field(0x0A, b"key-%d" % i) for i in range(8)]
HASH_KEYS = [field(0x12, b"%d" % (i << 100)) for i in range(8)]
MIXED = b"".join([field(0x78, 1), field(0x7D, 0)[:1] + b"1234", field(0x79, 0)[:1] + b"12345678"])
GROUP = b"\x7b" + field(0x08, 7) + b"\x7c"


def user_record(i: int, *more: bytes, before: bytes = b"") -> bytes:
    return field(0x1A, before + field(0x08, i % 8) + field(0x1A, b"x" * 100) + b"".join(more))


def tag(key: bytes, value: bytes | None = None) -> bytes:
    return field(0x22, field(0x0A, key) + (b"" if value is None else field(0x12, value)))


def keyed(count: int, *entries: bytes) -> bytes:
    """User records with the given explicit hash keys."""
    inner = [field(0x08, i % 8) + field(0x10, i % len(entries)) for i in range(count)]
    rows = [field(0x1A, each + field(0x1A, b"x" * 100)) for each in inner]
    return b"".join([*KEYS, *(field(0x12, entry) for entry in entries), *rows])


def rows(count: int, *more: bytes) -> Fields:
    return [user_record(i, *more) for i in range(count)]


#: Ways to write a number of user records, all sound.
VARIANTS: dict[str, Callable[[int], bytes]] = {
    "tag": lambda n: b"".join(KEYS + rows(n, tag(b"put-again", b"1/2"))),
    "two tags, one without a value": lambda n: b"".join(KEYS + rows(n, tag(b"a"), tag("é".encode(), b""))),
    "two tags, one with another value in each": lambda n: b"".join(
        [*KEYS, *(user_record(i, tag(b"a", b"%d" % i), tag(b"b", b"c")) for i in range(n))]
    ),
    "tag first": lambda n: b"".join(KEYS + [user_record(i, before=tag(b"a", b"b")) for i in range(n)]),
    "tag with unknown fields": lambda n: b"".join(
        KEYS + rows(n, field(0x22, MIXED + field(0x0A, b"a") + GROUP))
    ),
    "unknown field in user records": lambda n: b"".join(KEYS + rows(n, field(0x7A, b"unknown"))),
    "fixed numbers in user records": lambda n: b"".join(KEYS + rows(n, MIXED)),
    "group in user records": lambda n: b"".join(KEYS + rows(n, GROUP)),
    "unknown field before each": lambda n: b"".join(KEYS + [field(0x7A, b"u") + row for row in rows(n)]),
    "group before each": lambda n: b"".join(KEYS + [GROUP + row for row in rows(n)]),
    "tables last": lambda n: b"".join(rows(n) + KEYS),
    "tables between": lambda n: b"".join(KEYS[:4] + rows(n) + KEYS[4:]),
    "data first": lambda n: b"".join(
        KEYS + [field(0x1A, field(0x1A, b"x" * 100) + field(0x08, i % 8)) for i in range(n)]
    ),
    "index given twice": lambda n: b"".join(
        KEYS + [user_record(i, before=field(0x08, 2**64 - 1)) for i in range(n)]
    ),
    "data given twice": lambda n: b"".join(
        KEYS + [user_record(i, before=field(0x1A, b"y")) for i in range(n)]
    ),
    "long numbers": lambda n: b"".join(
        KEYS + [field(0x1A, field(0x08, i % 8, 4) + field(0x1A, b"x" * 100, 4), 4) for i in range(n)]
    ),
    "longest numbers": lambda n: b"".join(
        KEYS + [field(0x1A, field(0x08, i % 8, 10) + field(0x1A, b"x" * 100, 10), 10) for i in range(n)]
    ),
    "an unused key for each": lambda n: b"".join(KEYS + [field(0x0A, b"unused")] * n + rows(n)),
    "an unused hash key for each": lambda n: b"".join(KEYS + HASH_KEYS[:1] * n + rows(n)),
    "hash keys": lambda n: keyed(n, *(b"%d" % (i << 100) for i in range(8))),
    "hash keys with a sign": lambda n: keyed(n, b"+7", b"-0"),
    "hash keys of another script": lambda n: keyed(n, "٣".encode(), "+１7".encode()),
    "hash keys with zeros": lambda n: keyed(n, b"007", b"0" * 200 + b"7"),
    "unusable hash key that none has": lambda n: b"".join([*KEYS, field(0x12, b" "), *rows(n)]),
}


#: On a desk each fourth way.
SOME = dict(list(VARIANTS.items())[:: share()])


def plain(count: int, size: int) -> bytes:
    """The message of so many user records that the KPL would write, of at least that size."""
    table = b"".join(KEYS)
    data = b"x" * max(100, (size - len(table)) // count - 8)
    return table + b"".join(field(0x1A, field(0x08, i % 8) + field(0x1A, data)) for i in range(count))


def bytecodes(work: Callable[[], object]) -> int:
    """How many Python runs in ``work``."""
    work()  # imports, caches
    return steps(work)


MAP = kpl.ShardMap([kpl.Shard("shardId-000000000000", kpl.ALL_HASH_KEYS)])


class Stream:
    """Kinesis records that all hold one message: as objects, and as columns."""

    def __init__(self, message: bytes, count: int) -> None:
        data = frame(message)
        self.records = [
            kpl.KinesisRecord("key-0", data, str(n), "shardId-000000000000") for n in range(count)
        ]

    @cached_property
    def batch(self) -> Any:
        pa = pytest.importorskip("pyarrow")
        names = "partition_key", "data", "sequence_number", "shard_id"
        columns = [[getattr(record, name) for record in self.records] for name in names]
        return pa.RecordBatch.from_arrays(
            list(map(pa.array, columns)), ["partitionKey", "data", "sequenceNumber", "shardId"]
        )


def columns(stream: Stream, policy: Any, **options: Any) -> list[Any]:
    batch = stream.batch
    from kpl_codec.arrow import Deaggregator

    return list(Deaggregator(batch.schema, policy, **options).process(batch))


#: Ways to open Kinesis records: those of one record, and those of many.
SINGLE: dict[str, Callable[[Stream], object]] = {
    "decode": lambda stream: [kpl.decode(record.data) for record in stream.records],
    "user records": lambda stream: [list(kpl.decode(record.data)) for record in stream.records],
}
BULK: dict[str, Callable[[Stream], object]] = {
    "from an iterator": lambda stream: list(kpl.deaggregate(iter(stream.records))),
    "with a range": lambda stream: list(
        kpl.deaggregate(stream.records, "kcl", hash_key_range=kpl.ALL_HASH_KEYS)
    ),
}
for _policy in POLICIES:
    BULK[_policy] = lambda stream, policy=_policy: list(kpl.deaggregate(stream.records, policy))
    BULK[f"{_policy}, columns"] = lambda stream, policy=_policy: columns(
        stream, policy, shard_map=MAP, tags=True
    )
WAYS = SINGLE | BULK


@every("variant", VARIANTS)
def test_they_are_sound_and_read_alike(variant: str) -> None:
    count = 20
    message = VARIANTS[variant](count)
    decoded = kpl.decode(frame(message))
    assert [(row.partition_key, row.data) for row in decoded] == [
        (f"key-{i % 8}", b"x" * 100) for i in range(count)
    ]
    parts = quick_parse(message)
    assert parts is not None
    assert parts == decoded.columns()


@pytest.mark.skipif(speedups is None, reason="without the compiled extension")
@every("way", WAYS)
def test_compiled_code_opens_it_without_python(way: str) -> None:
    do = WAYS[way]

    def work(message: bytes) -> int:
        stream = Stream(message, 4)
        return bytecodes(lambda: do(stream))

    for variant, written in SOME.items():
        few, many = written(10), written(90)
        assert work(many) - work(few) <= work(plain(90, len(many))) // 10, variant


@pytest.mark.skipif(speedups is None, reason="without the compiled extension")
@every("way", BULK)
def test_compiled_code_opens_many_without_python(way: str) -> None:
    """More Kinesis records, no more bytecodes than those of as many plain messages."""

    def growth(message: bytes) -> int:
        few, many = Stream(message, 32), Stream(message, 512)
        return bytecodes(lambda: BULK[way](many)) - bytecodes(lambda: BULK[way](few))

    for variant, written in SOME.items():
        message = written(1)
        assert growth(message) <= growth(plain(1, len(message))) + 480, variant


@every("variant", VARIANTS)
def test_python_alone_runs_a_few_times_as_much(variant: str) -> None:
    message = VARIANTS[variant](100)
    usual = bytecodes(lambda: quick_parse(plain(100, len(message))))
    assert bytecodes(lambda: quick_parse(message)) <= 5 * usual


@every("variant", SOME)
def test_it_grows_as_the_number_of_user_records(variant: str) -> None:
    """Eight times the user records, at most eight times the work: in the quick parser, and where the byte
    walker has to find a defect at the end."""
    few, many = VARIANTS[variant](20), VARIANTS[variant](160)
    assert bytecodes(lambda: quick_parse(many)) <= 8 * bytecodes(lambda: quick_parse(few))

    def refused(message: bytes) -> int:
        data = frame(message + field(0x1A, b""))

        def work() -> None:
            for policy in ("kcl", "report"):
                list(kpl.deaggregate([kpl.KinesisRecord("key-0", data, "1")], policy))
            with pytest.raises(kpl.MissingField):
                kpl.decode(data)

        return bytecodes(work)

    assert refused(many) <= 8 * refused(few)
