"""Reading a shard by subscription: over the model of AWS, and over a real server behind the proxy."""

from __future__ import annotations

import itertools
import time
from datetime import datetime, timezone
from email.utils import formatdate
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError
from hypothesis import given, settings
from hypothesis import strategies as st

from kpl_codec.aws.cursor import ShardCursor
from kpl_codec.aws.subscription import EventError, StreamConsumers, SubscriptionCursor, shard_event
from kpl_codec.shards.live_shard_map import StreamUnavailable
from kpl_codec.shards.starting_position import (
    LATEST,
    TRIM_HORIZON,
    StartingPosition,
    after_record,
    at_record,
    at_time,
)
from kpl_codec.testing.faults import error, throttle
from tests.every import every
from tests.examples import examples

from ..testing.event_stream import FanOutProxy, cut_before, cut_events, end_events, fail_events
from .model_fan_out import ARN, FanOutKinesis

SHARD = "shardId-000000000000"


def consumers_of(stream: FanOutKinesis) -> StreamConsumers:
    return StreamConsumers(stream, sleep=stream.sleep, clock=stream.clock)


def registered(stream: FanOutKinesis) -> str:
    return consumers_of(stream).require_active(ARN, "reader")


def subscriber(
    stream: FanOutKinesis, position: StartingPosition, shard: str = SHARD, **more: Any
) -> SubscriptionCursor:
    arn = more.pop("arn", None) or registered(stream)
    return SubscriptionCursor(
        stream,
        arn,
        shard,
        position,
        clock=stream.clock,
        now=stream.clock,
        sleep=stream.sleep,
        **{"patience": 3000.0, **more},
    )


def numbers(cursor: ShardCursor, limit: int = 1000, most: int = 3000) -> list[str]:
    """The sequence numbers up to the tip or the end."""
    sequence_numbers: list[str] = []
    for _ in range(most):
        answer = cursor.fetch(limit)
        sequence_numbers += [record["SequenceNumber"] for record in answer.records]
        if answer.near_tip:
            return sequence_numbers
    raise AssertionError("no tip")


POSITIONS = st.one_of(
    st.just("TRIM_HORIZON"), st.just("time"), st.tuples(st.booleans(), st.integers(0, 10**6))
)


