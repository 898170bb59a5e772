"""Async handlers: user records of different partition keys run in parallel, those of one key in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

from ..deaggregation.counts import Drop
from ..deaggregation.policies import Policy
from ..deaggregation.records import DeaggregatedRecord
from ..shards.shard_map import ShardMap
from .events import (
    AfterFailure,
    Poison,
    SeesEvents,
    ShardMaps,
    Unit,
    answer,
    check_after_failure,
    idempotency_key,
    log_exception,
    settle_poison,
    units,
)

AsyncHandler = Callable[[DeaggregatedRecord], Awaitable[object]]
AsyncOnce = Callable[[str, Callable[[], Awaitable[object]]], Awaitable[object]]
_Result = TypeVar("_Result")
_loop: asyncio.AbstractEventLoop | None = None


def run(coroutine: Coroutine[Any, Any, _Result]) -> _Result:
    """Run ``coroutine`` on the one event loop of this process.

    Clients made in one invocation work in the next, too; with asyncio.run they would not.
    """
    global _loop
    if _loop is None or _loop.is_closed():
        _loop = asyncio.new_event_loop()
    return _loop.run_until_complete(coroutine)


async def _handle(handler: AsyncHandler, record: DeaggregatedRecord) -> None:
    made = handler(record)
    if hasattr(made, "__await__"):  # a plain handler has already run
        await made


async def process_user_records(
    event: Mapping[str, Any],
    handler: AsyncHandler,
    *,
    concurrency: int = 10,
    after_failure: AfterFailure = "stop",
    on_poison: Callable[[Poison], object] | None = None,
    once: AsyncOnce | None = None,
    policy: Policy = "strict",
    shard_map: ShardMap | ShardMaps | None = None,
    on_drop: Callable[[Drop], None] | None = None,
    watch: SeesEvents | None = None,
    decompress: bool | int = False,
) -> dict[str, Any]:
    """Like `events.process_user_records`, with up to ``concurrency`` user records in parallel.

    User records of one partition key are handled one after the other, in order. After a failure running
    handlers finish, and no user record starts that must wait for the retry. Raises ValueError for a
    ``concurrency`` below 1.
    """
    if concurrency < 1:
        raise ValueError("concurrency: 1 or more")
    check_after_failure(after_failure)
    failed: dict[int, Unit] = {}
    poisoned: dict[int, Unit] = {}
    # User records in event order, by partition key: each lane runs in order.
    lanes: dict[str | None, list[tuple[int, Unit, DeaggregatedRecord]]] = {}
    gate = asyncio.Semaphore(concurrency)

    async def work(lane: list[tuple[int, Unit, DeaggregatedRecord]]) -> None:
        for index, unit, record in lane:
            async with gate:
                # LMB-14: "Of an async handler, user records of one partition key MUST be handled one after
                # the other, in order; after a failure every user record before the lowest failed Kinesis
                # record MUST still be handled."
                if after_failure == "stop" and failed and index >= min(failed):
                    return
                key = idempotency_key(record, unit.stream_arn)
                try:
                    call = partial(_handle, handler, record)
                    await (call() if once is None else once(key, call))
                except Exception:  # noqa: BLE001 - the caller's code: whatever it raises, the record failed
                    log_exception("user record failed: %s", key)
                    failed.setdefault(index, unit)
                    return

    async def run_lanes() -> None:
        await asyncio.gather(*map(work, lanes.values()))
        lanes.clear()

    for index, unit in enumerate(units(event, policy, shard_map, on_drop, decompress, watch)):
        if unit.poison is not None and after_failure == "continue":
            poisoned[index] = unit
        elif unit.poison is not None:
            # Whether anything after it may start is known when all before it has ended, and the hook, too.
            await run_lanes()
            if not failed and not settle_poison(unit.poison, on_poison):
                failed[index] = unit
            if failed:
                break
        for record in unit.user_records:
            lanes.setdefault(record.partition_key, []).append((index, unit, record))
    await run_lanes()
    for index, unit in poisoned.items():
        comes_again = bool(failed) and index > min(failed)
        if unit.poison is not None and not settle_poison(unit.poison, on_poison, comes_again=comes_again):
            failed[index] = unit
    return answer(failed[index].sequence_number for index in sorted(failed))
