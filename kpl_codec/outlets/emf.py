"""The measures as CloudWatch's embedded metric format on standard output, once a minute: for ECS and EC2,
where an agent reads it. The Lambda function writes the same lines (`kpl_codec.aws_lambda.sentinel`)."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from ..sentinel import Finding
from ..sentinel.measures import SENTINEL, Deltas, Measure, Table, emf_lines

_EVERY = 60.0


class EmfLines:
    """Writes JSON lines, at most every ``every`` seconds."""

    def __init__(self, stream: str, *, table: Table = SENTINEL, every: float = _EVERY) -> None:
        self._stream, self._table, self._every = stream, table, every
        self._deltas = Deltas(table)
        self._written_at = float("-inf")

    def finding(self, finding: Finding) -> None:
        """Does nothing: open findings are part of the measures."""

    def measures(self, measured: Sequence[Measure], now: float) -> None:
        """Write them if ``every`` seconds are over."""
        if 0 <= now - self._written_at < self._every:  # a clock may be set back
            return
        self._written_at = now
        for line in emf_lines(self._stream, self._deltas.of(measured), now, self._table):
            sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
