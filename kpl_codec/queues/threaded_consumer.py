"""A consumer of a queue with boto3, in this thread; a second one extends the visibility meanwhile.

    from kpl_codec.queues.threaded_consumer import process_queue_records

    counts = process_queue_records(client, queue_arn, handle)      # until SIGTERM

To handle several Kinesis records at a time, run it in several threads or processes: they share the queue.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypedDict

from ..aws.calls import run_sync
from ..aws_lambda.batch import AfterFailure, Once, Poison, check_has_run
from ..deaggregation.deaggregated_record import Drop
from ..deaggregation.policy_rules import Policy
from .queue_consumer import QUEUE_METRICS, Observe, QueueConsumer, QueueCounts, Received

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..ledger.ledger import Ledger
    from ..schema_registry import Unframe

__all__ = ["QUEUE_METRICS", "QueueCounts", "QueueOptions", "process_queue_records"]


class QueueOptions(TypedDict, total=False):
    """Options of both consumers.

    * ``batch``: ``handle`` takes a list of at most so many user records of one aggregate (with ``once`` of
      one); if it fails, all of them have failed;
    * ``after_failure``, ``policy``, ``on_drop``, ``max_decompressed_size``, ``unframe``: as in
      `kpl_codec.aws_lambda.process_user_records`, within each aggregate;
    * ``on_poison``: takes Kinesis records that cannot be opened, and from delivery number ``poison_after`` on
      (5; the queue makes dead letters after 6) the user records that fail; then they are handled one by one.
      If it does not raise, they count as handled, and the rest of their aggregate is not held up;
    * ``visibility``: seconds (30) for which others do not get what was received; extended while it is
      handled. If this process dies, they get it after so long;
    * ``wait``: seconds (9) that a call waits for records, and a consumer that is stopped may take to end;
    * ``dead_letters``: consume the queue's dead letters instead of its records;
    * ``drain``: return when an answer is empty, instead of waiting on;
    * ``observe``: told what each answer added to the counts;
    * ``ledger``: a `kpl_codec.audit.Ledger`, which notes what was handled before it is acknowledged. What it
      raises ends the consumer.
    """

    batch: int | None
    after_failure: AfterFailure
    policy: Policy
    on_drop: Callable[[Drop], None] | None
    max_decompressed_size: int | None
    unframe: Unframe
    on_poison: Callable[[Poison], object] | None
    poison_after: int
    visibility: int
    wait: int
    dead_letters: bool
    drain: bool
    observe: Observe | None
    ledger: Ledger | None


def process_queue_records(
    client: Any,
    queue: str,
    handle: Callable[[Any], object],
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
    with stopped_by_sigterm(stop.set):
        return run_sync(consumer.run())


#: What SIGTERM does: calls the ``stop`` of every consumer in the main thread.
_STOPS: dict[object, Callable[[], object]] = {}
_before: Any = None


@contextmanager
def stopped_by_sigterm(stop: Callable[[], object]) -> Iterator[None]:
    """While something runs in the main thread, SIGTERM calls ``stop``; after the last it does what it did."""
    global _before
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if not _STOPS:
        _before = signal.signal(signal.SIGTERM, lambda *_: [stop() for stop in list(_STOPS.values())])
    me = object()
    _STOPS[me] = stop
    try:
        yield
    finally:
        del _STOPS[me]
        if not _STOPS:
            signal.signal(signal.SIGTERM, _before or signal.SIG_DFL)


class _Threads(QueueConsumer):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lock = threading.Lock()

    async def result(self, returned: object) -> None:
        check_has_run(returned)

    def nested(self, steps: Coroutine[Any, Any, None]) -> None:
        run_sync(steps)

    async def all_of(self, records: list[Received]) -> None:
        with beating(lambda: run_sync(self.beat()), self.beat_seconds):
            for received in records:
                await self.handle_record(received)

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
