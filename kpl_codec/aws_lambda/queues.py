"""A consumer of a queue with boto3, in this thread; a second one extends the visibility meanwhile.

    from kpl_codec.aws_lambda.queues import process_queue_records

    counts = process_queue_records(client, queue_arn, handle)      # until SIGTERM

To handle several Kinesis records at a time, run it in several threads or processes: they share the queue.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ..aws.queues import BACKOFF, QueueUnavailable, call, check_client
from ..deaggregation.records import DeaggregatedRecord
from .batch import Call, Once, done, log, settle_poison
from .queue_core import QueueConsumer, QueueCounts, QueueOptions, Received

if TYPE_CHECKING:
    from typing_extensions import Unpack

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
    skin = _Skin(client, consumer, handle, once, stop, clock, sleep)
    with _set_by_sigterm(stop):
        while not stop.is_set():
            # Once ``stop`` is set, no failing call is repeated.
            answer = skin.call(consumer.calls.receive, consumer.receive(), sleep=stop.wait)
            records = answer.get("QueueRecords", ())
            if records:
                skin.consume(consumer.take(answer, clock()))
            consumer.tell()
            if consumer.drain and not records:
                break
    return consumer.counts


class _Skin:
    """The calls, the clock and the handler of one consumer."""

    def __init__(
        self,
        client: Any,
        consumer: QueueConsumer,
        handle: QueueHandler,
        once: Once | None,
        stop: Stop,
        clock: Callable[[], float],
        sleep: Callable[[float], object],
    ) -> None:
        self._client, self._consumer, self._stop = client, consumer, stop
        self._clock, self._sleep = clock, sleep
        self._handle, self._once, self._patience = handle, once, consumer.patience
        self._lock = threading.Lock()  # of acknowledgements

    def call(self, operation: str, arguments: dict[str, Any], **how: Any) -> Any:
        """See `kpl_codec.aws.queues.call`."""
        return call(
            self._client,
            operation,
            arguments,
            **{"patience": self._patience, "clock": self._clock, "sleep": self._sleep, **how},
        )

    def consume(self, records: list[Received]) -> None:
        consumer = self._consumer
        try:
            with beating(self.beat, consumer.beat):
                for received in records:
                    # QUE-9: "After SIGTERM a record that was begun MUST be handled to its end, and every
                    # other one given back at once."
                    if self._stop.is_set():
                        break
                    if consumer.may_begin(received, self._clock()):
                        self._one(received)
                        consumer.settle(received, self._clock())
                    self._acknowledge()
        finally:
            self._acknowledge(all_of_them=True)
            entries = consumer.give_back()
            if entries:
                arguments = {"QueueARN": consumer.queue, "Entries": entries}
                self.call(consumer.calls.update_visibility, arguments)

    def _one(self, received: Received) -> None:
        for group in self._consumer.groups(received):
            try:
                self._group(group, received)
            except Exception:  # noqa: BLE001 - the caller's code: whatever it raises, the records failed
                received.batch.fail(*group)

    def _group(self, group: list[Call], received: Received) -> None:
        if self._once is None:
            self._run(group[-1], [call.record for call in group], received)
        else:
            self._claim(self._once, group, 0, [], received)

    def _claim(
        self, once: Once, group: list[Call], at: int, todo: list[DeaggregatedRecord], received: Received
    ) -> None:
        """Handle what of the group was not handled before, within a call of ``once`` for each."""
        if at == len(group):
            if todo:
                self._run(group[-1], todo, received)
            return
        first = len(todo)

        def claimed() -> None:
            todo.append(group[at].record)
            self._claim(once, group, at + 1, todo, received)

        done(once(group[at].key, claimed))
        if len(todo) == first:
            self._consumer.counts.skipped += 1
            self._claim(once, group, at + 1, todo, received)

    def _run(self, last: Call, todo: list[DeaggregatedRecord], received: Received) -> None:
        consumer = self._consumer
        try:
            done(self._handle(todo if consumer.in_batches else todo[0]))
            consumer.counts.user_records += len(todo)
        except Exception as error:
            poison = consumer.poison(last, error, received)
            if poison is None or not settle_poison(poison, consumer.on_poison):
                raise
            consumer.counts.put_aside += 1

    # -- also in the other thread -----------------------------------------------------------------

    def beat(self) -> None:
        """Extend and acknowledge what is due. What fails is tried again at the next beat."""
        consumer, now = self._consumer, self._clock()
        try:
            if chosen := consumer.extend(now):
                arguments = consumer.entries(chosen, visibility=True)
                answer = self.call(consumer.calls.update_visibility, arguments, patience=0)
                consumer.extended(chosen, answer, now)
            self._acknowledge_some(patience=0)
        except QueueUnavailable as error:
            log("%s", error)

    def _acknowledge(self, *, all_of_them: bool = False) -> None:
        failures = 0
        while self._acknowledge_some(all_of_them=all_of_them) == "again":
            self._sleep(BACKOFF.seconds(failures))
            failures += 1

    def _acknowledge_some(self, *, all_of_them: bool = False, **how: Any) -> Literal["again", "done"]:
        consumer = self._consumer
        with self._lock:
            while chosen := consumer.acknowledge(self._clock(), all_of_them=all_of_them):
                try:
                    answer = self.call(consumer.calls.acknowledge, consumer.entries(chosen), **how)
                except QueueUnavailable:
                    consumer.not_yet(chosen)
                    raise
                if consumer.acknowledged(chosen, answer):
                    return "again"
            return "done"


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


@contextmanager
def _set_by_sigterm(stop: Stop) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
