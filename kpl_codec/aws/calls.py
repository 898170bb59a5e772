"""Makes calls to Kinesis with boto3 or aiobotocore: retries, and the meaning of failures.

Functions that make calls are coroutine functions, which await `maybe_await` of each call and sleep. With a
client of boto3 and `time.sleep` such a coroutine never waits, so `run_sync` returns its result.
`sync_function`, `sync_generator` and `async_function` make public functions of coroutine functions whose
first argument is what to sleep with.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - see below
import inspect
import logging
import re
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from ..aws_errors import Backoff, is_permanent
from ..base.arguments import check_arguments, check_keywords
from ..base.lazy import require_extras
from ..shards.live_shard_map import Failure, Request
from ..shards.stream_name import Stream, StreamNameError, stream_of

with require_extras("kpl_codec.aws"):
    from botocore.exceptions import BotoCoreError, ClientError

# PRD-74: "What the first call of a process loads MUST be loaded before a thread makes it." (A process that
# is forked in the middle of an import never ends it. botocore loads all but the codec of host names.)
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
#: Waits for so many seconds: `time.sleep`, or a coroutine function.
Sleep = Callable[[float], object]
_log = logging.getLogger("kpl_codec.aws")

#: Seconds between two attempts of a call.
BACKOFF: Final = Backoff(0.2, 5.0)
#: A call that fails is logged after so many seconds, if it is tried again for as long.
_SILENCE: Final = 10.0
#: Seconds between two such lines of a process.
_BETWEEN_LINES: Final = 60.0
_last_line = float("-inf")


def call_errors() -> tuple[type[Exception], ...]:
    """The errors that a call may raise: of the service, the client or the connection."""
    import asyncio  # imported late: a task of Spark may make no call

    from botocore.parsers import ResponseParserError

    return ClientError, BotoCoreError, ResponseParserError, OSError, asyncio.TimeoutError


async def maybe_await(result: Any) -> Any:
    """``result``, awaited if it is an awaitable of aiobotocore or asyncio."""
    return await result if hasattr(result, "__await__") else result


async def async_sleep(seconds: float) -> None:
    """As `asyncio.sleep`; asyncio is imported at the first call."""
    import asyncio  # as in `call_errors`

    await asyncio.sleep(seconds)


def run_sync(steps: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of a coroutine that never waits. Raises TypeError for a coroutine that waits: its client
    is aiobotocore's."""
    try:
        steps.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    steps.close()
    raise TypeError("this client is not one of boto3: with aiobotocore use kpl_codec.aws.aio")


def sync_function(
    function: Callable[Concatenate[Sleep, _Arguments], Coroutine[Any, Any, _Result]],
) -> Callable[_Arguments, _Result]:
    """A plain function like ``function``, for a client of boto3: it waits with `time.sleep`."""
    return _public(function, run_sync)


def sync_generator(
    function: Callable[Concatenate[Sleep, _Arguments], AsyncGenerator[_Result, None]],
) -> Callable[_Arguments, Iterator[_Result]]:
    """A plain generator like ``function``, which is an asynchronous one."""
    return _public(function, _steps_of)


def async_function(
    function: Callable[Concatenate[Sleep, _Arguments], _Result],
) -> Callable[_Arguments, _Result]:
    """``function`` for asyncio."""
    return _public(function, None)


def _steps_of(generator: AsyncGenerator[_Result, None]) -> Iterator[_Result]:
    with suppress(StopAsyncIteration):
        while True:
            yield run_sync(generator.__anext__())


def _public(
    function: Callable[Concatenate[Sleep, _Arguments], Any], run: Callable[[Any], _Result] | None
) -> Callable[_Arguments, _Result]:
    """``function`` with its arguments checked when it is called. ``run``: what makes a plain result of its
    coroutine; None: for asyncio."""
    name = function.__name__.removeprefix("async_")
    signature = inspect.signature(function)
    _, *parameters = signature.parameters.values()

    @wraps(function)
    def call(*args: _Arguments.args, **options: _Arguments.kwargs) -> Any:
        check_keywords(name, options, function)
        given = {**dict(zip(shown.parameters, args, strict=False)), **options}
        check_arguments(name, given, required=("client", "shard_id"), awaits=run is None)
        if run is None:
            return function(async_sleep, *args, **options)
        return run(function(time.sleep, *args, **options))

    # What errors and help() show: the public name and signature. (`wraps` gives those of ``function``.)
    call.__name__ = call.__qualname__ = name
    returns = signature.return_annotation
    if run is not None:
        returns = re.sub(r"^AsyncGenerator\[(.*), None\]$", r"Iterator[\1]", returns)
    shown = signature.replace(parameters=parameters, return_annotation=returns)
    call.__signature__ = shown  # type: ignore[attr-defined]
    return call


