"""Watches a stream with boto3. The thread of `run` owns all state; other threads make calls.

    watcher = StreamWatcher(client, "orders")
    watcher.exporters.append(exporter)
    watcher.run(seconds=300)             # or in a thread, until watcher.stop()

The client must try each call once, as `kpl_codec.aws.client.kinesis_client` does: retries exceed the budget.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final

from ..aws.calls import call_errors, failure_of, send, stream_for
from ..findings import Severity, at_least_as_bad
from ..shards.live_shard_map import LiveShardMap, Request, StreamUnavailable
from . import LastHour, ShardCall, Watch, WatchFinding
from .exporters import Exporter
from .watch import GIVE_UP
from .watch_metrics import Every, watch_metrics

#: Seconds between two reports of the metrics; between two routine refreshes of the shard map; at least
#: between two other refreshes; between two calls about a stream that is gone.
_METRICS_INTERVAL, REFRESH, _REFRESH_AGAIN, _GONE = 2.0, 10.0, 2.0, 5.0
#: If the clock and the monotonic time differ by so many seconds, somebody has set the clock.
_CLOCK_WAS_SET: Final = 1.0
#: Seconds after which `run` notices that it is to stop; calls under way at once; seconds for which its end
#: waits for them.
_LONGEST_PAUSE, _WORKERS, _LAST_WAIT = 0.5, 4, 1.0


class _Callers:
    """Threads that make calls. They are daemons: a call that hangs does not keep the process."""

    def __init__(self, threads: int) -> None:
        self._calls: SimpleQueue[tuple[Any, Callable[[], Any]] | None] = SimpleQueue()
        self._ended: SimpleQueue[tuple[Any, Any, Exception | None]] = SimpleQueue()
        self.under_way = 0
        self._threads = [
            threading.Thread(target=self._run, name=f"kpl-codec watch {n}", daemon=True)
            for n in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while (task := self._calls.get()) is not None:
            call, function = task
            try:
                self._ended.put((call, function(), None))
            except Exception as error:  # noqa: BLE001 - `next_ended` gives it to the thread that watches
                self._ended.put((call, None, error))

    def submit(self, call: Any, function: Callable[[], Any]) -> None:
        self.under_way += 1
        self._calls.put((call, function))

    def next_ended(self, seconds: float) -> tuple[Any, Any, Exception | None] | None:
        """A call that has ended, its result, and its exception; None if none has within ``seconds``."""
        try:
            ended = self._ended.get(timeout=seconds)
        except Empty:
            return None
        self.under_way -= 1
        return ended

    def end(self) -> None:
        # WCH-25: "A watch that is told to end MUST end within five seconds, whatever calls are under way."
        deadline = time.monotonic() + _LAST_WAIT
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))


class StreamWatcher:
    """Watches ``stream`` (a name or an ARN). Its ``exporters`` get every finding that is new, has doubled or
    is resolved; and all metrics every two seconds and at the end; both in the thread of `run`.
    ``names``: as for `LastHour`; ``watch_settings``: as for `Watch`."""

    def __init__(self, client: Any, stream: str, *, names: bool = False, **watch_settings: Any) -> None:
        self._client = client
        self._stream = stream_for(client, stream)
        self._name = self._stream.arn or self._stream.name
        self._live = LiveShardMap(
            stream, shard_filter="FROM_TRIM_HORIZON", refresh_interval=REFRESH, chance=random.random
        )
        self.watch = Watch(LastHour(self._stream.name, names=names), **watch_settings)
        self.exporters: list[Exporter] = []
        self._metrics_due = Every(_METRICS_INTERVAL)
        self._refreshed_at = float("-inf")
        self._stopped = False
        self._offset = time.time() - time.monotonic()
        #: With ``once``: the shards for which no call has succeeded.
        self.failing_shards: list[str] = []
        #: The worst severity reported so far.
        self.worst_severity: Severity | None = None

    @property
    def unavailable(self) -> StreamUnavailable | None:
        return self._live.error if self._live.known.listed_at is None else None

    def stop(self) -> None:
        """End `run` soon. May be called from any thread, and from a signal handler."""
        self._stopped = True

    def run(self, seconds: float | None = None, *, once: bool = False) -> None:
        """Watch until `stop`, or for ``seconds``; with ``once`` until every shard is up to date, or in
        ``failing_shards``. Raises StreamUnavailable if the shards cannot be listed at the start and a retry
        cannot help, or with ``once`` did not. Later failures are retried, and reported as findings."""
        began = time.monotonic()
        end = float("inf") if seconds is None else began + seconds
        self._live.refresh(began)
        callers = _Callers(_WORKERS)
        try:
            while not self._stopped and time.monotonic() < end and not (once and self._at_end(began)):
                self._refresh_if_old()
                call: ShardCall | Request | None = None
                if callers.under_way < _WORKERS:
                    call = self._live.next_request(time.monotonic()) or self.watch.next_call(self._now())
                if call is not None:
                    callers.submit(call, partial(self._send, call))
                    continue
                if (ended := callers.next_ended(self._pause(end))) is not None:
                    self._receive(*ended)
                now = self._now()
                if now >= self.watch.next_tick:
                    self._report(self.watch.tick(now))
                if self._metrics_due.due(now):
                    self._report_metrics(now)
            self._list_again(callers)
        finally:
            callers.end()
        now = self._now()
        self._report(self.watch.tick(now))
        if self.watch.last_hour.waiting_since <= now:
            self._report(self.watch.last_hour.count_waiting("the watch has ended"))
        self._report_metrics(now)

    def _list_again(self, callers: _Callers) -> None:
        """For a loss that was seen in the last moments; for a second at most."""
        end = time.monotonic() + _LAST_WAIT
        while self.watch.last_hour.waiting_since <= self._now() and (clock := time.monotonic()) < end:
            self._live.refresh(clock)
            if (request := self._live.next_request(clock)) is not None:
                callers.submit(request, partial(self._send, request))
            elif (ended := callers.next_ended(min(0.1, end - clock))) is not None:
                self._receive(*ended)

    def _at_end(self, began: float) -> bool:
        if self.unavailable is not None and time.monotonic() - began > GIVE_UP:
            raise self.unavailable
        now = self._now()
        self.failing_shards = self.watch.failing_shards(now)
        return bool(self.failing_shards) or self.watch.up_to_date(now)

    def _now(self) -> float:
        """Seconds since 1970. A clock that was set is followed."""
        clock = time.monotonic()
        set_back = self._offset - (time.time() - clock)
        if abs(set_back) > _CLOCK_WAS_SET:
            self._offset -= set_back
            self._report(self.watch.restart(clock + self._offset))
        return clock + self._offset

    def _send(self, call: ShardCall | Request) -> Any:
        if isinstance(call, Request):
            return send(self._client, call)
        if call.operation == "GetShardIterator":
            return self._client.get_shard_iterator(**self._stream.argument, **call.arguments)
        return self._client.get_records(**self._stream.argument_of_get_records, **call.arguments)

    def _receive(self, call: ShardCall | Request, response: Any, error: Exception | None) -> None:
        now, clock = self._now(), time.monotonic()
        if isinstance(call, Request):
            self.watch.call_counts.calls[call.operation] += 1
        if error is not None:
            if not isinstance(error, call_errors()):
                raise error
            failure = failure_of(error, call.operation)
            if isinstance(call, ShardCall):
                self._report(self.watch.fail(call, failure, now))
                return
            self.watch.call_counts.failed[failure.code] += 1
            self._live.fail(call, failure, clock)
            self._note_listing()
            if (permanent := self._live.permanent_error) is not None and self._live.known.listed_at is None:
                raise permanent from None
            return
        if isinstance(call, ShardCall):
            self._report(self.watch.receive(call, response, now))
            return
        refreshed = self._live.receive(call, response, clock)
        shard_map = self._live.known.shard_map if refreshed is not None else None
        if refreshed is not None and refreshed.error is None and shard_map is not None:
            listed_at = now - clock + (self._live.known.listed_at or 0.0)
            self._report(
                self.watch.set_shard_map(shard_map, now, recreated=refreshed.recreated, listed_at=listed_at)
            )
            self._report_metrics(now)  # the first metrics come before the shards are read
        self._note_listing()

    def _note_listing(self) -> None:
        if (error := self._live.error) is not None:
            self.watch.listing_error = f"{error.operation} fails with {error.code}"

    def _refresh_if_old(self) -> None:
        clock, gone = time.monotonic(), self._live.permanent_error is not None
        pause = _GONE if gone else _REFRESH_AGAIN
        if (self.watch.map_is_old or gone) and clock - self._refreshed_at > pause:
            self._refreshed_at = clock
            self._live.refresh(clock)

    def _pause(self, end: float) -> float:
        now, clock = self._now(), time.monotonic()
        timer = self._live.timer()
        wakes = (end, clock + self.watch.timer() - now, timer if timer is not None else end)
        return max(0.001, min(*wakes, clock + _LONGEST_PAUSE) - clock)

    def _report_metrics(self, now: float) -> None:
        metrics = watch_metrics(self.watch, now)
        for exporter in self.exporters:
            exporter.on_metrics(metrics, now)

    def _report(self, findings: list[WatchFinding]) -> None:
        for finding in findings:
            if self.worst_severity is None or at_least_as_bad(finding.severity, self.worst_severity):
                self.worst_severity = finding.severity
            for exporter in self.exporters:
                exporter.on_finding(finding)
