"""Sends measures to CloudWatch by PutMetricData: the sentinel's, or a producer's."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime, timezone
from queue import Full, Queue
from types import TracebackType
from typing import Any

import boto3
from botocore.config import Config

from ..sentinel import Finding
from ..sentinel.measures import SENTINEL, Deltas, Measure, Table, metric_data
from .calls import CALL_ERRORS

_EVERY = 60.0
#: PutMetricData takes 1,000 metrics in one call.
_MOST = 1000


class PutMetrics:
    """A context manager with a thread that makes the calls, at most every ``every`` seconds. ``failed``
    counts calls that failed."""

    #: What ``failed`` counts.
    failures = "calls of PutMetricData failed"

    def __init__(
        self,
        stream: str,
        *,
        region: str | None = None,
        client: Any = None,
        table: Table = SENTINEL,
        every: float = _EVERY,
    ) -> None:
        config = Config(connect_timeout=5, read_timeout=10, retries={"mode": "standard"})
        self._client = client or boto3.client("cloudwatch", region_name=region, config=config)
        self._stream, self._table, self._every = stream, table, every
        self._deltas = Deltas(table)
        self._put_at = float("-inf")
        self._queue: Queue[list[dict[str, Any]] | None] = Queue(10)
        self._thread = threading.Thread(target=self._run, name="kpl-codec PutMetricData", daemon=True)
        self.failed = 0

    def __enter__(self) -> PutMetrics:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # SEN-25: "A receiver that is slow or gone MUST NOT hold up the watch; what could not be posted MUST
        # be counted."
        try:
            self._queue.put(None, timeout=20)
        except Full:
            self.failed += self._queue.qsize()
            return
        self._thread.join(20)

    def finding(self, finding: Finding) -> None:
        """Does nothing: open findings are part of the measures."""

    def measures(self, measured: Sequence[Measure], now: float) -> None:
        """Send them if ``every`` seconds are over."""
        if 0 <= now - self._put_at < self._every:  # a clock may be set back
            return
        self._put_at = now
        when = datetime.fromtimestamp(now, timezone.utc)
        added = self._deltas.of(measured)
        data = [{**one, "Timestamp": when} for one in metric_data(self._stream, added, self._table)]
        try:
            self._queue.put_nowait(data)
        except Full:
            self.failed += 1

    def _run(self) -> None:
        while (data := self._queue.get()) is not None:
            for start in range(0, len(data), _MOST):
                try:
                    self._client.put_metric_data(
                        Namespace=self._table.namespace, MetricData=data[start : start + _MOST]
                    )
                except CALL_ERRORS:
                    self.failed += 1
