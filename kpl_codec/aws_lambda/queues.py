"""A consumer of a queue with boto3, in this thread; a second one extends the visibility meanwhile.

    from kpl_codec.aws_lambda.queues import process_queue_records

    counts = process_queue_records(client, queue_arn, handle)      # until SIGTERM

To handle several Kinesis records at a time, run it in several threads or processes: they share the queue.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..aws.calls import finished
from .batch import Once, done
from .queue_consumer import QueueConsumer, Received
from .queue_options import QUEUE_METRICS, QueueCounts, QueueOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["QUEUE_METRICS", "QueueCounts", "QueueOptions", "process_queue_records"]

#: Takes a user record; with ``batch`` a list of them.
QueueHandler = Callable[[Any], object]


def process_queue_records(
    client: Any,
    queue: str,
    handle: QueueHandler,
    *,
    once: Once | None = None,
    stop: threading.Event | None = None,
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
    stop = stop or threading.Event()
    consumer = _Threads(client, queue, handle, once, stop, clock, sleep, **options)
    with SIGTERM.calls(stop.set):
        return finished(consumer.run())


class Sigterm:
    """Calls the ``stop`` of every consumer in the main thread; without any, SIGTERM means what it meant."""

    def __init__(self) -> None:
        self._stops: dict[object, Callable[[], object]] = {}
        self._before: Any = None

    def _came(self, *_: object) -> None:
        for stop in list(self._stops.values()):
            stop()

    @contextmanager
    def calls(self, stop: Callable[[], object]) -> Iterator[None]:
        """While something runs, call ``stop``."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        if not self._stops:
            self._before = signal.signal(signal.SIGTERM, self._came)
        me = object()
        self._stops[me] = stop
        try:
            yield
        finally:
            del self._stops[me]
            if not self._stops:
                signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)


SIGTERM = Sigterm()


class _Threads(QueueConsumer):
    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._lock = threading.Lock()

    async def result(self, made: object) -> None:
        done(made)

    def nested(self, steps: Coroutine[Any, Any, None]) -> None:
        finished(steps)

    async def all_of(self, records: list[Received]) -> None:
        with beating(lambda: finished(self.beat()), self.beat_seconds):
            for received in records:
                await self.one(received)
                await self.acknowledge()

    async def acknowledge(self, **how: Any) -> None:
        with self._lock:  # the other thread does it, too
            await super().acknowledge(**how)

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
