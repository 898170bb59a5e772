"""One place that a watch tells."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from ..watch import WatchFinding
from ..watch.measures import Measure


class Outlet(AbstractContextManager["Outlet"]):
    """Is told of every finding, and of all measures every few seconds. A place takes what it can show.
    ``failed``: how many ``failures`` there were."""

    failures = "things could not be told"
    failed = 0

    def __exit__(self, *exception: object) -> None:
        """The watch is over."""

    def finding(self, finding: WatchFinding) -> None:
        """One that is new, has grown, or is over."""

    def measures(self, measured: Sequence[Measure], now: float) -> None:
        """What holds at ``now``."""
