"""The driver of one producer, the same for a thread and for an event loop: it takes user records and answers
from the mailbox, asks the core what to do, and gives futures their results.

callers ──▶ Mailbox.inbox ──▶               ──▶ calls
                              Driver.turn
calls ──▶ Driver.answers ──▶                ──▶ futures
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError, SSLError

from ..aws.calls import failure_of, send
from ..aws_errors import rule_of
from ..ledger.ledger_rows import Row, RowKind
from ..shards.live_shard_map import Failure, Request
from . import Attempt, DeliveryError, Pending, ProducerCore
from .delivery import undelivered
from .delivery_future import end_all
from .lock import LOCK
from .outcomes import NO_HISTORY
from .producer_logging import SLOW, Log, OnUndelivered, UndeliveredReport, in_background, log_user_records
from .record_builder import PutRecordsRequest

if TYPE_CHECKING:
    from ..ledger.ledger import Writer

#: PRD-46: so many puts in the inbox make callers wait, and how long at most, in seconds.
CROWD: Final = 1000
LONGEST_WAIT: Final = 0.01
#: Seconds after a turn until the driver looks for puts again: many then take one turn.
_REST: Final = 0.01
#: Seconds after their time to live for which user records wait for the answer of a call, at most.
_GRACE: Final = 3.0
#: Seconds after its timeouts for which a call may be under way, at most.
_LONGEST_CALL: Final = 60.0


class CallUnderWay:
    """A call under way. ``lost_at``: when it counts as one that will never return; then ``give_up``."""

    def __init__(self, request: PutRecordsRequest | Request, core: ProducerCore, now: float) -> None:
        self.request = request
        self.give_up: Callable[[], object] = lambda: None
        # PRD-72: "A call that does not return MUST count as one without an answer: 3 seconds after the time
        # to live of all its user records, or after its timeouts and that of one of them, and in any case a
        # minute after its timeouts."
        timeouts = now + (core.config.connect_timeout_ms + core.config.request_timeout_ms) / 1000
        latest = timeouts + _LONGEST_CALL
        first, last = core.expiry_of(request) if isinstance(request, PutRecordsRequest) else (latest, latest)
        self.lost_at = min(max(timeouts, min(first, latest)), last + _GRACE)


def call(client: Any, request: PutRecordsRequest | Request, stream: Mapping[str, str]) -> Any:
    """Make a call of the producer's core: its answer (boto3), or an awaitable of it (aiobotocore)."""
    if isinstance(request, PutRecordsRequest):
        return client.put_records(**stream, Records=request.records)
    return send(client, request)


