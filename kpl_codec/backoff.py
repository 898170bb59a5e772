"""How long to wait before a failed call is repeated."""

from __future__ import annotations

from typing import NamedTuple


class Backoff(NamedTuple):
    """Waits that grow from ``first`` to at most ``most`` seconds, times ``factor`` after each failure."""

    first: float
    most: float
    factor: float = 2.0

    def seconds(self, failures: int, chance: float = 0.0) -> float:
        """The wait after so many failures before this one. ``chance``: a random number from 0 up to 1, which
        shortens it by at most half, so that many callers do not retry at the same moment."""
        # A larger power may overflow; the wait has long reached its limit by then.
        return float(min(self.most, self.first * self.factor ** min(failures, 64)) * (1 - chance / 2))
