"""`kpl-codec watch`: samples a live stream and reports records that are being lost."""

from __future__ import annotations

import argparse
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING

from ..aws_errors import what_to_check
from ..cli.command_inputs import client_of
from ..cli.exit_status import CLEAN, FAILURE, FINDINGS, INTERRUPTED
from ..cli.options import Company, UsageError, above_zero, add, add_aws, add_shared
from ..cli.signals import stop_on_signals
from ..findings import at_least_as_bad
from ..rendering.labels import plural
from ..rendering.terminal import drop_output, note
from . import Limits
from .exporters import Exporter, OpenTelemetryExporter, TerminalExporter
from .shard_readers import FEWEST_CALLS
from .watch import PERIOD, SHORTEST_SLOT

if TYPE_CHECKING:
    from .stream_watcher import StreamWatcher

EPILOG = """\
SIGTERM ends the watch in order, with the exit status of what it found; after Ctrl-C the
exit status is 130.
"""


def _sampling_rate(text: str) -> float:
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not above 0 and at most 1 (or 100%)")
    return value


def configure(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--stream", use="the stream")
    reading = parser.add_argument_group("what is read")
    text = "part of each shard's time to read, such as 5%% or 0.05 (default: 5%%)"
    add(
        reading, "--sampling-rate RATE", text, Company(not_with=("--all",)), type=_sampling_rate, default=0.05
    )
    add(reading, "--all", "read every record instead of a sample")
    add_shared(reading, "--since", begin="LATEST; anything else needs --all")
    calls = Limits._field_defaults["calls"]
    text = f"most calls a second, on all shards together (default: {calls:,.0f})"
    add(reading, "--max-calls N", text, type=above_zero, default=calls)
    output = parser.add_argument_group("what is reported")
    add(output, "--json-lines", "print findings, and once a minute the metrics, as JSON, one object a line")
    add(output, "--names", "show hot partition keys themselves, not only their hash keys")
    add(output, "--otel", "offer metrics through the OpenTelemetry API")
    ending = parser.add_argument_group("when it ends")
    add(ending, "--for DURATION", "stop after this time", dest="seconds")
    text = "stop when every shard was polled; with --all, after the records present at the start"
    add(ending, "--once", text)
    add_shared(ending, "--fail-on")
    add_aws(parser)


def run(args: argparse.Namespace) -> int:
    """Returns the exit status: 0: no finding as bad as --fail-on; 1: there was one; 2: no shard could be
    read; 130: Ctrl-C; 143: SIGTERM before a shard was read."""
    if not args.stream:
        raise UsageError(reason="--stream is missing: the stream to watch")
    if args.since not in (None, "LATEST") and not args.all:
        raise UsageError(reason="--since needs --all: a sample begins now")
    if not args.all and args.sampling_rate * PERIOD < SHORTEST_SLOT:
        slot = f"a slot (--sampling-rate of {PERIOD:.0f} s) is shorter than {SHORTEST_SLOT} s"
        raise UsageError(reason=f"{slot}: give a higher rate")
    if args.max_calls < FEWEST_CALLS:
        raise UsageError(
            reason=f"--max-calls is below {FEWEST_CALLS}: iterators would expire before their use"
        )
    watcher = _watcher(args)
    with ExitStack() as stack:
        watcher.exporters += map(stack.enter_context, _exporters(args, watcher))
        signals = stack.enter_context(stop_on_signals(watcher.stop))
        try:
            watcher.run(args.seconds, once=args.once)
        except BrokenPipeError:  # the output was closed; the findings so far count
            drop_output()
    if signal.SIGINT in signals:
        return INTERRUPTED
    bad = watcher.worst_severity is not None and at_least_as_bad(watcher.worst_severity, args.fail_on)
    polled = watcher.watch.call_counts.polls > 0
    if signal.SIGTERM in signals and not polled:
        note("SIGTERM came before a shard was read")
        return 128 + signal.SIGTERM
    if polled and (bad or not watcher.failing_shards):
        return FINDINGS if bad else CLEAN
    unread = plural(len(watcher.failing_shards), "shard") if polled else f"no shard of {args.stream}"
    # One poll is GetShardIterator and GetRecords, and a budget may put seconds between them.
    why = "the time was too short (see --once)"
    for code, _ in watcher.watch.call_counts.failed.most_common(1):
        why = "; ".join(filter(None, (f"most calls fail with {code}", what_to_check(code))))
    note(f"{unread} could {'not ' if polled else ''}be read: {why}")
    return FAILURE


def _watcher(args: argparse.Namespace) -> StreamWatcher:
    from .stream_watcher import StreamWatcher

    begin = args.since.timestamp() if isinstance(args.since, datetime) else 0.0
    return StreamWatcher(
        client_of(args),
        args.stream,
        sampling_rate=1.0 if args.all else args.sampling_rate,
        since=0.0 if args.since in (None, "LATEST") else max(0.0, time.time() - begin),
        limits=Limits(calls=args.max_calls),
        names=args.names,
    )


def _exporters(args: argparse.Namespace, watcher: StreamWatcher) -> Iterator[Exporter]:
    yield TerminalExporter(watcher.watch, lambda: watcher.unavailable, json=args.json_lines)
    if args.otel:
        yield OpenTelemetryExporter(watcher.watch.last_hour.stream)
