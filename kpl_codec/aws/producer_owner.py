"""What the owning thread does for one producer: it alone uses the core and ends the futures.

callers ──▶ Mailbox.inbox ──▶           ──▶ calls ──▶ workers
                              Owner.turn
workers ──▶ Mailbox.answers ▶           ──▶ results ──▶ futures
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

from ..producer import DeliveryError, Outcome, Pending, ProducerClosed, ProducerCore, ProducerFull
from ..shards.live_shard_map import Request
from .calls import KinesisClient
from .delivery_future import end_all
from .producer_base import BrokenOff, Flush, Result
from .producer_log import log_left_behind, log_not_delivered
from .workers import Answer, Call, Workers

#: PRD-46: so many puts in the inbox make callers wait, and how long at most, in seconds.
CROWD: Final = 1000
LONGEST_WAIT: Final = 0.01


class Mailbox:
    """What callers and workers leave for the owning thread, and it for them. Used with ``lock`` held.

    Outstanding user records are those put minus those ended: callers count the first, the owning thread the
    second.
    """

    def __init__(self, lock: threading.RLock, wake: Callable[[], None]) -> None:
        self.lock = lock
        self.wake = wake
        self.space = threading.Condition(lock)  # blocked callers of put
        self.taken = threading.Condition(lock)  # callers of put that wait for the inbox to be taken
        #: Callers that wait for the map, a flush, or the end.
        self.news = threading.Condition(lock)
        self.inbox: list[Pending | Flush] = []
        self.answers: list[Answer] = []
        self.told = False  # there is something new among the next three
        self.refresh_wanted = self.closing = False
        self.give_up_at: float | None = None
        self.finished = False
        self.broken: BaseException | None = None
        self.put_records = self.put_bytes = 0
        self.ended_records = self.ended_bytes = 0

    def report(self, answer: Answer) -> None:
        """Called by workers."""
        with self.lock:
            self.answers.append(answer)
            self.wake()


class Owner:
    """See the module. Everything here is used by the owning thread only, unless it says otherwise.

    ``unresolved``: user records of the core. ``taken``: those on their way from the inbox to the core.
    ``due_at``: when there is a turn to make if nothing else happens.
    """

    def __init__(
        self, core: ProducerCore, box: Mailbox, clock: Callable[[], float], broken_off: BrokenOff
    ) -> None:
        self.core = core
        self.unresolved: set[Pending] = set()
        self.taken: list[Pending | Flush] = []
        self.gave_up = False
        #: Ended with the producer, as the last of its threads' producers: to be joined.
        self.ended_thread: threading.Thread | None = None
        self.client: KinesisClient | None = None
        self.stream: Mapping[str, str] = {}
        self._box = box
        self._clock = clock
        self._broken_off = broken_off
        self._begun = False
        self._due_at = float("-inf")
        self._flushes: list[Flush] = []

    @property
    def most_calls(self) -> int:
        """PutRecords calls that may be under way at a time."""
        return self.core.config.max_connections

    def wait(self) -> float:
        """Seconds until there is a turn to make, 0 for now. Called with the lock held."""
        box = self._box
        if box.inbox or box.answers or box.told:
            return 0.0
        return max(0.0, self._due_at - self._clock())

    def turn(self, workers: Workers) -> bool:
        """Take puts and answers, let the core decide, make its calls. False: closed and nothing left."""
        core, box = self.core, self._box
        with box.lock:
            self.taken, box.inbox = box.inbox, []
            if len(self.taken) >= CROWD:
                box.taken.notify_all()
            answers, box.answers = box.answers, []
            refresh, box.refresh_wanted = box.refresh_wanted, False
            closing, give_up_at = box.closing, box.give_up_at
            box.told = False
        now = self._clock()
        workers.taken(len(answers))
        if refresh or not self._begun:
            core.live.refresh(now)
            self._begun = True
        for request, answer, failure, answered in answers:
            if failure is None:
                core.receive(request, answer, now)
            else:
                core.fail(request, failure, now, answered=answered)
        refused = self._accept_taken(now)
        if closing:
            core.close()
        if give_up_at is not None and now >= give_up_at and core.outstanding:
            self.gave_up = True
            core.abandon(now)
        assert self.client is not None
        for call in core.requests(now):
            workers.give(Call(call, self.client, self.stream, box.report))
        self._resolve([*refused, *core.results()] if refused else core.results())
        if any(isinstance(answer.request, Request) for answer in answers):
            with box.lock:
                box.news.notify_all()
        times = [at for at in (core.timer(), give_up_at) if at is not None]
        self._due_at = min(times, default=float("inf"))
        return not (closing and not core.outstanding and not box.inbox)

    def _accept_taken(self, now: float) -> list[Result]:
        """Give the puts to the core. Returns the results of those it refused: puts that were interrupted by a
        put or close in a signal handler."""
        refused: list[Result] = []
        accept, add = self.core.accept, self.unresolved.add
        for item in self.taken:
            if isinstance(item, Flush):
                item.begin(self.core, len(self.unresolved))
                self._flushes.append(item)
                continue
            add(item)
            try:
                accept(item, now, item.accepted_at)
            except (ProducerClosed, ProducerFull) as error:
                refused.append((item, DeliveryError(outcome=Outcome.DROPPED, code=error.code, attempts=())))
        self.taken = []
        return refused

    def _resolve(self, results: list[Result]) -> None:
        box = self._box
        if results:
            with box.lock:
                box.ended_records += len(results)
                box.ended_bytes += sum([pending.size for pending, _ in results])
                box.space.notify(len(results))
            log_not_delivered(results)
            end_all(results)
            # Not before: a forked child ends those that are left.
            self.unresolved.difference_update([pending for pending, _ in results])
        if self._flushes:
            self._flushes = [flush for flush in self._flushes if not flush.ended(results)]
            with box.lock:
                box.news.notify_all()

    def finish(self, thread: threading.Thread | None) -> None:
        """There are no more turns. Called with the lock held. ``thread`` ends, too."""
        self.ended_thread = thread
        self._box.finished = True
        self._box.space.notify_all()
        self._box.news.notify_all()

    def fall_apart(self, error: BaseException) -> None:
        """A bug: every waiting caller must get an error."""
        box = self._box
        with box.lock:
            box.broken = error
            waiting, box.inbox = box.inbox, []
            left = box.put_records - box.ended_records
        log_left_behind(left, "the producer has broken")
        never_sent = [item for item in (*self.taken, *waiting) if isinstance(item, Pending)]
        end_all([(pending, self._broken_off(pending, error)) for pending in self.unresolved])
        closed = DeliveryError(outcome=Outcome.CLOSED, code="broken", attempts=())
        end_all([(pending, closed) for pending in never_sent])
        with box.lock:
            box.ended_records, box.ended_bytes = box.put_records, box.put_bytes

    def orphans(self) -> list[Pending]:
        """After a fork, in the child: the parent's user records."""
        waiting = (*self.taken, *self._box.inbox)
        return [*self.unresolved, *(item for item in waiting if isinstance(item, Pending))]
