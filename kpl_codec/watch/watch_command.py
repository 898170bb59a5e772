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
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..aws_errors import what_to_check
from ..cli.inputs import UsageError, client_of
from ..cli.options import above_zero, add, add_aws, add_shared
from ..findings import at_least_as_bad
from ..rendering.labels import plural
from ..rendering.terminal import drop_output, note, write
from . import Limits, WatchFinding
from .exporter import Exporter
from .measures import Measure
from .metric_exporters import FORMS, EmfLines, OpenTelemetryExporter, Webhook, alarms
from .terminal_exporter import TerminalExporter
from .watch import SHORTEST_SLOT

if TYPE_CHECKING:
    from .stream_watcher import StreamWatcher


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
    try:
        url = urlsplit(text)
    except ValueError:
        url = urlsplit("")
    if url.scheme not in ("https", "http") or not url.hostname:
        raise argparse.ArgumentTypeError(f"{text!r} is not https:// or http:// and a host")
    return text


def configure(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--stream", use="the stream")
    reading = parser.add_argument_group("what is read")
    text = "of each shard's time, as 5%% or 0.05 (default: 5%%)"
    add(reading, "--share SHARE", text, type=_share, default=0.05)
    add(reading, "--period DURATION", "from one look at a shard to the next (default: 20s)", default=20.0)
    add(reading, "--all", "read everything, not a share")
    add_shared(reading, "--since", begin="latest; anything else needs --all")
    for name in ("calls", "bytes"):
        text, default = f"{name} a second on all shards", Limits._field_defaults[name]
        text = f"{text} (default: {default:,.0f})"
        add(reading, f"--max-{name} N", text, type=above_zero, default=default)
    telling = parser.add_argument_group("what is told")
    add(telling, "--json", "print a JSON object a line")
    add(telling, "--names", "show hot partition keys, not their hash keys")
    add(telling, "--webhook URL", "post findings there in Slack's format", type=_url)
    text = "show the last hour at http://ADDRESS:PORT/ (default address: 127.0.0.1)"
    add(telling, "--page [ADDRESS:]PORT", text, type=_page)
    add(telling, "--otel", "metrics through the OpenTelemetry API")
    add(telling, "--emf", "metrics as CloudWatch EMF lines, every minute")
    ending = parser.add_argument_group("when it ends")
    add(ending, "--for DURATION", "end after so long", dest="seconds")
    text = "end when every shard was looked at; with --all, when the end of every shard was reached"
    add(ending, "--once", text)
    add_shared(ending, "--fail-on")
    text = "only print alarms for the metrics, or a CloudFormation template of a Lambda function that watches"
    add(parser, "--print", text, choices=(*FORMS, "function"))
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
        outlets: list[Exporter] = []
        watcher = _watcher(args, outlets)
        outlets += [stack.enter_context(outlet) for outlet in _outlets(args, watcher)]
        with _signals(watcher.stop):
            try:
                watcher.run(args.seconds, once=args.once)
            except BrokenPipeError:  # the reader closed our output; what was found counts
                drop_output()
    bad = watcher.worst is not None and at_least_as_bad(watcher.worst, args.fail_on)
    looked_at = watcher.watch.measured.looks > 0
    if looked_at and (bad or not watcher.given_up):
        return 1 if bad else 0
    which = plural(len(watcher.given_up), "shard") if looked_at else f"no shard of {args.stream}"
    # One look is GetShardIterator and GetRecords, and a budget may put seconds between them.
    why = "the time was too short (see --once)"
    for code, _ in watcher.watch.measured.failed.most_common(1):
        why = "; ".join(filter(None, (f"most calls fail with {code}", what_to_check(code))))
    note(f"{which} could {'not ' if looked_at else ''}be looked at: {why}")
    return 2


def _watcher(args: argparse.Namespace, outlets: list[Exporter]) -> StreamWatcher:
    """The watcher that the arguments ask for, which tells ``outlets``. Raises StreamUnavailable."""
    from .stream_watcher import StreamWatcher

    def tell(finding: WatchFinding) -> None:
        for outlet in outlets:
            outlet.finding(finding)

    def measure(measured: Sequence[Measure], now: float) -> None:
        for outlet in outlets:
            outlet.measures(measured, now)

    begin = args.since.timestamp() if isinstance(args.since, datetime) else 0.0
    ago = 0.0 if args.since in (None, "LATEST") else max(0.0, time.time() - begin)
    return StreamWatcher(
        client_of(args),
        args.stream,
        share=1.0 if args.all else args.share,
        period=args.period,
        since=ago,
        limits=Limits(calls=args.max_calls, bytes=args.max_bytes),
        names=args.names,
        on_finding=tell,
        on_measures=measure,
        measure_every=2.0,
    )


def _outlets(args: argparse.Namespace, watcher: StreamWatcher) -> Iterator[Exporter]:
    name = watcher.watch.last_hour.stream
    if args.page is not None:
        from .status_page import PageServer

        yield PageServer(watcher.watch, *args.page)
    yield TerminalExporter(watcher, json=args.json)
    if args.webhook:
        yield Webhook(args.webhook)
    if args.otel:
        yield OpenTelemetryExporter(name)
    if args.emf:
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
