"""What the producers take at a steady rate, against a stub: how long user records are buffered, and CPU time.

    python -m tests.benchmarks.producer_steady [--rate 20000] [--seconds 10] [--shards 4] [--held 800000]

buffered: milliseconds from put to request, the median and 99 of 100, where 100 are asked and calls take
30 ms; and CPU time, in percent of a core. outage: CPU time while all calls fail, so many user records are
held, and more are put. User records have 100 bytes and one of 512 keys. Each line is a process of its own;
what the loop that puts takes without a producer is measured before, and left out.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kpl_codec.producer import AsyncProducer, Producer, ProducerConfig

from .producer_calls import Calls, Stub
from .producers import NO_SERVER

DATA = b"x" * 100
KEYS = [f"key-{number}" for number in range(512)]


def due(rate: int, seconds: float) -> Iterator[range]:
    """The numbers of the user records to put now; then the caller sleeps for a millisecond."""
    done, begun = 0, time.monotonic()
    while (passed := time.monotonic() - begun) < seconds:
        yield range(done, done := int(passed * rate))


async def nothing(*_: Any) -> None: ...


async def awaited(put: Callable[..., Any], rate: int, seconds: float) -> float:
    """CPU seconds."""
    cpu = time.process_time()
    for numbers in due(rate, seconds):
        for number in numbers:
            await put(KEYS[number % 512], DATA)
        await asyncio.sleep(0.001)
    return time.process_time() - cpu


def called(put: Callable[..., Any], rate: int, seconds: float) -> float:
    """CPU seconds."""
    cpu = time.process_time()
    for numbers in due(rate, seconds):
        for number in numbers:
            put(KEYS[number % 512], DATA)
        time.sleep(0.001)
    return time.process_time() - cpu


async def asyncio_skin(producer: AsyncProducer, rate: int, seconds: float, held: int) -> float:
    await awaited(nothing, rate, 1.0)
    loop = await awaited(nothing, rate, seconds)
    await producer.wait_ready(30)
    for number in range(held):
        await producer.put(KEYS[number % 512], DATA)
    await awaited(producer.put, rate, 2.0)
    return await awaited(producer.put, rate, seconds) - loop


def threads_skin(producer: Producer, rate: int, seconds: float, held: int) -> float:
    called(lambda *_: None, rate, 1.0)
    loop = called(lambda *_: None, rate, seconds)
    producer.wait_ready(30)
    for number in range(held):
        producer.put(KEYS[number % 512], DATA)
    called(producer.put, rate, 2.0)
    return called(producer.put, rate, seconds) - loop


def run(skin: str, rate: int, seconds: float, shards: int, held: int) -> None:
    """One line of the table, in this process."""
    logging.disable()
    Stub(shards, Calls(), seconds=0.03, outage=bool(held)).install()
    waited: list[float] = []

    def observe(name: str, value: float, _: Mapping[str, str]) -> None:
        if name == "BufferingTime":
            waited.append(value)

    config = ProducerConfig(
        rate_limit=2**40, max_outstanding_records=10**8, max_outstanding_bytes=2**40, record_ttl_ms=3_600_000
    )
    options: dict[str, Any] = {"client_settings": NO_SERVER, "config": config}
    options |= {} if held else {"observe": observe}
    if skin == "threads":
        cpu = threads_skin(Producer("none", **options), rate, seconds, held)
    else:

        async def main() -> float:
            return await asyncio_skin(AsyncProducer("none", **options), rate, seconds, held)

        cpu = asyncio.run(main())
    line = f"{skin:8} {'outage' if held else 'buffered':9} {100 * cpu / seconds:5.1f} % of a core"
    if waited:
        p99 = statistics.quantiles(waited, n=100)[98]
        line += f", {statistics.median(waited):5.0f} ms, 99 of 100 within {p99:.0f} ms"
    print(line, flush=True)
    os._exit(0)  # what is held needs no result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", type=int, default=20_000, help="user records a second")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--held", type=int, default=800_000, help="user records that are held in the outage")
    parser.add_argument("--line", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.line:
        run(args.line[0], args.rate, args.seconds, args.shards, int(args.line[1]))
    for held in (0, args.held):
        for skin in ("threads", "asyncio"):
            command = [sys.executable, "-m", "tests.benchmarks.producer_steady", *sys.argv[1:]]
            subprocess.run([*command, "--line", skin, str(held)], check=True)


if __name__ == "__main__":
    main()
