"""What many held or waiting user records cost: in proportion to their number, or nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from kpl_codec.aws import AsyncProducer
from kpl_codec.producer import ProducerConfig

from ..aws.model_client import AsyncModelClient, ModelClient
from .bench import LOW, Bench


def least(seconds_of: Callable[[int], float], size: int) -> float:
    return min(seconds_of(size) for _ in range(3))


def turns_with_held(held: int) -> float:
    """Processor time of 100 turns while so many user records are held behind one key."""
    bench = Bench(ordering="partition-key", max_outstanding_records=10**6)
    for number in range(held):
        bench.put(b"%d" % number, LOW if number else None)
        if not number:
            bench.core.flush()
            bench.puts()  # under way: nothing may join it
    started = time.process_time()
    for _ in range(100):
        bench.core.requests(bench.now)
        bench.core.timer()
        bench.now += 1e-5
    taken = time.process_time() - started
    assert bench.core.outstanding == held
    return taken


def test_held_user_records_cost_a_turn_nothing() -> None:
    few, many = least(turns_with_held, 500), least(turns_with_held, 20_000)
    assert many < 8 * few + 0.01  # looking at each would be 40 times as much


def seconds_of_waiting_tasks(tasks: int) -> float:
    """Processor time until so many tasks, which wait for room, have delivered."""

    async def main() -> float:
        client = AsyncModelClient(ModelClient(1))
        config = ProducerConfig(max_outstanding_records=10, record_max_buffered_time=0)
        async with AsyncProducer("s", client=client, config=config) as producer:  # type: ignore[arg-type]
            await producer.wait_ready(10)

            async def one() -> None:
                await (await producer.put("k", b"x"))

            started = time.process_time()
            await asyncio.gather(*(one() for _ in range(tasks)))
            return time.process_time() - started

    return asyncio.run(main())


def test_waiting_tasks_cost_in_proportion_to_their_number() -> None:
    few, many = (least(seconds_of_waiting_tasks, tasks) for tasks in (200, 1600))
    assert many < 24 * few  # eight times the tasks; quadratic would be 64
