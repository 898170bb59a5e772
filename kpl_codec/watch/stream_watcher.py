"""Watches a stream with boto3. The thread of `run` owns all state; other threads make calls.

    watcher = StreamWatcher(client, "orders")
    watcher.exporters.append(exporter)
    watcher.run(seconds=300)             # or in a thread, until watcher.stop()

The client must try each call once, as `kpl_codec.aws.client.kinesis_client` does: retries exceed the budget.
"""

from __future__ import annotations

import random
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, Final

from ..aws.calls import call_errors, failure_of, send, stream_for
from ..aws.channels import channel_findings, find_subscribers
from ..findings import Severity, at_least_as_bad
from ..shards.live_shard_map import LiveShardMap, MapChanged, Request, StreamUnavailable
from . import LastHour, ShardCall, Watch, WatchFinding
from .exporters import Exporter
from .watch import GIVE_UP
from .watch_metrics import Every, watch_metrics

#: Seconds between two reports of the metrics; between two routine refreshes of the shard map; at least
#: between two other refreshes; between two calls about a stream that is gone.
_METRICS_INTERVAL, REFRESH, _REFRESH_AGAIN, _GONE = 2.0, 10.0, 2.0, 5.0
#: If the clock and the monotonic time differ by so many seconds, somebody has set the clock.
_CLOCK_WAS_SET: Final = 1.0
#: Seconds after which `run` notices that it is to stop; calls under way at once.
_LONGEST_PAUSE, _WORKERS = 0.5, 4


class StreamWatcher:
    """Watches ``stream`` (a name or an ARN). Its ``exporters`` get every finding that is new, has doubled or
    is resolved; and all metrics every two seconds and at the end; both in the thread of `run`.
    ``names``: as for `LastHour`; ``watch_settings``: as for `Watch`."""

    def __init__(self, client: Any, stream: str, *, names: bool = False, **watch_settings: Any) -> None:
        self._client = client
        self._stream = stream_for(client, stream)
        self._live = LiveShardMap(
            stream, shard_filter="FROM_TRIM_HORIZON", refresh_interval=REFRESH, chance=random.random
        )
        self.watch = Watch(LastHour(self._stream.name, names=names), **watch_settings)
        self.exporters: list[Exporter] = []
        self._metrics_due = Every(_METRICS_INTERVAL)
        self._refreshed_at = float("-inf")
        self._stopped = False
        self._offset = time.time() - time.monotonic()
        self._channels_reported = False
        #: With ``once``: the shards for which no call has succeeded.
        self.failing_shards: list[str] = []
        #: The worst severity reported so far.
        self.worst_severity: Severity | None = None

    @property
    def unavailable(self) -> StreamUnavailable | None:
        return self._live.error if self._live.shard_map is None else None

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
        calls: dict[Future[Any], ShardCall | Request] = {}
        with ThreadPoolExecutor(_WORKERS, "kpl-codec watch") as pool:
            while not self._stopped and time.monotonic() < end and not (once and self._at_end(began)):
                self._refresh_if_old()
                call: ShardCall | Request | None = None
                if len(calls) < _WORKERS:
                    call = self._live.next_request(time.monotonic()) or self.watch.next_call(self._now())
                if call is not None:
                    calls[pool.submit(self._send, call)] = call
                    continue
                pause = self._pause(end)
                if not calls:
                    time.sleep(pause)
                for future in wait(calls, pause, FIRST_COMPLETED).done:
                    self._receive(calls.pop(future), future)
                now = self._now()
                if now >= self.watch.next_tick:
                    self._report(self.watch.tick(now))
                if self._metrics_due.due(now):
                    self._report_metrics(now)
        now = self._now()
        self._report(self.watch.tick(now))
        self._report_metrics(now)

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

    def _receive(self, call: ShardCall | Request, future: Future[Any]) -> None:
        now, clock = self._now(), time.monotonic()
        if isinstance(call, Request):
            self.watch.call_counts.calls[call.operation] += 1
        try:
            response = future.result()
        except call_errors() as error:
            failure = failure_of(error, call.operation)
            if isinstance(call, ShardCall):
                self._report(self.watch.fail(call, failure, now))
                return
            self.watch.call_counts.failed[failure.code] += 1
            self._live.fail(call, failure, clock)
            self._note_listing()
            if (permanent := self._live.permanent_error) is not None and self._live.shard_map is None:
                raise permanent from None
            return
        if isinstance(call, ShardCall):
            self._report(self.watch.receive(call, response, now))
            self._report_channels(now)
            return
        event = self._live.receive(call, response, clock)
        if isinstance(event, MapChanged) and self._live.shard_map is not None:
            self._report(self.watch.set_shard_map(self._live.shard_map, now, recreated=event.recreated))
            self._report_metrics(now)  # the first metrics come before the shards are read
        self._note_listing()

    def _note_listing(self) -> None:
        if (error := self._live.error) is not None:
            self.watch.listing_error = f"{error.operation} fails with {error.code}"

    def _report_channels(self, now: float) -> None:
        """Report channels that cannot read aggregates: once, when aggregated records were seen."""
        writers = self.watch.last_hour.writers
        aggregated = sum(writers.values()) - writers["plain"]
        if self._channels_reported or not aggregated:
            return
        self._channels_reported = True
        subscribers = find_subscribers(self._client, self._stream.arn or self._stream.name)
        finding = partial(WatchFinding, stream=self._stream.name, state="open", first_seen=now, last_seen=now)
        for one in channel_findings(subscribers, aggregated):
            self._report([finding(one.kind, aggregates=one.aggregates, detail=one.detail)])

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
