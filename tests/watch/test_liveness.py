"""What is watched, what is not, and what the findings say of it: with splits, refused calls, shards that
cannot be listed, and few calls for many shards. The model knows every shard and when it was last read."""

from __future__ import annotations

import random
from math import inf

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.watch import LastHour, Limits, Watch, WatchFinding
from kpl_codec.watch.shard_readers import FOLLOWS, IS_NEW, Schedule
from kpl_codec.watch.sliding_window import OTHERS
from tests.examples import examples

from .model import START, ModelStream, key_on, open_map, run
from .test_watch import NAIVE, aggregate, split_map, watched

#: Seconds between two listings of the shards, while they succeed.
LISTING = 10.0


def reshard(shard_map: kpl.ShardMap, rng: random.Random) -> kpl.ShardMap:
    """One open shard split, or two neighbours merged."""
    opened = sorted(shard_map.open_shards, key=lambda shard: shard.hash_key_range)
    at = rng.randrange(len(opened))
    if len(opened) > 2 and rng.random() < 0.4 and at + 1 < len(opened):
        parents = opened[at : at + 2]
        low, high = (parent.hash_key_range for parent in parents)
        ranges = [kpl.HashKeyRange(low.starting_hash_key, high.ending_hash_key)]
    else:
        parents = opened[at : at + 1]
        ranges = parents[0].hash_key_range.split(2)
    first, second = parents[0].shard_id, parents[1].shard_id if len(parents) > 1 else None
    children = [
        kpl.Shard(
            f"shardId-{len(shard_map) + n:012d}", keys, parent_shard_id=first, adjacent_parent_shard_id=second
        )
        for n, keys in enumerate(ranges)
    ]
    closed = [parent.replace(ending_sequence_number="9" * 30) for parent in parents]
    return kpl.ShardMap([*({**shard_map} | {one.shard_id: one for one in closed}).values(), *children])


class World:
    """A stream that is resharded, whose calls are refused at times, and a watch of it. ``check`` compares
    what the model has seen with what the findings say."""

    def __init__(self, seed: int, *, shards: int, sampling_rate: float, calls: float = 20.0) -> None:
        self.rng = random.Random(seed)
        self.stream = ModelStream(open_map(shards), refuse=self._refusal)
        self.watch = watched(self.stream, sampling_rate=sampling_rate, limits=Limits(calls=calls))
        self.opened_at = dict.fromkeys(self.stream.shard_map, START)
        self.closed_at: dict[str, float] = {}
        self.open: dict[str | None, WatchFinding] = {}
        self.listed_parents: set[str] = set()
        self.refused_until: dict[str, float] = {}
        self.unlisted_until = 0.0

    def _refusal(self, call: object, now: float) -> str | None:
        return "InternalFailure" if self.refused_until.get(call.shard_id, 0.0) > now else None  # type: ignore[attr-defined]

    def happen(self, now: float) -> None:
        """What may happen to the stream in the next ten seconds."""
        what = self.rng.random()
        if what < 0.04 and len(self.stream.shard_map) < 30:
            self.stream.shard_map = after = reshard(self.stream.shard_map, self.rng)
            for shard_id, shard in after.items():
                self.opened_at.setdefault(shard_id, now)
                if not shard.open:
                    self.closed_at.setdefault(shard_id, now)
        elif what < 0.08:
            self.refused_until[self.rng.choice(list(self.stream.shard_map))] = now + self.rng.uniform(20, 400)
        elif what < 0.1:
            self.unlisted_until = now + self.rng.uniform(60, 600)
            self.watch.listing_error = "ListShards fails with AccessDeniedException"

    def see(self, findings: list[WatchFinding]) -> None:
        for finding in findings:
            if finding.kind != "not-watched":
                continue
            if finding.state == "resolved":
                del self.open[finding.shard_id]
            else:
                assert finding.shard_id not in self.open, "opened twice"
                self.open[finding.shard_id] = finding

    def age(self, shard_id: str, now: float) -> float:
        return now - self.stream.read_at.get(shard_id, self.opened_at[shard_id])

    def unread(self, shard_id: str) -> bool:
        """Whether a closed shard was not read since it was closed."""
        return self.stream.read_at.get(shard_id, 0.0) < self.closed_at[shard_id]

    def check(self, now: float) -> None:
        shard_map, promise = self.stream.shard_map, max(60.0, 3 * self.watch.period)
        above = {one.shard_id: set(one.parent_shard_ids) for one in shard_map.values()}
        named: dict[str, set[str | None]] = {}
        for shard_id in shard_map:  # parents before children
            named[shard_id] = {shard_id}.union(*(named[parent] for parent in above[shard_id]))
        for shard in shard_map.open_shards:
            if self.age(shard.shard_id, now) > promise + LISTING + 6:
                assert named[shard.shard_id] & self.open.keys(), (shard.shard_id, now - START)
        for shard_id in self.open:
            late = [one for one, names in named.items() if shard_id in names]
            # It is asked every five seconds: what was read since then may still be named.
            # A closed shard that was not read to its end is not watched, either.
            ages = [self.age(one, now) for one in late if shard_map[one].open or self.unread(one)]
            # When a shard was closed whose children are not listed, only a listing could say.
            unknown = shard_id not in self.listed_parents and not shard_map[shard_id].open
            assert unknown or any(age > promise - 6 or age < 6 for age in ages), (shard_id, now - START)


