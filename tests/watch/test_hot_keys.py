"""Hot keys and skewed shards."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.format.hash_keys import partition_key_hash
from kpl_codec.watch import LastHour, SampleSlot, Watch

from .model import START, ModelStream, key_on, open_map, run
from .test_watch import Traffic


@pytest.mark.requirement("WCH-23")
def test_hot_keys_and_skew_are_reported_without_names_unless_asked():
    for names in (False, True):
        shard_map = open_map(4)
        stream = ModelStream(shard_map)
        hot = key_on(shard_map.open_shards[2], 99)
        Traffic(stream, rate=5).fill(START - 60, START + 600)
        for n in range(660 * 100):
            stream.put("shardId-000000000002", START - 60 + n / 100, hot, b"a plain record of a hot key" * 5)
        stream.records["shardId-000000000002"].sort(key=lambda put: (put.at_ms, put.number))
        for number, put in enumerate(stream.records["shardId-000000000002"]):
            put.number = 10**21 + number
        stream._numbers = 10**21 + 10**9
        watch = Watch(LastHour("orders", names=names))
        watch.set_shard_map(shard_map, START)
        findings = run(watch, stream, START, START + 600)
        kinds = {f.kind: f for f in findings}
        assert set(kinds) == {"hot-key", "skewed-shard"}
        assert {f.shard_id for f in findings} == {"shardId-000000000002"}
        assert (hot in kinds["hot-key"].text) is names
        if not names:
            assert str(partition_key_hash(hot)) in kinds["hot-key"].text
        assert "b'" not in str([f.to_json() for f in findings])


@pytest.mark.requirement("WCH-36")
@given(
    read=st.lists(st.integers(10, 40), min_size=2, max_size=5),
    keys=st.lists(st.integers(1, 4), min_size=2, max_size=5),
    scale=st.sampled_from([1.0, 20.0]),
)
@settings(max_examples=10)
def test_how_much_of_a_shard_was_read_makes_no_key_hot(
    read: list[int], keys: list[int], scale: float
) -> None:
    """Every shard gets 50 user records a second; another number of seconds was read of each, and of all but
    the first one slot of ``scale``. A key is hot if its shard has so few that one key is half of what the
    mean shard gets."""
    count = min(len(read), len(keys))
    shards = open_map(count).open_shards
    last_hour = LastHour("orders")
    last_hour.set_shard_map(open_map(count), START)
    numbers = iter(range(10**20, 10**21))
    for shard, seconds, different in zip(shards, read, keys, strict=False):
        names = [key_on(shard, n) for n in range(different)]
        for _ in range(seconds):
            records = [
                kpl.KinesisRecord(names[n % different], b"x", str(next(numbers)), shard.shard_id)
                for n in range(50)
            ]
            slot = SampleSlot(shard.shard_id, next(numbers), scale if shard != shards[0] else 1.0)
            last_hour.observe(slot, records, START)
            last_hour.add_time(shard.shard_id, 1000, 0, START)
    hot_shards = {f.shard_id for f in last_hour.tick(START) if f.kind == "hot-key"}
    assert hot_shards == {
        shard.shard_id for shard, different in zip(shards, keys, strict=False) if different == 1
    }
