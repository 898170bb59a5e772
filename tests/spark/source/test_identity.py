"""A checkpoint and the stream that it meets: the same, another life of it, or another one of its name."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from kpl_codec.shards.live_shard_map import StreamUnavailable
from kpl_codec.spark.source.datasource import KinesisStreamReader
from kpl_codec.spark.source.kinesis_reader import KinesisReader
from kpl_codec.spark.source.offsets import DataLoss, OffsetError, StreamOffset
from kpl_codec.spark.source.planner import Planner
from kpl_codec.spark.source.shard_planner import ReadLimits

from .model import ModelKinesis
from .model_query import ModelQuery

ELSEWHERE = "arn:aws:kinesis:eu-west-1:123456789012:stream/s"
#: What the query meets, and whether the service tells which stream it is.
STREAMS = ["same", "created again", "another region", "another, older", "another, as old", "another, untold"]
#: How the query must end, where the service tells: where loss is not allowed, and where it is.
REFUSALS: dict[str, tuple[type[Exception] | None, type[Exception] | None]] = {
    "same": (None, None),
    "created again": (DataLoss, None),
    "another region": (OffsetError, OffsetError),
    "another, older": (OffsetError, OffsetError),
}
#: How far the query is on the shards of its own stream.
PLACES = ["drained", "open, read", "untouched", "of all kinds"]


def begun(places: str, **options: Any) -> tuple[ModelKinesis, ModelQuery]:
    stream = ModelKinesis(2)
    stream._numbers = itertools.count(2 * 10**20)  # its shards are younger than those of `met`
    for shard in stream.shards.values():
        shard.start = next(stream._numbers)
    query = ModelQuery(stream, ReadLimits(), **options)
    if places == "untouched":
        query.batch()
        return stream, query
    for shard in stream.open_shards[: 1 if places == "of all kinds" else 2]:
        for _ in range(5):
            stream.put_on(shard, b"x")
    query.until_idle()
    if places != "open, read":
        stream.split(0)
        query.until_idle()
        query.restart()
        query.until_idle()  # its children have no records
    return stream, query


def met(own: ModelKinesis, which: str, *, resharded: bool) -> ModelKinesis:
    if which == "same":
        own.put(20)
        return own
    if which == "created again":
        own.recreate(2)
        own.put(20)
        return own
    other = ModelKinesis(2, seed=1)
    other.now = own.now
    other.put(20)
    if resharded:
        other.split(0)
        other.put(20)
    if which == "another region":
        other.arn = ELSEWHERE
    elif which == "another, older":
        other.created = own.created.replace(year=2022)
    elif which == "another, untold":
        other.arn = None
    return other


@pytest.mark.requirement("SPK-52", "SPK-90", "SPK-112")
@pytest.mark.parametrize("loss_allowed", [False, True], ids=["fail", "loss allowed"])
@pytest.mark.parametrize("resharded", [False, True], ids=["as begun", "resharded"])
@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("which", STREAMS)
def test_no_record_of_the_stream_that_is_met_is_left_out_in_silence(
    which: str, places: str, resharded: bool, loss_allowed: bool
) -> None:
    """Another stream is refused, whatever failOnDataLoss says. Of the same one, and where nobody can tell the
    two apart, every record is read, or it is an error."""
    own, query = begun(places, failOnDataLoss=not loss_allowed)
    before = set(query.read)
    stream = met(own, which, resharded=resharded)
    if which == "another, untold":  # as the checkpoint of a role that may not ask
        told = json.loads(query.log[-1])
        query.log[-1] = json.dumps({name: told[name] for name in told if name not in ("arn", "created")})
    there = stream.names(left=True)
    query.stream, query._life = stream, stream.born
    query._begun.clear()
    query.restart()
    refused: type[Exception] | None = None
    try:
        query.until_idle()
    except (OffsetError, DataLoss) as error:
        refused = type(error)
    assert which not in REFUSALS or refused is REFUSALS[which][loss_allowed]
    if refused is None:
        assert there <= set(query.read), f"{len(there - set(query.read))} records were never read"
    else:
        assert set(query.read) == before, "something was read of it"


@pytest.mark.requirement("SPK-112")
def test_an_offset_knows_its_stream_and_old_ones_are_read() -> None:
    own, query = begun("of all kinds")
    told = json.loads(query.log[-1])
    assert told["arn"] == own.arn
    assert told["created"] == round(own.created.timestamp() * 1000)
    del told["arn"], told["created"]  # as earlier versions wrote it
    query.log[-1] = json.dumps(told)
    own.put(20)
    query.restart()
    query.until_idle()
    assert set(query.read) == own.names()
    assert json.loads(query.log[-1])["arn"] == own.arn


@pytest.mark.requirement("SPK-112")
@pytest.mark.parametrize("stale", [1, 3])
def test_a_listing_may_be_older_than_what_was_read(stale: int, monkeypatch: pytest.MonkeyPatch) -> None:
    own, query = begun("open, read")
    old = own.list_shards()
    own.split(0)
    own.put(20)
    query.until_idle()
    now, answers = own.list_shards, iter([old] * stale)
    monkeypatch.setattr(own, "list_shards", lambda **_: next(answers, None) or now())
    query.restart()
    own.put(5)
    query.until_idle()
    assert set(query.read) == own.names()


@pytest.mark.requirement("SPK-112")
def test_a_batch_that_an_earlier_process_has_planned_is_not_read_of_another_stream() -> None:
    own, query = begun("of all kinds", failOnDataLoss=False)
    own.put(20)
    own.now += 60
    assert query.plan()
    start, end = map(json.loads, query.log[-2:])
    reader = KinesisStreamReader(query.options, None)  # type: ignore[arg-type]
    other = met(own, "another region", resharded=True)
    access = KinesisReader(other, query.options, clock=other.clock, now=other.clock, sleep=other.sleep)
    reader._planner = Planner(access, workers=1)
    with pytest.raises(OffsetError, match="eu-west-1"):
        reader.partitions(start, end)


@pytest.mark.requirement("SPK-52")
@pytest.mark.parametrize("member", [{"arn": 5}, {"created": "2023"}, {"created": True}])
def test_what_says_the_stream_is_a_text_and_a_number(member: dict[str, Any]) -> None:
    with pytest.raises(OffsetError, match=next(iter(member))):
        StreamOffset.from_json({"stream": "s", "version": 1, "shards": {}, **member}, "s")


def test_a_clock_that_is_ahead_is_named() -> None:
    stream = ModelKinesis(1)
    query = ModelQuery(stream, ReadLimits(), startingPosition="LATEST")
    ahead = KinesisReader(
        stream, query.options, clock=stream.clock, now=lambda: stream.now + 400, sleep=stream.sleep
    )
    query.planner = Planner(ahead, workers=1)
    with pytest.raises(StreamUnavailable, match="clock ahead"):
        query.batch(1)
