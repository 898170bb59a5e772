"""A cursor that reads a shard from a starting position on, with GetShardIterator and GetRecords.

    cursor = ShardCursor(client, "orders", "shardId-000000000000", after_record("4957..."))
    page = cursor.fetch(limit=1000)         # .records .behind .ended

`kpl_codec.shards.shard_reading` decides which call is next. A `Pace` keeps its calls within the limits of a
shard.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, get_args

from ..aws_errors import missing_member
from ..shards.live_shard_map import StreamUnavailable
from ..shards.shard_reading import MOST_RECORDS, ShardPage, ShardReading
from ..shards.starting_position import StartingPosition
from .calls import (
    CallFailed,
    call_service,
    call_with_retries,
    maybe_await,
    run_sync,
    stream_for,
)

Operation = Literal["get_records", "get_shard_iterator", "subscribe_to_shard"]


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
    """Reads one shard from a starting position on. Not thread-safe. `fetch` is for a boto3 client; `read` is
    the same for an aiobotocore client, with a ``sleep`` of asyncio.

    ``pace``: cursors that keep the limits of a shard together share it. ``patience``: seconds for which a
    fetch retries throttled calls, server errors, broken connections and truncated responses. ``reading``: how
    far it has read.
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
        self.reading = ShardReading(position)
        self._pace = pace or Pace(None, None)
        self._patience, self._sleep, self._clock, self._chance = patience, sleep, clock, chance

    @property
    def ended(self) -> bool:
        return self.reading.ended

    @property
    def at_tip(self) -> bool:
        return self.reading.at_tip

    def fetch(self, limit: int = MOST_RECORDS) -> ShardPage:
        """The next records, at most ``limit``; maybe none although more follow (see ``behind``).

        Raises StreamUnavailable: at once for an error that a retry cannot solve, among them
        InvalidArgumentException and ResourceNotFoundException for a sequence number or shard that is gone.
        """
        return run_sync(self.read(limit))

    async def read_whole(self) -> ShardPage:
        """As `read`. Raises StreamUnavailable also where the record is gone at which reading begins, or after
        which it goes on."""
        page = await self.read()
        # MAP-29: "Reading that begins at a record, or goes on after one, MUST be an error where that record
        # is gone: those behind it may be, too."
        if page.trimmed is not None:
            raise StreamUnavailable(
                stream=self._stream,
                code="RecordTrimmed",
                operation="get_records",
                reason=f"{self.shard_id} has no record {page.trimmed}, so those behind it may be gone, too",
                permanent=True,
            )
        return page

    async def read(self, limit: int = MOST_RECORDS) -> ShardPage:
        if self.ended:
            return ShardPage([], 0, True, True)
        attempt, unavailable = partial(self._attempt, limit), partial(StreamUnavailable, stream=self._stream)
        return await call_with_retries(
            attempt, unavailable, self._patience, self._sleep, self._clock, self._chance
        )

    async def _attempt(self, limit: int) -> ShardPage:
        try:
            return await self._fetch_once(limit)
        except CallFailed as failed:
            if self.reading.is_early(failed.code, self._now()):
                failed.permanent = False
            raise

    def close(self) -> None:
        """Does nothing: `SubscriptionCursor` has the same method, which ends its subscription."""

    async def _fetch_once(self, limit: int) -> ShardPage:
        stream = stream_for(self._client, self._stream)
        while True:
            operation, arguments = self.reading.call(limit, self._now())
            began = self._now()
            if operation == "GetShardIterator":
                arguments |= {**stream.argument, "ShardId": self.shard_id}
                response = await self._call("get_shard_iterator", "ShardIterator", **arguments)
                self.reading.receive_iterator(response, self._now(), began)
                continue
            try:
                response = await self._call(
                    "get_records", "Records", **arguments, **stream.argument_of_get_records
                )
            except CallFailed as failed:
                if self.reading.fail(failed.code):
                    continue
                raise
            self._pace.record_call("get_records", sum(len(record["Data"]) for record in response["Records"]))
            return self.reading.receive(response, arguments["Limit"], self._now())

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
            if page.near_tip:
                break
        return self._first
