"""A query that goes on where another one has stopped: `startingPosition` takes an offset of its checkpoint.
On the model stream, without Spark; `test_checkpoints` does it with Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.spark.source.datasource import KinesisDataSource
from kpl_codec.spark.source.offsets import DataLoss
from kpl_codec.spark.source.positions import OptionError
from kpl_codec.spark.source.shard_planner import ReadLimits
from kpl_codec.spark.source.source_options import parse_options

from .model import HOUR, ModelKinesis
from .model_query import ModelQuery

#: What happens while the old query runs, and before the new one begins.
STEPS = st.lists(
    st.sampled_from(["put", "put", "split", "merge", "batch", "batch", "an hour", "plan"]), max_size=14
)


def old_query(steps: list[str], start: str) -> tuple[ModelKinesis, ModelQuery]:
    stream = ModelKinesis(2)
    stream.put(5)
    stream.now += 60
    query = ModelQuery(stream, ReadLimits(records=2), startingPosition=start)
    query.plan()
    query.log = query.log[:1]  # where it begins
    for step in steps:
        happens(stream, step)
        if step == "batch":
            query.batch()
        elif step == "plan":  # a batch that its process has not lived to read
            committed = query.log[:]
            query.plan()
            query.log = committed
            query.restart()
    return stream, query


def happens(stream: ModelKinesis, step: str) -> None:
    if step == "put":
        stream.put(3)
    elif step == "split":
        stream.split(0)
    elif step == "merge" and len(stream.open_shards) > 1:
        stream.merge(0)
    elif step == "an hour":
        stream.now += HOUR
    stream.now += 1


@pytest.mark.requirement("SPK-124")
@given(STEPS, STEPS, st.sampled_from(["TRIM_HORIZON", "LATEST"]))
def test_both_queries_together_read_what_the_old_one_would_have_read(
    before: list[str], between: list[str], start: str
) -> None:
    stream, old = old_query(before, start)
    for step in between:
        happens(stream, step)
    new = ModelQuery(stream, ReadLimits(), startingPosition=old.log[-1])
    # Spark before 4.2 does not give its first batch the start of the query.
    with pytest.raises(OptionError, match=r"no offset before Spark 4\.2"):
        new.planner.at_tips(new.options.starting_position)
    new.until_idle()
    without = ModelQuery(stream, ReadLimits())
    without.log = old.log[:1]
    without.until_idle()
    assert old.read + new.read == without.read
    assert start == "LATEST" or set(without.read) == stream.names()


def offset_of(model: ModelKinesis, **more: Any) -> dict[str, Any]:
    query = ModelQuery(model, ReadLimits())
    query.until_idle()
    return {**json.loads(query.log[-1]), **more}


@pytest.mark.requirement("SPK-124")
def test_a_shard_that_is_no_longer_listed_is_data_loss() -> None:
    stream = ModelKinesis(1)
    stream.put(5)
    offset = offset_of(stream)
    stream.put(5)
    stream.split(0)
    stream.now += stream.retention + 2 * HOUR
    assert not stream.shards.keys() <= {shard["ShardId"] for shard in stream.list_shards()["Shards"]}
    query = ModelQuery(stream, ReadLimits(), startingPosition=json.dumps(offset))
    with pytest.raises(DataLoss):
        query.planner.begin_at(query.options.starting_position)


@pytest.mark.requirement("SPK-124")
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"shards": {}}, "that has shards"),
        ({"stream": "t"}, "of stream 't', the query reads 's'"),
        ({"arn": "arn:aws:kinesis:eu-west-1:123456789012:stream/s"}, "the query reads arn"),
        ({"version": 2}, "version 2, known is 1"),
        ({"shards": []}, "its shards are not objects"),
        ({"shards": {"shardId-000000000000": {"after": "x"}}}, "after is 'x'"),
        ({"listed": "now"}, "listed is 'now'"),
    ],
)
def test_an_offset_that_does_not_fit_is_refused(more: dict[str, Any], said: str) -> None:
    stream = ModelKinesis(1)
    stream.put(5)
    with pytest.raises(OptionError, match=said) as caught:
        ModelQuery(stream, ReadLimits(), startingPosition=json.dumps(offset_of(stream, **more))).plan()
    assert "startingPosition" in str(caught.value)


@pytest.mark.requirement("SPK-124")
def test_an_offset_is_the_start_of_a_streaming_query_only() -> None:
    offset = json.dumps(offset_of(ModelKinesis(1)))
    with pytest.raises(OptionError, match="endingPosition"):
        parse_options({"stream": "s", "endingPosition": offset})
    source = KinesisDataSource({"stream": "s", "startingPosition": offset})
    with pytest.raises(OptionError, match="for readStream"):
        source.reader(source.schema())
