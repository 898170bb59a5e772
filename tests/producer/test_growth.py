"""What many held or waiting user records cost: in proportion to their number, or nothing; in steps."""

from __future__ import annotations

import asyncio

import pytest

from kpl_codec.producer import AsyncProducer, ProducerConfig

from ..steps import steps
from .bench import HIGH, LOW, Bench
from .machine import held_by
from .model_client import AsyncModelClient, ModelClient


def turns_with_held(held: int) -> int:
    """Steps of ten turns while so many user records are held behind one key."""
    bench = Bench(ordering="partition-key", max_outstanding_records=10**6)
    for number in range(held):
        bench.put(b"%d" % number, LOW if number else None)
        if not number:
            bench.core.flush()
            bench.puts()  # under way: nothing may join it

    def turns() -> None:
        for _ in range(10):
            bench.core.requests(bench.now)
            bench.core.timer()
            bench.now += 1e-5

    taken = steps(turns)
    assert bench.core.outstanding == held
    return taken


def test_held_user_records_cost_a_turn_nothing() -> None:
    assert turns_with_held(5000) < 2 * turns_with_held(10)


def steps_of_waiting_tasks(tasks: int) -> int:
    """Steps until so many tasks, which wait for room, have delivered."""

    async def main() -> None:
        client = AsyncModelClient(ModelClient(1))
        config = ProducerConfig(max_outstanding_records=10, record_max_buffered_time_ms=0)
        async with AsyncProducer("s", client=client, config=config) as producer:  # type: ignore[arg-type]
            await producer.wait_ready(10)

            async def one() -> None:
                await (await producer.put("k", b"x"))

            await asyncio.gather(*(one() for _ in range(tasks)))

    return steps(lambda: asyncio.run(main()))


def test_waiting_tasks_cost_in_proportion_to_their_number() -> None:
    # Eight times the tasks; quadratic would be 64.
    assert steps_of_waiting_tasks(400) < 24 * steps_of_waiting_tasks(50)


@pytest.mark.requirement("PRD-66")
def test_one_that_stays_keeps_nothing_of_those_that_have_left() -> None:
    """A quiet shard with an open aggregate, and a busy one whose aggregates are full and delivered."""
    bench = Bench(record_max_buffered_time_ms=600_000, record_ttl_ms=10**9, aggregation_max_size=1000)
    bench.put(b"stays", HIGH)
    for number in range(5000):
        bench.put(b"%d" % number * 100, LOW)
        bench.run(0.01)
    held, entries = held_by(bench.core)
    assert held == bench.core.outstanding < 20
    assert entries < 400
