"""What a program may do to the compiled extension, on purpose or by mistake: threads that share a builder,
objects whose methods change what is being read. Each case ends, or raises a Python error.

`tests/test_hostile.py` runs each in a process of its own, compiled and in Python alone; `fuzz.sanitize` under
both sanitizers.
"""

from __future__ import annotations

import array
import contextlib
import functools
import gc
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import kpl_codec as kpl
from kpl_codec.base.compiled import speedups
from kpl_codec.deaggregation.deaggregated_record import Counts
from kpl_codec.deaggregation.policies import RecordDeaggregator
from kpl_codec.deaggregation.policy_rules import POLICIES, rules_of
from kpl_codec.format.message import AggregatedRecord

THREADS = 4
Case = Callable[[], None]
CASES: dict[str, Case] = {}


def case(run: Case) -> Case:
    CASES[run.__name__.replace("_", " ")] = run
    return run


def compiled_case(run: Case) -> Case:
    """A case of what only the extension has; in Python alone it does nothing."""
    return case(run if speedups is not None else functools.wraps(run)(lambda: None))


@contextlib.contextmanager
def collecting_all_the_time() -> Iterator[None]:
    """The garbage collector runs as often as it can."""
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def together(*work: Callable[[], None]) -> None:
    """Runs each in a thread; the threads take turns as often as they can. Raises the first error."""
    errors: list[BaseException] = []

    def kept(do: Callable[[], None]) -> None:
        try:
            do()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=kept, args=(do,)) for do in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    if errors:
        raise errors[0]


def hold_what_it_says(builder: Any) -> list[kpl.UserRecord]:
    """The frame has the size and the number of user records that the builder says. Gives these."""
    data = builder.build()
    user_records = list(kpl.decode(data))
    assert (len(data), len(user_records)) == (builder.size, len(builder))
    return user_records


def hold_exactly(builder: Any, added: list[kpl.UserRecord]) -> None:
    """The frame has exactly what was added, and the size that was said."""
    assert Counter(hold_what_it_says(builder)) == Counter(added)


def adder(builder: Any, added: list[kpl.UserRecord], name: str, count: int = 1000) -> Callable[[], None]:
    """Adds user records with keys, tags and hash keys that Python has to check. In pure Python two that meet
    get RuntimeError."""

    def work() -> None:
        for i in range(count):
            tags = (kpl.Tag(f"ä{i}", "v"),) if i % 3 == 0 else ()
            record = kpl.UserRecord(f"é{name}-{i % 50}", b"x" * (i % 400), str(i) if i % 2 else None, tags)
            with contextlib.suppress(RuntimeError, kpl.AggregateFull):
                builder.add(record)
                added.append(record)

    return work


@case
def threads_share_a_builder() -> None:
    for limit in (None, 20_000):
        builder = kpl.AggregatedRecordBuilder(limit)
        added: list[kpl.UserRecord] = []
        together(*(adder(builder, added, str(n)) for n in range(THREADS)))
        assert limit is None or builder.size <= limit
        hold_exactly(builder, added)


@case
def threads_build_and_clear_while_others_add() -> None:
    builder = kpl.AggregatedRecordBuilder()
    added: list[kpl.UserRecord] = []
    cleared: list[kpl.UserRecord] = []

    def empty() -> None:
        for _ in range(100):
            with contextlib.suppress(kpl.EncodeError):
                assert kpl.decode(builder.build())
            builder.size_with(kpl.UserRecord("é", b"x"))
            with contextlib.suppress(RuntimeError):
                cleared.extend(builder.clear())

    together(empty, *(adder(builder, added, str(n)) for n in range(THREADS)))
    cleared.extend(builder.clear())
    assert Counter(cleared) == Counter(added)


@case
def threads_read_the_same_records() -> None:
    """Each gets what one alone gets: user records, columns, what is written again, and what is explained."""
    import pyarrow as pa

    from kpl_codec.arrow import deaggregate_table

    chance = random.Random(5)
    frames = []
    for count in (1, 3, 40, 700, 1500, 2, 90):  # tables of every size are left for others
        keys = [f"key-{chance.randrange(count)}" for _ in range(count)]
        frames.append(kpl.encode([kpl.UserRecord(key, chance.randbytes(20)) for key in keys]))
    frames += [b"plain", frames[2][:30] + bytes([frames[2][30] ^ 1]) + frames[2][31:]]
    records = [kpl.KinesisRecord("a", data, str(n), "shardId-0") for n, data in enumerate(frames, 1)]
    shard_map = kpl.ShardMap([kpl.Shard("shardId-0", kpl.ALL_HASH_KEYS)])
    names = "partition_key", "data", "sequence_number", "shard_id"
    arrays = [pa.array([getattr(record, name) for record in records]) for name in names]
    table = pa.table(arrays, ["partitionKey", "data", "sequenceNumber", "shardId"])
    work: list[Callable[[], object]] = [
        lambda: [str(row) for row in kpl.deaggregate(records, "report", shard_map=shard_map)],
        lambda: deaggregate_table(table, "report", shard_map=shard_map)[0].to_pylist(),
        lambda: [kpl.encode(list(kpl.decode(frame))) for frame in frames[:7]],
        lambda: [str(kpl.explain(frame)) for frame in frames[:3]],
    ]
    alone = [do() for do in work]

    def run(seed: int) -> None:
        order = random.Random(seed)
        for _ in range(4):
            which = order.randrange(len(work))
            assert work[which]() == alone[which]
            some = records[order.randrange(len(records)) :]  # other sizes, so that tables change hands
            opened = [list(map(str, kpl.deaggregate(some, "report"))) for _ in range(2)]
            assert opened[0] == opened[1]

    together(*(partial(run, seed) for seed in range(THREADS)))


