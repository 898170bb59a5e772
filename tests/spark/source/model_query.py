"""A query over the model stream, and the law that it must keep: whatever happens, no record is skipped
without an error, none comes twice, children come after their parents, and limits hold.

Times are the model's, so that days pass between two batches and iterators and records expire.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from typing import Any

import pytest
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema

from kpl_codec.aws.subscription import StreamConsumers
from kpl_codec.spark.source.datasource import KinesisPartition, KinesisStreamReader, arrow_schema
from kpl_codec.spark.source.kinesis_reader import KinesisReader, read_piece
from kpl_codec.spark.source.offsets import DataLoss, StreamOffset
from kpl_codec.spark.source.planner import Planner
from kpl_codec.spark.source.positions import OptionError
from kpl_codec.spark.source.shard_planner import ReadLimits
from kpl_codec.spark.source.source_options import SourceOptions, parse_options
from tests.aws.model_fan_out import ARN, FanOutKinesis

from .model import HOUR, ModelKinesis

Rows = list[tuple[str, str]]  # shard and sequence number of each record
Steps = list[tuple[str, Any]]


def access_of(stream: ModelKinesis, options: SourceOptions) -> KinesisReader:
    """Reads the model stream, in the model's time."""
    return KinesisReader(stream, options, clock=stream.clock, now=stream.clock, sleep=stream.sleep)


def rows_of(
    access: KinesisReader, partitions: Sequence[KinesisPartition], answers: int | None = None
) -> Rows:
    """What tasks give, one after the other: the sleeps of many threads would add up on the model's one clock.
    ``answers``: after so many of each piece the task dies."""
    rows: Rows = []
    for partition in partitions:
        if partition.records is not None:
            columns = (partition.records.column(name).to_pylist() for name in ("shardId", "sequenceNumber"))
            rows += zip(*columns, strict=True)
        for piece in partition.pieces:
            with closing(read_piece(access, partition.consumer, piece)) as given:  # type: ignore[type-var]
                for records in islice(given, answers):
                    rows += [(piece.shard_id, record["SequenceNumber"]) for record in records]
    return rows


