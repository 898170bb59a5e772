"""A producer against a model of Kinesis: what may happen, and what is claimed whatever happens."""

from __future__ import annotations

import gc
from collections import Counter, deque
from dataclasses import replace
from types import FunctionType, MethodType, ModuleType
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kpl_codec.producer import Delivery, DeliveryError, Outcome, Pending, ProducerConfig, ProducerCore
from kpl_codec.producer.batch import Batch, Call
from kpl_codec.producer.results import MAY_BE_STORED
from kpl_codec.producer.states import RecordState
from kpl_codec.shards.live_shard_map import Failure, LiveShardMap, Request

from .model import THROTTLED, ModelError, ModelStream, chance_of

#: The states of a user record in the core that is in no Kinesis record of a call.
NOT_SENT = ("waiting", "held", "open", "queued", "next")
_JUNK = st.sampled_from([None, "", "x", 5, [], ["x"], {}, {"x": "y"}, True])
_ENTRY = st.dictionaries(st.sampled_from(["ShardId", "SequenceNumber", "ErrorCode", "ErrorMessage"]), _JUNK)
_WORDS = st.sampled_from(["Records", "Shards", "NextToken", "StreamDescriptionSummary"])
#: With "Exception" behind each: codes by which a call for the map is refused.
REFUSALS = ["ResourceNotFound", "AccessDenied", "Validation", "LimitExceeded", "ExpiredNextToken"]
#: Answers of no shape that the service gives.
HOSTILE = st.one_of(_JUNK, st.dictionaries(_WORDS, st.one_of(_JUNK, st.lists(st.one_of(_JUNK, _ENTRY)))))


def held_by(core: ProducerCore) -> tuple[int, int]:
    """How many user records can be reached from ``core``, and how many entries its containers have, those of
    the shard map and of the settings left out."""
    seen: dict[int, object] = {id(core.live): core.live, id(core.config): core.config}
    records = entries = 0
    left: list[Any] = [core]  # (from Python 3.13 on, what `vars` gives has no referents)
    while left:
        thing = left.pop()
        if id(thing) in seen or isinstance(thing, (type, ModuleType, FunctionType, MethodType)):
            continue
        seen[id(thing)] = thing  # so that no other object gets its id
        if isinstance(thing, Pending):
            records += 1
            continue
        if isinstance(thing, (list, dict, set, deque)):
            entries += len(thing)
        left += gc.get_referents(thing)
    return records, entries


