"""The watch's state in a DynamoDB table: kept, damaged, of two runs at once, of many shards."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from botocore.exceptions import ClientError

from kpl_codec.watch import Checkpoint, KeptStateError
from kpl_codec.watch.checkpoint import KeptShard, Minute
from kpl_codec.watch.stream_watcher import StateTable

from ..aws_lambda.dynamodb import idempotency_table

NOW = 1545084712.0


@pytest.fixture
def table() -> Iterator[Any]:
    with idempotency_table("watch") as client:
        yield client


def kept(at: float, **shards: KeptShard) -> Checkpoint:
    return Checkpoint(at, shards, frozenset(), {}, {})


@pytest.mark.server
@pytest.mark.requirement("WCH-29", "WCH-30", "WCH-31")
def test_a_state_is_kept_and_the_first_of_two_runs_wins(table):
    one, two = StateTable(table, "watch", "orders"), StateTable(table, "watch", "orders")
    assert one.load(NOW) is None
    assert two.load(NOW) is None
    first = kept(NOW, a=KeptShard("1", 5.0, 6.0, "7"))
    one.save(first)
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        two.save(kept(NOW + 1))
    assert two.load(NOW + 60) == first
    two.save(kept(NOW + 60))
    assert one.load(NOW + 120) == kept(NOW + 60)
    assert StateTable(table, "watch", "payments").load(NOW) is None
    # Older than a day: its sequence numbers may be gone.
    assert one.load(NOW + 60 + 86_401) is None
    # From the future: its shards would not be looked at until then.
    assert one.load(NOW - 3600) is None
    packed = gzip.compress(b"[" * 100)
    deep, long = gzip.compress(b"[" * 100_000), gzip.compress(b"{}" + b" " * 32_000_000)
    damaged = packed[:-9], packed[:10] + b"\xff" * 20
    for broken in (b"no gzip", *damaged, packed, gzip.compress(b"{}"), deep, long):
        item = {"id": {"S": "broken"}, "run": {"N": "1"}, "state": {"B": broken}}
        table.put_item(TableName="watch", Item=item)
        with pytest.raises(KeptStateError):
            StateTable(table, "watch", "broken").load(NOW)
    # An item whose run is none is replaced, unless another run has done that since.
    for run in ({}, {"run": {"S": "1"}}, {"run": {"N": "1.5"}}, {"run": {"L": []}}):
        table.put_item(TableName="watch", Item={"id": {"S": "broken"}, **run})
        one, two = StateTable(table, "watch", "broken"), StateTable(table, "watch", "broken")
        for either in (one, two):
            with pytest.raises(KeptStateError):
                either.load(NOW)
        one.save(first)
        with pytest.raises(ClientError, match="ConditionalCheckFailed"):
            two.save(kept(NOW + 1))
        assert two.load(NOW) == first


def state_of(shard_count: int) -> Checkpoint:
    """An hour of so many shards, sampled."""
    draw = Random(shard_count).randrange
    number = 49590338271490256608559692538361571095921575989136588898
    shards = {
        f"shardId-{n:012d}": KeptShard(str(number + n * 10**30), NOW * 1000, NOW) for n in range(shard_count)
    }
    minutes = {
        shard_id: {
            n: Minute(draw(500, 600), draw(5_000, 6_000), draw(500_000, 600_000), 1, 3_000, 3_000, 60_000)
            for n in range(60)
        }
        for shard_id in shards
    }
    return Checkpoint(NOW, shards, frozenset(), minutes, {})


@pytest.mark.server
@pytest.mark.requirement("WCH-30")
def test_a_state_of_many_shards_is_one_item_and_one_that_is_too_long_is_refused(table, monkeypatch):
    state = state_of(500)
    many = StateTable(table, "watch", "many")
    assert many.load(NOW) is None
    many.save(state)
    monkeypatch.setattr("kpl_codec.watch.stream_watcher._MOST", 100_000)
    with pytest.raises(KeptStateError, match="more than an item of the table has"):
        many.save(state)
    assert StateTable(table, "watch", "many").load(NOW) == state
