"""A watch on a stream with boto3: the calls, the clock and the threads. One owns all state, others make
calls. And what a scheduled watch keeps between two runs.

    watcher = StreamWatcher(client, "orders", on_finding=print)
    watcher.run(seconds=300)             # or in a thread, until watcher.stop()

The client must try each call once (as `kpl_codec.aws.client.kinesis_client`): its own retries would exceed
the budget.
"""

from __future__ import annotations

import gzip
import json
import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import lru_cache
from typing import Any, Final

import boto3
from botocore.config import Config

from ..aws.calls import call_errors, failure_of, send, stream_for
from ..aws.channels import channel_findings, subscribers_of
from ..findings import Severity, at_least_as_bad
from ..format.compression import decompress
from ..shards.live_shard_map import LiveShardMap, MapChanged, Request, StreamUnavailable
from . import Checkpoint, KeptStateError, LastHour, ShardCall, Watch, WatchFinding
from .measures import Every, Measure, measures
from .watch import GIVE_UP

#: Seconds between two routine refreshes of the shard map; the minimum between two others.
REFRESH, _REFRESH_AGAIN = 10.0, 2.0
#: Seconds between two requests for a stream that is gone.
_GONE: Final = 5.0
#: Seconds between the clock and steady time above which the clock was set.
_CLOCK_WAS_SET: Final = 1.0
#: Seconds after which `run` looks whether it is to stop.
_LONGEST_PAUSE: Final = 0.5
#: Calls under way at once.
_WORKERS: Final = 4

#: Seconds after which a kept state is not used: what Kinesis keeps at least.
_OLDEST: Final = 86_400
#: Seconds that the clock of the run before may have been ahead. A state from later would stop this run.
_AHEAD: Final = 60
#: The longest JSON of a state, in bytes: compressed, it could be a thousand times as long.
_LONGEST: Final = 32_000_000
#: The most bytes of a compressed one: an item has 400 KB, with its names and the other values.
_MOST: Final = 400_000


class StreamWatcher:
    """See the module. ``stream``: its name or ARN. ``on_finding`` is called with every finding that is new,
    has doubled or is over; ``on_measures`` with all numbers every ``measure_every`` seconds and at the end.
    Both in the thread that runs. ``names``, ``quiet``: as for `LastHour`; ``watch_settings``: as for `Watch`.
    """

    def __init__(
        self,
        client: Any,
        stream: str,
        *,
        on_finding: Callable[[WatchFinding], None] = lambda finding: None,
        on_measures: Callable[[list[Measure], float], None] = lambda measured, now: None,
        measure_every: float = 10.0,
        names: bool = False,
        quiet: float = 600.0,
        **watch_settings: Any,
    ) -> None:
        self._client = client
        self._stream = stream_for(client, stream)
        self._live = LiveShardMap(
            stream, shard_filter="FROM_TRIM_HORIZON", refresh_interval=REFRESH, chance=random.random
        )
        self.watch = Watch(LastHour(self._stream.name, names=names, quiet=quiet), **watch_settings)
        self._on_finding, self._on_measures = on_finding, on_measures
        self._every = Every(measure_every)
        self._asked_at = float("-inf")
        self._stopped = False
        self._offset = time.time() - time.monotonic()
        self._told_channels = False
        #: With ``once``: shards that no call succeeded for.
        self.given_up: list[str] = []
        #: The worst severity reported so far.
        self.worst: Severity | None = None

    @property
    def unavailable(self) -> StreamUnavailable | None:
        return self._live.error if self._live.shard_map is None else None

    def stop(self) -> None:
        """End `run` soon. May be called from any thread, and from a signal handler."""
        self._stopped = True

    def run(self, seconds: float | None = None, *, once: bool = False) -> None:
        """Watch until `stop`, or for ``seconds``; with ``once`` until every shard is up to date, or no call
        for the others succeeds: then ``given_up`` names these.

        Raises StreamUnavailable if the shards cannot be listed at the start and a retry cannot help, with
        ``once`` also where none helped. Later failures are retried without end, and reported as findings.
        """
        began = time.monotonic()
        end = float("inf") if seconds is None else began + seconds
        self._live.refresh(began)
        calls: dict[Future[Any], ShardCall | Request] = {}
        with ThreadPoolExecutor(_WORKERS, "kpl-codec watch") as pool:
            while not self._stopped and time.monotonic() < end and not (once and self._over(began)):
                self._refresh_if_old()
                call: ShardCall | Request | None = None
                if len(calls) < _WORKERS:
                    call = self._live.next_request(time.monotonic()) or self.watch.next_call(self._now())
                if call is not None:
                    calls[pool.submit(self._make, call)] = call
                    continue
                pause = self._pause(end)
                if not calls:
                    time.sleep(pause)
                for done in wait(calls, pause, FIRST_COMPLETED).done:
                    self._take(calls.pop(done), done)
                now = self._now()
                if now >= self.watch.next_tick:
                    self._tell(self.watch.tick(now))
                if self._every.due(now):
                    self._measure(now)
        now = self._now()
        self._tell(self.watch.tick(now))
        self._measure(now)

    def _over(self, began: float) -> bool:
        if self.unavailable is not None and time.monotonic() - began > GIVE_UP:
            raise self.unavailable
        now = self._now()
        self.given_up = self.watch.given_up(now)
        return bool(self.given_up) or self.watch.up_to_date(now)

    def _now(self) -> float:
        """Seconds since 1970. It grows steadily. A clock that was set is followed; where it was set back,
        the watch begins anew."""
        clock = time.monotonic()
        set_back = self._offset - (time.time() - clock)
        if abs(set_back) > _CLOCK_WAS_SET:
            self._offset -= set_back
            if set_back > 0:
                self._tell(self.watch.begin_anew(clock + self._offset))
        return clock + self._offset

    def _make(self, call: ShardCall | Request) -> Any:
        if isinstance(call, Request):
            return send(self._client, call)
        if call.operation == "GetShardIterator":
            return self._client.get_shard_iterator(**self._stream.argument, **call.arguments)
        return self._client.get_records(**self._stream.argument_of_get_records, **call.arguments)

    def _take(self, call: ShardCall | Request, done: Future[Any]) -> None:
        now, clock = self._now(), time.monotonic()
        failure = None
        try:
            answer = done.result()
        except call_errors() as error:
            failure = failure_of(error, call.operation)
        if isinstance(call, ShardCall):
            receive, fail = self.watch.receive, self.watch.fail
            self._tell(receive(call, answer, now) if failure is None else fail(call, failure, now))
            self._tell_channels(now)
            return
        self.watch.measured.calls[call.operation] += 1
        if failure is not None:
            self.watch.measured.failed[failure.code] += 1
            self._live.fail(call, failure, clock)
            if (permanent := self._live.permanent_error) is not None and self._live.shard_map is None:
                raise permanent
            return
        event = self._live.receive(call, answer, clock)
        if isinstance(event, MapChanged) and self._live.shard_map is not None:
            self._tell(self.watch.use(self._live.shard_map, now, recreated=event.recreated))
            self._measure(now)  # the first measures come before the shards are read

    def _tell_channels(self, now: float) -> None:
        """Once, when aggregated records were seen."""
        writers = self.watch.last_hour.writers
        aggregated = sum(writers.values()) - writers["plain"]
        if self._told_channels or not aggregated:
            return
        self._told_channels = True
        found = subscribers_of(self._client, self._stream.arn or self._stream.name)
        for one in channel_findings(found, aggregated):
            about: dict[str, Any] = {"kind": one.kind, "aggregates": one.aggregates, "detail": one.detail}
            about |= {"stream": self._stream.name, "first_seen": now, "last_seen": now}
            self._tell([WatchFinding(state="open", **about)])

    def _refresh_if_old(self) -> None:
        clock, gone = time.monotonic(), self._live.permanent_error is not None
        wait_for = _GONE if gone else _REFRESH_AGAIN
        if (self.watch.map_is_old or gone) and clock - self._asked_at > wait_for:
            self._asked_at = clock
            self._live.refresh(clock)

    def _pause(self, end: float) -> float:
        now, clock = self._now(), time.monotonic()
        timer = self._live.timer()
        wakes = (end, clock + self.watch.timer() - now, timer if timer is not None else end)
        return max(0.001, min(*wakes, clock + _LONGEST_PAUSE) - clock)

    def _measure(self, now: float) -> None:
        self._on_measures(measures(self.watch, now), now)

    def _tell(self, findings: list[WatchFinding]) -> None:
        for finding in findings:
            if self.worst is None or at_least_as_bad(finding.severity, self.worst):
                self.worst = finding.severity
            self._on_finding(finding)


