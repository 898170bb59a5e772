"""A producer's measurements to Prometheus and CloudWatch, through the outlets of `kpl-codec watch`.

    with ProducerMetrics.to_prometheus("orders", 9102) as observe, Producer("orders", observe=observe) as p:
        ...

Names are the KPL's: UserRecordsPut in CloudWatch, kpl_producer_user_records_put_total in Prometheus. A
histogram is told as its sum and its count: BufferingTimeSum by BufferingTimeCount is the mean.
OpenTelemetry has histograms of its own: `kpl_codec.aws.telemetry`.
Specification: spec/05-producer.md, PRD-33.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any, Final, Literal, Protocol

from ..producer.metrics import METRICS
from ..sentinel.measures import Measure, Metric, Table
from .emf import EmfLines
from .prometheus import PrometheusEndpoint

_UNITS: Final = {"By": "Bytes", "ms": "Milliseconds"}
_ATTRIBUTES: Final = {
    "KinesisRecordsPut": ("shard_id",),
    "KinesisRecordsDataPut": ("shard_id",),
    "ErrorsByCode": ("error_code",),
    "ShardMapErrors": ("error_code",),
}


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _table() -> dict[str, Metric]:
    found = {}
    for name, (kind, unit_of_otel) in METRICS.items():
        unit, attributes = _UNITS.get(unit_of_otel, "Count"), _ATTRIBUTES.get(name, ())
        if kind == "histogram":
            found[f"{_snake(name)}_sum"] = Metric("counter", unit, f"Sum of {name}.", attributes)
            found[f"{_snake(name)}_count"] = Metric("counter", "Count", f"Count of {name}.", attributes)
        else:
            as_told: Literal["counter", "gauge"] = "counter" if kind == "counter" else "gauge"
            found[_snake(name)] = Metric(as_told, unit, f"{name}, as the KPL names it.", attributes)
    return found


PRODUCER: Final = Table(_table(), "KplCodec/Producer", "kpl_producer_")


class Outlet(Protocol):
    """Where measures are told; a context manager if it has something to begin and to end."""

    def measures(self, measured: list[Measure], now: float) -> None: ...


class ProducerMetrics:
    """An ``observe`` for both producers. It adds up, and a thread tells ``outlet`` every ``every`` seconds,
    and once more at the end: so leave it after the producer. ``clock``: seconds since 1970.

    A forked child counts anew, and tells nobody: give its producer one of its own. What an outlet raises
    ends the telling, not the producer.
    """

    def __init__(
        self, outlet: Outlet, *, every: float = 60.0, clock: Callable[[], float] = time.time
    ) -> None:
        self._outlet = outlet
        self._every = every
        self._clock = clock
        self._stack = ExitStack()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kpl-codec metrics", daemon=True)
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.RLock()  # a put in a signal handler may be measured, too
        self._values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {
            (name, ()): 0.0
            for name, metric in PRODUCER.metrics.items()
            if metric.kind == "counter" and not metric.attributes
        }

    @classmethod
    def to_prometheus(
        cls, stream_name: str, port: int, *, address: str = "127.0.0.1", every: float = 2.0
    ) -> ProducerMetrics:
        """Served at http://ADDRESS:PORT/metrics, renewed every ``every`` seconds (the ``watch`` extra)."""
        return cls(PrometheusEndpoint(stream_name, address, port, table=PRODUCER), every=every)

    @classmethod
    def to_emf(cls, stream_name: str, *, every: float = 60.0) -> ProducerMetrics:
        """Written to standard output as CloudWatch's embedded metric format: no calls."""
        return cls(EmfLines(stream_name, table=PRODUCER, every=0.0), every=every)

    @classmethod
    def to_cloudwatch(
        cls, stream_name: str, *, region: str | None = None, client: Any = None, every: float = 60.0
    ) -> ProducerMetrics:
        """Put by PutMetricData. ``client``: a CloudWatch client; by default one is made."""
        from ..aws.sentinel_metrics import PutMetrics

        return cls(
            PutMetrics(stream_name, region=region, client=client, table=PRODUCER, every=0.0), every=every
        )

    def __call__(self, name: str, value: float, attributes: Mapping[str, str]) -> None:
        """Count a measurement of `kpl_codec.producer.METRICS`; others raise KeyError."""
        if self._process != os.getpid():
            self._begin()
        kind, _ = METRICS[name]
        told_apart = tuple((_snake(attribute), text) for attribute, text in attributes.items())
        key = _snake(name)
        with self._lock:
            if kind == "gauge":
                self._values[key, told_apart] = value
            elif kind == "counter":
                self._values[key, told_apart] = self._values.get((key, told_apart), 0.0) + value
            else:
                self._values[f"{key}_sum", told_apart] += value
                self._values[f"{key}_count", told_apart] += 1

    def measured(self) -> list[Measure]:
        """What there is to tell now: counters since the beginning, gauges as they were last."""
        with self._lock:
            return [Measure(name, value, dict(key)) for (name, key), value in self._values.items()]

    def __enter__(self) -> ProducerMetrics:
        if isinstance(self._outlet, AbstractContextManager):
            self._stack.enter_context(self._outlet)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            self._over.set()
            self._thread.join(20)

    def _run(self) -> None:
        over = False
        while not over:
            over = self._over.wait(self._every)
            self._outlet.measures(self.measured(), self._clock())
