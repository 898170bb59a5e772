"""The terminal of `kpl-codec watch`: findings as lines or JSON, and a table that renews itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..rendering.labels import plural, safe_lines
from ..rendering.terminal import json_line, line, table, write_on
from . import Watch, WatchFinding
from .exporters import Exporter
from .shard_readers import SampledShardReader
from .watch_metrics import MetricValue

if TYPE_CHECKING:
    from .stream_watcher import StreamWatcher

_STYLES = {"critical": "bold red", "error": "red", "warning": "yellow", "info": "dim"}
#: Shards that the live table has room for.
_MOST_ROWS = 20


class TerminalExporter(Exporter):
    """Prints findings as they come, first and last what is read and what was, and on a terminal a live table.
    Findings as JSON go to standard output, all else to standard error."""

    def __init__(self, watcher: StreamWatcher, *, json: bool) -> None:
        from rich.console import Console

        self._watcher, self._json = watcher, json
        self._console = Console(stderr=True)
        self._live: Any = None
        self._began = time.monotonic()
        self._cost_printed = self._failure_printed = False

    def __enter__(self) -> TerminalExporter:
        if not self._json and self._console.is_terminal:
            from rich.live import Live

            self._live = Live(console=self._console, auto_refresh=False, transient=False)
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()
        counts = self._watcher.watch.call_counts
        if not counts.polls:
            return  # the command says why
        totals = self._watcher.watch.last_hour.totals
        records = plural(totals["kinesis_records"], "Kinesis record")
        calls, seconds = sum(counts.calls.values()), time.monotonic() - self._began
        self._print(
            f"read {records} ({totals['bytes']:,} bytes) in {plural(counts.polls, 'poll')}, "
            f"{counts.skipped:,} skipped; {plural(calls, 'call')} in {seconds:.0f} s, "
            f"{sum(counts.failed.values()):,} failed"
        )
        if self._watcher.worst_severity is None:
            self._print("nothing was found in what was read")
        writers = self._watcher.watch.last_hour.writers.most_common()
        if writers:
            kinds = ", ".join(f"{writer} {count:,}" for writer, count in writers)
            self._print(f"Kinesis records by kind of writer: {kinds}")

    def on_finding(self, finding: WatchFinding) -> None:
        if self._json:
            write_on(json_line(finding.to_json()))
            return
        text = f"{time.strftime('%H:%M:%S')}  {finding.severity:<8} {finding.state:<8} {finding.text}"
        self._print(text, _STYLES[finding.severity])

    def on_metrics(self, metrics: Sequence[MetricValue], now: float) -> None:
        watch = self._watcher.watch
        if not self._cost_printed and watch.shards:
            self._cost_printed = True
            self._print(watch.cost())
        if not self._failure_printed and (error := self._watcher.unavailable) is not None:
            self._failure_printed = True
            self._print(f"the shards cannot be listed yet, this is tried again: {error}")
        if self._live is not None and watch.shards:
            self._live.update(_table(watch, now), refresh=True)

    def _print(self, text: str, style: str = "") -> None:
        from rich.text import Text

        self._console.print(Text(safe_lines(text), style=style), soft_wrap=True)


def _table(watch: Watch, now: float) -> Any:
    from rich.console import Group

    last_hour = watch.last_hour
    loss = last_hour.lost()
    title = f"{loss} user records lost in the last hour" if loss.seen else "no loss was seen"
    if not watch.call_counts.polls:
        title = "not polled yet"
    rows = []
    for shard_id, shard in watch.shards.items():
        shard_lost, load = last_hour.lost(shard_id), last_hour.load(shard_id)
        lag = last_hour.lags.get(shard_id, 0.0)
        how = f"{shard.polls} slots" if isinstance(shard, SampledShardReader) else "whole"
        if lag >= 2:
            how += f", {lag:.0f} s behind"
        rates = f"{load.user_records:,.0f}", f"{load.bytes / 1000:,.1f}"
        losses = str(shard_lost) if shard_lost.seen else "-"
        row = [shard_id, how, f"{now - shard.polled_at:.0f} s ago", *rates, losses]
        rows.append((-shard_lost.estimate, shard_id, row))
    worst = [row for *_, row in sorted(rows)[:_MOST_ROWS]]
    heads = ("shard", "read", "last poll", "user records/s", "kB/s", "lost, last hour")
    parts = [line((f"{last_hour.stream}: {title}", "bold red" if loss.seen else "bold green"))]
    if len(rows) > _MOST_ROWS:
        parts.append(line(f"the worst of {len(rows)} shards:"))
    return Group(*parts, table(heads, worst, right=(2, 3, 4, 5)))