class ProducerMachine(RuleBasedStateMachine):
    """One producer, one stream, an adversary that picks what happens next."""

    core_class: type[ProducerCore] = ProducerCore
    config = ProducerConfig(aggregation_max_size=600, record_ttl_ms=30_000, max_connections=3)
    doubles_matter = waits_at_the_end = True
    outcomes: tuple[Outcome, ...] = ("expired", "refused")  # of those that are not delivered

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.stream = ModelStream(2)
        self.late: list[Call] = []
        self.live = LiveShardMap("model", shard_filter="FROM_TRIM_HORIZON")
        self.core = self.core_class(self.config, self.live, chance_of(7))
        self.core.live.refresh(self.now)
        self.calls: list[tuple[Call | Request, dict[str, Any] | None]] = []
        self.answer_before: dict[str, Any] = {}  # that the producer had for an earlier call
        self.put_count, self.put_at = 0, 0.0
        self.accepted: dict[bytes, Pending] = {}
        self.results: dict[bytes, Delivery | DeliveryError] = {}
        self.tried = False
        self.unsure = False  # an answer was lost, or a verdict ran out of time: copies are allowed
        self.healthy = True  # nothing went wrong yet, and every call and timer was served in time

    @initialize(map_first=st.sampled_from([True, True, True, False]))
    def begin(self, map_first: bool) -> None:
        if map_first:
            self.all_goes_well(0.0)

    # -- the application

    @rule(
        records=st.lists(
            st.tuples(
                st.sampled_from([None, "a", "b", "c", "d", "e", "f", "é", "longer key"]),
                st.sampled_from([0, 1, 40, 120, 800]),
                st.one_of(st.none(), st.none(), st.integers(0, 15).map(lambda n: n * 2**124)),
            ),
            min_size=1,
            max_size=8,
        ),
        flush=st.booleans(),
        waited=st.sampled_from([0.0, 0.0, 0.0, 0.3, 0.8]),
    )
    def put(
        self, records: list[tuple[str | None, int, int | None]], flush: bool, waited: float = 0.0
    ) -> None:
        """``waited``: the part of their time to live for which they have waited for the driver."""
        waited *= min(self.config.ttl_seconds, 30.0)
        self.put_at = put_at = max(self.put_at, self.now - waited)  # (they are taken in their order)
        for key, size, own in records:
            self.put_count += 1
            data = b"%06d" % self.put_count + b"." * size
            pending = self.core.prepare(key, data, own)
            pending.token = data
            self.core.accept(pending, self.now, put_at)
            self.accepted[data] = pending
        if flush:
            self.core.flush()
            self.ask()

    # -- time and the network

    def ask(self) -> None:
        for request in self.core.requests(self.now):
            self.calls.append((request, None))
            if isinstance(request, Call):
                self.goes_out(request.batches)
                sizes = [batch.data_size for batch in request.batches]
                assert sizes == [len(record["Data"]) for record in request.records]
                assert self.core._under_way[id(request)][0] == self.patience(request.batches)
        for request, _ in self.calls:  # one that was given up may be served all the same
            if isinstance(request, Call) and not self.core.is_under_way(request):
                self.unsure = True
        assert all(self.now < given_up_at for given_up_at, _ in self.core._under_way.values())
        self.expires_in_time()

    def patience(self, batches: list[Batch]) -> float:
        """PRD-72: when a call that is made now is given up."""
        ends = [pending.expires_at for batch in batches for pending in batch.records]
        timeouts = self.now + (self.config.connect_timeout_ms + self.config.request_timeout_ms) / 1000
        return min(max(ends) + 3, max(timeouts, min(ends)), timeouts + 60)

    def expires_in_time(self) -> None:
        """PRD-24: whatever stands in the way, and the timer comes early enough."""
        core, timer = self.core, self.core.timer()
        next_look = float("inf") if timer is None else timer
        waiting = [pending for state, place in core.places() if state in NOT_SENT for pending in place]
        if waiting:
            latest = min(p.expires_at for p in waiting) + min(3, self.config.ttl_seconds / 100) + 1e-6
            assert self.now <= latest, "has not expired"
            assert next_look <= latest, "nobody would see it expire"
        for lane in core._lanes._lanes.values():  # PRD-49
            for batch in lane.open.values():
                assert next_look <= batch.deadline, "nobody would close the aggregate"
                assert batch.aggregate.max_size is not None, "would grow without end"  # PRD-15
                wait = self.config.buffering_seconds
                for pending in batch.records:  # PRD-25
                    most = min(3.0, wait / 2) if pending.history else wait
                    assert pending.deadline <= self.now + most - self.config.collecting_seconds + 1e-6
        for pending in core._routing.waiting():  # PRD-17
            patience = min(3.0, self.config.ttl_seconds / 10)
            assert pending.history or self.now <= pending.accepted_at + patience + 1e-6, "waits for a map"
        assert len(self.in_flight()) <= self.config.max_connections, "more calls than PRD-22 allows"

    def in_flight(self) -> list[list[Batch]]:
        """The batches of each PutRecords call under way."""
        under_way = [call for _, call in self.core._under_way.values()]
        return [call.batches for call in under_way if isinstance(call, Call)]

    def goes_out(self, batches: list[Batch]) -> None:
        """PRD-17, PRD-24, PRD-31, PRD-32, PRT-6 and PRT-9, for the Kinesis records of a new request."""
        for batch in batches:
            misplaced = max(pending.history.misplaced if pending.history else 0 for pending in batch.records)
            if batch.shard is None or misplaced >= 2:
                assert len(batch.records) == 1, "aggregated with others"
                assert not (misplaced >= 2 and batch.aggregated), "an aggregate of one"
            hash_keys = [pending.hash_key for pending in batch.records]
            assert (batch.lowest, batch.highest) == (min(hash_keys), max(hash_keys))
            assert len(hash_keys) == 1 or batch.data_size <= self.config.aggregation_max_size
            assert batch.expires_at == min(pending.expires_at for pending in batch.records) > self.now
            if batch.shard is not None:
                assert batch.shard in self.live.known.routes.shard_ids, "sent for a shard known to be closed"
                known = self.live.shard(batch.shard)
                assert known is not None
                if self.config.reshard_proof:  # PRD-18
                    assert len({pending.hash_key for pending in batch.records}) == 1
                for pending in batch.records:
                    assert pending.hash_key in known.hash_key_range
                    if pending.own_hash_key:
                        assert pending.hash_key == pending.key_hash_key
                    elif pending.keyless and (not pending.history or pending.history.not_stored):
                        assert pending.hash_key == known.hash_key_range.starting_hash_key
                    elif pending.keyless and not self.stream.lives:
                        before = pending.history.attempts[-1].predicted_shard
                        assert before in (None, batch.shard) or before not in self.live.routes

    @rule(seconds=st.sampled_from([0.001, 0.02, 0.1, 0.5, 2.0, 20.0]))
    def wait(self, seconds: float) -> None:
        """Time passes, and nobody serves calls and timers."""
        timer = self.core.timer()
        self.now += seconds
        self.healthy = self.healthy and not self.calls and (timer is None or timer >= self.now)
        self.ask()

    @rule(seconds=st.sampled_from([0.0, 0.1, 1.0]))
    def all_goes_well(self, seconds: float) -> None:
        """Time passes; every call is served and answered at once, and those that follow from it."""
        end = self.now + seconds
        for _ in range(400):
            self.serve_all()
            timer = self.core.timer()
            if timer is None or timer > end:
                break
            self.now = max(self.now + 1e-6, timer)
        self.now = end
        self.serve_all()

    def serve_all(self) -> None:
        self.ask()
        for _ in range(20 + self.put_count):  # in strict order, each aggregate of a key needs its own call
            if not self.calls:
                break
            for request, answer in self.taken():
                self.answer(request, answer)
            self.ask()

    def taken(self) -> list[tuple[Call | Request, Any]]:
        calls, self.calls = self.calls, []
        return calls

    def answer(self, request: Call | Request, answer: Any) -> None:
        """Give the core the answer of a call, or what the service says now."""
        try:
            answer = self.serve(request) if answer is None else answer
        except ModelError as error:
            self.core.fail(request, Failure(str(error)), self.now, answered=True)
        else:
            self.receive(request, answer)

    def receive(self, request: Call | Request, answer: Any) -> None:
        if self.core.is_under_way(request) and any("ShardId" in one for one in answer.get("Records", ())):
            self.answer_before = answer
        self.core.receive(request, answer, self.now)

    @rule(which=st.integers(0, 3), at_once=st.booleans())
    def server_acts(self, which: int, at_once: bool) -> None:
        """A call reaches the service; its answer is on the way back, or here already."""
        waiting = [i for i, (_, answer) in enumerate(self.calls) if answer is None]
        if waiting:
            place = waiting[which % len(waiting)]
            request, _ = self.calls[place]
            if at_once or self.stream.deleted:
                del self.calls[place]
                self.answer(request, None)
                self.ask()
            else:
                self.calls[place] = (request, self.serve(request))

    def serve(self, request: Call | Request) -> dict[str, Any]:
        if isinstance(request, Request):
            return self.stream.answer(request)
        return self.stream.put_records(request.records)

    @rule()
    def somebody_asks_for_a_map(self) -> None:
        """As a routine refresh does."""
        self.live.refresh(self.now)
        self.ask()

    @rule(which=st.integers(0, 3))
    def answer_arrives(self, which: int) -> None:
        call = self.take(which, answered=True)
        if call is not None:
            self.receive(call[0], call[1] or {})
            self.ask()

    def take(self, which: int, *, answered: bool) -> tuple[Call | Request, Any] | None:
        """Take one of the calls that the service has answered, or one that it has not seen."""
        ready = [i for i, call in enumerate(self.calls) if (call[1] is not None) == answered]
        return self.calls.pop(ready[which % len(ready)]) if ready else None

    @rule(
        which=st.integers(0, 3),
        fault=st.sampled_from(
            ["lost", "late", "cut", "empty", "InternalFailure", "ValidationException", THROTTLED]
        ),
        refusal=st.sampled_from(REFUSALS),
    )
    def something_breaks(self, which: int, fault: str, refusal: str) -> None:
        refused = fault not in ("lost", "cut", "empty")  # or it has not come yet
        call = self.take(which, answered=not refused)
        if call is None:
            return
        request, answer = call
        self.healthy = False
        if isinstance(request, Request):
            code = f"{refusal}Exception" if refused else "ReadTimeoutError"
            self.core.fail(request, Failure(code), self.now, answered=refused)
        elif fault == "late":
            self.unsure = True
            self.late.append(request)
            self.core.fail(request, Failure("ReadTimeoutError"), self.now, answered=False)
        elif refused:
            self.core.fail(request, Failure(fault), self.now, answered=True)
        else:
            self.unsure = True
            if fault == "lost":
                self.core.fail(request, Failure("ReadTimeoutError"), self.now, answered=False)
            else:
                short = {"Records": answer["Records"][:-1]} if fault == "cut" else {}
                self.core.receive(request, short, self.now)
        self.ask()

    @rule()
    def answers_of_earlier_calls_come(self) -> None:
        """PRD-82: from a proxy that is out of step. (It knows numbers that are laid out as AWS's.)"""
        if self.stream.deleted or not self.stream.hints:
            return
        self.healthy, self.unsure = False, True
        for _ in range(3):
            self.put([("a", 0, None)], flush=True)
            for request, answer in self.taken():
                answer = answer or self.serve(request)
                before = self.answer_before.get("Records", ())
                earlier = isinstance(request, Call) and len(before) == len(request.records)
                self.receive(request, self.answer_before if earlier else answer)
            self.ask()

    @rule()
    def a_late_request_arrives(self) -> None:
        """The producer gave it up long ago; the service stores it now."""
        if self.late and not self.stream.deleted:
            self.serve(self.late.pop(0))

    @rule(which=st.integers(0, 3), answer=HOSTILE)
    def an_answer_makes_no_sense(self, which: int, answer: Any) -> None:
        call = self.take(which, answered=True) or self.take(which, answered=False)
        if call is not None:
            self.healthy = False
            self.unsure = self.unsure or isinstance(call[0], Call)
            self.core.receive(call[0], answer, self.now)
            self.ask()

    @rule()
    def no_map_can_be_had_for_a_while(self) -> None:
        """PRD-17, PRD-25 and PRD-28: PutRecords works, so what was put is sent within seconds, whatever the
        time to live, and a flush ends."""
        if self.stream.deleted or self.stream.throttled:
            return
        self.healthy = False
        self.now += 0.001
        for shard_id in self.live.routes.shard_ids:  # as after splits that only the service knows of
            self.live.invalidate(self.now, shard_id, self.now)
        self.put([("a", 40, None), (None, 40, None)], flush=True)
        before = set(self.accepted)
        end = self.now + 30
        while self.now < end:
            self.ask()
            for request, answer in self.taken():
                if isinstance(request, Request):
                    self.core.fail(request, Failure("InternalFailure"), self.now, answered=True)
                else:
                    self.answer(request, answer)
            timer = self.core.timer()
            self.now = max(self.now + 0.001, min(end, end if timer is None else timer))
        self.ask()
        self.collect()
        assert before <= self.results.keys(), "waits for a map that does not come"
        self.nothing_is_held_that_has_left()

    @precondition(lambda self: not self.tried)  # (it takes long)
    @rule(
        which=st.integers(0, 3),
        how=st.sampled_from(["throttled", "throttled", "InternalFailure", "outage"]),
        split=st.booleans(),
        map_first=st.booleans(),
    )
    def one_shard_takes_nothing_for_a_while(self, which: int, how: str, split: bool, map_first: bool) -> None:
        """PRT-9, PRT-10, PRD-32, PRD-80: who has an alternative does not wait until its time to live is over:
        a user record without a key goes to another shard, one with a key to its own shard or to the children
        of a split, and after an outage everything goes as soon as anything does."""
        if self.stream.deleted or self.stream.throttled or self.stream.distribution == "AUTO":
            return
        self.all_goes_well(0.0 if map_first else 0.01)
        if self.live.state != "READY":  # without a map nobody knows of an alternative
            return
        self.tried = True
        ttl = min(self.config.ttl_seconds, 30.0)
        self.healthy, self.unsure = False, True
        open_shards = self.stream.open
        sick = {open_shards[which % len(open_shards)].shard_id} if how != "outage" else set()
        # PRD-21: a shard that failed before is left alone longer than a short time to live.
        left_alone = {shard_id: lane.backoff_until for shard_id, lane in self.core._lanes._lanes.items()}
        no_answer = {shard_id for shard_id, lane in self.core._lanes._lanes.items() if lane.of_call}
        before, stored_from = set(self.accepted), float("inf")
        end, step, outage_ends = self.now + 1.5 * ttl, 0, self.now + ttl / 2
        known_since: dict[str, float] = {}  # by shard: the time at which the producer knew of it
        while self.now < end:
            for shard in self.stream.open:
                if self.live.shard(shard.shard_id) is not None:
                    known_since.setdefault(shard.shard_id, self.now)
            if self.now < end - ttl / 4:
                self.put([*[(None, 400, None)] * 3, ("a", 40, None), ("e", 0, None)], flush=step % 2 == 0)
            if split and step == 30 and len(open_shards) < 16:
                self.stream.split(which)
            step += 1
            self.ask()
            for request, answer in self.taken():
                if isinstance(request, Request) or answer is not None:
                    self.answer(request, answer)
                elif how == "outage" and self.now < outage_ends:
                    self.core.fail(request, Failure("EndpointConnectionError"), self.now, answered=True)
                else:
                    answer = self.with_faults(request, sick, how)
                    if any("ShardId" in entry for entry in answer["Records"]):
                        stored_from = min(stored_from, self.now)
                    self.answer(request, answer)
            self.ask()
            timer = self.core.timer()
            self.now = max(self.now + 0.001, min(self.now + ttl / 40, end if timer is None else timer))
        self.collect()
        takes_from = {}  # by shard that takes everything: the time from which nothing need wait for it
        for shard_id in known_since.keys() - sick:
            alone_until = left_alone.get(shard_id, 0.0)
            if shard_id in no_answer:  # PRD-80
                alone_until = min(alone_until, stored_from)
            outage_until = stored_from if how == "outage" else 0.0
            takes_from[shard_id] = max(known_since[shard_id], alone_until, outage_until)
        strict = self.config.ordering == "partition-key"
        # (With an explicit hash key, and so on any shard: others of its key may be held behind it.)
        first = {p.record.partition_key for p in self.accepted.values() if strict and p.own_hash_key}
        late = ttl / 40 + 0.01
        for data in self.results.keys() - before:
            result, pending = self.results[data], self.accepted[data]
            if isinstance(result, Delivery) or any(a.outcome in MAY_BE_STORED for a in result.attempts):
                continue
            if result.outcome == "throttled":  # which ends it, where the setting says so
                continue
            in_time = {shard for shard, since in takes_from.items() if pending.expires_at > since + late}
            if pending.keyless:
                assert not in_time, "expires though another shard takes everything"
            else:
                own = next(s for s in self.stream.open if pending.key_hash_key in s.hash_key_range)
                held = pending.record.partition_key in first
                assert held or own.shard_id not in in_time, "expires though its own shard takes everything"

    @rule(which=st.integers(0, 3), what=st.sampled_from(["split", "throttled", "parted", "refused"]))
    def it_happens_while_aggregates_are_open(self, which: int, what: str) -> None:
        """PRD-32, and PRT-9 where a shard fails, take user records out of open aggregates; PRD-25 puts those
        that a split has parted into new ones. By PRT-9 one without a key that may be stored stays with its
        shard, though its aggregate is refused later, and other shards are drawn meanwhile."""
        if self.stream.deleted or self.stream.throttled:
            return
        self.healthy = False
        some = [(None, 40, None), ("a", 40, None), ("b", 40, None), ("c", 40, None), ("e", 40, None)]
        self.put(some, flush=what != "parted")
        self.put(some[:1], flush=False)
        self.now += 0.01
        self.put(some[1:], flush=False)
        if what == "parted":
            self.now += min(self.config.buffering_seconds, 1.0)
            self.ask()
            self.operator_acts("split", which)
        sick = {self.stream.open[which % len(self.stream.open)].shard_id}
        if what == "split":
            self.operator_acts("split", which)
            self.live.refresh(self.now)
        if what == "refused":
            self.unsure = True
            for code in ("ReadTimeoutError", "ValidationException", "ValidationException"):
                self.put([(None, 800, None)], flush=True)
                for request, _ in self.taken():
                    answered = code != "ReadTimeoutError"
                    self.core.fail(request, Failure(code), self.now, answered=answered)
                self.now += 0.2
                self.ask()
        for _ in range(4):
            self.ask()
            for request, answer in self.taken():
                if what == "throttled" and answer is None and isinstance(request, Call):
                    answer = self.with_faults(request, sick, what)
                self.answer(request, answer)
        self.ask()

    def with_faults(self, request: Call, sick: set[str], how: str) -> dict[str, Any]:
        """The answer of the service, of which these shards take nothing."""
        code = THROTTLED if how == "throttled" else how
        entries: list[dict[str, Any]] = []
        for record in request.records:
            if self.stream.route(int(record["ExplicitHashKey"])).shard_id in sick:
                entries.append({"ErrorCode": code, "ErrorMessage": "no"})
            else:
                entries += self.stream.put_records([record])["Records"]
        return {"Records": entries}

    @invariant()
    def what_has_a_prediction_does_not_wait_without(self) -> None:
        lane = self.core._lanes._lanes.get(None)
        assert lane is None or all(self.live.predict(one.lowest) is None for one in lane.queue)
        some_shard = any(shard in self.live.routes for shard in self.live.known.routes.shard_ids)
        for pending in self.core._routing.waiting():
            moves = pending.keyless and (not pending.history or pending.history.not_stored)
            assert not some_shard if moves else self.live.predict(pending.hash_key) is None

    def nothing_is_held_that_has_left(self) -> None:
        """PRD-66: what the core holds is what is outstanding."""
        held, entries = held_by(self.core)
        assert held <= self.core.outstanding
        assert entries <= 8 * self.core.outstanding + 16 * len(self.stream.shards) + 400

    # -- the operator

    @rule(what=st.sampled_from(["split", "split", "merge", "throttle"]), which=st.integers(0, 3))
    def operator_acts(self, what: str, which: int) -> None:
        self.healthy = False
        if what == "merge":
            self.stream.merge(which)
        elif what == "throttle":
            self.stream.throttled ^= {self.stream.open[which % len(self.stream.open)].shard_id}
        elif len(self.stream.open) < 16:
            self.stream.split(which)

    # -- the claims

    def collect(self) -> None:
        for pending in self.core.results():
            result = pending.result
            assert pending.token not in self.results, "two results for one user record"
            self.results[pending.token] = result
            self.unsure = self.unsure or any(
                attempt.outcome == "placement-unknown" for attempt in result.attempts
            )

    @invariant()
    def every_user_record_is_somewhere_once(self) -> None:
        """PRD-6; and each place has the user records of its state."""
        self.collect()
        core, lanes, of_place = self.core, self.core._lanes, Counter[RecordState]()
        outstanding: list[int] = []
        for state, place in core.places():
            outstanding += [pending.number for pending in place]
            of_place[state] += len(place)
        assert len(outstanding) == len(set(outstanding)), "a user record is in two places"
        assert len(outstanding) == core.outstanding == len(self.accepted) - len(self.results)
        places: dict[RecordState, list[Batch]] = {
            "open": [batch for lane in lanes._lanes.values() for batch in lane.open.values()],
            "queued": [batch for lane in lanes._busy.values() for batch in lane.queue],
            "next": [*lanes._next, *lanes._alone],
            "in-flight": [batch for batches in self.in_flight() for batch in batches],
            "stored": core._answers.parked,
        }
        assert of_place.keys() <= places.keys() | {"held", "waiting"}
        for state, batches in places.items():
            assert {batch.state for batch in batches} <= {state}
            assert of_place[state] == sum(len(batch.records) for batch in batches)

    @invariant()
    def what_is_called_delivered_a_kcl_consumer_gets(self) -> None:
        delivered = self.stream.delivered()
        for data, result in self.results.items():
            if isinstance(result, Delivery):
                assert delivered[data] >= 1, "lost: called delivered, dropped by the KCL"
                if self.doubles_matter and delivered[data] > 1:
                    assert self.unsure, "doubled without a lost answer"
                    outcomes = {attempt.outcome for attempt in result.attempts}
                    assert outcomes & MAY_BE_STORED - {"delivered", "misplaced"} or result.attempts_left_out
            else:
                assert result.outcome in self.outcomes, result.outcome
                assert result.attempts or result.outcome in ("expired", "closed")
                assert delivered[data] == 0 or result.may_be_stored
                assert not self.healthy, f"{result.outcome} though nothing went wrong"

    def teardown(self) -> None:
        """The weather clears: everything outstanding ends, and the claims hold."""
        self.collect()
        self.nothing_is_held_that_has_left()
        if self.stream.deleted:
            self.stream.create_again(3)
        self.stream.throttled.clear()
        self.core.flush()
        for _ in range(400):
            self.collect()
            if not self.core.outstanding and self.live.state == "READY":
                break
            self.serve_all()
            timer = self.core.timer()
            self.now = max(self.now + 0.001, min(timer if timer is not None else self.now, self.now + 5.0))
        self.every_user_record_is_somewhere_once()
        self.what_is_called_delivered_a_kcl_consumer_gets()
        assert self.core.outstanding == 0, "never ends"
        assert self.live.state == "READY", "the map never came back: no aggregation for life"


