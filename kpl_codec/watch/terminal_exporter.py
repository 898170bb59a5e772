"""The terminal of `kpl-codec watch`: findings as lines or JSON, and a table that renews itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..rendering.labels import plural, safe_lines
from ..rendering.terminal import json_line, line, table, write_on
from . import Watch, WatchFinding
from .exporter import Exporter
from .measures import Measure
from .shard_readers import SampledShardReader

if TYPE_CHECKING:
    from .stream_watcher import StreamWatcher

_STYLES = {"critical": "bold red", "error": "red", "warning": "yellow", "info": "dim"}
#: Shards that the live table has room for.
_MOST_ROWS = 20


class TerminalExporter(Exporter):
    """Prints findings as they come, the cost first and last, and on a terminal a live table."""

    def __init__(self, watcher: StreamWatcher, *, json: bool) -> None:
        from rich.console import Console

        self._watcher, self._json = watcher, json
        self._console = Console(stderr=True)
        self._live: Any = None
        self._began = time.monotonic()
        self._told_cost = self._told_failure = False

    def __enter__(self) -> TerminalExporter:
        if not self._json and self._console.is_terminal:
            from rich.live import Live

            self._live = Live(console=self._console, auto_refresh=False, transient=False)
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()
        seconds = max(0.001, time.monotonic() - self._began)
        measured = self._watcher.watch.measured
        made = sum(measured.calls.values())
        calls = ", ".join(f"{count:,} {name}" for name, count in sorted(measured.calls.items()))
        read = self._watcher.watch.last_hour.totals
        if measured.looks and self._watcher.worst is None:
            self._say("nothing was found in what was read")
        self._say(
            f"{seconds:.0f} s: {plural(made, 'call')} ({made / seconds:.2f} a second: {calls or 'none'}), "
            f"{sum(measured.failed.values()):,} failed; {plural(measured.looks, 'look')}, "
            f"{measured.missed:,} missed; "
            f"{read['kinesis_records']:,} Kinesis records and {read['bytes']:,} bytes read"
        )
        writers = self._watcher.watch.last_hour.writers.most_common()
        if writers:
            kinds = ", ".join(f"{writer} {count:,}" for writer, count in writers)
            self._say(f"Kinesis records by kind of writer: {kinds}")

    def finding(self, finding: WatchFinding) -> None:
        if self._json:
            write_on(json_line(finding.to_json()))
            return
        text = f"{time.strftime('%H:%M:%S')}  {finding.severity:<8} {finding.state:<5} {finding.text}"
        self._say(text, _STYLES[finding.severity])

    def measures(self, measured: Sequence[Measure], now: float) -> None:
        from .stream_watcher import REFRESH

        watch = self._watcher.watch
        if not self._told_cost and watch.shards:
            self._told_cost = True
            self._say(f"{watch.cost()}; and the list of shards every {REFRESH:.0f} s (2 calls)")
        if not self._told_failure and (error := self._watcher.unavailable) is not None:
            self._told_failure = True
            self._say(f"the shards cannot be listed yet, this is tried again: {error}")
        if self._live is not None and watch.shards:
            self._live.update(_table(watch, now), refresh=True)

    def _say(self, text: str, style: str = "") -> None:
        from rich.text import Text

        self._console.print(Text(safe_lines(text), style=style), soft_wrap=True)


def _table(watch: Watch, now: float) -> Any:
    from rich.console import Group

    last_hour = watch.last_hour
    lost = last_hour.lost()
    title = f"{lost} user records lost in the last hour" if lost.seen else "nothing lost was seen"
    if not watch.measured.looks:
        title = "not looked at yet"
    rows = []
    for shard_id, shard in watch.shards.items():
        here, load = last_hour.lost(shard_id), last_hour.load(shard_id)
        lag = last_hour.lags.get(shard_id, 0.0)
        how = f"{shard.looks} slots" if isinstance(shard, SampledShardReader) else "whole"
        if lag >= 2:
            how += f", {lag:.0f} s behind"
        rates = f"{load.user_records:,.0f}", f"{load.bytes / 1000:,.1f}"
        seen = str(here) if here.seen else "-"
        row = [shard_id, how, f"{now - shard.looked_at:.0f} s", *rates, seen]
        rows.append((-here.estimate, shard_id, row))
    shown = [row for *_, row in sorted(rows)[:_MOST_ROWS]]
    heads = ("shard", "read", "last look", "user records/s", "kB/s", "lost, last hour")
    parts = [line((f"{last_hour.stream}: {title}", "bold red" if lost.seen else "bold green"))]
    if len(rows) > _MOST_ROWS:
        parts.append(line(f"the worst of {len(rows)} shards:"))
    return Group(*parts, table(heads, shown, right=(2, 3, 4, 5)))
