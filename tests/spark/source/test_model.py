"""Queries over the model stream: the law that they keep, and what they cost."""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kpl_codec.aws.cursor import ShardCursor
from kpl_codec.shards.live_shard_map import StreamUnavailable
from kpl_codec.shards.starting_position import TRIM_HORIZON, after_record
from kpl_codec.spark.source import datasource
from kpl_codec.spark.source.kinesis_reader import read_piece
from kpl_codec.spark.source.offsets import DataLoss, ShardRange, StreamOffset, batch_pieces
from kpl_codec.spark.source.shard_planner import ReadLimits
from kpl_codec.spark.source.source_options import parse_options
from tests.every import every
from tests.examples import share

from .model import HOUR, ModelKinesis, refusal
from .model_query import (
    LIVES,
    TELLING,
    ModelQuery,
    access_of,
    no_record_is_skipped_without_an_error,
    rows_of,
)


@pytest.mark.requirement("SPK-50", "SPK-53", "SPK-54", "SPK-55", "SPK-60", "SPK-71", "EFO-9", "EFO-10")
@settings(max_examples=150 if share() == 1 else 25)
@given(**LIVES)
def test_no_record_is_skipped_without_an_error(**life: Any) -> None:
    no_record_is_skipped_without_an_error(**life)


@pytest.mark.requirement("SPK-58", "SPK-60", "SPK-71", "SPK-90", "SPK-93")
@every("life", TELLING)
def test_no_record_is_skipped_in_a_telling_life(life: dict[str, Any]) -> None:
    no_record_is_skipped_without_an_error(**life)


@pytest.mark.requirement("SPK-60")
def test_a_batch_that_does_not_end_where_it_should_is_data_loss() -> None:
    stream = ModelKinesis(1)
    access = access_of(stream, parse_options({"stream": "s"}))
    stream.put(2)
    ((shard_id, shard),) = stream.shards.items()
    last = shard.records[-1][0]
    for end in (last - 1, last + 1):  # no such record
        shard.records[0] = (last - 2, *shard.records[0][1:])
        piece = ShardRange(shard_id, TRIM_HORIZON, after_record(str(end)))
        with pytest.raises(DataLoss) as caught:
            list(read_piece(access, None, piece))
        assert caught.value.code == "record-missing"
        stream.split(0)


@pytest.mark.requirement("SPK-57", "SPK-72")
@given(st.integers(1, 200), st.integers(1, 50))
def test_tasks_ask_for_what_they_give(records: int, most: int) -> None:
    stream = ModelKinesis(1)
    query = ModelQuery(stream, ReadLimits(records=most))
    stream.put(records)
    while query.batch(attempts=1):
        stream.now += 0.01
    assert set(query.read) == stream.names()
    # Each record is given to the planner and to a task; at the start of each batch the record before it is
    # given too.
    assert stream.given <= 2 * records + 2 * len(query.log)


@pytest.mark.slow
@pytest.mark.requirement("SPK-71")
def test_an_offset_is_written_anew_before_its_times_grow_old() -> None:
    stream = ModelKinesis(2)
    query = ModelQuery(stream, ReadLimits())
    stream.put(5)
    query.until_idle()
    written = len(query.log)
    for _ in range(3 * 24 * 6):
        stream.now += 600
        query.batch()
    assert 3 * 24 / 7 <= len(query.log) - written <= 3 * 24 / 6 + 1
    # The last record that was read left the stream two days ago: no loss, since nothing came behind it.
    query.restart()
    stream.put(5)
    query.until_idle()
    assert set(query.read) == stream.names()


@pytest.mark.requirement("SPK-71")
def test_retention_is_asked_for_where_a_day_does_not_settle_it() -> None:
    stream = ModelKinesis(1, retention=168 * HOUR)
    query = ModelQuery(stream, ReadLimits())
    query.until_idle()
    stream.put(5)
    stream.now += 100 * HOUR
    query.restart()
    query.until_idle()
    assert set(query.read) == stream.names()
    assert stream.calls["describe_stream_summary"] >= 1


@pytest.mark.requirement("SPK-61", "SPK-63", "SPK-85")
@pytest.mark.parametrize(
    ("shards", "records", "by_planner", "by_tasks"),
    [(1, 20, (0, 1), (0, 0)), (1, 3000, (1, 2), (1, 1)), (2, 40, (0, 2), (0, 0)), (2, 3000, (2, 4), (2, 2))],
)
def test_what_a_batch_costs(
    shards: int, records: int, by_planner: tuple[int, int], by_tasks: tuple[int, int]
) -> None:
    """GetShardIterator and GetRecords calls. A quiet shard: one call. A busy one: two reads and one iterator,
    and for tasks an iterator and a call for each answer."""
    stream = ModelKinesis(shards)
    query = ModelQuery(stream, ReadLimits(span=600_000))
    stream.put(3)
    query.until_idle()

    def calls(before: Counter[str]) -> tuple[int, int]:
        spent = stream.calls - before
        return spent["get_shard_iterator"], spent["get_records"]

    for _ in range(2):
        stream.now += 2
        stream.put(records)
        before = stream.calls.copy()
        partitions = query.plan() or []
        assert calls(before) == by_planner
        before = stream.calls.copy()
        assert len(rows_of(query.access, partitions)) == records
        assert calls(before) == by_tasks


