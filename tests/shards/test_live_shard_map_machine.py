"""The live shard map under any order of events: a model-based machine over reshard histories."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kpl_codec.format.hash_keys import HashKeyRange
from kpl_codec.shards.live_shard_map import Failure, LiveShardMap, MapChanged, RefreshFailed
from tests.examples import examples

from .model import ModelStream
from .test_live_shard_map import KEYS, THROTTLED


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
        self.begun = 0.0  # when the refresh under way began
        # who had which range when: (from, life, open shards); the last entry is the truth
        self.life = 0
        self.past = [(0.0, 0, self.stream.open_shards())]
        self.last_reshard = 0.0
        self.seen: dict[str, HashKeyRange] = {}

    def tick(self):
        self.now += 1.0

    def reshaped(self):
        self.tick()
        self.past.append((self.now, self.life, self.stream.open_shards()))
        self.last_reshard = self.now

    # the stream

    @precondition(lambda self: len(self.stream.open_shards()) < 12)
    @rule(data=st.data())
    def split(self, data):
        position = data.draw(st.integers(0, len(self.stream.open_shards()) - 1))
        keys = self.stream.open_shards()[position].hash_key_range
        if keys.size < 2:
            return
        at = data.draw(st.integers(keys.starting_hash_key + 1, keys.ending_hash_key))
        self.stream.split(position, at)
        self.reshaped()

    @precondition(lambda self: len(self.stream.open_shards()) > 1)
    @rule(data=st.data())
    def merge(self, data):
        self.stream.merge(data.draw(st.integers(0, len(self.stream.open_shards()) - 2)))
        self.reshaped()

    @rule()
    def retention_ends(self):
        """Nothing is left in the closed shards: the service no longer lists them."""
        self.tick()
        self.expired |= {shard.shard_id for shard in self.stream.shards if not shard.open}

    @rule(shards=st.integers(1, 4))
    def make_again(self, shards):
        self.life += 1
        for shard_id in self.expired:  # the map may have forgotten them, and does not know of the new life
            self.seen.pop(shard_id, None)
        self.expired.clear()
        self.stream = ModelStream(shards, now=self.stream.now + 100)
        self.reshaped()

    # those who use the map

    @rule()
    def routine(self):
        self.tick()
        running = self.live._refresh is not None
        if self.live.refresh(self.now):
            assert not running
            self.begun = self.now

    @rule(key=st.sampled_from(KEYS), callers=st.integers(1, 5))
    def put(self, key, callers):
        self.tick()
        predicted, actual = self.live.predict(key), self.stream.shard_for(key).shard_id
        if predicted is not None and predicted != actual:
            sent_at = self.now
            self.tick()
            running = self.live._refresh is not None
            believed = [self.live.invalidate(sent_at, predicted, self.now) for _ in range(callers)]
            assert sum(believed) == 1  # N callers, one refresh
            assert self.live.predict(key) is None
            if not running:
                self.begun = self.now

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
        idle = self.live._refresh is None
        self.request = self.live.next_request(self.now)
        if idle and self.request is not None:  # the backoff was over
            self.begun = self.now

    @precondition(lambda self: self.request is not None)
    @rule(trouble=st.sampled_from([None] * 12 + ["throttled", "cut", "lost", "gone"]))
    def reply(self, trouble):
        request, self.request = self.request, None
        assert self.live.next_request(self.now) is None  # one call at a time
        self.tick()
        event = None
        if trouble == "throttled":
            event = self.live.fail(request, THROTTLED, self.now)
        elif trouble == "lost":
            event = self.live.fail(request, Failure("ConnectionClosedError"), self.now)
        elif trouble == "gone":
            event = self.live.fail(request, Failure("ExpiredNextTokenException"), self.now)
            if event is None and request.operation == "ListShards":
                self.begun = self.now
        elif trouble == "cut":
            event = self.live.receive(request, {}, self.now)
        elif request.operation == "DescribeStreamSummary":
            event = self.live.receive(request, self.stream.summary(), self.now)
        elif (page := self.page(request.arguments)) is None:
            event = self.live.fail(request, Failure("ExpiredNextTokenException"), self.now)
            if event is None:
                self.begun = self.now
        else:
            event = self.live.receive(request, page, self.now)
        if isinstance(event, MapChanged):
            self.changed(event)
            if self.live._refresh is not None:  # a report was believed meanwhile: another one at once
                self.begun = self.now
        elif isinstance(event, RefreshFailed):
            assert event.retry_at is not None
            assert 1.0 <= event.retry_at - self.now <= 30.0

    def changed(self, event):
        if event.recreated:
            self.seen.clear()
        self.seen |= {i: s.hash_key_range for i, s in self.live.shard_map.items()}
        started = self.live.stream_state.listed_at
        assert started == self.begun
        # Each range was open at some moment while the listing ran.
        current = [
            {(s.shard_id, s.hash_key_range) for s in shards}
            for (since, _, shards), until in zip(
                self.past, [*(p[0] for p in self.past[1:]), float("inf")], strict=True
            )
            if until > started and since <= self.now
        ]
        for shard in self.live.shard_map.open_shards:
            assert any((shard.shard_id, shard.hash_key_range) in moment for moment in current)
        if self.last_reshard < started:
            assert self.live.shard_map.open_shards == tuple(self.stream.open_shards())

    # what always holds

    @invariant()
    def the_fast_map_is_the_naive_one(self):
        shard_map = self.live.shard_map
        for key in KEYS:
            predicted = self.live.predict(key)
            if self.live.state != "READY":
                # Only shards are predicted that no report is about, and no other shard disputes.
                assert predicted is None or key in self.live.shard(predicted).hash_key_range
            else:
                (linear,) = [s.shard_id for s in shard_map.values() if s.open and key in s.hash_key_range]
                assert predicted == linear
                if self.last_reshard < self.live.stream_state.listed_at:
                    assert predicted == self.stream.shard_for(key).shard_id

    @invariant()
    def ranges_are_kept(self):
        for shard_id, hash_key_range in self.seen.items():
            known = self.live.shard(shard_id)
            assert known is not None or (self.everything and shard_id in self.expired)
            assert known is None or known.hash_key_range == hash_key_range
            assert self.live.lineage.get(shard_id) == known
        assert self.live.shard("shardId-unheard-of") is None

    def teardown(self):
        """Left in peace, the map becomes right."""
        if not hasattr(self, "live"):
            return
        for _ in range(3000):
            if self.request is None:
                timer = self.live.timer()
                self.now = max(self.now + 1, timer or 0)
                if self.live._refresh is None and timer is None:
                    if self.live.state == "READY" and self.last_reshard < self.live.stream_state.listed_at:
                        return
                    self.live.refresh(self.now)
                    self.begun = self.now
                self.send()
            if self.request is not None:
                self.reply(None)
        raise AssertionError("the map never became right")


TestLiveShardMapMachine = LiveShardMapMachine.TestCase
TestLiveShardMapMachine.settings = settings(max_examples=examples(100), stateful_step_count=60, deadline=None)