# -- other settings, and an operator who does more


class ReshardProofMachine(ProducerMachine):
    """One explicit hash key for all of an aggregate: no split can part it."""

    config = replace(ProducerMachine.config, reshard_proof=True)

    @invariant()
    def nothing_is_ever_misplaced(self) -> None:
        for result in self.results.values():
            assert all(a.outcome != "misplaced" for a in result.attempts)


class StrictOrderMachine(ProducerMachine):
    """Strict order per partition key, with its own claims beside the others."""

    config = replace(ProducerMachine.config, ordering="partition-key")

    def goes_out(self, batches: list[Batch]) -> None:
        super().goes_out(batches)
        self.collect()
        for batch in batches:
            beside = {pending.token for pending in batch.records}
            for pending in batch.records:
                for other in () if pending.keyless else self.accepted.values():
                    same_key = other.record.partition_key == pending.record.partition_key
                    if same_key and not other.keyless and other.number < pending.number:
                        assert other.token in beside or other.token in self.results, "sent too early"

    def teardown(self) -> None:
        super().teardown()
        first_seen: dict[bytes, int] = {}
        for place, data in enumerate(self.stream.in_order()):
            first_seen.setdefault(data, place)
        by_key: dict[str, list[Pending]] = {}
        for data, pending in self.accepted.items():
            if not pending.keyless and not pending.own_hash_key and isinstance(self.results[data], Delivery):
                by_key.setdefault(pending.record.partition_key, []).append(pending)
        for key, pendings in by_key.items():
            pendings.sort(key=lambda pending: pending.number)
            places = [first_seen[pending.token] for pending in pendings]
            assert places == sorted(places), f"user records of key {key!r} out of order"


