"""The measures through the OpenTelemetry API (the ``otel`` extra), read when its SDK asks.

Its Prometheus exporter makes kpl_watch_lost_user_records of them, and kpl_watch_looks_total.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..lazy import needing_extras
from ..watch.measures import METRICS, Measure
from .outlet import Outlet


class OpenTelemetryOutlet(Outlet):
    """``meter``: an OpenTelemetry meter; by default that of the global provider."""

    def __init__(self, stream: str, meter: Any = None) -> None:
        with needing_extras("OpenTelemetryOutlet"):
            from opentelemetry import metrics

        self._stream = stream
        self._measured: Sequence[Measure] = ()
        meter = meter or metrics.get_meter("kpl_codec.watch")
        for name, metric in METRICS.items():
            create = (
                meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
            )
            # Without a unit: Prometheus's names would end in it, a second time or wrongly.
            create(f"kpl_watch.{name}", [self._reader(name)], description=metric.meaning)

    def _reader(self, name: str) -> Any:
        from opentelemetry.metrics import CallbackOptions, Observation

        def read(options: CallbackOptions) -> Iterable[Observation]:
            for measure in self._measured:
                if measure.name == name:
                    yield Observation(measure.value, {"stream": self._stream, **measure.attributes})

        return read

    def measures(self, measured: Sequence[Measure], now: float) -> None:
        self._measured = measured
