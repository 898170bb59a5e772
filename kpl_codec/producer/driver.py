"""The driver of one producer, and the base of both producers: the same for threads and for an event loop.

callers ──▶ Mailbox.inbox  ──▶                ──▶ calls
                               Driver.turn
calls   ──▶ Driver.answers ──▶                ──▶ on_undelivered, then futures

In each turn the driver takes user records and responses of calls (``answers``), lets the core decide, makes
calls, and gives futures their results. A user record that was not delivered gets its result when
on_undelivered has returned: until then it is outstanding, and flush and close wait for it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ..aws.calls import send, stream_for
from ..errors import place_of
from ..shards.live_shard_map import LiveShardMap
from ..shards.stream_name import Stream
from . import Attempt, DeliveryError, Pending, ProducerConfig, ProducerCore
from .answers import failure_of_call
from .batch import AnyCall, Call
from .config import ProducerOptions, check_options, makes_retries
from .future import WouldDeadlock, end_all
from .mailbox import Flush, Mailbox
from .process import LOCK, Condition, StreamLog, log_thread, run_in_thread
from .record import undelivered
from .results import NO_HISTORY
from .states import OPEN
from .undelivered import UndeliveredCallback

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..ledger.ledger import Writer

#: PRD-46: the number of puts in the inbox from which on callers wait, and the most seconds that they wait.
CROWD, CROWD_WAIT = 1000, 0.01
#: Seconds after a turn until the driver takes puts again, so that one turn takes many.
_REST: Final = 0.01
#: PRD-62: seconds between two readings of the stream's limit of a record's size; how long a put waits for the
#: first one.
SIZE_AGE, SIZE_WAIT = 60.0, 10.0
#: Seconds after which a flush ends, whatever the time to live and `on_undelivered`.
LONGEST_FLUSH: Final = 3600.0

#: A function that passes the response of a call to the core at a given time.
Answer = Callable[[float], None]


class Driver:
    """Connects mailbox, core, calls and futures of one producer. Only the producer's own thread or event loop
    uses it, except for methods that say otherwise.

    ``client``: set before the first turn. ``unresolved``: user records taken from the inbox that have no
    result; the core has not accepted those without a number. ``failed``: how many were not delivered.
    ``watchers``: lists that get the errors of these.
    ``answers``: responses of calls, not taken yet. ``exit_timeout``: seconds that a process which ends
    waits for deliveries.
    """

    log = staticmethod(log_thread.add)
    client: Any = None
    clock: Callable[[], float] = staticmethod(time.monotonic)
    forked = False  # it is the parent's
    has_thread = False  # that drives it
    exit_timeout = 0.0

    def __init__(self, stream: Stream, config: ProducerConfig, options: ProducerOptions) -> None:
        chance = random.randrange
        self.stream, self.ledger = stream, options.get("ledger")
        # The map has the closed shards, too: a record may still be stored on one.
        name = stream.arn or stream.name
        live = LiveShardMap(name, shard_filter="FROM_TRIM_HORIZON", chance=lambda: chance(1024) / 1024)
        observe, keep_rows = options.get("observe"), self.ledger is not None
        self.core = ProducerCore(config, live, chance, observe, keep_rows=keep_rows)
        self.stream_log = StreamLog(stream.name)
        self.callback = UndeliveredCallback(options.get("on_undelivered"), self.clock, self.stream_log)
        self.mailbox = Mailbox(config, self.new_condition)
        self.notes: Writer | None = None
        self.unresolved: set[Pending] = set()
        self.answers: list[Answer] = []
        self.failed = 0
        self.watchers: list[list[DeliveryError]] = []
        self._called: list[Pending] = []  # user records for which on_undelivered has returned
        self._due_at = float("-inf")
        self._flushes: list[Flush] = []
        self._observe_error: object = None  # the error of ``observe`` that was logged

    # -- what an event loop does in its own way --------------------------------------------------

    @staticmethod
    def new_condition() -> Any:
        return Condition()

    @staticmethod
    def this_caller() -> object:
        """The current thread or task, as `UndeliveredCallback.caller` has it."""
        return threading.get_ident()

    def end_futures(self, ended: list[Pending]) -> None:
        end_all(ended, self.stream_log)

    def report_bug(self, error: BaseException) -> None:
        """Report ``error`` as Python reports an error that ends a thread."""
        facts = (type(error), error, error.__traceback__, threading.current_thread())
        threading.excepthook(threading.ExceptHookArgs(facts))

    def open_notes(self) -> None:
        """Open the ledger, which may take a while; here, so that no caller of `put` waits for it."""
        if self.ledger is not None and self.notes is None:
            self.notes = self.ledger.writer(self.stream.arn or self.stream.name, "produced")

    def close_notes(self) -> None:
        if self.notes is not None:
            self.notes.close()
            self.notes = None  # a start that Ctrl-C has interrupted may be made again

    def start_calling(self) -> None:
        """Call on_undelivered, in a thread or task, for the user records that wait for it, until none
        does."""
        self.callback.caller = self  # stands for the caller until the thread runs
        run_in_thread("on_undelivered", self._call)

    def _call(self) -> None:
        while True:
            with LOCK:
                batch = self.callback.take_waiting(self.this_caller())
            if not batch:
                return
            for result in self.callback.call_all(iter(batch)):
                if hasattr(result, "__await__"):
                    if isinstance(result, CoroutineType):
                        result.close()  # else Python warns that nobody has awaited it
                    error = TypeError("on_undelivered of Producer must not be a coroutine function")
                    self.callback.has_raised(error)
            with LOCK:
                self._called += batch
                self.mailbox.unread = True
                self.mailbox.wake()

    # -- calls, also from other threads ----------------------------------------------------------

    def send(self, call: AnyCall) -> Any:
        """The response of a call (boto3), or an awaitable of it (aiobotocore)."""
        if isinstance(call, Call):
            return self.client.put_records(**self.stream.argument, Records=call.records)
        return send(self.client, call)

    def call_failed(self, call: AnyCall, error: BaseException) -> Answer:
        failure, answered = failure_of_call(error, getattr(call, "operation", "PutRecords"))
        return partial(self.core.fail, call, failure, answered=answered)

    # -- turns -----------------------------------------------------------------------------------

    def wait(self) -> float:
        """Seconds until there is something to decide, 0 for now. Called with the lock held."""
        mailbox = self.mailbox
        if mailbox.inbox or mailbox.flushes or mailbox.unread or self.answers:
            return 0.0
        if mailbox.records != len(self.unresolved):  # see `_decide`: Ctrl-C has interrupted a put
            return 0.0
        return max(0.0, self._due_at - self.clock())

    def rest(self) -> float:
        """Seconds after a turn for which puts can wait."""
        return min(_REST, self.core.config.buffering_seconds / 10, max(0.0, self._due_at - self.clock()))

    def turn(self, make: Callable[[AnyCall], object]) -> bool:
        """Take puts and responses, ``make`` calls, give results. False: the producer is closed, and every
        user record has its result."""
        try:
            for call in self._decide():
                make(call)
            goes_on = self._resolve()
            if not goes_on and self.mailbox.state != "breaking":
                self.close_notes()
        except BaseException as error:
            if self.forked:
                raise
            goes_on = self._break(error)
            self.report_bug(error)
        return goes_on

    def _decide(self) -> list[AnyCall]:
        """Take puts and responses, and let the core decide. Returns the calls to make."""
        core, mailbox = self.core, self.mailbox
        assert self.client is not None
        self.open_notes()
        with LOCK:
            mailbox.unread = False
            self.unresolved.update(mailbox.inbox)  # before the inbox is emptied: for forked children
            inbox, mailbox.inbox = mailbox.inbox, []
            if mailbox.records != len(self.unresolved):  # Ctrl-C came after a put had counted its user record
                self._count()
                mailbox.space.notify_all()
            flushes, mailbox.flushes = mailbox.flushes, []
            refresh, mailbox.refresh_wanted = mailbox.refresh_wanted, False
            if mailbox.let_go:
                mailbox.becomes("close")
            state, give_up_at = mailbox.state, mailbox.give_up_at
            if len(inbox) >= CROWD:
                mailbox.news.notify_all()
        answers, self.answers = self.answers, []
        if state == "breaking":  # a broken producer only calls on_undelivered
            self._due_at = float("inf")
            return []
        now = self.clock()
        if refresh:
            core.refresh(now)
        before = core.live.state, core.summaries
        for answer in answers:
            answer(now)
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
        # (A call each: where a filter of the caller's raises, the lines behind it are written all the same.)
        for log_call in self.stream_log.undelivered(errors):
            self.log(log_call)
        for level, text, facts in reports.failing_calls.take():
            self.log(partial(getattr(self.stream_log, level), "%s", text, extra=facts))
        for log_call in callback.log_calls():
            self.log(log_call)
        if (error := reports.error) is not None and error is not self._observe_error:
            self._observe_error, text = error, "observe failed; further failures are not logged: %s"
            self.log(partial(self.stream_log.error, text, place_of(error)))
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
            self.start_calling()

    def _count_failed(self, errors: list[DeliveryError]) -> None:
        self.failed += len(errors)
        for watcher in self.watchers:
            watcher += errors

    def after_fork_in_child(self) -> None:
        """End the futures of the parent's user records in a forked child."""
        self.forked = True
        for pending in [*self.unresolved, *self.mailbox.inbox]:
            # PRD-39: "After a fork the child MUST NOT send the parent's user records, nor run their
            # callbacks."
            if pending.result is None or not pending.token.done():
                undelivered(self.core.config, self.stream.name, pending, "closed", "forked")
                pending.token.end_in_child(pending.result)

    def finish(self) -> None:
        self.mailbox.becomes("end")
        self.mailbox.notify()

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
            undelivered(
                self.core.config, self.stream.name, pending, "closed", "broken"
            ).result.__cause__ = error
        self._count_failed([pending.result for pending in records])
        self.end(list(records))
        text = "%s not delivered: the producer has broken"
        self.log(partial(self.stream_log.user_records, len(records), text, outcome="closed"))
        return bool(self.unresolved)


