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

from kpl_codec.aws.stream_consumer import StreamConsumers
from kpl_codec.spark.source.consumer import joined
from kpl_codec.spark.source.ends import Caps
from kpl_codec.spark.source.offsets import DataLoss, Piece, StreamOffset, batch_pieces
from kpl_codec.spark.source.options import parse_options
from kpl_codec.spark.source.plan import moves
from kpl_codec.spark.source.read import make_planner
from kpl_codec.spark.source.tasks import PieceReader
from tests.aws.model_fan_out import ARN, FanOutKinesis

from .model import HOUR, ModelKinesis


class ModelQuery:
    """A query without Spark: the offset survives a restart as JSON, nothing else does. ``consumers``: the
    ARNs that the batches are read with, in turn; None: polling."""

    def __init__(
        self, stream: ModelKinesis, caps: Caps, *, consumers: Sequence[str | None] = (None,), **options: Any
    ) -> None:
        self.stream, self.caps, self.consumers = stream, caps, consumers
        settings = {"streamName": "s", "fetchCallsPerSecondPerShard": 0, "fetchBytesPerSecondPerShard": 0}
        self.options = parse_options({key: str(value) for key, value in {**settings, **options}.items()})
        self.log: list[str] = []
        self.read: Counter[tuple[str, str]] = Counter()
        self._begun: set[str] = set()  # shards of which records were read
        self.restart()

    def restart(self) -> None:
        stream = self.stream
        # Sleeps of many threads would add up on the model's one clock.
        self.planner = make_planner(
            self.options, stream, workers=1, clock=stream.clock, now=stream.clock, sleep=stream.sleep
        )

    def plan(self) -> list[Piece] | None:
        """Plan and log one micro-batch; gives what it reads, None where there is nothing new."""
        if not self.log:
            self.log.append(json.dumps(self.planner.begin_at(self.options.starting_position).to_json()))
        start = StreamOffset.from_json(json.loads(self.log[-1]), "s")
        end = self.planner.advance(start, self.caps)
        if not moves(start, end):
            return None
        self.log.append(json.dumps(end.to_json()))
        return batch_pieces(start, StreamOffset.from_json(json.loads(self.log[-1]), "s"))

    def batch(self, attempts: int = 2) -> bool:
        """One micro-batch, read twice as by two attempts. False where there is nothing to read."""
        pieces = self.plan()
        if pieces is None:
            return False
        consumer = self.consumers[len(self.log) % len(self.consumers)]
        pieces = pieces if consumer is None else joined(pieces)
        carried, left = self.planner.handover.split(pieces)
        rows = [
            (piece.shard_id, record["SequenceNumber"]) for piece in carried for record in carried[piece]
        ] + self._rows(left, consumer)
        if attempts > 1:  # another attempt has the offsets only
            assert sorted(self._rows(pieces, consumer)) == sorted(rows)
        self.read.update(rows)
        counts = Counter(shard_id for shard_id, _ in rows)
        assert self.caps.records is None or max(counts.values(), default=0) <= self.caps.records
        self._begun |= counts.keys()
        over = {parent for shard_id in self._begun for parent in self.stream.shards[shard_id].parents}
        assert not over & counts.keys(), "a parent is read with or after its child"
        return True

    def _rows(self, pieces: list[Piece], consumer: str | None = None) -> list[tuple[str, str]]:
        stream = self.stream
        reader = PieceReader(
            stream,
            self.options,
            consumer=consumer,
            clock=stream.clock,
            now=stream.clock,
            sleep=stream.sleep,
        )
        return [
            (piece.shard_id, record["SequenceNumber"])
            for piece in pieces
            for records in reader.records(piece)
            for record in records
        ]

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
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("wait"), st.sampled_from([0.2, 30, 250, 1000])),
        st.tuples(st.just("idle"), st.integers(1, 7)),
        st.tuples(st.just("wait"), st.sampled_from([5 * HOUR, 11 * HOUR, 23 * HOUR, 30 * HOUR])),
    ),
    max_size=16,
)
CAPS = st.builds(
    Caps,
    st.none() | st.sampled_from([1, 7, 60]),
    st.none() | st.sampled_from([5, 1000, 600_000]),
    st.none() | st.sampled_from([3, 1000]),
)

CONSUMERS = ["polling", "efo", "either in turn"]
#: The arguments of the law, drawn.
LIVES = {
    "before": BEFORE,
    "steps": STEPS,
    "caps": CAPS,
    "silent": st.booleans(),
    "shards": st.integers(1, 4),
    "position": st.sampled_from(["TRIM_HORIZON", "LATEST"]),
    "consumer": st.sampled_from(CONSUMERS),
    "last": st.tuples(st.integers(0, 3), st.sampled_from([0, 23 * HOUR, 30 * HOUR])),
}
#: Lives in which retention runs out, that chance finds late.
TELLING: list[dict[str, Any]] = [
    {
        "before": [],
        "steps": steps,
        "caps": Caps(records=most),
        "silent": False,
        "shards": 1,
        "position": "LATEST",
        "consumer": "polling",
        "last": last,
    }
    for steps, last, most in [
        ([("split", 0), ("batch", 1)], (2, 30 * HOUR), None),  # the listing is older than the children
        ([("split", 0), ("batch", 3), ("restart", 0)], (2, 30 * HOUR), None),  # they were seen empty
        # The last record that was read is gone, without loss.
        ([("put", 1), ("idle", 7), ("restart", 0)], (2, 0), None),
        ([("put", 1), ("idle", 7), ("restart", 0), ("put", 9)], (2, 0), 1),
    ]
]


def query_of(stream: FanOutKinesis, consumer: str, caps: Caps, **options: Any) -> ModelQuery:
    """``consumer``: one of `CONSUMERS`."""
    arn = StreamConsumers(stream, sleep=stream.sleep, clock=stream.clock).register(ARN, "reader")
    consumers = {"polling": [None], "efo": [arn], "either in turn": [None, arn]}[consumer]
    return ModelQuery(stream, caps, consumers=consumers, **options)


def no_record_is_skipped_without_an_error(
    before: list[tuple[str, int]],
    steps: list[tuple[str, Any]],
    caps: Caps,
    silent: bool,
    shards: int,
    position: str,
    consumer: str,
    last: tuple[int, float],
) -> None:
    stream = FanOutKinesis(shards, silent=silent, faults=0.05)
    for step, value in before:
        getattr(stream, step)(value)
    past, kept = stream.names(), stream.names(left=True) if position == "TRIM_HORIZON" else set()
    stream.now += 1
    query = query_of(stream, consumer, caps, startingPosition=position)
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
