"""What a queue's consumer costs of CPU by itself, beside a plain loop: `python -m tests.benchmarks.queue`.

The answers are made before (10 aggregates of 100 user records of 100 bytes), and calls cost nothing: so this
is the consumer's own CPU, of all threads. The plain loop opens the same answers and calls the same handler;
they take turns. Exit status 1 if a consumer of single user records takes more than 20 µs for one.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import kpl_codec as kpl
from kpl_codec.adapters import kinesis_records
from kpl_codec.queues import aio, threaded_consumer

QUEUE = "arn:aws:kinesis:us-east-1:123456789012:queue/q"
ANSWERS, AGGREGATES, USERS, ROUNDS = 20, 10, 100, 7
MOST = 20.0


def answer(number: int) -> dict[str, Any]:
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    users = [kpl.UserRecord(f"customer-{user}", bytes(100)) for user in range(USERS)]
    data = kpl.encode(users)
    return {
        "QueueRecords": [
            {
                "ReceiptHandle": f"h{number}-{index}", "RecordId": f"r{number}x{index}", "PartitionKey": "a",
                "Data": data, "ApproximateArrivalTimestamp": now, "FirstReceiveTimestamp": now,
                "ReceiveCount": 1,
            }
            for index in range(AGGREGATES)
        ]
    }  # fmt: skip


class Client:
    """Gives the answers once, and takes every entry."""

    def __init__(self, answers: list[dict[str, Any]]) -> None:
        self._answers = iter(answers)

    def receive_queue_records(self, **_: Any) -> dict[str, Any]:
        return next(self._answers, {"QueueRecords": []})

    def acknowledge_queue_records(self, *, Entries: list[dict[str, Any]], **_: Any) -> dict[str, Any]:
        return {"Successful": Entries, "Failed": []}

    update_queue_records_visibility = acknowledge_queue_records


def handle(record: Any) -> None:
    pass


async def handle_async(record: Any) -> None:
    pass


def plain(answers: list[dict[str, Any]]) -> None:
    for one in answers:
        for record in kpl.deaggregate(list(kinesis_records(one))):
            handle(record)


def consumer(**options: Any) -> Callable[[list[dict[str, Any]]], None]:
    def run(answers: list[dict[str, Any]]) -> None:
        counts = threaded_consumer.process_queue_records(
            Client(answers), QUEUE, handle, drain=True, **options
        )
        assert counts.acknowledged == ANSWERS * AGGREGATES

    return run


def with_once(answers: list[dict[str, Any]]) -> None:
    done: set[str] = set()

    def once(key: str, call: Callable[[], object]) -> None:
        if key not in done:
            call()
            done.add(key)

    consumer(once=once)(answers)


def on_asyncio(answers: list[dict[str, Any]]) -> None:
    counts = asyncio.run(aio.process_queue_records(Client(answers), QUEUE, handle_async, drain=True))
    assert counts.acknowledged == ANSWERS * AGGREGATES


def main() -> int:
    answers = [answer(number) for number in range(ANSWERS)]
    contenders = {
        "plain loop": plain,
        "process_queue_records": consumer(),
        "  once=": with_once,
        "  batch=100": consumer(batch=100),
        "  asyncio": on_asyncio,
    }
    spent: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, run in contenders.items():
            began = time.process_time()
            run(answers)
            spent[name].append((time.process_time() - began) * 1e6 / (ANSWERS * AGGREGATES * USERS))
    base = statistics.median(spent["plain loop"])
    print(f"µs of CPU a user record, median of {ROUNDS} (least to most); {USERS} user records an aggregate")
    for name, times in spent.items():
        median = statistics.median(times)
        print(f"{name:24}{median:8.2f} ({min(times):.2f} to {max(times):.2f}){median - base:+8.2f}")
    return int(statistics.median(spent["process_queue_records"]) > MOST)


if __name__ == "__main__":
    sys.exit(main())
