"""A query over the model stream, and the law that it must keep: whatever happens, no record is skipped
without an error, none comes twice, children come after their parents, and limits hold.

Times are the model's, so that days pass between two batches and iterators and records expire.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from kpl_codec.aws.subscription import StreamConsumers
from kpl_codec.spark.source.kinesis_reader import KinesisReader, read_piece
from kpl_codec.spark.source.offsets import DataLoss, ShardRange, StreamOffset, batch_pieces
from kpl_codec.spark.source.planner import Planner, must_be_written
from kpl_codec.spark.source.shard_planner import ReadLimits
from kpl_codec.spark.source.source_options import parse_options
from tests.aws.model_fan_out import ARN, FanOutKinesis

from .model import HOUR, ModelKinesis


class ModelQuery:
    """A query without Spark: the offset survives a restart as JSON, nothing else does. ``consumers``: the
    ARNs that the batches are read with, in turn; None: polling."""

    def __init__(
        self,
        stream: ModelKinesis,
        limits: ReadLimits,
        *,
        consumers: Sequence[str | None] = (None,),
        **options: Any,
    ) -> None:
        self.stream, self.limits, self.consumers = stream, limits, consumers
        settings = {"stream": "s", "fetchCallsPerSecondPerShard": 0, "fetchBytesPerSecondPerShard": 0}
        self.given = {key: str(value) for key, value in {**settings, **options}.items()}
        self.options = parse_options(self.given)
        self.log: list[str] = []
        self.read: Counter[tuple[str, str]] = Counter()
        self._begun: set[str] = set()  # shards of which records were read
        self._life = stream.born
        self.restart()

    def restart(self) -> None:
        stream = self.stream
        self._at_tips = False
        # Sleeps of many threads would add up on the model's one clock.
        self.access = KinesisReader(
            stream, self.options, clock=stream.clock, now=stream.clock, sleep=stream.sleep
        )
        self.planner = Planner(self.access, workers=1)

    def plan(self) -> list[ShardRange] | None:
        """Plan and log one micro-batch; gives what it reads, None where there is nothing new."""
        if not self.log:
            self.log.append(json.dumps(self.planner.begin_at(self.options.starting_position).to_json()))
        start = StreamOffset.from_json(json.loads(self.log[-1]), "s")
        if self._at_tips:
            end = self.planner.at_tips(self.options.starting_position)
            self.planner.refuse_unread(start)
        else:
            end = self.planner.advance(start, self.limits)
            if not must_be_written(start, end):
                return None
        self.log.append(json.dumps(end.to_json()))
        return batch_pieces(start, StreamOffset.from_json(json.loads(self.log[-1]), "s"))

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

    def batch(self, attempts: int = 2) -> bool:
        """One micro-batch, read twice as by two attempts. False where there is nothing to read."""
        unread, begun = self._oldest_unread(), self.stream.now
        pieces = self.plan()
        if pieces is None:
            return False
        for shard_id, ends in json.loads(self.log[-1])["shards"].items():
            if "behind" in ends and shard_id in unread:
                assert ends["behind"] >= (begun - unread[shard_id]) * 1000 - 2, "it is further behind"
        consumer = self.consumers[len(self.log) % len(self.consumers)]
        carried, left = self.planner.take_records(pieces)
        rows = [
            (piece.shard_id, record["SequenceNumber"]) for piece in carried for record in carried[piece]
        ] + self._rows(left, consumer)
        if attempts > 1:  # another attempt has the offsets only
            again = Counter(self._rows(pieces, consumer))
            expired = self.stream.names() - self.stream.names(left=True)
            assert not again - Counter(rows)
            assert (Counter(rows) - again).keys() <= (set() if self.options.fail_on_data_loss else expired)
        self.read.update(rows)
        counts = Counter(shard_id for shard_id, _ in rows)
        if self._at_tips:
            return True  # as much as there is, parents with their children
        assert not self.limits.records or max(counts.values(), default=0) <= self.limits.records
        if self._life != self.stream.born:
            self._begun, self._life = set(), self.stream.born
        self._begun |= counts.keys() & self.stream.shards.keys()
        over = {parent for shard_id in self._begun for parent in self.stream.shards[shard_id].parents}
        assert not over & counts.keys(), "a parent is read with or after its child"
        return True

    def _rows(self, pieces: list[ShardRange], consumer: str | None = None) -> list[tuple[str, str]]:
        return [
            (piece.shard_id, record["SequenceNumber"])
            for piece in pieces
            for records in read_piece(self.access, consumer, piece)
            for record in records
        ]

    def available_now(self) -> None:
        """A run with that trigger, while more records come."""
        self.restart()
        self.planner.stop_at_tip()
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
        """A restart with a Spark before 4.2, whose first batch is planned without the query's offset."""
        self.restart()
        self._at_tips = True
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
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 30) | st.just(600)),
        st.tuples(st.just("split"), st.integers(0, 7)),
        st.tuples(st.just("merge"), st.integers(0, 7)),
        st.tuples(st.just("batch"), st.just(1)),
        st.tuples(st.just("batch"), st.integers(1, 3)),
        st.tuples(st.sampled_from(["restart", "hand_over"]), st.just(0)),
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
}
Steps = list[tuple[str, Any]]


def _life(*steps: tuple[str, Any], last: tuple[int, float] = (2, 0), **more: Any) -> dict[str, Any]:
    fixed = {"before": [], "limits": ReadLimits(), "gone": "AWS's error", "loss_allowed": False, "shards": 1}
    return {**fixed, "position": "LATEST", "consumer": "polling", "steps": [*steps], "last": last, **more}


_PUT: tuple[str, Any] = ("put", 9)
_SPLIT_AND_READ: Steps = [("split", 0), ("batch", 3)]
_RECREATED: Steps = [("recreate", 1), _PUT]
_RECREATED_AT_ONCE: Steps = [("recreate_at_once", 1), _PUT]
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
    # Created again while a query of a Spark before 4.2 was down.
    _life(_PUT, *_RECREATED, ("restart_at_tips", 0)),
    _life(("restart_at_tips", 0), _PUT, *_RECREATED, ("restart_at_tips", 0)),
    _life(("restart_at_tips", 0), _PUT, *_RECREATED, ("restart_at_tips", 0), **_LOSS),
]


def query_of(stream: FanOutKinesis, consumer: str, limits: ReadLimits, **options: Any) -> ModelQuery:
    """``consumer``: one of `CONSUMERS`."""
    arn = StreamConsumers(stream, sleep=stream.sleep, clock=stream.clock).require_active(ARN, "reader")
    consumers = {"polling": [None], "efo": [arn], "either in turn": [None, arn]}[consumer]
    return ModelQuery(stream, limits, consumers=consumers, **options)


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
) -> None:
    """Where loss is allowed: no record is skipped that the stream still has."""
    stream = FanOutKinesis(shards, faults=0.05, **GONE[gone])
    for step, value in before:
        getattr(stream, step)(value)
    past, kept = stream.names(), stream.names(left=True) if position == "TRIM_HORIZON" else set()
    stream.now += 1
    query = query_of(stream, consumer, limits, startingPosition=position, failOnDataLoss=not loss_allowed)

    def missing() -> set[tuple[str, str]]:
        there = stream.names() & stream.names(left=loss_allowed)
        return (there - past | kept & there) - query.read.keys()

    query.batch()  # the start is settled: all that comes is the query's
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