@pytest.mark.requirement("SPK-63")
@pytest.mark.parametrize("shards", [1, 4, 40])
def test_idle_shards_are_asked_a_hundred_times_a_second_all_together(shards: int) -> None:
    stream = ModelKinesis(shards)
    query = ModelQuery(stream, ReadLimits())
    stream.put(3)
    query.until_idle()
    for _ in range(20):  # until the pauses have their full length
        query.batch()
        stream.now += 0.25
    before, begun = stream.calls["get_records"], stream.now
    for _ in range(80):
        query.batch()
        stream.now += 0.25
    seconds = stream.now - begun
    assert stream.calls["get_records"] - before <= min(4 * shards, 100) * seconds + shards
    stream.put(1)
    stream.now += shards / 100 + 1
    assert query.batch()


@pytest.mark.requirement("SPK-63")
def test_an_idle_query_waits_between_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = ModelKinesis(2)
    query = ModelQuery(stream, ReadLimits(), idleTimeBetweenReadsInMs=200)
    stream.put(1)
    query.until_idle()
    monkeypatch.setattr(datasource, "time", SimpleNamespace(monotonic=stream.clock, sleep=stream.sleep))
    del query.reader._wait  # type: ignore[method-assign]
    begun, before = stream.now, stream.calls.copy()
    for _ in range(6):
        assert not query.batch()
    assert stream.now - begun == pytest.approx(5 * 0.2)
    # At most one call on each shard in each turn; the iterators of the last one stay in use.
    spent = stream.calls - before
    assert 2 <= spent["get_records"] <= 12
    assert not spent["get_shard_iterator"]


@pytest.mark.requirement("SPK-85")
@pytest.mark.parametrize("most", [pytest.param(0, marks=pytest.mark.slow), 60])
def test_planning_keeps_a_bounded_part_of_what_it_reads(most: int) -> None:
    stream = ModelKinesis(300)
    query = ModelQuery(stream, ReadLimits(records=most))
    for count in (1, 60):
        query.until_idle()  # after the first time their size is known
        stream.now += 10
        for shard in stream.open_shards * count:
            stream.put_on(shard, bytes(1000))
    stream.now += 10
    start = StreamOffset.from_json(json.loads(query.log[-1]), "s")
    tracemalloc.start()
    end = query.planner.advance(start, query.limits)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 14_000_000  # 8 MiB of the 18 MB that it has read, and their Python objects
    assert peak < 40_000_000
    carried, left = query.planner.take_records(batch_pieces(start, end))
    assert carried
    assert left


@pytest.mark.requirement("SPK-59")
def test_a_backlog_is_cut_by_time_and_planned_with_few_reads() -> None:
    stream = ModelKinesis(1)
    query = ModelQuery(stream, ReadLimits(span=60_000))
    for _ in range(20):
        stream.put(400, size=1000)
        stream.now += 30
    batches = planned = 0
    while True:
        before = stream.given
        partitions = query.plan()
        if partitions is None:
            break
        planned += stream.given - before
        batches += 1
        query.read.update(rows_of(query.access, partitions))
    assert set(query.read) == stream.names()
    assert 9 <= batches <= 12
    assert planned < len(stream.names()) * 0.4  # the ends were found without what lies between


@pytest.mark.requirement("SPK-63", "SPK-85")
def test_a_first_batch_of_small_records_is_read_once() -> None:
    """The first shard is asked for 8 records, then for more; of the others that size is expected."""
    stream = ModelKinesis(20)
    query = ModelQuery(stream, ReadLimits(span=600_000))
    stream.put(800)
    (partition,) = query.plan() or []
    assert (partition.records.num_rows, partition.pieces) == (800, ())
    assert (stream.calls["get_shard_iterator"], stream.calls["get_records"]) == (20, 21)


@pytest.mark.requirement("SPK-61")
@pytest.mark.parametrize("size", [10, pytest.param(9000, marks=pytest.mark.slow)], ids=["small", "large"])
def test_planner_and_tasks_share_one_budget(size: int) -> None:
    """A model that keeps the limits of a shard refuses no call, however fast batches follow each other."""
    stream = ModelKinesis(2, limits=True)
    options = {"fetchCallsPerSecondPerShard": 4, "fetchBytesPerSecondPerShard": 2**21}
    query = ModelQuery(stream, ReadLimits(span=600_000), **options)
    begun = stream.now
    for number in range(20):
        stream.put(2000 if number % 3 else 20, size)
        if number % 10 == 9:
            query.restart()
            stream.now += 1
        query.batch(attempts=1)
    assert set(query.read) == stream.names()
    assert not [name for name in stream.calls if name.startswith("throttled")]
    for operation in ("get_records", "get_shard_iterator"):
        assert stream.calls[operation] <= 2 * (4 * (stream.now - begun) + 1)


def test_an_iterator_that_always_expires_is_given_up() -> None:
    stream = ModelKinesis(1)

    def expired(**_: Any) -> Any:
        stream.calls["get_records"] += 1
        raise refusal("ExpiredIteratorException", "GetRecords")

    stream.get_records = expired  # type: ignore[method-assign]
    clocks: Any = {"clock": stream.clock, "sleep": stream.sleep, "chance": lambda: 0.0}
    place = after_record(str(10**20))
    cursor = ShardCursor(stream, "s", "shardId-000000000000", place, patience=60, **clocks)
    begun = stream.now
    with pytest.raises(StreamUnavailable) as caught:
        cursor.fetch()
    assert caught.value.code == "ExpiredIteratorException"
    assert stream.now - begun <= 60
    assert 5 <= stream.calls["get_records"] <= 30
