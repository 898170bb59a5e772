"""A query over the model stream: whatever happens, no record is skipped without an error.

Times are the model's, so that days pass between two batches and iterators and records expire.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kpl_codec.aws.cursor import ShardCursor
from kpl_codec.shards.live_shard_map import StreamUnavailable
from kpl_codec.shards.place import TRIM_HORIZON, after_record
from kpl_codec.spark.source.offsets import DataLoss, Piece, StreamOffset, batch_pieces
from kpl_codec.spark.source.options import parse_options
from kpl_codec.spark.source.plan import Caps, moves
from kpl_codec.spark.source.read import make_planner
from kpl_codec.spark.source.tasks import PieceReader

from .model import HOUR, ModelKinesis, refusal


class ModelQuery:
    """A query without Spark: the offset survives a restart as JSON, nothing else does."""

    def __init__(self, stream: ModelKinesis, caps: Caps, **options: Any) -> None:
        self.stream, self.caps = stream, caps
        settings = {"streamName": "s", "fetchCallsPerSecondPerShard": 0, "fetchBytesPerSecondPerShard": 0}
        self.options = parse_options({key: str(value) for key, value in {**settings, **options}.items()})
        self.log: list[str] = []
        self.read: Counter[tuple[str, str]] = Counter()
        self.restart()

    def restart(self) -> None:
        stream = self.stream
        self.planner = make_planner(
            self.options, stream, clock=stream.clock, now=stream.clock, sleep=stream.sleep
        )

    def batch(self) -> bool:
        """One micro-batch, read twice as by two attempts. False where there is nothing to read."""
        if not self.log:
            self.log.append(json.dumps(self.planner.begin_at(self.options.starting_position).to_json()))
        start = StreamOffset.from_json(json.loads(self.log[-1]), "s")
        end = self.planner.advance(start, self.caps)
        if not moves(start, end):
            return False
        self.log.append(json.dumps(end.to_json()))
        end = StreamOffset.from_json(json.loads(self.log[-1]), "s")
        pieces = batch_pieces(start, end)
        rows = self._rows(pieces)
        assert self._rows(pieces) == rows
        self.read.update(rows)
        return True

    def _rows(self, pieces: list[Piece]) -> list[tuple[str, str]]:
        reader = PieceReader(self.stream, self.options)
        return [
            (piece.shard_id, record["SequenceNumber"])
            for piece in pieces
            for records in reader.records(piece)
            for record in records
        ]

    def until_idle(self) -> None:
        while self.batch():
            self.stream.now += 0.01


BEFORE = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 20)),
        st.tuples(st.just("split"), st.integers(0, 7)),
        st.tuples(st.just("merge"), st.integers(0, 7)),
        st.tuples(st.just("sleep"), st.sampled_from([HOUR, 9 * HOUR])),
    ),
    max_size=8,
)
WAITS = [0.2, 30, 250, 1000, 5 * HOUR, 11 * HOUR, 23 * HOUR, 30 * HOUR]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 30) | st.just(700)),
        st.tuples(st.just("split"), st.integers(0, 7)),
        st.tuples(st.just("merge"), st.integers(0, 7)),
        st.tuples(st.just("batch"), st.integers(1, 3)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("wait"), st.sampled_from(WAITS)),
    ),
    max_size=25,
)
CAPS = st.builds(
    Caps,
    st.none() | st.integers(1, 9),
    st.none() | st.sampled_from([5, 1000, 600_000]),
    st.none() | st.sampled_from([3, 1000]),
)


@pytest.mark.requirement("SPK-50", "SPK-53", "SPK-54", "SPK-55", "SPK-60", "SPK-71")
@settings(max_examples=300)
@given(BEFORE, STEPS, CAPS, st.booleans(), st.integers(1, 4), st.sampled_from(["TRIM_HORIZON", "LATEST"]))
def test_no_record_is_skipped_without_an_error(
    before: list[tuple[str, int]],
    steps: list[tuple[str, Any]],
    caps: Caps,
    silent: bool,
    shards: int,
    position: str,
) -> None:
    stream = ModelKinesis(shards, silent=silent)
    for step, value in before:
        getattr(stream, step)(value)
    past, kept = stream.names(), stream.names(left=True) if position == "TRIM_HORIZON" else set()
    stream.now += 1
    query = ModelQuery(stream, caps, startingPosition=position)
    query.batch()  # the start is settled: all that comes is the query's
    attended, longest = stream.now, 0.0
    try:
        for step, value in [*steps, ("batch", 0)]:
            if step == "batch":
                idle = not value and query.until_idle() is None
                for _ in range(value):
                    idle = not query.batch()
                    stream.now += 0.01
                if idle:  # every shard that may be read was looked at
                    longest, attended = max(longest, stream.now - attended), stream.now
            elif step == "wait":
                stream.now += value
            elif step == "restart":
                query.restart()
            else:
                getattr(stream, step)(value)
        stream.now += 300
        query.until_idle()
    except DataLoss:
        # An error is right only where records or shards are gone, or where nobody looked for about a day.
        gone = (stream.names() - past | kept) - stream.names(left=True) - query.read.keys()
        expired = len(stream.listed()) < len(stream.shards)
        assert gone or expired or max(longest, stream.now - attended) > 23 * HOUR
        return
    assert not query.read - Counter(stream.names())
    assert max(query.read.values(), default=1) == 1
    missing = (stream.names() - past | kept) - query.read.keys()
    assert not missing
    assert position == "TRIM_HORIZON" or not query.read.keys() & past


@pytest.mark.requirement("SPK-57", "SPK-72")
@given(st.integers(1, 400), st.integers(1, 50))
def test_tasks_ask_for_what_they_give(records: int, most: int) -> None:
    stream = ModelKinesis(1)
    query = ModelQuery(stream, Caps(records=most))
    stream.put(records)
    query.until_idle()
    assert set(query.read) == stream.names()
    # Each record is given to the planner, and twice to tasks (both attempts); at the start of each batch
    # the record before it is given too.
    batches = len(query.log)
    assert stream.given <= 3 * records + 3 * batches


@pytest.mark.requirement("SPK-71")
def test_an_offset_is_written_anew_before_its_times_grow_old() -> None:
    stream = ModelKinesis(2)
    query = ModelQuery(stream, Caps())
    stream.put(5)
    query.until_idle()
    written = len(query.log)
    for _ in range(3 * 24 * 60):
        stream.now += 60
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
    query = ModelQuery(stream, Caps())
    query.until_idle()
    stream.put(5)
    stream.now += 100 * HOUR
    query.restart()
    query.until_idle()
    assert set(query.read) == stream.names()
    assert stream.calls["describe_stream_summary"] >= 1


@pytest.mark.requirement("SPK-63")
def test_what_a_batch_costs_the_planner() -> None:
    """A quiet shard: one call. One that gets busy: two reads and one iterator; one that is: one of each.
    Idle shards: ever fewer calls."""
    stream = ModelKinesis(1)
    query = ModelQuery(stream, Caps(span=600_000))
    stream.put(3)
    query.until_idle()

    def cost(records: int) -> tuple[int, int]:
        stream.now += 2
        stream.put(records)
        before = stream.calls.copy()
        start = StreamOffset.from_json(json.loads(query.log[-1]), "s")
        end = query.planner.advance(start, query.caps)
        query.log.append(json.dumps(end.to_json()))
        spent = stream.calls - before
        return spent["get_shard_iterator"], spent["get_records"]

    assert cost(20) == (0, 1)
    assert cost(3000) == (1, 2)
    assert cost(3000) == (1, 1)
    assert cost(3000) == (1, 1)
    quieter = cost(20)
    assert sum(quieter) <= 4
    assert cost(20) == (0, 1)
    query.until_idle()
    before = stream.calls["get_records"]
    for _ in range(400):
        query.batch()
        stream.now += 0.25
    assert stream.calls["get_records"] - before <= 110
    stream.put(1)
    stream.now += 1
    assert query.batch()


@pytest.mark.requirement("SPK-61")
@pytest.mark.parametrize("shards", [1, 3])
def test_calls_keep_to_the_budget(shards: int) -> None:
    stream = ModelKinesis(shards)
    query = ModelQuery(stream, Caps(), fetchCallsPerSecondPerShard=4)
    begun, calls = stream.now, stream.calls.copy()
    for _ in range(20):
        stream.put(30)
        start = StreamOffset.from_json(json.loads(query.log[-1]), "s") if query.log else None
        end = query.planner.advance(start, query.caps) if start else query.planner.begin_at(TRIM_HORIZON)
        query.log.append(json.dumps(end.to_json()))
    spent = stream.calls - calls
    for operation in ("get_records", "get_shard_iterator"):
        assert spent[operation] <= shards * (4 * (stream.now - begun) + 1)


def test_an_iterator_that_always_expires_is_given_up() -> None:
    stream = ModelKinesis(1)

    def expired(**_: Any) -> Any:
        stream.calls["get_records"] += 1
        raise refusal("ExpiredIteratorException", "GetRecords")

    stream.get_records = expired  # type: ignore[method-assign]
    cursor = ShardCursor(
        stream,
        "s",
        "shardId-000000000000",
        after_record("5"),
        patience=60,
        clock=stream.clock,
        sleep=stream.sleep,
        chance=lambda: 0.0,
    )
    begun = stream.now
    with pytest.raises(StreamUnavailable) as caught:
        cursor.fetch()
    assert caught.value.code == "ExpiredIteratorException"
    assert stream.now - begun <= 60
    assert 5 <= stream.calls["get_records"] <= 30


@pytest.mark.requirement("SPK-71")
def test_records_of_a_child_that_waits_for_its_parent_are_not_forgotten() -> None:
    stream = ModelKinesis(1)
    stream.put(3)
    stream.split(0)
    stream.put(20)
    stream.now += 18 * HOUR
    query = ModelQuery(stream, Caps())
    assert query.batch()  # the parent; its children are not read yet
    stream.now += 11 * HOUR
    with pytest.raises(DataLoss):
        query.until_idle()
