"""The shard map kept across invocations, from a real local server."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from botocore.config import Config

import kpl_codec as kpl
from kpl_codec import adapters
from kpl_codec.aws import kinesis_client, read_stream
from kpl_codec.aws_lambda import process_user_records
from kpl_codec.aws_lambda.shard_map_cache import ShardMapCache
from kpl_codec.testing.local_kinesis import LocalKinesis

from .test_events import Handler, numbers

pytestmark = [pytest.mark.server, pytest.mark.requirement("LMB-13")]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def call_counts(client: Any) -> Counter[str]:
    """How often ``client`` makes each call from now on."""
    calls: Counter[str] = Counter()
    client.meta.events.register(
        "before-call.kinesis.*", lambda model, **_: calls.update([model.name]), unique_id="count"
    )
    return calls


def event_of_stream(client: Any, name: str, arn: str) -> dict[str, Any]:
    """Every record of the stream, as the event source mapping would send them."""
    return adapters.to_lambda(read_stream(client, name), stream_arn=arn)


LOW, HIGH = "5", str(2**128 - 5)


def test_the_map_is_fetched_once_and_again_after_a_split(
    kinesis_local: LocalKinesis, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinesis_local.create_stream(stream_name, shards=2)
    client = kinesis_local.client()
    arn = client.describe_stream_summary(StreamName=stream_name)["StreamDescriptionSummary"]["StreamARN"]

    def put(*hash_keys: str) -> None:
        data = kpl.encode([kpl.UserRecord(f"key-{h}", b"x", h) for h in hash_keys])
        client.put_record(StreamName=stream_name, PartitionKey="a", ExplicitHashKey=hash_keys[0], Data=data)

    put(LOW, LOW)
    put(LOW, HIGH)
    clock = Clock()
    maps = ShardMapCache(client)
    monkeypatch.setattr(maps, "_clock", clock)
    first, second = Handler(), Handler()
    event = event_of_stream(client, stream_name, arn)
    calls = call_counts(client)
    for handler in (first, second):
        assert numbers(process_user_records(event, handler, shard_map=maps)) == []
        placements = [
            (r.placement.verdict, r.placement.aggregate) for r in handler.done if r.placement is not None
        ]
        whole, mixed = ("expected", "whole"), ("expected", "mixed")
        assert placements == [whole, whole, mixed, ("stray", "mixed")]
    assert calls["ListShards"] == 1

    low = client.list_shards(StreamName=stream_name)["Shards"][0]
    middle = (int(low["HashKeyRange"]["StartingHashKey"]) + int(low["HashKeyRange"]["EndingHashKey"])) // 2
    client.split_shard(StreamName=stream_name, ShardToSplit=low["ShardId"], NewStartingHashKey=str(middle))
    kinesis_local.wait_active(stream_name)
    put(LOW)
    event = event_of_stream(client, stream_name, arn)
    calls_before = calls["ListShards"]
    third = Handler()
    # A shard the map does not know: asked again, but not sooner than min_age after the last time.
    process_user_records(event, third, shard_map=maps)
    assert calls["ListShards"] == calls_before
    clock.now += 6
    process_user_records(event, third, shard_map=maps)
    assert calls["ListShards"] == calls_before + 1
    fourth = Handler()
    process_user_records(event, fourth, shard_map=maps)
    verdicts = Counter(str(r.placement.verdict) for r in fourth.done if r.placement is not None)
    assert verdicts == {"on-parent": 3, "stray": 1, "expected": 1}
    # and again when it is old
    clock.now += 61
    maps.shard_map(arn)
    assert calls["ListShards"] == calls_before + 2
    assert maps.error == {}


def test_without_a_map_the_batch_goes_on(
    kinesis_local: LocalKinesis, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = kpl.KinesisRecord("a", b"plain", "7", "shardId-000000000000")
    arn = f"arn:aws:kinesis:us-east-1:000000000000:stream/{stream_name}"
    event = adapters.to_lambda([record], stream_arn=arn)
    clock = Clock()
    # There is no such stream.
    maps = ShardMapCache(kinesis_local.client())
    monkeypatch.setattr(maps, "_clock", clock)
    handler = Handler()
    assert numbers(process_user_records(event, handler, shard_map=maps)) == []
    assert [r.placement for r in handler.done] == [None]
    assert maps.error[arn].code
    # The event does not name its stream.
    names = ("", None, "arn:aws:x")
    unnamed = {"Records": [{**event["Records"][0], "eventSourceARN": name} for name in names]}
    assert numbers(process_user_records(unnamed, Handler(), shard_map=maps)) == []
    # There is no way to the service.
    settings: dict[str, Any] = {"region": "us-east-1", "access_key_id": "x", "secret_access_key": "x"}
    quick = Config(connect_timeout=1, read_timeout=1)
    nowhere = kinesis_client(**settings, endpoint_url="http://127.0.0.1:9", config=quick)
    calls = call_counts(nowhere)
    maps = ShardMapCache(nowhere, patience=0.5)
    monkeypatch.setattr(maps, "_clock", clock)
    assert numbers(process_user_records(event, Handler(), shard_map=maps)) == []
    assert arn in maps.error
    # The next batches do not wait for it again, until max_age has gone by.
    tried = sum(calls.values())
    clock.now += 30
    assert numbers(process_user_records(event, Handler(), shard_map=maps)) == []
    assert sum(calls.values()) == tried
    clock.now += 31
    assert numbers(process_user_records(event, Handler(), shard_map=maps)) == []
    assert sum(calls.values()) > tried
