"""The producer for threads, and what it shares with that for asyncio: start, waits, end.

Only the driver's thread uses the core. Signals go to the main thread, so Ctrl-C can interrupt a caller but
not the core. Forks and the end of the process: `process`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ..aws.calls import run_sync, stream_for
from ..base.arguments import check_arguments
from ..format.records import Tag
from . import Pending, ProducerClosed, ProducerConfig, RecordTooLarge
from .config import check_options, makes_retries, new_client
from .driver import CROWD, CROWD_WAIT, MOST_THREADS, Driver
from .future import DeliveryFuture, WouldDeadlock, new_future
from .mailbox import Mailbox
from .process import (
    LOCK,
    LOG_WAIT,
    StreamLog,
    check_start,
    check_threads,
    close_at_exit,
    driving,
    log_thread,
    process_id,
)
from .states import DRIVEN, OPEN

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .config import ProducerOptions

#: PRD-62: seconds between two readings of the stream's limit of a record's size; how long a put waits for the
#: first one.
SIZE_AGE, SIZE_WAIT = 60.0, 10.0
#: Seconds after which a flush ends, whatever the time to live and `on_undelivered`.
LONGEST_FLUSH: Final = 3600.0


class ProducerBase:
    """What both producers have. Raises StreamNameError for a text that is neither a stream's name nor its
    ARN, and for a client of another region than the ARN's; TypeError for an unknown option.

    Its coroutines wait in `_wait`, which blocks the thread in `Producer`, and lets other tasks run in
    `AsyncProducer`.
    """

    _driver_class = Driver
    _exit_timeout: float | None = None

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
        self._begin()

    def __reduce__(self) -> NoReturn:
        # PRD-79: "A producer, and a future of one, that is sent to another process MUST be refused with what
        # to do instead."
        raise TypeError("a producer belongs to one process: make it in the function that uses it there")

    def _begin(self) -> None:
        """Make the state that a forked child makes anew when it starts the producer."""
        driver = self._driver = self._driver_class(self._stream, self.config, self._options)
        self._core, self._mailbox, self._clock = driver.core, driver.mailbox, driver.clock
        self._size_asked_at = float("-inf")
        # PRD-90: "A with block, close without a timeout, a process and an event loop that end MUST wait
        # equally long for deliveries: exit_timeout seconds, or until each user record has its result."
        timeout = self._exit_timeout
        driver.exit_timeout = self.config.end_seconds if timeout is None else timeout
        self._process = process_id()  # last: Ctrl-C may come before

    def _new_client(self) -> Any:
        """The client for a start, before which a producer of the parent's begins anew in a forked child. It
        takes long, and botocore may log."""
        check_threads()
        with LOCK:
            if self._process != process_id():
                if self._client is not None:  # its connections are the parent's
                    raise ProducerClosed(code="forked")
                self._begin()
        return self._client or new_client(self.config, MOST_THREADS, self._client_settings)

    def _run(self, client: Any) -> None:
        """Start the threads, unless they run."""
        driver, mailbox = self._driver, self._mailbox
        with LOCK:
            if mailbox.state == "new":
                close_at_exit()
                driver.client = client
                weakref.finalize(self, _let_go, mailbox).atexit = False
                driver.start()
                mailbox.becomes("start")

    @property
    def outstanding(self) -> int:
        """How many accepted user records have no result yet."""
        return self._mailbox.records

    @property
    def _in_callback(self) -> bool:
        caller = self._driver.callback.caller
        return caller is not None and caller == self._driver.this_caller()

    def _may_wait(self, method: str) -> None:
        if self._in_callback:
            raise WouldDeadlock(method=method)

    async def _wait(self, condition: Callable[[], bool], timeout: float | None) -> None:
        """Wait until ``condition`` is true, at most ``timeout`` seconds. Raises what it raises."""
        self._mailbox.news.wait_for(condition, timeout)

    async def _wait_open(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """The same while the producer takes user records. Returns whether it became true in time."""
        mailbox = self._mailbox
        mailbox.check_open()
        await self._wait(lambda: condition() or mailbox.state not in OPEN, timeout)
        mailbox.check_open()
        return condition()

    def _has_map(self) -> bool:
        return self._core.live.state == "READY"

    async def _prepare_again(self, *put: Any) -> Pending:
        """Check a user record that is too large, when the stream's limit of a record's size is known, or
        while it is read again."""
        core, mailbox, now = self._core, self._mailbox, self._clock()
        if self.config.max_record_size is None and mailbox.state in OPEN:
            if not core.summaries and not self._in_callback:
                await self._wait_open(lambda: core.summaries > 0, SIZE_WAIT)
            elif now >= self._size_asked_at + SIZE_AGE:
                self._size_asked_at = now
                with LOCK:
                    mailbox.request_map()
        return core.prepare(*put)

    async def _flush(self, timeout: float | None) -> None:
        mailbox = self._mailbox
        if mailbox.state in DRIVEN:
            with LOCK:
                flush = mailbox.begin_flush()
            await self._wait(
                lambda: flush.left == 0 or mailbox.ended, LONGEST_FLUSH if timeout is None else timeout
            )

    async def _close(self, timeout: float | None) -> bool:
        timeout = self._exit_timeout if timeout is None else timeout
        driver, mailbox = self._driver, self._mailbox
        with LOCK:
            mailbox.close(mailbox.give_up_at if timeout is None else self._clock() + timeout)
        # (The thread is not joined: a handler that has interrupted a join would wait for itself.)
        await self._wait(lambda: mailbox.ended, None if timeout is None else timeout + driver.exit_timeout)
        # PRD-60: "Closing MUST report that everything was delivered only if every accepted user record was."
        return mailbox.ended and not driver.failed


class Producer(ProducerBase):
    """A producer for one stream, its name or its ARN. All methods are thread-safe.

    ``options``: see `kpl_codec.producer.config.ProducerOptions`. ``exit_timeout``: seconds that whatever ends
    the producer waits for deliveries (a ``with`` block, `close`, a process that ends), and a process as long
    again for on_undelivered; None: until each user record has its result, which is record_ttl_ms and 3
    seconds at most. Raises TypeError and ValueError for other values of the two.

    It takes user records within its ``with`` block, or from `start` to `close`. Callbacks of futures run in
    the thread that drives the producer: they must be short, and cannot wait for any producer (WouldDeadlock).
    A producer that is garbage-collected without `close` delivers what is outstanding, too. In AWS Lambda
    decorate the handler with `delivers`.
    """

    def __init__(
        self,
        stream: str,
        *,
        exit_timeout: float | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        check_arguments("Producer", {"exit_timeout": exit_timeout})
        self._exit_timeout = exit_timeout
        super().__init__(stream, **options)

    def put(
        self,
        partition_key: str | None,
        data: bytes,
        explicit_hash_key: str | int | None = None,
        tags: tuple[Tag, ...] = (),
    ) -> DeliveryFuture:
        """Accept a user record. The future's result is a Delivery, or it raises a DeliveryError.

        ``partition_key`` None: no key, the partitioner chooses a shard. When the producer is full put waits
        or raises ProducerFull, as ``when_full`` says. Raises EncodeError for a user record that cannot be
        written, NotStarted, ProducerClosed. A put that Ctrl-C interrupts may have been accepted or not. A put
        of a user record of more than 1 MiB waits, at most 10 s, until the stream's limit has been read.
        """
        try:
            pending = self._core.prepare(partition_key, data, explicit_hash_key, tags)
        except RecordTooLarge:
            self._mailbox.check_open()
            pending = run_sync(self._prepare_again(partition_key, data, explicit_hash_key, tags))
        future = pending.token = new_future()
        mailbox, clock = self._mailbox, self._clock
        with LOCK:
            if mailbox.state != "running":
                mailbox.check_open()
            while not mailbox.leave(pending, clock()):
                if self._in_callback:
                    raise mailbox.full()
                mailbox.space.wait()
                mailbox.check_open()
            # PRD-46: "It waits, at most 10 ms, while 1000 puts are not taken yet"
            if len(mailbox.inbox) >= CROWD and not driving.here:
                mailbox.wake()
                mailbox.news.wait_for(lambda: len(mailbox.inbox) < CROWD, CROWD_WAIT)
        return future

    def check(
        self,
        partition_key: str | None,
        data: bytes,
        explicit_hash_key: str | int | None = None,
        tags: tuple[Tag, ...] = (),
    ) -> None:
        """Raise what `put` raises for a user record that cannot be written, EncodeError, and put nothing. It
        waits as `put` does for the stream's limit."""
        try:
            self._core.prepare(partition_key, data, explicit_hash_key, tags)
        except RecordTooLarge:
            run_sync(self._prepare_again(partition_key, data, explicit_hash_key, tags))

    @property
    def _in_callback(self) -> bool:
        return driving.here or super()._in_callback

    def wait_ready(self, timeout: float | None = 10.0) -> bool:
        """Wait until there is a shard map, without which nothing is aggregated. Calling it is optional.
        Returns whether there is one within ``timeout`` seconds. Raises NotStarted, and ProducerClosed, also
        where it is closed meanwhile."""
        check_arguments("Producer.wait_ready", {"timeout": timeout})
        self._may_wait("wait_ready")
        return run_sync(self._wait_open(self._has_map, timeout))

    def flush(self, timeout: float | None = None) -> None:
        """Send everything at once and wait until all earlier puts have ended, delivered or failed: at most
        ``timeout`` seconds, an hour if that is None: records may have a longer time to live. Which of them
        were delivered their futures say.
        """
        check_arguments("Producer.flush", {"timeout": timeout})
        self._may_wait("flush")
        run_sync(self._flush(timeout))

    def close(self, timeout: float | None = None) -> bool:
        """Accept nothing more, deliver what is outstanding, end the threads.

        After ``timeout`` seconds (exit_timeout unless given) the user records without a result fail as
        "closed", and on_undelivered has as long as when a process ends. With neither, close returns when
        each user record has its result (in an outage after record_ttl_ms and 3 seconds) and on_undelivered
        has returned. Returns whether every user record ever accepted was delivered.
        """
        check_arguments("Producer.close", {"timeout": timeout})
        self._may_wait("close")
        ended = run_sync(self._close(timeout))
        log_thread.made().wait(LOG_WAIT)
        return ended

    def start(self) -> Producer:
        """Take user records from now on, until `close`. Returns the producer; one that has started stays as
        it is. Raises NotStarted in a task of PySpark and in AWS Lambda, where nothing would close it, and
        ProducerClosed."""
        if self._mailbox.state != "running":
            check_start()
            self._start()
        return self

    def __enter__(self) -> Producer:
        """Start. Raises ProducerClosed."""
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        if self._mailbox.state == "new":
            self._run(self._new_client())
        self._mailbox.check_open()


def _let_go(mailbox: Mailbox) -> None:
    """Have outstanding user records delivered after the Producer object was garbage-collected. Finalizers
    call it, so it takes no lock."""
    mailbox.let_go = mailbox.unread = True
    mailbox.wake()