class ModelQuery:
    """A query without Spark: the offsets that Spark writes down survive a restart as JSON, nothing else does.
    ``consumers``: the ARNs that the batches are read with, in turn; None: polling. ``meanwhile``: so many
    records come between two attempts at a batch."""

    def __init__(
        self,
        stream: ModelKinesis,
        limits: ReadLimits,
        *,
        consumers: Sequence[str | None] = (None,),
        meanwhile: int = 0,
        **options: Any,
    ) -> None:
        self.stream, self.limits, self.consumers, self.meanwhile = stream, limits, consumers, meanwhile
        settings: dict[str, Any] = {"fetchCallsPerSecondPerShard": 0, "fetchBytesPerSecondPerShard": 0}
        settings |= {"maxFetchRecordsPerShard": limits.records, "maxSecondsPerShard": limits.span / 1000}
        self.given = {key: str(value) for key, value in {"stream": "s", **settings, **options}.items()}
        self.options = parse_options(self.given)
        self.log: list[str] = []
        self.read: Counter[tuple[str, str]] = Counter()
        self._begun: set[str] = set()  # shards of which records were read
        self._life = stream.born
        self.restart()

    def restart(self, *, old_spark: bool = False) -> None:
        """``old_spark``: a Spark before 4.2, which does not say where the query stands."""
        self.access, self.reader, self._old_spark = *self._new_process(), old_spark

    def _new_process(self) -> tuple[KinesisReader, KinesisStreamReader]:
        access = access_of(self.stream, self.options)
        reader = KinesisStreamReader(self.options, from_arrow_schema(arrow_schema(self.options)))
        reader._planner = Planner(access, workers=1)
        reader._wait = lambda seconds: None  # type: ignore[method-assign]
        return access, reader

    @property
    def planner(self) -> Planner:
        return self.reader.planner

    @property
    def offsets(self) -> tuple[Any, Any]:
        """The start and the end of the last batch."""
        start, end = ["{}", *self.log][-2:]
        return json.loads(start), json.loads(end)

    def plan(self) -> list[KinesisPartition] | None:
        """Plan and log one micro-batch; gives what it reads, None where there is nothing new."""
        if self._old_spark:
            end = self.reader.latestOffset()
        else:
            if not self.log:
                self.log.append(json.dumps(self.reader.latestOffset({})))
            limit = self.reader.getDefaultReadLimit()
            end = self.reader.latestOffset(json.loads(self.log[-1]), limit)
        if self.log and json.loads(self.log[-1]) == end:
            return None
        self.log.append(json.dumps(end))
        self.reader._consumer = self.consumers[len(self.log) % len(self.consumers)]
        return self.reader.partitions(*self.offsets)

    def _oldest_unread(self) -> dict[str, float]:
        """When the first record came that is there behind the last one read, by shard."""
        last: dict[str, int] = {}
        oldest = self.stream.now - self.stream.retention + 60
        for shard_id, number in self.read:
            last[shard_id] = max(last.get(shard_id, 0), int(number))
        return {
            shard.shard_id: behind[0][1]
            for shard in self.stream.shards.values()
            if shard.shard_id in last
            and (behind := [r for r in shard.records if r[0] > last[shard.shard_id] and r[1] > oldest])
        }

    def batch(self, attempts: int = 3) -> bool:
        """One micro-batch. False where there is nothing to read."""
        unread, begun = self._oldest_unread(), self.stream.now
        partitions = self.plan()
        if partitions is None:
            return False
        for shard_id, ends in self.offsets[1]["shards"].items():
            if "behind" in ends and shard_id in unread:
                assert ends["behind"] >= (begun - unread[shard_id]) * 1000 - 2, "it is further behind"
        self._read(partitions, attempts)
        return True

    def _read(self, partitions: list[KinesisPartition], attempts: int) -> None:
        """Spark may run each task several times. One attempt counts; before it one dies on the way, and after
        it one is of another driver, which has the offsets only, and may have another consumer."""
        if attempts > 1:
            rows_of(self.access, partitions, answers=1)
        rows = rows_of(self.access, partitions)
        if attempts > 2:
            if len(self.log) % 4 == 0:  # not always: a query that is never idle would not end
                self.stream.put(self.meanwhile)
            access, reader = self._new_process()
            reader._consumer = self.consumers[-1]
            again = Counter(rows_of(access, reader.partitions(*self.offsets)))
            expired = self.stream.names() - self.stream.names(left=True)
            assert not again - Counter(rows), "another attempt reads more"
            missed = (Counter(rows) - again).keys()
            assert missed <= (set() if self.options.fail_on_data_loss else expired), "it reads less"
        self.read.update(rows)
        counts = Counter(shard_id for shard_id, _ in rows)
        if self._old_spark:
            return  # as much as there is, parents with their children
        assert not self.limits.records or max(counts.values(), default=0) <= self.limits.records
        if self._life != self.stream.born:
            self._begun, self._life = set(), self.stream.born
        self._begun |= counts.keys() & self.stream.shards.keys()
        over = {parent for shard_id in self._begun for parent in self.stream.shards[shard_id].parents}
        assert not over & counts.keys(), "a parent is read with or after its child"

    def die(self, then: Steps | None) -> None:
        """The driver dies before it has written a batch down (None), or before it has read it: the next one
        reads it, after what happens to the stream ``then``."""
        written = self.log[:]
        if self.plan() is None:
            return
        self.restart()
        if then is None:
            self.log = written
            return
        for step, value in then:
            getattr(self.stream, step)(value)
        self.reader._consumer = self.consumers[0]
        self._read(self.reader.partitions(*self.offsets), attempts=1)

    def available_now(self) -> None:
        """A run with that trigger, while more records come."""
        self.restart()
        self.reader.prepareForTriggerAvailableNow()
        later: set[tuple[str, str]] = set()
        there = self.stream.names()
        for _ in range(20_000):
            self.stream.put(1)
            later = self.stream.names() - there
            if not self.batch():
                break
        else:
            raise AssertionError("it goes on and on")
        assert not later & self.read.keys()
        self.restart()

    def restart_at_tips(self) -> None:
        """Two batches with a Spark before 4.2. It takes no offset as a start."""
        self.restart(old_spark=True)
        if self.log or not isinstance(self.options.starting_position, StreamOffset):
            self.batch()
            self.batch()
        else:
            with pytest.raises(OptionError, match=r"no offset before Spark 4\.2"):
                self.batch()
        self.restart()

    def hand_over(self) -> None:
        """Another query begins where this one has stopped."""
        if self.log:
            self.given["startingPosition"] = self.log[-1]
            self.options, self.log = parse_options(self.given), []
        self.restart()

    def until_idle(self) -> None:
        for _ in range(20_000):
            if not self.batch():
                return
            self.stream.now += 0.01
        raise AssertionError("it goes on and on")


