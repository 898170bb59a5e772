"""Between callers and driver: what was put, who waits, and the producer's state.

Specification: spec/05-producer.md, PRD-7, PRD-9 and PRD-92.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

from ..errors import KplError
from .config import ProducerConfig
from .record import Pending
from .states import ENDED, NEXT, OPEN, Event, State


class ProducerFull(KplError):
    """``records`` and ``bytes`` are outstanding already; nothing was accepted."""

    code = "producer-full"
    requirement = "PRD-7"
    records: int
    bytes: int
    text = "the producer holds {records} user records ({bytes} bytes) and takes no more"
    todo = "Wait for futures, put less, or raise the limits of ProducerConfig."


class ProducerClosed(KplError):
    """The producer accepts no more records. ``code``: closed; forked (its ``client`` is the parent
    process's); broken (by this error's cause); loop-ended."""

    code: Literal["closed", "forked", "broken", "loop-ended"]
    requirement = "PRD-9"
    texts: ClassVar[dict[str, str]] = {
        "closed": "the producer takes no records: it is closed",
        "forked": "the producer takes no records: its client= belongs to the parent process, and cannot be"
        " used in a forked child",
        "broken": "the producer takes no records: it is broken; the cause of this error says why",
        "loop-ended": "the producer takes no records: its event loop has ended, or another one runs",
    }
    todo = "Make a new producer: after close(), in a forked child, and in each event loop."


class NotStarted(KplError, RuntimeError):
    """A producer was used that has not started, or `start` was called where nothing would close it. ``code``:
    new; forked (it has started in the parent process only); spark-task (`start` in a task of PySpark); lambda
    (`start` in AWS Lambda); late-patch (`start` where threads are greenlets, which they were not when
    kpl_codec was imported)."""

    code: Literal["new", "forked", "spark-task", "lambda", "late-patch"]
    requirement = "PRD-92"
    texts: ClassVar[dict[str, str]] = {
        "new": "the producer has not started: use a with block, or start() and, at the end, close()",
        "forked": "the producer has not started in this process, which was forked: use a with block in it, or"
        " start() and, at its end, close()",
        "spark-task": "a task of PySpark ends without exit handlers: use a with block in the task, not"
        " start()",
        "lambda": "Lambda stops this process when the handler returns: put @delivers(producer) over the"
        " handler, which starts the producer",
        "late-patch": "threads were replaced by greenlets after the import of kpl_codec: call"
        " monkey.patch_all() before anything imports it",
    }
    todo = (
        "Use the producer in a with block; or call start() in the process that puts, and close() before it"
        " ends. In AWS Lambda decorate the handler with kpl_codec.producer.delivers."
    )


class Flush:
    """A flush with a waiting caller. ``number``: of the last user record accepted before it. ``left``: how
    many up to that one have no result yet; None: the driver has not begun it."""

    number = 0
    left: int | None = None


class Mailbox:
    """User records that were put and that the driver has not taken yet, the flushes, and the producer's
    state. Used with the lock held.

    ``wake`` wakes the driver. ``space`` and ``news`` wake callers that wait for room, and for anything else.
    ``records``, ``bytes``: number and size of outstanding user records. ``unread``: news besides puts and
    flushes. ``awake``: the driver takes puts soon, and needs not be woken. ``state``: `becomes` changes it;
    ``cause``: the error that broke the producer. ``forked``: it had started in the parent process.
    ``let_go``: the producer was garbage-collected, so the driver is to close it.
    """

    def __init__(
        self, config: ProducerConfig, new_condition: Callable[[], Any], wake: Callable[[], object]
    ) -> None:
        self._config, self.wake = config, wake
        self.space, self.news = new_condition(), new_condition()
        self.inbox: list[Pending] = []
        self.records = self.bytes = 0
        self.flushes: list[Flush] = []
        self.refresh_wanted = True  # the first map
        self.unread = self.awake = self.forked = self.let_go = False
        self.give_up_at: float | None = None
        self.state: State = "new"
        self.cause: BaseException | None = None

    def becomes(self, event: Event) -> None:
        self.state = NEXT.get((self.state, event), self.state)

    @property
    def ended(self) -> bool:
        """Whether nothing more comes of it."""
        return self.state in ENDED

    def leave(self, pending: Pending, now: float) -> bool:
        """Put a user record into the inbox. False if there is no room, and its caller may wait. Raises
        ProducerFull."""
        # PRD-7: "At no time MUST more than max_outstanding_records user records, or more than
        # max_outstanding_bytes of data and partition keys, be held."
        config, size = self._config, pending.size
        if self.bytes + size > config.max_outstanding_bytes or self.records >= config.max_outstanding_records:
            if config.when_full == "block":
                return False
            raise self.full()
        pending.accepted_at = now
        # Ctrl-C may come between any two of these lines: the driver, once woken, counts again.
        if not self.awake:
            self.wake()
            self.awake = True
        self.records += 1
        self.bytes += size
        self.inbox.append(pending)
        return True

    def full(self) -> ProducerFull:
        return ProducerFull(records=self.records, bytes=self.bytes)

    def check_open(self) -> None:
        """Raises NotStarted and ProducerClosed."""
        if self.cause is not None:
            raise ProducerClosed(code="broken") from self.cause
        # PRD-92: "A producer MUST take user records between start, or the begin of its with block, and its
        # end, and nowhere else; what is put before MUST be refused with what to do."
        if self.state == "new":
            raise NotStarted(code="forked" if self.forked else "new")
        if self.state not in OPEN:
            raise ProducerClosed(code="closed")

    def request_map(self) -> None:
        self.refresh_wanted = self.unread = True
        self.wake()

    def begin_flush(self) -> Flush:
        flush = Flush()
        self.flushes.append(flush)
        self.wake()
        return flush

    def close(self, give_up_at: float | None) -> None:
        self.becomes("close")
        self.unread = True
        self.give_up_at = give_up_at
        self.notify()
        self.wake()

    def after_fork_in_child(self) -> None:
        """Forget what the parent delivers."""
        self.inbox, self.flushes = [], []
        self.records = self.bytes = 0
        self.forked = True
        self.becomes("fork")

    def notify(self) -> None:
        self.space.notify_all()
        self.news.notify_all()
