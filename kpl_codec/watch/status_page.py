"""The last hour of a watch as a page that renews itself. It shows the records that were read, a sample; its
banner also has the estimate of lost user records."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler
from typing import Final

from .. import __version__
from ..findings.counters import Tally
from ..serving import ServerThread
from ..validate.report.build import build_report
from ..validate.report.model import About, Report
from ..validate.report.report_page import render_page
from . import Watch
from .checkpoint import MINUTE
from .exporter import Exporter
from .measures import Measure

#: Seconds after which a browser reloads.
RENEW: Final = 10


def report_of(watch: Watch, now: float) -> Report:
    """The report on the last hour of ``watch``. Call it in the thread that owns the watch."""
    last_hour = watch.last_hour
    tally = Tally.merged(last_hour.tallies.values())
    # A minute that is not over would look like traffic that stops.
    tally.cells = {key: cell for key, cell in tally.cells.items() if key[0] + MINUTE <= now}
    for finding in last_hour.findings():
        seen = finding.lost.seen if finding.lost is not None else None
        aggregates = finding.kinesis_records or None
        tally.add_finding(
            replace(finding, user_records=seen, dropped=seen, aggregates=aggregates, detail=finding.text)
        )
    lost_all = last_hour.lost()
    what = "counts are of what was read" if lost_all.seen else "no loss was seen"
    share = watch.share
    read = f"{share:.0%} of each shard's time" if share < 1 else "everything"
    return build_report(
        tally,
        last_hour.shard_map,
        About(
            datetime.fromtimestamp(int(now), timezone.utc),
            __version__,
            title="Watch of the last hour",
            stream_name=last_hour.stream,
            source=f"read: {read}; {what}",
            share=share,
            estimated_loss=str(lost_all) if lost_all.seen and share < 1 else None,
        ),
    )


class PageServer(ServerThread, Exporter):
    """A context manager. ``port`` 0 takes a free one; ``port`` then says which."""

    def __init__(self, watch: Watch, address: str, port: int) -> None:
        self._watch = watch
        self._page = b""
        self._made_at = float("-inf")
        #: Set unless somebody waits for a newer page.
        self._made = threading.Event()
        # WCH-27: "The page MUST be served to this machine alone unless another address is asked for, and MUST
        # load nothing from anywhere."
        super().__init__(type("Handler", (_PageHandler,), {"owner": self}), address, port)

    def measures(self, measured: Sequence[Measure], now: float) -> None:
        if not self._made.is_set():
            self._page = render_page(report_of(self._watch, now)).encode()
            self._made_at = time.monotonic()
            self._made.set()

    def ask(self) -> bytes:
        if time.monotonic() - self._made_at >= RENEW / 2:
            self._made.clear()
        self._made.wait(RENEW)
        return self._page


class _PageHandler(BaseHTTPRequestHandler):
    owner: PageServer

    def do_GET(self) -> None:
        if self.path != "/":
            self.send_error(404)
            return
        page = self.owner.ask()
        self.send_response(200 if page else 503)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.send_header("Cache-Control", "no-store")
        # Understood by every browser, and no script is needed for it.
        self.send_header("Refresh", str(RENEW))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None:
        """No access log."""
