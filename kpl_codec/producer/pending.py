"""A user record in the producer, from `put` to its result; and the mailbox between callers and driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ..base.compiled import prefer_compiled
from ..errors import EncodeError, KplError
from ..format.codec import AggregatedRecordBuilder
from ..format.compression import Compression, compress
from ..format.frame import looks_aggregated
from ..format.hash_keys import partition_key_hash
from ..format.records import UserRecord, check
from .config import ProducerConfig
from .outcomes import History
from .states import DRIVEN, ENDED, NEXT, OPEN, Event, State

if TYPE_CHECKING:
    pass

#: The KPL's outer key: the partition key of its aggregated records.
FIXED_OUTER_KEY = "a"
#: The partition key that a user record without a key gets, because the format needs one.
KEYLESS_PARTITION_KEY = "a"


class RecordTooLarge(EncodeError):
    """Data and partition key have ``size`` bytes, the stream allows ``max_size``."""

    code: str = "record-too-large"
    requirement = "PRD-5"
    size: int
    max_size: int
    text = "user record refused: {size} bytes with its key, the stream takes {max_size}"
    todo = (
        "Make the data smaller. Or raise the stream's maximum record size, and max_record_size if it is "
        "set: a producer reads the stream's again after it has refused a user record, once a minute. Before"
        " that see that every consumer can take such records: a Lambda function gets at most 6 MB of "
        "JSON."
    )


class ProducerFull(KplError):
    """``records`` and ``bytes`` are outstanding already; nothing was accepted."""

    code = "producer-full"
    requirement = "PRD-7"
    records: int
    bytes: int
    text = "the producer holds {records} user records ({bytes} bytes) and takes no more"
    todo = "Wait for futures, put less, or raise the limits of ProducerConfig."


#: By the code of a ProducerClosed.
_WHY_CLOSED = {
    "closed": "it is closed",
    "forked": "its client= belongs to the parent process, and cannot be used in a forked child",
    "broken": "it is broken; the cause of this error says why",
    "loop-ended": "its event loop has ended, or another one runs",
}


class ProducerClosed(KplError):
    """The producer accepts no more records. ``code``: closed; forked (its ``client`` is the parent
    process's); broken (by this error's cause); loop-ended."""

    code: Literal["closed", "forked", "broken", "loop-ended"]
    requirement = "PRD-9"
    todo = "Make a new producer: after close(), in a forked child, and in each event loop."

    def describe(self) -> str:
        """The text without the place."""
        return f"the producer takes no records: {_WHY_CLOSED.get(self.code, self.code)}"


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


class PlainPending:
    """A user record to send. ``token`` belongs to the caller (for example a future) and is never used.
    ``result``: its Delivery or DeliveryError, once it has ended.

    ``record`` is what is written, ``hash_key`` its effective hash key. ``own_hash_key``: the caller gave an
    explicit hash key; otherwise one may be assigned, and another for the next attempt. ``keyless``: the
    partitioner chooses the shard. ``alone``: not to be aggregated (again). ``must_wrap``, ``wrap``: if sent
    alone, as an aggregate of one. ``history``: None while no attempt has failed. ``number`` counts the
    accepted user records. Set when it is accepted, in seconds of the producer's clock: ``accepted_at``,
    ``deadline`` (of its aggregate), ``map_deadline`` (how long it waits for a prediction), ``expires_at``.
    """

    __slots__ = (
        "accepted_at", "alone", "bucket", "deadline", "expires_at", "hash_key", "history", "key_hash_key",
        "keyless", "map_deadline", "must_wrap", "number", "own_hash_key", "record", "result", "size", "token",
        "wrap",
    )  # fmt: skip

    def __init__(
        self, record: UserRecord, hash_key: int, *, own_hash_key: bool, keyless: bool, must_wrap: bool
    ) -> None:
        self.record = record
        self.hash_key = hash_key
        self.key_hash_key = hash_key
        self.own_hash_key = own_hash_key
        self.keyless = keyless
        self.must_wrap = self.wrap = must_wrap
        self.size = len(record.data) + len(record.partition_key.encode())
        self.alone = False
        self.bucket = 0
        self.history: History | None = None
        self.number = 0
        self.accepted_at = self.deadline = self.map_deadline = self.expires_at = 0.0
        self.token: Any = None
        self.result: Any = None

    def enter(self, number: int, accepted_at: float, aggregating: float, map_wait: float, ttl: float) -> None:
        """Mark the user record as accepted. ``aggregating``, ``map_wait``, ``ttl``: seconds from then to its
        deadlines."""
        self.number, self.accepted_at, self.deadline = number, accepted_at, accepted_at + aggregating
        self.map_deadline, self.expires_at = accepted_at + map_wait, accepted_at + ttl

    def assign(self, hash_key: int, text: str) -> None:
        self.hash_key = hash_key
        if self.record.explicit_hash_key != text:
            self.record = self.record._replace(explicit_hash_key=text)


Pending = PlainPending
Pending = prefer_compiled("Pending", PlainPending)  # type: ignore[misc]
#: Compiled: makes a Pending of a user record that needs only its sizes and hash key, else returns None.
#: Without the extension it always returns None.
_plain_pending = prefer_compiled("plain_pending", lambda *_: None)


def outer_key(config: ProducerConfig, first: Pending) -> str:
    # PRD-19: "The outer partition key of an aggregate MUST be "a" unless the caller chose otherwise."
    if config.outer_key == "buckets":
        return f"{FIXED_OUTER_KEY}{first.bucket}"
    return FIXED_OUTER_KEY


class PutValidator:
    """Makes a `Pending` of a caller's user record: checks it, and computes sizes and hash key.
    Thread-safe."""

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._max_size = config.known_record_size
        self._buckets = config.outer_key_buckets if config.outer_key == "buckets" else 0
        self._hashes: dict[str, int] = {}  # a cache of keys that may be written
        chosen = config.compression
        self._compression: Compression | None = None if chosen == "none" else chosen
        # With these settings the compiled code prepares a plain user record.
        special = self._buckets or config.ignore_keys or self._compression
        self._most_are_plain = not special

    def prepare(
        self,
        partition_key: str | None,
        data: bytes,
        explicit_hash_key: str | int | None = None,
        tags: tuple[Any, ...] = (),
    ) -> Pending:
        """Raises EncodeError for an invalid user record, RecordTooLarge. ``partition_key`` None: the
        partitioner chooses the shard."""
        if self._most_are_plain and explicit_hash_key is None and not tags:
            plain = _plain_pending(UserRecord, partition_key, data, self._hashes, self._max_size - 1024)
            if plain is not None:
                return plain  # type: ignore[no-any-return]
        config = self._config
        keyless = partition_key is None or config.ignore_keys
        key = KEYLESS_PARTITION_KEY if partition_key is None else partition_key
        if self._compression is not None and type(data) is bytes:
            data = compress(data, self._compression)
        record = UserRecord(key, data, explicit_hash_key, tags)
        check(record)
        hash_key = self._hash(key) if explicit_hash_key is None else int(explicit_hash_key)
        pending = Pending(
            record,
            hash_key,
            own_hash_key=explicit_hash_key is not None,
            keyless=keyless and explicit_hash_key is None,
            # A single user record is sent bare, unless consumers would take it for an aggregate (PRD-13) or
            # its tags would be lost (PRD-14).
            must_wrap=looks_aggregated(data) or bool(tags),
        )
        if self._buckets:
            pending.bucket = self._hash(key) % self._buckets
            pending.wrap = True
        # PRD-5: "A user record that cannot be written as a Kinesis record of at most max_record_size, outer
        # partition key included, MUST be refused when it is put."
        room = self._max_size
        if pending.size + 1024 > room or pending.wrap:
            size = self._size_alone(pending)
            if size > room:
                raise RecordTooLarge(field="data", size=size, max_size=room)
        return pending

    def learn_size(self, max_size: int) -> None:
        """Note that the stream takes Kinesis records of ``max_size`` bytes. The setting ``max_record_size``
        overrides it."""
        # PRD-62: "Where max_record_size is not set, the size that the stream is set to take MUST be the
        # limit, 1 MiB until it is known. After a user record was refused it MUST be read again, at most once
        # a minute."
        if self._config.max_record_size is None:
            self._max_size = min(max_size, self._config.max_outstanding_bytes)

    def _size_alone(self, pending: Pending) -> int:
        record = pending.record
        if not pending.wrap:
            return pending.size
        if record.explicit_hash_key is None and (pending.keyless or self._config.reshard_proof):
            record = record._replace(explicit_hash_key=str(2**128 - 1))
        return len(outer_key(self._config, pending).encode()) + AggregatedRecordBuilder().size_with(record)

    def _hash(self, key: str) -> int:
        hash_key = self._hashes.get(key)
        if hash_key is None:
            if len(self._hashes) >= 65536:  # the cache is full: clearing it now and then is cheap
                self._hashes.clear()
            hash_key = self._hashes[key] = partition_key_hash(key)
        return hash_key


class Flush:
    """A flush with a waiting caller. ``left``: the user records accepted before it that have no result yet;
    None: the driver has not begun it."""

    left: set[Pending] | None = None

    @property
    def done(self) -> bool:
        return self.left is not None and not self.left


class Mailbox:
    """User records that were put and that the driver has not taken yet, the flushes, and the producer's
    state. Used with the lock held.

    ``wake`` wakes the driver. ``space`` and
    ``news`` wake callers that wait for room, and for anything else. ``records``, ``bytes``: number and size
    of outstanding user records. ``unread``:
    news besides puts and flushes. ``awake``: the driver takes puts soon, and needs not be woken. ``state``:
    `becomes` changes it; ``cause``: the error that broke the producer. ``forked``: it had started in the
    parent process. ``let_go``: the producer was garbage-collected, so the driver is to close it.
    """

    def __init__(self, config: ProducerConfig, new_condition: Callable[[], Any]) -> None:
        self._config = config
        self.wake: Callable[[], object] = lambda: None
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
    def driven(self) -> bool:
        """Whether a driver gives results."""
        return self.state in DRIVEN

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

    async def wait_until(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until ``condition`` is true. Returns whether it became true in time. Raises ProducerClosed."""
        await self._wait(lambda: condition() or self.state not in OPEN, timeout)
        self.check_open()
        return condition()

    async def _wait(self, condition: Callable[[], bool], timeout: float | None) -> None:
        from ..aws.calls import maybe_await  # imported here, because it needs botocore

        await maybe_await(self.news.wait_for(condition, timeout))

    async def flush(self, timeout: float) -> None:
        """Wait until all user records put before have ended, at most ``timeout`` seconds."""
        flush = Flush()
        self.flushes.append(flush)
        self.wake()
        await self._wait(lambda: flush.done or self.ended, timeout)

    def close(self, give_up_at: float | None) -> None:
        self.becomes("close")
        self.unread = True
        self.give_up_at = give_up_at
        self.notify()

    def notify(self) -> None:
        self.space.notify_all()
        self.news.notify_all()
