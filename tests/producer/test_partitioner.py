"""KIP-794: exact frequencies, with a chance that counts."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.producer.routing import UniformStickyPartitioner

from .bench import Bench


class Counting:
    """A chance that gives 0, 1, 2 ... in turn, so that a full cycle is the exact distribution."""

    def __init__(self) -> None:
        self.next = 0

    def __call__(self, n: int) -> int:
        self.next += 1
        return (self.next - 1) % n


def cycle(
    draws: int, shards: str, queued: dict[str, int], pausing: set[str | None], *, adaptive: bool = True
) -> Counter[str | None]:
    """The shards of so many draws."""
    partitioner = UniformStickyPartitioner(100, Counting(), adaptive=adaptive)
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
@given(st.lists(st.tuples(st.integers(1, 250), st.booleans()), min_size=1, max_size=60))
def test_a_shard_is_left_exactly_when_its_bytes_are_reached(sizes: list[tuple[int, bool]]) -> None:
    """Or twice as many, while an aggregate is half full."""
    partitioner = UniformStickyPartitioner(100, Counting())
    produced = 0
    for size, half_full in sizes:
        if partitioner.shard is None:
            partitioner.draw("abc", {}, set())
            produced = 0
        partitioner.appended(size, may_switch=not half_full)
        produced += size
        assert (partitioner.shard is None) == (produced >= (200 if half_full else 100))


@pytest.mark.requirement("MAP-1", "PRT-7")
def test_no_shard_is_drawn_that_is_in_doubt() -> None:
    bench = Bench(4)
    for number in range(4):
        bench.now += 1
        bench.put(b"%d" % number, key=None)
        shard = bench.core._routing.partitioner.shard
        assert shard is not None
        assert bench.live.invalidate(bench.now, shard, bench.now)  # it is predicted, and no more from now on