class Number(int):
    """Compares as a number, and does ``then`` meanwhile."""

    then: Callable[[], object] = staticmethod(lambda: None)

    def __lt__(self, other: int) -> bool:
        self.then()
        return int(self) < other

    def __gt__(self, other: int) -> bool:
        self.then()
        return int(self) > other


class Digits(str):
    """A hash key that does ``then`` when it is compared or looked up."""

    then: Callable[[], object] = staticmethod(lambda: None)

    def __eq__(self, other: object) -> bool:
        self.then()
        return str(self) == other

    def __hash__(self) -> int:
        self.then()
        return super().__hash__()


class Dying:
    """Does ``then`` when nothing refers to it any more; a ``cycle``: when the garbage collector finds it."""

    def __init__(self, then: Callable[[], object], *, cycle: bool = True) -> None:
        self.itself, self.then = self if cycle else None, then

    def __del__(self) -> None:
        self.then()


def adding_to(builder: Any, count: int = 40) -> Callable[[], None]:
    """Adds large user records; not from within itself."""
    inside: list[int] = []

    def then() -> None:
        if not inside:
            inside.append(1)
            for i in range(count):
                with contextlib.suppress(RuntimeError):
                    builder.add(kpl.UserRecord(f"key-{i}", b"x" * 5000))
            inside.clear()

    return then


@case
def a_limit_that_adds_while_it_is_compared() -> None:
    builder = kpl.AggregatedRecordBuilder()
    limit = Number(10**6)
    builder.max_size = limit
    limit.then = adding_to(builder)
    for i in range(100):
        with contextlib.suppress(kpl.AggregateFull, RuntimeError):
            builder.add(kpl.UserRecord("é", b"y" * i))
    hold_what_it_says(builder)


@case
def a_hash_key_that_adds_while_it_is_compared() -> None:
    builder = kpl.AggregatedRecordBuilder()
    key = Digits("7")
    key.then = adding_to(builder)
    for _ in range(3):
        with contextlib.suppress(kpl.EncodeError, RuntimeError):
            builder.add(kpl.UserRecord("é", b"data", key))  # type: ignore[arg-type]
    builder.add(kpl.UserRecord("last", b""))
    hold_what_it_says(builder)


@case
def garbage_that_adds_while_records_are_made() -> None:
    builder = kpl.AggregatedRecordBuilder()
    then = adding_to(builder, 2)
    with collecting_all_the_time():
        for i in range(60):
            Dying(then)
            with contextlib.suppress(RuntimeError):
                builder.add(kpl.UserRecord(f"é{i}", b"x", None, (kpl.Tag("k"),)))
                builder.size_with(kpl.UserRecord(f"é{i}", b"x"))
    hold_what_it_says(builder)


@case
def lists_that_shrink_while_an_aggregate_is_read() -> None:
    class Index:
        def __index__(self) -> int:
            for each in (data, pks, tags):
                each.clear()
            return 0

    data: list[Any] = [b"x"] * 1000
    pks: list[Any] = [0, Index()] + [0] * 998
    tags: list[Any] = [()] * 1000
    with contextlib.suppress(IndexError, TypeError, ValueError):
        list(AggregatedRecord(("a",), (), pks, None, data, tags))


@case
def records_that_say_they_are_something_else() -> None:
    class Liar(bytes):
        __class__ = kpl.KinesisRecord  # type: ignore[assignment]

    class Emptying:
        @property
        def __class__(self) -> Any:
            records.clear()
            return kpl.KinesisRecord

    records: list[Any] = []
    sound = kpl.KinesisRecord("a", kpl.encode([kpl.UserRecord("a", b"x")]), "1")
    for liar in (Liar(b"12345678"), Emptying()):
        for at in (0, 500):
            records[:] = [sound] * 1000
            records[at] = liar
            with contextlib.suppress(TypeError, AttributeError):
                list(kpl.deaggregate(records))


@case
def records_without_a_field() -> None:
    data = kpl.encode([kpl.UserRecord("a", b"x")])
    for name in kpl.KinesisRecord.__match_args__:
        record = kpl.KinesisRecord("a", data, "1")
        object.__delattr__(record, name)
        with contextlib.suppress(AttributeError):
            list(kpl.deaggregate([record] * 3))
    with contextlib.suppress(AttributeError):
        list(kpl.deaggregate([object.__new__(kpl.KinesisRecord)]))