class ProducerBase:
    """Raises StreamNameError for a text that is neither a stream's name nor its ARN, and for a client of
    another region than the ARN's; TypeError for an unknown option."""

    def __init__(self, stream: str, **options: Unpack[ProducerOptions]) -> None:
        check_options(type(self), stream, options)
        self._options, self._client = options, options.get("client")
        self._stream = stream_for(self._client, stream)
        if makes_retries(self._client):
            text = (
                "the client of this producer repeats calls by itself, and may store user records twice:"
                " make it with botocore's Config(retries={'total_max_attempts': 1}), or give client_settings"
            )
            StreamLog(self._stream.name).warning(text)
        self.config = options.get("config") or ProducerConfig()
        self._client_settings = dict(options.get("client_settings") or {})
        if self._stream.region is not None:
            self._client_settings["region"] = self._stream.region

    def __reduce__(self) -> NoReturn:
        # PRD-79: "A producer, and a future of one, that is sent to another process MUST be refused with what
        # to do instead."
        raise TypeError("a producer belongs to one process: make it in the function that uses it there")

    def _drive(self, driver: Driver, wake: Callable[[], object]) -> None:
        """Use ``driver`` from now on. ``wake``: called with the lock held, wakes it."""
        self._driver, self._core = driver, driver.core
        self._mailbox, self._clock = driver.mailbox, driver.clock
        self._mailbox.wake = wake
        self._size_asked_at = float("-inf")

    @property
    def _in_callback(self) -> bool:
        caller = self._driver.callback.caller
        return caller is not None and caller == self._driver.this_caller()

    def _may_wait(self, method: str) -> None:
        if self._in_callback:
            raise WouldDeadlock(method=method)

    @property
    def outstanding(self) -> int:
        """How many accepted user records have no result yet."""
        return self._mailbox.records

    def _has_map(self) -> bool:
        return self._core.live.state == "READY"

    async def _learn_size(self) -> None:
        """A user record is too large: wait until the stream's limit of a record's size is known, or have it
        read again. Called with the lock held. Raises ProducerClosed."""
        core, mailbox, now = self._core, self._mailbox, self._clock()
        if self.config.max_record_size is not None or mailbox.state not in OPEN:
            return
        if not core.summaries and not self._in_callback:
            await mailbox.wait_until(lambda: core.summaries > 0, SIZE_WAIT)
        elif now >= self._size_asked_at + SIZE_AGE:
            self._size_asked_at = now
            mailbox.request_map()

    async def _wait_flush(self, timeout: float | None) -> None:
        if self._mailbox.driven:
            await self._mailbox.flush(LONGEST_FLUSH if timeout is None else timeout)
