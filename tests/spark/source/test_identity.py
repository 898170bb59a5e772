"""A checkpoint, or an offset of another query, and the stream that it meets: the same, another life of it, or
another one of its name."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from kpl_codec.shards.live_shard_map import StreamUnavailable
from kpl_codec.spark.source.datasource import KinesisDataSource
from kpl_codec.spark.source.offsets import DataLoss, OffsetError, StreamOffset
from kpl_codec.spark.source.positions import OptionError
from kpl_codec.spark.source.shard_planner import ReadLimits
from kpl_codec.spark.source.source_options import parse_options
from tests.every import every

from .model import HOUR, ModelKinesis
from .model_query import ModelQuery

ELSEWHERE = "arn:aws:kinesis:eu-west-1:123456789012:stream/s"
#: What the query meets, and how it must end: where loss is not allowed, and where it is. The service does not
#: always tell which stream it is.
STREAMS: dict[str, tuple[type[Exception] | None, type[Exception] | None] | None] = {
    "same": (None, None),
    "same, untold": (None, None),
    "created again": (DataLoss, None),
    "another region": (OffsetError, OffsetError),
    "another, older": (OffsetError, OffsetError),
    "another, as old": None,
    "another, untold": None,
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
    if which in ("same", "same, untold", "created again"):
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


def forget_the_stream(query: ModelQuery) -> None:
    """As the checkpoint of an earlier version, or of a role that may not ask."""
    written = json.loads(query.log[-1])
    query.log[-1] = json.dumps({name: written[name] for name in written if name not in ("arn", "created")})


@pytest.mark.requirement("SPK-52", "SPK-90", "SPK-112")
@every("which, places, resharded, loss", itertools.product(STREAMS, PLACES, (False, True), (False, True)))
def test_no_record_of_the_stream_that_is_met_is_left_out_in_silence(
    which: str, places: str, resharded: bool, loss: bool
) -> None:
    """Another stream is refused, whatever failOnDataLoss says. Of the same one, and where nobody can tell the
    two apart, every record is read, or it is an error."""
    own, query = begun(places, failOnDataLoss=not loss)
    before = set(query.read)
    stream = met(own, which, resharded=resharded)
    if "untold" in which:
        forget_the_stream(query)
    there = stream.names(left=True)
    query.stream, query._life = stream, stream.born
    query._begun.clear()
    query.restart()
    refused: type[Exception] | None = None
    try:
        query.until_idle()
    except (OffsetError, DataLoss) as error:
        refused = type(error)
    expected = STREAMS[which]
    assert expected is None or refused is expected[loss]
    if refused is None:
        assert there <= set(query.read), f"{len(there - set(query.read))} records were never read"
        if stream.arn is not None:
            created = round(stream.created.timestamp() * 1000)
            assert (query.offsets[1]["arn"], query.offsets[1]["created"]) == (stream.arn, created)
    else:
        assert set(query.read) == before, "something was read of it"


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
    query.stream = met(own, "another region", resharded=True)
    query.restart()
    with pytest.raises(OffsetError, match="eu-west-1"):
        query.reader.partitions(*query.offsets)


def test_a_clock_that_is_ahead_is_named() -> None:
    stream = ModelKinesis(1)
    query = ModelQuery(stream, ReadLimits(), startingPosition="LATEST")
    query.access.now = lambda: stream.now + 400
    with pytest.raises(StreamUnavailable, match="clock ahead"):
        query.batch(1)


# -- the offset of another query, as a start ------------------------------------------------------


def offset_of(stream: ModelKinesis, more: dict[str, Any] | None = None) -> str:
    query = ModelQuery(stream, ReadLimits())
    query.until_idle()
    return json.dumps(query.offsets[1] | (more or {}))


@pytest.mark.requirement("SPK-124")
def test_a_shard_that_is_no_longer_listed_is_data_loss_before_the_query_begins() -> None:
    stream = ModelKinesis(1)
    stream.put(5)
    offset = offset_of(stream)
    stream.put(5)
    stream.split(0)
    stream.now += stream.retention + 2 * HOUR
    query = ModelQuery(stream, ReadLimits(), startingPosition=offset)
    with pytest.raises(DataLoss):
        query.reader.latestOffset({})


def misfits() -> Iterator[tuple[dict[str, Any], str]]:
    """Members of an offset, and what is said of them."""
    yield {"shards": {}}, "that has shards"
    yield {"stream": "t"}, "of stream 't', the query reads 's'"
    yield {"arn": ELSEWHERE}, "the query reads arn"
    yield {"arn": 5}, "arn is 5"
    yield {"created": "2023"}, "created is '2023'"
    yield {"created": True}, "created is True"
    yield {"version": 2}, "version 2, known is 1"
    yield {"shards": []}, "its shards are not objects"
    yield {"shards": {"shardId-000000000000": {"after": "x"}}}, "after is 'x'"
    yield {"listed": "now"}, "listed is 'now'"


@pytest.mark.requirement("SPK-52", "SPK-124")
@every("more, expected", misfits())
def test_an_offset_that_does_not_fit_is_refused(more: dict[str, Any], expected: str) -> None:
    stream = ModelKinesis(1)
    stream.put(5)
    offset = offset_of(stream, more)
    with pytest.raises(OptionError, match=expected) as caught:
        ModelQuery(stream, ReadLimits(), startingPosition=offset).plan()
    assert "startingPosition" in str(caught.value)
    if more.keys() - {"shards", "arn"} or "arn is" in expected:  # as a checkpoint, too
        with pytest.raises(OffsetError, match=expected):
            StreamOffset.from_json(json.loads(offset), "s")


@pytest.mark.requirement("SPK-124")
def test_an_offset_is_the_start_of_a_streaming_query_only() -> None:
    offset = offset_of(ModelKinesis(1))
    with pytest.raises(OptionError, match="endingPosition"):
        parse_options({"stream": "s", "endingPosition": offset})
    source = KinesisDataSource({"stream": "s", "startingPosition": offset})
    with pytest.raises(OptionError, match="for readStream"):
        source.reader(source.schema())