def position_in(stream: FanOutKinesis, drawn: Any) -> StartingPosition:
    records = stream.shards[SHARD].records
    if drawn == "TRIM_HORIZON" or not records:
        return TRIM_HORIZON
    if drawn == "time":
        return at_time(int(records[len(records) // 2][1] * 1000))
    at, index = drawn
    number = str(records[index % len(records)][0])
    return at_record(number) if at else after_record(number)


@pytest.mark.requirement("EFO-2", "EFO-3", "EFO-4", "EFO-5")
@settings(max_examples=examples(200))
@given(
    st.integers(0, 300),
    POSITIONS,
    st.sampled_from([0, 0.1, 0.4]),
    st.integers(1, 60),
    st.lists(st.integers(1, 15), max_size=3),
    st.booleans(),
    st.integers(),
)
def test_a_subscription_gives_what_polling_gives(
    records: int, drawn: Any, faults: float, limit: int, minutes: list[int], closed: bool, seed: int
) -> None:
    """Followed for some minutes with few records, then to the end."""
    stream = FanOutKinesis(1, faults=faults, most=17, seed=seed)
    stream.put(records)
    position = position_in(stream, drawn)
    polled = ShardCursor(stream, "s", SHARD, position, clock=stream.clock, sleep=stream.sleep)
    cursor = subscriber(stream, position)
    read = numbers(cursor, limit)
    for wait in minutes:
        stream.put(7)
        until = stream.now + 60 * wait
        while stream.now < until:
            read += [record["SequenceNumber"] for record in cursor.fetch(limit).records]
    assert faults or stream.longest > 200 or max(minutes, default=0) < 10
    if closed:
        stream.split(0)
        stream.put(3)
    assert read + numbers(cursor, limit) == numbers(polled, limit)
    assert cursor.ended == closed
    if cursor.ended:
        assert cursor.fetch().records == []
    assert stream.longest < 300
    assert all(later - earlier >= 1 for earlier, later in itertools.pairwise(stream.called))
    assert not [(at, since) for at in stream.called for since in stream.subscribed if since < at < since + 5]


class Dated(FanOutKinesis):
    """Each answer has the service's time, as those of AWS have."""

    def _dated(self, answer: dict[str, Any]) -> dict[str, Any]:
        headers = {"date": formatdate(self.now, usegmt=True)}
        return {**answer, "ResponseMetadata": {"HTTPHeaders": headers}}

    def get_shard_iterator(self, **arguments: Any) -> dict[str, Any]:
        return self._dated(super().get_shard_iterator(**arguments))

    def subscribe_to_shard(self, **arguments: Any) -> dict[str, Any]:
        return self._dated(super().subscribe_to_shard(**arguments))


@pytest.mark.requirement("MAP-27")
@every("subscribes", [False, True])
@every("ahead", [-200.0, 0.0, 200.0])
def test_latest_is_a_time_of_the_service(subscribes: bool, ahead: float) -> None:
    """An iterator expires, a subscription ends, before it gave a record; this clock is fast or slow."""
    stream = Dated(1)
    stream.put(3)
    stream.now += 60
    settings: dict[str, Any] = {"clock": stream.clock, "now": lambda: stream.now + ahead}
    if subscribes:
        arn = registered(stream)
        ends = iter([None, "end"])
        stream._fault = lambda: next(ends, None)  # type: ignore[method-assign]

        def sleep(seconds: float) -> None:
            stream.put(0 if stream.names() - before else 5)
            stream.sleep(seconds)

        before = set(stream.names())
        cursor: ShardCursor = SubscriptionCursor(stream, arn, SHARD, LATEST, sleep=sleep, **settings)
    else:
        cursor = ShardCursor(stream, "s", SHARD, LATEST, sleep=stream.sleep, **settings)
        assert cursor.fetch().records == []
        before = set(stream.names())
        stream.put(5)
        stream.now += 400
    read = numbers(cursor)
    assert read == sorted((number for _, number in stream.names() - before), key=int)
    assert len(read) == 5


@pytest.mark.requirement("EFO-3", "EFO-5")
def test_two_readers_of_one_consumer_take_turns_and_both_read_everything() -> None:
    stream = FanOutKinesis(1, most=3)
    stream.put(200)
    arn = registered(stream)
    readers = [subscriber(stream, TRIM_HORIZON, arn=arn) for _ in range(2)]
    sequence_numbers: list[list[str]] = [[], []]
    for turn in range(800):
        reader = readers[turn % 2]
        sequence_numbers[turn % 2] += [record["SequenceNumber"] for record in reader.fetch().records]
    expected = [number for _, number in sorted(stream.names(), key=lambda name: int(name[1]))]
    assert sequence_numbers == [expected, expected]


@pytest.mark.requirement("EFO-6", "EFO-7")
def test_a_consumer_is_registered_once_and_one_that_is_missing_is_no_missing_shard() -> None:
    stream = FanOutKinesis(1)
    stream.put(3)
    arn = registered(stream)
    assert registered(stream) == arn
    cursor = subscriber(stream, TRIM_HORIZON)
    assert len(numbers(cursor)) == 3
    cursor.close()
    stream.deregister_stream_consumer(ConsumerARN=arn)
    with pytest.raises(StreamUnavailable, match="ConsumerNotFound") as caught:
        cursor.fetch()
    assert caught.value.permanent
    assert registered(stream) in stream.consumers
    gone = subscriber(stream, TRIM_HORIZON)
    stream.split(0)
    stream.now += 48 * 3600
    with pytest.raises(StreamUnavailable, match="ResourceNotFoundException"):
        gone.fetch()
    stream.describe_stream_consumer = lambda **_: {  # type: ignore[method-assign]
        "ConsumerDescription": {"ConsumerStatus": "DELETING", "ConsumerARN": arn}
    }
    with pytest.raises(StreamUnavailable, match="ConsumerNotFound"):
        registered(stream)


def test_what_a_retry_cannot_solve_is_raised_and_the_rest_after_patience() -> None:
    stream = FanOutKinesis(1, faults=1.0)
    begun = stream.now
    with pytest.raises(StreamUnavailable):
        subscriber(stream, TRIM_HORIZON, patience=60.0).fetch()
    assert stream.now - begun < 90
    assert stream.calls["subscribe_to_shard"] < 60
    stream = FanOutKinesis(1)
    stream.put(1)
    first = next(iter(stream.names()))[1]
    stream.now += 48 * 3600
    with pytest.raises(StreamUnavailable, match="InvalidArgumentException"):
        subscriber(stream, at_record(first)).fetch()

    def unreachable(**_: Any) -> Any:
        raise EndpointConnectionError(endpoint_url="http://127.0.0.1:9")

    stream.describe_stream_consumer = unreachable  # type: ignore[method-assign]
    begun = stream.now
    consumers = StreamConsumers(stream, patience=60.0, sleep=stream.sleep, clock=stream.clock)
    with pytest.raises(StreamUnavailable, match="Could not connect"):
        consumers.require_active(ARN, "reader")
    assert 50 < stream.now - begun <= 60


RECORD = {
    "SequenceNumber": "5",
    "Data": b"x",
    "PartitionKey": "k",
    "ApproximateArrivalTimestamp": datetime(2026, 1, 1, tzinfo=timezone.utc),
}
EVENT = {"Records": [RECORD], "ContinuationSequenceNumber": "5", "MillisBehindLatest": 0}
END = {"Records": [], "MillisBehindLatest": 0, "ChildShards": [{"ShardId": "shardId-000000000001"}]}


@pytest.mark.requirement("EFO-1", "EFO-2")
@every(
    "event",
    [
        None,
        {},
        {"SDK_UNKNOWN_MEMBER": {"name": "Other"}},
        {"SubscribeToShardEvent": None},
        *(
            {"SubscribeToShardEvent": {**EVENT, **change}}
            for change in [
                {"Records": None},
                {"Records": [None]},
                {"Records": [RECORD, RECORD]},
                {"MillisBehindLatest": None},
                {"MillisBehindLatest": -1},
                {"MillisBehindLatest": True},
                {"ContinuationSequenceNumber": None},
                {"ContinuationSequenceNumber": "five"},
                {"ContinuationSequenceNumber": 5},
                {"ChildShards": [{"ShardId": "shardId-000000000001"}]},
                {"ChildShards": {}},
                *({"Records": [{**RECORD, name: None}]} for name in RECORD),
                {"Records": [{**RECORD, "SequenceNumber": "-5"}]},
                {"Records": [{**RECORD, "ApproximateArrivalTimestamp": datetime(2026, 1, 1)}]},
            ]
        ),
        {"SubscribeToShardEvent": {**END, "ChildShards": [{}]}},
        {"SubscribeToShardEvent": {**END, "ChildShards": []}},
    ],
)
def test_other_events_are_refused(event: Any) -> None:
    with pytest.raises(EventError):
        shard_event(event)


FAULTS = [
    throttle(),
    error("InternalFailure", status=500),
    cut_before,
    error("ExpiredTokenException"),
    error("ResourceInUseException"),
    cut_events(after=1),
    cut_events(after=0, fraction=0.99),
    end_events(after=1),
    end_events(after=0),
    fail_events("InternalFailureException"),
    fail_events("ResourceInUseException", after=1),
]


@pytest.mark.server
@pytest.mark.requirement("EFO-2", "EFO-3")
def test_boto3_reads_a_real_server_through_every_fault(kinesis_local: Any, stream_name: str) -> None:
    kinesis_local.create_stream(stream_name)
    client = kinesis_local.client()
    summary = client.describe_stream_summary(StreamName=stream_name)["StreamDescriptionSummary"]
    with FanOutProxy(kinesis_local.endpoint_url) as proxy:
        reading = kinesis_local.client(endpoint_url=proxy.endpoint_url)
        arn = StreamConsumers(reading).require_active(summary["StreamARN"], "reader")
        put: list[str] = []

        def add(count: int) -> None:
            entries = [{"Data": b"%d" % number, "PartitionKey": "k"} for number in range(count)]
            answer = client.put_records(StreamName=stream_name, Records=entries)
            put.extend(record["SequenceNumber"] for record in answer["Records"])

        rules = [proxy.on("SubscribeToShard", fault, times=1) for fault in FAULTS]
        # The limits are AWS's and would cost this test a minute: the clock is let run ahead.
        ahead = [0.0]
        cursor = SubscriptionCursor(
            reading,
            arn,
            SHARD,
            TRIM_HORIZON,
            clock=lambda: time.monotonic() + ahead[0],
            sleep=lambda seconds: ahead.__setitem__(0, ahead[0] + seconds),
        )
        sequence_numbers: list[str] = []
        for _ in range(100):
            if len(put) < 400:
                add(20)
            sequence_numbers += [record["SequenceNumber"] for record in cursor.fetch().records]
            if len(sequence_numbers) == 400:
                break
            if len(sequence_numbers) % 60 == 0:
                cursor.close()
        client.split_shard(StreamName=stream_name, ShardToSplit=SHARD, NewStartingHashKey=str(2**127))
        while not cursor.ended:
            assert not cursor.fetch().records
        assert sequence_numbers == put
        assert [rule.fault.__name__ for rule in rules if not rule.acted] == []
