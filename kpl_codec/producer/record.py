"""A user record in the producer, from `put` to its result.

Specification: spec/05-producer.md, PRD-5, PRD-10, PRD-13, PRD-14, PRD-19, PRD-62 and PRD-63.
"""

from __future__ import annotations

from typing import Any

from ..base.compiled import prefer_compiled
from ..errors import EncodeError
from ..format.codec import AggregatedRecordBuilder
from ..format.compression import Compression, compress, decompress
from ..format.frame import looks_aggregated
from ..format.hash_keys import partition_key_hash
from ..format.records import UserRecord, check
from .config import ProducerConfig
from .results import NO_HISTORY, Attempt, Delivery, DeliveryError, History, Outcome, Put

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
            self.record = self.record.replace(explicit_hash_key=text)


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
            record = record.replace(explicit_hash_key=str(2**128 - 1))
        return len(outer_key(self._config, pending).encode()) + AggregatedRecordBuilder().size_with(record)

    def _hash(self, key: str) -> int:
        hash_key = self._hashes.get(key)
        if hash_key is None:
            if len(self._hashes) >= 65536:  # the cache is full: clearing it now and then is cheap
                self._hashes.clear()
            hash_key = self._hashes[key] = partition_key_hash(key)
        return hash_key


def deliver(records: list[Pending], attempt: Attempt) -> None:
    """``attempt`` has delivered the Kinesis record of these user records: give them their results."""
    shard_id, sequence_number = attempt.shard_id, attempt.sequence_number
    assert shard_id is not None
    assert sequence_number is not None
    _deliver(Delivery, records, shard_id, sequence_number, (attempt,))


def deliver_in_python(
    kind: type[Delivery], records: list[Pending], shard_id: str, number: str, last: tuple[Attempt]
) -> None:
    for index, pending in enumerate(records):
        history = pending.history or NO_HISTORY
        attempts = (*history.attempts, *last) if history.attempts else last
        pending.result = kind(shard_id, number, index, attempts, history.left_out)


_deliver = prefer_compiled("deliver", deliver_in_python)


def undelivered(
    config: ProducerConfig, stream: str, pending: Pending, outcome: Outcome, code: str | None = None
) -> Pending:
    """``pending`` with a DeliveryError as its result. ``stream``: its name. ``code``: the service's error
    code, if that ended it."""
    # PRD-63: "A DeliveryError MUST hold the user record as it was put."
    key, data, explicit_hash_key, tags = pending.record._values(pending.record)
    keyless = pending.keyless and key == KEYLESS_PARTITION_KEY
    if config.compression != "none":
        data = decompress(data, 2**62)  # as large as the caller's was
    # PRD-10: "Every accepted user record MUST end exactly once: as a Delivery, or as a DeliveryError with
    # the reason and all attempts."
    history = pending.history or NO_HISTORY
    pending.result = DeliveryError(
        user_record=Put(
            None if keyless else key, data, explicit_hash_key if pending.own_hash_key else None, tags
        ),
        outcome=outcome,
        stream=stream,
        code=code or outcome,
        attempts=history.attempts,
        attempts_left_out=history.left_out,
        left_out_may_be_stored=history.may_be_stored,
    )
    return pending
