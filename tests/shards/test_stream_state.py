"""What a listing adds to what is known: `learn` is a function, whatever the listing."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.shards.live_shard_map import LiveShardMap
from kpl_codec.shards.refresh import Listing, StreamSummary
from kpl_codec.shards.shard import Shard
from kpl_codec.shards.stream_state import RefusedListing, StreamState, learn

from ..steps import steps
from .model import ModelStream

STEPS = st.lists(
    st.tuples(st.sampled_from(["split", "merge", "again", "older", "partial"]), st.integers(0, 5)), max_size=9
)


def facts(known: StreamState) -> tuple[Any, ...]:
    shards = known.shards
    return deepcopy((shards.all, shards.listed, shards.distribution, known.routes.shard_ids, known[2:]))


@given(STEPS, st.booleans())
def test_learning_changes_nothing_and_gives_the_same_again(
    steps: list[tuple[str, int]], has_closed: bool
) -> None:
    stream, known, listings = ModelStream(2, now=0), StreamState(), [[]]
    for now, (step, at) in enumerate(steps, 1):
        if step == "split":
            stream.split(at % len(stream.open_shards()))
        elif step == "merge" and len(stream.open_shards()) > 1:
            stream.merge(at % (len(stream.open_shards()) - 1))
        elif step == "again":
            stream = ModelStream(at + 1, now=stream.now + 100)
        listings.append(stream.shards[:] if has_closed else stream.open_shards())
        shards = listings[at % len(listings)] if step == "older" else listings[-1]
        listing = Listing(shards[at:] if step == "partial" else shards, None, float(now), has_closed)
        before = facts(known)
        outcome, again = (learn(known, listing, 30.0 * now) for _ in range(2))
        assert facts(known) == before
        after = outcome.state if isinstance(outcome, RefusedListing) else outcome
        same = again.state if isinstance(again, RefusedListing) else again
        assert facts(after) == facts(same)
        if isinstance(outcome, RefusedListing) and outcome.disputed is None:
            assert facts(after._replace(contradictions=known.contradictions)) == before
        known = after


@pytest.mark.requirement("MAP-20")
@pytest.mark.parametrize(("hours", "seconds"), [(None, 365 * 86400.0), (24, 86400.0)])
def test_a_closed_shard_is_known_as_long_as_it_may_hold_records(hours: int | None, seconds: float) -> None:
    """AT_LATEST lists no closed shard: its time is up by the clock, counted from the refresh that noticed."""
    stream = ModelStream(2, now=0)
    closed = stream.open_shards()[0].shard_id
    summary = StreamSummary(None, "USER_PARTITION_KEY", hours * 3600.0) if hours else None

    def after(known: StreamState, now: float) -> StreamState:
        outcome = learn(known, Listing(stream.open_shards(), summary, now, False), now)
        assert isinstance(outcome, StreamState)
        return outcome

    known = after(StreamState(), 10)
    assert known.closed == {}
    stream.split(0)
    known = after(known, 20)
    assert known.closed == {closed: 20}
    known = after(after(known, 50), 20 + seconds)
    assert (known.closed, closed in known.shards.all) == ({closed: 20}, True)
    known = after(known, 20.1 + seconds)
    assert (known.closed, closed in known.shards.all) == ({}, False)
    assert known.shards.distribution == "USER_PARTITION_KEY"


@pytest.mark.requirement("MAP-20")
def test_a_closed_shard_that_a_whole_listing_lacks_is_known_for_a_minute() -> None:
    stream = ModelStream(2, now=0)
    stream.split(0)
    old, closed = stream.shards[0].shard_id, stream.open_shards()[0].shard_id

    def after(known: StreamState, now: float) -> StreamState:
        outcome = learn(known, Listing(stream.shards[:], None, now, True), now)
        assert isinstance(outcome, StreamState)
        return outcome

    known = after(StreamState(), 10)
    assert known.closed == {old: float("-inf")}  # (it had closed before anybody asked)
    stream.split(0)
    known = after(known, 20)
    assert known.closed == {old: float("-inf"), closed: 20}
    stream.shards = [shard for shard in stream.shards if shard.open]
    known = after(known, 80)
    assert known.closed == {closed: 20}
    assert after(known, 80.1).closed == {}


def splits(count: int) -> list[Shard]:
    """A stream after so many splits of its first open shard."""
    stream = ModelStream(1, now=0)
    for _ in range(count):
        stream.split(0)
    return stream.shards


def chain(count: int) -> list[Shard]:
    """Shards of one range, each the child of the one before, all listed as open."""
    ids = [f"shardId-{number:012d}" for number in range(count)]
    return [Shard(*row, None, "1") for row in zip(ids, [ALL_HASH_KEYS] * count, [None, *ids], strict=False)]


def listings(kind: str, count: int) -> list[list[Shard]]:
    if kind == "older":
        return [splits(count), splits(count // 2)]
    if kind == "chain":
        return [chain(count), chain(count)]
    return [[shard.replace(ending_sequence_number=None) for shard in splits(count)]]


def read(pages: list[dict[str, object]]) -> None:
    """A live map takes these listings, one after the other."""
    live = LiveShardMap("s", describe=False, shard_filter="FROM_TRIM_HORIZON")
    for number, page in enumerate(pages):
        live.refresh(100.0 * number)
        request = live.next_request(100.0 * number)
        assert request is not None
        live.receive(request, page, 100.0 * number)


@pytest.mark.parametrize("kind", ["older", "chain", "parents open"])
def test_listings_take_steps_in_proportion_to_their_length(kind: str) -> None:
    short, long = (
        steps(read, [{"Shards": [shard.to_aws() for shard in page]} for page in listings(kind, count)])
        for count in (15, 120)
    )
    assert long < 12 * short  # eight times the shards
