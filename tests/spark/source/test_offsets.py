"""Offsets: no Spark session, no server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kpl_codec.shards.starting_position import TRIM_HORIZON, after_record, at_record, at_time
from kpl_codec.spark.source.offsets import BatchEnd, OffsetError, StreamOffset
from kpl_codec.spark.source.planner import must_be_written

NUMBERS = st.integers(0, 10**56).map(str)
PLACES = (
    NUMBERS.map(at_record)
    | NUMBERS.map(after_record)
    | st.integers(0, 2**50).map(at_time)
    | st.just(TRIM_HORIZON)
)
ENDS = st.builds(
    BatchEnd,
    PLACES,
    drained=st.booleans(),
    since=st.none() | st.integers(1, 2**50),
    first=st.none() | NUMBERS,
    start_gone=st.booleans(),
    initial=st.none() | st.just("") | NUMBERS,
    records=st.none() | st.integers(1, 10**6),
    behind=st.none() | st.integers(0, 10**9),
)


@pytest.mark.requirement("SPK-51")
@given(
    st.dictionaries(st.text("abc-0123456789", min_size=1), ENDS, max_size=4),
    st.none() | st.integers(1, 2**50),
    st.none() | st.just("arn:aws:kinesis:eu-west-1:123456789012:stream/orders"),
    st.none() | st.integers(1, 2**50),
)
def test_an_offset_is_its_text(
    shards: dict[str, BatchEnd], listed: int | None, arn: str | None, created: int | None
) -> None:
    offset = StreamOffset("orders", shards, listed, arn, created)
    text = json.dumps(offset.to_json())
    again = StreamOffset.from_json(json.loads(text), "orders")
    assert again == offset
    assert json.dumps(again.to_json()) == text
    backwards = StreamOffset("orders", dict(reversed(shards.items())), listed, arn, created)
    assert json.dumps(backwards.to_json()) == text


_VALUES = st.sampled_from(
    ["LATEST", "TRIM_HORIZON", "", "5", "-5", "5x", "9" * 200, -5, 0, 5, 1.5, True, False, None, [], ["5"]]
)


@pytest.mark.requirement("SPK-51", "SPK-52")
@given(
    st.dictionaries(
        st.sampled_from(["at", "time", "before", "after", "drained", "since", "first", "began", "more"]),
        _VALUES,
        min_size=1,
        max_size=3,
    )
)
@example({"at": "LATEST"})
@example({"time": -5})
@example({"after": "5", "first": "x"})
def test_a_checkpoint_is_what_it_says_or_refused(shard: dict[str, Any]) -> None:
    """What is read from it is written again as it was; times and sequence numbers are such."""
    written = {"stream": "s", "version": 1, "shards": {"shardId-0": shard}}
    try:
        offset = StreamOffset.from_json(written, "s")
    except OffsetError:
        return
    assert offset.to_json() == written
    ends = offset.shards["shardId-0"]
    assert ends.place.lowest >= 0
    assert ends.place.kind != "AT_TIMESTAMP" or ends.place.time_ms >= 0
    assert all(int(number) >= 0 for number in (ends.first, ends.began) if number)


@pytest.mark.requirement("SPK-90")
def test_an_idle_shard_of_a_new_life_is_written_down() -> None:
    old, new = (
        StreamOffset("s", {"x": BatchEnd(TRIM_HORIZON, since=1, began=began)}, 1) for began in ("10", "20")
    )
    assert must_be_written(old, new)
    assert not must_be_written(new, new)
