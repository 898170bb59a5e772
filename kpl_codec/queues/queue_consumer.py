"""What a consumer of a queue does, in threads and on asyncio alike.

    received -> handled -> acknowledged       all its user records were handled
             -> failed  -> comes again        after a while that grows with each delivery
             -> gone                          its visibility ended before it was begun: another consumer's
             -> given back                    not begun when the consumer was stopped

One aggregate is one record of a queue: its user records are acknowledged together. In threads the coroutines
never wait (`kpl_codec.aws.calls.finished`). `queues` and `aio_queues` override the methods at the end.
Specification: spec/14-queues-and-channels.md.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import partial
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
from ..deaggregation.policies import deaggregate
from ..deaggregation.policy_rules import Policy, require_on_drop
from ..ledger.ledger_rows import Row, RowKind, digest_of, runs
from .queue_calls import DEAD_LETTERS, MOST_RECORDS, RECORDS, call, check_client, refusals

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger
    from ..schema_registry import Unframe

#: After how many seconds a record that failed comes again, by its deliveries.
_AGAIN: Final = Backoff(5.0, 900.0)
#: Seconds between two beats, at most: so long a handled record waits for others to be acknowledged with.
_BEAT: Final = 1.0
#: How often an acknowledgement is tried that the service may still take.
_TRIES: Final = 5

#: Called after each answer with a name of QUEUE_METRICS, how much was added, and the queue as an attribute.
Observe = Callable[[str, float, Mapping[str, str]], object]


@dataclass
class QueueCounts:
    """What a consumer has done so far.

    ``kinesis_records``: received, each delivery by itself. ``user_records``: handled. ``skipped``: user
    records that ``once`` knew as handled. ``put_aside``: user records, and Kinesis records that cannot be
    opened, that ``on_poison`` took. ``failed``: Kinesis records that come again since something in them
    failed. ``acknowledged``; ``not_acknowledged``: handled, but the service refused, so they come again.
    ``gone``: not begun in time. ``given_back``: not begun when the consumer was stopped.
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


#: The names that ``observe`` gets: all are counters.
QUEUE_METRICS: Final = tuple(field.name for field in fields(QueueCounts))


@dataclass(eq=False, slots=True)
class Received:
    """One record of an answer, until it is acknowledged or comes again."""

    raw: Mapping[str, Any]
    batch: Invocation
    until: float
    receive_count: int
    state: Literal["received", "handled", "acknowledged", "failed", "gone"] = "received"
    tries: int = 0
    #: Sub-sequence numbers that have no note yet: handled now, handled before, and put aside.
    ran: list[int] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    aside: list[int] = field(default_factory=list)

    def entry(self, **more: Any) -> dict[str, Any]:
        return {"ReceiptHandle": self.raw["ReceiptHandle"], **more}