BEFORE = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 20)),
        st.tuples(st.just("split"), st.integers(0, 7)),
        st.tuples(st.just("merge"), st.integers(0, 7)),
        st.tuples(st.just("sleep"), st.sampled_from([HOUR, 9 * HOUR])),
    ),
    max_size=8,
)
#: What happens before the next driver reads a batch.
THEN: list[Steps] = [
    [("put", 1)],
    [("split", 0), ("put", 1)],
    [("sleep", 10 * HOUR)],
    [("sleep", 30 * HOUR)],
    [("recreate_at_once", 1), ("put", 3)],
]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 30) | st.just(600)),
        st.tuples(st.just("split"), st.integers(0, 7)),
        st.tuples(st.just("merge"), st.integers(0, 7)),
        st.tuples(st.just("batch"), st.just(1)),
        st.tuples(st.just("batch"), st.integers(1, 3)),
        st.tuples(st.sampled_from(["restart", "hand_over"]), st.just(0)),
        st.tuples(st.just("die"), st.none() | st.sampled_from(THEN)),
        st.tuples(st.just("available_now"), st.just(0)),
        st.tuples(st.sampled_from(["recreate", "recreate_at_once"]), st.integers(1, 4)),
        st.tuples(st.just("wait"), st.sampled_from([0.2, 30, 250, 1000])),
        st.tuples(st.just("idle"), st.integers(1, 7)),
        st.tuples(st.just("wait"), st.sampled_from([5 * HOUR, 11 * HOUR, 23 * HOUR, 30 * HOUR])),
    ),
    max_size=16,
)
LIMITS = st.builds(ReadLimits, st.sampled_from([0, 1, 7, 60]), st.sampled_from([0, 5, 1000, 600_000]))

#: What GetShardIterator says of a sequence number that it does not know.
GONE: dict[str, dict[str, Any]] = {"AWS's error": {}, "nothing": {"silent": True}}
CONSUMERS = ["polling", "efo", "either in turn"]
#: The arguments of the law, drawn.
LIVES = {
    "before": BEFORE,
    "steps": STEPS,
    "limits": LIMITS,
    "gone": st.sampled_from(list(GONE)),
    "loss_allowed": st.booleans(),
    "shards": st.integers(1, 4),
    "position": st.sampled_from(["TRIM_HORIZON", "LATEST"]),
    "consumer": st.sampled_from(CONSUMERS),
    "last": st.tuples(st.integers(0, 3), st.sampled_from([0, 23 * HOUR, 30 * HOUR])),
    "begins": st.sampled_from(["batch", "restart_at_tips"]),
}


