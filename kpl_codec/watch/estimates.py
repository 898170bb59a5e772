"""Estimates from a sample how many user records were lost in all: spec/10-watch.md, 10.3.

estimate   sum of n * y: y lost user records in one slot of n
interval   that of Fay and Feuer (1997) for a weighted sum of Poisson counts: a gamma distribution with the
           mean and the variance of the estimate, its upper end with one more poll as bad as the worst
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from statistics import NormalDist
from typing import NamedTuple

#: The confidence of an interval, and its end in standard deviations of a normal distribution.
CONFIDENCE = 0.95
_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


class Sample(NamedTuple):
    """``scale``: the time that the polls stand for, divided by the time that was read. ``polls``: the lost
    user records of each poll. ``certain``: those that are not extrapolated."""

    scale: float = 1.0
    polls: Collection[int] = ()
    certain: int = 0


class Estimate(NamedTuple):
    """``seen``: how many were read. ``estimate``: how many there are; in 95 of 100 cases from ``low`` to
    ``high``, both included."""

    seen: int
    estimate: int
    low: int
    high: int

    @property
    def user_records(self) -> str:
        return f"{self} user record" if str(self) == "1" else f"{self} user records"

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.estimate:,}"
        return f"about {self.estimate:,} ({CONFIDENCE:.0%}: {self.low:,} to {self.high:,})"


def _gamma_quantile(shape: float, z: float) -> float:
    """By Wilson and Hilferty's approximation, for scale 1. ``z``: the same quantile of the normal
    distribution."""
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
