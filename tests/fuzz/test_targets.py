"""What takes bytes or text from outside: every kept input again, and time and memory linear in the input."""

from __future__ import annotations

import pytest

from fuzz import corpus, growth
from fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_kept_inputs_hold(name: str) -> None:
    inputs = corpus.kept(name)
    assert inputs, "no corpus: fuzz/harness.py says how to keep one"
    for data in inputs:
        TARGETS[name].run(data)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name, target in TARGETS.items() for kind in target.grown]
)
def test_time_and_memory_are_linear(name: str, kind: str) -> None:
    target = TARGETS[name]
    assert growth.broken(target.work or target.run, target.grown[kind]) is None


def quadratic(data: bytes) -> None:
    for at in range(0, len(data), 50):
        data.count(b"x", at)


def greedy(data: bytes) -> None:
    [[byte] * 100 for byte in data]


@pytest.mark.slow
def test_the_law_of_growth_can_be_broken() -> None:
    found = growth.broken(quadratic, lambda size: b"a" * size)
    assert found is not None
    assert found.startswith("time")
    found = growth.broken(greedy, lambda size: b"a" * size)
    assert found is not None
    assert found.startswith("memory")
