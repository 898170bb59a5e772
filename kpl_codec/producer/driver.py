"""The driver of one producer: the thread that decides, and those that make its calls.

callers ──▶ Mailbox.inbox ──▶             ──▶ calls, each in a thread of its own
                              Driver._turn
calls   ──▶ answers       ──▶             ──▶ on_undelivered, in a thread of its own, then futures

In each turn the driver takes user records and responses of calls, lets the core decide, has calls made, and
gives futures their results. A user record that was not delivered gets its result when on_undelivered has
returned: until then it is outstanding, and flush and close wait for it.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

from ..aws.calls import send
from ..errors import place_of
from ..shards.live_shard_map import LiveShardMap
from ..shards.stream_name import Stream
from . import Attempt, DeliveryError, Pending, ProducerConfig, ProducerCore
from .answers import failure_of_call
from .batch import AnyCall, Call
from .config import ProducerOptions
from .future import DeliveryFuture, end_all
from .mailbox import Flush, Mailbox
from .process import LOCK, RUNNING, Condition, StreamLog, driving, start_thread
from .results import NO_HISTORY
from .states import OPEN
from .undelivered import UndeliveredCallback

if TYPE_CHECKING:
    from ..ledger.ledger import Writer

#: PRD-46: the number of puts in the inbox from which on callers wait, and the most seconds that they wait.
CROWD, CROWD_WAIT = 1000, 0.01
#: Seconds after a turn until the driver takes puts again, so that one turn takes many.
_REST: Final = 0.01

#: Seconds that the driving thread sleeps at most: a wait may not be longer than threading.TIMEOUT_MAX.
_LONGEST_SLEEP: Final = 3600.0
#: The most threads that make calls, those with a call that does not return included.
MOST_THREADS: Final = 1000
#: A function that passes the response of a call to the core at a given time.
Answer = Callable[[float], None]


class Driver:
    """Connects mailbox, core, calls and futures of one producer. Only its own thread uses it, except for
    methods that say otherwise.

    ``client``: set before the first turn. ``unresolved``: user records taken from the inbox that have no
    result; the core has not accepted those without a number. ``failed``: how many were not delivered.
    ``watchers``: lists that get the errors of these, by their id. ``exit_timeout``: seconds that a process
    which ends waits for deliveries.
    """

    client: Any = None
    clock: Callable[[], float] = staticmethod(time.monotonic)
    forked = False  # it is the parent's
    has_thread = False  # that drives it
    exit_timeout = 0.0

    def __init__(self, stream: Stream, config: ProducerConfig, options: ProducerOptions) -> None:
        chance = random.Random().randrange  # the program may seed, or watch, the module's own
        self.stream, self.ledger = stream, options.get("ledger")
        # The map has the closed shards, too: a record may still be stored on one.
        name = stream.arn or stream.name
        live = LiveShardMap(name, shard_filter="FROM_TRIM_HORIZON", chance=lambda: chance(1024) / 1024)
        observe, keep_rows = options.get("observe"), self.ledger is not None
        self.core = ProducerCore(config, live, chance, observe, keep_rows=keep_rows)
        self.stream_log = StreamLog(stream.name)
        function = options.get("on_undelivered")
        self.callback = UndeliveredCallback(function, self.end_call, self.clock, self.stream_log)
        self.notes: Writer | None = None
        self.unresolved: set[Pending] = set()
        self.failed = 0
        self.watchers: dict[int, list[DeliveryError]] = {}
        self._calls: queue.SimpleQueue[AnyCall | None] = queue.SimpleQueue()
        # Responses, not taken yet; None only wakes. (Finalizers may put into this queue: it has no lock.)
        self._answers: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
        self.mailbox = Mailbox(config, Condition, partial(self._answers.put, None))
        self._taken: list[Answer] = []  # responses, for the next turn
        self._busy = 0  # calls whose responses were not taken yet
        self._workers: list[threading.Thread] = []
        self._called: list[Pending] = []  # user records for which on_undelivered has returned
        self._due_at = float("-inf")
        self._flushes: list[Flush] = []
        self._observe_error: object = None  # the error of ``observe`` that was logged

    # -- what callers on asyncio have otherwise --------------------------------------------------

    def this_caller(self) -> object:
        """The current thread or task, as `UndeliveredCallback.caller` has it."""
        return threading.get_ident()

    def end_futures(self, ended: list[Pending]) -> None:
        end_all(ended)

    def end_call(self, result: object) -> None:
        """on_undelivered has returned ``result``. Raises TypeError if nobody awaits it here."""
        if hasattr(result, "__await__"):
            if isinstance(result, CoroutineType):
                result.close()  # else Python warns that nobody has awaited it
            raise TypeError("on_undelivered has returned an awaitable: no event loop runs here")

    # -- on_undelivered --------------------------------------------------------------------------

    def _start_calling(self) -> None:
        """Call on_undelivered, in a thread, for the user records that wait for it."""
        callback = self.callback
        call = partial(self._call, callback.waiting)
        callback.waiting = []
        callback.caller = self  # stands for the caller until the thread runs
        try:
            start_thread("on_undelivered", call)
        except RuntimeError:  # no new threads while the interpreter exits
            call()

    def _call(self, records: list[Pending]) -> None:
        self.callback.caller = threading.get_ident()
        for pending in records:
            self.callback.call(pending.result)
        with LOCK:
            self.callback.caller = None
            self._called += records
            self.mailbox.unread = True
            self.mailbox.wake()

    # -- threads that make calls -----------------------------------------------------------------

    def send(self, call: AnyCall) -> Any:
        """The response of a call."""
        if isinstance(call, Call):
            return self.client.put_records(**self.stream.argument, Records=call.records)
        return send(self.client, call)

    def _make(self, call: AnyCall) -> None:
        try:
            if not self.core.is_under_way(call):  # given up while it waited for a thread
                raise TimeoutError
            answer: Answer = partial(self.core.receive, call, self.send(call))
        except BaseException as error:  # noqa: BLE001 - botocore may raise anything here
            failure, answered = failure_of_call(error, getattr(call, "operation", "PutRecords"))
            answer = partial(self.core.fail, call, failure, answered=answered)
        self._answers.put(answer)

    def _work(self) -> None:
        driving.here = True  # a log handler that botocore calls must not wait for other calls
        while (call := self._calls.get()) is not None:
            self._make(call)
            call = None  # an idle thread would keep its user records

    def _start_worker(self) -> None:
        try:
            self._workers.append(start_thread("calls", self._work))
        except RuntimeError:  # no new threads while the interpreter exits; the existing ones suffice
            if not self._workers:
                raise

    def _give(self, call: AnyCall) -> None:
        self._workers = [thread for thread in self._workers if thread.is_alive()]
        if len(self._workers) <= min(self._busy, MOST_THREADS):
            self._start_worker()
        self._busy += 1
        self._calls.put(call)

    # -- the thread that drives ------------------------------------------------------------------

    def start(self) -> None:
        """Start the threads. Called with the lock held."""
        self._start_worker()
        start_thread(f"producer {self.stream.name}", self._run)
        RUNNING.add(self)

    def _run(self) -> None:
        mailbox = self.mailbox
        with LOCK:
            if self.has_thread:  # Ctrl-C came in the start that has begun it
                return
            self.has_thread = goes_on = driving.here = True
            driving.log = self.stream_log
        while goes_on:
            with LOCK:
                wait = self._wait()
                mailbox.awake = wait <= 0
            self._take_answers(min(wait, _LONGEST_SLEEP))
            mailbox.awake = True
            goes_on = self._turn()
            self._take_answers(self._rest() if goes_on else 0.0)
        for _ in self._workers:
            self._calls.put(None)
        with LOCK:
            RUNNING.discard(self)
            self.has_thread = False
            mailbox.becomes("end")
            mailbox.notify()

    def _take_answers(self, seconds: float) -> None:
        try:
            answer = self._answers.get(timeout=seconds) if seconds else self._answers.get_nowait()
            while True:
                if answer is not None:
                    self._busy -= 1
                    self._taken.append(answer)
                answer = self._answers.get_nowait()
        except queue.Empty:
            pass

    def _wait(self) -> float:
        """Seconds until there is something to decide, 0 for now. Called with the lock held."""
        mailbox = self.mailbox
        if mailbox.inbox or mailbox.flushes or mailbox.unread or self._taken:
            return 0.0
        if mailbox.records != len(self.unresolved):  # see `_decide`: Ctrl-C has interrupted a put
            return 0.0
        return max(0.0, self._due_at - self.clock())

    def _rest(self) -> float:
        """Seconds after a turn for which puts can wait."""
        return min(_REST, self.core.config.buffering_seconds / 10, max(0.0, self._due_at - self.clock()))

    # -- turns -----------------------------------------------------------------------------------

    def _turn(self) -> bool:
        """Take puts and responses, have calls made, give results. False: the producer is closed, and every
        user record has its result."""
        try:
            for call in self._decide():
                self._give(call)
            goes_on = self._resolve()
            if not goes_on and self.mailbox.state != "breaking" and self.notes is not None:
                self.notes.close()
                self.notes = None  # a start that Ctrl-C has interrupted may be made again
        except BaseException as error:
            if self.forked:
                raise
            goes_on = self._break(error)
            facts = (type(error), error, error.__traceback__, threading.current_thread())
            threading.excepthook(threading.ExceptHookArgs(facts))  # as of any thread
        return goes_on

    def _decide(self) -> list[AnyCall]:
        """Take puts and responses, and let the core decide. Returns the calls to make."""
        core, mailbox = self.core, self.mailbox
        assert self.client is not None
        if self.ledger is not None and self.notes is None:  # here: it may take a while
            self.notes = self.ledger.writer(self.stream.arn or self.stream.name, "produced")
        with LOCK:
            mailbox.unread = False
            self.unresolved.update(mailbox.inbox)  # before the inbox is emptied: for forked children
            inbox, mailbox.inbox = mailbox.inbox, []
            if mailbox.records != len(self.unresolved):  # Ctrl-C came after a put had counted its user record
                self._count()
                mailbox.space.notify_all()
            flushes, mailbox.flushes = mailbox.flushes, []
            if mailbox.let_go:
                mailbox.becomes("close")
            state, give_up_at = mailbox.state, mailbox.give_up_at
            if len(inbox) >= CROWD:
                mailbox.news.notify_all()
        answers, self._taken = self._taken, []
        if state == "breaking":  # a broken producer only calls on_undelivered
            self._due_at = float("inf")
            return []
        now = self.clock()
        before = core.live.state, core.summaries
        for answer in answers:
            answer(now)
        if mailbox.refresh_wanted:  # (a refresh that is under way may have read what was before)
            mailbox.refresh_wanted = not core.live.refresh(now)
        for pending in inbox:
            core.accept(pending, now, pending.accepted_at)
        for flush in flushes:
            core.flush()
            flush.number, flush.left = core.accepted, len(self.unresolved)
        self._flushes += flushes
        if state == "closing":
            core.flush()
        if give_up_at is not None and now >= give_up_at and core.outstanding:
            core.abandon(now)
        running = core.outstanding or state != "closing"
        calls = core.requests(now) if running else []
        times = [core.timer() if running else None, give_up_at if core.outstanding else None]
        self._due_at = min((at for at in times if at is not None), default=float("inf"))
        if (core.live.state, core.summaries) != before:
            with LOCK:
                mailbox.news.notify_all()
        return calls

    def _count(self) -> None:
        sizes = [pending.size for pending in self.unresolved]
        mailbox = self.mailbox
        mailbox.records, mailbox.bytes = len(sizes), sum(sizes)

    def _resolve(self) -> bool:
        """Give user records their results. False: the producer is closed, and every user record has its
        result."""
        core, mailbox, callback = self.core, self.mailbox, self.callback
        reports = core.reports
        ended = core.results() if mailbox.state != "breaking" else []
        if self.notes is not None and reports.rows is not None:
            rows = reports.rows.take(ended, time.time() - self.clock())
            if rows:
                self.notes.note(rows)
        errors = [pending.result for pending in ended if isinstance(pending.result, DeliveryError)]
        self._count_failed(errors)
        self.end(ended)
        self.stream_log.undelivered(errors)
        for level, text, facts in reports.failing_calls.take():
            getattr(self.stream_log, level)("%s", text, extra=facts)
        callback.log()
        if (error := reports.error) is not None and error is not self._observe_error:
            self._observe_error, text = error, "observe failed; further failures are not logged: %s"
            self.stream_log.error(text, place_of(error))
        return mailbox.state in OPEN or bool(self.unresolved or mailbox.inbox)

    def end(self, ended: list[Pending]) -> None:
        """Give the futures of ``ended`` their results; those that were not delivered when on_undelivered has
        returned."""
        mailbox, callback = self.mailbox, self.callback
        if ended or self._called:
            with LOCK:
                called, self._called = self._called, []
                callback.held.difference_update(called)
                ended = callback.hold(ended) + called
                sizes = [pending.size for pending in ended]
                mailbox.records -= len(sizes)
                mailbox.bytes -= sum(sizes)
                mailbox.space.notify(len(sizes))
            self.end_futures(ended)
            # Not before: a forked child ends the user records that are still in it.
            self.unresolved.difference_update(ended)
        for flush in self._flushes:
            assert flush.left is not None
            flush.left -= sum(pending.number <= flush.number for pending in ended)
        if any(flush.left == 0 for flush in self._flushes):
            self._flushes = [flush for flush in self._flushes if flush.left]
            with LOCK:
                mailbox.news.notify_all()
        if callback.waiting and callback.caller is None:
            self._start_calling()

    def _count_failed(self, errors: list[DeliveryError]) -> None:
        self.failed += len(errors)
        for watcher in list(self.watchers.values()):  # (others may come and go meanwhile)
            watcher += errors

    def after_fork_in_child(self) -> None:
        """End the user records, which are the parent's, in a forked child."""
        self.forked = True
        # PRD-39: "After a fork the child MUST NOT send the parent's user records, nor run their callbacks."
        for pending in [*self.unresolved, *self.mailbox.inbox]:
            # (An event loop runs in the parent.)
            if isinstance(pending.token, DeliveryFuture):
                self.core.undelivered(pending, "closed", "forked")
                pending.token.end_in_child(pending.result)
        self.mailbox.after_fork_in_child()
        self.failed = 0
        self.callback.caller = None

    def _break(self, error: BaseException) -> bool:
        """The driver has raised ``error``, by a bug: every user record and waiting caller gets it. False:
        this was the last turn."""
        mailbox, now = self.mailbox, self.clock()
        with LOCK:
            mailbox.cause = error
            mailbox.becomes("break")
            self.unresolved.update(mailbox.inbox)
            mailbox.inbox = []
            self._count()
            mailbox.notify()
        records = self.unresolved - self.callback.held
        for pending in records:
            # PRD-41: "Whatever a call answers, and whatever breaks in the producer, every user record MUST
            # get its result, which says whether it may be stored."
            if pending.number:  # the core had accepted it, so it may have been sent
                attempt = Attempt("no-answer", pending.accepted_at, now, None, code="broken")
                pending.history = (pending.history or NO_HISTORY).with_attempt(attempt)
            self.core.undelivered(pending, "closed", "broken").result.__cause__ = error
        self._count_failed([pending.result for pending in records])
        self.end(list(records))
        text = "%s not delivered: the producer has broken"
        self.stream_log.user_records(len(records), text, outcome="closed")
        return bool(self.unresolved)
