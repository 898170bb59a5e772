"""The producer without clock, threads and network: records, answers and times are its arguments.

    skin                                    ProducerCore
     | accept(pending, now)           ──▶   partition, predict, aggregate
     | ◀── requests(now)                    PutRecords and ListShards calls to make
     | receive(request, answer, now)  ──▶   what became of each Kinesis record; see outcomes.py
     | fail(request, failure, now)    ──▶   no answer, or an error for the whole call
     | ◀── results()                        user records with their ``result``, each once
     | ◀── timer()                          when to call requests(now) again if nothing else happens

    accept ──▶ order ──▶ placer ──▶ send queue ──▶ in flight ──▶ verdicts ──▶ results
                 ▲                       ▲             │             │
                 └─ to be placed again ──┴─ as it is ──┴─────────────┘

A user record is always in exactly one of these places, and leaves only through `results`. ``outstanding``
counts those that have not left. Only this class moves them: a place gives out (``take_...``) what is to leave
it, and the rules for failures say what becomes of what. No place knows another.
Specification: spec/05-producer.md, PRD-6 to PRD-32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..ledger import Kind, Row, digest_of
from ..shards.live_shard_map import Failure, LiveShardMap, MapChanged, RefreshFailed, Request
from .answers import Entry, parse_max_record_size, parse_put_records
from .config import ProducerConfig
from .failures import Failures, Fate, Flight, note
from .kinesis_record import Outgoing, PutRecordsRequest, build_all
from .ledger import Ledger, deliver, undelivered
from .metrics import Meter, Observe
from .ordering import StrictOrder
from .outcomes import ACTIONS, MAY_BE_STORED, Attempt, outcome_of
from .partitioner import Chance
from .pending import Pending, Preparation, ProducerClosed
from .placer import Placer
from .send_queue import EXPIRY_STEP, SendQueue
from .verdicts import Verdicts


class ProducerCore:
    """All of the producer except waiting and calling.

    ``noted``: give `rows` for a ledger.
    ``live``: the stream's live shard map; the core makes its requests too. ``chance(n)``: a random number of
    0..n-1, the only source of chance. ``observe(name, value, attributes)`` gets measurements. All times are
    seconds of one monotonic clock. Not thread-safe, except `prepare`.
    """

    def __init__(
        self,
        config: ProducerConfig,
        live: LiveShardMap,
        chance: Chance,
        observe: Observe | None = None,
        *,
        noted: bool = False,
    ) -> None:
        self.config = config
        self.live = live
        self.preparation = Preparation(config)
        self.prepare = self.preparation.prepare
        self._ttl = config.ttl_seconds
        self._map_wait = config.ttl_seconds / 10
        self._aggregating = config.buffering_seconds - config.collecting_seconds
        self._observed = observe is not None
        self._ledger = Ledger(config, ages=self._observed)
        self._noted = noted
        self._rows: list[tuple[Kind, str, str, int, float, bytes]] = []
        self._meter = Meter(observe)
        self._chance = chance
        self._failures = Failures(config)
        self._requests = 0
        self._closed = False
        self._make_places()

    def _make_places(self) -> None:
        config, live = self.config, self.live
        strict = config.ordering == "partition-key"
        self._order = StrictOrder(config.ttl_seconds * EXPIRY_STEP) if strict else None
        self._placer = Placer(config, live, self._chance)
        self._queue = SendQueue(config, self._chance)
        self._in_flight: dict[int, Flight] = {}
        self._verdicts = Verdicts(config, live)

    # -- records in ---------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Request the first shard map. Records may be accepted before it comes."""
        self.live.refresh(now)

    @property
    def accepted(self) -> int:
        """How many user records were accepted; the last one has this ``number``."""
        return self._ledger.accepted

    @property
    def outstanding(self) -> int:
        """How many accepted user records have no result yet, or wait in `results`."""
        return self._ledger.outstanding

    def accept(self, pending: Pending, now: float, put_at: float | None = None) -> float:
        """Take a user record (from `prepare`). Its result comes from `results`, exactly once.

        ``put_at``: when its caller put it, ``now`` if not given. Returns when to call `requests` for it.
        Raises ProducerFull or ProducerClosed; then nothing was accepted.
        """
        if self._closed:
            raise ProducerClosed(code="closed")
        # PRD-8: "The time to live MUST count from the moment a user record was put. No deadline MUST lie
        # beyond it."
        put_at = now if put_at is None else put_at
        self._ledger.accept(pending, put_at)
        pending.expires_at = put_at + self._ttl
        # PRD-49: "A user record MUST NOT wait for others longer than record_max_buffered_time_ms from its
        # put, neither for those of its aggregate nor for other shards' in its request."
        pending.deadline = put_at + self._aggregating
        pending.map_deadline = put_at + self._map_wait
        if self._observed:
            self._meter.accepted()
        order = self._order
        if pending.keyless:
            self._place_keyless(pending, now)
        elif order is None:
            self._placer.place(pending, now)
        elif order.is_held(pending) or not self._place_in_order(order, pending, now):
            order.hold(pending)
        if not self._placer.closed:
            return pending.deadline
        self._queue_closed()
        return now

    def drop(self, pending: Pending, now: float) -> None:
        """Take a user record for which there is no room: it ends at once, as dropped."""
        self._ledger.accept(pending, now, dropped=True)
        self._meter.failed("dropped")
        self._ledger.end([undelivered(self.config, pending, "dropped")])

    def flush(self) -> None:
        """Send everything accepted so far, retries included, without waiting for more."""
        self._placer.flush(self.accepted + 1)
        self._queue_closed()

    def close(self) -> None:
        """Accept nothing more, and flush. Outstanding user records still get their results."""
        self._closed = True
        self.flush()

    def abandon(self, now: float) -> None:
        """Give up: everything outstanding fails as closed. Later answers are ignored."""
        # PRD-9: "Closing MUST give every user record its result: delivered, or failed with the reason."
        self._closed = True
        for flight in self._in_flight.values():
            for outgoing in flight.kinesis_records:
                attempt = flight.attempt(outgoing, Entry("no-answer"), now)
                self._note(outgoing, attempt)
                note(outgoing, attempt)
                self._meter.failed("no-answer")
        for parked in self._verdicts.parked:
            self._note(parked.outgoing, parked.attempt)
            note(parked.outgoing, parked.attempt)
            self._meter.failed(parked.attempt.outcome)
        everything = [pending for place in self._places() for pending in place]
        everything.sort(key=lambda pending: pending.number)
        self._make_places()
        self._ledger.end([undelivered(self.config, pending, "closed") for pending in everything])

    def _places(self) -> Iterator[list[Pending]]:
        """All outstanding user records, place by place."""
        # PRD-6: "From being accepted to its result a user record MUST be in exactly one place: waiting for a
        # map, held behind its key, in an open aggregate, in a shard's queue, in the next request, in flight,
        # or waiting for a verdict."
        yield list(self._order.held()) if self._order is not None else []
        yield from self._placer.places()
        yield from (outgoing.records for outgoing in self._queue.kinesis_records())
        yield from (one.records for flight in self._in_flight.values() for one in flight.kinesis_records)
        yield from (parked.outgoing.records for parked in self._verdicts.parked)

    # -- into a Kinesis record ----------------------------------------------------------------

    def _place_keyless(self, pending: Pending, now: float) -> None:
        if self._placer.needs_queues:
            self._placer.update_queues(self._queue.queued())
        self._placer.place(pending, now)

    def _place_in_order(self, order: StrictOrder, pending: Pending, now: float) -> bool:
        """Place a user record beside those of its key; whether that could be done."""
        home = order.home(pending)
        if home == "waiting":
            return False
        placed = self._placer.place(pending, now, home)
        if placed is not None:
            order.placed(pending, placed)
        return placed is not None

    def _place_again(self, records: Sequence[Pending], now: float) -> None:
        """Place user records that have left the place where they were, before later ones; and what was held
        because of them, or of others that have ended."""
        order = self._order
        for pending in sorted(records, key=lambda pending: pending.number):
            if pending.keyless:
                self._place_keyless(pending, now)
            elif order is None:
                self._placer.place(pending, now)
        if order is not None:
            order.come_back([pending for pending in records if not pending.keyless])
            while (held := order.next_held()) is not None:
                placed = self._place_in_order(order, held, now)
                (order.release if placed else order.wait)(held)
        self._queue_closed()

    def _queue_closed(self) -> None:
        for outgoing in self._placer.closed:
            self._queue.add(outgoing)
        self._placer.closed.clear()

    # -- requests out -------------------------------------------------------------------------

    def requests(self, now: float) -> list[PutRecordsRequest | Request]:
        """The calls to make now. Also does all that is due at ``now``."""
        again = self._placer.take_waiting(now)
        for parked in self._verdicts.take_due(now):
            again += self._failed(parked.outgoing, parked.attempt, now)
        if self._order is not None:
            expired = self._order.take_expired(now)
            self._ledger.end([undelivered(self.config, pending, "expired") for pending in expired])
        self._place_again(again, now)
        calls: list[PutRecordsRequest | Request] = []
        if (map_request := self.live.next_request(now)) is not None:
            calls.append(map_request)
        self._placer.close_due(now)
        self._queue_closed()
        self._expire(self._queue.take_expired(now), now)
        # PRD-22: "At most max_connections PutRecords calls MUST be under way at a time."
        while len(self._in_flight) < self.config.max_connections:
            kinesis_records = self._queue.take(now, self._placer.urgent_below)
            if kinesis_records is None:
                break
            for outgoing in kinesis_records:
                if outgoing.expires_at <= now:
                    self._expire(outgoing.take_expired(now), now)
            kinesis_records = [outgoing for outgoing in kinesis_records if outgoing.records]
            if not kinesis_records:
                continue  # all have expired
            self._requests += 1
            self._in_flight[self._requests] = Flight(kinesis_records, now, self.live.generation)
            entries = build_all(kinesis_records)
            if self._noted:
                for outgoing, entry in zip(kinesis_records, entries, strict=True):
                    outgoing.digest = digest_of(entry["PartitionKey"], entry["Data"])
            calls.append(PutRecordsRequest(self._requests, entries))
            self._meter.sent(kinesis_records, now)
        self._meter.levels(self.outstanding, self._ledger.oldest_put_at, now)
        return calls

    def timer(self) -> float | None:
        """When to call `requests` again if nothing happens before; None for never."""
        times = [
            self.live.timer(),
            self._placer.timer(),
            self._verdicts.timer(),
            self._order.expires_at() if self._order is not None else None,
            self._queue.expires_at(),
            self._queue.ready_at() if len(self._in_flight) < self.config.max_connections else None,
        ]
        return min((at for at in times if at is not None), default=None)

    def _expire(self, expired: list[Pending], now: float) -> None:
        if expired:
            expired.sort(key=lambda pending: pending.number)
            self._end([undelivered(self.config, pending, "expired") for pending in expired])
            self._place_again((), now)

    # -- answers in ---------------------------------------------------------------------------

    def receive(self, request: PutRecordsRequest | Request, answer: object, now: float) -> None:
        """The answer to a request: the response of PutRecords, ListShards or DescribeStreamSummary."""
        if isinstance(request, Request):
            max_size = parse_max_record_size(answer) if request.operation != "ListShards" else None
            if max_size is not None:
                self.preparation.learn_size(max_size)
            self._map_answered(self.live.receive(request, answer, now), now)
            return
        flight = self._landed(request, now)
        if flight is None:
            return
        entries = parse_put_records(answer, len(flight.kinesis_records))
        if entries is None:
            self._all_failed(flight, Entry("count-mismatch", code="CountMismatch"), now)
            return
        again: list[Pending] = []
        for outgoing, entry in zip(flight.kinesis_records, entries, strict=True):
            again += self._answered(outgoing, entry, flight, now)
        self._queue.answered(flight.kinesis_records, entries, flight.started_at, now)
        self._place_again(again, now)

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
        outcome = outcome_of(failure.code, answered=answered)
        if failure.code == "ResourceNotFoundException":
            self.live.stream_gone(now)
        if ACTIONS[outcome] == "isolate":
            # (Without its text, which may repeat data and keys.)
            self._queue.refused_as_invalid(now)
            for _ in flight.kinesis_records:
                self._meter.failed(failure.code)
            same_life = flight.generation == self.live.generation
            open_shards = frozenset(self.live.predicted_shards if same_life else ())
            self._place_again(self._move(self._failures.invalid(flight, failure.code, now, open_shards)), now)
        else:
            entry = Entry(outcome, code=failure.code, message=failure.reason or None)
            self._all_failed(flight, entry, now)

    def _landed(self, request: PutRecordsRequest, now: float) -> Flight | None:
        """The records in flight with ``request``; None if they were given up."""
        flight = self._in_flight.pop(request.number, None)
        if flight is not None:
            self._meter.answered(now - flight.started_at)
        return flight

    def _all_failed(self, flight: Flight, entry: Entry, now: float) -> None:
        again: list[Pending] = []
        for outgoing in flight.kinesis_records:
            attempt = flight.attempt(outgoing, entry, now)
            again += self._failed(outgoing, attempt, now, stays=self._stays(outgoing, flight))
        entries = [entry] * len(flight.kinesis_records)
        self._queue.answered(flight.kinesis_records, entries, flight.started_at, now)
        self._place_again(again, now)

    def _failed(
        self, outgoing: Outgoing, attempt: Attempt, now: float, *, stays: bool = False
    ) -> Sequence[Pending]:
        """One Kinesis record was not delivered; returns the user records to place again."""
        self._note(outgoing, attempt)
        self._meter.failed(attempt.code or attempt.outcome)
        return self._move(self._failures.failed(outgoing, attempt, now, stays=stays))

    def _move(self, fate: Fate) -> Sequence[Pending]:
        """Do what is to become of failed Kinesis records; returns the user records to place again."""
        self._end(fate.ended)
        for outgoing in fate.unchanged:
            self._queue.add(outgoing)
        for kinesis_records in reversed(fate.isolated):
            self._queue.isolate(kinesis_records)
        return fate.again

    def _answered(self, outgoing: Outgoing, entry: Entry, flight: Flight, now: float) -> Sequence[Pending]:
        """Handles the outcome of one Kinesis record; returns the user records to place again."""
        attempt = flight.attempt(outgoing, entry, now)
        if attempt.outcome != "delivered":
            return self._failed(outgoing, attempt, now, stays=self._stays(outgoing, flight))
        attempt = self._verdicts.judge(outgoing, attempt, flight.generation, now)
        if attempt.outcome == "placement-unknown":
            return ()
        return self._judged(outgoing, attempt, now)

    def _stays(self, outgoing: Outgoing, flight: Flight) -> bool:
        """Whether the map would send a Kinesis record as it was sent before."""
        live = self.live
        if outgoing.shard is None:  # one user record
            return live.predict(outgoing.lowest) is None and not live.map_may_come
        return flight.generation == live.generation and live.trusts(outgoing.shard)

    def _judged(self, outgoing: Outgoing, attempt: Attempt, now: float) -> Sequence[Pending]:
        """Handles the verdict on a stored Kinesis record; returns the user records to place again."""
        if attempt.outcome != "delivered":
            return self._failed(outgoing, attempt, now)
        self._note(outgoing, attempt)
        deliver(outgoing.records, attempt)
        self._end(outgoing.records)
        self._meter.delivered(outgoing, attempt.shard_id or "")
        return ()

    def _map_answered(self, outcome: MapChanged | RefreshFailed | None, now: float) -> None:
        if outcome is None:
            return
        if isinstance(outcome, RefreshFailed):
            self._meter.map_failed(outcome.error.code)
        moved: list[Pending] = []
        if isinstance(outcome, MapChanged) or outcome.learnt:
            # PRD-32: "When the map changes, everything that waits for a shard that is no longer open MUST be
            # predicted and aggregated anew."
            # In another life of the stream the same shard id means another shard.
            recreated = isinstance(outcome, MapChanged) and outcome.recreated
            still_open = frozenset(() if recreated else self.live.predicted_shards)
            for outgoing in self._placer.map_changed(still_open) + self._queue.take_others(still_open):
                moved += outgoing.records
            for outgoing, attempt in self._verdicts.map_changed():
                moved += self._judged(outgoing, attempt, now)
        if not self.live.map_may_come:
            moved += self._placer.take_waiting()
        self._place_again(moved, now)

    # -- results ------------------------------------------------------------------------------

    def results(self) -> list[Pending]:
        """The user records that have ended since the last call, each with its ``result``."""
        return self._ledger.take_results()

    def rows(self, offset: float) -> list[Row]:
        """What was or may be stored since the last call, for a ledger. ``offset``: seconds from the
        producer's clock to 1970's."""
        rows, self._rows = self._rows, []
        return [
            Row(kind, shard_id, number, count, int((at + offset) * 1000), digest)
            for kind, shard_id, number, count, at, digest in rows
        ]

    def _note(self, outgoing: Outgoing, attempt: Attempt) -> None:
        """An attempt has ended; called before its user records leave it."""
        # AUD-1: "Of each attempt that has stored a Kinesis record, or may have, a producer's ledger MUST have
        # a row: where it is, how many user records it has, and its digest."
        if not self._noted or attempt.outcome not in MAY_BE_STORED:
            return
        number = attempt.sequence_number
        delivered = attempt.outcome == "delivered"
        kind: Kind = "delivered" if delivered else "unanswered" if number is None else "again"
        shard_id = attempt.shard_id or attempt.predicted_shard or ""
        records = outgoing.records
        self._rows.append(
            (kind, shard_id, number or "", len(records), records[0].accepted_at, outgoing.digest)
        )

    def _end(self, ended: Sequence[Pending]) -> None:
        """User records have ended that were not held behind their keys."""
        self._ledger.end(ended)
        if self._order is not None:
            self._order.ended(ended)