@pytest.mark.requirement("WCH-22")
@pytest.mark.parametrize("sampling_rate", [0.05, 1.0], ids=["sampled", "whole"])
@given(seed=st.integers(0, 10_000), shards=st.integers(1, 5))
@example(seed=602, shards=2)  # shards are closed and become known while no listing comes
@settings(max_examples=examples(8))
def test_what_should_be_watched_less_what_was_read_is_what_the_findings_name(sampling_rate, seed, shards):
    world = World(seed, shards=shards, sampling_rate=sampling_rate)
    watch, listed_at = world.watch, START
    for step in range(150):
        now = START + step * LISTING
        if now >= world.unlisted_until and (watch.map_is_old or now - listed_at >= LISTING):
            listed_at = now
            world.see(watch.set_shard_map(world.stream.shard_map, now))
            world.listed_parents.update(*(one.parent_shard_ids for one in world.stream.shard_map.values()))
        world.see(run(watch, world.stream, now, now + LISTING))
        world.happen(now + LISTING)
        world.see(watch.tick(now + LISTING))
        world.check(now + LISTING)


@pytest.mark.requirement("WCH-22", "WCH-41")
@pytest.mark.parametrize("how_many", [1, 2])
def test_a_closed_shard_whose_children_are_not_known_is_a_finding_and_no_figure_is_exact(how_many):
    before = open_map(2)
    stream = ModelStream(before)
    watch = watched(stream, sampling_rate=1.0)
    other = before.open_shards[1]
    for second in range(200):
        stream.put(other.shard_id, START + second, key_on(other), aggregate(before, other, NAIVE))
    run(watch, stream, START, START + 5)
    seen = watch.last_hour.lost().seen
    assert watch.last_hour.lost() == (seen, seen, seen, seen)
    for _ in range(how_many):
        stream.shard_map = split_map(stream.shard_map)
    watch.listing_error = "ListShards fails with AccessDeniedException"
    findings = run(watch, stream, START + 5, START + 150)
    blind = [f for f in findings if f.kind == "not-watched"]
    closed = [shard.shard_id for shard in before.values() if not stream.shard_map[shard.shard_id].open]
    assert [f.shard_id for f in blind] == closed
    assert all("AccessDeniedException" in f.text and f.severity == "error" for f in blind)
    lost = watch.last_hour.lost()
    assert (lost.high, lost.user_records) == (inf, f"at least {lost.seen:,} user records")
    assert all("at least" in f.text for f in watch.last_hour.findings() if f.lost)
    # The children come to be known: they are read from their first record, and the figure is exact again.
    child = next(shard for shard in stream.shard_map.open_shards if shard.parent_shard_id)
    stream.put(child.shard_id, START + 100, key_on(child), aggregate(stream.shard_map, child, NAIVE))
    findings = watch.set_shard_map(stream.shard_map, START + 150)
    findings += run(watch, stream, START + 150, START + 170)
    assert {f.shard_id for f in findings if f.kind == "not-watched"} == set(closed)
    assert all(f.state == "resolved" for f in findings if f.kind == "not-watched")
    assert child.shard_id in {f.shard_id for f in findings if f.lost}
    lost = watch.last_hour.lost()
    assert lost.high == lost.seen


@pytest.mark.requirement("WCH-22")
def test_a_shard_that_became_known_late_is_named_by_its_closed_parent_then_by_itself():
    """Nobody has read it since its parent was read last, so it is late when it becomes known."""
    before = open_map(1)
    (parent,) = before
    stream = ModelStream(before)
    watch = watched(stream, sampling_rate=1.0)
    run(watch, stream, START, START + 20)
    stream.shard_map = split_map(before)
    stream.refuse = lambda call, now: "InternalFailure" if call.shard_id != parent else None
    named = run(watch, stream, START + 20, START + 200)
    findings = watch.set_shard_map(stream.shard_map, START + 200)
    findings += run(watch, stream, START + 200, START + 250)
    assert [(f.shard_id, f.state) for f in named] == [(parent, "open")]
    assert findings == []
    findings = run(watch, stream, START + 250, START + 300)
    children = {shard.shard_id for shard in stream.shard_map.open_shards}
    assert {f.shard_id: f.state for f in findings} == dict.fromkeys(children, "open")
    stream.refuse = lambda call, now: None
    findings = run(watch, stream, START + 300, START + 340)
    assert {f.shard_id: f.state for f in findings} == dict.fromkeys({parent, *children}, "resolved")