class QueueConsumer(ABC):
    """One consumer. ``handle`` and ``once`` are the caller's; ``stop`` is an event."""

    def __init__(
        self,
        client: Any,
        queue: str,
        handle: Callable[[Any], object],
        once: Callable[[str, Callable[[], Any]], object] | None,
        stop: Any,
        clock: Callable[[], float],
        sleep: Callable[[float], Any],
        *,
        batch: int | None = None,
        after_failure: AfterFailure = "stop",
        policy: Policy = "strict",
        on_drop: Callable[[Drop], None] | None = None,
        max_decompressed_size: int | None = None,
        unframe: Unframe = False,
        on_poison: Callable[[Poison], object] | None = None,
        poison_after: int = 5,
        visibility: int = 30,
        wait: int = 9,
        dead_letters: bool = False,
        drain: bool = False,
        observe: Observe | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        check_client(client)
        require_on_drop(policy, on_drop)  # LMB-12, as for Lambda
        if min(1 if batch is None else batch, visibility, wait, poison_after) < 1:
            raise ValueError("batch, visibility, wait and poison_after: 1 or more")
        self.client, self._queue, self._handle, self._once = client, queue, handle, once
        self.stop, self._clock, self._sleep = stop, clock, sleep
        self._calls = DEAD_LETTERS if dead_letters else RECORDS
        self._size, self._after_failure, self._poison_after = batch, after_failure, poison_after
        self._opening = partial(
            deaggregate, policy=policy, on_drop=on_drop, max_decompressed_size=max_decompressed_size,
            unframe=unframe,
        )  # fmt: skip
        self._on_poison, self._drain, self._observe = on_poison, drain, observe
        self._notes = None if ledger is None else ledger.writer(queue, "handled")
        self._visibility = {"VisibilityTimeoutSeconds": visibility}
        self._receive = {"Limit": MOST_RECORDS, "WaitTimeSeconds": wait, **self._visibility}
        #: Seconds between two beats while something is handled.
        self.beat_seconds = min(_BEAT, visibility / 3)
        self.counts, self._observed = QueueCounts(), QueueCounts()
        self._received: list[Received] = []
        self._handled: deque[Received] = deque()  # to be acknowledged; a thread may append, another take

    async def run(self) -> QueueCounts:
        """Until ``stop`` is set, or with ``drain`` until an answer is empty."""
        with nullcontext() if self._notes is None else closing(self._notes):
            while not self.stop.is_set():
                # Once ``stop`` is set, no failing call is repeated.
                answer = await self._call(self._calls.receive, self._receive, sleep=self.wait)
                records = answer.get("QueueRecords", ())
                if records:
                    try:
                        self._take(records)
                        await self.all_of(self._received)
                    finally:
                        await self.acknowledge(all_of_them=True)
                        await self._give_back()
                self._report_counts()
                if self._drain and not records:
                    break
        return self.counts

    async def _call(self, operation: str, arguments: Mapping[str, Any], **how: Any) -> Any:
        how = {"clock": self._clock, "sleep": self._sleep, **how}
        return await call(self.client, operation, {"QueueARN": self._queue, **arguments}, **how)

    async def _refusals(
        self, operation: str, records: list[Received], more: Mapping[str, Any], **how: Any
    ) -> list[tuple[Received, str | None]]:
        """Make a call about records. Of each, why it was refused."""
        entries = [received.entry(**more) for received in records]
        answer = await self._call(operation, {"Entries": entries}, **how)
        codes = refusals([entry["ReceiptHandle"] for entry in entries], answer)
        return [(received, codes.get(received.raw["ReceiptHandle"])) for received in records]

    def _take(self, records: list[Mapping[str, Any]]) -> None:
        until = self._clock() + self._visibility["VisibilityTimeoutSeconds"]
        hook = None if self._on_poison is None else self._put_aside
        self._received = []
        for raw in records:
            batch = Invocation(map(self._open, [raw]), after_failure=self._after_failure, on_poison=hook)
            self._received.append(Received(raw, batch, until, int(raw.get("ReceiveCount") or 1)))
        self.counts.kinesis_records += len(records)

    def _open(self, raw: Mapping[str, Any]) -> OpenedRecord:
        record = queue_record(raw)
        return open_record(record, raw, self._queue, self._opening, record.record_id or "")

    def _is_last_chance(self, received: Received) -> bool:
        return self._on_poison is not None and received.receive_count >= self._poison_after

    def _put_aside(self, poison: Poison) -> object:
        assert self._on_poison is not None
        result = self._on_poison(poison)
        self.counts.put_aside += 1
        return result

    async def handle_record(self, received: Received) -> None:
        """Handle a record, if it may still be begun."""
        # QUE-9: "After SIGTERM a record that was begun MUST be handled to its end, and every other one given
        # back at once."
        if self.stop.is_set():
            return
        # QUE-5: "The visibility of a record that waits or is handled MUST be extended before it ends; a
        # record MUST NOT be begun after that."
        if self._clock() >= received.until:
            received.state = "gone"
            self.counts.gone += 1
            return
        for group in self._groups(received):
            try:
                await self._claim(group, received)
            except Exception:  # noqa: BLE001 - the caller's code: whatever it raises, the records failed
                received.batch.fail(*group)
        # QUE-2: "A record MUST be acknowledged when all its user records were handled, and MUST NOT be before
        # that."
        if received.batch.first_failure() is None:
            received.state = "handled"
            self._handled.append(received)
        else:
            received.state = "failed"
            self.counts.failed += 1

    def _groups(self, received: Received) -> Iterator[list[HandlerCall]]:
        """Its user records in order, as many at a time as ``batch`` allows."""
        # QUE-7: "The user records of an aggregate MUST be handled in their order, one group after the other."
        alone = self._once is not None or self._is_last_chance(received)
        size = 1 if alone else self._size or 1
        group: list[HandlerCall] = []
        for item in received.batch.calls():
            if item is None or not received.batch.may_start(item):
                continue
            group.append(item)
            if len(group) == size:
                yield group
                group = []
        if group:
            yield group

    async def _claim(self, group: list[HandlerCall], received: Received) -> None:
        """Handle these; with ``once`` it is one, which may have been handled before."""
        if self._once is None:
            await self._run(group, received)
            return
        claimed: list[HandlerCall] = []

        def claim() -> Any:
            claimed.extend(group)
            return self.nested(self._run(group, received))

        await self.result(self._once(group[0].key, claim))
        if not claimed:
            self.counts.skipped += 1
            received.skipped.append(group[0].record.sub_sequence_number)

    async def _run(self, group: list[HandlerCall], received: Received) -> None:
        records = [call.record for call in group]
        try:
            await self.result(self._handle(records[0] if self._size is None else records))
            self.counts.user_records += len(records)
            received.ran += [record.sub_sequence_number for record in records]
        except Exception as error:
            # QUE-8: "A user record that fails in delivery number poison_after or a later one MUST be given to
            # the poison hook, by itself; if that takes it, it counts as handled."
            if not self._is_last_chance(received):
                raise
            last = records[-1]
            failed = UserRecordFailed(
                record_id=last.record_id,
                sub_sequence_number=last.sub_sequence_number,
                receive_count=received.receive_count,
                reason=type(error).__name__,
            )
            failed.__cause__ = error
            poison = Poison(failed, queue_record(received.raw), received.raw, self._queue, last)
            if not handle_poison(poison, self._put_aside):
                raise
            received.aside.append(last.sub_sequence_number)

    # -- meanwhile ------------------------------------------------------------------------------

    async def beat(self) -> None:
        """Extend and acknowledge what is due. What fails is tried again at the next beat."""
        now, seconds = self._clock(), self._visibility["VisibilityTimeoutSeconds"]
        in_work = [received for received in self._received if received.state in ("received", "handled")]
        try:
            if any(received.until <= now + seconds * 2 / 3 for received in in_work):
                update = self._calls.update_visibility
                for received, code in await self._refusals(update, in_work, self._visibility, patience=0):
                    if code is None:
                        received.until = now + seconds
            await self.acknowledge(patience=0)
        except Exception as error:  # noqa: BLE001 - a call's, or whatever a ledger raises: `run` meets it, too
            LOG.error("%s", error)

    async def acknowledge(self, *, all_of_them: bool = False, **how: Any) -> None:
        """Acknowledge what was handled; with ``all_of_them`` again and again, until each is settled."""
        failures = 0
        while self._handled:
            chosen = [self._handled.popleft() for _ in range(len(self._handled))]
            try:
                self._note(chosen)
                answers = await self._refusals(self._calls.acknowledge, chosen, {}, **how)
            except BaseException:
                self._handled.extend(chosen)
                raise
            again = [
                received for received, code in answers if not self._settle_acknowledgement(received, code)
            ]
            self._handled.extend(again)
            if again:
                if not all_of_them:
                    return
                await maybe_await(self._sleep(BACKOFF.seconds(failures)))
                failures += 1

    def _note(self, records: list[Received]) -> None:
        # AUD-7: "A consumer's rows MUST be stored before the records count as handled."
        if self._notes is None:
            return
        rows, now = list[Row](), int(time.time() * 1000)
        for received in records:
            record = queue_record(received.raw)
            digest, record_id = digest_of(record.partition_key or "", record.data), record.record_id or ""
            by_kind: dict[RowKind, list[int]] = {
                "handled": received.ran, "before": received.skipped, "aside": received.aside,
            }  # fmt: skip
            for kind, subs in by_kind.items():
                names = [("", "", sub) for sub in sorted(subs)]
                rows += runs(names, Row(kind, "", "", 1, now, digest, record_id=record_id))
            rows += [Row("aside", "", "", 0, now, digest, 0, record_id) for _ in received.batch.aside]
        if rows:
            self._notes.note(rows)
        for received in records:
            received.ran, received.skipped, received.aside, received.batch.aside = [], [], [], []

    def _settle_acknowledgement(self, received: Received, code: str | None) -> bool:
        """Whether that is settled: otherwise the service may still take the acknowledgement."""
        received.tries += 1
        if code is None:
            received.state = "acknowledged"
            self.counts.acknowledged += 1
            return True
        # QUE-4: "An acknowledgement that failed MUST be tried again where that can help, and counted where it
        # cannot: the record comes again."
        if not (is_permanent(code) or received.tries >= _TRIES):
            return False
        received.state = "gone"
        self.counts.not_acknowledged += 1
        LOG.error("record was handled, but not acknowledged (%s): %s", code, received.raw["RecordId"])
        return True

    async def _give_back(self) -> None:
        """Say when those come again that failed, or were not begun; all of the answer is forgotten."""
        self._note(self._received)
        entries = []
        for received in self._received:
            if received.state == "failed":
                seconds = int(_AGAIN.seconds(received.receive_count - 1))
                entries.append(received.entry(VisibilityTimeoutSeconds=seconds))
            elif received.state == "received":
                self.counts.given_back += 1
                entries.append(received.entry(VisibilityTimeoutSeconds=0))
        self._received = []
        if entries:  # (What is refused here comes again as well, when its visibility ends.)
            await self._call(self._calls.update_visibility, {"Entries": entries})

    def _report_counts(self) -> None:
        for name in QUEUE_METRICS if self._observe is not None else ():
            added = getattr(self.counts, name) - getattr(self._observed, name)
            if added and self._observe is not None:
                self._observe(name, added, {"QueueARN": self._queue})
        self._observed = replace(self.counts)

    # -- what differs ---------------------------------------------------------------------------

    @abstractmethod
    async def result(self, returned: object) -> None:
        """Take what a handler or ``once`` has returned. Raises TypeError for what must not be."""

    @abstractmethod
    def nested(self, steps: Coroutine[Any, Any, None]) -> Any:
        """What the call that ``once`` is given returns."""

    @abstractmethod
    async def all_of(self, records: list[Received]) -> None:
        """`handle_record` for each, and meanwhile `beat` every ``beat_seconds``."""

    @abstractmethod
    def wait(self, seconds: float) -> Any:
        """Sleep, but until ``stop`` is set. Gives whether it is; on asyncio an awaitable of that."""