class StrictOrderExpiryMachine(StrictOrderMachine):
    """Aggregates that wait for each other while one after the other of their user records expires."""

    config = replace(
        StrictOrderMachine.config, record_ttl_ms=1_000, record_max_buffered_time_ms=500, max_connections=1
    )


class AutoMachine(ProducerMachine):
    """The operator lets the service distribute records, and takes it back: keys count for nothing then. Some
    streams do not say so."""

    doubles_matter = False  # a record on a shard that is not its own may be there again
    config = ProducerConfig(
        aggregation_max_size=600, record_ttl_ms=30_000, outer_key="buckets", outer_key_buckets=3
    )

    @initialize(says=st.booleans(), begins=st.booleans())
    def other_streams(self, says: bool, begins: bool) -> None:
        self.stream.says_distribution = says
        if begins:
            self.operator_changes_the_distribution()

    @rule()
    def operator_changes_the_distribution(self) -> None:
        self.healthy = False
        auto = self.stream.distribution == "AUTO"
        self.stream.distribution = "USER_PARTITION_KEY" if auto else "AUTO"


class RecreatedMachine(ProducerMachine):
    """The stream is deleted, and made again under its name, while the producer goes on."""

    doubles_matter = False  # what was stored in a life that is gone may be sent again

    @initialize(hints=st.booleans(), describes=st.booleans())
    def other_streams(self, hints: bool, describes: bool) -> None:
        self.stream.hints, self.stream.describes = hints, describes

    @rule(shards=st.integers(1, 4))
    def operator_makes_the_stream_anew(self, shards: int) -> None:
        under_way = [call for call in self.calls if call[1] is None]
        if not self.stream.hints and not any(isinstance(call[0], Call) for call in under_way):
            return  # without hints nothing tells of a stream that nobody missed
        self.healthy = False
        self.stream.delete()
        for call in under_way:  # they come while there is none
            self.calls.remove(call)
            self.answer(*call)
        self.stream.create_again(shards)
        self.ask()

    @rule()
    def operator_deletes_the_stream(self) -> None:
        if self.stream.hints:
            self.healthy = False
            self.stream.delete()

    @rule(shards=st.integers(1, 4))
    def operator_makes_the_stream_at_last(self, shards: int) -> None:
        if self.stream.deleted:
            self.stream.create_again(shards)