def what_failed(error: BaseException, request: PutRecordsRequest | Request) -> tuple[Failure, bool]:
    """The failure of a call, and whether it is an answer or came before sending: then nothing is stored.

    A 5xx is an answer; the outcomes table says whether its records may be stored.
    """
    if not isinstance(error, (ClientError, BotoCoreError, OSError)):
        return Failure(type(error).__name__), False
    failure = failure_of(error, getattr(request, "operation", "PutRecords"))
    # PRD-36: "A failed call MUST count as one that may have stored its records unless it is known that
    # nothing was sent, or that it was refused."
    answered = isinstance(error, ClientError) or rule_of(failure.code).producer in ("not-sent", "invalid")
    if isinstance(error, EndpointConnectionError):
        # aiobotocore raises it where an existing connection broke, too.
        causes = {kind.__name__ for kind in type(error.kwargs.get("error")).__mro__}
        answered = not causes.isdisjoint(("NewConnectionError", "ClientConnectorError", "gaierror"))
    elif isinstance(error, SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return Failure("SSLCertVerificationError", failure.reason), True  # no request before the handshake
    return failure, answered


class Flush:
    """A flush with a waiting caller. ``left``: of the user records accepted before it; None: not begun."""

    left: set[Pending] | None = None

    @property
    def done(self) -> bool:
        return self.left is not None and not self.left


class Mailbox:
    """User records that were put and that the driver has not taken yet, flushes, and whether the producer
    closes. Used with the lock held.

    ``space`` and ``news`` wake callers that wait for room, and for anything else. ``records``, ``bytes``: of
    outstanding user records, ``dropped`` of them without room: their size is 0. ``unread``: news besides puts
    and flushes. ``awake``: the driver looks for puts soon, and needs not be woken for them.
    """

    def __init__(self, new_condition: Callable[[], Any]) -> None:
        self.space, self.news = new_condition(), new_condition()
        self.inbox: list[Pending] = []
        self.records = self.bytes = self.dropped = 0
        self.flushes: list[Flush] = []
        self.refresh_wanted = True  # the first map
        self.unread = self.closing = self.finished = self.awake = False
        self.give_up_at: float | None = None
        self.broken: BaseException | None = None

    def close(self, give_up_at: float | None) -> None:
        """Accept nothing more. Whoever waits has to look."""
        self.closing = self.unread = True
        self.give_up_at = give_up_at
        self.notify()

    def notify(self) -> None:
        self.space.notify_all()
        self.news.notify_all()


class Driver:
    """See the module. Everything here is used by the driver only, unless it says otherwise.

    ``unresolved``: user records taken from the inbox; those without a number are on their way to the core.
    ``failed``: how many were not delivered. ``wake`` wakes the driver, with the lock held. ``answers``: of
    calls; each gives the core one, at a time.
    """

    log: Log = staticmethod(in_background)

    def __init__(
        self,
        core: ProducerCore,
        clock: Callable[[], float],
        on_undelivered: OnUndelivered | None,
        new_notes: Callable[[], Writer | None] | None = None,
    ) -> None:
        self.core, self.clock = core, clock
        self._new_notes = new_notes
        self.notes: Writer | None = None
        self.mailbox = Mailbox(self.new_condition)
        self.hook = UndeliveredReport(on_undelivered, clock)
        self.exit_timeout = 0.0
        self.wake: Callable[[], None] = lambda: None
        self.client: Any = None  # set before the first turn
        self.stream: Mapping[str, str] = {}
        self.unresolved: set[Pending] = set()
        self.answers: list[tuple[CallUnderWay, Callable[[float], None]]] = []
        self.calls: set[CallUnderWay] = set()  # under way
        self._next_loss = float("inf")  # not after the earliest `CallUnderWay.lost_at` of these
        self.failed = 0
        self._called: list[Pending] = []  # for which on_undelivered has returned
        self._due_at = float("-inf")
        self._flushes: list[Flush] = []

    # -- what an event loop does in its own way --------------------------------------------------

    @staticmethod
    def new_condition() -> Any:
        return threading.Condition(LOCK)

    def end_futures(self, ended: list[Pending]) -> None:
        end_all(ended)

    def tell_bug(self, error: BaseException) -> None:
        """As for an error that ends a thread."""
        facts = (type(error), error, error.__traceback__, threading.current_thread())
        threading.excepthook(threading.ExceptHookArgs(facts))

    def close_notes(self) -> None:
        if self.notes is not None:
            self.notes.close()

    def start_calling(self) -> None:
        self.hook.caller = self  # until the thread runs
        try:
            threading.Thread(target=self._call, name="kpl-codec on_undelivered", daemon=True).start()
        except RuntimeError:  # no more threads, as when the interpreter ends
            self._call()

    def _call(self) -> None:
        hook = self.hook
        while True:
            with LOCK:
                batch = hook.next(threading.get_ident())
            if not batch:
                return
            for result in hook.call_all(iter(batch)):
                if hasattr(result, "__await__"):
                    result.close()
                    hook.has_raised(TypeError("on_undelivered of Producer must not be a coroutine function"))
            with LOCK:
                self._called += batch
                self.mailbox.unread = True
                self.wake()

    # -- turns -----------------------------------------------------------------------------------

    def wait(self) -> float:
        """Seconds until there is something to decide, 0 for now. Called with the lock held."""
        mailbox = self.mailbox
        if mailbox.inbox or mailbox.flushes or mailbox.unread or self.answers:
            return 0.0
        if mailbox.records != len(self.unresolved):  # see decide
            return 0.0
        return max(0.0, self._due_at - self.clock())

    def rest(self) -> float:
        """Seconds after a turn for which puts can wait."""
        return min(_REST, self.core.config.buffering_seconds / 10, max(0.0, self._due_at - self.clock()))

    def turn(self, make: Callable[[CallUnderWay], object]) -> bool:
        """Take puts and answers, ``make`` calls, give results. False: the producer is closed and nothing is
        left."""
        # PRD-47: "Producers of several streams that share their threads MUST deliver, fail, break and close
        # each by itself, as with threads of their own."
        try:
            for call in self._decide():
                make(call)
            goes_on = self._resolve()
            if not goes_on and self.mailbox.broken is None:
                self.close_notes()
        except BaseException as error:  # noqa: BLE001 - it breaks one producer, not the thread
            goes_on = self._fall_apart(error)
            self.tell_bug(error)
        return goes_on

    def _decide(self) -> list[CallUnderWay]:
        """Take puts and answers, and let the core decide. Returns the calls to make."""
        core, mailbox = self.core, self.mailbox
        assert self.client is not None
        if self._new_notes is not None:  # in this thread: opening a ledger may take a while
            self.notes, self._new_notes = self._new_notes(), None
        with LOCK:
            mailbox.unread = False
            self.unresolved.update(mailbox.inbox)  # first: a forked child ends what is in one of the two
            inbox, mailbox.inbox = mailbox.inbox, []
            if mailbox.records != len(self.unresolved):  # Ctrl-C came after a put had counted its user record
                self._count()
                mailbox.space.notify_all()
            flushes, mailbox.flushes = mailbox.flushes, []
            refresh, mailbox.refresh_wanted = mailbox.refresh_wanted, False
            closing, give_up_at = mailbox.closing, mailbox.give_up_at
            if len(inbox) >= CROWD:
                mailbox.news.notify_all()
        answers, self.answers = self.answers, []
        if mailbox.broken is not None:  # only on_undelivered goes on
            self._due_at = float("inf")
            return []
        now = self.clock()
        if refresh:
            core.refresh(now)
        before = core.live.state, core.summaries
        for call, answer in answers:
            if call in self.calls:
                self.calls.remove(call)
                answer(now)
        if now >= self._next_loss:
            self._give_up(now)
        for pending in inbox:
            if pending.size:
                core.accept(pending, now, pending.accepted_at)
            else:
                core.drop(pending, now)
        for flush in flushes:
            core.flush()
            flush.left = set(self.unresolved)
        self._flushes += flushes
        if closing:
            core.close()
        if give_up_at is not None and now >= give_up_at and core.outstanding:
            core.abandon(now)
        requests = core.requests(now) if core.outstanding or not closing else []
        calls = [CallUnderWay(request, core, now) for request in requests]
        for call in calls:
            self.calls.add(call)
            self._next_loss = min(self._next_loss, call.lost_at)
        times = [core.timer(), give_up_at if core.outstanding else None, self._next_loss]
        self._due_at = min((at for at in times if at is not None), default=float("inf"))
        if (core.live.state, core.summaries) != before:
            with LOCK:
                mailbox.news.notify_all()
        return calls

    def _give_up(self, now: float) -> None:
        """Give up the calls that are lost."""
        for call in [call for call in self.calls if call.lost_at <= now]:
            self.calls.remove(call)
            call.give_up()
            failure = Failure("NoAnswer", "the call has not returned")
            self.core.fail(call.request, failure, now, answered=False)
        self._next_loss = min([call.lost_at for call in self.calls], default=float("inf"))

    def _count(self) -> None:
        sizes = [pending.size for pending in self.unresolved]
        mailbox = self.mailbox
        mailbox.records, mailbox.bytes, mailbox.dropped = len(sizes), sum(sizes), sizes.count(0)

    def _resolve(self) -> bool:
        """Give user records their results. False: the producer is closed and nothing is left."""
        core, mailbox = self.core, self.mailbox
        ended = core.results() if mailbox.broken is None else []
        if self.notes is not None:
            self._note(self.notes, ended)
        errors: list[DeliveryError] = []
        if core.undelivered > self.failed:
            errors = [pending.result for pending in ended if isinstance(pending.result, DeliveryError)]
            self.failed += len(errors)
        self.end(ended)
        for (outcome, code), count in Counter((error.outcome, error.reason) for error in errors).items():
            text = "%d user records not delivered: %s (%s)"
            self.log(partial(log_user_records, count, text, outcome, code, outcome=outcome, error_code=code))
        for line in self.hook.lines():
            self.log(line)
        if self.hook.held or mailbox.broken is not None:
            return bool(self.hook.held)
        return not mailbox.closing or core.outstanding > 0 or bool(mailbox.inbox)

    def _note(self, notes: Writer, ended: list[Pending]) -> None:
        """Give the ledger what the core has to note, and those user records that failed."""
        offset = time.time() - self.clock()
        rows = self.core.rows.take(offset) if self.core.rows is not None else []
        failed = Counter[tuple[RowKind, str, int]]()
        for pending in ended:
            if isinstance(error := pending.result, DeliveryError):
                kind: RowKind = "left" if error.may_be_stored else "refused"
                failed[kind, error.code, int(pending.accepted_at + offset)] += 1
        rows += [Row(kind, code, "", count, at * 1000) for (kind, code, at), count in failed.items()]
        if rows:
            notes.note(rows)

    def end(self, ended: list[Pending]) -> None:
        """User records have ended, or will when on_undelivered has returned."""
        mailbox, hook = self.mailbox, self.hook
        if ended or self._called:
            with LOCK:
                called, self._called = self._called, []
                hook.held.difference_update(called)
                ended = hook.take(ended) + called
                sizes = [pending.size for pending in ended]
                mailbox.records -= len(sizes)
                mailbox.bytes -= sum(sizes)
                mailbox.dropped -= sizes.count(0)
                mailbox.space.notify(len(sizes))
            self.end_futures(ended)
            # Not before: a forked child ends those that are left.
            self.unresolved.difference_update(ended)
        for flush in self._flushes:
            assert flush.left is not None
            flush.left.difference_update(ended)
        if any(flush.done for flush in self._flushes):
            self._flushes = [flush for flush in self._flushes if not flush.done]
            with LOCK:
                mailbox.news.notify_all()
        if hook.held:
            self._due_at = min(self._due_at, self.clock() + SLOW)
        if hook.waiting and hook.caller is None:
            self.start_calling()

    def finish(self) -> None:
        self.mailbox.finished = True
        self.mailbox.notify()

    def _fall_apart(self, error: BaseException) -> bool:
        """A bug: every waiting caller must get an error. False: that was the last turn."""
        mailbox, now = self.mailbox, self.clock()
        with LOCK:
            mailbox.broken = error
            self.unresolved.update(mailbox.inbox)
            mailbox.inbox = []
            self._count()
            mailbox.notify()
        records = self.unresolved - self.hook.held
        self.failed += len(records)
        for pending in records:
            # PRD-41: "Whatever a call answers, and whatever breaks in the producer, every user record MUST
            # get its result; one that may be stored says so."
            if pending.number:  # the core has had it
                attempt = Attempt("no-answer", pending.accepted_at, now, None, code="broken")
                pending.history = (pending.history or NO_HISTORY).with_attempt(attempt)
            undelivered(self.core.config, pending, "closed", "broken").result.__cause__ = error
        self.end(list(records))
        text = "%d user records not delivered: the producer has broken"
        self.log(partial(log_user_records, len(records), text, outcome="closed"))
        return bool(self.hook.held)
