"""Offsets: no Spark session, no server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kpl_codec.shards.lineage import Lineage
from kpl_codec.shards.place import TRIM_HORIZON, after_record, at_record, at_time
from kpl_codec.shards.shard_map import ShardMap
from kpl_codec.spark.source.offsets import (
    BatchEnd,
    OffsetError,
    Piece,
    StreamOffset,
    piece_of,
    ready,
    with_listed,
)
from kpl_codec.spark.source.planner import moves

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
)
def test_an_offset_is_its_text(shards: dict[str, BatchEnd], listed: int | None) -> None:
    offset = StreamOffset("orders", shards, listed)
    text = json.dumps(offset.to_json())
    again = StreamOffset.from_json(json.loads(text), "orders")
    assert again == offset
    assert json.dumps(again.to_json()) == text
    backwards = StreamOffset("orders", dict(reversed(shards.items())), listed)
    assert json.dumps(backwards.to_json()) == text


@pytest.mark.requirement("SPK-52")
def test_a_checkpoint_written_before_places_had_dates_is_read() -> None:
    """As the version of 2026-11-20 wrote it, every kind of entry."""
    written = {
        "shards": {
            "shardId-000000000000": {"after": "4957", "end": True},
            "shardId-000000000001": {
                "before": "4958",
                "first": "4951",
                "behind": 7,
            },
            "shardId-000000000002": {"at": "TRIM_HORIZON"},
            "shardId-000000000003": {"time": 1763719200000, "first": "5", "initial": ""},
            "shardId-000000000004": {"after": "4960", "first": "4959", "lost": True, "behind": 0},
        },
        "stream": "orders",
        "version": 1,
    }
    offset = StreamOffset.from_json(written, "orders")
    assert offset == StreamOffset(
        "orders",
        {
            "shardId-000000000000": BatchEnd(after_record("4957"), drained=True),
            "shardId-000000000001": BatchEnd(at_record("4958"), first="4951", behind=7),
            "shardId-000000000002": BatchEnd(TRIM_HORIZON),
            "shardId-000000000003": BatchEnd(at_time(1763719200000), first="5", initial=""),
            "shardId-000000000004": BatchEnd(after_record("4960"), first="4959", start_gone=True, behind=0),
        },
    )
    assert json.dumps(offset.to_json()) == json.dumps(written)


@pytest.mark.requirement("SPK-53")
@given(st.integers(1, 10**56), st.integers(1, 10**56), st.booleans())
def test_a_piece_begins_with_a_record_that_is_named(first: int, more: int, symbolic: bool) -> None:
    start = TRIM_HORIZON if symbolic else after_record(str(first - 1))
    end = BatchEnd(after_record(str(first + more)), first=str(first) if symbolic else None, records=3)
    begin = at_record(str(first)) if symbolic else start
    assert piece_of("s", start, end) == Piece("s", begin, end.place, 3)
    assert piece_of("s", end.place, end) is None


SPLIT = {
    "Shards": [
        {
            "ShardId": "p",
            "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": str(2**128 - 1)},
            "SequenceNumberRange": {"StartingSequenceNumber": "1", "EndingSequenceNumber": "9"},
        },
        {
            "ShardId": "left",
            "ParentShardId": "p",
            "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": str(2**127 - 1)},
            "SequenceNumberRange": {"StartingSequenceNumber": "10"},
        },
        {
            "ShardId": "right",
            "ParentShardId": "p",
            "HashKeyRange": {"StartingHashKey": str(2**127), "EndingHashKey": str(2**128 - 1)},
            "SequenceNumberRange": {"StartingSequenceNumber": "10"},
        },
    ]
}


_VALUES = st.sampled_from(
    ["LATEST", "TRIM_HORIZON", "", "5", "-5", "5x", "9" * 200, -5, 0, 5, 1.5, True, False, None, [], ["5"]]
)


@pytest.mark.requirement("SPK-51", "SPK-52")
@given(
    st.dictionaries(
        st.sampled_from(["at", "time", "before", "after", "end", "since", "first", "began", "more"]),
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


@pytest.mark.requirement("SPK-54", "SPK-55")
def test_children_wait_for_their_parent_and_a_drained_shard_is_not_new_again() -> None:
    lineage = ShardMap.from_list_shards([SPLIT]).lineage
    at = with_listed(StreamOffset("s", {"p": BatchEnd(after_record("5"))}), lineage)
    assert at.shards["left"] == at.shards["right"] == BatchEnd(TRIM_HORIZON, began="10")
    assert not ready("left", at, lineage)
    done = StreamOffset("s", {**at.shards, "p": BatchEnd(after_record("9"), drained=True)})
    assert ready("left", done, lineage)
    assert ready("right", done, lineage)
    assert with_listed(done, lineage) == done
    later = Lineage([shard for shard in lineage if shard.shard_id != "p"])
    assert set(with_listed(done, later).shards) == {"left", "right"}
    # Expired before it was drained: it stays, so that somebody notices.
    assert "p" in with_listed(at, later).shards
    assert ready("left", with_listed(at, later), later)


@pytest.mark.requirement("SPK-90")
def test_an_idle_shard_of_a_new_life_is_written_down() -> None:
    old, new = (
        StreamOffset("s", {"x": BatchEnd(TRIM_HORIZON, since=1, began=began)}, 1) for began in ("10", "20")
    )
    assert moves(old, new)
    assert not moves(new, new)
