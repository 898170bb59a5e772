"""The measures as CloudWatch's embedded metric format on standard output, once a minute: for ECS and EC2,
where an agent reads it. The Lambda function writes the same lines (`kpl_codec.aws_lambda.sentinel`)."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from ..sentinel import Finding
from ..sentinel.measures import Deltas, Measure, emf_lines

_EVERY = 60.0


class EmfLines:
    """Writes JSON lines, at most once a minute."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._deltas = Deltas()
        self._written_at = float("-inf")

    def finding(self, finding: Finding) -> None:
        """Does nothing: open findings are part of the measures."""

    def measures(self, measured: Sequence[Measure], now: float) -> None:
        """Write them if the minute is over."""
        if 0 <= now - self._written_at < _EVERY:  # a clock may be set back
            return
        self._written_at = now
        for line in emf_lines(self._stream, self._deltas.of(measured), now):
            sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
