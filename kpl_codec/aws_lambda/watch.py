"""The watch in Lambda: one line in an existing consumer, or its own function on a schedule.

In a consumer it makes no reads: it checks the events of the function.

    maps = ShardMapCache(boto3.client("kinesis", config=quick))         # see `shard_map_cache`
    watch = ConsumerWatch(maps)                                      # outside the handler

    def lambda_handler(event, context):
        return process_user_records(event, handle, watch=watch)

As a function of its own, `lambda_handler` looks at one slot of every shard in each run. ``kpl-codec watch
--print function`` prints a CloudFormation template with its role.

    KPL_STATE_TABLE   between two runs
    not set           Nothing is kept; a hash of the time selects the slot. Therefore a finding is reported in
                      every run that sees it, and never as over; an estimate is for one period; a new shard is
                      recognized only by its age; a period that no run looked at is not counted; and a stream
                      that is deleted and created again between two runs is not noticed.
    a DynamoDB table  The table keeps open findings, the last hour's minutes and how far each shard was read;
                      none of the above applies. A duplicate is still found only within one run, and a hot key
                      only if one run sees enough user records.

Both write findings and metrics (CloudWatch's embedded metric format) as JSON lines to the function's log.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from ..adapters.reading import captured
from ..errors import CaptureError
from ..format.records import KinesisRecord
from ..watch import LastHour, Look, Watch, WatchFinding
from ..watch.measures import Emf, Every, Measure, measures_of_records
from .batch import log_exception
from .events import ShardMaps, stream_of

__all__ = ["ConsumerWatch", "lambda_handler"]

#: How many streams one function may read.
_MOST_STREAMS = 20
#: Milliseconds that a scheduled run leaves unused.
_RESERVE = 5_000


def _write(line: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")


class ConsumerWatch:
    """Checks the events of a consumer. Create it outside the handler, because it keeps the last hour.

    ``shard_map``: gives the shard maps; without it only broken and late records are found. ``late``: seconds
    from arrival to now above which records are late. ``names``: tell hot partition keys, not their hash keys.
    ``every``: seconds between two writings of metrics.
    ``write``: takes findings and metrics, each a JSON object. Not thread-safe.
    """

    def __init__(
        self,
        shard_map: ShardMaps | None = None,
        *,
        late: float | None = 60.0,
        names: bool = False,
        every: float = 60.0,
        write: Callable[[Mapping[str, Any]], None] = _write,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._maps, self._late, self._names, self._every = shard_map, late, names, Every(every)
        self._write, self._clock = write, clock
        self._streams: dict[str, tuple[LastHour, Emf]] = {}
        self._events = 0

    def see(self, event: Mapping[str, Any]) -> None:
        """Check the Kinesis records of a Lambda event. Never raises."""
        # WCH-28: "A watch in a consumer MUST NOT change the function's answer, and MUST NOT fail it,
        # whatever the event holds."
        try:
            self._see(event)
        except Exception:  # noqa: BLE001 - the consumer must go on
            log_exception("the watch could not look at an event")

    def _see(self, event: Mapping[str, Any]) -> None:
        now = self._clock()
        self._events += 1
        by_shard: dict[tuple[str, str | None], list[KinesisRecord]] = {}
        for raw, item in zip(event["Records"], captured(event, shape="lambda"), strict=True):
            if not isinstance(item, CaptureError):
                by_shard.setdefault((stream_of(raw), item.shard_id), []).append(item)
        for (arn, shard_id), records in by_shard.items():
            last_hour, _ = self._of(arn)
            shard_map = self._maps.shard_map(arn, shard_id) if self._maps is not None else None
            if shard_map is not None:
                last_hour.use(shard_map, now)
            # Lambda gives a batch again after a failure: that is no duplicate.
            self._tell(last_hour.observe(Look(shard_id, self._events, rereads=True), records, now))
        if self._every.due(now):
            for last_hour, emf in self._streams.values():
                self._tell(last_hour.tick(now))
                for line in emf.lines(measures_of_records(last_hour), now):
                    self._write(line)

    def _of(self, arn: str) -> tuple[LastHour, Emf]:
        if arn not in self._streams and len(self._streams) >= _MOST_STREAMS:
            self._streams.pop(next(iter(self._streams)))
        name = arn.rpartition("/")[2] or "unknown"
        return self._streams.setdefault(arn, (LastHour(name, late=self._late, names=self._names), Emf(name)))

    def _tell(self, findings: list[WatchFinding]) -> None:
        for finding in findings:
            self._write(finding.to_json())


@lru_cache(maxsize=1)
def _client() -> Any:
    from ..aws.client import kinesis_client

    return kinesis_client(endpoint_url=os.environ.get("KPL_ENDPOINT_URL"))


@lru_cache(maxsize=1)
def _dynamodb() -> Any:
    from ..aws.watch_state import dynamodb_client

    return dynamodb_client()


class _State:
    """Loads and saves what is kept, and never raises. ``outcome``: "off", "new", "resumed", or what failed,
    for example "not loaded: AccessDeniedException"."""

    def __init__(self, table: str | None, stream: str) -> None:
        self._table: Any = None
        self.outcome = "off"
        if table:
            from ..aws.watch_state import StateTable

            self._table = StateTable(_dynamodb(), table, stream)

    def load(self, watch: Watch) -> None:
        if self._table is None:
            return
        # WCH-30: "A state that cannot be loaded or saved MUST NOT fail a run, and the run's answer MUST say
        # so."
        try:
            kept = self._table.load(time.time())
        except Exception as error:  # noqa: BLE001 - whatever it is, the stream is looked at
            self._failed("not loaded", error)
            return
        self.outcome = "new" if kept is None else "resumed"
        if kept is not None:
            watch.resume(kept)

    def save(self, watch: Watch, now: float) -> None:
        if self._table is None:
            return
        try:
            self._table.save(watch.keep(now))
        except Exception as error:  # noqa: BLE001
            self._failed("not saved", error)

    def _failed(self, what: str, error: Exception) -> None:
        response = getattr(error, "response", {})
        code = response.get("Error", {}).get("Code") or type(error).__name__
        self.outcome = f"{what}: {code}"
        log_exception(f"the watch's state was {what}")


def _number(name: str, default: float) -> float:
    """A setting of the function. Raises ValueError."""
    text = os.environ.get(name)
    try:
        value = default if text is None else float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} is {text!r}: it must be a number above 0")
    return value


def lambda_handler(event: Any, context: Any) -> dict[str, Any]:
    """One look at every open shard of the stream. For a schedule of one run in each period.

    Environment: KPL_STREAM (a name or an ARN), KPL_SHARE (0.05), KPL_PERIOD (60, seconds: that of the
    schedule), KPL_MAX_CALLS (20, a second), KPL_NAMES ("yes": tell hot partition keys, not their hash keys),
    KPL_STATE_TABLE (see the module). Returns what was done; writes findings and metrics to the log. Raises
    StreamUnavailable if the stream's shards cannot be listed, ValueError for a setting that makes no sense.
    """
    from ..aws.watch import StreamWatcher
    from ..watch import Limits

    stream = os.environ["KPL_STREAM"]
    share, period, calls = _number("KPL_SHARE", 0.05), _number("KPL_PERIOD", 60), _number("KPL_MAX_CALLS", 20)
    last: list[Measure] = []

    def keep(measured: list[Measure], now: float) -> None:
        last[:] = measured

    watcher = StreamWatcher(
        _client(),
        stream,
        on_finding=lambda finding: _write(finding.to_json()),
        on_measures=keep,
        share=share,
        period=period,
        since=period if share >= 1 else 0.0,
        names=os.environ.get("KPL_NAMES") == "yes",
        limits=Limits(calls=calls),
    )
    state = _State(os.environ.get("KPL_STATE_TABLE"), stream)
    state.load(watcher.watch)
    watcher.run(max(1.0, (context.get_remaining_time_in_millis() - _RESERVE) / 1000), once=True)
    now = time.time()
    state.save(watcher.watch, now)
    for line in Emf(watcher.watch.last_hour.stream).lines(last, now):
        _write(line)
    measured = watcher.watch.measured
    return {
        "openShards": len(watcher.watch.shards),
        "looks": measured.looks,
        "calls": sum(measured.calls.values()),
        "state": state.outcome,
        "lostUserRecords": watcher.watch.last_hour.lost()._asdict(),
    }
