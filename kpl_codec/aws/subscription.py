"""Reads a shard from a place on with SubscribeToShard, as `ShardCursor` does with GetRecords.

    cursor = SubscriptionCursor(client, consumer_arn, "shardId-000000000000", after_record("4957..."))
    answer = cursor.fetch(limit=1000)         # .records .behind .ended; waits for the next event
    cursor.close()

The client must try each call once (`kpl_codec.aws.client.kinesis_client`). Kinesis allows one subscription
per consumer and shard: a new one ends the one before, but not in its first 5 seconds.

    consumers = StreamConsumers(client)
    arn = consumers.register(stream_arn, "checker")       # or that of the consumer there is
    consumers.deregister(arn)

AWS charges for a consumer by the hour and shard while it is registered, and allows 20 per stream.
Specification: spec/11-enhanced-fan-out.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeVar

from botocore.eventstream import ParserError
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from ..errors import KplError
from ..shards.live_shard_map import Failure, StreamUnavailable
from ..shards.starting_position import StartingPosition, after_record, at_time, iterator_arguments
from ..shards.stream_name import stream_of
from .calls import CallFailed, call_errors, call_service, call_with_retries, failure_of, maybe_await, run_sync
from .cursor import GetRecordsPage, ShardCursor

#: Seconds of the five minutes after which Kinesis ends a subscription.
RENEW_AFTER: Final = 270.0
#: Seconds for which Kinesis refuses a new subscription of the same consumer and shard.
REFUSED_FOR: Final = 5.0
#: Seconds between two calls for one consumer and shard.
_BETWEEN_CALLS: Final = 1.0
#: What an event stream raises when its connection breaks or its bytes are no events.
_STREAM_ERRORS: Final = (*call_errors(), HTTPError, ParserError, ResponseParserError)


_EVENT: Final = "SubscribeToShardEvent"


class EventError(KplError):
    """An event is not what the API says. ``member``: where it is wrong; ``reason``."""

    code = "event"
    requirement = "EFO-1"
    member: str
    reason: str = "is not what the API defines"
    text = "an event of SubscribeToShard: {member} {reason}"
    concerns = "Readers with enhanced fan-out. None of the event's records was given."
    todo = "Nothing: the reader subscribes again. If it recurs, look at the server or the proxy."


class ShardEvent(NamedTuple):
    """``records``: as boto3 gives them, in the order of their sequence numbers. ``continuation``: the
    sequence number after which reading goes on, None at the end of the shard. ``behind``: milliseconds to the
    tip of the shard."""

    records: list[dict[str, Any]]
    continuation: str | None
    behind: int


def _is_number(value: Any) -> bool:
    """No sequence number has more digits."""
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
        raise EventError(member=within)
    for name, is_right in members.items():
        if not is_right(value.get(name)):
            raise EventError(member=f"{within}.{name}")


def shard_event(event: Any) -> ShardEvent:
    """The event, checked. Raises EventError, and nothing else whatever ``event`` is."""
    # EFO-1: "An event that differs from what the API defines MUST be taken for a call that failed, and none
    # of its records given."
    body: Any = event.get(_EVENT) if isinstance(event, Mapping) and len(event) == 1 else None
    _check(body, _OF_EVENTS, _EVENT)
    records, continuation = body["Records"], body.get("ContinuationSequenceNumber")
    for record in records:
        _check(record, _OF_RECORDS, "Records[]")
    if any(before >= after for before, after in pairwise(int(one["SequenceNumber"]) for one in records)):
        raise EventError(member="Records[].SequenceNumber", reason="does not follow the one before")
    # EFO-2: "A shard MUST count as ended only where an event names its children and has no continuation
    # sequence number."
    if (continuation is None) != bool(body.get("ChildShards")):
        raise EventError(member="ContinuationSequenceNumber", reason="or ChildShards is there, never both")
    return ShardEvent(records, continuation, body["MillisBehindLatest"])


class SubscriptionCursor(ShardCursor):
    """A `ShardCursor` that reads by subscription. Not thread-safe.

    ``consumer_arn``: of a registered consumer. ``settings``: as for `ShardCursor`; a ``pace`` has no effect,
    because each consumer has 2 MiB a second of each shard for itself.
    """

    def __init__(
        self, client: Any, consumer_arn: str, shard_id: str, place: StartingPosition, **settings: Any
    ) -> None:
        super().__init__(client, consumer_arn, shard_id, place, **settings)
        self._called = self._began = float("-inf")  # the last call of SubscribeToShard, and the last success
        self._stream_of_events: Any = None
        self._events: Iterator[Any] = iter(())
        self._unread: list[dict[str, Any]] = []
        self._behind = 0
        self._at_end = False
        #: How many calls of SubscribeToShard were made.
        self.calls = 0

    def close(self) -> None:
        """End the subscription. A later fetch makes a new one."""
        stream, self._stream_of_events = self._stream_of_events, None
        if stream is not None:
            stream.close()

    async def _fetch_once(self, limit: int) -> GetRecordsPage:
        if not self._unread:
            event = await self._next_event()
            self._unread, self._behind = event.records, event.behind
            self._at_end = event.continuation is None
        records, self._unread = self._unread[:limit], self._unread[limit:]
        self.ended = self._at_end and not self._unread
        return GetRecordsPage(records, max(self._behind, 1) if self._unread else self._behind, self.ended)

    async def _next_event(self) -> ShardEvent:
        """Raises CallFailed, after which the next call makes a new subscription; and StreamUnavailable."""
        # EFO-4: "A subscription MUST be renewed before it is five minutes old."
        if self._stream_of_events is not None and self._clock() - self._began < RENEW_AFTER:
            event = await self._receive()
            if event is not None:  # else Kinesis has ended the subscription
                return event
        self.close()
        await self._subscribe()
        event = await self._receive()
        if event is None:
            ended = Failure("IncompleteAnswer", "a subscription ended before its first event")
            raise await self._close_failed(ended)
        return event

    async def _subscribe(self) -> None:
        # EFO-5: "A reader MUST NOT subscribe within 5 seconds of its last subscription, nor call more than
        # once a second."
        wait = max(self._began + REFUSED_FOR, self._called + _BETWEEN_CALLS) - self._clock()
        if wait > 0:
            await maybe_await(self._sleep(wait))
        self._called = self._clock()
        self.calls += 1
        names = {"ShardIteratorType": "Type", "StartingSequenceNumber": "SequenceNumber"}
        position = {names.get(name, name): value for name, value in iterator_arguments(self._place).items()}
        if self._place.kind == "LATEST":
            # If this subscription ends before its first event, a new LATEST would skip records.
            self._place = at_time(int(self._now() * 1000))
        try:
            answer = self._client.subscribe_to_shard(
                ConsumerARN=self._stream, ShardId=self.shard_id, StartingPosition=position
            )
        except _STREAM_ERRORS as error:
            raise await self._close_failed(failure_of(error)) from None
        self._began = self._clock()
        self._stream_of_events = answer["EventStream"]
        self._events = iter(self._stream_of_events)

    async def _receive(self) -> ShardEvent | None:
        try:
            event_message = next(self._events, None)
            if event_message is None:
                return None
            event = shard_event(event_message)
            self._stand_behind(event)
        except _STREAM_ERRORS as error:
            raise await self._close_failed(failure_of(error)) from None
        except EventError as error:
            raise await self._close_failed(Failure("IncompleteAnswer", str(error))) from None
        if event.continuation is None:
            self.close()
        return event

    def _stand_behind(self, event: ShardEvent) -> None:
        # EFO-3: "However a subscription ends, reading MUST go on right after the last event that was given."
        numbers = [record["SequenceNumber"] for record in event.records]
        if numbers and int(numbers[0]) < self._place.lowest:
            raise EventError(member="Records[].SequenceNumber", reason="lies before the place of the reader")
        furthest = max([*numbers[-1:], event.continuation or "0"], key=int)
        # A shard without records may say 0, which is no place.
        if int(furthest) >= max(self._place.lowest, 1):
            self._place = after_record(furthest)

    async def _close_failed(self, failure: Failure) -> CallFailed:
        self.close()
        if failure.code == "ResourceNotFoundException":
            # EFO-6: "A consumer that is not registered MUST NOT be taken for a shard that is gone."
            consumers = StreamConsumers(
                self._client, patience=self._patience, sleep=self._sleep, clock=self._clock
            )
            await consumers.checked(self._stream)
        return CallFailed("subscribe_to_shard", failure)


class StreamConsumers:
    """``patience``: seconds for which each method waits and retries. All raise StreamUnavailable."""

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

    def register(self, stream_arn: str, name: str) -> str:
        """The ARN of a stream's consumer of this name, once it is active; registered if there is none."""
        named = {"StreamARN": stream_arn, "ConsumerName": name}

        async def attempt() -> str:
            # EFO-7: "A consumer that is registered under the name MUST be used; only where there is none, one
            # may be registered."
            response = await self._call("describe_stream_consumer", **named)
            consumer = response["ConsumerDescription"] if response else {"ConsumerStatus": "not registered"}
            if consumer["ConsumerStatus"] == "ACTIVE":
                return str(consumer["ConsumerARN"])
            if not response:
                await self._call("register_stream_consumer", **named)
            raise _not_active(f"{name} is {consumer['ConsumerStatus']}")

        return run_sync(self._with_retries(attempt, stream_arn))

    def require_active(self, stream: str, consumer: str) -> str:
        """The ARN of ``consumer``, once it is active: an ARN, or a name, registered if it is not there.
        ``stream``: name or ARN."""
        if not consumer.startswith("arn:"):
            if not stream.startswith("arn:"):
                stream = str(self.describe_stream(stream)["StreamARN"])
            return self.register(stream, consumer)
        self.check(consumer)
        return consumer

    def check(self, consumer_arn: str) -> None:
        """Raises StreamUnavailable where the consumer is not active."""
        run_sync(self.checked(consumer_arn))

    async def checked(self, consumer_arn: str) -> None:
        """As `check`."""
        status = _status_of(await self._call("describe_stream_consumer", ConsumerARN=consumer_arn))
        if status != "ACTIVE":
            failed = _not_active(f"the consumer is {status or 'not registered'}")
            failed.permanent = True
            raise StreamUnavailable(stream=consumer_arn, **vars(failed))

    def status(self, consumer_arn: str) -> str | None:
        """ACTIVE, CREATING or DELETING; None where the consumer is not registered."""
        return _status_of(run_sync(self._call("describe_stream_consumer", ConsumerARN=consumer_arn)))

    def deregister(self, consumer_arn: str) -> None:
        run_sync(self._call("deregister_stream_consumer", ConsumerARN=consumer_arn))

    def describe_stream(self, stream: str) -> dict[str, Any]:
        """What DescribeStreamSummary says of a stream."""
        response: Any = run_sync(self._call("describe_stream_summary", **stream_of(stream).argument))
        return dict(response["StreamDescriptionSummary"])

    async def _call(self, operation: str, **arguments: str) -> Any:
        """The answer; None where the consumer is not there, or is being registered or deregistered."""
        # In use: another has just registered it, or it is being registered or deregistered.
        absent = ["ResourceInUseException"] if operation.endswith("_stream_consumer") else []
        if absent and operation != "register_stream_consumer":
            absent.append("ResourceNotFoundException")

        async def attempt() -> Any:
            try:
                return await call_service(self._client, operation, arguments)
            except CallFailed as failed:
                if failed.code in absent:
                    return None
                raise

        return await self._with_retries(attempt, next(iter(arguments.values())))

    async def _with_retries(
        self, attempt: Callable[[], Coroutine[Any, Any, _Result]], stream: str
    ) -> _Result:
        unavailable = partial(StreamUnavailable, stream=stream)
        return await call_with_retries(attempt, unavailable, self._patience, self._sleep, self._clock)


def _status_of(response: Any) -> str | None:
    return str(response["ConsumerDescription"]["ConsumerStatus"]) if response else None


def _not_active(reason: str) -> CallFailed:
    return CallFailed("describe_stream_consumer", Failure("ConsumerNotFound", reason))
