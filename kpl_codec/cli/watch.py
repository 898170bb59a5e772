"""`kpl-codec watch`: tells what is wrong with a stream while it happens."""

from __future__ import annotations

import argparse
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..aws_errors import what_to_check
from ..findings import at_least_as_bad
from ..outlets.alarms import FORMS, alarms
from ..outlets.outlet import Outlet
from ..pictures.labels import plural, safe_lines
from ..pictures.terminal import drop_output, json_line, note, write, write_on
from ..watch import Limits, Watch, WatchFinding
from ..watch.measures import Measure
from ..watch.reading import Sampled
from ..watch.watch import SHORTEST_SLOT
from .options import above_zero, add_aws, add_fail_on, add_json, add_since, add_stream, duration
from .source import UsageError, client_of

if TYPE_CHECKING:
    from ..aws.watch import StreamWatcher

_STYLES = {"critical": "bold red", "error": "red", "warning": "yellow", "info": "dim"}
#: Shards and findings that the live table has room for.
_MOST_ROWS = 20


def _share(text: str) -> float:
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError("a share is above 0 and at most 1 (or 100%)")
    return value


def _page(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} ends in no port: 1 to 65535")
    return address.strip("[]") or "127.0.0.1", int(port)


def _url(text: str) -> str:
    if not text.startswith(("https://", "http://")):
        raise argparse.ArgumentTypeError(f"{text!r} does not begin with https:// or http://")
    try:
        host = urlsplit(text).hostname
    except ValueError:
        host = None
    if not host:
        raise argparse.ArgumentTypeError(f"{text!r} names no host")
    return text


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_stream(parser, "the stream")
    reading = parser.add_argument_group("what is read")
    text = "of each shard's time (default: 5%%)"
    reading.add_argument("--share", type=_share, default=0.05, metavar="PERCENT", help=text)
    text = "from one look at a shard to the next (default: 20s)"
    reading.add_argument("--period", type=duration, default=20.0, metavar="DURATION", help=text)
    reading.add_argument("--all", action="store_true", help="read everything, not a share")
    add_since(reading, "latest; anything else needs --all")
    for name in ("calls", "bytes"):
        text = f"{name} a second on all shards (default: {Limits._field_defaults[name]:,.0f})"
        reading.add_argument(f"--max-{name}", type=above_zero, metavar="N", help=text)
    telling = parser.add_argument_group("what is told")
    add_json(telling, lines=True)
    telling.add_argument("--names", action="store_true", help="show hot partition keys, not their hash keys")
    telling.add_argument("--webhook", type=_url, metavar="URL", help="post findings there in Slack's format")
    text = "show the last hour at http://ADDRESS:PORT/ (default address: 127.0.0.1)"
    telling.add_argument("--page", type=_page, metavar="[ADDRESS:]PORT", help=text)
    telling.add_argument("--otel", action="store_true", help="metrics through the OpenTelemetry API")
    telling.add_argument("--emf", action="store_true", help="metrics as CloudWatch EMF lines, every minute")
    ending = parser.add_argument_group("when it ends")
    ending.add_argument("--for", dest="seconds", type=duration, metavar="DURATION", help="end after so long")
    text = "end when every shard was looked at; with --all, when the end of every shard was reached"
    ending.add_argument("--once", action="store_true", help=text)
    add_fail_on(ending)
    text = "only print alarms for the metrics, or a CloudFormation template of a Lambda function that watches"
    parser.add_argument("--print", choices=(*FORMS, "function"), help=text)
    add_aws(parser)


def run(args: argparse.Namespace) -> int:
    """0: nothing as bad as --fail-on was found; 1: something was; 2: no shard could be looked at."""
    if args.print in FORMS:
        write(alarms(args.print, args.stream or "STREAM"))
        return 0
    if args.print:
        template = files("kpl_codec.aws_lambda").joinpath("templates", "watch.yaml")
        write(template.read_text(encoding="utf-8"))
        return 0
    if not args.stream:
        raise UsageError(reason="--stream says which stream to watch")
    if args.since not in (None, "LATEST") and not args.all:
        raise UsageError(reason="--since needs --all: a sample begins now")
    if not args.all and args.share * args.period < SHORTEST_SLOT:
        raise UsageError(reason=f"--share of --period is less than {SHORTEST_SLOT} s: too short to look at")
    with ExitStack() as stack:
        outlets = list(_outlets(args, stack))
        watcher = _watcher(args, outlets)
        if args.page is not None:
            from ..outlets.page import PageServer

            outlets.append(stack.enter_context(PageServer(watcher.watch, *args.page)))
        outlets.insert(0, stack.enter_context(_Terminal(watcher, args)))
        with _signals(watcher.stop):
            try:
                watcher.run(args.seconds, once=args.once)
            except BrokenPipeError:  # the reader closed our output; what was found counts
                drop_output()
    for outlet in outlets:
        if outlet.failed:
            note(f"kpl-codec: {outlet.failed:,} {outlet.failures}")
    if not watcher.watch.measured.looks:
        codes = watcher.watch.measured.failed.most_common(1)
        # One look is GetShardIterator and GetRecords, and a budget may put seconds between them.
        why = f"most calls fail with {codes[0][0]}" if codes else "the time was too short (see --once)"
        if codes and (check := what_to_check(codes[0][0])) is not None:
            why += f"; {check}"
        note(f"kpl-codec: no shard of {args.stream} could be looked at: {why}")
        return 2
    bad = watcher.worst is not None and at_least_as_bad(watcher.worst, args.fail_on)
    if watcher.given_up and not bad:
        why = watcher.watch.measured.failed.most_common(1)[0][0]
        many = plural(len(watcher.given_up), "shard")
        note(f"kpl-codec: {many} could not be read: most calls fail with {why}")
        return 2
    return 1 if bad else 0


