"""The live shard map under any order of events: a model-based machine over reshard histories."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kpl_codec.format.hash_keys import HashKeyRange
from kpl_codec.shards.live_shard_map import Failure, LiveShardMap
from tests.examples import share

from .model import ModelStream
from .test_live_shard_map import KEYS, NO_STREAM

pytestmark = pytest.mark.requirement("MAP-1", "MAP-3", "MAP-4", "MAP-5", "MAP-15", "MAP-17")

TROUBLES = [
    "LimitExceededException",
    "ConnectionClosedError",
    "AccessDeniedException",
    "ExpiredNextTokenException",
    "ResourceNotFoundException",
    "cut",
]

#: What becomes of the calls after an event: none is made; or all, until the map is ready, and the first ones
#: fail so. (A rule of its own would be left out of half of all runs.)
CALLS = st.none() | st.lists(st.sampled_from([None] * 6 + TROUBLES), max_size=4)


class LiveShardMapMachine(RuleBasedStateMachine):
    """A stream that splits, merges and is made again, between any two pages of a listing, while calls
    fail, expire and come back cut; a map that must never be wrong about what it was told."""

    @initialize(
        shards=st.integers(1, 5),
        describe=st.booleans(),
        size=st.integers(1, 4),
        everything=st.booleans(),
    )
    def begin(self, shards, describe, size, everything):
        self.now = 0.0
        self.stream = ModelStream(shards, now=0)
        self.size = size
        self.everything = everything  # closed shards are listed, too, until they expire
        self.expired: set[str] = set()
        self.live = LiveShardMap(
            "s",
            describe=describe,
            shard_filter="FROM_TRIM_HORIZON" if everything else "AT_LATEST",
        )
        self.live.refresh(self.now)
        self.request = None
        self.begun, self.listed = 0.0, self.live._listing  # when the refresh under way began, and its listing
        # What no listing has answered yet: when it was asked, of which shard; None: of all.
        self.questions: list[tuple[float, str | None]] = [(0.0, None)]
        self.complete = False  # the last listing had no gap and no overlap
        self.changed_in_doubt = False  # a listing has changed the map since a report
        self.vain, self.ignored_until = 0, 0.0  # reports in a row whose listings changed nothing
        # who had which range when: (from, life, open shards); the last entry is the truth
        self.life = 0
        self.past = [(0.0, 0, self.stream.open_shards())]
        self.last_reshard = 0.0
        self.seen: dict[str, HashKeyRange] = {}

    def tick(self):
        self.now += 0.25

    def reshaped(self):
        self.tick()
        self.past.append((self.now, self.life, self.stream.open_shards()))
        self.last_reshard = self.now

    # the stream

    @precondition(lambda self: len(self.stream.open_shards()) < 12)
    @rule(data=st.data(), calls=CALLS)
    def split(self, data, calls):
        position = data.draw(st.integers(0, len(self.stream.open_shards()) - 1))
        keys = self.stream.open_shards()[position].hash_key_range
        if keys.size < 2:
            return
        at = data.draw(st.integers(keys.starting_hash_key + 1, keys.ending_hash_key))
        self.stream.split(position, at)
        self.reshaped()
        self.answer_calls(calls)

    @precondition(lambda self: len(self.stream.open_shards()) > 1)
    @rule(data=st.data(), calls=CALLS)
    def merge(self, data, calls):
        self.stream.merge(data.draw(st.integers(0, len(self.stream.open_shards()) - 2)))
        self.reshaped()
        self.answer_calls(calls)

    @rule()
    def retention_ends(self):
        """Nothing is left in the closed shards: the service no longer lists them."""
        self.tick()
        self.expired |= {shard.shard_id for shard in self.stream.shards if not shard.open}

    @rule(shards=st.integers(1, 4), calls=CALLS)
    def make_again(self, shards, calls):
        self.life += 1
        for shard_id in self.expired:  # the map may have forgotten them, and does not know of the new life
            self.seen.pop(shard_id, None)
        self.expired.clear()
        self.stream = ModelStream(shards, now=self.stream.now + 100)
        self.reshaped()
        self.answer_calls(calls)

    # those who use the map

    @rule(calls=CALLS)
    def routine(self, calls):
        self.tick()
        idle = self.live._listing is None
        if self.live.refresh(self.now):
            assert idle
        self.note_start()
        self.answer_calls(calls)

    @rule(keys=st.sets(st.sampled_from(KEYS), min_size=1), callers=st.integers(1, 5), calls=CALLS)
    def put(self, keys, callers, calls):
        for key in keys:
            self.tick()
            predicted, actual = self.live.predict(key), self.stream.shard_for(key).shard_id
            if predicted is not None and predicted != actual:
                sent_at = self.now
                self.tick()
                self.report(sent_at, predicted, callers)
        self.answer_calls(calls)

    @rule(sent_ago=st.sampled_from([0, 0, 0, 1, 9]), data=st.data(), calls=CALLS)
    def report_without_cause(self, sent_ago, data, calls):
        """Of a record that was sent some time ago: perhaps the map has learnt that already."""
        self.tick()
        shard_ids = sorted(self.seen) or ["shardId-unheard-of"]
        self.report(self.now - sent_ago / 4, data.draw(st.sampled_from(shard_ids)))
        self.answer_calls(calls)

    def report(self, sent_at, shard_id, callers=1):
        predicted = shard_id in self.live.routes
        covered = (self.live.known.listed_at or 0) >= sent_at
        counted = [self.live.invalidate(sent_at, shard_id, self.now) for _ in range(callers)]
        counts = predicted and not covered and self.now >= self.ignored_until
        assert counted == [counts, *[False] * (callers - 1)]  # N callers, one refresh
        if counts:
            self.questions.append((sent_at, shard_id))
            assert self.live._listing is not None or self.live.timer() is not None
        self.note_start()

    @rule(calls=CALLS)
    def doubt_the_stream(self, calls):
        """A call found no such stream, or a record is of another life."""
        self.tick()
        self.live.stream_gone(self.now)
        self.questions.append((self.now, None))
        self.note_start()
        self.answer_calls(calls)

    def note_start(self):
        """After whatever may start a refresh: each has a listing of its own."""
        if self.live._listing is not self.listed:
            self.listed, self.begun = self.live._listing, self.now

    @rule()
    def wait(self):
        timer = self.live.timer()
        self.now = max(self.now, timer) if timer is not None else self.now + 1

    # the server

    def listing(self):
        if not self.everything:
            return self.stream.open_shards()
        return [shard for shard in self.stream.shards if shard.shard_id not in self.expired]

    def page(self, arguments):
        listed = sorted(self.listing(), key=lambda s: s.shard_id)
        token = arguments.get("NextToken")
        if token is not None:
            life, after = token.split("/")
            if int(life) != self.life:
                return None
            listed = [s for s in listed if s.shard_id > after]
        page = {"Shards": [s.to_aws() for s in listed[: self.size]]}
        if len(listed) > self.size:
            page["NextToken"] = f"{self.life}/{listed[self.size - 1].shard_id}"
        return page

    @precondition(lambda self: self.request is None)
    @rule()
    def send(self):
        self.request = self.live.next_request(self.now)
        self.note_start()  # the backoff was over

    def answer_calls(self, troubles):
        for trouble in [] if troubles is None else [*troubles, *[None] * 20]:
            if self.request is None:
                self.send()
            if self.request is not None:
                self.reply(trouble)
            elif self.live.timer() is not None:
                self.wait()
            else:
                return

    @rule(trouble=st.sampled_from([None, *TROUBLES]))
    def one_call(self, trouble):
        if self.request is None:
            self.send()
        if self.request is not None:
            self.reply(trouble)

    def reply(self, trouble):
        request, self.request = self.request, None
        assert self.live.next_request(self.now) is None  # one call at a time
        self.tick()
        described = request.operation == "DescribeStreamSummary"
        answer = self.stream.summary() if described else self.page(request.arguments)
        if answer is None:
            trouble = trouble or "ExpiredNextTokenException"  # of a stream that is no more
        routes = self.live.known.routes.shard_ids
        if trouble == "cut":
            event = self.live.receive(request, {}, self.now)
        elif trouble is not None:
            event = self.live.fail(request, Failure(trouble), self.now)
        else:
            event = self.live.receive(request, answer, self.now)
        known, error = self.live.known, self.live.error
        for late in (self.live.receive(request, {}, self.now), self.live.fail(request, NO_STREAM, self.now)):
            assert (late, self.live.known, self.live.error) == (None, known, error)
        if trouble == "ResourceNotFoundException":
            self.questions.append((self.now, None))
        if event is None:
            return
        if event.routes_changed:
            self.complete = event.error is None
            self.answer(changed=event.recreated or self.live.known.routes.shard_ids != routes)
        if event.error is None:
            self.changed(event)
            assert (self.live._listing is not None) == (self.questions != [])  # another one at once
            self.note_start()
        else:
            assert self.live.error is event.error
            longest = 300.0 if event.error.permanent else 30.0
            assert 1.0 <= self.live.timer() - self.now <= longest

    def answer(self, *, changed):
        """A listing answers what was asked before it began, and of which shard it says that it has closed."""
        reports = [at for at, shard_id in self.questions if shard_id is not None]
        left = [(at, i) for at, i in self.questions if i is not None and i in self.live.known.routes]
        if all(at <= self.begun for at, _ in left):
            left = []
        self.questions = left + [(at, i) for at, i in self.questions if i is None and at > self.begun]
        self.changed_in_doubt |= changed
        if changed:
            self.vain, self.ignored_until = 0, 0.0
        elif reports and not left and not self.changed_in_doubt:
            self.vain, self.ignored_until = self.vain + 1, self.now + min(30.0, 1.5**self.vain)
        self.changed_in_doubt &= left != []

    def changed(self, event):
        if event.recreated:
            self.seen.clear()
        shard_map = self.live.known.shard_map
        self.seen |= {i: s.hash_key_range for i, s in shard_map.items()}
        started = self.live.known.listed_at
        assert started == pytest.approx(self.begun, abs=1e-9)
        # Each range was open at some moment while the listing ran.
        current = [
            {(s.shard_id, s.hash_key_range) for s in shards}
            for (since, _, shards), until in zip(
                self.past, [*(p[0] for p in self.past[1:]), float("inf")], strict=True
            )
            if until > started and since <= self.now
        ]
        for shard in shard_map.open_shards:
            assert any((shard.shard_id, shard.hash_key_range) in moment for moment in current)
        if self.last_reshard < started:
            assert shard_map.open_shards == tuple(self.stream.open_shards())

    # what always holds

    @invariant()
    def what_was_asked_and_not_answered_is_not_predicted(self):
        assert (self.live.state == "READY") == (self.complete and self.questions == [])
        in_doubt = {shard_id for _, shard_id in self.questions}
        predicted = set(self.live.routes.shard_ids)
        assert predicted == set() if None in in_doubt else not predicted & in_doubt

    @invariant()
    def the_fast_map_is_the_naive_one(self):
        shard_map = self.live.known.shard_map
        for key in KEYS:
            predicted = self.live.predict(key)
            if self.live.state != "READY":
                # Only shards are predicted that no report is about, and no other shard disputes.
                assert predicted is None or key in self.live.shard(predicted).hash_key_range
            else:
                (linear,) = [s.shard_id for s in shard_map.values() if s.open and key in s.hash_key_range]
                assert predicted == linear
                if self.last_reshard < self.live.known.listed_at:
                    assert predicted == self.stream.shard_for(key).shard_id

    @invariant()
    def ranges_are_kept(self):
        lineage = self.live.known.lineage
        for shard_id, hash_key_range in self.seen.items():
            known = self.live.shard(shard_id)
            assert known is not None or (self.everything and shard_id in self.expired)
            assert known is None or known.hash_key_range == hash_key_range
            assert lineage.get(shard_id) == known
        assert self.live.shard("shardId-unheard-of") is None

    def teardown(self):
        """Left in peace, the map becomes right."""
        if not hasattr(self, "live"):
            return
        for _ in range(3000):
            if self.request is None:
                timer = self.live.timer()
                self.now = max(self.now + 1, timer or 0)
                if self.live._listing is None and timer is None:
                    if self.live.state == "READY" and self.last_reshard < self.live.known.listed_at:
                        return
                    self.live.refresh(self.now)
                    self.note_start()
                self.send()
            if self.request is not None:
                self.reply(None)
        raise AssertionError("the map never became right")


TestLiveShardMapMachine = LiveShardMapMachine.TestCase
TestLiveShardMapMachine.settings = settings(
    max_examples=150 if share() == 1 else 40, stateful_step_count=60, deadline=None
)
