"""A consumer of a queue with boto3, in this thread; a second one extends the visibility meanwhile.

    from kpl_codec.aws_lambda.queues import process_queue_records

    counts = process_queue_records(client, queue_arn, handle)      # until SIGTERM

To handle several Kinesis records at a time, run it in several threads or processes: they share the queue.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from ..aws.calls import finished
from ..aws.queues import check_client
from .batch import Once, done
from .queue_core import QUEUE_METRICS, QueueConsumer, QueueCounts, QueueOptions, Received
from .queue_skin import SIGTERM, Skin

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["QUEUE_METRICS", "QueueCounts", "QueueOptions", "process_queue_records"]

#: Takes a user record; with ``batch`` a list of them.
QueueHandler = Callable[[Any], object]


class Stop(Protocol):
    """Says when to end, as a `threading.Event` does."""

    def is_set(self) -> bool: ...
    def set(self) -> None: ...
    def wait(self, timeout: float) -> object: ...


def process_queue_records(
    client: Any,
    queue: str,
    handle: QueueHandler,
    *,
    once: Once | None = None,
    stop: Stop | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
    **options: Unpack[QueueOptions],
) -> QueueCounts:
    """Give ``handle`` each user record of a queue, until ``stop`` is set or the main thread gets SIGTERM.

    ``client``: a boto3 client of Kinesis, 1.44 or newer; ``queue``: the queue's ARN. An aggregate is
    acknowledged when all its user records were handled; if one fails, all come again. ``once``: as in
    `process_user_records`, so that those that were handled are not handled again. The others: `QueueOptions`.

    Any exception of ``handle`` is a failure; it is logged. Raises QueuesUnsupported, QueueUnavailable,
    ValueError for options out of range, and what ends a process (KeyboardInterrupt) after all that was
    received is settled.
    """
    check_client(client)
    consumer = QueueConsumer(queue, once=once is not None, **options)
    stop = stop or threading.Event()
    with SIGTERM.calls(stop.set):
        return finished(_Threads(client, consumer, handle, once, stop, clock, sleep).run())


class _Threads(Skin):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given[:-1])
        self._sleep = given[-1]
        self._lock = threading.Lock()

    async def result(self, made: object) -> None:
        done(made)

    def nested(self, steps: Coroutine[Any, Any, None]) -> None:
        finished(steps)

    async def all_of(self, records: list[Received]) -> None:
        with beating(lambda: finished(self.beat()), self.consumer.beat):
            for received in records:
                await self.one(received)
                await self.acknowledge()

    async def acknowledge(self, **how: Any) -> None:
        with self._lock:  # the other thread does it, too
            await super().acknowledge(**how)

    def sleep(self, seconds: float) -> None:
        self._sleep(seconds)

    def wait(self, seconds: float) -> Any:
        return self.stop.wait(seconds)


@contextmanager
def beating(beat: Callable[[], None], interval: float) -> Iterator[None]:
    """Calls ``beat`` every ``interval`` seconds in a thread."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(interval):
            beat()

    thread = threading.Thread(target=run, name="kpl-codec queue", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
