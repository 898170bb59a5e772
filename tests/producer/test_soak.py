"""A short soak; `python -m tests.producer.soak` runs long ones."""

from __future__ import annotations

from typing import Any

import pytest

from kpl_codec.producer import ProducerConfig

from .soak import Soak


@pytest.mark.requirement("PRD-26", "PRD-27", "PRD-41", "MAP-18")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("settings", [{}, {"ordering": "partition-key"}, {"reshard_proof": True}], ids=str)
def test_every_fault_at_once_loses_nothing_and_explains_each_double(
    settings: dict[str, Any], seed: int
) -> None:
    totals = Soak(seed, ProducerConfig(aggregation_max_size=2000, **settings)).run(10_000)
    assert totals.put == 10_000
    assert totals.lost == 0
    assert totals.doubled == totals.explained
    assert totals.delivered > 5_000
    if settings.get("ordering"):
        assert totals.disordered == 0
