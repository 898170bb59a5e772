"""The producer's metrics through the OpenTelemetry API (the ``otel`` extra), under the KPL's names.

producer = Producer("orders", observe=OpenTelemetryMetrics("orders"))
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from ..lazy import needing_extras
from ..producer.metrics import METRICS
from ..shards.stream import stream_of


class OpenTelemetryMetrics:
    """An ``observe`` for both producers. Every measurement has StreamName and ``attributes``.

    ``stream``: its name or ARN. ``meter``: an OpenTelemetry meter; by default that of the global
    provider. Thread-safe.
    """

    def __init__(
        self, stream: str, *, meter: Any = None, attributes: Mapping[str, str] | None = None
    ) -> None:
        with needing_extras("OpenTelemetryMetrics"):
            from opentelemetry import metrics

        meter = meter or metrics.get_meter("kpl_codec.producer")
        self._base = {"StreamName": stream_of(stream).name, **(attributes or {})}
        self._lock = threading.Lock()
        self._levels: dict[str, float] = {}
        self._tell: dict[str, Any] = {}
        for name, (kind, unit) in METRICS.items():
            if kind == "counter":
                self._tell[name] = meter.create_counter(name, unit=unit).add
            elif kind == "histogram":
                self._tell[name] = meter.create_histogram(name, unit=unit).record
            else:
                meter.create_observable_gauge(name, callbacks=[self._gauge(name)], unit=unit)

    def _gauge(self, name: str) -> Any:
        from opentelemetry.metrics import CallbackOptions, Observation

        def callback(options: CallbackOptions) -> Iterable[Observation]:
            with self._lock:
                level = self._levels.get(name)
            return [] if level is None else [Observation(level, self._base)]

        return callback

    def __call__(self, name: str, value: float, attributes: Mapping[str, str]) -> None:
        tell = self._tell.get(name)
        if tell is not None:
            tell(value, {**self._base, **attributes})
        else:
            with self._lock:
                self._levels[name] = value
