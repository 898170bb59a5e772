"""A consumer of a queue with boto3. It runs in the caller's thread; a second thread extends the visibility.

    counts = process_queue_records(client, queue_arn, handler)      # until SIGTERM

To handle several Kinesis records at a time, run it in several threads or processes: they share the queue.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypedDict

from ..arguments import check_arguments, check_keywords, check_needs
from ..aws.calls import run_sync
from ..aws_lambda.batch import AfterFailure, Once, Poison, check_has_run
from ..deaggregation.deaggregated_record import Drop
from ..deaggregation.policy_rules import Policy
from .queue_consumer import Observe, QueueConsumer, QueueCounts, QueueDelivery

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..ledger.ledger import Ledger

__all__ = ["process_queue_records"]


class QueueOptions(TypedDict, total=False):
    """Options of the threaded and of the asyncio consumer.

    * ``batch``: ``handler`` gets a list of at most so many user records of an aggregate (with ``once``: of
      one). If it fails, all of them have failed;
    * ``after_failure``, ``policy``, ``on_drop``, ``max_decompressed_size``: as in
      `kpl_codec.aws_lambda.process_user_records`, within each aggregate;
    * ``on_poison``: gets Kinesis records that cannot be opened and, from delivery number ``poison_after`` on
      (5; the queue makes a record a dead letter after 6), user records that fail, which are then handled one
      by one. If it does not raise, they count as handled;
    * ``visibility``: seconds (30) for which other consumers do not get a received record. It is extended
      while the record is handled;
    * ``poll_wait``: seconds (9) that a call waits for records, and that a stopped consumer may take to end;
    * ``dead_letters``: consume the queue's dead letters instead of its records;
    * ``drain``: return when a response is empty;
    * ``observe``: called after each response with the amounts to add to its counters;
    * ``ledger``: a `kpl_codec.audit.Ledger`, which notes handled user records before they are acknowledged.
      An error of the ledger ends the consumer.
    """

    batch: int | None
    after_failure: AfterFailure
    policy: Policy
    on_drop: Callable[[Drop], None] | None
    max_decompressed_size: int | None
    on_poison: Callable[[Poison], object] | None
    poison_after: int
    visibility: int
    poll_wait: int
    dead_letters: bool
    drain: bool
    observe: Observe | None
    ledger: Ledger | None


def process_queue_records(
    client: Any,
    queue: str,
    handler: Callable[[Any], object],
    *,
    once: Once | None = None,
    stop: threading.Event | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
    **options: Unpack[QueueOptions],
) -> QueueCounts:
    """Call ``handler`` with each user record of a queue, until ``stop`` is set or SIGTERM comes to the main
    thread.

    ``client``: a boto3 client of Kinesis, 1.44 or newer; ``queue``: the queue's ARN. An aggregated record is
    acknowledged when all its user records were handled; if one fails, all are delivered again. ``once``: as
    in `kpl_codec.aws_lambda.process_user_records`; it skips those that were handled before.

    Any exception of ``handler`` is a failure, and is logged. Raises QueuesUnsupported, QueueUnavailable,
    ValueError for options out of range, and exceptions that end a process (KeyboardInterrupt), after all
    received records were acknowledged or given back.
    """
    check_keywords("process_queue_records", options, process_queue_records, QueueOptions)
    given = {**locals(), **options}
    check_arguments("process_queue_records", given, required=("client",))
    check_needs("process_queue_records", options, {"poison_after": 5})
    stop = stop or threading.Event()
    consumer = _ThreadedConsumer(client, queue, handler, once, stop, clock, sleep, **options)
    with stop_on_sigterm(stop.set):
        return run_sync(consumer.run())


#: The functions that SIGTERM calls: one for each consumer in the main thread.
_STOPS: list[Callable[[], object]] = []
_previous_handler: Any = None


@contextmanager
def stop_on_sigterm(stop: Callable[[], object]) -> Iterator[None]:
    """A context in which SIGTERM calls ``stop``, if it is entered in the main thread. The last context that
    ends restores the previous handler."""
    global _previous_handler
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if not _STOPS:
        owner = os.getpid()

        def end(number: int, frame: object) -> None:
            if os.getpid() == owner:
                for stop in _STOPS:
                    stop()
            else:  # a child that the handler has forked
                signal.signal(number, _previous_handler or signal.SIG_DFL)
                os.kill(os.getpid(), number)

        _previous_handler = signal.signal(signal.SIGTERM, end)
    _STOPS.append(stop)
    try:
        yield
    finally:
        _STOPS.remove(stop)
        if not _STOPS:
            signal.signal(signal.SIGTERM, _previous_handler or signal.SIG_DFL)


class _ThreadedConsumer(QueueConsumer):
    def __post_init__(self) -> None:
        super().__post_init__()
        self._lock = threading.Lock()

    async def finish(self, result: object) -> None:
        check_has_run(result)

    def start(self, steps: Coroutine[Any, Any, None]) -> None:
        run_sync(steps)

    async def handle_all(self, deliveries: list[QueueDelivery]) -> None:
        with heartbeats(lambda: run_sync(self.heartbeat()), self.heartbeat_interval):
            for delivery in deliveries:
                await self.handle_record(delivery)

    async def acknowledge(self, **how: Any) -> None:
        with self._lock:  # the thread of heartbeats calls it, too
            await super().acknowledge(**how)

    def wait_for_stop(self, seconds: float) -> Any:
        return self.stop.wait(seconds)


@contextmanager
def heartbeats(heartbeat: Callable[[], None], interval: float) -> Iterator[None]:
    end = threading.Event()

    def run() -> None:
        while not end.wait(interval):
            heartbeat()

    thread = threading.Thread(target=run, name="kpl-codec queue", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
