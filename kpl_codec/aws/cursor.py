"""A cursor that reads a shard from a starting position on, with GetShardIterator and GetRecords.

    cursor = ShardCursor(client, "orders", "shardId-000000000000", after_record("4957..."))
    page = cursor.fetch(limit=1000)         # .records .behind .ended

When an iterator has expired, the cursor gets one after the last record that it read. A `Pace` keeps its calls
within the limits of a shard.
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
from .calls import (
    CallFailed,
    call_service,
    call_with_retries,
    maybe_await,
    run_sync,
    service_time_ms,
    stream_for,
)

Operation = Literal["get_records", "get_shard_iterator", "subscribe_to_shard"]

#: The most records that GetRecords returns.
MOST_RECORDS: Final = 10_000
#: Milliseconds by which this machine's clock may be ahead of the service's. If the service refuses a starting
#: time as lying in the future, and it is at most so far ahead, the call is repeated.
_CLOCK_SKEW: Final = 300_000


class GetRecordsPage(NamedTuple):
    """A response of GetRecords. ``records``: those of boto3. ``behind``: milliseconds between the last of
    them and the tip of the shard. ``ended``: the shard is closed, and this is its end."""

    records: list[dict[str, Any]]
    behind: int
    ended: bool

    def at_tip(self, limit: int) -> bool:
        """Whether no record follows now. A full response never shows that: ``behind`` is 0 also if more
        records follow that arrived in the same millisecond."""
        return self.ended or (self.behind == 0 and len(self.records) < limit)


class Pace:
    """The rate of calls on one shard, of GetRecords and of GetShardIterator each for itself, and of the bytes
    that GetRecords returns; None for no limit. A shard allows all its readers together 5 calls of each
    operation and 2 MiB a second."""

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
    """Reads one shard from a starting position on. Not thread-safe. `fetch` is for a client of boto3; `read`
    is the same for one of aiobotocore, with a ``sleep`` of asyncio.

    ``pace``: cursors that keep the limits of a shard together share it. ``patience``: seconds for which a
    fetch retries throttled calls, server errors, broken connections and truncated responses. ``at_tip``: all
    that was stored when the last fetch began has been read.
    """

    def __init__(
        self,
        client: Any,
        stream: str,
        shard_id: str,
        position: StartingPosition,
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
        self._position = position
        self._pace = pace or Pace(None, None)
        self._patience, self._sleep, self._clock, self._chance = patience, sleep, clock, chance
        self._iterator: str | None = None  # the iterator of the next call; None if the cursor must get one
        self.ended = self.at_tip = self._near_tip = False

    def fetch(self, limit: int = MOST_RECORDS) -> GetRecordsPage:
        """The next records, at most ``limit``; maybe none although more follow (see ``behind``).

        Raises StreamUnavailable: at once for an error that a retry cannot solve, among them
        InvalidArgumentException and ResourceNotFoundException for a sequence number or shard that is gone.
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
            # The time may still be in the service's future, if this clock is ahead.
            position = self._position
            early = position.kind == "AT_TIMESTAMP" and position.time_ms > self._now() * 1000 - _CLOCK_SKEW
            if failed.code == "InvalidArgumentException" and early:
                failed.permanent = False
            raise

    def close(self) -> None:
        """Does nothing: `SubscriptionCursor` has the same method, which ends its subscription."""

    async def _fetch_once(self, limit: int) -> GetRecordsPage:
        is_new = self._iterator is None
        if is_new:
            self._iterator = await self._new_iterator()
        stream = stream_for(self._client, self._stream).argument_of_get_records
        try:
            response = await self._call(
                "get_records", "Records", ShardIterator=self._iterator, Limit=limit, **stream
            )
        except CallFailed as failed:
            if failed.code == "ExpiredIteratorException":
                self._iterator = None
                if not is_new:  # else the service returns expired iterators, and the loop must wait
                    return await self._fetch_once(limit)
            raise
        records = response["Records"]
        self._pace.record_call("get_records", sum(len(record["Data"]) for record in records))
        if records:
            self._position = after_record(records[-1]["SequenceNumber"])
        self._iterator = response.get("NextShardIterator")
        self.ended = self._iterator is None
        page = GetRecordsPage(records, int(response.get("MillisBehindLatest") or 0), self.ended)
        # A response of 10 MiB may end between records of one millisecond: it is 0 ms behind, and the next
        # page has more of them.
        at_tip = page.at_tip(limit)
        self.at_tip = self.ended or (at_tip and (self._near_tip or not records))
        self._near_tip = at_tip
        return page

    async def _new_iterator(self) -> str:
        now = self._now()
        response = await self._call(
            "get_shard_iterator",
            "ShardIterator",
            **stream_for(self._client, self._stream).argument,
            ShardId=self.shard_id,
            **iterator_arguments(self._position),
        )
        self._keep_latest(response, now)
        return str(response["ShardIterator"])

    def _keep_latest(self, response: Mapping[str, Any], now: float) -> None:
        """Hold the position LATEST of a call that began at ``now``: if its iterator or subscription ends
        before it gives a record, a new LATEST would skip some."""
        if self._position.kind == "LATEST":
            self._position = at_time(service_time_ms(response, now))

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
    """The end of a shard at the moment when ``cursor`` was made, which begins at LATEST or at a time."""

    def __init__(self, cursor: ShardCursor) -> None:
        self._cursor = cursor
        self._first: str | None = None
        self.first_later_record()

    def first_later_record(self) -> str | None:
        """The sequence number of the first record that arrived later, None as long as there is none."""
        while self._first is None and not self._cursor.ended:
            page = self._cursor.fetch(1)
            if page.records:
                self._first = page.records[0]["SequenceNumber"]
            if page.at_tip(1):
                break
        return self._first
