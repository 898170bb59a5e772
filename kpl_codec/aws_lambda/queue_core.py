"""What a consumer of a queue does with each answer, without calls, clock or threads, which `queues` and
`aio_queues` have.

    received -> handled -> acknowledged       all its user records were handled
             -> failed  -> comes again        after a while that grows with each delivery
             -> gone                          its visibility ended before it was begun: another consumer's
             -> given back                    not begun when the consumer was stopped

One aggregate is one record of a queue: its user records are acknowledged together.
Specification: spec/14-queues-and-channels.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final, Literal, TypedDict

from ..adapters.shapes import queue_record
from ..aws.queues import DEAD_LETTERS, MOST_RECORDS, RECORDS, Calls, refusals
from ..aws_errors import is_permanent
from ..backoff import Backoff
from ..deaggregation.counts import Drop
from ..deaggregation.policies import Policy, check_policy, deaggregate
from .batch import AfterFailure, Batch, Call, Poison, UserRecordFailed, log, opened

#: After how many seconds a record that failed comes again, by its deliveries.
_AGAIN: Final = Backoff(5.0, 900.0)
#: Seconds that a handled record waits at most for others that are acknowledged in the same call.
LINGER: Final = 1.0
#: How often an acknowledgement is tried that the service may still take.
_TRIES: Final = 5
#: User records of a batch, at most, if ``once`` has to be asked for each: its calls are nested.
_MOST_NESTED: Final = 16

State = Literal["received", "handled", "acknowledged", "failed", "gone"]
#: Told after each answer: a name of QUEUE_METRICS, how much was added, and the queue as an attribute.
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


#: The names that ``observe`` is told: all are counters.
QUEUE_METRICS: Final = tuple(field.name for field in fields(QueueCounts))


class QueueOptions(TypedDict, total=False):
    """Options of both consumers.

    * ``batch``: ``handle`` takes a list of at most so many user records of one aggregate (of 16 with
      ``once``); if it fails, all of them have failed;
    * ``after_failure``, ``policy``, ``on_drop``, ``max_decompressed_size``, ``unframe``: as in
      `kpl_codec.aws_lambda.process_user_records`, within each aggregate;
    * ``on_poison``: takes Kinesis records that cannot be opened, and from delivery number ``poison_after`` on
      (5; the queue makes dead letters after 6) the user records that fail; then they are handled one by one.
      If it does not raise, they count as handled, and the rest of their aggregate is not held up;
    * ``visibility``: seconds (30) for which others do not get what was received; extended while it is
      handled. If this process dies, they get it after so long;
    * ``wait``: seconds (9) that a call waits for records, and a consumer that is stopped may take to end;
    * ``limit``: Kinesis records of one answer, at most (10);
    * ``dead_letters``: consume the queue's dead letters instead of its records;
    * ``drain``: return when an answer is empty, instead of waiting on;
    * ``patience``: seconds (60) for which a call that fails is repeated;
    * ``observe``: told what each answer added to the counts.
    """

    batch: int | None
    after_failure: AfterFailure
    policy: Policy
    on_drop: Callable[[Drop], None] | None
    max_decompressed_size: int | None
    unframe: bool
    on_poison: Callable[[Poison], object] | None
    poison_after: int
    visibility: int
    wait: int
    limit: int
    dead_letters: bool
    drain: bool
    patience: float
    observe: Observe | None


class Received:
    """One record of an answer, until it is acknowledged or comes again."""

    __slots__ = ("batch", "handle", "last_chance", "raw", "receive_count", "state", "tries", "until")

    def __init__(self, raw: Mapping[str, Any], batch: Batch, until: float, last_chance: bool) -> None:
        self.raw, self.batch, self.until, self.last_chance = raw, batch, until, last_chance
        self.handle: str = raw["ReceiptHandle"]
        self.receive_count = int(raw.get("ReceiveCount") or 1)
        self.state: State = "received"
        self.tries = 0


class QueueConsumer:
    """The rules of one consumer. State: ``counts``, and what was received and is not settled yet.

    The skin makes every call: `receive` gives the arguments, `take` takes the answer, and so on.
    """

    def __init__(
        self,
        queue: str,
        *,
        once: bool,
        batch: int | None = None,
        after_failure: AfterFailure = "stop",
        policy: Policy = "strict",
        on_drop: Callable[[Drop], None] | None = None,
        max_decompressed_size: int | None = None,
        unframe: bool = False,
        on_poison: Callable[[Poison], object] | None = None,
        poison_after: int = 5,
        visibility: int = 30,
        wait: int = 9,
        limit: int = MOST_RECORDS,
        dead_letters: bool = False,
        drain: bool = False,
        patience: float = 60.0,
        observe: Observe | None = None,
        **unknown: Any,
    ) -> None:
        if unknown:
            why = ": a queue gives no shard, so nothing can be placed" if "shard_map" in unknown else ""
            raise TypeError(f"no option of a queue's consumer: {', '.join(unknown)}{why}")
        check_policy(policy)
        # LMB-12, as for Lambda
        if policy == "kcl" and on_drop is None:
            raise ValueError("policy 'kcl' drops user records: on_drop must be there to hear of them")
        most = _MOST_NESTED if once else 10**9
        for name, value, least, at_most in (
            ("batch", 1 if batch is None else batch, 1, most),
            ("visibility", visibility, 1, 43_200),
            ("wait", wait, 1, 20),
            ("limit", limit, 1, MOST_RECORDS),
            ("poison_after", poison_after, 1, 1000),
        ):
            if not least <= value <= at_most:
                raise ValueError(f"{name} {value}: {least} to {at_most}")
        self.queue, self.drain, self.patience = queue, drain, patience
        self.in_batches, self._size = batch is not None, batch or 1
        self.calls: Calls = DEAD_LETTERS if dead_letters else RECORDS
        self.on_poison = on_poison
        self._poison_after, self._visibility, self._wait, self._limit = poison_after, visibility, wait, limit
        hook = None if on_poison is None else self._aside_unopened
        self._new_batch = partial(Batch, after_failure=after_failure, on_poison=hook)
        self._opening = partial(
            deaggregate,
            policy=policy,
            on_drop=on_drop,
            max_decompressed_size=max_decompressed_size,
            unframe=unframe,
        )
        #: Seconds between two beats while something is handled.
        self.beat = min(LINGER, visibility / 3)
        self.counts, self._observe, self._told = QueueCounts(), observe, QueueCounts()
        self._taken: list[Received] = []
        self._handled: deque[Received] = deque()  # to be acknowledged; a thread may append, another take
        self._lingering_since = 0.0

    # -- receive --------------------------------------------------------------------------------

    def receive(self) -> dict[str, Any]:
        """The arguments of the next call."""
        return {
            "QueueARN": self.queue,
            "Limit": self._limit,
            "WaitTimeSeconds": self._wait,
            "VisibilityTimeoutSeconds": self._visibility,
        }

    def take(self, answer: Mapping[str, Any], now: float) -> list[Received]:
        """The records of an answer that came ``now``."""
        until = now + self._visibility
        self._taken = []
        for raw in answer["QueueRecords"]:
            last_chance = int(raw.get("ReceiveCount") or 1) >= self._poison_after
            batch = self._new_batch(self._units(raw))
            self._taken.append(Received(raw, batch, until, last_chance and self.on_poison is not None))
        self.counts.kinesis_records += len(self._taken)
        return self._taken

    def _units(self, raw: Mapping[str, Any]) -> Iterator[Any]:
        yield opened(queue_record(raw), raw, self.queue, self._opening)

    def may_begin(self, received: Received, now: float) -> bool:
        """Whether a record may be handled. Not if others may have it by now."""
        # QUE-5: "The visibility of a record that waits or is handled MUST be extended before it ends; a
        # record MUST NOT be begun after that."
        if now < received.until:
            return True
        received.state = "gone"
        self.counts.gone += 1
        return False

    def groups(self, received: Received) -> Iterator[list[Call]]:
        """Its user records, as many at a time as ``batch`` allows, in order. On an exception of the handler
        call `Batch.fail` before the next group is asked for."""
        # QUE-7: "The user records of an aggregate MUST be handled in their order, one group after the other."
        size = 1 if received.last_chance else self._size
        group: list[Call] = []
        for call in received.batch.calls():
            if call is None or not received.batch.may_start(call):
                continue
            group.append(call)
            if len(group) == size:
                yield group
                group = []
        if group:
            yield group

    # -- what came of it ------------------------------------------------------------------------

    def poison(self, call: Call, error: Exception, received: Received) -> Poison | None:
        """What to give to ``on_poison`` after ``error`` of the handler; None: the user record comes again."""
        # QUE-8: "A user record that fails in delivery number poison_after or a later one MUST be given to the
        # poison hook, by itself; if that takes it, it counts as handled."
        if not received.last_chance:
            return None
        record = call.record
        failed = UserRecordFailed(
            record_id=record.record_id,
            sub_sequence_number=record.sub_sequence_number,
            receive_count=received.receive_count,
            reason=type(error).__name__,
        )
        failed.__cause__ = error
        return Poison(failed, queue_record(received.raw), received.raw, self.queue, record)

    def _aside_unopened(self, poison: Poison) -> object:
        assert self.on_poison is not None
        result = self.on_poison(poison)
        self.counts.put_aside += 1
        return result

    def settle(self, received: Received, now: float) -> None:
        """After the last group."""
        # QUE-2: "A record MUST be acknowledged when all its user records were handled, and MUST NOT be before
        # that."
        if received.batch.first_failed() is None:
            received.state = "handled"
            if not self._handled:
                self._lingering_since = now
            self._handled.append(received)
        else:
            received.state = "failed"
            self.counts.failed += 1

    def acknowledge(self, now: float, *, all_of_them: bool = False) -> list[Received]:
        """What to acknowledge in one call now; empty if that can wait."""
        full = len(self._handled) >= MOST_RECORDS
        if not (full or all_of_them or now - self._lingering_since >= LINGER):
            return []
        chosen: list[Received] = []
        while self._handled and len(chosen) < MOST_RECORDS:
            chosen.append(self._handled.popleft())
        return chosen

    def not_yet(self, chosen: list[Received]) -> None:
        """That call failed: acknowledge them later."""
        self._handled.extend(chosen)

    def acknowledged(self, chosen: list[Received], answer: Mapping[str, Any]) -> bool:
        """Take the answer of that call. Returns whether some should be tried again after a pause."""
        refused = refusals((received.handle for received in chosen), answer)
        again = False
        for received in chosen:
            code = refused.get(received.handle)
            received.tries += 1
            if code is None:
                received.state = "acknowledged"
                self.counts.acknowledged += 1
            # QUE-4: "An acknowledgement that failed MUST be tried again where that can help, and counted
            # where it cannot: the record comes again."
            elif is_permanent(code) or received.tries >= _TRIES:
                received.state = "gone"
                self.counts.not_acknowledged += 1
                log("record was handled, but not acknowledged (%s): %s", code, received.raw["RecordId"])
            else:
                self._handled.append(received)
                again = True
        return again

    # -- visibility -----------------------------------------------------------------------------

    def extend(self, now: float) -> list[Received]:
        """What to keep from others for longer, in one call now; empty if that can wait."""
        soon = now + self._visibility * 2 / 3
        kept = [received for received in self._taken if received.state in ("received", "handled")]
        return kept if any(received.until <= soon for received in kept) else []

    def extended(self, chosen: list[Received], answer: Mapping[str, Any], now: float) -> None:
        """Take the answer of that call, which began ``now``."""
        refused = refusals((received.handle for received in chosen), answer)
        for received in chosen:
            if received.handle not in refused:
                received.until = now + self._visibility

    def give_back(self) -> list[dict[str, Any]]:
        """The entries of the last call about an answer: when those come again that failed, or were not
        begun. They are forgotten."""
        entries = []
        for received in self._taken:
            if received.state == "failed":
                seconds = int(_AGAIN.seconds(received.receive_count - 1))
            elif received.state == "received":
                seconds = 0
                self.counts.given_back += 1
            else:
                continue
            entries.append({"ReceiptHandle": received.handle, "VisibilityTimeoutSeconds": seconds})
        self._taken = []
        return entries

    # -- calls and counts -----------------------------------------------------------------------

    def entries(self, chosen: Iterable[Received], visibility: bool = False) -> dict[str, Any]:
        """The arguments of a call about these."""
        more = {"VisibilityTimeoutSeconds": self._visibility} if visibility else {}
        entries = [{"ReceiptHandle": received.handle, **more} for received in chosen]
        return {"QueueARN": self.queue, "Entries": entries}

    def tell(self) -> None:
        """Tell ``observe`` what has been added."""
        if self._observe is None:
            return
        for name in QUEUE_METRICS:
            added = getattr(self.counts, name) - getattr(self._told, name)
            if added:
                self._observe(name, added, {"QueueARN": self.queue})
        self._told = QueueCounts(**vars(self.counts))
