"""Where reads begin and end: on the model stream, without Spark or a server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from kpl_codec.shards.starting_position import StartingPosition
from kpl_codec.spark.source.datasource import KinesisBatchReader
from kpl_codec.spark.source.planner import Planner
from kpl_codec.spark.source.positions import OptionError
from kpl_codec.spark.source.shard_planner import ReadLimits
from kpl_codec.spark.source.source_options import parse_options

from .model import HOUR, ModelKinesis
from .model_query import ModelQuery, access_of, rows_of

Name = tuple[str, str]
SHARDS = [f"shardId-{number:012d}" for number in range(5)]
#: A place on a shard: a word, the number of a record of it, or seconds before (or after) now.
PLACES = st.one_of(
    st.sampled_from(["TRIM_HORIZON", "LATEST"]),
    st.tuples(st.sampled_from(["AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"]), st.integers(0, 9)),
    st.tuples(st.just("AT_TIMESTAMP"), st.sampled_from([-30, -5, -1, 0, 90, HOUR])),
)
POSITIONS = st.one_of(
    st.sampled_from(["TRIM_HORIZON", "LATEST"]),
    st.tuples(st.just("AT_TIMESTAMP"), st.sampled_from([-30, -5, -1, 0, 90, HOUR])),
    st.dictionaries(st.sampled_from(SHARDS), PLACES, min_size=1, max_size=5),
)


def a_stream(seed: int) -> ModelKinesis:
    """Four shards, one of them closed; a fifth id is unknown."""
    stream = ModelKinesis(2, seed=seed)
    stream.now += 60
    for _ in range(10):
        stream.put(3)
        stream.now += 1
    stream.split(0)
    for _ in range(10):
        stream.put(3)
        stream.now += 1
    return stream


def text_of(stream: ModelKinesis, position: Any) -> str:
    """As an option."""

    def place(shard_id: str | None, value: Any) -> Any:
        if isinstance(value, str):
            return value
        kind, number = value
        if kind == "AT_TIMESTAMP":
            return f"AT_TIMESTAMP {int((stream.now + number) * 1000)}"
        shard = stream.shards.get(shard_id or "")
        numbers = [record[0] for record in shard.records] if shard else [10**20]
        assume(numbers)
        return {"iteratorType": kind, "iteratorPosition": str(numbers[number % len(numbers)])}

    if isinstance(position, dict):
        return json.dumps({shard_id: place(shard_id, value) for shard_id, value in position.items()})
    return str(place(None, position))


def refused(position: Any) -> bool:
    values = position.values() if isinstance(position, dict) else [position]
    times = [value[1] for value in values if isinstance(value, tuple) and value[0] == "AT_TIMESTAMP"]
    future = any(seconds > 60 for seconds in times)
    return future or (isinstance(position, dict) and SHARDS[4] in position)


def behind(stream: ModelKinesis, position: Any) -> set[Name]:
    """The records behind a parsed position; of the shards that it names, where it names some."""
    places = dict.fromkeys(stream.shards, position) if isinstance(position, StartingPosition) else position
    return {
        (shard_id, str(number))
        for shard_id, place in places.items()
        for number, arrived, _ in stream.shards[shard_id].records
        if number >= place.lowest
        and place.kind != "LATEST"
        and (place.kind != "AT_TIMESTAMP" or round(arrived * 1000) >= place.time_ms)
    }


@pytest.mark.requirement("SPK-56", "SPK-91")
@given(POSITIONS, st.integers(0, 3))
@example({SHARDS[4]: "TRIM_HORIZON"}, 0)
@example({SHARDS[0]: "TRIM_HORIZON", SHARDS[4]: "TRIM_HORIZON"}, 0)
@example(("AT_TIMESTAMP", HOUR), 0)
def test_a_query_begins_where_it_is_told_or_says_at_once_why_not(position: Any, seed: int) -> None:
    stream = a_stream(seed)
    query = ModelQuery(stream, ReadLimits(), startingPosition=text_of(stream, position))
    begun = stream.now
    if refused(position):
        with pytest.raises(OptionError) as caught:
            query.batch()
        assert caught.value.option == "startingPosition"
        assert stream.now == begun
        return
    wanted = query.options.starting_position
    expected = behind(stream, wanted)
    if not isinstance(wanted, StartingPosition):
        above = {parent for shard_id in wanted for parent in stream.shards[shard_id].parents} - set(wanted)
        expected |= {name for name in stream.names() if name[0] not in {*wanted, *above}}
    query.until_idle()
    assert set(query.read) == expected


@pytest.mark.requirement("SPK-62", "SPK-91")
@given(POSITIONS, POSITIONS, st.integers(0, 3))
@example({SHARDS[4]: "TRIM_HORIZON"}, "LATEST", 0)
@example("TRIM_HORIZON", {SHARDS[4]: "LATEST"}, 0)
@example("TRIM_HORIZON", ("AT_TIMESTAMP", HOUR), 0)
@example({SHARDS[0]: ("AT_SEQUENCE_NUMBER", 5)}, {SHARDS[0]: ("AT_SEQUENCE_NUMBER", 1)}, 0)
@example(("AT_TIMESTAMP", -1), {SHARDS[0]: ("AT_SEQUENCE_NUMBER", 1)}, 0)
@example({SHARDS[0]: "TRIM_HORIZON"}, {SHARDS[1]: "TRIM_HORIZON"}, 0)
def test_a_batch_read_gives_what_lies_between_or_says_why_not(start: Any, end: Any, seed: int) -> None:
    stream = a_stream(seed)
    positions = {"startingPosition": text_of(stream, start), "endingPosition": text_of(stream, end)}
    free = {"fetchCallsPerSecondPerShard": "0", "fetchBytesPerSecondPerShard": "0"}
    options = parse_options({"stream": "s", **free, **positions})
    begun = stream.now
    reader = KinesisBatchReader(options, None)  # type: ignore[arg-type]
    access = access_of(stream, options)
    reader._planner = Planner(access, workers=1)
    first, last = options.starting_position, options.ending_position
    try:
        partitions = reader.partitions()
    except OptionError:
        assert stream.now == begun
        assert refused(start) or refused(end) or cannot_end_there(stream, first, last)
        return
    assert not cannot_end_there(stream, first, last)
    assert not refused(start)
    assert not refused(end)
    beyond = behind(stream, last)
    assert sorted(rows_of(access, partitions)) == sorted(behind(stream, first) - beyond)


def cannot_end_there(stream: ModelKinesis, first: Any, last: Any) -> bool:
    """Whether an end lies before the start of a shard, both by a record or both by a time, or is of a shard
    that has no start."""
    if isinstance(first, dict) and isinstance(last, dict) and last.keys() - first.keys():
        return True
    starts, ends = (
        dict.fromkeys(stream.shards, position) if isinstance(position, StartingPosition) else position
        for position in (first, last)
    )
    for shard_id in starts.keys() & ends.keys():
        start, end = starts[shard_id], ends[shard_id]
        if start.names_record and end.names_record and start.lowest > end.lowest:
            return True
        if start.kind == end.kind == "AT_TIMESTAMP" and start.time_ms > end.time_ms:
            return True
    return False
