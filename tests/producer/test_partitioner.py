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


@pytest.mark.requirement("PRT-1")
@given(st.lists(st.integers(1, 250), min_size=1, max_size=60))
def test_a_shard_is_left_exactly_when_its_bytes_are_reached(sizes: list[int]) -> None:
    partitioner = UniformStickyPartitioner(100, Counting())
    produced = 0
    for size in sizes:
        if partitioner.shard is None:
            partitioner.draw("abc", {}, set())
            produced = 0
        partitioner.appended(size)
        produced += size
        assert (partitioner.shard is None) == (produced >= 100)


@pytest.mark.requirement("PRT-2")
def test_a_half_full_aggregate_delays_the_switch_to_twice_the_size_at_most() -> None:
    partitioner = UniformStickyPartitioner(100, Counting())
    partitioner.draw("ab", {}, set())
    partitioner.appended(199, may_switch=False)
    assert partitioner.shard is not None
    partitioner.appended(1, may_switch=False)
    assert partitioner.shard is None


@pytest.mark.requirement("PRT-7")
def test_a_shard_that_is_gone_is_left_at_once() -> None:
    bench = Bench(1)
    bench.put(b"before", key=None)
    bench.stream.split(0)
    bench.live.refresh(bench.now)
    bench.map()
    bench.put(b"after", key=None)
    bench.run(1)
    predicted = {ended.attempts[0].predicted_shard for ended in bench.results.values()}
    assert len(bench.results) == 2
    assert predicted <= {*bench.live.known.routes.shard_ids}
