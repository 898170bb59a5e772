"""The watch in Lambda: one line in an existing consumer, or its own function on a schedule.

In a consumer it makes no reads: it checks the events of the function.

    maps = ShardMapCache(boto3.client("kinesis", config=quick))         # see `shard_map_cache`
    watch = ConsumerWatch(maps)                                      # outside the handler

    def lambda_handler(event, context):
        return process_user_records(event, handle, watch=watch)

As a function of its own, `lambda_handler` looks at one slot of every shard in each run. ``kpl-codec watch
--print function`` prints a CloudFormation template with its role.

    KPL_STATE_TABLE   between two runs
    not set           Nothing is kept. A finding is reported in every run that sees it, and never as over; an
                      estimate is for one period; a new shard is recognized only by its age; a stream that is
                      made anew between two runs is not noticed.
    a DynamoDB table  It keeps open findings, the last hour's minutes and how far each shard was read. A
                      duplicate, or a hot key, is still found only within one run.

Both write findings and metrics (CloudWatch's embedded metric format) as JSON lines to the function's log.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

from ..adapters.events_in import read_record
from ..errors import CaptureError
from ..format.records import KinesisRecord
from ..watch import LastHour, SampleSlot, WatchFinding
from ..watch.watch_metrics import Emf, Every, record_metrics, watch_metrics
from .batch import LOG, stream_of
from .shard_map_cache import ShardMapCache

__all__ = ["ConsumerWatch", "lambda_handler"]

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
        shard_map: ShardMapCache | None = None,
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

    def see(self, event: Any) -> None:
        """Check the Kinesis records of a Lambda event. Never raises."""
        # WCH-28: "A watch in a consumer MUST NOT change the function's answer, and MUST NOT fail it,
        # whatever the event holds."
        try:
            self._see(event)
        except Exception:  # noqa: BLE001 - the consumer must go on
            LOG.exception("the watch could not look at an event")

    def _see(self, event: Any) -> None:
        now = self._clock()
        self._events += 1
        by_shard: dict[tuple[str, str | None], list[KinesisRecord]] = {}
        for raw in event if isinstance(event, list) else event["Records"]:
            item = read_record(raw, "Records")
            if not isinstance(item, CaptureError):
                by_shard.setdefault((stream_of(raw), item.shard_id), []).append(item)
        for (arn, shard_id), records in by_shard.items():
            last_hour, _ = self._of(arn)
            shard_map = self._maps.shard_map(arn, shard_id) if self._maps is not None else None
            if shard_map is not None:
                last_hour.set_shard_map(shard_map, now)
            # Lambda gives a batch again after a failure: that is no duplicate.
            self._tell(last_hour.observe(SampleSlot(shard_id, self._events), records, now))
        if self._every.due(now):
            for last_hour, emf in self._streams.values():
                self._tell(last_hour.tick(now))
                for line in emf.lines(record_metrics(last_hour), now):
                    self._write(line)

    def _of(self, arn: str) -> tuple[LastHour, Emf]:
        name = arn.rpartition("/")[2] or "unknown"
        return self._streams.setdefault(arn, (LastHour(name, late=self._late, names=self._names), Emf(name)))

    def _tell(self, findings: list[WatchFinding]) -> None:
        for finding in findings:
            self._write(finding.to_json())


@lru_cache(maxsize=1)
def _client() -> Any:
    from ..aws.client import kinesis_client

    return kinesis_client()


def _tried(what: str, call: Callable[[], Any]) -> tuple[Any, str | None]:
    """What ``call`` gives, or None and why the state was not loaded or saved. Never raises."""
    # WCH-30: "A state that cannot be loaded or saved MUST NOT fail a run, and the run's answer MUST say so."
    try:
        return call(), None
    except Exception as error:  # noqa: BLE001 - whatever it is, the stream is looked at
        LOG.exception(f"the watch's state was not {what}")
        code = getattr(error, "response", {}).get("Error", {}).get("Code") or type(error).__name__
        return None, f"not {what}: {code}"


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
    schedule), KPL_NAMES ("yes": tell hot partition keys, not their hash keys),
    KPL_STATE_TABLE (see the module). Returns what was done; writes findings and metrics to the log. Raises
    StreamUnavailable if the stream's shards cannot be listed, ValueError for a setting that makes no sense.
    """
    from ..watch.stream_watcher import StateTable, StreamWatcher, dynamodb_client

    stream = os.environ["KPL_STREAM"]
    sampling_rate, period = _number("KPL_SHARE", 0.05), _number("KPL_PERIOD", 60)
    watcher = StreamWatcher(
        _client(),
        stream,
        on_finding=lambda finding: _write(finding.to_json()),
        sampling_rate=sampling_rate,
        period=period,
        since=period if sampling_rate >= 1 else 0.0,
        names=os.environ.get("KPL_NAMES") == "yes",
    )
    name, table, state = os.environ.get("KPL_STATE_TABLE"), None, "off"
    if name:
        table = StateTable(dynamodb_client(), name, stream)
        kept, failed = _tried("loaded", partial(table.load, time.time()))
        state = failed or ("new" if kept is None else "resumed")
        if kept is not None:
            watcher.watch.resume(kept)
    watcher.run(max(1.0, (context.get_remaining_time_in_millis() - _RESERVE) / 1000), once=True)
    now = time.time()
    if table is not None:
        state = _tried("saved", partial(table.save, watcher.watch.keep(now)))[1] or state
    for line in Emf(watcher.watch.last_hour.stream).lines(watch_metrics(watcher.watch, now), now):
        _write(line)
    metrics = watcher.watch.call_counts
    return {
        "openShards": len(watcher.watch.shards),
        "polls": metrics.polls,
        "calls": sum(metrics.calls.values()),
        "state": state,
        "lostUserRecords": watcher.watch.last_hour.lost()._asdict(),
    }