@lru_cache(maxsize=1)
def dynamodb_client() -> Any:
    """A DynamoDB client for a function: it waits 7 s at most for one call, tries included."""
    quick = Config(connect_timeout=1, read_timeout=2, retries={"total_max_attempts": 2})
    return boto3.client("dynamodb", config=quick)


class StateTable:
    """What a scheduled watch, ``name``, keeps between two runs, in an item of a DynamoDB table.

    The table's partition key is ``id``, a string: the watch's name. An item has also ``run`` (another number
    with each save), ``state`` (gzipped JSON) and ``expires_at`` (seconds since 1970, for the time to live).
    ``client``: boto3's; its role needs dynamodb:GetItem and dynamodb:PutItem on the table.
    """

    def __init__(self, client: Any, table: str, name: str) -> None:
        self._client, self._table, self._name = client, table, name
        #: The attribute as `load` found it, whatever its type: `save` replaces no other.
        self._before: Mapping[str, Any] = {"N": "0"}

    def load(self, now: float) -> Checkpoint | None:
        """What the last run kept; None if there was none in the last day, or it is from the future. Raises
        botocore's errors, and KeptStateError for an item that no `save` wrote."""
        # Consistent: the run before may have ended a moment ago.
        key = {"id": {"S": self._name}}
        item = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True).get("Item")
        if item is None:
            return None
        self._before = item.get("run", self._before)
        try:
            state = json.loads(decompress(item["state"]["B"], _LONGEST))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise KeptStateError(reason=f"{type(error).__name__}: {error}") from None
        kept = Checkpoint.from_json(state)
        return kept if -_AHEAD <= now - kept.at <= _OLDEST else None

    def save(self, kept: Checkpoint) -> None:
        """Keep it for the next run. Raises botocore's errors: ConditionalCheckFailedException where another
        run has saved since `load`; and KeptStateError for a state that is too long for an item."""
        state = gzip.compress(json.dumps(kept.to_json(), separators=(",", ":")).encode(), mtime=0)
        if len(state) > _MOST:
            raise KeptStateError(reason=f"{len(state):,} bytes are more than an item of the table has")
        run = {"N": str(kept.at)}
        # WCH-31: "Of two runs at the same time the state of the first to save MUST stay."
        self._client.put_item(
            TableName=self._table,
            Item={
                "id": {"S": self._name},
                "run": run,
                "state": {"B": state},
                "expires_at": {"N": str(round(kept.at) + _OLDEST)},
            },
            ConditionExpression="attribute_not_exists(#run) OR #run = :before",
            ExpressionAttributeNames={"#run": "run"},
            ExpressionAttributeValues={":before": self._before},
        )
        self._before = run
