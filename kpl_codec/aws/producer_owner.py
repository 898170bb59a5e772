"""One thread producer: what callers leave for the driving thread, and what this thread does for the producer.

callers ──▶ inbox ──▶            ──▶ calls
                     Owner.decide
workers ──▶ answers ▶            ──▶ Owner.resolve ──▶ futures
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..ledger import Notes
from ..producer import Pending, ProducerCore
from ..producer.kinesis_record import PutRecordsRequest
from ..shards.live_shard_map import Request
from .delivery_future import end_all
from .one_lock import LOCK
from .producer_base import Flush, broken_off, take_notes
from .producer_log import log_left_behind, log_not_delivered, not_delivered
from .undelivered import SLOW, OnUndelivered, Undelivered

#: PRD-46: so many puts in the inbox make callers wait, and how long at most, in seconds.
CROWD: Final = 1000
LONGEST_WAIT: Final = 0.01
#: Seconds after which the driving thread looks for puts again.
_REST: Final = 0.002


class Letters:
    """What callers leave for the driving thread, and it for them. Used with the lock held.

    ``records`` and ``bytes``: of outstanding user records, ``dropped`` those for which there was no room
    (whose bytes do not count). ``unread``: news besides puts and flushes.
    """

    def __init__(self) -> None:
        self.space = threading.Condition(LOCK)  # blocked callers of put
        self.news = threading.Condition(LOCK)  # callers that wait for anything else
        self.inbox: list[Pending] = []
        self.dropped: list[Pending] = []
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
    ``failed``: whether any was not delivered. ``abandoned``: how many because time was up in close. ``wake``
    wakes the driving thread, with the lock held.
    """

    def __init__(
        self,
        core: ProducerCore,
        clock: Callable[[], float],
        exit_timeout: float,
        on_undelivered: OnUndelivered | None,
        new_notes: Callable[[], Notes | None],
    ) -> None:
        self.core = core
        self._new_notes: Callable[[], Notes | None] | None = new_notes
        self._notes: Notes | None = None
        self.letters = Letters()
        self.hook = Undelivered(on_undelivered, clock)
        self.clock = clock
        self.exit_timeout = exit_timeout
        self.wake: Callable[[], None] = lambda: None
        self.client: Any = None  # a KinesisClient, before the first turn
        self.stream: Mapping[str, str] = {}
        self.unresolved: set[Pending] = set()
        self.answers: list[Callable[[float], None]] = []  # each gives the core one, at a time
        self.failed = False
        self.abandoned = 0
        self._called: list[Pending] = []  # for which on_undelivered has returned
        self._due_at = float("-inf")
        self._flushes: list[Flush] = []

    def wait(self) -> float:
        """Seconds until there is something to decide, 0 for now. Called with the lock held."""
        letters = self.letters
        if letters.inbox or letters.dropped or letters.flushes or letters.unread or self.answers:
            return 0.0
        if letters.records != len(self.unresolved):  # see decide
            return 0.0
        return max(0.0, self._due_at - self.clock())

    def rest(self) -> float:
        """Seconds after a turn for which puts can wait."""
        return min(_REST, self.core.config.buffering_seconds / 10, max(0.0, self._due_at - self.clock()))

    def decide(self) -> list[PutRecordsRequest | Request]:
        """Take puts and answers, and let the core decide. Returns the calls to make; `resolve` follows."""
        core, letters = self.core, self.letters
        assert self.client is not None
        if self._new_notes is not None:  # in this thread: opening a ledger may take a while
            self._notes, self._new_notes = self._new_notes(), None
        with LOCK:
            letters.unread = False
            inbox, letters.inbox = letters.inbox, []
            dropped, letters.dropped = letters.dropped, []
            self.unresolved.update(inbox, dropped)
            if letters.records != len(self.unresolved):  # Ctrl-C came after a put had counted its user record
                self._count()
                letters.space.notify_all()
            flushes, letters.flushes = letters.flushes, []
            refresh, letters.refresh_wanted = letters.refresh_wanted, False
            closing, give_up_at = letters.closing, letters.give_up_at
            if len(inbox) + len(dropped) >= CROWD:
                letters.news.notify_all()
        answers, self.answers = self.answers, []
        if letters.broken is not None:  # only on_undelivered goes on
            self._due_at = float("inf")
            return []
        now = self.clock()
        if refresh:
            core.live.refresh(now)
        before = core.live.state
        for answer in answers:
            answer(now)
        for pending in inbox:
            core.accept(pending, now, pending.accepted_at)
        for pending in dropped:
            core.drop(pending, now)
        for flush in flushes:
            core.flush()
            flush.begin(core.accepted, len(self.unresolved))
        self._flushes += flushes
        if closing:
            core.close()
        if give_up_at is not None and now >= give_up_at and core.outstanding:
            self.abandoned = core.outstanding
            core.abandon(now)
        calls = core.requests(now)
        times = [core.timer(), give_up_at if core.outstanding else None]
        self._due_at = min((at for at in times if at is not None), default=float("inf"))
        if core.live.state != before:
            with LOCK:
                letters.news.notify_all()
        return calls

    def _count(self) -> None:
        """Count what is outstanding. Called with the lock held."""
        self.letters.records = len(self.unresolved)
        self.letters.bytes = sum([pending.size for pending in self.unresolved])

    def resolve(self) -> bool:
        """Give user records their results. False: the producer is closed and nothing is left."""
        core, letters = self.core, self.letters
        ended = core.results() if letters.broken is None else []
        take_notes(self._notes, core, ended, self.clock)
        failures = not_delivered(ended)
        self.failed = self.failed or bool(failures)
        self._end(ended)
        # Not before: a signal handler that has interrupted the log may wait for the results.
        log_not_delivered(failures)
        self.hook.tell()
        if self.hook.held or letters.broken is not None:
            return bool(self.hook.held)
        more = not letters.closing or core.outstanding > 0 or bool(letters.inbox or letters.dropped)
        if not more and self._notes is not None:
            self._notes.close()
        return more

    def _end(self, ended: list[Pending]) -> None:
        """User records have ended, or will when on_undelivered has returned."""
        letters, hook = self.letters, self.hook
        if ended or self._called:
            with LOCK:
                called, self._called = self._called, []
                hook.release(called)
                ended = hook.take(ended) + called
                letters.records -= len(ended)
                letters.bytes -= sum([pending.size for pending in ended])
                letters.space.notify(len(ended))
            end_all(ended)
            # Not before: a forked child ends those that are left.
            self.unresolved.difference_update(ended)
        done = [flush for flush in self._flushes if flush.ended(ended)]
        if done:
            self._flushes = [flush for flush in self._flushes if not flush.done]
            with LOCK:
                letters.news.notify_all()
        if hook.held:
            self._due_at = min(self._due_at, self.clock() + SLOW)
        if hook.may_start:
            hook.caller = self  # until the thread runs
            thread = threading.Thread(target=self._call, name="kpl-codec on_undelivered", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads, as when the interpreter ends
                self._call()

    def _call(self) -> None:
        """Call on_undelivered until there is nothing to call it for. In a thread of its own."""
        hook = self.hook
        while True:
            with LOCK:
                batch = hook.next(threading.get_ident())
            if not batch:
                return
            for given in hook.call_all(iter(batch)):
                if hasattr(given, "__await__"):
                    given.close()
                    hook.has_raised(TypeError("on_undelivered of Producer must not be a coroutine function"))
            with LOCK:
                self._called += batch
                self.letters.unread = True
                self.wake()

    def finish(self) -> None:
        """There are no more turns. Called with the lock held."""
        self.letters.finished = True
        self.letters.space.notify_all()
        self.letters.news.notify_all()

    def fall_apart(self, error: BaseException) -> bool:
        """A bug: every waiting caller must get an error. False: that was the last turn."""
        letters, now = self.letters, self.clock()
        with LOCK:
            letters.broken = error
            self.unresolved.update(letters.inbox, letters.dropped)
            letters.inbox, letters.dropped = [], []
            self._count()
            letters.space.notify_all()
            letters.news.notify_all()
        config, left = self.core.config, self.unresolved - self.hook.held
        self.failed = self.failed or bool(left)
        self._end([broken_off(config, pending, error, now) for pending in left])
        log_left_behind(len(left), "the producer has broken")
        return bool(self.hook.held)
