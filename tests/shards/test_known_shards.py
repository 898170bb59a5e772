"""One listing, and what it adds to what is known: `learn` is a function, whatever the listing."""

from __future__ import annotations

from copy import deepcopy
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec import ShardMapError
from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.shards.known_shards import KnownShards, Listing, learn
from kpl_codec.shards.live_shard_map import LiveShardMap
from kpl_codec.shards.shard import Shard
from kpl_codec.shards.stream_name import stream_of

from ..every import every
from ..steps import steps
from .model import ModelStream, pages
from .test_live_shard_map import answer

CREATED = datetime(2026, 1, 1, tzinfo=timezone.utc)
ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/s"
NOTHING = KnownShards(stream_of("s"))


def listing_of(
    shards: list[Shard], begun: float = 5.0, *, has_closed: bool = False, summary: Any = None
) -> Listing:
    listing = Listing(begun, {}, "FROM_TRIM_HORIZON" if has_closed else "AT_LATEST", describe=True)
    listing.add_summary({"StreamDescriptionSummary": summary})
    (page,) = pages(shards, 1000)
    assert listing.add_page(page, {})
    return listing


@every(
    ("summary", "said"),
    [
        ({"StreamCreationTimestamp": CREATED}, (CREATED, "USER_PARTITION_KEY", None, None)),
        ({"StreamCreationTimestamp": "2026"}, (None, "USER_PARTITION_KEY", None, None)),
        ({"RecordDistributionStrategy": "AUTO"}, (None, "AUTO", None, None)),
        ({"RetentionPeriodHours": 24}, (None, "USER_PARTITION_KEY", 86400.0, None)),
        ({"RetentionPeriodHours": 0}, (None, "USER_PARTITION_KEY", None, None)),
        ({"RetentionPeriodHours": "24"}, (None, "USER_PARTITION_KEY", None, None)),
        ({"StreamARN": ARN}, (None, "USER_PARTITION_KEY", None, stream_of(ARN))),
        ({}, (None, None, None, None)),
        (None, (None, None, None, None)),
    ],
)
def test_what_a_summary_says_is_learnt_and_the_rest_stays_known(summary: Any, said: tuple[Any, ...]) -> None:
    shards = ModelStream(1, now=0).shards
    listing = listing_of(shards, summary=summary)
    assert (listing.created, listing.distribution, listing.retention, listing.stream) == said
    known, _ = learn(NOTHING, listing, 6.0)
    for state in (known, learn(known, listing_of(shards), 7.0)[0]):
        assert (state.stream.arn, state.stream.created) == (ARN if said[3] else None, said[0])
        assert state.distribution == (said[1] or NOTHING.distribution)
        assert state.retention == (said[2] or NOTHING.retention)


@given(st.integers(1, 6), st.integers(1, 4))
def test_the_pages_are_one_listing_and_what_is_known_stays_the_same_object(count: int, size: int) -> None:
    shards = ModelStream(count, now=0).shards
    known = {shard.shard_id: shard for shard in shards[::2]}
    listing = Listing(5.0, {}, "AT_LATEST", describe=False)
    *others, last = pages(shards, size)
    assert not any(listing.add_page(page, known) for page in others)
    assert listing.add_page(last, known)
    assert listing.shards == shards
    assert all(shard is known.get(shard.shard_id, shard) for shard in listing.shards)


@pytest.mark.requirement("MAP-19")
def test_a_listing_that_never_ends_is_refused() -> None:
    def read(tokens: Any) -> None:
        listing = Listing(5.0, {}, "AT_LATEST", describe=False)
        (page,) = pages(ModelStream(1, now=0).shards, 9)
        for token in tokens:
            assert not listing.add_page({**page, "NextToken": token}, {})

    with pytest.raises(ShardMapError, match=r"\(malformed\): a NextToken came twice"):
        read("aba")
    read(map(str, range(1101)))  # pages for 1,000,000 shards, and 100 more
    with pytest.raises(ShardMapError, match="more than 1100 pages"):
        read(map(str, range(1102)))


STEPS = st.lists(
    st.tuples(st.sampled_from(["split", "merge", "again", "older", "partial"]), st.integers(0, 5)), max_size=9
)


