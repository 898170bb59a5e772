"""Async handlers: user records of different partition keys run in parallel, those of one key in order.

An event with two user records of two customers:

    >>> import kpl_codec as kpl
    >>> from kpl_codec.adapters import to_lambda
    >>> stream = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
    >>> data = kpl.encode([kpl.UserRecord("customer-1", b"one"), kpl.UserRecord("customer-2", b"two")])
    >>> record = kpl.KinesisRecord("a", data, "5", "shardId-000000000000")
    >>> event = to_lambda([record], stream_arn=stream)
    >>> from kpl_codec.aws_lambda.aio import process_user_records, run
    >>> async def store(record: kpl.DeaggregatedRecord) -> None:
    ...     print(record.partition_key)
    >>> run(process_user_records(event, store, concurrency=50))
    customer-1
    customer-2
    {'batchItemFailures': []}
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..base.lazy import public_names
from ..deaggregation.deaggregated_record import DeaggregatedRecord
from .batch import AfterFailure, HandlerCall, Invocation, check_has_run, handled_here
from .events import check_options, records_of_event, refuse_window

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .events import HandlerOptions

__all__ = ["process_user_records", "run"]
__dir__ = public_names(__name__)

AsyncHandler = Callable[[DeaggregatedRecord], Awaitable[object]]
AsyncOnce = Callable[[str, Callable[[], Awaitable[object]]], Awaitable[object]]
_Result = TypeVar("_Result")
_loop: asyncio.AbstractEventLoop | None = None


def run(coroutine: Coroutine[Any, Any, _Result]) -> _Result:
    """Run ``coroutine`` on the one event loop of this process, so that clients work in later invocations,
    too."""
    global _loop
    if _loop is None or _loop.is_closed():
        _loop = asyncio.new_event_loop()
    return _loop.run_until_complete(coroutine)


async def finish(result: object) -> None:
    """Await the result of a handler. A handler that is not async has already run. Raises TypeError for a
    generator."""
    if hasattr(result, "__await__"):
        await result
    else:
        check_has_run(result)


async def gather(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines in parallel. If one raises, the others are cancelled, and end before the error is
    raised."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def process_user_records(
    event: Any,
    handler: AsyncHandler,
    *,
    concurrency: int = 10,
    after_failure: AfterFailure = "stop",
    once: AsyncOnce | None = None,
    **options: Unpack[HandlerOptions],
) -> dict[str, Any]:
    """Like `kpl_codec.aws_lambda.process_user_records`, with up to ``concurrency`` user records in parallel,
    those of one partition key one after the other, in order.

    After a failure the running handlers finish, and no user record starts that Lambda sends again. Raises
    ValueError for a ``concurrency`` below 1.
    """
    given = {"handler": handler, "concurrency": concurrency, "after_failure": after_failure, "once": once}
    check_options("process_user_records", options, process_user_records, awaits=True, **given)
    refuse_window(event)
    records = partial(records_of_event, event, once is not None or options.get("ledger") is not None)
    batch = Invocation(records, after_failure=after_failure, **options)
    batch.known = handled_here(once)
    lanes: dict[str | None, list[HandlerCall]] = {}  # by partition key
    gate = asyncio.Semaphore(concurrency)

    async def handle(record: DeaggregatedRecord) -> None:
        await finish(handler(record))
        batch.end(record)

    def begin(record: DeaggregatedRecord) -> Coroutine[Any, Any, None]:
        batch.begin(record)
        return handle(record)

    async def work(lane: list[HandlerCall]) -> None:
        for call in lane:
            async with gate:
                if not batch.may_start(call):
                    return
                run = partial(begin, call.record)
                try:
                    if not batch.is_known(call):
                        await (run() if once is None else once(call.key, run))
                    batch.succeed(call)
                except Exception as error:  # noqa: BLE001 - the caller's code: whatever it raises, the record failed
                    batch.fail(error, call)

    async def run_lanes() -> None:
        await gather(map(work, lanes.values()))
        lanes.clear()

    for call in batch.calls():
        if call is None:
            await run_lanes()
        else:
            lanes.setdefault(call.record.partition_key, []).append(call)
    await run_lanes()
    return batch.response()