def _life(*steps: tuple[str, Any], last: tuple[int, float] = (2, 0), **more: Any) -> dict[str, Any]:
    fixed: dict[str, Any] = {
        "before": [],
        "limits": ReadLimits(),
        "gone": "AWS's error",
        "loss_allowed": False,
        "shards": 1,
    }
    fixed |= {"position": "LATEST", "consumer": "polling", "begins": "batch"}
    return {**fixed, "steps": [*steps], "last": last, **more}


_PUT: tuple[str, Any] = ("put", 9)
_SPLIT_AND_READ: Steps = [("split", 0), ("batch", 3)]
_RECREATED: Steps = [("recreate", 1), _PUT]
_RECREATED_AT_ONCE: Steps = [("recreate_at_once", 1), _PUT]
_WAIT: tuple[str, Any] = ("wait", 20 * HOUR)
_LONG: tuple[str, Any] = ("wait", 30 * HOUR)
_LOSS: dict[str, Any] = {"loss_allowed": True}
#: Lives in which retention runs out or a stream is created again, that chance finds late.
TELLING: list[dict[str, Any]] = [
    _life(("split", 0), ("batch", 1), last=(2, 30 * HOUR)),  # the listing is older than the children
    _life(*_SPLIT_AND_READ, ("restart", 0), last=(2, 30 * HOUR)),  # they were seen empty
    # The last record that was read is gone, without loss.
    _life(("put", 1), ("idle", 7), ("restart", 0)),
    _life(("put", 1), ("idle", 7), ("restart", 0), _PUT, limits=ReadLimits(records=1)),
    # A parent expires unread, and a run stops at the tips of what is listed.
    _life(
        ("wait", 7 * HOUR),
        ("available_now", 0),
        last=(0, 0),
        limits=ReadLimits(records=1),
        position="TRIM_HORIZON",
        before=[_PUT, ("split", 0), ("sleep", 9 * HOUR), _PUT, ("sleep", 9 * HOUR)],
    ),
    # A shard that was read to its end, and one that was not begun, are there again.
    _life(*_SPLIT_AND_READ, *_RECREATED, **_LOSS),
    _life(_PUT, *_RECREATED, last=(0, 0)),
    _life(*_SPLIT_AND_READ, *_RECREATED, ("available_now", 0), last=(0, 0)),
    # A shard of the earlier life has the name of one that comes later in this one.
    _life(
        ("recreate", 2),
        ("batch", 1),
        ("merge", 0),
        _PUT,
        last=(0, 0),
        before=[("merge", 0)],
        shards=2,
        **_LOSS,
    ),
    # Created again between two listings: the place names no record, or one that is gone with the stream.
    _life(("batch", 1), _PUT, *_RECREATED_AT_ONCE, ("batch", 1)),
    _life(("batch", 1), _PUT, *_RECREATED_AT_ONCE, ("batch", 1), **_LOSS),
    _life(_PUT, ("idle", 2), ("batch", 2), _PUT, *_RECREATED_AT_ONCE),
    # The same, and the listing that is known is of the earlier life.
    _life(*_SPLIT_AND_READ, ("recreate_at_once", 1), ("split", 0), **_LOSS),
    _life(*_RECREATED_AT_ONCE, ("batch", 1), ("wait", 100), **_LOSS),
    # Another query goes on where this one stopped: what it needs is gone, or is of an earlier life.
    *(
        _life(_PUT, ("batch", 2), *happens, ("hand_over", 0), ("batch", 1), **more)
        for more in ({}, _LOSS)
        for happens in (
            [],
            _RECREATED,
            [("split", 0), _LONG],
            [_PUT, _LONG, _PUT],
            [_PUT, ("split", 0), _LONG],
        )
    ),
    _life(_PUT, *_SPLIT_AND_READ, ("hand_over", 0), ("batch", 1)),
    # A driver dies before it has read a batch: it has not counted its records, or some are gone then.
    _life(("put", 900), ("die", [("put", 1)])),
    *(
        _life(*before, ("die", then), gone=gone, consumer=consumer, **more)
        for then in THEN[2:]
        for before in ([_PUT, _WAIT, _PUT], [_PUT, ("batch", 1), _PUT, _WAIT, _PUT])
        for gone in GONE
        for consumer in ("polling", "efo")
        for more in ({}, _LOSS)
    ),
    # With a Spark before 4.2: a new query, and one that was down while the stream was created again.
    _life(begins="restart_at_tips", position="TRIM_HORIZON", before=[_PUT]),
    _life(_PUT, *_RECREATED, ("restart_at_tips", 0)),
    _life(("restart_at_tips", 0), _PUT, *_RECREATED, ("restart_at_tips", 0)),
    _life(("restart_at_tips", 0), _PUT, *_RECREATED, ("restart_at_tips", 0), **_LOSS),
]


