"""A watch of a stream to which anything may happen, against a model that knows every record, every shard, and
when each was read: what is read, what is found, what is said of what is not watched, and what it costs."""

from __future__ import annotations

import random
from math import inf
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.format.hash_keys import partition_key_hash
from kpl_codec.shards.live_shard_map import Failure
from kpl_codec.watch import Limits, ShardCall, WatchFinding
from tests.examples import examples

from .model import NAIVE, SOUND, START, ModelStream, aggregate, key_on, open_map, reshard, run, watched

#: User records of an aggregate; seconds of the whole run, and of its end, in which nothing happens.
SIZE, SECONDS, CALM = 4, 300, 90
#: Seconds between two listings of the shards, while they succeed; and those that one takes at most.
LISTING, SLOWEST = 10.0, 3.0
MOVES = ("reshard", "refuse", "unlisted", "create again", "naive", "twice")
REFUSALS = [
    "InternalFailure",
    "ProvisionedThroughputExceededException",
    "AccessDeniedException",
    "ExpiredIteratorException",
    "InvalidArgumentException",
    "IncompleteAnswer",
]
LOSSES = {"mixed-aggregate", "foreign-aggregate", "naive-aggregator"}
#: The kinds of findings that each move may bring.
BRINGS = {
    "reshard": {"not-watched", "lag", *LOSSES},
    "refuse": {"not-watched", "throttled", "lag"},
    "unlisted": {"not-watched"},
    # By the map of the life before, a loss has another cause than by that of this one.
    "create again": {"stream-recreated", "not-watched", "lag", *LOSSES},
    "naive": {"naive-aggregator"},
    "twice": {"duplicate"},
}


