"""The measures at http://ADDRESS:PORT/metrics, as Prometheus reads them (the ``watch`` extra)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

from ..sentinel import Finding
from ..sentinel.measures import SENTINEL, Measure, Table


class PrometheusEndpoint:
    """A context manager. ``port`` 0 takes a free one; ``port`` then says which."""

    def __init__(self, stream: str, address: str, port: int, *, table: Table = SENTINEL) -> None:
        self._table = table
        self._stream, self._address, self.port = stream, address, port
        self._measured: Sequence[Measure] = ()
        self._server: Any = None

    def __enter__(self) -> PrometheusEndpoint:
        from prometheus_client import CollectorRegistry, start_http_server

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        self._server, self._thread = start_http_server(self.port, self._address, registry)
        self.port = self._server.server_port
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

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
