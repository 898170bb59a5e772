"""A watch within a Lambda function: it checks the events that the function gets, and does not read the
stream. Findings and metrics (CloudWatch's embedded metric format) are JSON lines in the function's log.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..adapters.events_in import read_record
from ..arguments import check_arguments
from ..errors import CaptureError, place_of
from ..format.records import KinesisRecord
from ..shards.shard_map import ShardMap
from ..shards.stream_name import SeveralStreams, StreamMatcher
from ..watch import LastHour, SampleSlot, WatchFinding
from ..watch.watch_metrics import Emf, Every, record_metrics
from .batch import LOG
from .shard_map_cache import ShardMapCache

__all__ = ["ConsumerWatch"]

#: Seconds between two writings of metrics.
_METRICS_INTERVAL = 60.0


def _write(line: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")


class ConsumerWatch:
    """Checks the events of a consumer. Create it outside the handler, because it counts over an hour.

    ``shard_map``: a `ShardMapCache`, or a ShardMap, for records of its own stream; without it only broken and
    late records are found. ``late``: seconds from arrival to now above which records are late; None: no
    record is late. ``write``: takes findings and metrics, each a JSON object. Not thread-safe.
    """

    def __init__(
        self,
        shard_map: ShardMap | ShardMapCache | None = None,
        *,
        late: float | None = 60.0,
        write: Callable[[Mapping[str, Any]], None] = _write,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_arguments("ConsumerWatch", locals())
        self._maps: Any = shard_map
        self._of_stream = StreamMatcher(getattr(shard_map, "stream", None))
        self._late, self._every = late, Every(_METRICS_INTERVAL)
        self._write, self._clock = write, clock
        self._streams: dict[str, tuple[LastHour, Emf]] = {}
        self._events = 0

    def check(self, event: Any) -> None:
        """Check the Kinesis records of a Lambda event. Never raises."""
        # WCH-28: "A watch in a consumer MUST NOT change the function's answer, and MUST NOT fail it,
        # whatever the event holds."
        try:
            self._check(event)
        except Exception as error:  # noqa: BLE001 - the consumer must go on
            LOG.error("the watch could not check an event: %s", place_of(error))

    def _check(self, event: Any) -> None:
        now = self._clock()
        self._events += 1
        by_shard: dict[tuple[str, str | None], list[KinesisRecord]] = {}
        for raw in event if isinstance(event, list) else event["Records"]:
            item = read_record(raw, "Records")
            if not isinstance(item, CaptureError):
                by_shard.setdefault((item.stream or "", item.shard_id), []).append(item)
        for (arn, shard_id), records in by_shard.items():
            last_hour, _ = self._of(arn)
            shard_map = self._map_of(arn, shard_id)
            if shard_map is not None:
                last_hour.set_shard_map(shard_map, now)
            # Lambda gives a batch again after a failure: that is no duplicate.
            self._report(last_hour.observe(SampleSlot(shard_id, self._events), records, now))
        if self._every.due(now):
            for last_hour, emf in self._streams.values():
                self._report(last_hour.tick(now))
                for line in emf.lines(record_metrics(last_hour), now):
                    self._write(line)

    def _map_of(self, arn: str, shard_id: str | None) -> ShardMap | None:
        if self._maps is None or hasattr(self._maps, "shard_map"):
            return None if self._maps is None else self._maps.shard_map(arn, shard_id)
        try:
            return None if self._of_stream.mismatches([arn]) else self._maps
        except SeveralStreams as error:  # SPK-111: from now on no record is judged by this map
            LOG.warning("%s", error)
            self._maps = None
            return None

    def _of(self, arn: str) -> tuple[LastHour, Emf]:
        name = arn.rpartition("/")[2] or "unknown"
        return self._streams.setdefault(arn, (LastHour(name, late=self._late), Emf(name)))

    def _report(self, findings: list[WatchFinding]) -> None:
        for finding in findings:
            self._write(finding.to_json())
