"""The measures as CloudWatch's embedded metric format on standard output: for ECS and EC2, by an agent."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from ..watch.measures import Emf, Every, Measure
from .outlet import Outlet


class EmfLines(Outlet):
    """Writes JSON lines, at most once a minute."""

    def __init__(self, stream: str) -> None:
        self._emf = Emf(stream)
        self._every = Every(60.0)

    def measures(self, measured: Sequence[Measure], now: float) -> None:
        if self._every.due(now):
            for line in self._emf.lines(measured, now):
                sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
