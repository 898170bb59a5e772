"""One call to Kinesis, and what its failure means. Shared by the skins for threads and for asyncio.

What reads a stream is written once, as coroutines that await `maybe_await` calls and sleeps. With a client of
boto3 and `time.sleep` they never wait, and `run_sync` runs them as a function.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - see below
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from ..aws_errors import Backoff, is_permanent
from ..shards.live_shard_map import Failure, Request
from ..shards.stream_name import Stream, StreamNameError, stream_of

# PRD-74: "What the first call of a process loads MUST be loaded before a thread makes it." (A process that
# is forked in the middle of an import never ends it. That is the codec of host names, all else is loaded.)
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

#: Seconds between two attempts of a call.
BACKOFF: Final = Backoff(0.2, 5.0)


def call_errors() -> tuple[type[Exception], ...]:
    """The expected errors of a call: of the service, the client or the connection."""
    import asyncio  # whoever calls has loaded it and the parsers; a task of Spark may have nothing to call

    from botocore.parsers import ResponseParserError

    return ClientError, BotoCoreError, ResponseParserError, OSError, asyncio.TimeoutError


async def maybe_await(answer: Any) -> Any:
    """What a call or a sleep has given: awaited, unless it comes from boto3 or `time.sleep`."""
    return await answer if hasattr(answer, "__await__") else answer


async def async_sleep(seconds: float) -> None:
    """`asyncio.sleep`."""
    import asyncio  # as in `call_errors`

    await asyncio.sleep(seconds)


def run_sync(steps: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of a coroutine that never waits. Raises TypeError for one that does."""
    try:
        steps.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    steps.close()
    raise TypeError("the client is not of boto3: for one of aiobotocore there is kpl_codec.aws.aio")


def sync_function(
    function: Callable[_Arguments, Coroutine[Any, Any, _Result]],
) -> Callable[_Arguments, _Result]:
    """``function`` for a client of boto3: the same arguments and result, but it returns after it has waited,
    with `time.sleep`."""

    @wraps(function)
    def run(*args: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        options.setdefault("sleep", time.sleep)
        return run_sync(function(*args, **options))

    return _without_prefix(run)


def sync_generator(
    function: Callable[_Arguments, AsyncGenerator[_Result, None]],
) -> Callable[_Arguments, Iterator[_Result]]:
    """As `sync_function`, for an asynchronous generator."""

    @wraps(function)
    def run(*args: _Arguments.args, **options: _Arguments.kwargs) -> Iterator[_Result]:
        options.setdefault("sleep", time.sleep)
        generator = function(*args, **options)
        with suppress(StopAsyncIteration):
            while True:
                yield run_sync(generator.__anext__())

    return _without_prefix(run)


def _without_prefix(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    function.__name__ = function.__qualname__ = function.__name__.removeprefix("async_")
    return function


def failure_of(error: Exception, operation: str = "") -> Failure:
    """The AWS code of an error answer, else the name of the exception. ``operation``: the call that was made,
    GetRecords or get_records; an error of another one, such as AssumeRole, has that before its code."""
    if isinstance(error, ClientError):
        detail = error.response.get("Error", {})
        code = str(detail.get("Code") or "Unknown")
        other = str(error.operation_name)
        if operation and other.lower() != operation.replace("_", "").lower():
            code = f"{other}.{code}"
        return Failure(code, str(detail.get("Message") or ""))
    return Failure(type(error).__name__, str(error).partition("\n")[0])


class CallFailed(Exception):
    """A call has failed, or its answer was cut short. ``permanent``: a retry cannot help."""

    def __init__(self, operation: str, failure: Failure) -> None:
        super().__init__(operation, failure)
        self.operation = operation
        self.code, self.reason = failure
        self.permanent = is_permanent(*failure)


async def call_service(
    client: Any,
    operation: str,
    arguments: Mapping[str, Any],
    missing: Callable[[Mapping[str, Any]], str | None] = lambda answer: None,
) -> Mapping[str, Any]:
    """The answer of one call. ``missing``: the member that an answer lacks. Raises CallFailed."""
    try:
        answer: Mapping[str, Any] = await maybe_await(getattr(client, operation)(**arguments))
    except call_errors() as error:
        raise CallFailed(operation, failure_of(error, operation)) from None
    if member := missing(answer):
        raise CallFailed(operation, Failure("IncompleteAnswer", f"an answer without {member}"))
    return answer


async def call_with_retries(
    attempt: Callable[[], Coroutine[Any, Any, _Result]],
    unavailable: Callable[..., Exception],
    patience: float,
    sleep: Callable[[float], object],
    clock: Callable[[], float],
    chance: Callable[[], float] = lambda: 0.0,
) -> _Result:
    """What ``attempt`` gives, repeated with backoff for ``patience`` seconds after it first failed.

    Raises ``unavailable``, made of the members of its last CallFailed. ``sleep``: if it gives something true,
    no more attempt is made, and nothing ({}) is given."""
    failures, end = 0, 0.0
    while True:
        try:
            return await attempt()
        except CallFailed as failed:
            now, pause = clock(), BACKOFF.seconds(failures, chance())
            if not failures:  # counted from here: a single call may take longer than that
                end = now + patience
            if failed.permanent or now + pause > end:
                raise unavailable(**vars(failed)) from None
        if await maybe_await(sleep(pause)):
            return {}  # type: ignore[return-value]
        failures += 1


def stream_for(client: Any, stream: str) -> Stream:
    """The stream with this name or ARN, for calls of ``client``. Raises StreamNameError, also for a client of
    another region of AWS than that of the ARN."""
    named = stream_of(stream)
    meta = getattr(client, "meta", None)
    region = getattr(meta, "region_name", None)
    if named.region not in (None, region) and ".amazonaws." in str(getattr(meta, "endpoint_url", "")):
        raise StreamNameError(name=stream, reason=f"its client is for {region}: make one for {named.region}")
    return named


def send(client: Any, request: Request) -> Any:
    if request.operation == "ListShards":
        return client.list_shards(**request.arguments)
    return client.describe_stream_summary(**request.arguments)
