"""Registers the consumers of a stream that read with enhanced fan-out, and looks them up.

    arn = register_consumer(client, stream_arn, "checker")       # or that of the consumer there is
    deregister_consumer(client, arn)

AWS charges for a consumer by the hour and shard while it is registered, and allows 20 per stream.
Specification: spec/11-enhanced-fan-out.md, EFO-6 and EFO-7.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from ..aws_errors import is_permanent
from ..backoff import Backoff
from ..shards.live_shard_map import Failure, StreamUnavailable
from .calls import CALL_ERRORS, failure_of, stream_argument

_BACKOFF: Final = Backoff(0.2, 5.0)
_NOT_FOUND: Final = "ResourceNotFoundException"
_IN_USE: Final = "ResourceInUseException"

Sleep = Callable[[float], None]
Clock = Callable[[], float]


def register_consumer(
    client: Any,
    stream_arn: str,
    name: str,
    *,
    may_register: bool = True,
    patience: float = 300.0,
    sleep: Sleep = time.sleep,
    clock: Clock = time.monotonic,
) -> str:
    """The ARN of a stream's consumer of this name, once it is active. It is registered if there is none and
    ``may_register``.

    ``patience``: seconds for which it waits and retries. Raises StreamUnavailable.
    """
    end, failures = clock() + patience, 0
    named = {"StreamARN": stream_arn, "ConsumerName": name}
    while True:
        # EFO-7: "A consumer that is registered under the name MUST be used; only where there is none, one may
        # be registered."
        found = _call(client, "describe_stream_consumer", end, sleep, clock, **named)
        consumer = found["ConsumerDescription"] if found else {"ConsumerStatus": "not registered"}
        if consumer["ConsumerStatus"] == "ACTIVE":
            return str(consumer["ConsumerARN"])
        if not found and may_register:
            _call(client, "register_stream_consumer", end, sleep, clock, **named)
        pause = _BACKOFF.seconds(failures)
        if clock() + pause > end or not (found or may_register):
            reason = f"{name} is {consumer['ConsumerStatus']}"
            raise _unavailable(stream_arn, "describe_stream_consumer", Failure("ConsumerNotFound", reason))
        sleep(pause)
        failures += 1


def active_consumer(
    client: Any, stream: str, consumer: str, *, may_register: bool = True, patience: float = 300.0
) -> str:
    """The ARN of ``consumer``, once it is active: an ARN, or a name, registered if it is not there.

    ``stream``: name or ARN. Raises StreamUnavailable.
    """
    if not consumer.startswith("arn:"):
        arn = _stream_arn(client, stream)
        return register_consumer(client, arn, consumer, may_register=may_register, patience=patience)
    status = consumer_status(client, consumer, patience=patience)
    if status != "ACTIVE":
        failure = Failure("ConsumerNotFound", f"the consumer is {status or 'not registered'}")
        raise _unavailable(consumer, "describe_stream_consumer", failure, permanent=True)
    return consumer


def _stream_arn(client: Any, stream: str) -> str:
    if stream.startswith("arn:"):
        return stream
    try:
        summary = client.describe_stream_summary(**stream_argument(stream))["StreamDescriptionSummary"]
        return str(summary["StreamARN"])
    except CALL_ERRORS as error:
        raise _unavailable(stream, "describe_stream_summary", failure_of(error)) from None


def consumer_status(
    client: Any,
    consumer_arn: str,
    *,
    patience: float = 300.0,
    sleep: Sleep = time.sleep,
    clock: Clock = time.monotonic,
) -> str | None:
    """ACTIVE, CREATING or DELETING; None where the consumer is not registered. Raises StreamUnavailable."""
    found = _call(
        client, "describe_stream_consumer", clock() + patience, sleep, clock, ConsumerARN=consumer_arn
    )
    return str(found["ConsumerDescription"]["ConsumerStatus"]) if found else None


def deregister_consumer(
    client: Any,
    consumer_arn: str,
    *,
    patience: float = 60.0,
    sleep: Sleep = time.sleep,
    clock: Clock = time.monotonic,
) -> None:
    """Deregister a consumer; nothing where there is none. Raises StreamUnavailable."""
    _call(client, "deregister_stream_consumer", clock() + patience, sleep, clock, ConsumerARN=consumer_arn)


def _call(client: Any, operation: str, end: float, sleep: Sleep, clock: Clock, **arguments: Any) -> Any:
    """The answer; None where the consumer is not there, or where it is being registered or deregistered."""
    failures = 0
    while True:
        try:
            return getattr(client, operation)(**arguments) or {}
        except CALL_ERRORS as error:
            failure = failure_of(error)
        if failure.code == _NOT_FOUND and operation != "register_stream_consumer":
            return None
        if failure.code == _IN_USE:
            return None  # another has just registered it, or it is being registered or deregistered
        pause = _BACKOFF.seconds(failures)
        if is_permanent(failure.code) or clock() + pause > end:
            raise _unavailable(arguments.get("StreamARN") or arguments["ConsumerARN"], operation, failure)
        sleep(pause)
        failures += 1


def _unavailable(
    stream: str, operation: str, failure: Failure, *, permanent: bool = False
) -> StreamUnavailable:
    return StreamUnavailable(
        stream=stream,
        operation=operation,
        code=failure.code,
        reason=failure.reason,
        permanent=permanent or is_permanent(failure.code),
    )
