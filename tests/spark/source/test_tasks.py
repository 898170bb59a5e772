"""How pieces become tasks, and what a task does with several of them."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.shards.starting_position import after_record, at_record
from kpl_codec.spark.source import datasource
from kpl_codec.spark.source.datasource import KinesisStreamReader, assign_pieces
from kpl_codec.spark.source.kinesis_reader import read_in_parallel
from kpl_codec.spark.source.offsets import ShardRange

from .support import Stream
from .test_plan import Query


@given(st.lists(st.none() | st.sampled_from([1, 1000, 1001, 10**6]), max_size=80), st.integers(0, 9))
def test_every_piece_has_one_task(records: list[int | None], most: int) -> None:
    pieces = [
        ShardRange(f"s{n}", at_record("1"), after_record("2"), count) for n, count in enumerate(records)
    ]
    runs = assign_pieces(pieces, most)
    assert sorted(piece.shard_id for run in runs for piece in run) == sorted(p.shard_id for p in pieces)
    assert all(runs)
    small = [run for run in runs if run[0].records is not None and run[0].records <= 1000]
    assert len(runs) <= most if most else len(small) <= 16
    assert most or all(len(run) <= 5 for run in runs if run not in small)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=20), st.integers(1, 8))
def test_side_by_side_gives_all_of_each_in_order(counts: list[int], threads: int) -> None:
    items = list(enumerate(counts))
    found: dict[int, list[int]] = {number: [] for number, _ in items}
    for (number, _), result in read_in_parallel(lambda item: iter(range(item[1])), items, threads):
        found[number].append(result)
    assert found == {number: list(range(count)) for number, count in items}


def test_an_error_of_a_thread_is_raised_and_the_others_stop() -> None:
    read: list[int] = []

    def endless(item: int) -> Iterator[int]:
        if item == 3:
            raise KeyError("gone")
        for number in range(10**9):
            read.append(number)
            yield number

    def take_all() -> None:
        for _ in read_in_parallel(endless, range(6), 4):
            time.sleep(0.001)

    with pytest.raises(KeyError, match="gone"):
        take_all()
    assert len(read) < 10**5
    results = read_in_parallel(endless, range(3), 3)
    next(results)
    results.close()  # the rest is not wanted: no thread goes on
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kpl-codec read")]


@pytest.mark.server
@pytest.mark.timeout(120)
@pytest.mark.requirement("SPK-74")
def test_the_shard_map_is_asked_for_once_and_not_carried(
    make_stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream: Stream = make_stream(3)
    fetch = Mock(side_effect=datasource.fetch_shard_map)
    monkeypatch.setattr(datasource, "fetch_shard_map", fetch)
    query = Query(stream, placement=True)
    for _ in range(3):
        stream.put(6)
        query.until_idle()
    stream.check(query.rows)
    assert fetch.call_count == 1
    stream.split("shardId-000000000001")
    stream.put(6)
    query.until_idle()
    stream.check(query.rows)
    assert fetch.call_count == 2
    reader: KinesisStreamReader = query.reader
    partitions = reader.partitions({}, query.at)
    assert all(len(pickle.dumps(partition)) < 1000 for partition in partitions)
