"""The prediction table: the quick way is the plain one, and what a bad listing spoils."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.errors import HashKeyError
from kpl_codec.format.hash_keys import MAX_HASH_KEY, HashKeyRange
from kpl_codec.shards.live_shard_map import LiveShardMap
from kpl_codec.shards.shard import Shard
from kpl_codec.shards.shard_map import Routes, undisputed
from tests.steps import steps

from .model import ModelStream
from .test_live_shard_map import answer, ready

#: Hash keys at the ends of the space, close together, or anywhere.
KEYS = st.one_of(
    st.integers(0, MAX_HASH_KEY),
    st.integers(0, 40),
    st.integers(MAX_HASH_KEY - 40, MAX_HASH_KEY),
    st.integers(-20, 20).map(lambda n: 2**127 + n),
)
RANGES = st.lists(st.tuples(KEYS, KEYS).map(lambda ends: HashKeyRange(min(ends), max(ends))), max_size=12)


def shards_of(ranges: list[HashKeyRange]) -> list[Shard]:
    return [Shard(f"shardId-{number:012d}", keys) for number, keys in enumerate(sorted(ranges))]


@pytest.mark.requirement("SHD-8", "MAP-21")
@given(RANGES, st.lists(KEYS, max_size=10), st.sets(st.integers(0, 12)))
def test_the_table_predicts_what_a_scan_of_the_undisputed_shards_finds(
    ranges: list[HashKeyRange], keys: list[int], doubted: set[int]
) -> None:
    shards = shards_of(ranges)
    alone = [
        s
        for s in shards
        if not any(s.hash_key_range.overlaps(o.hash_key_range) for o in shards if o is not s)
    ]
    good, disputed = undisputed(shards)
    assert good == alone
    assert disputed == {shard.shard_id for shard in shards} - {shard.shard_id for shard in alone}
    in_doubt = {f"shardId-{number:012d}" for number in doubted}
    whole = Routes(good)
    routes = whole.without(in_doubt)
    left = [shard for shard in alone if shard.shard_id not in in_doubt]
    assert routes.shard_ids == tuple(shard.shard_id for shard in left)
    edges = {edge + by for shard in shards for edge in shard.hash_key_range for by in (-1, 0, 1)}
    for key in [*keys, *(edge for edge in edges if 0 <= edge <= MAX_HASH_KEY)]:
        for table, predicted in ((whole, alone), (routes, left)):
            found = [shard.shard_id for shard in predicted if key in shard.hash_key_range]
            assert table.predict(key) == (found[0] if found else None)
    assert all((shard.shard_id in routes) == (shard in left) for shard in shards)
    for outside in (-1, MAX_HASH_KEY + 1):
        with pytest.raises(HashKeyError):
            routes.predict(outside)


@pytest.mark.requirement("MAP-21")
def test_an_overlap_spoils_its_own_shards_only_and_a_sound_listing_mends_it() -> None:
    stream = ModelStream(8, now=0)
    live = LiveShardMap("s", describe=False)
    starts = [shard.hash_key_range.starting_hash_key for shard in stream.shards]
    one, other = stream.shards[2].hash_key_range, stream.shards[3].hash_key_range
    odd = Shard("shardId-000000000099", HashKeyRange(one.ending_hash_key, other.starting_hash_key))
    event = answer(live, 1.0, [*stream.open_shards(), odd])
    assert (event.error.code, event.routes_changed) == ("overlap", True)
    ids = [shard.shard_id for shard in stream.shards]
    assert [live.predict(key) for key in starts] == [*ids[:2], None, None, *ids[4:]]
    assert live.predict(one.ending_hash_key) is None
    assert (live.state, live.map_may_come, live.known.shard_map) == ("INVALID", True, None)
    assert odd.shard_id not in live.routes
    assert live.shard(odd.shard_id) is None
    assert ids[0] in live.routes
    answer(live, live.timer(), stream.open_shards())
    assert live.state == "READY"
    assert [live.predict(key) for key in starts] == ids


@pytest.mark.requirement("MAP-21")
def test_of_a_split_listed_by_halves_the_other_half_waits_and_the_parent_has_closed() -> None:
    live, stream = ready(8, describe=False)
    parent = stream.open_shards()[3]
    stream.split(3)
    stream.split(0)  # the producer has not noticed this one either
    low, high = (shard for shard in stream.shards if shard.parent_shard_id == parent.shard_id)
    late = [parent, *(shard for shard in stream.open_shards() if shard is not high)]
    event = answer(live, 5.0, late)
    assert (event.error.code, event.routes_changed) == ("gap", True)
    for shard in stream.open_shards():
        predicted = live.predict(shard.hash_key_range.starting_hash_key)
        assert predicted == (None if shard is high else shard.shard_id)
    assert live.shard(low.shard_id) == low
    assert live.shard(parent.shard_id) == parent  # nobody said it closed
    answer(live, live.timer(), stream.open_shards())
    assert live.predict(high.hash_key_range.starting_hash_key) == high.shard_id


def steps_of_a_reshard(shards: int) -> int:
    """Steps to take the reports of a reshard of all shards, and its listing."""
    live, stream = ready(shards, describe=False)
    parents = stream.open_shards()
    for number in range(shards):
        stream.split(2 * number)
    taken = steps(lambda: [live.invalidate(5.0, shard.shard_id, 5.0) for shard in parents])
    assert all(shard.shard_id not in live.routes for shard in parents)
    return taken + steps(answer, live, 6.0, stream.shards)


@pytest.mark.requirement("MAP-4")
def test_a_reshard_of_all_shards_takes_time_in_proportion_to_their_number() -> None:
    assert steps_of_a_reshard(400) < 12 * steps_of_a_reshard(50)  # quadratic would be 64