def failure_of(error: Exception, operation: str = "") -> Failure:
    """The AWS code of an error response, with its call if that is not ``operation``; else the exception's
    name."""
    if isinstance(error, ClientError):
        detail = error.response.get("Error", {})
        code = str(detail.get("Code") or "Unknown")
        failed_operation = str(error.operation_name)
        if operation and failed_operation.lower() != operation.replace("_", "").lower():
            code = f"{failed_operation}.{code}"
        return Failure(code, str(detail.get("Message") or ""))
    return Failure(type(error).__name__, str(error).partition("\n")[0])


class CallFailed(Exception):
    """A call failed, or its response was truncated. ``permanent``: a retry cannot help."""

    def __init__(self, operation: str, failure: Failure) -> None:
        super().__init__(operation, failure)
        self.operation = operation
        self.code, self.reason = failure
        self.permanent = is_permanent(*failure)


async def call_service(
    client: Any,
    operation: str,
    arguments: Mapping[str, Any],
    missing: Callable[[Mapping[str, Any]], str | None] = lambda response: None,
) -> Mapping[str, Any]:
    """The response of one call. ``missing``: a function that returns the name of a member that a response
    lacks, else None. Raises CallFailed."""
    try:
        response: Mapping[str, Any] = await maybe_await(getattr(client, operation)(**arguments))
    except call_errors() as error:
        raise CallFailed(operation, failure_of(error, operation)) from None
    if member := missing(response):
        raise CallFailed(operation, Failure("IncompleteAnswer", f"an answer without {member}"))
    return response


async def call_with_retries(
    attempt: Callable[[], Coroutine[Any, Any, _Result]],
    unavailable: Callable[..., Exception],
    patience: float,
    sleep: Callable[[float], object],
    clock: Callable[[], float],
    chance: Callable[[], float] = lambda: 0.0,
) -> _Result:
    """The result of ``attempt``, repeated with backoff for ``patience`` seconds after its first failure; {}
    if ``sleep`` returns something true. Raises what ``unavailable`` makes of the last CallFailed."""
    failures, begun, end = 0, clock(), 0.0
    while True:
        try:
            return await attempt()
        except CallFailed as failed:
            now, pause = clock(), BACKOFF.seconds(failures, chance())
            if not failures:  # counted from here: a single call may take longer than that
                end = now + patience
            if failed.permanent or now + pause > end:
                raise unavailable(**vars(failed)) from None
            log_retries(unavailable(**vars(failed)), now - begun, end - now)
        if await maybe_await(sleep(pause)):
            return {}  # type: ignore[return-value]
        failures += 1


def log_retries(error: Exception, failing: float, remaining: float) -> None:
    """Log the ``error`` of a call that has failed for ``failing`` seconds, and is repeated for ``remaining``
    seconds more."""
    # MAP-26: "A reader whose calls fail for 10 seconds MUST log why, and for how long it tries again."
    global _last_line
    now = time.monotonic()
    if min(failing, remaining) >= _SILENCE and now - _last_line >= _BETWEEN_LINES:
        _last_line = now
        _log.warning("for %.0f s: %s; tried again for %.0f s more", failing, error, remaining)


def check_first(client: Any) -> None:
    """Raises TypeError for a text where a client belongs."""
    if isinstance(client, str):
        raise TypeError("the client is the first argument, and the stream comes after it")


def stream_for(client: Any, stream: str) -> Stream:
    """The stream with this name or ARN. Raises StreamNameError, also for an ARN of another region than that
    of ``client``; TypeError for arguments in the other order."""
    check_first(client)
    result = stream_of(stream)
    meta = getattr(client, "meta", None)
    region = getattr(meta, "region_name", None)
    if result.region not in (None, region) and ".amazonaws." in str(getattr(meta, "endpoint_url", "")):
        raise StreamNameError(name=stream, reason=f"its client is for {region}: make one for {result.region}")
    return result


def send(client: Any, request: Request) -> Any:
    """The response (aiobotocore: its awaitable) of the call that a live shard map wants."""
    if request.operation == "ListShards":
        return client.list_shards(**request.arguments)
    return client.describe_stream_summary(**request.arguments)
