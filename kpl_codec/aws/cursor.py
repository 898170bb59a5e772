"""Reads a shard from a starting position on, with GetShardIterator and GetRecords.

    cursor = ShardCursor(client, "orders", "shardId-000000000000", after_record("4957..."))
    page = cursor.fetch(limit=1000)         # .records .behind .ended

When an iterator has expired, the cursor asks for one after the last record that it read. It retries throttled
calls, server errors, broken connections and truncated responses, with backoff, for ``patience`` seconds, and
raises at once what a retry cannot solve. A `Pace` keeps the calls within the limits of a shard.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, NamedTuple, get_args

from ..aws_errors import missing_member
from ..shards.live_shard_map import StreamUnavailable
from ..shards.starting_position import StartingPosition, after_record, at_time, iterator_arguments
from .calls import CallFailed, call_service, call_with_retries, maybe_await, run_sync, stream_for

Operation = Literal["get_records", "get_shard_iterator", "subscribe_to_shard"]

#: GetRecords returns at most so many records.
MOST_RECORDS: Final = 10_000
#: Milliseconds by which this clock may be ahead of the service's. Within them, a time that the service
#: refuses as in the future is retried.
_CLOCK_SKEW: Final = 300_000


class GetRecordsPage(NamedTuple):
    """A response of GetRecords. ``records``: as boto3 gives them. ``behind``: milliseconds between its last
    record and the tip of the shard. ``ended``: the shard is closed, and this is its end."""

    records: list[dict[str, Any]]
    behind: int
    ended: bool

    def at_tip(self, limit: int) -> bool:
        """Whether these were the last records. A full response never shows that: of records that arrived in
        one millisecond the first is 0 ms behind, too."""
        return self.ended or (self.behind == 0 and len(self.records) < limit)


class Pace:
    """Limits the rate of calls on one shard. ``calls_per_second``: of GetRecords and of GetShardIterator,
    each on its own; ``bytes_per_second``: returned by GetRecords. None: no limit. A shard allows all its
    readers together 5 calls of each and 2 MiB a second."""

    def __init__(
        self,
        calls_per_second: float | None,
        bytes_per_second: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interval = 1 / calls_per_second if calls_per_second else 0.0
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._free_at: dict[Operation, float] = {}

    def delay(self, operation: Operation) -> float:
        return max(0.0, self._free_at.get(operation, 0.0) - self._clock())

    def pause(self, seconds: float) -> None:
        self._free_at = dict.fromkeys(get_args(Operation), self._clock() + seconds)

    def record_call(self, operation: Operation, size: int = 0) -> None:
        busy = self.interval
        if self._bytes_per_second:
            busy = max(busy, size / self._bytes_per_second)
        self._free_at[operation] = self._clock() + busy


class ShardCursor:
    """Reads one shard from a starting position on. Not thread-safe.

    ``pace``: shared by cursors that must keep the limits of a shard together. ``patience``: seconds for which
    a fetch retries. `fetch` is for a client of boto3; `read` is the same for one of aiobotocore, with a
    ``sleep`` of asyncio. ``iterator``: where the next fetch begins, None where it must be asked for;
    ``at_tip``: all that was stored when the last fetch began has been read.
    """

    def __init__(
        self,
        client: Any,
        stream: str,
        shard_id: str,
        place: StartingPosition,
        *,
        pace: Pace | None = None,
        patience: float = 300.0,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._now = now
        self._client, self._stream, self.shard_id = client, stream, shard_id
        self._place = place
        self._pace = pace or Pace(None, None)
        self._patience, self._sleep, self._clock, self._chance = patience, sleep, clock, chance
        self.iterator: str | None = None
        self.ended = self.at_tip = self._near_tip = False

    def fetch(self, limit: int = MOST_RECORDS) -> GetRecordsPage:
        """The next records, at most ``limit``. It may be empty although there are more (see ``behind``).

        Raises StreamUnavailable: at once for an error that a retry cannot solve, among them
        InvalidArgumentException and ResourceNotFoundException for a sequence number or shard that is gone;
        for other errors after ``patience``.
        """
        return run_sync(self.read(limit))

    async def read(self, limit: int = MOST_RECORDS) -> GetRecordsPage:
        if self.ended:
            return GetRecordsPage([], 0, True)
        attempt, unavailable = partial(self._attempt, limit), partial(StreamUnavailable, stream=self._stream)
        return await call_with_retries(
            attempt, unavailable, self._patience, self._sleep, self._clock, self._chance
        )

    async def _attempt(self, limit: int) -> GetRecordsPage:
        try:
            return await self._fetch_once(limit)
        except CallFailed as failed:
            # The requested time may still be in the service's future: our clock is ahead.
            place = self._place
            early = place.kind == "AT_TIMESTAMP" and place.time_ms > self._now() * 1000 - _CLOCK_SKEW
            if failed.code == "InvalidArgumentException" and early:
                failed.permanent = False
            raise

    def close(self) -> None:
        """Nothing to do: an iterator needs no closing. `SubscriptionCursor` ends its subscription."""

    async def _fetch_once(self, limit: int) -> GetRecordsPage:
        is_new = self.iterator is None
        if is_new:
            self.iterator = await self._new_iterator()
        stream = stream_for(self._client, self._stream).argument_of_get_records
        try:
            response = await self._call(
                "get_records", "Records", ShardIterator=self.iterator, Limit=limit, **stream
            )
        except CallFailed as failed:
            if failed.code == "ExpiredIteratorException":
                self.iterator = None
                if not is_new:  # else the service returns expired iterators, and the loop must wait
                    return await self._fetch_once(limit)
            raise
        records = response["Records"]
        self._pace.record_call("get_records", sum(len(record["Data"]) for record in records))
        if records:
            self._place = after_record(records[-1]["SequenceNumber"])
        self.iterator = response.get("NextShardIterator")
        self.ended = self.iterator is None
        page = GetRecordsPage(records, int(response.get("MillisBehindLatest") or 0), self.ended)
        # A response of 10 MiB may end among records of one millisecond, and be 0 ms behind: the next page has
        # the others.
        at_tip = page.at_tip(limit)
        self.at_tip = self.ended or (at_tip and (self._near_tip or not records))
        self._near_tip = at_tip
        return page

    async def _new_iterator(self) -> str:
        begun = int(self._now() * 1000)
        response = await self._call(
            "get_shard_iterator",
            "ShardIterator",
            **stream_for(self._client, self._stream).argument,
            ShardId=self.shard_id,
            **iterator_arguments(self._place),
        )
        if self._place.kind == "LATEST":
            # If this iterator expires before it gives a record, a new LATEST would skip some.
            self._place = at_time(begun)
        return str(response["ShardIterator"])

    async def _call(self, operation: Operation, needs: str, **arguments: Any) -> Mapping[str, Any]:
        if (wait := self._pace.delay(operation)) > 0:
            await maybe_await(self._sleep(wait))
        # MAP-14: "An answer without what was asked for MUST be taken for a call that failed."
        # botocore turns a truncated answer into an empty success, which would look like the end of the shard.
        try:
            return await call_service(
                self._client, operation, arguments, partial(missing_member, needs=needs)
            )
        finally:
            self._pace.record_call(operation)


class LatestPosition:
    """The end of a shard at some moment, where ``cursor`` begins (LATEST, or a time)."""

    def __init__(self, cursor: ShardCursor) -> None:
        self._cursor = cursor
        self._beyond: str | None = None
        self._look()

    def _look(self) -> None:
        while self._beyond is None and not self._cursor.ended:
            page = self._cursor.fetch(1)
            if page.records:
                self._beyond = page.records[0]["SequenceNumber"]
            if page.at_tip(1):
                return

    def first_later_record(self) -> str | None:
        """The first record that arrived later, None if there is none: it reads again at each call."""
        self._look()
        return self._beyond
