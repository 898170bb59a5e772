"""A cursor that reads a shard with SubscribeToShard (enhanced fan-out), as `ShardCursor` does with
GetRecords.

    consumer_arn = StreamConsumers(client).require_active(stream_arn, "checker")
    cursor = SubscriptionCursor(client, consumer_arn, "shardId-000000000000", after_record("4957..."))
    page = cursor.fetch(limit=1000)           # .records .behind .ended; waits for the next event
    cursor.close()

The client must try each call once, as that of `kpl_codec.aws.client.kinesis_client` does. Specification:
spec/11-enhanced-fan-out.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeVar

from botocore.eventstream import ParserError
from urllib3.exceptions import HTTPError

from ..shards.live_shard_map import Failure, StreamUnavailable
from ..shards.shard_reading import ShardPage
from ..shards.starting_position import StartingPosition, after_record
from ..shards.stream_name import stream_of
from .calls import (
    CallFailed,
    call_errors,
    call_service,
    call_with_retries,
    failure_of,
    maybe_await,
    run_sync,
)
from .cursor import ShardCursor

#: The age in seconds at which a subscription is renewed. Kinesis ends it after 300.
RENEW_AFTER: Final = 270.0
#: Seconds for which Kinesis refuses a new subscription of the same consumer and shard.
REFUSED_FOR: Final = 5.0
#: The least seconds between two calls for one consumer and shard.
_BETWEEN_CALLS: Final = 1.0
#: The exceptions of an event stream whose connection breaks or whose bytes are no events.
_STREAM_ERRORS: Final = (*call_errors(), HTTPError, ParserError)
_EVENT: Final = "SubscribeToShardEvent"


class EventError(ValueError):
    """An event is not what the API defines."""

    def __init__(self, member: str, reason: str = "is not what the API defines") -> None:
        super().__init__(f"an event of SubscribeToShard: {member} {reason}")


class ShardEvent(NamedTuple):
    """``records``: those of boto3, in the order of their sequence numbers. ``continuation``: the sequence
    number after which reading goes on, None at the end of the shard. ``behind``: milliseconds to the tip of
    the shard."""

    records: list[dict[str, Any]]
    continuation: str | None
    behind: int


def _is_number(value: Any) -> bool:
    return isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 128


def _is_child(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("ShardId"), str)


_Result = TypeVar("_Result")
_Members = Mapping[str, Callable[[Any], bool]]
_OF_EVENTS: Final[_Members] = {
    "Records": lambda value: isinstance(value, list),
    "MillisBehindLatest": lambda value: type(value) is int and value >= 0,
    "ChildShards": lambda value: value is None or (isinstance(value, list) and all(map(_is_child, value))),
    "ContinuationSequenceNumber": lambda value: value is None or _is_number(value),
}
_OF_RECORDS: Final[_Members] = {
    "SequenceNumber": _is_number,
    "Data": lambda value: isinstance(value, bytes),
    "PartitionKey": lambda value: isinstance(value, str),
    "ApproximateArrivalTimestamp": lambda value: isinstance(value, datetime) and value.tzinfo is not None,
}


def _check(value: Any, members: _Members, within: str) -> None:
    if not isinstance(value, Mapping):
        raise EventError(within)
    for name, is_right in members.items():
        if not is_right(value.get(name)):
            raise EventError(f"{within}.{name}")


def shard_event(event: Any) -> ShardEvent:
    """An event of boto3, checked. Raises EventError, and nothing else whatever ``event`` is."""
    # EFO-1: "An event that differs from what the API defines MUST be taken for a call that failed, and none
    # of its records given."
    body: Any = event.get(_EVENT) if isinstance(event, Mapping) and len(event) == 1 else None
    _check(body, _OF_EVENTS, _EVENT)
    records, continuation = body["Records"], body.get("ContinuationSequenceNumber")
    for record in records:
        _check(record, _OF_RECORDS, "Records[]")
    numbers = [int(record["SequenceNumber"]) for record in records]
    if any(before >= after for before, after in pairwise(numbers)):
        raise EventError("Records[].SequenceNumber", "does not follow the one before")
    # EFO-2: "A shard MUST count as ended only where an event names its children and has no continuation
    # sequence number."
    if (continuation is None) != bool(body.get("ChildShards")):
        raise EventError("ContinuationSequenceNumber", "or ChildShards is there, never both")
    return ShardEvent(records, continuation, body["MillisBehindLatest"])


class SubscriptionCursor(ShardCursor):
    """A `ShardCursor` that reads by subscription. Not thread-safe.

    ``consumer_arn``: that of a registered consumer. ``settings``: those of `ShardCursor`; a ``pace`` has no
    effect, because each consumer has 2 MiB a second of each shard for itself.
    """

    def __init__(
        self, client: Any, consumer_arn: str, shard_id: str, position: StartingPosition, **settings: Any
    ) -> None:
        super().__init__(client, consumer_arn, shard_id, position, **settings)
        #: When SubscribeToShard was last called, and when it last succeeded.
        self._called_at = self._subscribed_at = float("-inf")
        self._stream_of_events: Any = None
        self._events: Iterator[Any] = iter(())
        self._unread: list[dict[str, Any]] = []
        self._behind = 0
        self._at_end = False

    def close(self) -> None:
        """End the subscription. A later fetch makes a new one."""
        stream, self._stream_of_events = self._stream_of_events, None
        if stream is not None:
            stream.close()

    async def _fetch_once(self, limit: int) -> ShardPage:
        if not self._unread:
            event = await self._next_event()
            self._unread, self._behind = event.records, event.behind
            self._at_end = event.continuation is None
        records, self._unread = self._unread[:limit], self._unread[limit:]
        full = bool(self._unread)
        behind = max(self._behind, 1) if full else self._behind
        return self.reading.page(records, behind, self._now(), ended=self._at_end and not full, full=full)

    async def _next_event(self) -> ShardEvent:
        """Raises CallFailed, after which the next call subscribes again, and StreamUnavailable."""
        # EFO-4: "A subscription MUST be renewed before it is five minutes old."
        if self._stream_of_events is not None and self._clock() - self._subscribed_at < RENEW_AFTER:
            event = await self._receive()
            if event is not None:  # else Kinesis has ended the subscription
                return event
        self.close()
        await self._subscribe()
        event = await self._receive()
        if event is None:
            failure = Failure("IncompleteAnswer", "a subscription ended before its first event")
            raise await self._close_after(failure)
        return event

    async def _subscribe(self) -> None:
        # EFO-5: "A reader MUST NOT subscribe within 5 seconds of its last subscription, nor call more than
        # once a second."
        wait = max(self._subscribed_at + REFUSED_FOR, self._called_at + _BETWEEN_CALLS) - self._clock()
        if wait > 0:
            await maybe_await(self._sleep(wait))
        self._called_at = self._clock()
        position, now = self.reading.subscription(), self._now()
        try:
            response = self._client.subscribe_to_shard(
                ConsumerARN=self._stream, ShardId=self.shard_id, StartingPosition=position
            )
        except _STREAM_ERRORS as error:
            self.reading.hold_latest(getattr(error, "response", None), now)
            raise await self._close_after(failure_of(error)) from None
        self.reading.hold_latest(response, now)
        self._subscribed_at = self._clock()
        self._stream_of_events = response["EventStream"]
        self._events = iter(self._stream_of_events)

    async def _receive(self) -> ShardEvent | None:
        try:
            event_message = next(self._events, None)
            if event_message is None:
                return None
            event = shard_event(event_message)
            self._advance(event)
        except _STREAM_ERRORS as error:
            raise await self._close_after(failure_of(error)) from None
        except EventError as error:
            raise await self._close_after(Failure("IncompleteAnswer", str(error))) from None
        if event.continuation is None:
            self.close()
        return event

    def _advance(self, event: ShardEvent) -> None:
        # EFO-3: "However a subscription ends, reading MUST go on right after the last event that was given."
        numbers = [record["SequenceNumber"] for record in event.records]
        lowest = self.reading.position.lowest
        if numbers and int(numbers[0]) < lowest:
            raise EventError("Records[].SequenceNumber", "lies before the reader's position")
        furthest = max([*numbers[-1:], event.continuation or "0"], key=int)
        # The ContinuationSequenceNumber of a shard without records may be 0, which is no position.
        if int(furthest) >= max(lowest, 1):
            self.reading.position = after_record(furthest)

    async def _close_after(self, failure: Failure) -> CallFailed:
        self.close()
        if failure.code == "ResourceNotFoundException":
            # EFO-6: "A consumer that is not registered MUST NOT be taken for a shard that is gone."
            settings: dict[str, Any] = {"sleep": self._sleep, "clock": self._clock}
            consumers = StreamConsumers(self._client, patience=self._patience, **settings)
            await consumers.check_active(self._stream)
        return CallFailed("subscribe_to_shard", failure)


_NOT_REGISTERED: Final = {"ConsumerStatus": "not registered"}
#: The error codes for a consumer that does not exist, or that is being registered or deregistered.
_ABSENT: Final = {
    "describe_stream_consumer": ("ResourceNotFoundException", "ResourceInUseException"),
    "register_stream_consumer": ("ResourceInUseException",),
}


#: The member of each call's response that a truncated one lacks.
_MISSING: Final = {
    operation: lambda response, member=member: None if member in response else member
    for operation, member in (
        ("describe_stream_consumer", "ConsumerDescription"),
        ("describe_stream_summary", "StreamDescriptionSummary"),
        ("register_stream_consumer", "Consumer"),
    )
}


class StreamConsumers:
    """Finds and registers consumers of streams. ``patience``: seconds for which each method waits and
    retries. All raise StreamUnavailable."""

    def __init__(
        self,
        client: Any,
        *,
        patience: float = 300.0,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._patience = client, patience
        self._sleep, self._clock = sleep, clock

    def require_active(self, stream: str, consumer: str) -> str:
        """The ARN of ``consumer``, an ARN or a name, once it is active; a name is registered if it is not
        there. ``stream``: name or ARN."""
        if consumer.startswith("arn:"):
            run_sync(self.check_active(consumer))
            return consumer
        if not stream.startswith("arn:"):
            stream = str(self.describe_stream(stream)["StreamARN"])
        arguments = {"StreamARN": stream, "ConsumerName": consumer}

        async def attempt() -> str:
            # EFO-7: "A consumer that is registered under the name MUST be used; only where there is none, one
            # may be registered."
            response = await self._call("describe_stream_consumer", **arguments)
            description = response["ConsumerDescription"] if response else _NOT_REGISTERED
            if description["ConsumerStatus"] == "ACTIVE":
                return str(description["ConsumerARN"])
            if not response:
                await self._call("register_stream_consumer", **arguments)
            raise _not_active(f"{consumer} is {description['ConsumerStatus']}")

        return run_sync(self._with_retries(attempt, stream))

    async def check_active(self, consumer_arn: str) -> None:
        """Raises StreamUnavailable if the consumer is not active."""
        response = await self._call("describe_stream_consumer", ConsumerARN=consumer_arn)
        description = response["ConsumerDescription"] if response else _NOT_REGISTERED
        if description["ConsumerStatus"] != "ACTIVE":
            failure = _not_active(f"the consumer is {description['ConsumerStatus']}")
            failure.permanent = True
            raise StreamUnavailable(stream=consumer_arn, **vars(failure))

    def describe_stream(self, stream: str) -> dict[str, Any]:
        response: Any = run_sync(self._call("describe_stream_summary", **stream_of(stream).argument))
        return dict(response["StreamDescriptionSummary"])

    async def _call(self, operation: str, **arguments: str) -> Any:
        """The response; None for an error code of `_ABSENT`."""

        async def attempt() -> Any:
            try:
                return await call_service(self._client, operation, arguments, _MISSING[operation])
            except CallFailed as failure:
                if failure.code in _ABSENT.get(operation, ()):
                    return None
                raise

        return await self._with_retries(attempt, next(iter(arguments.values())))

    async def _with_retries(
        self, attempt: Callable[[], Coroutine[Any, Any, _Result]], stream: str
    ) -> _Result:
        unavailable = partial(StreamUnavailable, stream=stream)
        return await call_with_retries(attempt, unavailable, self._patience, self._sleep, self._clock)


def _not_active(reason: str) -> CallFailed:
    return CallFailed("describe_stream_consumer", Failure("ConsumerNotFound", reason))
