"""The exporters of a watch: they send findings to the terminal, findings and metrics as JSON to standard
output, metrics to OpenTelemetry (spec/10-watch.md, 10.4)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

from ..base.lazy import require_extras
from ..rendering.labels import plural, safe_lines
from ..rendering.terminal import json_line, line, table, write_on
from . import Watch, WatchFinding
from .watch_metrics import METRICS, Every, MetricValue, metrics_to_json

#: rich's style of each severity.
_STYLES: Final = {"critical": "bold red", "error": "red", "warning": "yellow", "info": "dim"}
#: Seconds between two lines of metrics.
_METRICS_EVERY: Final = 60.0
#: Shards that the table on the terminal has room for; columns before the text of a finding.
_MOST_ROWS: Final = 20
_TEXT: Final = 28


class Exporter(AbstractContextManager["Exporter"]):
    """Gets every finding, and all metrics every two seconds, in the thread that watches. Leaving its context
    ends it."""

    def __exit__(self, *exception: object) -> None:
        pass

    def on_finding(self, finding: WatchFinding) -> None:
        """A finding that is new, has grown, or is resolved."""

    def on_metrics(self, metrics: Sequence[MetricValue], now: float) -> None:
        """All metrics, at ``now``."""


class OpenTelemetryExporter(Exporter):
    """Offers the metrics through the OpenTelemetry API (the ``otel`` extra), to an SDK. ``meter``: by default
    that of the global provider. Prometheus names: kpl_watch_lost_user_records, kpl_watch_polls_total ..."""

    def __init__(self, stream: str, meter: Any = None) -> None:
        with require_extras("kpl_codec.watch.exporters.OpenTelemetryExporter"):
            from opentelemetry import metrics

        self._stream = stream
        self._metrics: Sequence[MetricValue] = ()
        meter = meter or metrics.get_meter("kpl_codec.watch")
        for name, metric in METRICS.items():
            create = getattr(meter, f"create_observable_{metric.kind}")
            # Without a unit: Prometheus's names would end in it, a second time or wrongly.
            create(f"kpl_watch.{name}", [partial(self._observe, name)], description=metric.meaning)

    def _observe(self, name: str, options: object) -> Iterable[Any]:
        from opentelemetry.metrics import Observation

        for metric in self._metrics:
            if metric.name == name:
                yield Observation(metric.value, {"stream": self._stream, **metric.attributes})

    def on_metrics(self, metrics: Sequence[MetricValue], now: float) -> None:
        self._metrics = metrics


class TerminalExporter(Exporter):
    """Writes findings to standard error, or as JSON to standard output, there with the metrics, a line a
    minute. To standard error also what the watch reads, what it has read, and on a terminal a table of the
    shards. ``failure``: why the shards cannot be listed."""

    def __init__(self, watch: Watch, failure: Callable[[], object], *, json: bool) -> None:
        from rich.console import Console

        self._watch, self._failure, self._json = watch, failure, json
        self._console = Console(stderr=True)
        self._live: Any = None
        self._began = time.monotonic()
        self._minute, self._is_first_minute = Every(_METRICS_EVERY), True
        self._cost_printed = self._failure_printed = self._found = False

    def __enter__(self) -> TerminalExporter:
        if not self._json and self._console.is_terminal:
            from rich.live import Live

            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()
        counts, last_hour = self._watch.call_counts, self._watch.last_hour
        if not counts.polls:
            return  # the command itself prints why
        records = plural(last_hour.totals["kinesis_records"], "Kinesis record")
        size = plural(last_hour.totals["bytes"], "byte")
        calls = plural(sum(counts.calls.values()), "call")
        self._print(
            f"read {records} ({size}) in {plural(counts.polls, 'poll')}, {counts.skipped:,} skipped; "
            f"{calls} in {time.monotonic() - self._began:.0f} s, {sum(counts.failed.values()):,} failed"
        )
        if not self._found:
            self._print("nothing was found in what was read")
        elif (lost := last_hour.lost()).seen:
            self._print(f"lost at the KCL in the last hour: {lost.user_records}")
        if last_hour.writers:
            kinds = ", ".join(f"{writer} {count:,}" for writer, count in last_hour.writers.most_common())
            self._print(f"Kinesis records by kind of writer: {kinds}")

    def on_finding(self, finding: WatchFinding) -> None:
        self._found = True
        if self._json:
            write_on(json_line(finding.to_json()))
            return
        text = f"{time.strftime('%H:%M:%S')}  {finding.severity:<8} {finding.state:<8} {finding.text}"
        self._print(text, _STYLES[finding.severity], hang=_TEXT)

    def on_metrics(self, metrics: Sequence[MetricValue], now: float) -> None:
        if not self._cost_printed and self._watch.shards:
            self._cost_printed = True
            self._print(self._watch.cost())
        if not self._failure_printed and (error := self._failure()) is not None:
            self._failure_printed = True
            self._print(f"the shards cannot be listed yet, this is tried again: {error}")
        # WCH-51: "With `--json-lines` the metrics MUST be printed once a minute, of a clean stream, too:
        # without them a watch that found nothing and one that nobody runs print the same."
        if self._json and self._minute.due(now):
            values = {"stream": self._watch.last_hour.stream, "metrics": metrics_to_json(metrics)}
            if not self._is_first_minute:
                write_on(json_line(values))
            self._is_first_minute = False
        if self._live is not None and self._watch.shards:
            self._live.update(_shard_table(self._watch, now), refresh=True)

    def _print(self, text: str, style: str = "", hang: int = 0) -> None:
        """``text`` folded at the width of the terminal; in a pipe, as of a service's log, it is one line."""
        for row in safe_lines(text).split("\n"):
            folded = line((row, style), hang=hang, fold=self._console.is_terminal)
            self._console.print(folded, soft_wrap=True)


def _shard_table(watch: Watch, now: float) -> Any:
    from rich.console import Group

    last_hour = watch.last_hour
    lost = last_hour.lost()
    title = "no loss was seen" if watch.call_counts.polls else "not polled yet"
    if lost.seen:
        title = f"{lost.user_records} lost in the last hour"
    losses = {shard_id: last_hour.lost(shard_id) for shard_id in watch.shards}
    worst = []
    for shard_id in sorted(losses, key=lambda shard_id: (-losses[shard_id].estimate, shard_id))[:_MOST_ROWS]:
        shard, load = watch.shards[shard_id], last_hour.load(shard_id)
        read = plural(shard.polls, "slot") if shard.window is not None else "whole"
        if (lag := last_hour.lags.get(shard_id, 0.0)) >= 2:
            read += f", {lag:.0f} s behind"
        rates = f"{load.user_records:,.0f}", f"{load.bytes / 1000:,.1f}"
        loss = str(losses[shard_id]) if losses[shard_id].seen else "-"
        polled = f"{now - shard.polled_at:.0f} s ago" if shard.was_polled else "not yet"
        worst.append([shard_id, read, polled, *rates, loss])
    heads = ("shard", "read", "last poll", "user records/s", "kB/s", "lost, last hour")
    parts = [line((f"{last_hour.stream}: {title}", "bold red" if lost.seen else "bold green"))]
    if len(losses) > _MOST_ROWS:
        parts.append(line(f"the worst of {len(losses)} shards:"))
    return Group(*parts, table(heads, worst, right=(2, 3, 4, 5)))
