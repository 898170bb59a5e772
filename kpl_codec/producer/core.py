"""The producer without clock, threads and network: user records, responses and times are its arguments.

    driver                                  ProducerCore
     | accept(pending, now)           ──▶   partition, predict, aggregate
     | ◀── requests(now)                    PutRecords and ListShards calls to make
     | receive(request, response, now) ─▶   the outcome of each Kinesis record; see answers.py
     | fail(request, failure, now)    ──▶   no response, or an error for the whole call
     | ◀── results()                        user records with their ``result``, each once
     | ◀── timer()                          when to call requests(now) again if nothing else happens

    accept ──▶ order ──▶ router ──▶ send queue ──▶ in flight ──▶ stored ──▶ results
                 ▲                       ▲             │            │
                 └─ to be placed again ──┴─ as it is ──┴────────────┘

A user record is always in exactly one of these places, and leaves only through `results`. Only ProducerCore
moves user records: a method ``take_...`` of a place returns those that are to leave it, and `StoredOutcomes`
decides about those that were sent. No place knows another. Specification: spec/05-producer.md, PRD-6 to
PRD-32 and PRD-72.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import partial
from itertools import chain

from ..shards.live_shard_map import Failure, LiveShardMap, Refreshed, Request
from ..shards.sequence_numbers import sequence_hint
from ..shards.stream_name import stream_of
from .answers import (
    RetryPlan,
    StoredOutcomes,
    add_to_histories,
    outcome_of,
    parse_max_record_size,
    parse_put_records,
)
from .batch import AnyCall, Batch, Call, build_all, lost_at
from .config import Chance, Observe, ProducerConfig
from .lanes import SendQueue
from .metrics import Meter
from .ordering import StrictOrder
from .record import Pending, PutValidator, deliver, undelivered
from .reports import FailingCalls, LedgerRows
from .results import ACTIONS, Attempt, Entry
from .routing import ShardRouter
from .states import RecordState

#: PRD-82: how many answers are remembered.
_MOST_ANSWERS = 100


def _may_move(pending: Pending) -> bool:
    return pending.keyless and (not pending.history or pending.history.not_stored)


class ProducerCore:
    """All of the producer except waiting and making calls. Times are seconds of one monotonic clock. Not
    thread-safe, except `prepare` and `is_under_way`.

    ``live``: the stream's live shard map, whose requests the core makes. ``chance(n)``: a random number of
    0..n-1. ``keep_rows``: keep ``rows`` for a ledger. Counts: ``accepted``, the accepted user records,
    which is the number of the last one; ``outstanding``, those without a result yet; ``summaries``, ended
    calls of DescribeStreamSummary.
    """

    def __init__(
        self,
        config: ProducerConfig,
        live: LiveShardMap,
        chance: Chance,
        observe: Observe | None = None,
        *,
        keep_rows: bool = False,
    ) -> None:
        self.config = config
        self.live = live
        self._undelivered = partial(undelivered, config, stream_of(live.stream).name)
        self.failing_calls = FailingCalls()
        self.preparation = PutValidator(config)
        self.prepare = self.preparation.prepare
        self._ttl = config.ttl_seconds
        self._map_wait = config.map_wait
        self._aggregating = config.buffering_seconds - config.collecting_seconds
        self._observed = observe is not None
        self.accepted = self.outstanding = self.summaries = 0
        self._results: list[Pending] = []
        self.rows = LedgerRows() if keep_rows else None
        self.meter = Meter(observe)
        self._chance = chance
        self._requests = 0
        self._under_way: dict[int, tuple[float, AnyCall]] = {}  # by number
        self._refresh_again = False
        self._answered: dict[
            tuple[str | None, str], None
        ] = {}  # a sequence number of each of the last answers
        self._make_places()

    def _make_places(self) -> None:
        config, live = self.config, self.live
        strict = config.ordering == "partition-key"
        self._order = StrictOrder(config.expiry_step) if strict else None
        self._queue = SendQueue(config, self._chance)
        self._router = ShardRouter(config, live, self._chance, self._queue.add)
        self._in_flight: dict[int, list[Batch]] = {}
        self._stored = StoredOutcomes(config, live, self._undelivered)

    # -- records in ---------------------------------------------------------------------------

    def accept(self, pending: Pending, now: float, put_at: float | None = None) -> None:
        """Take a user record of `prepare`. ``put_at``: when its caller put it; by default ``now``."""
        put_at = now if put_at is None else put_at
        self.accepted = number = self.accepted + 1
        # PRD-8: "The time to live MUST count from the moment a user record was put. No deadline MUST lie
        # beyond it."
        # PRD-49: "A user record MUST NOT wait for others longer than record_max_buffered_time_ms from its
        # put, neither for those of its aggregate nor for other shards' in its request."
        pending.enter(number, put_at, self._aggregating, self._map_wait, self._ttl)
        self.outstanding += 1
        if self._observed:
            self.meter.accepted(put_at)
        order = self._order
        if pending.keyless:
            self._place_keyless(pending, now)
        elif order is None:
            self._router.place(pending, now)
        elif order.is_held(pending) or not self._place_in_order(order, pending, now):
            order.hold(pending)

    def refresh(self, now: float) -> None:
        """Have the shard map and the stream's summary read. If a call is under way, which may have read the
        old ones, they are read once more after it."""
        self._refresh_again = not self.live.refresh(now)

    def flush(self) -> None:
        """Send everything at once."""
        self._router.flush(self.accepted + 1)

    def abandon(self, now: float) -> None:
        """Everything outstanding fails as "closed". Later answers are ignored."""
        # PRD-9: "Closing MUST give every user record its result: delivered, or failed with the reason."
        attempts = [(one, one.attempt(Entry("no-answer"), now)) for one in chain(*self._in_flight.values())]
        attempts += [(parked.batch, parked.attempt) for parked in self._stored.parked]
        for batch, attempt in attempts:
            if self.rows is not None:
                self.rows.add_attempt(batch, attempt)
            add_to_histories(batch, attempt)
            self.meter.failed(attempt.outcome)
        everything = [pending for _, place in self.places() for pending in place]
        everything.sort(key=lambda pending: pending.number)
        self._make_places()
        self._take_results([self._undelivered(pending, "closed") for pending in everything])

    def places(self) -> Iterator[tuple[RecordState, list[Pending]]]:
        """All outstanding user records, place by place, each place with the state of its user records."""
        # PRD-6: "From being accepted to its result a user record MUST be in exactly one place: waiting for a
        # map, held behind its key, in an open aggregate, in a shard's queue, in the next request, in flight,
        # or waiting for a verdict."
        yield "held", list(self._order.held()) if self._order is not None else []
        yield "waiting", self._router.waiting()
        waiting_to_go = chain(self._router.batches(), self._queue.batches())
        parked = [parked.batch for parked in self._stored.parked]
        for batch in chain(waiting_to_go, *self._in_flight.values(), parked):
            yield batch.state, batch.records

    # -- into a Kinesis record ----------------------------------------------------------------

    def _place_keyless(self, pending: Pending, now: float) -> None:
        partitioner, queue = self._router.partitioner, self._queue
        if queue.pauses(partitioner.shard, now) and queue.ailing < len(partitioner.shards):
            partitioner.leave()
        if self._router.needs_queues:
            partitioner.update_queues(queue.queued(), queue.pausing(now))
        self._router.place(pending, now)

    def _place_in_order(self, order: StrictOrder, pending: Pending, now: float) -> bool:
        """Put a user record where the other user records of its key are. Returns whether there was room."""
        home = order.home(pending)
        placed = None if home == "waiting" else self._router.place(pending, now, home)
        if placed is not None:
            order.placed(pending, placed)
        return placed is not None

    def _place_again(self, records: Sequence[Pending], now: float) -> None:
        """Place failed user records again, the earliest first, then the user records of their keys that were
        held behind them."""
        order = self._order
        for pending in sorted(records, key=lambda pending: pending.number):
            if pending.keyless:
                self._place_keyless(pending, now)
            elif order is None:
                self._router.place(pending, now)
        if order is not None:
            order.come_back([pending for pending in records if not pending.keyless])
            while (first := order.next_held()) is not None:
                placed = self._place_in_order(order, first, now)
                (order.release if placed else order.wait)(first)

    # -- requests out -------------------------------------------------------------------------

    def requests(self, now: float) -> list[AnyCall]:
        """The calls to make now. Also does all that is due at ``now``."""
        self._give_up_calls(now)
        again = self._router.take_waiting(now)
        for parked in self._stored.take_due(now):
            again += self._finish_attempt(parked.batch, parked.attempt, now)
        if self._order is not None:
            expired = self._order.take_expired(now)
            self._take_results([self._undelivered(pending, "expired") for pending in expired])
        self._place_again(again, now)
        calls: list[AnyCall] = []
        if (map_request := self.live.next_request(now)) is not None:
            calls.append(map_request)
        self._router.close_due(now)
        self._expire(self._queue.take_expired(now), now)
        # PRD-22: "At most max_connections PutRecords calls MUST be under way at a time."
        while len(self._in_flight) < self.config.max_connections:
            batches = self._queue.take_next(now, self._router.urgent_below)
            if batches is None:
                break
            for batch in batches:
                self._expire(batch.take_expired(now), now)
            batches = [batch for batch in batches if batch.records]
            if not batches:
                continue  # all have expired
            self._requests += 1
            self._in_flight[self._requests] = batches
            for batch in batches:
                batch.becomes("in-flight")
                batch.sent_at, batch.generation = now, self.live.known.generation
            entries = build_all(batches, with_digests=self.rows is not None)
            calls.append(Call(self._requests, entries))
            self.meter.sent(batches, now)
        for call in calls:
            flying = self._in_flight[call.number] if isinstance(call, Call) else []
            self._under_way[id(call)] = lost_at(self.config, flying, now), call
        self.meter.levels(self.outstanding, now)
        return calls

    def timer(self) -> float | None:
        """When to call `requests` again if nothing happens before; None for never."""
        times = [
            min([until for until, _ in self._under_way.values()], default=None),
            self.live.timer(),
            self._router.timer(),
            self._stored.timer(),
            self._order.expires_at() if self._order is not None else None,
            self._queue.expires_at(),
            self._queue.ready_at() if len(self._in_flight) < self.config.max_connections else None,
        ]
        return min((at for at in times if at is not None), default=None)

    def is_under_way(self, request: AnyCall) -> bool:
        """Whether the response of a call still counts. Thread-safe."""
        return id(request) in self._under_way

    def _give_up_calls(self, now: float) -> None:
        for until, request in list(self._under_way.values()):
            if until <= now:
                failure = Failure("NoAnswer", "the call has not returned")
                self.fail(request, failure, now, answered=False)

    def _expire(self, expired: list[Pending], now: float) -> None:
        if expired:
            expired.sort(key=lambda pending: pending.number)
            self._end([self._undelivered(pending, "expired") for pending in expired])
            self._place_again((), now)

    # -- answers in ---------------------------------------------------------------------------

    def receive(self, request: AnyCall, answer: object, now: float) -> None:
        """Take the response of a call. A response after the call was given up is ignored."""
        if self._under_way.pop(id(request), None) is None:
            return
        if isinstance(request, Request):
            if request.operation == "DescribeStreamSummary":
                self.summaries += 1
                if isinstance(answer, Mapping) and answer.get("StreamDescriptionSummary"):
                    self.failing_calls.worked(request.operation)
                else:
                    self.failing_calls.failed(request.operation, Failure("MalformedAnswer"), now)
                if (max_size := parse_max_record_size(answer)) is not None:
                    self.preparation.learn_size(max_size)
            outcome = self.live.receive(request, answer, now)
            if outcome is not None and outcome.error is not None:
                failure = Failure(outcome.error.code, outcome.error.reason)
                self.failing_calls.failed(request.operation, failure, now)
            self._map_answered(outcome, now)
            return
        if landed := self._in_flight.pop(request.number, None):
            entries = self._unless_repeated(parse_put_records(answer, len(landed)))
            if any(entry.outcome == "delivered" for entry in entries):
                self.failing_calls.worked("PutRecords")
            else:
                (code, message), _ = Counter((one.code, one.message) for one in entries).most_common(1)[0]
                failure = Failure(code or "", message or "")
                self.failing_calls.failed("PutRecords", failure, now, kinesis_records=len(landed))
            self._process_entries(landed, entries, now)

    def _unless_repeated(self, entries: list[Entry]) -> list[Entry]:
        # PRD-82: "An answer that gives a sequence number of an earlier answer says nothing about what was
        # sent; all MUST be sent again."
        first = next((entry for entry in entries if entry.sequence_number is not None), None)
        if first is None or first.sequence_number is None or sequence_hint(first.sequence_number) is None:
            return entries  # (test doubles give the same short number again and again)
        place = (first.shard_id, first.sequence_number)
        if place in self._answered:
            return [Entry("count-mismatch", code="RepeatedAnswer")] * len(entries)
        self._answered[place] = None
        if len(self._answered) > _MOST_ANSWERS:
            del self._answered[next(iter(self._answered))]
        return entries

    def fail(self, request: AnyCall, failure: Failure, now: float, *, answered: bool) -> None:
        """A call failed. ``answered`` False: no whole response came, so nobody knows what was stored."""
        if self._under_way.pop(id(request), None) is None:
            return
        operation, facts = "PutRecords", dict[str, object](answered=answered)
        if isinstance(request, Request):
            operation = request.operation
        else:
            facts["kinesis_records"] = len(request.records)
        self.failing_calls.failed(operation, failure, now, **facts)
        if isinstance(request, Request):
            self.summaries += request.operation == "DescribeStreamSummary"
            self._map_answered(self.live.fail(request, failure, now), now)
            return
        landed = self._in_flight.pop(request.number, None)
        if not landed:  # the producer was closed meanwhile
            return
        outcome = outcome_of(*failure, answered=answered)
        if failure.code == "ResourceNotFoundException":
            self.live.stream_gone(now)
        if ACTIONS[outcome] == "isolate":
            # (Without its text, which may repeat data and keys.)
            self._queue.refused_as_invalid(now)
            self.meter.answered(landed, now)
            for _ in landed:
                self.meter.failed(failure.code)
            self._place_again(self._move(self._stored.invalid(landed, failure.code, now)), now)
        else:
            entry = Entry(outcome, code=failure.code, message=failure.reason or None)
            self._process_entries(landed, [entry] * len(landed), now, of_call=outcome != "throttled")

    def _process_entries(
        self,
        batches: list[Batch],
        entries: list[Entry],
        now: float,
        *,
        of_call: bool = False,
    ) -> None:
        again: list[Pending] = []
        self.meter.answered(batches, now)
        for batch, entry in zip(batches, entries, strict=True):
            attempt = batch.attempt(entry, now)
            if attempt.outcome == "delivered":
                attempt = self._stored.judge(batch, attempt, now)
            if attempt.outcome != "placement-unknown":
                again += self._finish_attempt(batch, attempt, now)
        self._queue.answered(batches, entries, now, of_call=of_call)
        failed = {
            batch.shard
            for batch, entry in zip(batches, entries, strict=True)
            if ACTIONS[entry.outcome] == "back-off"
        }
        self._place_again([*again, *self._take_stuck(failed, now)], now)

    def _take_stuck(self, failed: Set[str | None], now: float) -> list[Pending]:
        """Take the user records that another shard could get from these shards, on which attempts have
        failed."""
        # PRT-9: "A user record without a key that may be stored MUST stay with its shard; one that was not
        # stored MUST go to another when an attempt on its shard has failed and another shard is not left
        # alone."
        pausing = self._queue.pausing(now)
        if not failed or pausing.issuperset(self._router.partitioner.shards):
            return []
        stuck = [
            pending
            for place in (self._queue, self._router)
            for pending in place.take(failed & pausing, _may_move)
        ]
        for pending in stuck:
            pending.deadline = min(pending.deadline, now)
        return stuck

    def _finish_attempt(self, batch: Batch, attempt: Attempt, now: float) -> Sequence[Pending]:
        if self.rows is not None:
            self.rows.add_attempt(batch, attempt)
        if attempt.outcome == "delivered":
            deliver(batch.records, attempt)
            self._end(batch.records)
            self.meter.delivered(batch, attempt.shard_id or "")
            return ()
        self.meter.failed(attempt.code or attempt.outcome)
        return self._move(self._stored.failed(batch, attempt, now))

    def _move(self, plan: RetryPlan) -> Sequence[Pending]:
        """Carry out the plan for failed Kinesis records. Returns the user records to place again."""
        self._end(plan.ended)
        for batch in plan.unchanged:
            batch.becomes("queued")
            self._queue.add(batch)
        for batches in reversed(plan.isolated):
            self._queue.isolate(batches)
        return plan.again

    def _map_answered(self, outcome: Refreshed | None, now: float) -> None:
        if outcome is None:
            return
        if self._refresh_again:
            self.refresh(now)
        if outcome.error is None:
            self.failing_calls.worked("ListShards")
        else:
            self.meter.observe("ShardMapErrors", 1, {"ErrorCode": outcome.error.code})
        moved: list[Pending] = []
        if outcome.routes_changed:
            # PRD-32: "When the map changes, everything that waits for a shard that is no longer open MUST be
            # predicted and aggregated anew; so MUST what waits without a prediction and has one now."
            # If the stream was deleted and created again, the same shard id means another shard.
            still_open = frozenset(() if outcome.recreated else self.live.known.routes.shard_ids)
            for batch in self._router.map_changed(still_open) + self._queue.take_others(
                still_open, self.live.predict
            ):
                moved += batch.records
            for batch, attempt in self._stored.map_changed():
                moved += self._finish_attempt(batch, attempt, now)
        if not self.live.map_may_come:
            moved += self._router.take_waiting()
        self._place_again(moved, now)

    # -- results ------------------------------------------------------------------------------

    def results(self) -> list[Pending]:
        """The user records that have ended since the last call, each with its ``result``."""
        results, self._results = self._results, []
        return results

    def _end(self, ended: Sequence[Pending]) -> None:
        """Take results of user records that were not held behind others of their keys."""
        self._take_results(ended)
        if self._order is not None:
            self._order.ended(ended)

    def _take_results(self, ended: Sequence[Pending]) -> None:
        self.outstanding -= len(ended)
        if self._observed:
            self.meter.ended(ended)
        self._results += ended
