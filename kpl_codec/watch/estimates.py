"""Estimates the total from a sample, with an interval.

A look at one slot of ``1 / share`` that saw ``y`` lost user records stands for ``y / share``. Losses come in
bursts, so the sample size is the number of looks, not of user records: a look is one draw, however much it
saw.

    estimate   sum of y / share
    interval   of a weighted sum of Poisson counts: a gamma distribution with the mean and the variance of
               the estimate, its upper end with one more look as bad as the worst one seen
               (Fay and Feuer 1997)

One slot of each period is drawn. That varies less than the independent draws the interval assumes, so it
covers the truth at least as often as it says; tests/watch/test_estimates.py shows it by simulation.
The lower end is never below what was seen.
Specification: spec/10-watch.md, WCH-14 to WCH-17.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist
from typing import NamedTuple

CONFIDENCE = 0.95


class Sample(NamedTuple):
    """The counts of one thing in the looks at one shard.

    ``scale``: the time that the looks stand for over the time looked at, 1.0 or more. ``total``,
    ``squares``, ``largest``: of the counts of the looks. ``certain``: counted where everything was read, or
    outside the drawn slots: it is not extrapolated.
    """

    scale: float = 1.0
    total: int = 0
    squares: int = 0
    largest: int = 0
    certain: int = 0


class Estimate(NamedTuple):
    """``seen`` for certain; ``estimate`` in all, with ``confidence`` from ``low`` to ``high`` (inclusive)."""

    seen: int
    estimate: int
    low: int
    high: int
    confidence: float = CONFIDENCE

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.estimate:,}"
        return f"about {self.estimate:,} ({self.confidence:.0%}: {self.low:,} to {self.high:,})"


def _gamma_quantile(shape: float, z: float) -> float:
    """The quantile of a gamma distribution of scale 1, by Wilson and Hilferty's cube; ``z`` of the normal."""
    root = 1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape))
    return shape * max(0.0, root) ** 3


def estimate(samples: Iterable[Sample], confidence: float = CONFIDENCE) -> Estimate:
    """The estimated total from ``samples`` of different shards. ``confidence``: 0 to 1."""
    mean = variance = heaviest = 0.0
    seen = certain = 0
    for sample in samples:
        seen += sample.total + sample.certain
        certain += sample.certain
        if sample.scale > 1.0:
            mean += sample.total * sample.scale
            variance += sample.squares * sample.scale**2
            heaviest = max(heaviest, sample.largest * sample.scale)
        else:
            # WCH-16: "Where all of a shard's time was read, the estimate MUST be what was seen, without an
            # interval."
            certain += sample.total
    if not mean:
        return Estimate(seen, certain, certain, certain, confidence)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    low = variance / mean * _gamma_quantile(mean**2 / variance, -z)
    # WCH-15: "The interval MUST cover the truth at least as often as it says."
    upper_mean, upper_variance = mean + heaviest, variance + heaviest**2
    high = upper_variance / upper_mean * _gamma_quantile(upper_mean**2 / upper_variance, z)
    # WCH-14: "The lower end of an interval MUST NOT be below what was seen."
    return Estimate(
        seen,
        max(seen, round(certain + mean)),
        max(seen, math.floor(certain + low)),
        max(seen, math.ceil(certain + high)),
        confidence,
    )


def seconds_to_find(
    losses_per_second: float, share: float, *, period: float = 0.0, confidence: float = CONFIDENCE
) -> float:
    """Seconds after which a loss that recurs at random has been seen with ``confidence``.

    Of ``losses_per_second`` aggregates a look meets ``share``; the number met in ``t`` seconds is Poisson
    with mean ``share * losses_per_second * t``. ``period``: the last look may be that much later.
    """
    # WCH-17: "A loss that recurs at random MUST be found with confidence c within
    # period - ln(1 - c) / (share * losses per second) seconds."
    return period - math.log(1 - confidence) / (share * losses_per_second)