def _watcher(args: argparse.Namespace, outlets: list[Outlet]) -> StreamWatcher:
    """The watcher that the arguments ask for, which tells ``outlets``. Raises StreamUnavailable."""
    from ..aws.watch import StreamWatcher

    def tell(finding: WatchFinding) -> None:
        for outlet in outlets:
            outlet.finding(finding)

    def measure(measured: Sequence[Measure], now: float) -> None:
        for outlet in outlets:
            outlet.measures(measured, now)

    limits = {"calls": args.max_calls, "bytes": args.max_bytes}
    begin = args.since.timestamp() if isinstance(args.since, datetime) else 0.0
    ago = 0.0 if args.since in (None, "LATEST") else max(0.0, time.time() - begin)
    return StreamWatcher(
        client_of(args),
        args.stream,
        share=1.0 if args.all else args.share,
        period=args.period,
        since=ago,
        limits=Limits(**{name: value for name, value in limits.items() if value is not None}),
        names=args.names,
        on_finding=tell,
        on_measures=measure,
        measure_every=2.0,
    )


def _outlets(args: argparse.Namespace, stack: ExitStack) -> Iterator[Outlet]:
    """What the arguments ask for."""
    name = args.stream.rpartition("/")[2]
    if args.webhook:
        from ..outlets.webhook import Webhook

        yield stack.enter_context(Webhook(args.webhook))
    if args.otel:
        from ..outlets.opentelemetry import OpenTelemetryOutlet

        yield OpenTelemetryOutlet(name)
    if args.emf:
        from ..outlets.emf import EmfLines

        yield EmfLines(name)


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and Ctrl-C end the watch in order, with its exit status."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Terminal(Outlet):
    """Prints findings as they come, the cost first and last, and on a terminal a live table."""

    def __init__(self, watcher: StreamWatcher, args: argparse.Namespace) -> None:
        from rich.console import Console

        self._watcher, self._json = watcher, args.json
        self._stream = args.stream
        self._console = Console(stderr=True)
        self._live: Any = None
        self._began = time.monotonic()
        self._told_cost = self._told_failure = False

    def __enter__(self) -> _Terminal:
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
            f"{seconds:.0f} s: {made:,} calls ({made / seconds:.2f} a second: {calls or 'none'}), "
            f"{sum(measured.failed.values()):,} failed; {measured.looks:,} looks, {measured.missed:,} "
            f"missed; {read['kinesis_records']:,} Kinesis records and {read['bytes']:,} bytes read"
        )
        writers = self._watcher.watch.last_hour.writers.most_common()
        if writers:
            kinds = ", ".join(f"{writer} {count:,}" for writer, count in writers)
            self._say(f"Kinesis records by kind of writer: {kinds}")

    def finding(self, finding: WatchFinding) -> None:
        """Tell of one finding."""
        if self._json:
            write_on(json_line(finding.to_json()))
            return
        text = f"{time.strftime('%H:%M:%S')}  {finding.severity:<8} {finding.state:<5} {finding.text}"
        self._say(text, _STYLES[finding.severity])

    def measures(self, measured: Sequence[Measure], now: float) -> None:
        """Tell of the cost once it is known; renew the table."""
        from ..aws.watch import REFRESH

        watch = self._watcher.watch
        if not self._told_cost and watch.shards:
            self._told_cost = True
            self._say(f"{watch.cost()}; and the list of shards every {REFRESH:.0f} s (2 calls)")
        if not self._told_failure and (error := self._watcher.unavailable) is not None:
            self._told_failure = True
            self._say(f"the shards cannot be listed yet, this is tried again: {error}")
        if self._live is not None and watch.shards:
            self._live.update(_table(self._stream, watch, now), refresh=True)

    def _say(self, text: str, style: str = "") -> None:
        from rich.text import Text

        self._console.print(Text(safe_lines(text), style=style), soft_wrap=True)


def _table(stream: str, watch: Watch, now: float) -> Any:
    """The shards and their losses, worst first, as many as have room."""
    from rich.table import Table

    last_hour = watch.last_hour
    lost = last_hour.lost()
    title = f"{lost} user records lost in the last hour" if lost.seen else "nothing lost was seen"
    if not watch.measured.looks:
        title = "not looked at yet"
    table = Table(title=f"{stream}: {title}", title_style="bold red" if lost.seen else "bold green")
    for head in ("shard", "read"):
        table.add_column(head)
    for head in ("last look", "user records/s", "kB/s", "lost, last hour"):
        table.add_column(head, justify="right")
    rows = []
    for shard_id, shard in watch.shards.items():
        here = last_hour.lost(shard_id)
        load = last_hour.load(shard_id)
        lag = last_hour.lags.get(shard_id, 0.0)
        how = f"{shard.looks} slots" if isinstance(shard, Sampled) else "whole"
        if lag >= 2:
            how += f", {lag:.0f} s behind"
        rates = f"{load.user_records:,.0f}", f"{load.bytes / 1000:,.1f}"
        seen = str(here) if here.seen else "-"
        row = [shard_id, how, f"{now - shard.looked_at:.0f} s", *rates, seen]
        rows.append((-here.estimate, shard_id, row))
    for estimate, _, row in sorted(rows)[:_MOST_ROWS]:
        table.add_row(*row, style="red" if estimate else "")
    if len(rows) > _MOST_ROWS:
        table.caption = f"and {len(rows) - _MOST_ROWS} shards that lose less"
    return table
