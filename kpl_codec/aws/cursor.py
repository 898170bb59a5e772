"""A place in a shard, and what comes after it: GetRecords for readers that must know where they are.

    cursor = ShardCursor(client, "orders", "shardId-000000000000", At("AFTER_SEQUENCE_NUMBER", "4957..."))
    answer = cursor.fetch(limit=1000)         # .records .behind .ended

An iterator that expired is made again behind the last record read. Throttling, server errors, broken
connections and answers cut short are tried again with backoff for as long as ``patience`` lasts; what no
retry can mend is raised at once. A `Pace` keeps the calls within what a shard allows.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any, Final, Literal, NamedTuple

from ..aws_errors import is_permanent
from ..backoff import Backoff
from ..shards.live_shard_map import Failure, StreamUnavailable
from .calls import CALL_ERRORS, failure_of

#: GetRecords gives at most so many records.
MOST_RECORDS: Final = 10_000
_CUT_SHORT: Final = "IncompleteAnswer"
_BACKOFF: Final = Backoff(0.2, 5.0)
#: A clock ahead of the service's makes a time "in the future"; within this it is waited for.
_CLOCK_SKEW: Final = 300_000


class At(NamedTuple):
    """A place to start: ``kind`` as GetShardIterator names it; ``value`` a sequence number, or
    milliseconds since 1970 for AT_TIMESTAMP, else None."""

    kind: Literal["TRIM_HORIZON", "LATEST", "AT_TIMESTAMP", "AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"]
    value: str | int | None = None

    def arguments(self) -> dict[str, Any]:
        """The arguments of GetShardIterator."""
        if self.kind == "AT_TIMESTAMP":
            assert isinstance(self.value, int)
            when = datetime.fromtimestamp(self.value // 1000, timezone.utc)
            # Whole milliseconds, without the detour over a float that loses one now and then.
            when = when.replace(microsecond=self.value % 1000 * 1000)
            return {"ShardIteratorType": self.kind, "Timestamp": when}
        if self.value is None:
            return {"ShardIteratorType": self.kind}
        return {"ShardIteratorType": self.kind, "StartingSequenceNumber": self.value}


class Answer(NamedTuple):
    """What GetRecords gave. ``records``: as AWS writes them. ``behind``: milliseconds to the tip.
    ``ended``: the shard is closed and this is its end."""

    records: list[dict[str, Any]]
    behind: int
    ended: bool

    def at_tip(self, limit: int) -> bool:
        """Nothing was behind these records. A full answer does not say so: of records that arrived in
        one millisecond the first is 0 ms behind too."""
        return self.ended or (self.behind == 0 and len(self.records) < limit)


class Pace:
    """At most ``calls_per_second`` and ``bytes_per_second``, either None for no limit.

    A shard allows 5 GetRecords calls and 2 MiB a second to all its readers together.
    """

    def __init__(
        self,
        calls_per_second: float | None,
        bytes_per_second: float | None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval = 1 / calls_per_second if calls_per_second else 0.0
        self._bytes_per_second = bytes_per_second
        self._sleep, self._clock = sleep, clock
        self._free_at = 0.0

    def wait(self) -> None:
        """Before a call."""
        now = self._clock()
        if self._free_at > now:
            self._sleep(self._free_at - now)

    def spent(self, size: int) -> None:
        """After a call that gave ``size`` bytes."""
        busy = self._interval
        if self._bytes_per_second:
            busy = max(busy, size / self._bytes_per_second)
        self._free_at = self._clock() + busy


class ShardCursor:
    """Reads one shard from a place on. Not thread-safe."""

    def __init__(
        self,
        client: Any,
        stream_name: str,
        shard_id: str,
        at: At,
        *,
        pace: Pace | None = None,
        patience: float = 300.0,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._client, self._stream, self.shard_id = client, stream_name, shard_id
        self._at = at
        self._pace = pace or Pace(None, None)
        self._patience, self._sleep, self._clock, self._chance = patience, sleep, clock, chance
        self._iterator: str | None = None
        self.ended = False

    def fetch(self, limit: int = MOST_RECORDS) -> Answer:
        """The next records, at most ``limit``; maybe none although there are more (see ``behind``).

        Raises StreamUnavailable: at once for what no retry mends, among it InvalidArgumentException and
        ResourceNotFoundException for a sequence number or shard that is gone; else after ``patience``.
        """
        if self.ended:
            return Answer([], 0, True)
        while True:
            if self._iterator is None:
                self._iterator = self._new_iterator()
            self._pace.wait()
            try:
                found = self._call("get_records", "Records", ShardIterator=self._iterator, Limit=limit)
            except StreamUnavailable as error:
                if error.code != "ExpiredIteratorException":
                    raise
                self._iterator = None
                continue
            records = found["Records"]
            self._pace.spent(sum(len(record["Data"]) for record in records))
            if records:
                self._at = At("AFTER_SEQUENCE_NUMBER", records[-1]["SequenceNumber"])
            self._iterator = found.get("NextShardIterator")
            self.ended = self._iterator is None
            return Answer(records, int(found.get("MillisBehindLatest") or 0), self.ended)

    def _new_iterator(self) -> str:
        begun = int(time.time() * 1000)
        answer = self._call(
            "get_shard_iterator",
            "ShardIterator",
            StreamName=self._stream,
            ShardId=self.shard_id,
            **self._at.arguments(),
        )
        if self._at.kind == "LATEST":
            # Should this iterator expire before it gave a record, LATEST again would skip some.
            self._at = At("AT_TIMESTAMP", begun)
        return str(answer["ShardIterator"])

    def _call(self, operation: str, needs: str, **arguments: Any) -> Mapping[str, Any]:
        end = self._clock() + self._patience
        failures = 0
        while True:
            try:
                answer: Mapping[str, Any] = getattr(self._client, operation)(**arguments)
            except CALL_ERRORS as error:
                failure = failure_of(error)
            else:
                # MAP-14: "An answer without what was asked for MUST be taken for a call that failed."
                # botocore makes an empty success of an answer that was cut short, which would look like
                # the end of the shard.
                if needs in answer:
                    return answer
                failure = Failure(_CUT_SHORT, f"an answer without {needs}")
            permanent = is_permanent(failure.code) and not self._not_yet(failure)
            pause = _BACKOFF.seconds(failures, self._chance())
            if permanent or failure.code == "ExpiredIteratorException" or self._clock() + pause > end:
                raise StreamUnavailable(
                    stream=self._stream,
                    operation=operation,
                    code=failure.code,
                    reason=failure.reason,
                    permanent=permanent,
                )
            self._sleep(pause)
            failures += 1

    def _not_yet(self, failure: Failure) -> bool:
        """A time that the service's clock has not reached, because ours is ahead."""
        if failure.code != "InvalidArgumentException" or self._at.kind != "AT_TIMESTAMP":
            return False
        assert isinstance(self._at.value, int)
        return self._at.value > time.time() * 1000 - _CLOCK_SKEW