def no_record_is_skipped_without_an_error(
    before: list[tuple[str, int]],
    steps: list[tuple[str, Any]],
    limits: ReadLimits,
    gone: str,
    loss_allowed: bool,
    shards: int,
    position: str,
    consumer: str,
    last: tuple[int, float],
    begins: str,
) -> None:
    """Where loss is allowed: no record is skipped that the stream still has."""
    stream = FanOutKinesis(shards, faults=0.05, **GONE[gone])
    for step, value in before:
        getattr(stream, step)(value)
    past, kept = stream.names(), stream.names(left=True) if position == "TRIM_HORIZON" else set()
    stream.now += 1
    arn = StreamConsumers(stream, sleep=stream.sleep, clock=stream.clock).require_active(ARN, "reader")
    consumers = {"polling": [None], "efo": [arn], "either in turn": [None, arn]}[consumer]
    options: dict[str, Any] = {"startingPosition": position, "failOnDataLoss": not loss_allowed}
    query = ModelQuery(stream, limits, consumers=consumers, meanwhile=1, **options)

    def missing() -> set[tuple[str, str]]:
        there = stream.names() & stream.names(left=loss_allowed)
        return (there - past | kept & there) - query.read.keys()

    getattr(query, begins)()  # the start is settled: all that comes is the query's
    attended, longest = stream.now, 0.0
    try:
        for step, value in [*steps, ("put", last[0]), ("wait", last[1]), ("batch", 0)]:
            stream.now += 0.5  # no shard was asked a moment ago
            if step == "idle":  # it runs for so many times eight hours, without records
                for _ in range(value):
                    query.until_idle()
                    longest, attended = max(longest, stream.now - attended), stream.now
                    stream.now += 8 * HOUR
            elif step == "batch":
                idle = not value and query.until_idle() is None
                for _ in range(value):
                    idle = not query.batch()
                    stream.now += 0.01
                if idle:  # every shard that may be read was looked at
                    longest, attended = max(longest, stream.now - attended), stream.now
            elif step == "wait":
                stream.now += value
            elif step in ("restart", "restart_at_tips", "hand_over"):
                getattr(query, step)()
            elif step == "die":
                query.die(value)
            elif step == "available_now":
                before_it = missing()
                longest, attended = max(longest, stream.now - attended), stream.now
                query.available_now()
                assert not missing() & before_it, "a run did not read what was there"
            else:
                getattr(stream, step)(value)
        stream.now += 300
        query.until_idle()
    except DataLoss as error:
        assert not loss_allowed
        assert error.code in DataLoss.codes
        # An error is right only where records or shards are gone, or where nobody looked for about a day.
        lost = missing() - stream.names(left=True)
        expired = len(stream.listed()) < len(stream.shards)
        assert lost or expired or stream.born or max(longest, stream.now - attended) > 23 * HOUR
        return
    assert not query.read - Counter(stream.names())
    assert max(query.read.values(), default=1) == 1
    assert not missing()
    assert position == "TRIM_HORIZON" or not query.read.keys() & past
