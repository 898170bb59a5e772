"""KIP-794: exact frequencies, with a chance that counts."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.producer.routing import UniformStickyPartitioner

from .bench import Bench, data_of


def cycle(
    draws: int, shards: str, queued: dict[str, int], pausing: set[str | None], *, adaptive: bool = True
) -> Counter[str | None]:
    """The shards of so many draws. The chances are 0, 1, 2 ...: a full cycle is the exact distribution."""
    numbers = itertools.count()
    partitioner = UniformStickyPartitioner(100, lambda n: next(numbers) % n, adaptive=adaptive)
    found: Counter[str | None] = Counter()
    for _ in range(draws):
        partitioner.draw(shards, queued, pausing)
        found[partitioner.shard] += 1
    return found


@pytest.mark.requirement("PRT-3")
@given(st.lists(st.integers(0, 30), min_size=1, max_size=12))
def test_frequencies_are_exactly_longest_plus_one_minus_queue(queues: list[int]) -> None:
    shards = "abcdefghijkl"[: len(queues)]
    weights = [max(queues) + 1 - queue for queue in queues]
    if len(set(queues)) == 1:
        weights = [1] * len(queues)
    found = cycle(sum(weights), shards, dict(zip(shards, queues, strict=True)), set())
    assert found == dict(zip(shards, weights, strict=True))


@pytest.mark.requirement("PRT-5", "PRT-10")
@pytest.mark.parametrize("adaptive", [True, False], ids=["adaptive", "uniform"])
def test_a_shard_that_pauses_is_drawn_only_if_all_do(adaptive: bool) -> None:
    some = {"a": 2, "c": 4} if adaptive else {"a": 3, "c": 3}
    assert cycle(6, "abc", {"a": 1}, {"b"}, adaptive=adaptive) == some
    assert cycle(3, "abc", {}, {"a", "b", "c"}, adaptive=adaptive) == {"a": 1, "b": 1, "c": 1}


@pytest.mark.requirement("PRT-1", "PRT-2")
@given(st.lists(st.integers(1, 250), min_size=20, max_size=60))
def test_a_shard_is_left_exactly_when_its_bytes_are_reached(sizes: list[int]) -> None:
    """Or twice as many, while an aggregate is half full."""
    bench = Bench(4, aggregation_max_size=1000, aggregation_max_count=4)
    partitioner, produced = bench.core._routing.partitioner, 0
    for number, size in enumerate(sizes):
        before = partitioner.shard
        pending = bench.put(b"%d" % number * size, key=None)
        produced = pending.size if before is None else produced + pending.size
        (shard,) = [one for one in bench.stream.open if pending.hash_key in one.hash_key_range]
        assert before in (None, shard.shard_id)
        half_full = bool(bench.core._lanes._lanes[shard.shard_id].open)
        assert (partitioner.shard is None) == (produced >= (2000 if half_full else 1000))


@pytest.mark.requirement("MAP-1", "PRD-17", "PRT-7")
def test_a_shard_in_doubt_is_not_drawn_and_holds_up_no_other() -> None:
    """The map is asked for, and does not come."""
    bench = Bench(4)
    for number in range(4):
        pending = bench.put(b"%d" % number, key=None)
        bench.put(b"with a key", pending.hash_key)
        shard = bench.core._routing.partitioner.shard
        assert shard is not None
        bench.core.flush()
        (call,) = bench.puts(1.0)
        assert data_of(call) == [[b"%d" % number, b"with a key"]]
        assert bench.live.invalidate(bench.now, shard, bench.now)  # it is predicted, and no more from now on
