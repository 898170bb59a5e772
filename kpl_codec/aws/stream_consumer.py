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
from typing import Any

from ..shards.live_shard_map import StreamUnavailable
from ..shards.stream import stream_of
from .calls import BACKOFF, CallFailed, asked, finished, tried


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
            pause = BACKOFF.seconds(failures)
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
        found = self._call("describe_stream_summary", **stream_of(stream).argument)
        return str(found["StreamDescriptionSummary"]["StreamARN"])

    def _call(self, operation: str, **arguments: str) -> Any:
        """The answer; None where the consumer is not there, or is being registered or deregistered."""
        # In use: another has just registered it, or it is being registered or deregistered.
        absent = ["ResourceInUseException"] if operation.endswith("_stream_consumer") else []
        if absent and operation != "register_stream_consumer":
            absent.append("ResourceNotFoundException")

        async def attempt() -> Any:
            try:
                return await asked(self._client, operation, arguments)
            except CallFailed as failed:
                if failed.code in absent:
                    return None
                raise

        try:
            return finished(tried(attempt, self._patience, self._sleep, self._clock))
        except CallFailed as failed:
            raise StreamUnavailable(stream=next(iter(arguments.values())), **vars(failed)) from None


def not_active(consumer: str, reason: str, *, permanent: bool = True) -> StreamUnavailable:
    return StreamUnavailable(
        stream=consumer,
        operation="describe_stream_consumer",
        code="ConsumerNotFound",
        reason=reason,
        permanent=permanent,
    )