@pytest.mark.requirement("WCH-22")
def test_a_stream_whose_shards_were_never_listed_is_a_finding():
    watch = Watch(LastHour("orders"))
    watch.listing_error = "ListShards fails with LimitExceededException"
    findings = run(watch, ModelStream(open_map(1)), START, START + 70)
    (finding,) = findings
    assert (finding.kind, finding.shard_id, finding.severity) == ("not-watched", None, "error")
    assert "its shards are not known; ListShards fails with LimitExceededException" in finding.text


@pytest.mark.requirement("WCH-42", "WCH-6")
@pytest.mark.parametrize(
    ("shards", "limits", "sampling_rate"),
    [
        (700, Limits(calls=2), 0.05),
        (700, Limits(calls=2), 1.0),
        pytest.param(1_501, Limits(calls=5), 0.05, marks=pytest.mark.slow),
        (6, Limits(calls=0.02), 0.05),
        (6, Limits(calls=0.02, shard_calls=0.01), 1.0),
        (40, Limits(calls=20, shard_calls=0.1), 0.05),
    ],
    ids=["few-calls", "few-calls-whole", "many-shards", "tiny", "tiny-whole", "few-calls-a-shard"],
)
def test_few_calls_for_many_shards_read_every_shard_as_often_as_is_promised(shards, limits, sampling_rate):
    """An iterator lives for five minutes, and every first call could come before the first second one."""
    stream = ModelStream(open_map(shards))
    watch = watched(stream, sampling_rate=sampling_rate, limits=limits)
    (promised,) = (float(part.split()[0]) for part in [watch.cost().partition("every ")[2]])
    findings = run(watch, stream, START, START + promised + 400)
    assert set(stream.read_at) == set(stream.shard_map)
    assert watch.up_to_date(START + promised + 400)  # a run with --once ends
    first = dict(stream.read_at)
    for n in range(2):
        at = START + promised + 400 + n * promised
        findings += run(watch, stream, at, at + promised)
    assert all(stream.read_at[shard_id] > first[shard_id] for shard_id in first)
    assert not watch.call_counts.failed
    assert not findings


@pytest.mark.requirement("WCH-42")
def test_limits_under_which_every_iterator_would_expire_are_refused():
    for limits in (Limits(calls=0.005), Limits(shard_calls=0.005)):
        with pytest.raises(ValueError, match=r"at least 0\.01 a second"):
            Watch(LastHour("orders"), limits=limits)


@pytest.mark.requirement("WCH-7")
def test_a_call_that_always_fails_is_waited_for_longer_though_its_iterator_comes():
    """A role that may call GetShardIterator and not GetRecords."""
    for code in ("InternalFailure", "ExpiredIteratorException", "AccessDeniedException"):
        stream = ModelStream(
            open_map(1), refuse=lambda call, now, code=code: code if call.operation == "GetRecords" else None
        )
        watch = watched(stream)
        run(watch, stream, START, START + 600)
        assert watch.call_counts.calls["GetRecords"] < 45
        assert watch.failing_shards(START + 600) == list(watch.shards)


@pytest.mark.requirement("WCH-22", "WCH-10", "WCH-20")
def test_the_finding_of_the_other_shards_stays_open_until_all_of_them_are_polled(monkeypatch):
    """There are more shards than findings; one of them answers."""
    monkeypatch.setattr("kpl_codec.watch.sliding_window.MAX_FINDINGS", 20)
    healthy = "shardId-000000000000"
    failing = True
    stream = ModelStream(
        open_map(31),
        refuse=lambda call, now: "InternalFailure" if failing and call.shard_id != healthy else None,
    )
    watch = watched(stream)
    findings = run(watch, stream, START, START + 200)
    assert len({f.shard_id for f in findings}) == len(findings) == 21
    (others,) = (f for f in watch.last_hour.findings() if f.shard_id == OTHERS)
    assert (others.kind, others.detail) == ("not-watched", "10 shards")
    failing = False
    findings = run(watch, stream, START + 200, START + 300)
    assert {f.state for f in findings if f.shard_id == OTHERS} == {"resolved"}
    assert not watch.last_hour.findings()


@given(
    st.lists(
        st.tuples(
            st.integers(0, 9), st.floats(0, 20), st.sampled_from([FOLLOWS, IS_NEW, 2]), st.floats(0, 3)
        ),
        max_size=60,
    )
)
def test_a_schedule_gives_the_lowest_rank_that_is_due_and_each_shard_once(steps):
    schedule, due, now = Schedule(), dict[str, tuple[int, float]](), 0.0
    for shard, at, rank, pause in steps:
        now += pause
        schedule.put(str(shard), at, rank)
        due[str(shard)] = rank, at
        if shard == 9:
            schedule.remove("0")
            due.pop("0", None)
        assert (schedule.next_due() <= now) == any(at <= now for _, at in due.values())
        ready = {one: key for one, key in due.items() if key[1] <= now}
        popped = schedule.pop(now)
        if ready:
            assert popped is not None
            assert due.pop(popped[0])[0] == popped[1] == min(rank for rank, _ in ready.values())
        else:
            assert popped is None