@case
def records_whose_fields_change_while_they_are_read() -> None:
    shards = kpl.ShardMap([kpl.Shard("shardId-000000000000", kpl.ALL_HASH_KEYS)])

    def change() -> None:
        for record in records:
            for name in kpl.KinesisRecord.__match_args__:
                with contextlib.suppress(AttributeError):
                    object.__delattr__(record, name)

    for options in ({}, {"shard_map": shards}):
        for user_records in (1, 300):
            records = [
                kpl.KinesisRecord(
                    f"é{n}", kpl.encode([kpl.UserRecord(f"ä{n}", b"x" * 50)] * user_records), str(n)
                )
                for n in range(50)
            ]
            records += [kpl.KinesisRecord(f"é{n}" * 9, b"y" * 500, str(n)) for n in range(50)]
            Dying(change)
            with collecting_all_the_time(), contextlib.suppress(AttributeError):
                for row in kpl.deaggregate(records, **options):  # type: ignore[arg-type]
                    assert row.data in (b"x" * 50, b"y" * 500)
                    change()


@case
def garbage_that_goes_on_with_the_same_records() -> None:
    data = kpl.encode([kpl.UserRecord(f"é{i}", b"x" * i, None, (kpl.Tag("k", "v"),)) for i in range(700)])
    records = [kpl.KinesisRecord("a", data, str(n)) for n in range(4)]
    for policy in POLICIES:
        # Not `deaggregate`: CPython's own `itertools.chain` does not stand it.
        runs = RecordDeaggregator(rules_of(policy), None, Counts()).open(records)
        read: list[Any] = []

        def go_on(runs: Iterator[Any] = runs, read: list[Any] = read) -> None:
            with contextlib.suppress(ValueError, RuntimeError, StopIteration):
                read.extend(next(runs))

        with collecting_all_the_time():
            for _ in range(20):
                Dying(go_on)
                go_on()
        # (From Python 3.12 on a finalizer may run between `next` and `extend`: then the order is another.)
        assert sorted(row.data for row in read) == sorted([b"x" * i for i in range(700)] * 4)


@compiled_case
def a_result_whose_end_empties_the_list() -> None:
    from kpl_codec.producer.results import Delivery

    record = kpl.UserRecord("k", b"d")
    waiting = [
        speedups.Pending(record, 1, own_hash_key=False, keyless=False, must_wrap=False) for _ in range(500)
    ]
    every = tuple(waiting)
    waiting[0].result = Dying(waiting.clear, cycle=False)
    speedups.deliver(Delivery, waiting, "shardId-0", "1", ())
    assert all(type(each.result) is Delivery for each in every)


@compiled_case
def arrow_buffers_that_change_after_they_were_checked() -> None:
    data = kpl.encode([kpl.UserRecord("a", b"x" * 10)] * 3)
    count = 200
    for at, lie in ((5, 2**30), (5, -1), (count, 2**31 - 1), (0, 7)):
        offsets = array.array("i", [len(data) * i for i in range(count + 1)])
        column = speedups.Column(None, offsets, data * count, 0, count, False)
        none = speedups.Column(
            bytes((count + 7) // 8), array.array("i", [0] * (count + 1)), None, 0, count, False
        )
        offsets[at] = lie
        frames = speedups.FrameColumns(column, none, none, bytearray, hash_keys=True)
        assert bytes(frames.values(2, 0, 3 * count)[2]) == b"x" * 30 * count
        frames.spread(column, 0, 3 * count)
        shards = array.array("q", [0] * count)
        frames.check_placement(shards, bytes(16), b"\xff" * 16, b"\1", b"\xff" * 16)
        frames.values(3, 0, 3 * count)


@compiled_case
def an_output_buffer_that_drops_rows() -> None:
    small, large = (kpl.encode([kpl.UserRecord("a", b"x" * size)] * 50) for size in (1, 5000))
    offsets = array.array("i", [0, len(small), len(small) + len(large)])

    def allocate(size: int) -> bytearray:
        with contextlib.suppress(ValueError):
            frames.drop(b"\1\0")
        return bytearray(size)

    column = speedups.Column(None, offsets, small + large, 0, 2, False)
    none = speedups.Column(b"\0", array.array("i", [0] * 3), None, 0, 2, False)
    for make, *arguments in (("values", 2), ("sub_sequence_numbers",)):  # 2: the data
        frames = speedups.FrameColumns(column, none, none, allocate)
        assert len(getattr(frames, make)(*arguments, 0, 100)[-1]) in (800, 50 + 250_000)


@compiled_case
def sizes_that_overflow() -> None:
    offsets = array.array("i", [0] * 10)
    for first in (2**64 - 1, 2**64 - 2, 2**63, 9):
        for count in (1, 9, 2**63, 2**64 - 1):
            for valid in (None, b"\xff\xff"):
                with contextlib.suppress(ValueError, OverflowError):
                    speedups.Column(valid, offsets, b"x" * 10, first, count, False)
                    raise AssertionError((first, count))
