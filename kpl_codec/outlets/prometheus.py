"""The measures at http://ADDRESS:PORT/metrics, as Prometheus reads them (the ``watch`` extra)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..lazy import needing_extras
from ..sentinel import Finding
from ..sentinel.measures import SENTINEL, Measure, Table
from .serving import ServerThread


class PrometheusEndpoint(ServerThread):
    """A context manager. ``port`` 0 takes a free one; ``port`` then says which."""

    def __init__(self, stream: str, address: str, port: int, *, table: Table = SENTINEL) -> None:
        with needing_extras("PrometheusEndpoint"):
            from prometheus_client import CollectorRegistry
            from prometheus_client.exposition import MetricsHandler

        self._table, self._stream = table, stream
        self._measured: Sequence[Measure] = ()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        super().__init__(MetricsHandler.factory(registry), address, port)

    def finding(self, finding: Finding) -> None:
        """Does nothing: open findings are part of the measures."""

    def measures(self, measured: Sequence[Measure], now: float) -> None:
        """Keep them until they are read."""
        self._measured = measured

    def collect(self) -> Iterator[Any]:
        """Called by prometheus_client for each request."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        measured = self._measured
        for name, metric in self._table.metrics.items():
            family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            found = family(self._table.prefix + name, metric.meaning, labels=["stream", *metric.attributes])
            for measure in measured:
                if measure.name == name:
                    values = [measure.attributes.get(attribute, "") for attribute in metric.attributes]
                    found.add_metric([self._stream, *values], measure.value)
            yield found
