"""The producer as a function of records, answers and time: no clock, no thread, no network.

    skin                                    ProducerCore
     | accept(pending, now)           ──▶   partition, predict, aggregate
     | ◀── requests(now)                    PutRecords and ListShards calls to make
     | receive(request, answer, now)  ──▶   what became of each Kinesis record; see outcomes.py
     | fail(request, failure, now)    ──▶   no answer, or an error for the whole call
     | ◀── results()                        (pending, Delivery | DeliveryError), each user record once
     | ◀── timer()                          when to call requests(now) again if nothing else happens

A user record is in exactly one place at any time: waiting for a map, held behind its key, in an open
aggregate, in a lane, in the collector, in flight, or parked until its placement can be judged. It leaves
by `results` and no other way; ``outstanding`` counts those that have not.
Specification: spec/05-producer.md, PRD-6 to PRD-32.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..shards.live_shard_map import Failure, LiveShardMap, MapChanged, RefreshFailed, Request
from .aggregator import Aggregator
from .collector import PutRecordsRequest
from .config import ProducerConfig
from .metrics import Meter, Observe
from .ordering import WAITING, Ordering
from .outcomes import ACTIONS, Action, Attempt, Delivery, DeliveryError, Outcome, outcome_of
from .partitioner import Chance
from .pending import Outgoing, Pending, Preparation, ProducerClosed, ProducerFull, build_all
from .router import Router
from .send_queue import Outbox

#: After so many misplacements a user record goes alone: bare records the KCL never drops.
MISPLACEMENTS_BEFORE_ALONE = 2
#: How often, in seconds, a map is asked for again while a shard is still missing from it.
PROBE_INTERVAL = 1.0


class _Parked(NamedTuple):
    """Stored on a shard whose range is not known: waits for a map. ``until``: then it is sent again."""

    unit: Outgoing
    shard_id: str
    attempt: Attempt
    until: float


class ProducerCore:
    """All of the producer but the waiting and the calling.

    ``live``: the stream's live shard map; the core makes its requests too. ``chance(n)``: one of
    0..n-1, the only source of chance. ``observe(name, value, attributes)`` is told measurements.
    Not thread-safe; `prepare` alone may be called from anywhere.
    """

    def __init__(
        self,
        config: ProducerConfig,
        live: LiveShardMap,
        chance: Chance,
        observe: Observe | None = None,
    ) -> None:
        self.config = config
        self.live = live
        self.prepare = Preparation(config)
        self.outstanding = 0
        self.outstanding_bytes = 0
        self._meter = Meter(observe) if observe is not None else None
        self._aggregator = Aggregator(config)
        self._outbox = Outbox(config, chance, self._expire)
        self._router = Router(config, live, chance, self._outbox.loads)
        self._ordering = Ordering() if config.ordering == "partition-key" else None
        self._unpredicted: list[Pending] = []
        self._unpredicted_until = float("inf")
        self._in_flight: dict[int, tuple[list[Outgoing], float]] = {}
        self._parked: list[_Parked] = []
        self._results: list[tuple[Pending, Delivery | DeliveryError]] = []
        self._probe_at: float | None = None
        self._numbers = 0
        self._accepted = 0
        self._urgent_below = 0
        self._closed = False

    # -- records in ---------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Ask for the first shard map. Records may be accepted before and without."""
        self.live.refresh(now)

    def has_room(self, size: int) -> bool:
        """Whether a user record of ``size`` bytes would be accepted now."""
        # PRD-7: "At no time MUST more than max_outstanding_records user records, or more than
        # max_outstanding_bytes of data and partition keys, be held."
        return (
            self.outstanding < self.config.max_outstanding_records
            and self.outstanding_bytes + size <= self.config.max_outstanding_bytes
        )

    def accept(self, pending: Pending, now: float) -> None:
        """Take a user record (from `prepare`). From here it ends in `results`, exactly once.

        Raises ProducerFull or ProducerClosed; nothing was accepted then.
        """
        if self._closed:
            raise ProducerClosed(code="closed")
        if not self.has_room(pending.size):
            raise ProducerFull(records=self.outstanding, bytes=self.outstanding_bytes)
        self._accepted += 1
        pending.number = self._accepted
        pending.accepted_at = now
        # PRD-8: "The time to live MUST count from the moment a user record was accepted, and no deadline lie
        # beyond it."
        pending.expires_at = now + self.config.record_ttl / 1000
        pending.deadline = min(now + self.config.record_max_buffered_time / 1000, pending.expires_at)
        pending.map_deadline = now + self.config.record_ttl / 10_000
        self.outstanding += 1
        self.outstanding_bytes += pending.size
        if self._meter is not None:
            self._meter.accepted()
        ordering = None if pending.keyless else self._ordering
        if (ordering is not None and ordering.must_wait(pending)) or not self._place(pending, now):
            assert ordering is not None
            ordering.hold(pending)

    def flush(self) -> None:
        """Send everything accepted so far without waiting for company, retries included."""
        self._urgent_below = self._accepted + 1
        for unit in self._aggregator.take_all():
            self._outbox.add(unit)

    def close(self) -> None:
        """Accept nothing more, and flush. What is outstanding still ends in `results`."""
        self._closed = True
        self.flush()

    def abandon(self, now: float) -> None:
        """Give up: everything outstanding fails as closed. Answers that come later are ignored."""
        # PRD-9: "Closing MUST give every user record its result: delivered, or failed with the reason."
        self._closed = True
        for units, started in self._in_flight.values():
            for unit in units:
                self._note(unit, Attempt(Outcome.NO_ANSWER, started, now, unit.shard))
        for parked in self._parked:
            self._note(parked.unit, parked.attempt)
        everything = [pending for unit in self._everything() for pending in unit]
        self._in_flight.clear()
        self._outbox.clear()
        self._parked.clear()
        self._take_unpredicted(float("inf"))
        self._aggregator.take_all()
        if self._ordering is not None:
            self._ordering.clear()
        for pending in sorted(everything, key=lambda pending: pending.number):
            self._fail(pending, Outcome.CLOSED)

    def _everything(self) -> Iterable[list[Pending]]:
        """Every user record that is outstanding, place by place."""
        # PRD-6: "From being accepted to its result a user record MUST be in exactly one place: waiting for a
        # map, held behind its key, in an open aggregate, in a shard's queue, in the next request, in flight,
        # or waiting for a verdict."
        for units, _ in self._in_flight.values():
            yield from (unit.records for unit in units)
        yield from (parked.unit.records for parked in self._parked)
        yield self._unpredicted
        yield from (unit.records for unit in self._aggregator.units())
        yield from (unit.records for unit in self._outbox.units())
        if self._ordering is not None:
            yield list(self._ordering.held())

    # -- from user records to Kinesis records -------------------------------------------------

    def _place(self, pending: Pending, now: float) -> bool:
        """Put a user record where it belongs. False: it must be held, its key is elsewhere under way."""
        if pending.number < self._urgent_below:
            pending.deadline = min(pending.deadline, now)  # with the company it finds, but waiting for none
        shard = self._router.route(pending, now)
        if shard is None:
            if self._router.map_may_come and pending.map_deadline > now:
                if self._under_way(pending):
                    return False
                self._unpredicted.append(pending)
                self._unpredicted_until = min(self._unpredicted_until, pending.map_deadline)
                self._settle(pending, WAITING)
                return True
            if self._router.ignores_keys and not pending.must_wrap:
                pending.wrap = False  # the KCL would drop an aggregate of one wherever it is a stray
            return self._join(None, pending)
        # PRD-17: "A user record without a prediction MUST NOT be aggregated with others."
        return self._join(shard, pending)

    def _join(self, shard: str | None, pending: Pending) -> bool:
        """Into an aggregate, or into a Kinesis record of its own. False: held, see `_place`."""
        alone = shard is None or pending.alone or not self.config.aggregation_enabled
        ordering = None if pending.keyless else self._ordering
        if ordering is not None:
            home = ordering.home(pending)
            target = None if alone or shard is None else self._aggregator.open_for(shard, pending)
            if home is not None and home is not target:
                # PRD-26: "With strict order per partition key a user record MUST NOT be sent before every
                # earlier one of its key is delivered or has failed, other than in the same aggregate."
                if not home.closed:
                    self._outbox.add(self._aggregator.close(home))
                return False
        if alone or shard is None:
            unit = self._aggregator.alone(shard, pending)
            self._outbox.add(unit)
        else:
            unit, full = self._aggregator.add(shard, pending)
            for closed in full:
                self._outbox.add(closed)
        self._settle(pending, unit)
        self._router.placed(pending, closed=unit.closed)
        return True

    def _under_way(self, pending: Pending) -> bool:
        """Whether strict order is asked for and its key has a home already."""
        if self._ordering is None or pending.keyless:
            return False
        return self._ordering.home(pending) is not None

    def _settle(self, pending: Pending, home: Outgoing | str) -> None:
        if self._ordering is not None and not pending.keyless:
            self._ordering.settle(pending, home)

    # -- requests out -------------------------------------------------------------------------

    def requests(self, now: float) -> list[PutRecordsRequest | Request]:
        """The calls to make now. Also does whatever is due at ``now``."""
        self._run_due(now)
        self._run_held(now)
        calls: list[PutRecordsRequest | Request] = []
        while (map_request := self.live.next_request(now)) is not None:
            calls.append(map_request)
        for unit in self._aggregator.due(now):
            self._outbox.add(unit)
        # PRD-22: "At most max_connections PutRecords calls MUST be under way at a time."
        while len(self._in_flight) < self.config.max_connections:
            units = self._outbox.take(now, self._urgent_below)
            if units is None:
                break
            if not units:
                continue  # all of them had expired
            self._numbers += 1
            self._in_flight[self._numbers] = (units, now)
            calls.append(PutRecordsRequest(self._numbers, build_all(units)))
            if self._meter is not None:
                self._meter.sent(units, self.outstanding, now)
        self._run_held(now)
        return calls

    def timer(self) -> float | None:
        """When `requests` has something to do even if nothing happens before; None for never."""
        times = [self.live.timer(), self._aggregator.deadline(), self._probe_at]
        if self._unpredicted:
            times.append(self._unpredicted_until)
        times += (parked.until for parked in self._parked)
        if self._ordering is not None:
            times.append(self._ordering.expires_at())
        if len(self._in_flight) < self.config.max_connections:
            times.append(self._outbox.ready_at())
        return min((at for at in times if at is not None), default=None)

    def _run_due(self, now: float) -> None:
        """Everything that waits for time rather than for an answer."""
        if self._probe_at is not None and now >= self._probe_at:
            self._probe_at = now + PROBE_INTERVAL if self._parked else None
            if self._parked:
                self.live.refresh(now)
        if self._unpredicted and self._unpredicted_until <= now:
            self._replace(self._take_unpredicted(now), now)
        due = [parked for parked in self._parked if parked.until <= now]
        if due:
            self._parked = [parked for parked in self._parked if parked.until > now]
            for parked in due:
                # No map has told the shard's range in time. Twice is better than lost: each goes alone.
                for pending in parked.unit.records:
                    pending.alone = True
                self._replace(self._failed(parked.unit, parked.attempt, now), now)
        if self._ordering is not None:
            for pending in self._ordering.take_expired(now):
                self._fail(pending, Outcome.EXPIRED, held=True)

    def _take_unpredicted(self, until: float) -> list[Pending]:
        """Those that wait for a prediction, with a deadline up to ``until``."""
        taken = [pending for pending in self._unpredicted if pending.map_deadline <= until]
        self._unpredicted = [pending for pending in self._unpredicted if pending.map_deadline > until]
        self._unpredicted_until = min((p.map_deadline for p in self._unpredicted), default=float("inf"))
        return taken

    def _expire(self, unit: Outgoing, now: float) -> Outgoing | None:
        """Fail the expired user records of a Kinesis record; what is left of it."""
        gone = [pending for pending in unit.records if pending.expires_at <= now]
        rest = unit.without(gone)
        for pending in gone:
            self._fail(pending, Outcome.EXPIRED)
        if rest is not None:
            for pending in rest.records:
                self._settle(pending, rest)
        return rest

    # -- answers in ---------------------------------------------------------------------------

    def receive(self, request: PutRecordsRequest | Request, answer: Mapping[str, Any], now: float) -> None:
        """The answer to a request: the response of PutRecords, ListShards or DescribeStreamSummary."""
        if isinstance(request, Request):
            self._map_answered(self.live.receive(request, answer, now), now)
            return
        flight = self._landed(request, now)
        if flight is None:
            return
        units, started = flight
        entries = answer.get("Records")
        # PRD-23: "An answer that does not have one entry for each record sent tells nothing about any of
        # them; all MUST be sent again."
        if not isinstance(entries, list) or len(entries) != len(units):
            self._all_failed(units, Outcome.COUNT_MISMATCH, "CountMismatch", None, started, now)
            self._run_held(now)
            return
        retries: list[Pending] = []
        for unit, entry in zip(units, entries, strict=True):
            retries += self._judge(unit, entry, started, now)
        self._replace(retries, now)
        self._run_held(now)

    def fail(
        self, request: PutRecordsRequest | Request, failure: Failure, now: float, *, answered: bool
    ) -> None:
        """A call failed. ``answered`` False: no whole answer came, so nobody knows what was stored."""
        if isinstance(request, Request):
            self._map_answered(self.live.fail(request, failure, now), now)
            return
        flight = self._landed(request, now)
        if flight is None:
            return
        units, started = flight
        outcome = outcome_of(failure.code, answered=answered)
        if outcome is Outcome.INVALID:
            failure = Failure(failure.code)  # its text repeats what was invalid: data and keys
        if ACTIONS[outcome] is Action.ISOLATE:
            self._isolate(units, failure, started, now)
        else:
            self._all_failed(units, outcome, failure.code, failure.reason, started, now)
        self._run_held(now)

    def _landed(self, request: PutRecordsRequest, now: float) -> tuple[list[Outgoing], float] | None:
        """What was in flight with ``request``, and since when; None if it has been given up."""
        flight = self._in_flight.pop(request.number, None)
        if flight is not None and self._meter is not None:
            self._meter.answered(now - flight[1])
        return flight

    def _all_failed(
        self,
        units: list[Outgoing],
        outcome: Outcome,
        code: str,
        message: str | None,
        started: float,
        now: float,
    ) -> None:
        retries: list[Pending] = []
        for unit in units:
            attempt = Attempt(outcome, started, now, unit.shard, code=code, message=message)
            retries += self._failed(unit, attempt, now)
        self._replace(retries, now)

    def _judge(self, unit: Outgoing, entry: Any, started: float, now: float) -> list[Pending]:
        """What became of one Kinesis record; gives the user records to send again."""
        entry = entry if isinstance(entry, Mapping) else {}
        code, message = entry.get("ErrorCode"), entry.get("ErrorMessage")
        shard_id, number = entry.get("ShardId"), entry.get("SequenceNumber")
        if code or not shard_id or not number:
            outcome = outcome_of(code) if code else Outcome.COUNT_MISMATCH
            if ACTIONS[outcome] is Action.ISOLATE:
                outcome = Outcome.REFUSED  # it is by itself already: the service judged this one record
                message = None  # it may repeat the record
            attempt = Attempt(
                outcome, started, now, unit.shard, code=code or "MalformedAnswer", message=message
            )
            return self._failed(unit, attempt, now)
        self._outbox.succeeded(unit.shard)
        attempt = Attempt(Outcome.DELIVERED, started, now, unit.shard, shard_id, number)
        return self._stored(unit, shard_id, attempt, now)

    def _stored(self, unit: Outgoing, shard_id: str, attempt: Attempt, now: float) -> list[Pending]:
        """The Kinesis record is on ``shard_id``. All or nothing: delivered, or to be sent again whole.

        its shard's range is | and holds                   | then
        ---------------------+-----------------------------+------------------
        (it is bare)         |                             | delivered
        known                | every user record           | delivered
        known                | some or none                | misplaced
        unknown              |                             | placement-unknown

        An aggregate of one hash key is no exception: it is in its shard's range, unless the stream has
        begun to distribute records AUTO, and then only the map tells.
        """
        if unit.shard is not None and shard_id != unit.shard:
            # PRD-29: "When a record lands on another shard than predicted the shard map MUST be told: the
            # time of sending and the predicted shard."
            self.live.invalidate(attempt.started_at, unit.shard, now)
        # PRD-30: "A bare record is delivered wherever it landed: no consumer drops it."
        if not unit.aggregated:
            self._deliver(unit, attempt)
            return []
        known = self.live.lineage.get(shard_id)
        if known is None:
            # PRD-28: "While the range of the shard an aggregate landed on is not known, there MUST be no
            # verdict: it waits for a newer map, at most half its time to live."
            until = min(now + self.config.record_ttl / 2000, unit.expires_at)
            attempt = attempt._replace(outcome=Outcome.PLACEMENT_UNKNOWN)
            self._parked.append(_Parked(unit, shard_id, attempt, until))
            if self._probe_at is None:
                self.live.refresh(now)
                self._probe_at = now + PROBE_INTERVAL
            return []
        # PRD-27: "An aggregate is delivered only if the effective hash key of every user record in it is
        # in the range of the shard it landed on; otherwise all of its user records MUST be sent again."
        # (The KPL finishes those in range as a success since 0.15.11. The KCL drops the mixed aggregate
        # whole, so these are lost.)
        if unit.lowest in known.hash_key_range and unit.highest in known.hash_key_range:
            self._deliver(unit, attempt)
            return []
        for pending in unit.records:
            pending.misplaced += 1
            # PRD-31: "A user record that was misplaced twice MUST be sent alone."
            if pending.misplaced >= MISPLACEMENTS_BEFORE_ALONE:
                pending.alone, pending.wrap = True, pending.must_wrap
        return self._failed(unit, attempt._replace(outcome=Outcome.MISPLACED), now)

    def _note(self, unit: Outgoing, attempt: Attempt) -> None:
        """Write an attempt that did not deliver into the history of its user records."""
        if self._meter is not None:
            self._meter.failed(attempt.code or attempt.outcome.value)
        for pending in unit.records:
            pending.attempts += (attempt,)

    def _failed(self, unit: Outgoing, attempt: Attempt, now: float) -> list[Pending]:
        """An attempt that did not deliver: fail what must, give what is to be sent again."""
        self._note(unit, attempt)
        action = ACTIONS[attempt.outcome]
        if action is Action.BACK_OFF:
            self._outbox.failed(unit.shard, now)
        throttled = attempt.outcome is Outcome.THROTTLED and self.config.fail_if_throttled
        # PRD-25: "A retry MUST wait for company at most half of record_max_buffered_time, and never beyond
        # its time to live."
        deadline = now + self.config.record_max_buffered_time / 2000
        again: list[Pending] = []
        for pending in unit.records:
            if action is Action.FAIL or throttled:
                self._fail(pending, attempt.outcome, attempt.code)
            elif pending.expires_at <= now:
                self._fail(pending, Outcome.EXPIRED)
            else:
                pending.deadline = min(deadline, pending.expires_at)
                pending.map_deadline = min(now + self.config.record_ttl / 10_000, pending.expires_at)
                again.append(pending)
        return again

    def _replace(self, records: list[Pending], now: float) -> None:
        """Put user records back in, to be predicted, aggregated and sent, in their order.

        With strict order they go before everything held of their keys, and on in `_run_held`.
        """
        records.sort(key=lambda pending: pending.number)
        ordered = []
        for pending in records:
            if self._ordering is not None and not pending.keyless:
                self._ordering.leave(pending)
                ordered.append(pending)
            else:
                self._place(pending, now)
        if self._ordering is not None:
            self._ordering.put_back(ordered)

    def _isolate(self, units: list[Outgoing], failure: Failure, started: float, now: float) -> None:
        """The service refused a whole call: find the record that is to blame by halving.

        One bad record must not take 499 good ones with it. Halves, then single Kinesis records, then the
        user records of an aggregate each by itself; what is refused alone has failed.
        """
        outcome = Outcome.INVALID if len(units) > 1 or len(units[0].records) > 1 else Outcome.REFUSED
        for unit in units:
            attempt = Attempt(outcome, started, now, unit.shard, code=failure.code, message=failure.reason)
            if outcome is Outcome.REFUSED:
                self._failed(unit, attempt, now)
                return
            self._note(unit, attempt)
        if len(units) > 1:
            half = len(units) // 2
            self._outbox.isolate(units[:half])
            self._outbox.isolate(units[half:])
            return
        for pending in units[0].records:
            pending.alone = True
        self._replace(units[0].records, now)

    # -- the map ------------------------------------------------------------------------------

    def _map_answered(self, outcome: MapChanged | RefreshFailed | None, now: float) -> None:
        if outcome is None:
            return
        moved: list[Pending] = []
        if isinstance(outcome, MapChanged):
            open_ids = [shard.shard_id for shard in outcome.shard_map.open_shards]
            self._router.set_shards(open_ids)
            # PRD-32: "When the map changes, everything that waits for a shard that is no longer open MUST be
            # predicted and aggregated anew."
            still_open = frozenset(open_ids)
            for unit in self._aggregator.take_others(still_open) + self._outbox.take_others(still_open):
                moved += unit.records
            parked, self._parked = self._parked, []
            for one in parked:
                if one.shard_id in self.live.lineage:
                    moved += self._stored(
                        one.unit, one.shard_id, one.attempt._replace(outcome=Outcome.DELIVERED), now
                    )
                else:
                    self._parked.append(one)
            if not self._parked:
                self._probe_at = None
        if self._unpredicted and not self._router.map_may_come:
            moved += self._take_unpredicted(float("inf"))
        self._replace(moved, now)
        self._run_held(now)

    # -- results ------------------------------------------------------------------------------

    def results(self) -> list[tuple[Pending, Delivery | DeliveryError]]:
        """The user records that have come to their end since the last call."""
        results, self._results = self._results, []
        return results

    def _deliver(self, unit: Outgoing, attempt: Attempt) -> None:
        assert attempt.shard_id is not None
        assert attempt.sequence_number is not None
        for index, pending in enumerate(unit.records):
            attempts = (*pending.attempts, attempt)
            self._finish(pending, Delivery(attempt.shard_id, attempt.sequence_number, index, attempts))
        if self._meter is not None:
            self._meter.delivered(unit, attempt.shard_id)

    def _fail(
        self, pending: Pending, outcome: Outcome, code: str | None = None, *, held: bool = False
    ) -> None:
        # PRD-10: "Every accepted user record MUST end exactly once: as a Delivery, or as a DeliveryError with
        # the reason and all attempts."
        error = DeliveryError(outcome=outcome, code=code or outcome.value, attempts=pending.attempts)
        self._finish(pending, error, held=held)

    def _finish(self, pending: Pending, result: Delivery | DeliveryError, *, held: bool = False) -> None:
        self.outstanding -= 1
        self.outstanding_bytes -= pending.size
        self._results.append((pending, result))
        # One that expired while held was not where its key is under way: those there are not done.
        if self._ordering is not None and not pending.keyless and not held:
            self._ordering.leave(pending)

    # -- strict order -------------------------------------------------------------------------

    def _run_held(self, now: float) -> None:
        """Place what was held behind user records that have ended, or are to be sent again."""
        ordering = self._ordering
        if ordering is None:
            return
        while (key := ordering.take_left()) is not None:
            while (pending := ordering.next(key)) is not None:
                if not self._place(pending, now):
                    ordering.put_back([pending])
                    break
