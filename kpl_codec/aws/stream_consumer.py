"""Registers the consumers of a stream that read with enhanced fan-out, and looks them up.

    consumers = StreamConsumers(client)
    arn = consumers.register(stream_arn, "checker")       # or that of the consumer there is
    consumers.deregister(arn)

AWS charges for a consumer by the hour and shard while it is registered, and allows 20 per stream.
Specification: spec/11-enhanced-fan-out.md, EFO-6 and EFO-7.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from ..aws_errors import Backoff, is_permanent
from ..shards.live_shard_map import StreamUnavailable
from ..shards.stream import stream_of
from .calls import call_errors, failure_of

_BACKOFF: Final = Backoff(0.2, 5.0)
_NOT_FOUND: Final = "ResourceNotFoundException"
_IN_USE: Final = "ResourceInUseException"


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
        end, failures = self._clock() + self._patience, 0
        named = {"StreamARN": stream_arn, "ConsumerName": name}
        while True:
            # EFO-7: "A consumer that is registered under the name MUST be used; only where there is none, one
            # may be registered."
            found = self._call("describe_stream_consumer", **named)
            consumer = found["ConsumerDescription"] if found else {"ConsumerStatus": "not registered"}
            if consumer["ConsumerStatus"] == "ACTIVE":
                return str(consumer["ConsumerARN"])
            if not found:
                self._call("register_stream_consumer", **named)
            pause = _BACKOFF.seconds(failures)
            if self._clock() + pause > end:
                raise not_active(stream_arn, f"{name} is {consumer['ConsumerStatus']}", permanent=False)
            self._sleep(pause)
            failures += 1

    def active(self, stream: str, consumer: str) -> str:
        """The ARN of ``consumer``, once it is active: an ARN, or a name, registered if it is not there.
        ``stream``: name or ARN."""
        if not consumer.startswith("arn:"):
            return self.register(self._stream_arn(stream), consumer)
        status = self.status(consumer)
        if status != "ACTIVE":
            raise not_active(consumer, f"the consumer is {status or 'not registered'}")
        return consumer

    def status(self, consumer_arn: str) -> str | None:
        """ACTIVE, CREATING or DELETING; None where the consumer is not registered."""
        found = self._call("describe_stream_consumer", ConsumerARN=consumer_arn)
        return str(found["ConsumerDescription"]["ConsumerStatus"]) if found else None

    def deregister(self, consumer_arn: str) -> None:
        self._call("deregister_stream_consumer", ConsumerARN=consumer_arn)

    def _stream_arn(self, stream: str) -> str:
        if stream.startswith("arn:"):
            return stream
        return str(self.summary(stream)["StreamARN"])

    def summary(self, stream: str) -> dict[str, Any]:
        """What DescribeStreamSummary says of a stream."""
        found: Any = self._call("describe_stream_summary", **stream_of(stream).argument)
        return dict(found["StreamDescriptionSummary"])

    def _call(self, operation: str, **arguments: str) -> Any:
        """The answer; None where the consumer is not there, or is being registered or deregistered."""
        failures, end = 0, self._clock() + self._patience
        while True:
            try:
                return getattr(self._client, operation)(**arguments) or {}
            except call_errors() as error:
                failure = failure_of(error)
            of_consumer = operation.endswith("_stream_consumer")
            if failure.code == _NOT_FOUND and of_consumer and operation != "register_stream_consumer":
                return None
            if failure.code == _IN_USE and of_consumer:
                return None  # another has just registered it, or it is being registered or deregistered
            pause = _BACKOFF.seconds(failures)
            permanent = is_permanent(failure.code)
            if permanent or self._clock() + pause > end:
                raise StreamUnavailable(
                    stream=next(iter(arguments.values())),
                    operation=operation,
                    **failure._asdict(),
                    permanent=permanent,
                )
            self._sleep(pause)
            failures += 1


def not_active(consumer: str, reason: str, *, permanent: bool = True) -> StreamUnavailable:
    return StreamUnavailable(
        stream=consumer,
        operation="describe_stream_consumer",
        code="ConsumerNotFound",
        reason=reason,
        permanent=permanent,
    )
