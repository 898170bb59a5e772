"""Where a watch reports, each an `Exporter`. Specification: spec/10-watch.md, WCH-24 to WCH-27."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from . import WatchFinding
from .measures import Measure


class Exporter(AbstractContextManager["Exporter"]):
    """Is told of every finding, and of all measures every few seconds. A place takes what it can show."""

    def __exit__(self, *exception: object) -> None:
        """The watch is over."""

    def finding(self, finding: WatchFinding) -> None:
        """One that is new, has grown, or is over."""

    def measures(self, measured: Sequence[Measure], now: float) -> None:
        """What holds at ``now``."""
