"""The consumer of a queue, the part that threads and asyncio share. Each record of a response goes this way:

    received -> handled -> acknowledged     all its user records were handled
             -> failed  -> delivered again  after a time that grows with each delivery
             -> gone                        its visibility ended before it was begun: another consumer has it
             -> given back                  it was not begun when the consumer was stopped

An aggregated record is one record of a queue, so its user records are acknowledged together.
`threaded_consumer` and `aio` implement the abstract methods at the end; those of `threaded_consumer` never
make a coroutine wait. Specification: spec/14-queues-and-channels.md.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

from ..adapters.shapes import queue_record
from ..aws.calls import BACKOFF, maybe_await
from ..aws_errors import Backoff, is_permanent
from ..aws_lambda.batch import (
    LOG,
    AfterFailure,
    HandlerCall,
    Invocation,
    OpenedRecord,
    Poison,
    UserRecordFailed,
    handle_poison,
    open_record,
)
from ..deaggregation.deaggregated_record import Drop
from ..deaggregation.policies import opened
from ..deaggregation.policy_rules import Policy, require_on_drop
from ..format.records import KinesisRecord
from ..ledger.ledger_rows import Row, RowKind, digest_of, runs
from .queue_calls import DEAD_LETTERS, MOST_RECORDS, RECORDS, call, call_entries, check_client

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger

#: Called after each response with a name of QUEUE_METRICS, the amount to add, and the queue's ARN.
Observe = Callable[[str, float, Mapping[str, str]], object]
#: Seconds after which a record that failed is delivered again, by the number of its deliveries.
_REDELIVERY: Final = Backoff(5.0, 900.0)
#: The most seconds between two heartbeats, and that a handled record waits to be acknowledged with others.
_HEARTBEAT_INTERVAL: Final = 1.0
#: The most attempts of an acknowledgement that the service may still accept.
_MOST_ATTEMPTS: Final = 5


@dataclass
class QueueCounts:
    """The counts of a consumer so far.

    ``kinesis_records``: records received; each delivery counts. ``user_records``: user records handled.
    ``skipped``: user records that ``once`` left out. ``put_aside``: user and Kinesis records that
    ``on_poison`` took. ``failed``: Kinesis records that are delivered again, because something in them
    failed. ``acknowledged``. ``not_acknowledged``: records that were handled, but whose acknowledgement the
    service refused; they are delivered again. ``gone``: records whose visibility ended before they were
    begun. ``given_back``: records not begun when the consumer was stopped.
    """

    kinesis_records: int = 0
    user_records: int = 0
    skipped: int = 0
    put_aside: int = 0
    failed: int = 0
    acknowledged: int = 0
    not_acknowledged: int = 0
    gone: int = 0
    given_back: int = 0


#: The names that ``observe`` is called with. All are counters.
QUEUE_METRICS: Final = tuple(field.name for field in fields(QueueCounts))


@dataclass(eq=False, slots=True)
class QueueDelivery:
    """One record of a response. ``expires``: when its visibility ends, in seconds of the consumer's clock.
    ``last_chance``: user records that fail go to ``on_poison``. ``attempts``: to acknowledge it.
    ``unrecorded``: sub-sequence numbers that the ledger does not have yet, by the kind of their rows."""

    raw: Mapping[str, Any]
    record: KinesisRecord
    invocation: Invocation
    expires: float
    last_chance: bool = False
    state: Literal["received", "handled", "acknowledged", "failed", "gone"] = "received"
    attempts: int = 0
    unrecorded: defaultdict[RowKind, list[int]] = field(default_factory=lambda: defaultdict(list))

    @property
    def receive_count(self) -> int:
        return int(self.raw.get("ReceiveCount") or 1)

    def entry(self, **visibility: int) -> dict[str, Any]:
        return {"ReceiptHandle": self.raw["ReceiptHandle"], **visibility}

    def record_later(self, kind: RowKind, group: list[HandlerCall]) -> None:
        names = [call.record.sub_sequence_number for call in group if call.record.is_user_record]
        self.unrecorded[kind] += names


@dataclass(eq=False)
class QueueConsumer(ABC):
    """One consumer. ``handler`` and ``once`` are the caller's functions, ``stop`` is an event. The options:
    see `QueueOptions`."""

    client: Any
    queue: str
    handler: Callable[[Any], object]
    once: Callable[[str, Callable[[], Any]], object] | None
    stop: Any
    clock: Callable[[], float]
    sleep: Callable[[float], Any]
    _: KW_ONLY
    batch: int | None = None
    after_failure: AfterFailure = "stop"
    policy: Policy = "strict"
    on_drop: Callable[[Drop], None] | None = None
    max_decompressed_size: int | None = None
    on_poison: Callable[[Poison], object] | None = None
    poison_after: int = 5
    visibility: int = 30
    poll_wait: int = 9
    dead_letters: bool = False
    drain: bool = False
    observe: Observe | None = None
    ledger: Ledger | None = None

    def __post_init__(self) -> None:
        check_client(self.client)
        require_on_drop("process_queue_records", self.policy, self.on_drop)  # LMB-12, as for Lambda
        self._deaggregate = partial(
            opened, policy=self.policy, on_drop=self.on_drop,
            max_decompressed_size=self.max_decompressed_size,
        )  # fmt: skip
        self._subject = DEAD_LETTERS if self.dead_letters else RECORDS
        self._update_visibility = f"update_{self._subject}_visibility"
        self._ledger = None if self.ledger is None else self.ledger.writer(self.queue, "handled")
        self.heartbeat_interval = min(_HEARTBEAT_INTERVAL, self.visibility / 3)
        self.counts, self._observed_counts = QueueCounts(), QueueCounts()
        self._deliveries: list[QueueDelivery] = []
        #: Handled and not acknowledged. The thread of heartbeats takes from the left while another appends.
        self._handled: deque[QueueDelivery] = deque()

    async def run(self) -> QueueCounts:
        """Consume until ``stop`` is set; with ``drain`` until a response is empty."""
        arguments = {
            "QueueARN": self.queue,
            "Limit": MOST_RECORDS,
            "WaitTimeSeconds": self.poll_wait,
            "VisibilityTimeoutSeconds": self.visibility,
        }
        with nullcontext() if self._ledger is None else closing(self._ledger):
            while not self.stop.is_set():
                # Once ``stop`` is set, no failing call is repeated.
                sent = self.clock()
                response = await call(
                    self.client,
                    f"receive_{self._subject}",
                    arguments,
                    clock=self.clock,
                    sleep=self.wait_for_stop,
                )
                records = response.get("QueueRecords", ())
                if records:
                    try:
                        self._receive(records, sent)
                        await self.heartbeat()  # extends the visibility if the response was late
                        await self.handle_all(self._deliveries)
                    finally:
                        await self.acknowledge(until_settled=True)
                        await self._give_back()
                self._report_counts()
                if self.drain and not records:
                    break
        return self.counts

    async def _call_entries(self, operation: str, entries: list[Any], **how: Any) -> dict[str, str]:
        how = {"clock": self.clock, "sleep": self.sleep, **how}
        return await call_entries(self.client, self.queue, operation, entries, **how)

    def _receive(self, records: list[Mapping[str, Any]], sent: float) -> None:
        """Take the records of a response. ``sent``: when its call was sent, or a first attempt that failed:
        the visibility has not begun before."""
        expires = sent + self.visibility
        hook = None if self.on_poison is None else self._put_aside
        self._deliveries = []
        for raw in records:
            record = queue_record(raw)
            opening = partial(self._open, raw, record)
            invocation = Invocation(opening, after_failure=self.after_failure, on_poison=hook)
            delivery = QueueDelivery(raw, record, invocation, expires)
            delivery.last_chance = hook is not None and delivery.receive_count >= self.poison_after
            self._deliveries.append(delivery)
        self.counts.kinesis_records += len(records)

    def _open(self, raw: Mapping[str, Any], record: KinesisRecord) -> Iterator[OpenedRecord]:
        """Open the record, when the result is first read: only then it is handled."""
        yield open_record(record, raw, self.queue, self._deaggregate, record.record_id or "")

    def _put_aside(self, poison: Poison) -> object:
        assert self.on_poison is not None
        result = self.on_poison(poison)
        self.counts.put_aside += 1
        return result

    async def handle_record(self, delivery: QueueDelivery) -> None:
        # QUE-9: "After SIGTERM a record that was begun MUST be handled to its end, and every other one given
        # back at once."
        if self.stop.is_set():
            return
        # QUE-5: "The visibility of a record that waits or is handled MUST be extended before it ends, counted
        # from when the call was sent that began it; a record MUST NOT be begun after that."
        if self.clock() >= delivery.expires:
            delivery.state = "gone"
            self.counts.gone += 1
            return
        for group in self._groups(delivery):
            try:
                await self._handle_once(group, delivery)
            except Exception as error:  # noqa: BLE001 - the caller's code: whatever it raises, the records failed
                delivery.invocation.fail(error, *group)
        # QUE-2: "A record MUST be acknowledged when all its user records were handled, and MUST NOT be before
        # that."
        if delivery.invocation.first_failure() is None:
            delivery.state = "handled"
            self._handled.append(delivery)
        else:
            delivery.state = "failed"
            self.counts.failed += 1

    def _groups(self, delivery: QueueDelivery) -> Iterator[list[HandlerCall]]:
        # QUE-7: "The user records of an aggregate MUST be handled in their order, one group after the other."
        one_by_one = self.once is not None or delivery.last_chance
        size = 1 if one_by_one else self.batch or 1
        invocation = delivery.invocation
        calls = (call for call in invocation.calls() if call is not None and invocation.may_start(call))
        while group := list(islice(calls, size)):
            yield group

    async def _handle_once(self, group: list[HandlerCall], delivery: QueueDelivery) -> None:
        """Handle a group. With ``once`` it is one user record, which may have been handled before."""
        if self.once is None:
            await self._handle_group(group, delivery)
            return
        record = group[0].record

        def handle() -> Any:
            delivery.invocation.begin(record)
            return self.start(self._handle_group(group, delivery))

        await self.finish(self.once(group[0].key, handle))
        if not delivery.invocation.was_called(record):
            self.counts.skipped += 1
            delivery.record_later("before", group)

    async def _handle_group(self, group: list[HandlerCall], delivery: QueueDelivery) -> None:
        record = group[0].record
        try:
            await self.finish(self.handler(record if self.batch is None else [call.record for call in group]))
            self.counts.user_records += len(group)
            delivery.record_later("handled", group)
        except Exception as error:
            # QUE-8: "A user record that fails in delivery number poison_after or a later one MUST be given to
            # the poison hook, by itself; if that takes it, it counts as handled."
            if not delivery.last_chance:
                raise
            failure = UserRecordFailed(
                record_id=record.record_id,
                sub_sequence_number=record.sub_sequence_number,
                receive_count=delivery.receive_count,
                reason=type(error).__name__,
            )
            failure.__cause__ = error
            poison = Poison(failure, delivery.record, delivery.raw, self.queue, record)
            if not handle_poison(poison, self._put_aside):
                raise
            delivery.record_later("aside", group)
        delivery.invocation.end(record)

    async def heartbeat(self) -> None:
        """Extend visibilities and acknowledge records, if due. The next heartbeat repeats failed calls."""
        now = self.clock()
        pending = [delivery for delivery in self._deliveries if delivery.state in ("received", "handled")]
        try:
            if any(delivery.expires <= now + self.visibility * 2 / 3 for delivery in pending):
                entries = [delivery.entry(VisibilityTimeoutSeconds=self.visibility) for delivery in pending]
                failed = await self._call_entries(self._update_visibility, entries, patience=0)
                for delivery in pending:
                    if delivery.raw["ReceiptHandle"] not in failed:
                        delivery.expires = now + self.visibility
            await self.acknowledge(patience=0)
        except Exception as error:  # noqa: BLE001 - of a call or a ledger; `run` makes the same call at the end
            LOG.error("%s", error)

    async def acknowledge(self, *, until_settled: bool = False, **how: Any) -> None:
        """Acknowledge the handled records. ``until_settled``: repeat until no acknowledgement is open."""
        failures = 0
        while self._handled:
            deliveries = [self._handled.popleft() for _ in range(len(self._handled))]
            try:
                self._write_ledger(deliveries)
                entries = [delivery.entry() for delivery in deliveries]
                failed = await self._call_entries(f"acknowledge_{self._subject}", entries, **how)
            except BaseException:
                self._handled.extend(deliveries)
                raise
            for delivery in deliveries:
                if not self._settle(delivery, failed.get(delivery.raw["ReceiptHandle"])):
                    self._handled.append(delivery)
            if not until_settled:
                return
            if self._handled:
                await maybe_await(self.sleep(BACKOFF.seconds(failures)))
                failures += 1

    def _settle(self, delivery: QueueDelivery, code: str | None) -> bool:
        """Whether an acknowledgement with this error code (None: it was made) needs no further attempt."""
        delivery.attempts += 1
        if code is None:
            delivery.state = "acknowledged"
            self.counts.acknowledged += 1
            return True
        # QUE-4: "An acknowledgement that failed MUST be tried again where that can help, and counted where it
        # cannot: the record comes again."
        if not is_permanent(code) and delivery.attempts < _MOST_ATTEMPTS:
            return False
        delivery.state = "gone"
        self.counts.not_acknowledged += 1
        LOG.error("record was handled, but not acknowledged (%s): %s", code, delivery.raw["RecordId"])
        return True

    def _write_ledger(self, deliveries: list[QueueDelivery]) -> None:
        # AUD-7: "A consumer's rows MUST be stored before the records count as handled."
        if self._ledger is None:
            return
        rows, now = list[Row](), int(time.time() * 1000)
        for delivery in deliveries:
            record = delivery.record
            digest = digest_of(record.partition_key or "", record.data)
            like = Row("aside", "", "", 0, now, digest, 0, record.record_id or "")
            for kind, numbers in delivery.unrecorded.items():
                names = [("", "", number) for number in numbers]
                rows += runs(names, like.replace(kind=kind, user_records=1))
            rows += [like for _ in delivery.invocation.aside]
        if rows:
            self._ledger.note(rows)
        for delivery in deliveries:
            delivery.unrecorded.clear()
            delivery.invocation.aside.clear()

    async def _give_back(self) -> None:
        """Set the visibility of failed records and of records that were not begun: then they come again."""
        self._write_ledger(self._deliveries)
        entries = []
        for delivery in self._deliveries:
            if delivery.state in ("failed", "received"):
                begun = delivery.state == "failed"
                self.counts.given_back += not begun
                seconds = int(_REDELIVERY.seconds(delivery.receive_count - 1)) if begun else 0
                entries.append(delivery.entry(VisibilityTimeoutSeconds=seconds))
        self._deliveries = []
        # (An entry that fails is delivered again when its visibility ends.)
        await self._call_entries(self._update_visibility, entries)

    def _report_counts(self) -> None:
        if self.observe is None:
            return
        for name in QUEUE_METRICS:
            if added := getattr(self.counts, name) - getattr(self._observed_counts, name):
                self.observe(name, added, {"QueueARN": self.queue})
        self._observed_counts = replace(self.counts)

    # -- what threads and asyncio do differently ------------------------------------------------

    @abstractmethod
    async def finish(self, result: object) -> None:
        """Await what the handler or ``once`` returned. Threads raise TypeError for a coroutine."""

    @abstractmethod
    def start(self, steps: Coroutine[Any, Any, None]) -> Any:
        """The result of the call that ``once`` makes: threads run ``steps``, asyncio returns ``steps``."""

    @abstractmethod
    async def handle_all(self, deliveries: list[QueueDelivery]) -> None:
        """`handle_record` for each, with a `heartbeat` every ``heartbeat_interval`` seconds meanwhile."""

    @abstractmethod
    def wait_for_stop(self, seconds: float) -> Any:
        """Sleep until ``stop`` is set, or so long. Returns whether it is set; on asyncio an awaitable."""
