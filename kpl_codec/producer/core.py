"""The producer without clock, threads and network: user records, responses and times are its arguments.

    driver                                  ProducerCore
     | accept(pending, now)           ──▶   partition, predict, aggregate
     | ◀── requests(now)                    PutRecords and ListShards calls to make
     | receive(call, response, now)   ─▶    the outcome of each Kinesis record; see answers.py
     | fail(call, failure, now)       ──▶   no response, or an error for the whole call
     | ◀── results()                        user records with their ``result``, each once
     | ◀── timer()                          when to call requests(now) again if nothing else happens

    accept ──▶ order ──▶ routing ──▶ lanes ──▶ calls under way ──▶ stored ──▶ results
                 ▲                     ▲             │                │
                 └─ to be placed anew ─┴─ as it is ──┴────────────────┘

A user record is always in exactly one of these places, and leaves only through `results`. Only ProducerCore
moves user records: a method ``take_...`` of a place returns those that are to leave it, and `Answers` decides
about those that were sent. Routing puts into lanes; else no place knows another. Specification:
spec/05-producer.md, PRD-6 to PRD-32 and PRD-72.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from ..shards.live_shard_map import Failure, LiveShardMap, Refreshed, Request
from ..shards.stream_name import stream_of
from .answers import Answers, Decision, outcome_of, parse_max_record_size
from .batch import AnyCall, Batch, Call, build_all, lost_at
from .config import Chance, Observe, ProducerConfig
from .lanes import Lanes
from .ordering import StrictOrder
from .record import Pending, PutValidator, deliver, undelivered
from .reports import Reports
from .results import NO_HISTORY, Attempt, Entry
from .routing import Routing
from .states import RecordState


class ProducerCore:
    """All of the producer except waiting and making calls. Times are seconds of one monotonic clock. Not
    thread-safe, except `prepare` and `is_under_way`.

    ``live``: the stream's live shard map, whose requests the core makes. ``chance(n)``: a random number of
    0..n-1. ``keep_rows``: keep rows for a ledger. ``reports``: who is told of all. Counts: ``accepted``, the
    accepted user records, which is the number of the last one; ``outstanding``, those without a result yet;
    ``summaries``, ended calls of DescribeStreamSummary.
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
        self.undelivered = partial(undelivered, config, stream_of(live.stream).name)
        self.preparation = PutValidator(config)
        self.prepare = self.preparation.prepare
        self._ttl, self._expiry_step = config.ttl_seconds, config.expiry_step
        self._map_wait = config.map_wait
        self._aggregating = config.buffering_seconds - config.collecting_seconds
        self._observed = observe is not None
        self.accepted = self.outstanding = self.summaries = 0
        self._results: list[Pending] = []
        self.reports = Reports(observe, keep_rows=keep_rows)
        self._chance = chance
        # The calls under way, by their ids, and when each is given up.
        self._under_way: dict[int, tuple[float, AnyCall]] = {}
        self._make_places()

    def _make_places(self) -> None:
        config = self.config
        self._order = StrictOrder() if config.ordering == "partition-key" else None
        self._lanes = Lanes(config, self._chance)
        self._routing = Routing(config, self.live, self._chance, self._lanes)
        self._answers = Answers(config, self.live)
        self._search_at = float("inf")  # when to look for what has expired

    # -- records in ---------------------------------------------------------------------------

    def accept(self, pending: Pending, now: float, put_at: float | None = None) -> None:
        """Take a user record of `prepare`. ``put_at``: when its caller put it; by default ``now``."""
        put_at = now if put_at is None else put_at
        self.accepted = number = self.accepted + 1
        # PRD-8: "The time to live MUST count from the moment a user record was put. No deadline MUST lie
        # beyond it."
        # PRD-49: "A user record MUST NOT wait for others longer than record_max_buffered_time_ms from its
        # put, neither for those of its aggregate nor for other shards' in its call."
        pending.enter(number, put_at, self._aggregating, self._map_wait, self._ttl)
        self.outstanding += 1
        if put_at + self._ttl + self._expiry_step < self._search_at:
            self._search_at = put_at + self._ttl + self._expiry_step
        if self._observed:
            self.reports.accepted(put_at)
        order = self._order
        if order is None or pending.keyless:
            self._routing.place(pending, now)
        elif order.is_held(pending) or not self._place_in_order(order, pending, now):
            order.hold(pending)

    def flush(self) -> None:
        """Send everything at once."""
        self._lanes.flush(self.accepted + 1)

    def abandon(self, now: float) -> None:
        """Everything outstanding fails: as "closed", or as expired if its time to live is over. Later answers
        are ignored."""
        # PRD-9: "Closing MUST give every user record its result: delivered, or failed with the reason."
        left: list[Pending] = []
        for call in self.calls():
            del self._under_way[id(call)]
            for batch in call.batches:
                left += self._carry_out(batch, batch.attempted(Entry("no-answer"), now), "place", now)
        parked, self._answers.parked = self._answers.parked, []
        for batch in parked:
            left += self._carry_out(batch, batch.attempt, "place", now)
        for _, place in self.places():
            left += place
        left.sort(key=lambda pending: pending.number)
        self._make_places()
        self._take_results([self.undelivered(pending, "closed") for pending in left])

    def calls(self) -> list[Call]:
        """The PutRecords calls under way."""
        return [call for _, call in self._under_way.values() if isinstance(call, Call)]

    def _batches(self) -> Iterator[Batch]:
        yield from self._lanes.batches()
        for call in self.calls():
            yield from call.batches
        yield from self._answers.parked

    def places(self) -> Iterator[tuple[RecordState, list[Pending]]]:
        """All outstanding user records, place by place, each place with the state of its user records."""
        # PRD-6: "From being accepted to its result a user record MUST be in exactly one place: waiting for a
        # map, held behind its key, in an open aggregate, in a shard's queue, in the next call, in flight,
        # or waiting for a verdict."
        yield "held", list(self._order.held()) if self._order is not None else []
        yield "waiting", self._routing.waiting()
        for batch in self._batches():
            yield batch.state, batch.records

    # -- into a batch -------------------------------------------------------------------------

    def _place_in_order(self, order: StrictOrder, pending: Pending, now: float) -> bool:
        """Put a user record where the other user records of its key are. Returns whether there was room."""
        home = order.home(pending)
        placed = None if home == "waiting" else self._routing.place(pending, now, home)
        if placed is not None:
            order.placed(pending, placed)
        return placed is not None

    def _place_again(self, records: Sequence[Pending], now: float) -> None:
        """Place failed user records again, the earliest first, then the user records of their keys that were
        held behind them."""
        order = self._order
        for pending in sorted(records, key=lambda pending: pending.number):
            if order is None or pending.keyless:
                self._routing.place(pending, now)
        if order is not None:
            order.come_back([pending for pending in records if not pending.keyless])
            while (first := order.next_held()) is not None:
                placed = self._place_in_order(order, first, now)
                (order.release if placed else order.wait)(first)

    # -- calls out ----------------------------------------------------------------------------

    def requests(self, now: float) -> list[AnyCall]:
        """The calls to make now. Also does all that is due at ``now``."""
        for until, call in list(self._under_way.values()):
            if until <= now:
                self.fail(call, Failure("NoAnswer", "the call has not returned"), now, answered=False)
        again = self._routing.take_waiting(now)
        for batch in self._answers.take_due(now):
            again += self._carry_out(batch, batch.attempt, "place", now)
        self._place_again(again, now)
        calls: list[AnyCall] = []
        if (request := self.live.next_request(now)) is not None:
            self._under_way[id(request)] = lost_at(self.config, [], now), request
            calls.append(request)
        self._lanes.close_due(now)
        self._search_expired(now)
        # PRD-22: "At most max_connections PutRecords calls MUST be under way at a time."
        free = self.config.max_connections - len(self.calls())
        while free and (batches := self._lanes.next_call(now)) is not None:
            for batch in batches:
                self._expire(batch.take_expired(now), now)
            batches = [batch for batch in batches if batch.records]
            if batches:  # not all have expired
                calls.append(self._make_call(batches, now))
                free -= 1
        self.reports.levels(self.outstanding, now)
        return calls

    def _make_call(self, batches: list[Batch], now: float) -> Call:
        for batch in batches:
            batch.becomes("in-flight")
            batch.sent_at, batch.generation = now, self.live.known.generation
        call = Call(batches, build_all(batches, with_digests=self.reports.rows is not None))
        self._under_way[id(call)] = lost_at(self.config, batches, now), call
        self.reports.sent(batches, now)
        return call

    def timer(self) -> float | None:
        """When to call `requests` again if nothing happens before; None for never."""
        times = [
            min([until for until, _ in self._under_way.values()], default=None),
            self.live.timer(),
            self._routing.timer(),
            self._lanes.deadline(),
            self._answers.timer(),
            self._search_at if self.outstanding else None,
            self._lanes.ready_at() if len(self.calls()) < self.config.max_connections else None,
        ]
        return min((at for at in times if at is not None), default=None)

    def is_under_way(self, call: AnyCall) -> bool:
        """Whether the response of a call still counts. Thread-safe."""
        return id(call) in self._under_way

    def _search_expired(self, now: float) -> None:
        # PRD-24: "A user record whose time to live is over MUST NOT be sent again, and MUST fail as expired
        # within a hundredth of that time, 3 s at most, unless a call with it is under way: no pause, no
        # backoff and no lack of connections may hold that up."
        if now < self._search_at:
            return
        if self._order is not None:
            expired = self._order.take_expired(now)
            self._take_results([self.undelivered(pending, "expired") for pending in expired])
        self._expire(self._lanes.take_expired(now), now)
        waiting = self._routing.waiting() + (self._order.first() if self._order is not None else [])
        times = [pending.expires_at for pending in waiting] + [one.expires_at for one in self._batches()]
        self._search_at = max(now, min(times, default=float("inf"))) + self._expiry_step

    def _expire(self, expired: list[Pending], now: float) -> None:
        if expired:
            expired.sort(key=lambda pending: pending.number)
            self._end([self.undelivered(pending, "expired") for pending in expired])
            self._place_again((), now)

    # -- answers in ---------------------------------------------------------------------------

    def receive(self, call: AnyCall, answer: object, now: float) -> None:
        """Take the response of a call. A response after the call was given up is ignored."""
        if self._under_way.pop(id(call), None) is None:
            return
        failure = None
        if isinstance(call, Call):
            entries = self._answers.entries(answer, len(call.batches))
            if all(entry.outcome != "delivered" for entry in entries):
                (code, message), _ = Counter((one.code, one.message) for one in entries).most_common(1)[0]
                failure = Failure(code or "", message or "")
            self.reports.answered(call, failure, now)
            self._answered(call, entries, now)
            return
        if call.operation == "DescribeStreamSummary":
            if not (isinstance(answer, Mapping) and answer.get("StreamDescriptionSummary")):
                failure = Failure("MalformedAnswer")
            if (max_size := parse_max_record_size(answer)) is not None:
                self.preparation.learn_size(max_size)
        self._map_answered(call, failure, self.live.receive(call, answer, now), now)

    def fail(self, call: AnyCall, failure: Failure, now: float, *, answered: bool) -> None:
        """A call failed. ``answered`` False: no whole response came, so nobody knows what was stored."""
        if self._under_way.pop(id(call), None) is None:
            return
        if isinstance(call, Request):
            self._map_answered(call, failure, self.live.fail(call, failure, now), now, answered=answered)
            return
        self.reports.answered(call, failure, now, answered=answered)
        if failure.code == "ResourceNotFoundException":
            self.live.stream_gone(now)
        outcome = outcome_of(*failure, answered=answered)
        # (What the service says of an invalid call may repeat data and keys.)
        message = None if outcome == "invalid" else failure.reason or None
        entries = [Entry(outcome, code=failure.code, message=message)] * len(call.batches)
        self._answered(call, entries, now, of_call=outcome != "throttled")

    def _answered(self, call: Call, entries: Sequence[Entry], now: float, *, of_call: bool = False) -> None:
        again: list[Pending] = []
        for batch, entry in zip(call.batches, entries, strict=True):
            again += self._attempt_ended(batch, batch.attempted(entry, now), now, by_itself=len(entries) == 1)
        failed = self._lanes.answered(call.batches, entries, now, of_call=of_call)
        self._place_again([*again, *self._take_stuck(failed, now)], now)

    def _attempt_ended(
        self, batch: Batch, attempt: Attempt, now: float, *, by_itself: bool
    ) -> Sequence[Pending]:
        attempt, decision = self._answers.decide(batch, attempt, now, by_itself=by_itself)
        return self._carry_out(batch, attempt, decision, now)

    def _carry_out(self, batch: Batch, attempt: Attempt, decision: Decision, now: float) -> Sequence[Pending]:
        """Do what was decided about a batch. Returns its user records if they are to be placed anew."""
        if decision == "park":
            batch.becomes("stored")
            self._answers.park(batch, attempt, now)
            return ()
        self.reports.attempt(batch, attempt)
        if decision == "deliver":
            deliver(batch.records, attempt)
            self._end(batch.records)
            return ()
        add_to_histories(batch, attempt)
        if decision == "fail":
            self._end([self.undelivered(one, attempt.outcome, attempt.code) for one in batch.records])
            return ()
        self._end([self.undelivered(pending, "expired") for pending in batch.take_expired(now)])
        if decision != "place" and batch.records:
            self._lanes.again(batch, alone=decision == "alone")
            return ()
        self._answers.retry(batch.records, now)
        return batch.records

    def _take_stuck(self, failed: set[str | None], now: float) -> list[Pending]:
        """Take the user records that another shard could get from these shards, on which attempts have
        failed."""
        # PRT-9: "A user record without a key that may be stored MUST stay with its shard; one that was not
        # stored MUST go to another when an attempt on its shard has failed and another shard is not left
        # alone."
        pausing = self._lanes.pausing(now)
        if not failed or pausing.issuperset(self.live.routes.shard_ids):
            return []
        stuck = self._lanes.take(failed & pausing, _may_move)
        for pending in stuck:
            pending.deadline = min(pending.deadline, now)
        return stuck

    def _map_answered(
        self, call: Request, failure: Failure | None, outcome: Refreshed | None, now: float, **facts: bool
    ) -> None:
        """A call for the map has ended; ``outcome``: and the refresh."""
        is_summary = call.operation == "DescribeStreamSummary"
        self.summaries += is_summary
        error = outcome.error if outcome is not None else None
        if error is not None and failure is None:
            failure = Failure(error.code, error.reason)
        if is_summary or failure is not None or outcome is not None:
            self.reports.answered(call, failure, now, no_map=error is not None, **facts)
        if outcome is None:
            return
        moved: list[Pending] = []
        if outcome.routes_changed:
            # PRD-32: "When the map changes, everything that waits for a shard that is no longer open MUST be
            # predicted and aggregated anew; so MUST what waits without a prediction and has one now."
            # If the stream was deleted and created again, the same shard id means another shard.
            still_open = frozenset(() if outcome.recreated else self.live.known.routes.shard_ids)
            self._routing.map_changed()
            for batch in self._lanes.take_others(still_open, self.live.predict):
                moved += batch.records
            for batch, attempt in self._answers.map_changed():
                decision: Decision = "deliver" if attempt.outcome == "delivered" else "place"
                moved += self._carry_out(batch, attempt, decision, now)
            # (PRT-9: no new shard is left alone, so it may take what waits for a backoff.)
            moved += self._take_stuck(self._lanes.pausing(now) - {None}, now)
        if not self.live.map_may_come:
            moved += self._routing.take_waiting()
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
            self.reports.ended(ended)
        self._results += ended


def add_to_histories(batch: Batch, attempt: Attempt) -> None:
    before, after = None, NO_HISTORY.with_attempt(attempt)  # nearly all of them share one history
    for pending in batch.records:
        if pending.history is not before:
            before = pending.history
            after = (before or NO_HISTORY).with_attempt(attempt)
        pending.history = after


def _may_move(pending: Pending) -> bool:
    return pending.keyless and (not pending.history or pending.history.not_stored)