class World:
    """A stream, what happens to it, and a watch of it. ``moves``: what may happen. ``check``
    compares what the model knows with what the watch says."""

    def __init__(self, seed: int, moves: set[str], **settings: Any) -> None:
        self.rng, self.moves = random.Random(seed), sorted(moves)
        self.allowed = {"hot-key", "skewed-shard"}.union(*map(BRINGS.__getitem__, moves))
        self.stream = ModelStream(open_map(self.rng.randint(1, 5)), refuse=self._refusal)
        self.respond = self.stream.answer
        self.stream.answer = self._answer  # type: ignore[method-assign]
        self.watch = watched(self.stream, **settings)
        #: The shards with a naive writer; those whose answers have their last record twice.
        self.naive: set[str] = set()
        self.twice: set[str] = set()
        self.refused: dict[str, tuple[float, str]] = {}
        self.unlisted_until, self.listed = 0.0, START
        self.under_way: tuple[float, float, tuple[int, kpl.ShardMap] | None] | None = None
        #: The life of the stream, and the one that the watch knows of.
        self.life = self.known = 0
        #: Whether a loss was reported with the words that the map may be old; and no listing has come since.
        self.doubted = self.in_doubt = False
        #: Of all lives: the records of which the KCL drops all user records, and those that were read.
        self.ever_dropped: set[str] = set()
        self.ever_read: set[str] = set()
        self.open: dict[tuple[Any, ...], WatchFinding] = {}
        self.incomplete = 0  # answers that lack something
        self._begin_life(START)

    def _begin_life(self, now: float) -> None:
        self.texts: dict[tuple[str, str], tuple[str, bytes, bool]] = {}
        #: By sequence number: where and when a record was put, and when it was read.
        self.put_at: dict[str, tuple[str, float]] = {}
        self.read_at: dict[str, float] = {}
        self.dropped: set[str] = set()
        self.ended: set[str] = set()
        self.repeated: set[str] = set()
        #: The shards that were not read to their tip last; those of them of which a call failed since: the
        #: poll of a sample, which may take several calls, was perhaps not finished.
        self.is_behind: set[str] = set()
        self.interrupted: set[str] = set()
        #: By shard: since when it is there, and since when the watch knows it.
        self.opened_at = dict.fromkeys(self.stream.shard_map, now)
        self.known_at = dict.fromkeys(self.stream.shard_map, now) if self.life == 0 else {}
        self.unread_since = {**self.known_at}
        self.listed_parents: set[str] = set()

    # -- the service ----------------------------------------------------------------------------

    def _refusal(self, call: ShardCall, now: float) -> str | None:
        if call.shard_id not in self.stream.shard_map:
            return "ResourceNotFoundException"
        until, code = self.refused.get(call.shard_id, (0.0, ""))
        how_often = 0.9
        if now >= until:
            how_often, code = 0.03, "IncompleteAnswer"
        if "refuse" in self.moves and self.rng.random() < how_often:
            if call.shard_id in self.is_behind:
                self.interrupted.add(call.shard_id)
            return code
        return None

    def _answer(self, call: ShardCall, now: float) -> dict[str, Any] | Failure:
        answer = self.respond(call, now)
        if isinstance(answer, Failure) and answer.code == "IncompleteAnswer":
            # An iterator that is not there, and records without MillisBehindLatest.
            self.incomplete += 1
            iterator = call.arguments.get("ShardIterator")
            return {} if iterator is None else {"Records": [], "NextShardIterator": iterator}
        if isinstance(answer, Failure):
            return answer
        for record in answer.get("Records", ()):
            self.read_at.setdefault(record["SequenceNumber"], now)
            self.ever_read.add(record["SequenceNumber"])
        if "Records" in answer:
            self.interrupted.discard(call.shard_id)
            self.is_behind.discard(call.shard_id)
            if answer["MillisBehindLatest"]:
                self.is_behind.add(call.shard_id)
        if "Records" in answer and "NextShardIterator" not in answer:
            self.ended.add(call.shard_id)
        if call.shard_id in self.twice and answer.get("Records"):
            answer["Records"] += answer["Records"][-1:]
            if self.known == self.life:
                self.repeated.add(call.shard_id)
        return answer

    def put(self, now: float) -> None:
        """An aggregate on most shards. A writer that has not noticed a split puts onto a child what it made
        for the parent."""
        for shard in self.stream.shard_map.open_shards:
            if self.rng.random() < 0.4:
                continue
            made_for, kind = shard, SOUND
            if shard.parent_shard_ids and now < self.opened_at[shard.shard_id] + 3:
                made_for = self.stream.shard_map[shard.parent_shard_ids[0]]
            elif shard.shard_id in self.naive and self.rng.random() < 0.3:
                kind = NAIVE
            made = f"{made_for.shard_id} {kind}"
            if (shard.shard_id, made) not in self.texts:
                data = aggregate(self.stream.shard_map, made_for, kind, SIZE)
                keys = [str(one.partition_key) for one in kpl.deaggregate([kpl.KinesisRecord("k", data)])]
                outside = any(partition_key_hash(one) not in shard.hash_key_range for one in keys)
                self.texts[shard.shard_id, made] = key_on(shard), data, outside
            key, data, is_dropped = self.texts[shard.shard_id, made]
            self.stream.put(shard.shard_id, now, key, data)
            number = str(self.stream.records[shard.shard_id][-1].number)
            self.put_at[number] = shard.shard_id, now
            if is_dropped:
                self.dropped.add(number)
                self.ever_dropped.add(number)

    def happen(self, now: float) -> None:
        """What may happen to the stream in the next second."""
        if not self.moves or self.rng.random() > 0.06:
            return
        what, shard_id = self.rng.choice(self.moves), self.rng.choice(list(self.stream.shard_map))
        if what == "reshard" and len(self.stream.shard_map) < 15:
            at = self.rng.randrange(len(self.stream.shard_map.open_shards))
            self.stream.shard_map = reshard(self.stream.shard_map, at, merge=self.rng.random() < 0.4)
            for one in self.stream.shard_map:
                self.opened_at.setdefault(one, now)
        elif what == "refuse":
            self.refused[shard_id] = now + self.rng.uniform(2, 150), self.rng.choice(REFUSALS)
        elif what == "unlisted":
            self.unlisted_until = now + self.rng.uniform(10, 150)
        elif what == "create again":
            self.life += 1
            before = len(self.stream.shard_map)
            self.stream.shard_map = open_map(self.rng.choice([n for n in (1, 2, 3, 5) if n != before]))
            self.stream.records.clear()
            self.stream.read_at.clear()
            self._begin_life(now)
        elif what in ("naive", "twice"):
            shards = self.naive if what == "naive" else self.twice
            shards ^= {shard_id}

    def calm(self, now: float) -> None:
        self.moves.clear()
        self.refused.clear()
        self.unlisted_until = now

    def list_shards(self, now: float) -> None:
        """A listing shows the stream at one moment between its request and its response."""
        if now < self.unlisted_until:
            self.watch.listing_error = "ListShards fails with AccessDeniedException"
        seen = self.life, self.stream.shard_map
        if self.under_way is None:
            wanted = now - self.listed >= (2.0 if self.watch.map_is_old else LISTING)
            if wanted and now >= self.unlisted_until:
                early = seen if self.rng.random() < 0.5 else None
                self.under_way = now, now + self.rng.choice([0.0, 1.0, SLOWEST]), early
        if self.under_way is not None and now >= self.under_way[1]:
            begun, _, early = self.under_way
            life, shard_map = early or seen
            self.under_way, self.listed = None, begun
            again, self.known = life != self.known, life
            if again:  # everything is read again
                self.read_at.clear()
            if life == self.life:
                for shard_id, shard in shard_map.items():
                    if shard_id not in self.known_at:
                        parents = [self.read_last(parent) for parent in shard.parent_shard_ids]
                        self.known_at[shard_id], self.unread_since[shard_id] = now, min(parents, default=now)
                self.listed_parents.update(*(one.parent_shard_ids for one in shard_map.values()))
            self.in_doubt = False
            self.see(self.watch.set_shard_map(shard_map, now, recreated=again, listed_at=begun), now)
            assert not any("may be old" in one.text for one in self.watch.last_hour.findings())

    # -- what the watch says --------------------------------------------------------------------

    def see(self, findings: list[WatchFinding], now: float) -> None:
        """A finding is opened once, reported again when it has doubled, and resolved once; all that was open
        is when the stream was created again."""
        for finding in findings:
            key = finding.shard_id, finding.kind, finding.writer, finding.cause
            before = self.open.pop(key, None)
            assert (before is None) == (finding.state == "open"), key
            if finding.state == "resolved":
                continue
            self.open[key] = finding
            assert before is None or finding.kinesis_records >= 2 * before.kinesis_records
            if finding.kind == "not-watched":
                assert finding.severity == "error"
                why = self.watch.listing_error or "the shards were not listed since"
                assert "children are not known" not in finding.text or finding.text.endswith(why)
            if finding.lost is not None and "may be old" in finding.text:
                self.doubted = self.in_doubt = True
                assert now - self.listed > 15
                why = f"not listed since it was seen ({self.watch.listing_error})"
                assert f"{why}: the shard map may be old" in finding.text
            elif finding.lost is not None and not self.doubted:
                assert finding.sequence_number in self.ever_dropped
        if findings and any(one.kind == "stream-recreated" for one in findings):
            assert {kind for _, kind, *_ in self.open} == {"stream-recreated"}

    def check(self, now: float) -> None:
        totals, reported = self.watch.last_hour.totals, self.watch.last_hour.findings()
        assert {one.kind for one in reported} - self.allowed == set(), now - START
        self.doubted |= any("may be old" in one.text for one in reported)
        # WCH-41: no figure is exact while something is not watched, or the children of a shard are not known.
        if "not-watched" in {kind for _, kind, *_ in self.open} or self.ended - self.listed_parents:
            figures = [self.watch.last_hour.lost(), *(one.lost for one in reported if one.lost)]
            assert {one.high for one in figures} == {inf}
        if not self.doubted:
            assert totals["lost"] <= SIZE * len(self.ever_dropped)
        # An answer that lacks something counts as a call that failed. (Nobody waits for those of shards of a
        # life before.)
        assert self.life or self.watch.call_counts.failed["IncompleteAnswer"] == self.incomplete
        if self.known == self.life:
            self.check_losses(now)
            self.check_watched(now)
            assert self.repeated == {one.shard_id for one in reported if one.kind == "duplicate"}

    def check_losses(self, now: float) -> None:
        """What is lost and was read has a finding, once the shards were listed since; after 21 s anyhow, and
        at once while no listing comes. While one waits a listing is asked for, and --once does not end."""
        reported: dict[str | None, float] = {}
        for one in self.watch.last_hour.findings():
            if one.lost is not None:
                reported[one.shard_id] = min(one.first_seen, reported.get(one.shard_id, inf))
        first: dict[str, float] = {}
        for number in self.dropped & self.read_at.keys():
            (shard_id, _), at = self.put_at[number], self.read_at[number]
            if at < self.listed or now - at > 21 or self.in_doubt:
                first[shard_id] = min(at, first.get(shard_id, inf))
            elif shard_id not in reported and at < now:
                assert self.watch.map_is_old
                assert not self.watch.up_to_date(now)
        seen = SIZE * len(self.dropped & self.read_at.keys())
        assert not self.in_doubt or self.life or self.watch.last_hour.lost().seen == seen
        assert first.keys() <= reported.keys(), now - START
        assert all(reported[one] == at for one, at in first.items())

    def read_last(self, shard_id: str) -> float:
        """When a shard was read last, or one that was not read yet: its parents, when it became known."""
        return max(self.stream.read_at.get(shard_id, 0.0), self.unread_since[shard_id])

    def check_watched(self, now: float) -> None:
        """A shard that was not read for long is named, or the closed shard that it came from; no other is."""
        shard_map, promise = self.stream.shard_map, max(60.0, 3 * self.watch.period)
        named: dict[str, set[str]] = {}
        for shard_id, shard in shard_map.items():  # parents before children
            named[shard_id] = {shard_id}.union(*(named[parent] for parent in shard.parent_shard_ids))
        found = {shard_id for shard_id, kind, *_ in self.open if kind == "not-watched"}
        age: dict[str, float] = {}
        for shard_id, shard in shard_map.items():
            # Nobody has read a shard that is not known since its parents were read last.
            parents = [age[parent] for parent in shard.parent_shard_ids]
            known = shard_id in self.known_at
            age[shard_id] = now - self.read_last(shard_id) if known else max(parents, default=0.0)
        for shard in shard_map.open_shards:
            if age[shard.shard_id] > promise + LISTING + SLOWEST + 6:
                assert named[shard.shard_id] & found, (shard.shard_id, now - START)
        # A closed shard that was not read to its end is not watched, either.
        left = shard_map.keys() - self.ended
        for shard_id in found:
            # When a shard was closed whose children are not listed, only a listing could say.
            unknown = shard_id not in self.listed_parents and not shard_map[shard_id].open
            # It is asked every five seconds: what was read, or became known, since then may still be named.
            # A shard that was not read yet is as late as its parent was one poll before its end.
            unread = left - self.stream.read_at.keys()
            new = {
                one for one in left if now - self.known_at.get(one, now) < (promise if one in unread else 6)
            }
            late = {one for one in left if age[one] > promise - 6 or age[one] < 6} | new | self.interrupted
            assert unknown or any(shard_id in named[one] for one in late), (shard_id, now - START)

    def check_end(self, now: float) -> None:
        """Nothing has happened for long: everything is watched again, and what should be read was."""
        assert self.known == self.life
        self.see(self.watch.set_shard_map(self.stream.shard_map, now), now)
        assert "not-watched" not in {kind for _, kind, *_ in self.open}
        whole = self.watch.sampling_rate == 1.0
        for number, (shard_id, at) in self.put_at.items():
            # A shard that is new is read whole for 30 s, from its first record.
            new = self.life > 0 or self.stream.shard_map[shard_id].parent_shard_ids
            # After a long refusal the bytes allowed may not suffice: then the lag says how far it is.
            read_to = now - 10 - self.watch.last_hour.lags.get(shard_id, 0.0)
            wanted = at < read_to if whole else new and at < self.known_at[shard_id] + 25
            assert not wanted or number in self.read_at, (shard_id, at - START, now - START)
        lost = self.watch.last_hour.lost()
        assert (lost.low == lost.high) is whole
        if not self.life:  # nothing was forgotten
            assert self.watch.last_hour.totals["kinesis_records"] == len(self.ever_read)
            assert lost.seen == SIZE * len(self.dropped & self.ever_read)
        else:
            assert lost.seen <= SIZE * len(self.dropped & self.ever_read) or self.doubted

    def check_every_period(self, period: float, *, refused: bool) -> None:
        """Each shard was polled once in each period, or the period was counted as skipped: the other periods
        stand for it. Where no call was refused, none was skipped."""
        watch = self.watch
        counted = [one for minutes in watch.last_hour.by_shard.values() for one in minutes.values()]
        sampled_ms = sum(one.sampled_ms for one in counted) / watch.sampling_rate
        represented_ms = sum(one.represented_ms for one in counted)
        skipped = watch.call_counts.skipped
        assert watch.period == period
        assert represented_ms == pytest.approx(sampled_ms + 1000 * period * skipped)
        assert represented_ms > 1000 * (SECONDS - 2 * period) * len(watch.shards)
        if not refused:
            assert skipped == 0
            assert all(reader.polls >= SECONDS // period - 1 for reader in watch.shards.values())
            promised = float(watch.cost().partition("calls a second on each shard: ")[2].partition(",")[0])
            assert len(self.stream.calls) <= 1.2 * promised * SECONDS * len(watch.shards)

    def check_costs(self, limits: Limits) -> None:
        """In no span of time more calls than the rate gives, and those of a second; not more bytes, and one
        answer of each shard."""

        def holds(events: list[tuple[float, float]], rate: float, slack: float) -> None:
            # In any span the spending, less what the rate gives, is at most so much above its least.
            spent, least = 0.0, inf
            for at, amount in events:
                excess = spent - rate * (at - START)
                least = min(least, excess)
                assert excess - least <= max(1.0, rate) + slack
                spent += amount

        stream = self.stream
        largest = max((size for _, _, size in stream.sizes), default=0)
        shards = {shard_id for _, shard_id in stream.calls}
        holds([(at, 1.0) for at, _ in stream.calls], limits.calls, 1e-6)
        holds([(at, float(size)) for at, _, size in stream.sizes], limits.bytes, len(shards) * largest)
        for one in shards if not self.life else ():  # that of a new life is another one
            holds([(at, 1.0) for at, shard_id in stream.calls if shard_id == one], limits.shard_calls, 1e-6)
            sizes = [(at, float(size)) for at, shard_id, size in stream.sizes if shard_id == one]
            holds(sizes, limits.shard_bytes, largest)


@pytest.mark.requirement("WCH-2", "WCH-3", "WCH-4", "WCH-5", "WCH-8", "WCH-9", "WCH-10", "WCH-11", "WCH-13")
@pytest.mark.requirement("WCH-16", "WCH-22", "WCH-41", "WCH-50", "MAP-30")
@given(
    seed=st.integers(0, 10_000),
    moves=st.sets(st.sampled_from(MOVES)),
    few=st.booleans(),
    sampling_rate=st.sampled_from([1.0, 0.05, 0.5]),
    period=st.sampled_from([20.0, 10.0]),
)
# (In the first, calls are refused for many periods.)
@example(seed=1, moves={"refuse"}, few=False, sampling_rate=0.05, period=20.0)
@example(seed=0, moves={"naive", "twice"}, few=False, sampling_rate=0.5, period=10.0)
# (A smaller world is not worth its minutes.)
@settings(max_examples=examples(60), phases=[Phase.explicit, Phase.generate])
def test_whatever_happens_the_watch_says_what_the_model_knows(
    seed: int, moves: set[str], few: bool, sampling_rate: float, period: float
) -> None:
    limits = Limits(2, 4, 300, 4_000) if few else Limits()
    world = World(seed, moves, sampling_rate=sampling_rate, period=period, limits=limits)
    for second in range(SECONDS):
        now = START + second
        if second == SECONDS - CALM:
            world.calm(now)
        world.list_shards(now)
        world.happen(now)
        world.put(now)
        world.see(run(world.watch, world.stream, now, now + 1, listed=False), now + 1)
        world.check(now + 1)
    world.check_end(START + SECONDS)
    world.check_costs(limits)
    if sampling_rate < 1 and not few and moves <= {"naive", "unlisted", "twice", "refuse"}:
        world.check_every_period(period, refused="refuse" in moves)
