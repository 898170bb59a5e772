"""A stream that is deleted and created again with other hash ranges while the watch reads it, and listings
that take time or fail. The model knows which user records the KCL drops, and when they were read."""

from __future__ import annotations

import random
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.watch import WatchFinding
from tests.examples import examples

from .model import START, ModelStream, key_on, open_map, run
from .test_watch import NAIVE, SOUND, aggregate, watched

SIZE, STEP = 4, 0.5


class World:
    """``lives``: has each life of the stream a writer that does not look at shards?"""

    def __init__(self, seed: int, lives: list[bool], *, sampling_rate: float) -> None:
        self.rng = random.Random(seed)
        self.lives, self.life = lives, 0
        self.stream = ModelStream(open_map(2), refuse=self._refusal)
        self.watch = watched(self.stream, sampling_rate=sampling_rate)
        self.texts: dict[tuple[str, str], tuple[str, bytes]] = {}
        self.dropped: dict[str, str] = {}  # sequence number -> shard, of the present life
        self.ever_dropped: set[str] = set()
        self.read_at: dict[str, float] = {}
        self.known, self.listed, self.unlisted_until = 0, START, 0.0
        self.under_way: tuple[float, float, tuple[int, kpl.ShardMap] | None] | None = None
        self.doubted = False
        answer = self.stream.answer
        self.stream.answer = lambda call, now: self._note(answer(call, now), now)  # type: ignore[method-assign]

    def _refusal(self, call: object, now: float) -> str | None:
        return None if call.shard_id in self.stream.shard_map else "ResourceNotFoundException"  # type: ignore[attr-defined]

    def _note(self, answer: object, now: float) -> object:
        for record in answer.get("Records", ()) if isinstance(answer, dict) else ():
            if record["SequenceNumber"] in self.dropped:
                self.read_at.setdefault(record["SequenceNumber"], now)
        return answer

    def put(self, now: float) -> None:
        for shard in self.stream.shard_map.open_shards:
            naive = self.lives[self.life] and self.rng.random() < 0.1 and len(self.stream.shard_map) > 1
            kind = NAIVE if naive else SOUND
            if (shard.shard_id, kind) not in self.texts:
                data = aggregate(self.stream.shard_map, shard, kind, SIZE)
                self.texts[shard.shard_id, kind] = key_on(shard), data
            self.stream.put(shard.shard_id, now, *self.texts[shard.shard_id, kind])
            if naive:
                number = str(self.stream.records[shard.shard_id][-1].number)
                self.dropped[number] = shard.shard_id
                self.ever_dropped.add(number)

    def create_again(self) -> None:
        self.life += 1
        before = len(self.stream.shard_map)
        self.stream.shard_map = open_map(self.rng.choice([n for n in (1, 2, 3, 5) if n != before]))
        self.stream.records.clear()
        self.texts.clear()
        self.dropped.clear()
        self.read_at.clear()

    def list_shards(self, now: float) -> None:
        """A listing shows the stream at one moment between its request and its response."""
        seen = self.life, self.stream.shard_map
        if self.under_way is None:
            wanted = now - self.listed >= (2.0 if self.watch.map_is_old else 10.0)
            if wanted and now >= self.unlisted_until:
                early = seen if self.rng.random() < 0.5 else None
                self.under_way = now, now + self.rng.choice([0.0, 0.5, 3.0]), early
        if self.under_way is not None and now >= self.under_way[1]:
            begun, _, early = self.under_way
            life, shard_map = early or seen
            self.under_way, self.listed = None, begun
            again, self.known = life != self.known, life
            if again:  # everything is read again
                self.read_at.clear()
            self.see(self.watch.set_shard_map(shard_map, now, recreated=again, listed_at=begun), now)

    def see(self, findings: list[WatchFinding], now: float) -> None:
        for finding in findings:
            if finding.lost is not None and finding.state != "resolved":
                if "may be old" in finding.text:
                    self.doubted = True
                    assert now - max(self.listed, START) > 15
                elif not self.doubted:
                    assert finding.sequence_number in self.ever_dropped

    def check(self, now: float) -> None:
        counted = self.watch.last_hour.totals["lost"]
        if not self.doubted:
            assert counted <= SIZE * len(self.ever_dropped)
        if self.known != self.life:
            return
        reported = {one.shard_id: one for one in self.watch.last_hour.findings() if one.lost is not None}
        first: dict[str, float] = {}
        for number, at in self.read_at.items():
            if at < self.listed or now - at > 21:
                first[self.dropped[number]] = min(at, first.get(self.dropped[number], inf))
        for shard_id, at in first.items():
            assert shard_id in reported, (shard_id, at - START, now - START)
            assert reported[shard_id].first_seen == at


@pytest.mark.requirement("WCH-50", "WCH-11")
@pytest.mark.parametrize("sampling_rate", [0.2, 1.0], ids=["sampled", "whole"])
@given(seed=st.integers(0, 10_000), lives=st.lists(st.booleans(), min_size=2, max_size=4))
@settings(max_examples=examples(8))
def test_a_loss_is_reported_when_the_shards_were_listed_since_and_no_other_is(sampling_rate, seed, lives):
    world = World(seed, lives, sampling_rate=sampling_rate)
    at = START
    for step in range(100 * len(lives)):
        at = START + step * STEP
        world.list_shards(at)
        if step and step % 100 == 0:
            world.create_again()
        if world.rng.random() < 0.01:
            world.unlisted_until = at + world.rng.uniform(10, 60)
        world.put(at)
        world.see(run(world.watch, world.stream, at, at + STEP, listed=False), at + STEP)
        world.check(at + STEP)


@pytest.mark.requirement("WCH-50")
def test_a_loss_whose_shards_cannot_be_listed_is_reported_with_the_words_that_the_map_may_be_old():
    stream = ModelStream(open_map(2))
    shard = stream.shard_map.open_shards[0]
    for second in range(60):
        stream.put(shard.shard_id, START + second, key_on(shard), aggregate(stream.shard_map, shard, NAIVE))
    watch = watched(stream, sampling_rate=1.0)
    watch.listing_error = "ListShards fails with AccessDeniedException"
    findings = run(watch, stream, START, START + 10, listed=False)
    assert findings == []
    assert (watch.map_is_old, watch.last_hour.totals["lost"]) == (True, 0)
    assert not watch.up_to_date(START + 10)  # a run with --once does not end
    findings = run(watch, stream, START + 10, START + 60, listed=False)
    lost = [one for one in findings if one.lost]
    assert {one.shard_id for one in lost} == {shard.shard_id}
    assert lost[0].first_seen < START + 2
    why = "the shards were not listed since it was seen (ListShards fails with AccessDeniedException)"
    assert all(f"{why}: the shard map may be old" in one.text for one in lost)
    # While no listing comes, no later loss waits.
    seen = watch.last_hour.lost().seen
    assert seen == 10 * watch.last_hour.totals["kinesis_records"]
    watch.set_shard_map(stream.shard_map, START + 60)
    (finding,) = (one for one in watch.last_hour.findings() if one.lost)
    assert "may be old" not in finding.text
