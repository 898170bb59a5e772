"""Lineage: ancestors, which shard was open then, and verdicts on records of the past."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.errors import HashKeyError, ShardMapError, UnknownShard
from kpl_codec.format.hash_keys import ALL_HASH_KEYS, MAX_HASH_KEY, HashKeyRange
from kpl_codec.shards.history import history_of
from kpl_codec.shards.lineage import Lineage
from kpl_codec.shards.sequence_numbers import SequenceNumberError
from kpl_codec.shards.shard import Shard
from kpl_codec.shards.shard_map import ShardMap

from ..steps import steps
from .model import BEGIN, ModelStream, replace, sequence_number

keys = st.one_of(
    st.integers(0, MAX_HASH_KEY), st.sampled_from([0, 1, 2**126, 2**127 - 1, 2**127, MAX_HASH_KEY])
)


@st.composite
def streams(draw):
    """A stream after some reshards, and what was open at each second of its life."""
    stream = ModelStream(draw(st.integers(1, 4)), now=100)
    then = {100: list(stream.open_shards())}
    for _ in range(draw(st.integers(0, 8))):
        for _quiet in range(draw(st.integers(0, 3))):
            then[stream.now + 1] = list(stream.open_shards())
            stream.now += 1
        count = len(stream.open_shards())
        if count > 1 and draw(st.booleans()):
            stream.merge(draw(st.integers(0, count - 2)))
        else:
            stream.split(draw(st.integers(0, count - 1)))
        then[stream.now] = list(stream.open_shards())
    return stream, then


def naive_ancestors(shards, shard_id):
    found = set()
    while True:
        more = {
            p for s in shards if s.shard_id == shard_id or s.shard_id in found for p in s.parent_shard_ids
        }
        if more <= found:
            return found
        found |= more


@pytest.mark.requirement("LIN-6", "LIN-7", "LIN-9")
@given(streams(), keys)
def test_every_second_of_a_life_is_answered_right(life, key):
    stream, then = life
    lineage = Lineage(stream.shards)
    assert lineage.defects() == ()
    for second, open_shards in then.items():
        (truth,) = [s for s in open_shards if key in s.hash_key_range]
        created = int((lineage.created(truth.shard_id) - BEGIN).total_seconds())
        index = int(truth.shard_id[-12:])
        number = sequence_number(index, created, second, index=7)
        assert lineage.shard_at_sequence_number(key, number).shard_id == truth.shard_id
        assert lineage.shard_at_time(key, BEGIN + timedelta(seconds=second)).shard_id == truth.shard_id
        history = history_of(lineage, key, truth.shard_id, number, aggregated=True)
        assert history.verdict == "expected"
        assert history.shard_then.shard_id == truth.shard_id
        assert history.number_in_shard
        assert history.hinted_shard_id == truth.shard_id
        assert truth.shard_id in {s.shard_id for s in history.chain}
    assert lineage.shard_at_time(key, BEGIN) is None
    assert lineage.shard_at_sequence_number(key, 0) is None


@given(streams(), st.randoms(use_true_random=False))
def test_ancestors_and_order_equal_the_plain_ones(life, rng):
    stream, _ = life
    shuffled = list(stream.shards)
    rng.shuffle(shuffled)
    lineage = Lineage(shuffled)
    assert lineage == Lineage(stream.shards)
    order = list(lineage)
    for shard in stream.shards:
        ancestors = {s.shard_id for s in lineage.ancestors(shard.shard_id)}
        assert ancestors == naive_ancestors(stream.shards, shard.shard_id)
        assert all(order.index(a) < order.index(shard.shard_id) for a in ancestors)
        for other in stream.shards:
            assert lineage.is_descendant(shard.shard_id, other.shard_id) == (other.shard_id in ancestors)
        assert {s.shard_id for s in lineage.parents(shard.shard_id)} == set(shard.parent_shard_ids)


@given(streams())
def test_generations_and_ends_equal_the_plain_ones(life):
    stream, _ = life
    lineage = Lineage(stream.shards)
    by_id = {shard.shard_id: shard for shard in stream.shards}

    def generation(shard):
        return max((1 + generation(by_id[parent]) for parent in shard.parent_shard_ids), default=0)

    for shard in stream.shards:
        shard_id = shard.shard_id
        assert lineage.generation(shard_id) == generation(shard)
        heirs = [other for other in stream.shards if shard_id in other.parent_shard_ids]
        made = min((lineage.created(heir.shard_id) for heir in heirs), default=None)
        assert lineage.closed_at(shard_id) == made


def test_an_end_without_children_is_what_the_ending_number_hints_at():
    end = sequence_number(0, 0, 77)
    lineage = Lineage([Shard("shardId-000000000000", ALL_HASH_KEYS, ending_sequence_number=end)])
    assert lineage.closed_at("shardId-000000000000") == BEGIN + timedelta(seconds=77)
    odd = Lineage([Shard("shardId-000000000000", ALL_HASH_KEYS, ending_sequence_number="odd")])
    assert odd.closed_at("shardId-000000000000") is None


def test_walks_visit_only_the_shards_they_are_about():
    """A walk over few shards of a long chain does not take the whole chain."""
    count = 3000
    shards = [
        Shard(
            f"shardId-{n:012d}",
            ALL_HASH_KEYS,
            f"shardId-{n - 1:012d}" if n else None,
            None,
            sequence_number(n, n, n),
            str(10**56) if n + 1 < count else None,
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
@given(streams(), st.data())
def test_lineage_grows_by_listings_and_forgets_nothing(life, data):
    stream, then = life
    lineage = Lineage(())
    for second in sorted(then):
        lineage = Lineage([*lineage.values(), *then[second]])  # AT_LATEST listings, one after the other
    assert set(lineage) == {s.shard_id for s in stream.shards}
    for shard in stream.shards:
        assert lineage.hash_key_range(shard.shard_id) == shard.hash_key_range
    whole = Lineage([*lineage.values(), *stream.shards])  # and FROM_TRIM_HORIZON tells the ends
    assert [s.open for s in whole.values()] == [s.open for s in stream.shards]
    expired = data.draw(st.integers(0, len(stream.shards) - 1))
    partial = Lineage(stream.shards[expired:])  # the oldest have expired
    assert {d.code for d in partial.defects()} == set()


def one_split() -> tuple[ModelStream, Lineage]:
    stream = ModelStream(1, now=0)
    stream.now = 50
    stream.split(0)
    return stream, Lineage(stream.shards)


LOW, HIGH = 5, MAX_HASH_KEY - 5
P, A, B = (f"shardId-{n:012d}" for n in range(3))


@pytest.mark.requirement("LIN-8", "LIN-9", "PLC-1", "PLC-2", "PLC-3")
@pytest.mark.parametrize(
    ("key", "shard", "number", "aggregated", "verdict", "then"),
    [
        # written before the split (at 51), on the parent: right at the time
        (LOW, P, sequence_number(0, 0, 10, 1), True, "expected", P),
        (LOW, A, sequence_number(1, 51, 60, 1), True, "expected", A),
        # the parent holds a record with a number that only a child can have given out
        (LOW, P, sequence_number(1, 51, 60, 1), True, "on-parent", A),
        # a child holds a record with a number of the parent's days
        (LOW, A, sequence_number(0, 0, 10, 1), True, "on-child", P),
        (HIGH, A, sequence_number(1, 51, 60, 1), True, "stray", B),
        (HIGH, A, sequence_number(1, 51, 60, 1), False, "explicit-hash-key-implied", B),
        (LOW, "shardId-000000000009", sequence_number(9, 51, 60, 1), True, "unknown-shard", A),
        (LOW, None, sequence_number(1, 51, 60, 1), True, "unknown-shard", A),
        (None, A, sequence_number(1, 51, 60, 1), False, "unknown-shard", None),
        (LOW, A, None, True, "expected", None),
    ],
)
def test_verdicts(key, shard, number, aggregated, verdict, then):
    _, lineage = one_split()
    history = history_of(lineage, key, shard, number, aggregated=aggregated)
    assert history.verdict == verdict
    assert (history.shard_then.shard_id if history.shard_then else None) == then


@pytest.mark.requirement("PLC-1")
def test_an_auto_stream_accuses_nobody():
    stream, _ = one_split()
    lineage = Lineage(stream.shards, "AUTO")
    history = history_of(lineage, HIGH, A, sequence_number(1, 51, 60), aggregated=True)
    assert history.verdict == "distribution-auto"
    assert ShardMap(stream.shards, "AUTO") == lineage


@pytest.mark.requirement("LIN-4")
def test_a_number_before_its_shard_is_noticed():
    _, lineage = one_split()
    assert history_of(lineage, LOW, A, sequence_number(0, 0, 10), aggregated=True).number_in_shard is False
    assert history_of(lineage, LOW, A, None, aggregated=True).number_in_shard is None
    hint = history_of(lineage, LOW, A, sequence_number(2, 51, 60), aggregated=True).hinted_shard_id
    assert hint == B  # a hint, and no verdict of its own


@pytest.mark.requirement("LIN-6")
def test_starting_numbers_that_do_not_grow_give_no_answer():
    """kinesis-local starts the child of a merge where its second parent started."""
    stream = ModelStream(2, now=0)
    stream.merge(0)
    start = stream.shards[1].starting_sequence_number
    lineage = Lineage([*stream.shards[:2], replace(stream.shards[2], starting_sequence_number=start)])
    assert lineage.shard_at_sequence_number(HIGH, sequence_number(1, 0, 0, 1)) is None
    assert lineage.shard_at_sequence_number(LOW, sequence_number(0, 0, 0, 1)) is not None
    assert [d.code for d in lineage.defects()] == ["child-not-newer"]


@pytest.mark.requirement("LIN-6")
def test_ending_numbers_are_not_looked_at():
    """kinesis-local gives every closed shard the ending number 2^63 - 1."""
    stream, _ = one_split()
    odd = [replace(stream.shards[0], ending_sequence_number=str(2**63 - 1)), *stream.shards[1:]]
    assert Lineage(odd).shard_at_sequence_number(LOW, sequence_number(0, 0, 10, 1)).shard_id == P


def test_no_numbers_no_answer_and_bad_ones_are_refused():
    shard = Shard("shardId-000000000000", ALL_HASH_KEYS)
    lineage = Lineage([shard])
    assert lineage.shard_at_sequence_number(0, "5") is None
    assert lineage.shard_at_time(0, BEGIN) is None
    assert lineage.created(shard.shard_id) is None
    assert Lineage([replace(shard, starting_sequence_number="odd")]).shard_at_sequence_number(0, "5") is None
    with pytest.raises(SequenceNumberError):
        history_of(lineage, 0, None, "05", aggregated=False)
    with pytest.raises(HashKeyError):
        lineage.chain(-1)
    for method in (lineage.__getitem__, lineage.parents, lineage.ancestors, lineage.created):
        with pytest.raises(UnknownShard):
            method("shardId-9")
    assert lineage.hash_key_range("shardId-9") is None
    assert lineage.get("shardId-9") is None
    assert lineage.children("shardId-9") == ()
    assert not lineage.is_descendant("shardId-9", shard.shard_id)
    assert not lineage.is_descendant(shard.shard_id, "shardId-9")
    assert shard.shard_id in lineage
    assert len({lineage, Lineage([shard])}) == 1


@pytest.mark.requirement("LIN-11")
@pytest.mark.parametrize(
    "change",
    [
        {"hash_key_range": HashKeyRange(0, 5)},
        {"parent_shard_id": "shardId-7"},
        {"starting_sequence_number": "7"},
        {"ending_sequence_number": None},
    ],
)
def test_a_listing_that_contradicts_is_refused(change):
    stream, lineage = one_split()
    with pytest.raises(ShardMapError) as caught:
        Lineage([*lineage.values(), replace(stream.shards[0], **change)])
    assert caught.value.code == "duplicate"
    assert caught.value.shard_ids == (P,)


def test_a_shard_that_descends_from_itself():
    with pytest.raises(ShardMapError) as caught:
        Lineage([Shard("a", ALL_HASH_KEYS, "b"), Shard("b", ALL_HASH_KEYS, "a"), Shard("c", ALL_HASH_KEYS)])
    assert caught.value.code == "cycle"
    assert caught.value.shard_ids == ("a", "b")


@pytest.mark.requirement("LIN-10")
def test_defects():
    stream, _ = one_split()
    parent, low, high = stream.shards

    def codes(*shards):
        return sorted({d.code for d in Lineage(shards).defects()})

    assert codes(parent, low, high) == []
    assert codes(replace(parent, ending_sequence_number=None), low, high) == ["parent-open"]
    short = replace(
        high, hash_key_range=HashKeyRange(high.hash_key_range.starting_hash_key + 1, MAX_HASH_KEY)
    )
    assert codes(parent, low, short) == ["children-do-not-tile"]
    assert codes(parent, low, high, replace(high, shard_id="shardId-3")) == ["too-many-children"]
    early = replace(low, starting_sequence_number=parent.starting_sequence_number)
    assert codes(parent, early, high) == ["child-not-newer"]
    stream.merge(0)
    one, other, child = stream.shards[1:4]
    assert codes(one, other, child) == []
    assert codes(one, other, replace(child, hash_key_range=HashKeyRange(0, 2**127))) == [
        "child-outside-parents"
    ]
    half = replace(stream.shards[1], parent_shard_id=None)
    assert codes(half, replace(low, shard_id="shardId-8", parent_shard_id=half.shard_id,
                               hash_key_range=HashKeyRange(0, MAX_HASH_KEY),
                               starting_sequence_number=None)) == ["child-outside-parents"]  # fmt: skip
