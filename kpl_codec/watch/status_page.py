"""Serves the last hour of a watch as an HTML page that reloads itself. The page counts the records that were
read, which may be a sample; its banner also has the estimate of the lost user records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler
from typing import Final

from .. import __version__
from ..captures.capture_rows import CaptureRows
from ..findings.counters import Tally
from ..format.records import KinesisRecord
from ..serving import ServerThread
from ..shards.shard_map import ShardMap
from ..validate.check import check
from ..validate.report.build import build_report
from ..validate.report.model import About, Report
from ..validate.report.report_page import render_page
from ..validate.report.scan import Scan
from . import Watch
from .exporters import Exporter
from .sliding_window import MINUTE
from .watch_metrics import Every, MetricValue

#: Seconds after which a browser reloads.
RENEW: Final = 10


def tally_of(records: list[KinesisRecord], shard_map: ShardMap) -> Tally:
    # WCH-39: "The page MUST count the records that were read exactly as `validate` counts them."
    rows, scan = CaptureRows(None), Scan(shard_map)
    scan.tally = Tally(MINUTE)
    for record in records:
        rows.record(record, None)
    for batch in check(rows.take(), shard_map, scan.report, whole=False):
        scan.process(batch)
    scan.finish()
    for kinds in (scan.tally.kinds, scan.tally.examples):
        kinds.clear()  # the findings are those of the watch
    return scan.tally


def report_of(watch: Watch, now: float) -> Report:
    """The report on the last hour of ``watch``, whose records `tally_of` has counted. Call it in the thread
    that watches."""
    last_hour = watch.last_hour
    tally = Tally.merge_all(last_hour.tallies.values())
    # A minute that is not over would look like traffic that stops.
    tally.cells = {key: cell for key, cell in tally.cells.items() if key[0] + MINUTE <= now}
    for finding in last_hour.findings():
        dropped = finding.lost.seen if finding.lost is not None else None
        counted = replace(finding, user_records=dropped, dropped=dropped, detail=finding.evidence)
        tally.add_finding(replace(counted, aggregates=finding.kinesis_records or None))
    lost, rate = last_hour.lost(), watch.sampling_rate
    note = (
        "counts are of what was read, and a repair's copies are not looked for"
        if lost.seen
        else "no loss was seen"
    )
    read = f"{rate:.0%} of each shard's time" if rate < 1 else "everything"
    return build_report(
        tally,
        last_hour.shard_map,
        About(
            datetime.fromtimestamp(int(now), timezone.utc),
            __version__,
            title="Watch of the last hour",
            stream_name=last_hour.stream,
            source=f"read: {read}; {note}",
            sampling_rate=rate,
            hot_keys=f"`kpl-codec watch --stream {last_hour.stream} --names` names it",
            estimated_loss=lost.user_records if lost.seen and rate < 1 else None,
        ),
    )


class PageServer(ServerThread, Exporter):
    """Serves the page of ``watch`` while its context lasts. ``port``: 0 for a free one, see `port`."""

    def __init__(self, watch: Watch, address: str, port: int) -> None:
        self._watch, watch.last_hour.tally_of = watch, tally_of
        self._due = Every(RENEW / 2)
        self.page = b""
        # WCH-27: "The page MUST be served to this machine alone unless another address is asked for, and MUST
        # load nothing from anywhere."
        super().__init__(type("Handler", (_PageHandler,), {"owner": self}), address, port)

    def on_metrics(self, metrics: Sequence[MetricValue], now: float) -> None:
        if self._due.due(now):
            self.page = render_page(report_of(self._watch, now)).encode()


class _PageHandler(BaseHTTPRequestHandler):
    owner: PageServer

    def do_GET(self) -> None:
        if self.path != "/":
            self.send_error(404)
            return
        page = self.owner.page
        self.send_response(200 if page else 503)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.send_header("Cache-Control", "no-store")
        # Every browser understands this header, and it needs no script.
        self.send_header("Refresh", str(RENEW))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None:
        """No access log."""
