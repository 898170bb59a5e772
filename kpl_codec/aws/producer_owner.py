"""One thread producer: what callers leave for the driving thread, and what this thread does for the producer.

callers ──▶ inbox ──▶            ──▶ calls
                     Owner.decide
workers ──▶ answers ▶            ──▶ Owner.resolve ──▶ futures
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..producer import DeliveryError, Pending, ProducerCore
from ..producer.kinesis_record import PutRecordsRequest
from ..shards.live_shard_map import Request
from .delivery_future import end_all
from .one_lock import LOCK
from .producer_base import Flush, broken_off
from .producer_log import log_left_behind, log_not_delivered, not_delivered

#: PRD-46: so many puts in the inbox make callers wait, and how long at most, in seconds.
CROWD: Final = 1000
LONGEST_WAIT: Final = 0.01


class Letters:
    """What callers leave for the driving thread, and it for them. Used with the lock held.

    ``records`` and ``bytes``: of outstanding user records. ``unread``: news besides puts and flushes.
    """

    def __init__(self) -> None:
        self.space = threading.Condition(LOCK)  # blocked callers of put
        self.news = threading.Condition(LOCK)  # callers that wait for anything else
        self.inbox: list[Pending] = []
        self.records = self.bytes = 0
        self.flushes: list[Flush] = []
        self.refresh_wanted = True  # the first map
        self.unread = self.closing = self.finished = False
        self.give_up_at: float | None = None
        self.broken: BaseException | None = None

    def close(self, give_up_at: float | None) -> None:
        """Accept nothing more. Whoever waits has to look."""
        self.closing = self.unread = True
        self.give_up_at = give_up_at
        self.space.notify_all()
        self.news.notify_all()


class Owner:
    """See the module. Everything here is used by the driving thread only, unless it says otherwise.

    ``unresolved``: user records taken from the inbox; those without a number are on their way to the core.
    ``failed``: how many were not delivered. ``abandoned``: how many of them because time was up in close.
    """

    def __init__(self, core: ProducerCore, clock: Callable[[], float], exit_timeout: float) -> None:
        self.core = core
        self.letters = Letters()
        self.clock = clock
        self.exit_timeout = exit_timeout
        self.client: Any = None  # a KinesisClient, before the first turn
        self.stream: Mapping[str, str] = {}
        self.unresolved: set[Pending] = set()
        self.answers: list[Callable[[float], None]] = []  # each gives the core one, at a time
        self.failed = self.abandoned = 0
        self._due_at = float("-inf")
        self._flushes: list[Flush] = []

    def wait(self) -> float:
        """Seconds until there is something to decide, 0 for now. Called with the lock held."""
        letters = self.letters
        if letters.inbox or letters.flushes or letters.unread or self.answers:
            return 0.0
        if letters.records != len(self.unresolved):  # see decide
            return 0.0
        return max(0.0, self._due_at - self.clock())

    def decide(self) -> list[PutRecordsRequest | Request]:
        """Take puts and answers, and let the core decide. Returns the calls to make; `resolve` follows."""
        core, letters = self.core, self.letters
        assert self.client is not None
        with LOCK:
            letters.unread = False
            inbox, letters.inbox = letters.inbox, []
            self.unresolved.update(inbox)
            if letters.records != len(self.unresolved):  # Ctrl-C came after a put had counted its user record
                letters.records = len(self.unresolved)
                letters.bytes = sum([pending.size for pending in self.unresolved])
                letters.space.notify_all()
            flushes, letters.flushes = letters.flushes, []
            refresh, letters.refresh_wanted = letters.refresh_wanted, False
            closing, give_up_at = letters.closing, letters.give_up_at
            if len(inbox) >= CROWD:
                letters.news.notify_all()
        answers, self.answers = self.answers, []
        now = self.clock()
        if refresh:
            core.live.refresh(now)
        before = core.live.state
        for answer in answers:
            answer(now)
        for pending in inbox:
            core.accept(pending, now, pending.accepted_at)
        for flush in flushes:
            flush.begin(core, len(self.unresolved))
        self._flushes += flushes
        if closing:
            core.close()
        if give_up_at is not None and now >= give_up_at and core.outstanding:
            self.abandoned = core.outstanding
            core.abandon(now)
        calls = core.requests(now)
        times = [at for at in (core.timer(), give_up_at) if at is not None]
        self._due_at = min(times, default=float("inf"))
        if core.live.state != before:
            with LOCK:
                letters.news.notify_all()
        return calls

    def resolve(self) -> bool:
        """Give user records their results. False: the producer is closed and nothing is left."""
        core, letters = self.core, self.letters
        results = core.results()
        failures = not_delivered(results)
        self.failed += failures.total()
        if results:
            with LOCK:
                letters.records -= len(results)
                letters.bytes -= sum([pending.size for pending, _ in results])
                letters.space.notify(len(results))
            end_all([(pending.token, result) for pending, result in results])
            # Not before: a forked child ends those that are left.
            self.unresolved.difference_update([pending for pending, _ in results])
        done = [flush for flush in self._flushes if flush.ended(results)]
        if done:
            self._flushes = [flush for flush in self._flushes if not flush.done]
            with LOCK:
                letters.news.notify_all()
        # Not before: a signal handler that has interrupted the log may wait for the results.
        log_not_delivered(failures)
        return not letters.closing or core.outstanding > 0 or bool(letters.inbox)

    def finish(self) -> None:
        """There are no more turns. Called with the lock held."""
        self.letters.finished = True
        self.letters.space.notify_all()
        self.letters.news.notify_all()

    def fall_apart(self, error: BaseException) -> None:
        """A bug: every waiting caller must get an error."""
        letters, now = self.letters, self.clock()
        with LOCK:
            letters.broken = error
            self.unresolved.update(letters.inbox)
            letters.inbox = []
            letters.records = letters.bytes = 0
        never_sent = DeliveryError(outcome="closed", code="broken", attempts=())
        ends = [(p.token, broken_off(p, error, now) if p.number else never_sent) for p in self.unresolved]
        end_all(ends)
        self.failed += len(ends)
        log_left_behind(len(ends), "the producer has broken")
