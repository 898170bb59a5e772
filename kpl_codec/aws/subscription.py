"""Reads a shard from a place on with SubscribeToShard, as `ShardCursor` does with GetRecords.

    cursor = SubscriptionCursor(client, consumer_arn, "shardId-000000000000", after_record("4957..."))
    answer = cursor.fetch(limit=1000)         # .records .behind .ended; waits for the next event
    cursor.close()

The client must try each call once (`kpl_codec.aws.client.kinesis_client`). Kinesis allows one subscription
per consumer and shard: a new one ends the one before, but not in its first 5 seconds.
Specification: spec/11-enhanced-fan-out.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from botocore.eventstream import ParserError
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from ..shards.live_shard_map import Failure, StreamUnavailable
from ..shards.place import Place, after_record, at_time, iterator_arguments
from .calls import CALL_ERRORS, failure_of
from .cursor import Answer, CallFailed, ShardCursor
from .shard_event import EventError, ShardEvent, shard_event
from .stream_consumer import StreamConsumers

#: Seconds of the five minutes after which Kinesis ends a subscription.
RENEW_AFTER: Final = 270.0
#: Seconds for which Kinesis refuses a new subscription of the same consumer and shard.
REFUSED_FOR: Final = 5.0
#: Seconds between two calls for one consumer and shard.
_BETWEEN_CALLS: Final = 1.0
#: What an event stream raises when its connection breaks or its bytes are no events.
_STREAM_ERRORS: Final = (*CALL_ERRORS, HTTPError, ParserError, ResponseParserError)


class Subscription:
    """Where the reader of a shard stands, and when it may subscribe. Without I/O: ``now`` is in seconds, by a
    monotonic clock."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.ended = False
        self._called, self._began = float("-inf"), float("-inf")

    def may_subscribe_at(self) -> float:
        """When the next call may be made."""
        # EFO-5: "A reader MUST NOT subscribe within 5 seconds of its last subscription, nor call more than
        # once a second."
        return max(self._began + REFUSED_FOR, self._called + _BETWEEN_CALLS)

    def call(self, now: float, now_ms: int) -> dict[str, Any]:
        """The StartingPosition of a call that is made now. ``now_ms``: milliseconds since 1970."""
        self._called = now
        names = {"ShardIteratorType": "Type", "StartingSequenceNumber": "SequenceNumber"}
        position = {names.get(name, name): value for name, value in iterator_arguments(self.place).items()}
        if self.place.kind == "LATEST":
            # If this subscription ends before its first event, a new LATEST would skip records.
            self.place = at_time(now_ms)
        return position

    def began(self, now: float) -> None:
        """The call succeeded."""
        self._began = now

    def is_old(self, now: float) -> bool:
        """Whether the subscription must be renewed."""
        # EFO-4: "A subscription MUST be renewed before it is five minutes old."
        return now - self._began >= RENEW_AFTER

    def take(self, event: ShardEvent) -> None:
        """Stand behind an event. Raises EventError where it goes back."""
        # EFO-3: "However a subscription ends, reading MUST go on right after the last event that was given."
        if event.records and int(event.records[0]["SequenceNumber"]) < self.place.lowest:
            raise EventError(member="Records[].SequenceNumber", reason="lies before the place of the reader")
        numbers = [record["SequenceNumber"] for record in event.records[-1:]]
        if event.continuation is not None:
            numbers.append(event.continuation)
        furthest = max(numbers, key=int, default="0")
        # A shard without records may say 0, which is no place.
        if int(furthest) >= max(self.place.lowest, 1):
            self.place = after_record(furthest)
        self.ended = event.ended


class SubscriptionCursor(ShardCursor):
    """A `ShardCursor` that reads by subscription. Not thread-safe.

    ``consumer_arn``: of a registered consumer. ``settings``: as for `ShardCursor`; a ``pace`` has no effect,
    because each consumer has 2 MiB a second of each shard for itself.
    """

    def __init__(self, client: Any, consumer_arn: str, shard_id: str, place: Place, **settings: Any) -> None:
        super().__init__(client, consumer_arn, shard_id, place, **settings)
        self._subscription = Subscription(place)
        self._stream_of_events: Any = None
        self._events: Iterator[Any] = iter(())
        self._left: list[dict[str, Any]] = []
        self._behind = 0
        #: How many calls of SubscribeToShard were made.
        self.calls = 0

    def close(self) -> None:
        """End the subscription. A later fetch makes a new one."""
        stream, self._stream_of_events = self._stream_of_events, None
        if stream is not None:
            stream.close()

    async def _fetch_once(self, limit: int) -> Answer:
        if not self._left:
            event = self._next_event()
            self._left, self._behind = event.records, event.behind
        records, self._left = self._left[:limit], self._left[limit:]
        self.ended = self._subscription.ended and not self._left
        return Answer(records, max(self._behind, 1) if self._left else self._behind, self.ended)

    def _next_event(self) -> ShardEvent:
        """Raises CallFailed, after which the next call makes a new subscription; and StreamUnavailable."""
        if self._stream_of_events is not None and not self._subscription.is_old(self._clock()):
            event = self._receive()
            if event is not None:
                return event
            # Kinesis has ended the subscription, as it does after five minutes.
        self.close()
        self._subscribe()
        event = self._receive()
        if event is None:
            raise self._failed(Failure("IncompleteAnswer", "a subscription ended before its first event"))
        return event

    def _subscribe(self) -> None:
        subscription = self._subscription
        wait = subscription.may_subscribe_at() - self._clock()
        if wait > 0:
            self._sleep(wait)
        position = subscription.call(self._clock(), int(self._now() * 1000))
        self._place = subscription.place
        self.calls += 1
        try:
            answer = self._client.subscribe_to_shard(
                ConsumerARN=self._stream, ShardId=self.shard_id, StartingPosition=position
            )
        except _STREAM_ERRORS as error:
            raise self._failed(failure_of(error)) from None
        subscription.began(self._clock())
        self._stream_of_events = answer["EventStream"]
        self._events = iter(self._stream_of_events)

    def _receive(self) -> ShardEvent | None:
        """The next event, None where the stream of events ends."""
        try:
            found = next(self._events, None)
            if found is None:
                return None
            event = shard_event(found)
            self._subscription.take(event)
        except _STREAM_ERRORS as error:
            raise self._failed(failure_of(error)) from None
        except EventError as error:
            raise self._failed(Failure("IncompleteAnswer", str(error))) from None
        self._place = self._subscription.place
        if event.ended:
            self.close()
        return event

    def _failed(self, failure: Failure) -> CallFailed:
        self.close()
        if failure.code == "ResourceNotFoundException":
            # EFO-6: "A consumer that is not registered MUST NOT be taken for a shard that is gone."
            consumers = StreamConsumers(
                self._client, patience=self._patience, sleep=self._sleep, clock=self._clock
            )
            status = consumers.status(self._stream)
            if status != "ACTIVE":
                raise StreamUnavailable(
                    stream=self._stream,
                    operation="subscribe_to_shard",
                    code="ConsumerNotFound",
                    reason=f"the consumer is {status or 'not registered'}",
                    permanent=True,
                )
        return CallFailed("subscribe_to_shard", failure)
