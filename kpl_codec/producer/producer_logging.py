"""What the producers tell besides results: the log "kpl_codec.producer" (codes, counts, shard ids; never data
or keys), the caller's measuring, and the way of user records that were not delivered through
``on_undelivered``.

    results ──▶ take ──▶ held: waiting, then called one after the other ──▶ their futures
                  └── delivered ──────────────────────────────────────────▶ their futures

So a user record that was not delivered ends when ``on_undelivered`` has returned: until then it counts as
outstanding, its future has no result, and flush and close wait for it.
Specification: spec/05-producer.md, PRD-33 to PRD-35 and PRD-63 to PRD-65.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from ..aws_errors import is_permanent
from ..shards.live_shard_map import Failure, Request
from . import DeliveryError, Pending
from .lock import LOCK
from .metrics import Observe
from .record_builder import PutRecordsRequest

# PRD-34: "Log lines MUST NOT hold data, partition keys or explicit hash keys."
logger: Final = logging.getLogger("kpl_codec.producer")

#: Log calls that are kept while a log handler does not return.
MOST_LINES: Final = 10_000


class _Background:
    """Makes log calls in a thread of its own, which lives as long as there are any.

    A log handler may be slow, and it may wait for a lock whose owner waits for a producer. So the threads
    that producers need never make a log call themselves.
    """

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self.busy = False
        self.idle = threading.Condition(LOCK)

    def add(self, call: Callable[[], object]) -> None:
        # PRD-76: "Whatever locks of others a caller holds, each method of the thread producer MUST end: it
        # returns, or raises what is true."
        if self.calls.qsize() < MOST_LINES:
            self.calls.put(call)
        try:
            with LOCK:
                if self.busy:
                    return
                self.busy = True
            threading.Thread(target=self._run, name="kpl-codec log", daemon=True).start()
        except RuntimeError:  # no more threads, as when the interpreter ends
            self._run()
        except BaseException:  # Ctrl-C: there may be no thread, so the next call starts one
            with LOCK:
                self.busy = False
                self.idle.notify_all()
            raise

    def _run(self) -> None:
        while True:
            with LOCK:
                if self.calls.empty():
                    self.busy = False
                    self.idle.notify_all()
                    return
            try:
                self.calls.get_nowait()()
            except queue.Empty:  # after a Ctrl-C there may be two of these threads
                continue
            except BaseException:  # noqa: BLE001 - a filter or handler of the caller's
                sys.excepthook(*sys.exc_info())

    def wait(self, timeout: float) -> None:
        """Until all calls so far were made."""
        with LOCK:
            self.idle.wait_for(lambda: not self.busy, timeout)


_background = _Background()


#: How a log call is made.
Log = Callable[[Callable[[], object]], object]


def in_background(call: Callable[[], object]) -> None:
    """Make a log call in another thread."""
    _background.add(call)


def at_once(call: Callable[[], object]) -> None:
    call()


def wait_for_log() -> None:
    """Wait until the log calls so far were made, but not for a log handler that does not return."""
    _background.wait(1.0)


def after_fork() -> None:
    """In a forked child: the parent tells what is the parent's."""
    global _background
    _background = _Background()


#: What both producers take as ``on_undelivered``.
OnUndelivered = Callable[[DeliveryError], object]

#: Seconds after which a call that has not returned is told.
SLOW: Final = 10.0


def guarded(observe: Observe | None, log: Log) -> Observe | None:
    """Calls ``observe``. If it raises, only that measurement is lost; the first error is logged."""
    if observe is None:
        return None
    logged = False

    def guard(name: str, value: float, attributes: Mapping[str, str]) -> None:
        nonlocal logged
        # PRD-35: "An error in the caller's measuring MUST NOT cost a user record, nor its result."
        try:
            observe(name, value, attributes)
        except BaseException as error:
            in_main = threading.current_thread() is threading.main_thread()
            if in_main and isinstance(error, KeyboardInterrupt):
                raise  # Ctrl-C
            if not logged:
                text = "observe failed for %s; further failures are not logged"
                log(partial(logger.error, text, name, exc_info=error))
            logged = True

    return guard


