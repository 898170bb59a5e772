"""Estimates the total from a sample, with an interval.

A poll reads one slot of ``n`` in a period; ``y`` lost user records in it stand for ``n * y``. Losses come in
bursts, so a poll is one draw, however many lost user records it found.

    estimate   sum of n * y
    interval   of a weighted sum of Poisson counts: a gamma distribution with the mean and the variance of
               the estimate, its upper end with one more poll as bad as the worst one seen
               (Fay and Feuer 1997)

One slot of each period is drawn. That varies less than the independent draws the interval assumes, so it
covers the truth at least as often as it says; tests/watch/test_estimates.py shows it by simulation.
Specification: spec/10-watch.md, WCH-14 to WCH-16.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from statistics import NormalDist
from typing import NamedTuple

#: Of an interval, and its end in standard deviations of a normal distribution.
CONFIDENCE = 0.95
_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


class Sample(NamedTuple):
    """How often one thing was counted in each of the ``polls`` of one shard.

    ``scale``: the time that the polls stand for, divided by the time that was read; 1.0 or more.
    ``certain``: counted where everything was read, or outside the sampled slots: not extrapolated.
    """

    scale: float = 1.0
    polls: Collection[int] = ()
    certain: int = 0


class Estimate(NamedTuple):
    """``seen`` for certain; ``estimate`` in all, in 95 of 100 cases ``low`` to ``high`` (inclusive)."""

    seen: int
    estimate: int
    low: int
    high: int

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.estimate:,}"
        return f"about {self.estimate:,} ({CONFIDENCE:.0%}: {self.low:,} to {self.high:,})"


def _gamma_quantile(shape: float, z: float) -> float:
    """The quantile of a gamma distribution of scale 1, by Wilson and Hilferty's cube; ``z`` of the normal."""
    root = 1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape))
    return shape * max(0.0, root) ** 3


def estimate(samples: Iterable[Sample]) -> Estimate:
    """The estimated total from ``samples`` of different shards."""
    mean = variance = heaviest = 0.0
    seen = certain = 0
    for sample in samples:
        total = sum(sample.polls)
        seen += total + sample.certain
        certain += sample.certain
        if sample.scale > 1.0:
            mean += total * sample.scale
            variance += sum(count**2 for count in sample.polls) * sample.scale**2
            heaviest = max([heaviest, *(count * sample.scale for count in sample.polls)])
        else:
            # WCH-16: "Where all of a shard's time was read, the estimate MUST be what was seen, without an
            # interval."
            certain += total
    if not mean:
        return Estimate(seen, certain, certain, certain)
    low = variance / mean * _gamma_quantile(mean**2 / variance, -_Z)
    # WCH-15: "The interval MUST cover the truth at least as often as it says."
    upper_mean, upper_variance = mean + heaviest, variance + heaviest**2
    high = upper_variance / upper_mean * _gamma_quantile(upper_mean**2 / upper_variance, _Z)
    # WCH-14: "The lower end of an interval MUST NOT be below what was seen."
    return Estimate(
        seen,
        max(seen, round(certain + mean)),
        max(seen, math.floor(certain + low)),
        max(seen, math.ceil(certain + high)),
    )
