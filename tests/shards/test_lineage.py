"""Lineage: ancestors, ends and defects."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.errors import ShardMapError, UnknownShard
from kpl_codec.format.hash_keys import ALL_HASH_KEYS, HashKeyRange
from kpl_codec.shards.lineage import Lineage
from kpl_codec.shards.shard import Shard
from kpl_codec.shards.shard_map import ShardMap

from ..steps import steps
from .model import BEGIN, ModelStream, sequence_number


@st.composite
def streams(draw):
    """A stream after some reshards, and its open shards before and after each of them."""
    stream = ModelStream(draw(st.integers(1, 4)), now=100)
    listings = [stream.open_shards()]
    for _ in range(draw(st.integers(0, 8))):
        stream.now += draw(st.integers(0, 3))
        count = len(stream.open_shards())
        if count > 1 and draw(st.booleans()):
            stream.merge(draw(st.integers(0, count - 2)))
        else:
            stream.split(draw(st.integers(0, count - 1)))
        listings.append(stream.open_shards())
    return stream, listings


def naive_ancestors(shards, shard_id):
    found = set()
    while True:
        more = {
            p for s in shards if s.shard_id == shard_id or s.shard_id in found for p in s.parent_shard_ids
        }
        if more <= found:
            return found
        found |= more


@given(streams(), st.randoms(use_true_random=False))
def test_lineage_equals_the_plain_one(life, rng):
    stream, _ = life
    shuffled = list(stream.shards)
    rng.shuffle(shuffled)
    lineage = Lineage(shuffled)
    assert lineage == Lineage(stream.shards)
    order = list(lineage)
    by_id = {shard.shard_id: shard for shard in stream.shards}

    def generation(shard):
        return max((1 + generation(by_id[parent]) for parent in shard.parent_shard_ids), default=0)

    for shard in stream.shards:
        ancestors = {s.shard_id for s in lineage.ancestors(shard.shard_id)}
        assert ancestors == naive_ancestors(stream.shards, shard.shard_id)
        assert all(order.index(a) < order.index(shard.shard_id) for a in ancestors)
        for other in stream.shards:
            assert lineage.is_descendant(shard.shard_id, other.shard_id) == (other.shard_id in ancestors)
        assert {s.shard_id for s in lineage.parents(shard.shard_id)} == set(shard.parent_shard_ids)
        heirs = tuple(s for s in stream.shards if shard.shard_id in s.parent_shard_ids)
        left = [s for s in shuffled if s is not shard]  # it has expired
        assert lineage.children(shard.shard_id) == Lineage(left).children(shard.shard_id) == heirs
        assert lineage.generation(shard.shard_id) == generation(shard)
        made = min((lineage.created(heir.shard_id) for heir in heirs), default=None)
        assert lineage.closed_at(shard.shard_id) == made


def test_an_end_is_the_start_of_the_first_child_else_what_the_ending_number_hints_at():
    parent = Shard("0", ALL_HASH_KEYS, ending_sequence_number=sequence_number(0, 0, 77))
    children = [
        Shard(str(at), keys, parent_shard_id="0", starting_sequence_number=sequence_number(1, at, at))
        for at, keys in zip((60, 50), ALL_HASH_KEYS.split(2), strict=True)
    ]
    assert Lineage([parent, *children]).closed_at("0") == BEGIN + timedelta(seconds=50)
    assert Lineage([parent]).closed_at("0") == BEGIN + timedelta(seconds=77)
    assert Lineage([parent.replace(ending_sequence_number="odd")]).closed_at("0") is None


def test_walks_visit_only_the_shards_they_are_about():
    """A walk over few shards of a long chain does not take the whole chain."""
    count = 3000
    shards = [
        Shard(
            f"shardId-{n:012d}",
            ALL_HASH_KEYS,
            parent_shard_id=f"shardId-{n - 1:012d}" if n else None,
            adjacent_parent_shard_id=None,
            starting_sequence_number=sequence_number(n, n, n),
            ending_sequence_number=str(10**56) if n + 1 < count else None,
        )
        for n in range(count)
    ]
    lineage = ShardMap(shards)

    few, all_of_them = (
        steps(lineage.ancestors, shards[5].shard_id),
        steps(lineage.ancestors, shards[-1].shard_id),
    )
    assert few < 5000 < all_of_them < 300 * count
    assert steps(lineage.is_descendant, shards[-1].shard_id, shards[-3].shard_id) < 2000
    assert steps(Lineage, shards) < 1000 * count


@pytest.mark.requirement("LIN-5")
@given(streams())
def test_lineage_grows_by_listings_and_forgets_nothing(life):
    stream, listings = life
    lineage = Lineage(())
    for listing in listings:  # AT_LATEST
        lineage = Lineage([*lineage.values(), *listing])
    assert set(lineage) == {s.shard_id for s in stream.shards}
    for shard in stream.shards:
        assert lineage[shard.shard_id].hash_key_range == shard.hash_key_range
    whole = Lineage([*lineage.values(), *stream.shards])  # and FROM_TRIM_HORIZON tells the ends
    assert [s.open for s in whole.values()] == [s.open for s in stream.shards]


def test_what_is_not_known_has_no_answer():
    shard = Shard("shardId-000000000000", ALL_HASH_KEYS)
    lineage = Lineage([shard])
    assert lineage.created(shard.shard_id) is None
    assert Lineage([shard.replace(starting_sequence_number="odd")]).created(shard.shard_id) is None
    for method in (lineage.__getitem__, lineage.parents, lineage.ancestors, lineage.created):
        with pytest.raises(UnknownShard):
            method("shardId-9")
    assert lineage.get("shardId-9") is None
    assert lineage.children("shardId-9") == ()
    assert not lineage.is_descendant("shardId-9", shard.shard_id)
    assert not lineage.is_descendant(shard.shard_id, "shardId-9")
    assert shard.shard_id in lineage
    assert len({lineage, Lineage([shard])}) == 1


@pytest.mark.requirement("LIN-11")
def test_a_listing_that_contradicts_is_refused():
    stream = ModelStream(1, now=0)
    stream.split(0)
    for change in (
        {"hash_key_range": HashKeyRange(0, 5)},
        {"parent_shard_id": "shardId-7"},
        {"starting_sequence_number": "7"},
        {"ending_sequence_number": None},
    ):
        with pytest.raises(ShardMapError) as caught:
            Lineage([*stream.shards, stream.shards[0].replace(**change)])
        assert (caught.value.code, caught.value.shard_ids) == ("duplicate", (stream.shards[0].shard_id,))