def log_failure(request: PutRecordsRequest | Request, failure: Failure, answered: bool) -> None:
    facts: dict[str, object] = {"error_code": failure.code, "answered": answered}
    if isinstance(request, PutRecordsRequest):
        facts |= {"operation": "PutRecords", "kinesis_records": len(request.records)}
        logger.warning("PutRecords failed: %s", failure.code, extra=facts)
        return
    # Without ListShards there is no map, and without a map no aggregation: somebody must fix a permanent
    # error.
    lasting = request.operation == "ListShards" and is_permanent(*failure)
    level = logging.WARNING if lasting else logging.INFO
    facts["operation"] = request.operation
    logger.log(level, "%s failed: %s", request.operation, failure.code, extra=facts)


def log_user_records(count: int, text: str, *facts: object, **extra: object) -> None:
    """One line about so many user records, the first fact of ``text``, if there are any."""
    if count:
        logger.error(text, count, *facts, extra={"user_records": count, **extra})


class UndeliveredReport:
    """``function``: the caller's; None: nothing is held. Used with the producers' lock held, but for `call`
    and `lines`."""

    def __init__(self, function: OnUndelivered | None, clock: Callable[[], float]) -> None:
        self.function = function
        self.held: set[Pending] = set()
        self.waiting: list[Pending] = []  # those of `held` that it is not called for yet
        #: The thread or task that calls it now.
        self.caller: object = None
        #: When the call began that is under way.
        self.called_at: float | None = None
        self._clock = clock
        self._warned_of: float | None = None  # when the last call began that a warning was logged for
        self._raised: Counter[str] = Counter()

    def take(self, ended: list[Pending]) -> list[Pending]:
        """Hold those that were not delivered. Returns the others."""
        # PRD-64: "on_undelivered MUST be called exactly once for each user record that ends without being
        # delivered, with its DeliveryError, before its future has a result."
        if self.function is None:
            return ended
        failed = [pending for pending in ended if isinstance(pending.result, DeliveryError)]
        if not failed:
            return ended
        self.waiting += failed
        self.held.update(failed)
        return [pending for pending in ended if not isinstance(pending.result, DeliveryError)]

    def next(self, caller: object) -> list[Pending]:
        """Those to call it for now. Without any nobody calls it any more."""
        batch, self.waiting = self.waiting, []
        self.caller = caller if batch else None
        return batch

    def call(self, error: DeliveryError) -> Any:
        assert self.function is not None
        self.called_at = self._clock()
        # PRD-65: "Whatever on_undelivered raises, and however long it takes, MUST NOT cost another user
        # record its delivery or its result; both MUST be logged."
        try:
            return self.function(error)
        except BaseException as raised:  # noqa: BLE001 - see above
            self.has_raised(raised)
        finally:
            self.called_at = None

    def call_all(self, records: Iterator[Pending]) -> list[Any]:
        return [self.call(pending.result) for pending in records]

    async def finish(self, result: Any) -> None:
        if not hasattr(result, "__await__"):
            return
        self.called_at = self._clock()
        try:
            await result
        except Exception as raised:  # noqa: BLE001 - as in `call`
            self.has_raised(raised)
        finally:
            self.called_at = None

    def has_raised(self, raised: BaseException) -> None:
        """Remember what is wrong with it, without the text of the error, which may repeat data."""
        frames = traceback.extract_tb(raised.__traceback__)
        place = f" in {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
        self._raised[f"{type(raised).__name__}{place}"] += 1

    def lines(self) -> list[Callable[[], object]]:
        """The log calls to make: what it has raised; and, once, that a call has not returned for long."""
        raised, text = self._raised, "on_undelivered failed for %d user records: %s"
        if raised:
            self._raised = Counter()
        lines: list[Callable[[], object]] = [
            partial(log_user_records, count, text, what) for what, count in raised.items()
        ]
        since = self.called_at
        if since is not None and since != self._warned_of and self._clock() >= since + SLOW:
            self._warned_of, held_count = since, len(self.held)
            text = "on_undelivered has not returned for %d s; %d user records wait for it"
            lines.append(partial(logger.warning, text, SLOW, held_count, extra={"user_records": held_count}))
        return lines
