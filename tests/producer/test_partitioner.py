"""KIP-794: exact frequencies, with a chance that counts."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.producer.routing import UniformStickyPartitioner


class Counting:
    """A chance that gives 0, 1, 2 ... in turn, so that a full cycle is the exact distribution."""

    def __init__(self) -> None:
        self.next = 0

    def __call__(self, n: int) -> int:
        self.next += 1
        return (self.next - 1) % n


def cycle(partitioner: UniformStickyPartitioner, draws: int) -> Counter[str | None]:
    """The shards of so many draws."""
    found: Counter[str | None] = Counter()
    for _ in range(draws):
        found[partitioner.current()] += 1
        partitioner.appended(partitioner.sticky_size)
    return found


def of(shards: str, **settings: object) -> UniformStickyPartitioner:
    partitioner = UniformStickyPartitioner(100, Counting(), **settings)  # type: ignore[arg-type]
    partitioner.set_shards(list(shards))
    return partitioner


@pytest.mark.requirement("PRT-3")
@given(st.lists(st.integers(0, 30), min_size=1, max_size=12))
def test_frequencies_are_exactly_longest_plus_one_minus_queue(queues: list[int]) -> None:
    partitioner = of("abcdefghijkl"[: len(queues)])
    partitioner.update_queues(dict(zip(partitioner.shards, queues, strict=True)))
    weights = [max(queues) + 1 - queue for queue in queues]
    if len(set(queues)) == 1:
        weights = [1] * len(queues)
    assert cycle(partitioner, sum(weights)) == dict(zip(partitioner.shards, weights, strict=True))


@pytest.mark.requirement("PRT-5", "PRT-10")
@pytest.mark.parametrize("adaptive", [True, False], ids=["adaptive", "uniform"])
def test_a_shard_that_pauses_is_drawn_only_if_all_do(adaptive: bool) -> None:
    partitioner = of("abc", adaptive=adaptive)
    partitioner.update_queues({"a": 1}, {"b"})
    assert cycle(partitioner, 6) == ({"a": 2, "c": 4} if adaptive else {"a": 3, "c": 3})
    partitioner.update_queues({}, {"a", "b", "c"})
    assert cycle(partitioner, 3) == {"a": 1, "b": 1, "c": 1}


@pytest.mark.requirement("PRT-1")
@given(st.lists(st.integers(1, 250), min_size=1, max_size=60))
def test_a_shard_is_left_exactly_when_its_bytes_are_reached(sizes: list[int]) -> None:
    partitioner = of("abcdefg")
    produced, seen = 0, partitioner.current()
    for size in sizes:
        assert partitioner.current() == seen
        partitioner.appended(size)
        produced += size
        assert (partitioner.shard is None) == (produced >= 100)
        if produced >= 100:
            produced, seen = 0, partitioner.current()


@pytest.mark.requirement("PRT-2")
def test_a_half_full_aggregate_delays_the_switch_to_twice_the_size_at_most() -> None:
    partitioner = of("ab")
    first = partitioner.current()
    partitioner.appended(150, may_switch=False)
    assert partitioner.current() == first
    partitioner.appended(49, may_switch=False)
    assert partitioner.shard is not None
    partitioner.appended(1, may_switch=False)
    assert partitioner.shard is None


@pytest.mark.requirement("PRT-7")
def test_a_shard_that_is_gone_is_left_at_once() -> None:
    partitioner = of("ab")
    assert partitioner.current() == "a"
    partitioner.set_shards(["b", "c"])
    assert partitioner.current() in ("b", "c")
    partitioner.set_shards([])
    assert partitioner.current() is None
