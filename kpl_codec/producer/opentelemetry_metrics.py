"""The producer's metrics through the OpenTelemetry API (the ``otel`` extra), under the KPL's names.

producer = Producer("orders", observe=OpenTelemetryMetrics("orders"))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..lazy import needing_extras
from ..shards.stream_name import stream_of
from .metrics import METRICS

#: The method of each kind of instrument that takes a value.
_TELL: Final = {"counter": "add", "histogram": "record", "gauge": "set"}


class OpenTelemetryMetrics:
    """An ``observe`` for both producers. Every measurement has StreamName.

    ``stream``: its name or ARN. ``meter``: an OpenTelemetry meter; by default that of the global
    provider. Thread-safe.
    """

    def __init__(self, stream: str, *, meter: Any = None) -> None:
        with needing_extras("OpenTelemetryMetrics"):
            from opentelemetry import metrics

        meter = meter or metrics.get_meter("kpl_codec.producer")
        self._base = {"StreamName": stream_of(stream).name}
        self._tell: dict[str, Any] = {}
        for name, (kind, unit) in METRICS.items():
            instrument = getattr(meter, f"create_{kind}")(name, unit=unit)
            self._tell[name] = getattr(instrument, _TELL[kind])

    def __call__(self, name: str, value: float, attributes: Mapping[str, str]) -> None:
        self._tell[name](value, {**self._base, **attributes})