@given(STEPS, st.booleans())
def test_learning_changes_nothing_and_gives_the_same_again(
    steps: list[tuple[str, int]], has_closed: bool
) -> None:
    def facts(known: KnownShards) -> Any:
        return deepcopy({**known._asdict(), "routes": known.routes.shard_ids})

    stream, known, listings = ModelStream(2, now=0), NOTHING, [[]]
    for now, (step, at) in enumerate(steps, 1):
        if step == "split":
            stream.split(at % len(stream.open_shards()))
        elif step == "merge" and len(stream.open_shards()) > 1:
            stream.merge(at % (len(stream.open_shards()) - 1))
        elif step == "again":
            stream = ModelStream(at + 1, now=stream.now + 100)
        listings.append(stream.shards[:] if has_closed else stream.open_shards())
        shards = listings[at % len(listings)] if step == "older" else listings[-1]
        listing = listing_of(shards[at:] if step == "partial" else shards, float(now), has_closed=has_closed)
        before = facts(known)
        (after, error), (again, _) = (learn(known, listing, 30.0 * now) for _ in range(2))
        assert facts(known) == before
        assert facts(after) == facts(again)
        if error is not None and after.routes is known.routes:
            assert facts(after._replace(contradictions=known.contradictions)) == before
        known = after


@pytest.mark.requirement("MAP-20")
@pytest.mark.parametrize(
    ("has_closed", "summary", "seconds"),
    [
        (False, None, 365 * 86400.0),
        (False, {"RetentionPeriodHours": 24}, 86400.0),
        (True, {"RetentionPeriodHours": 24}, 60.0),
    ],
)
def test_a_closed_shard_is_known_as_long_as_it_may_hold_records(
    has_closed: bool, summary: Any, seconds: float
) -> None:
    """AT_LATEST lists no closed shard: its time is up by the clock, counted from the refresh that noticed."""
    stream = ModelStream(2, now=0)
    stream.split(0)
    before, closed = stream.shards[0].shard_id, stream.open_shards()[0].shard_id

    def after(known: KnownShards, now: float) -> KnownShards:
        shards = stream.shards[:] if has_closed else stream.open_shards()
        known, error = learn(known, listing_of(shards, now, has_closed=has_closed, summary=summary), now)
        assert error is None
        return known

    known = after(NOTHING, 10)
    # It had closed before anybody asked.
    long_ago = {before: float("-inf")} if has_closed else {}
    assert known.closed == long_ago
    stream.split(0)
    known = after(known, 20)
    assert known.closed == {**long_ago, closed: 20}
    stream.shards = [shard for shard in stream.shards if shard.open]
    known = after(known, 20 + seconds)
    assert (known.closed, closed in known.all) == ({closed: 20}, True)
    known = after(known, 20.1 + seconds)
    assert (known.closed, closed in known.all) == ({}, False)


def listings(kind: str, count: int) -> list[list[Shard]]:
    """Of a stream after so many splits of its first open shard; "chain": of so many shards of one range, each
    the child of the one before, all listed as open."""
    stream, half = ModelStream(1, now=0), []
    for number in range(count):
        if number == count // 2:
            half = stream.shards[:]
        stream.split(0)
    if kind == "older":
        return [stream.shards, half]
    if kind == "parents open":
        return [[shard.replace(ending_sequence_number=None) for shard in stream.shards]]
    ids = [f"shardId-{number:012d}" for number in range(count)]
    chain = [
        Shard(shard_id, ALL_HASH_KEYS, parent_shard_id=parent, starting_sequence_number="1")
        for shard_id, parent in zip(ids, [None, *ids], strict=False)
    ]
    return [chain, chain]


def read(listed: list[list[Shard]]) -> None:
    """A live map takes these listings, one after the other."""
    live = LiveShardMap("s", describe=False, shard_filter="FROM_TRIM_HORIZON")
    for number, shards in enumerate(listed):
        answer(live, 100.0 * number, shards, size=1000)


@pytest.mark.parametrize("kind", ["older", "chain", "parents open"])
def test_listings_take_steps_in_proportion_to_their_length(kind: str) -> None:
    short, long = (steps(read, listings(kind, count)) for count in (15, 120))
    assert long < 12 * short  # eight times the shards