class ExtremeMachine(ProducerMachine):
    """Settings at the ends of their ranges."""

    config = ProducerConfig(
        aggregation_max_size=600,
        record_ttl_ms=10**14,
        record_max_buffered_time_ms=2**63 - 1,
        rate_limit=2**63 - 1,
        max_connections=256,
    )


class HastyMachine(ProducerMachine):
    """As little time as there may be, and all of it for buffering."""

    config = ProducerConfig(aggregation_max_size=64, record_ttl_ms=100, record_max_buffered_time_ms=100)


class ReshardProofAutoMachine(AutoMachine):
    config = ReshardProofMachine.config


class BucketMachine(ProducerMachine):
    """Other outer partition keys and no retries of throttled records."""

    config = replace(AutoMachine.config, record_ttl_ms=1_000, max_connections=1, fail_if_throttled=True)
    outcomes = ("expired", "refused", "throttled")


class AbandonedMachine(ProducerMachine):
    """It is not waited for: what is left at the end gets its result at once, wherever it is."""

    outcomes = ("expired", "refused", "closed")
    waits_at_the_end = False

    def teardown(self) -> None:
        self.collect()
        self.core.abandon(self.now)
        self.healthy = False
        for request, answer in self.taken():  # too late, which changes nothing
            if isinstance(request, Call) and not self.stream.deleted:
                self.answer(request, answer)
        self.every_user_record_is_somewhere_once()
        assert self.core.outstanding == 0
        self.what_is_called_delivered_a_kcl_consumer_gets()


class AbandonedInOrderMachine(AbandonedMachine):
    config = StrictOrderMachine.config


MACHINES: list[type[ProducerMachine]] = [
    kind for kind in [*globals().values()] if isinstance(kind, type) and issubclass(kind, ProducerMachine)
]
