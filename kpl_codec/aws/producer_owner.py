"""One thread producer: what callers leave for the driving thread, and what this thread does for the producer.

callers ──▶ inbox ──▶           ──▶ calls ──▶ workers
                     Owner.turn
workers ──▶ answers ▶           ──▶ results ──▶ futures
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

from ..producer import DeliveryError, Outcome, Pending, ProducerClosed, ProducerCore, ProducerFull
from ..shards.live_shard_map import Request
from .calls import KinesisClient
from .delivery_future import end_all
from .one_lock import LOCK
from .producer_base import Flush, Result, broken_off
from .producer_log import log_left_behind, log_not_delivered
from .workers import Answer, Call, Workers

#: PRD-46: so many puts in the inbox make callers wait, and how long at most, in seconds.
CROWD: Final = 1000
LONGEST_WAIT: Final = 0.01


class Letters:
    """What callers leave for the driving thread, and it for them. Used with the lock held.

    Outstanding user records are those in the inbox and those ``held``, which it has taken.
    """

    def __init__(self) -> None:
        self.space = threading.Condition(LOCK)  # blocked callers of put
        self.taken = threading.Condition(LOCK)  # callers of put that wait for the inbox to be taken
        self.news = threading.Condition(LOCK)  # callers that wait for the map, a flush, or the end
        self.inbox: list[Pending] = []
        self.inbox_bytes = 0
        self.held_records = self.held_bytes = 0
        self.flushes: list[Flush] = []
        self.unread = False  # there is something new among the next two
        self.refresh_wanted = self.closing = False
        self.give_up_at: float | None = None
        self.finished = False
        self.broken: BaseException | None = None

    @property
    def outstanding(self) -> int:
        return self.held_records + len(self.inbox)

    def close(self, give_up_at: float | None) -> None:
        """Accept nothing more. Whoever waits has to look."""
        self.closing = self.unread = True
        self.give_up_at = give_up_at
        self.space.notify_all()
        self.news.notify_all()


class Owner:
    """See the module. Everything here is used by the driving thread only, unless it says otherwise.

    ``unresolved``: user records of the core. ``taken``: those on their way from the inbox to the core.
    ``failed``: how many were not delivered. ``abandoned``: how many of them because time was up in close.
    """

    def __init__(self, core: ProducerCore, clock: Callable[[], float], exit_timeout: float) -> None:
        self.core = core
        self.letters = Letters()
        self.clock = clock
        self.exit_timeout = exit_timeout
        self.client: KinesisClient | None = None
        self.stream: Mapping[str, str] = {}
        self.unresolved: set[Pending] = set()
        self.taken: list[Pending] = []
        self.answers: list[Answer] = []
        self.failed = self.abandoned = 0
        #: Ended with the producer, as the last of its threads' producers: to be joined.
        self.last_thread: threading.Thread | None = None
        self._begun = False
        self._due_at = float("-inf")
        self._flushes: list[Flush] = []

    @property
    def most_calls(self) -> int:
        """PutRecords calls that may be under way at a time."""
        return self.core.config.max_connections

    def wait(self) -> float:
        """Seconds until there is a turn to make, 0 for now. Called with the lock held."""
        letters = self.letters
        if letters.inbox or letters.flushes or letters.unread or self.answers:
            return 0.0
        return max(0.0, self._due_at - self.clock())

    def turn(self, workers: Workers, report: Callable[[Owner, Answer], None]) -> bool:
        """Take puts and answers, let the core decide, make its calls. False: closed and nothing left."""
        core, letters = self.core, self.letters
        with LOCK:
            letters.unread = False
            self.taken, letters.inbox, letters.inbox_bytes = letters.inbox, [], 0
            letters.held_records += len(self.taken)
            letters.held_bytes += sum([pending.size for pending in self.taken])
            if len(self.taken) >= CROWD:
                letters.taken.notify_all()
            flushes, letters.flushes = letters.flushes, []
            refresh, letters.refresh_wanted = letters.refresh_wanted, False
            closing, give_up_at = letters.closing, letters.give_up_at
        answers, self.answers = self.answers, []
        now = self.clock()
        if refresh or not self._begun:
            core.live.refresh(now)
            self._begun = True
        for request, answer, failure, answered in answers:
            if failure is None:
                core.receive(request, answer, now)
            else:
                core.fail(request, failure, now, answered=answered)
        refused = self._accept_taken(now)
        for flush in flushes:
            flush.begin(core, len(self.unresolved))
        self._flushes += flushes
        if closing:
            core.close()
        if give_up_at is not None and now >= give_up_at and core.outstanding:
            self.abandoned = core.outstanding
            core.abandon(now)
        assert self.client is not None
        for call in core.requests(now):
            workers.give(Call(call, self.client, self.stream, lambda answer: report(self, answer)))
        self._resolve([*refused, *core.results()])
        if any(isinstance(answer.request, Request) for answer in answers):
            with LOCK:
                letters.news.notify_all()
        times = [at for at in (core.timer(), give_up_at) if at is not None]
        self._due_at = min(times, default=float("inf"))
        return not (closing and not core.outstanding and not letters.inbox)

    def _accept_taken(self, now: float) -> list[Result]:
        """Give the puts to the core. Returns the results of those it refused."""
        refused: list[Result] = []
        accept, add = self.core.accept, self.unresolved.add
        for pending in self.taken:
            add(pending)
            try:
                accept(pending, now, pending.accepted_at)
            except (ProducerClosed, ProducerFull) as error:
                dropped = DeliveryError(outcome=Outcome.DROPPED, code=error.code, attempts=())
                refused.append((pending, dropped))
        self.taken = []
        return refused

    def _resolve(self, results: list[Result]) -> None:
        letters = self.letters
        if results:
            with LOCK:
                letters.held_records -= len(results)
                letters.held_bytes -= sum([pending.size for pending, _ in results])
                letters.space.notify(len(results))
            end_all(results)
            # Not before: a forked child ends those that are left.
            self.unresolved.difference_update([pending for pending, _ in results])
        done = [flush for flush in self._flushes if flush.ended(results)]
        if done:
            self._flushes = [flush for flush in self._flushes if not flush.done]
            with LOCK:
                letters.news.notify_all()
        # Not before: a signal handler that has interrupted the log may wait for the results.
        self.failed += log_not_delivered(results)

    def finish(self) -> None:
        """There are no more turns. Called with the lock held."""
        self.letters.finished = True
        self.letters.space.notify_all()
        self.letters.news.notify_all()

    def fall_apart(self, error: BaseException) -> None:
        """A bug: every waiting caller must get an error."""
        letters = self.letters
        with LOCK:
            letters.broken = error
            waiting, letters.inbox = letters.inbox, []
        never_sent = [*self.taken, *waiting]
        unsent = set(never_sent)
        closed = DeliveryError(outcome=Outcome.CLOSED, code="broken", attempts=())
        end_all([(pending, closed) for pending in never_sent])
        sent = self.unresolved - unsent
        end_all([(pending, broken_off(pending, error, self.clock())) for pending in sent])
        with LOCK:
            letters.inbox_bytes = letters.held_records = letters.held_bytes = 0
        self.failed += len(unsent) + len(sent)
        log_left_behind(len(unsent) + len(sent), "the producer has broken")

    def orphans(self) -> list[Pending]:
        """After a fork, in the child: the parent's user records."""
        return [*self.unresolved, *self.taken, *self.letters.inbox]
