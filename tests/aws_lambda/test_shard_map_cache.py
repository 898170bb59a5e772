"""The shard map kept across invocations."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.config import Config

import kpl_codec as kpl
from kpl_codec import adapters
from kpl_codec.aws import kinesis_client, read_stream
from kpl_codec.aws_lambda import process_user_records
from kpl_codec.aws_lambda.shard_map_cache import ShardMapCache

from ..spark.source.model import ModelKinesis, refusal
from .conftest import STREAM
from .ways import Handler, numbers

pytestmark = pytest.mark.requirement("LMB-13")
LOW, HIGH = "5", str(2**128 - 5)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr("kpl_codec.aws_lambda.shard_map_cache.time", clock)
    return clock


def test_the_map_is_fetched_once_and_again_after_a_split(clock: Any) -> None:
    stream = ModelKinesis(2)
    maps = ShardMapCache(stream)

    def put(*hash_keys: str) -> None:
        data = kpl.encode([kpl.UserRecord(f"key-{h}", b"x", h) for h in hash_keys])
        stream.put_on(stream.open_shards[0], data)

    def handled() -> list[Any]:
        """The placement of each user record of the stream, sent as the event source mapping would."""
        handler = Handler()
        event = adapters.to_lambda(read_stream(stream, "s"), stream_arn=str(stream.arn))
        listed = stream.calls["list_shards"]  # by `read_stream`
        assert numbers(process_user_records(event, handler, shard_map=maps)) == []
        fetched.append(stream.calls["list_shards"] - listed)
        return [record.placement for record in handler.done]

    fetched: list[int] = []
    put(LOW, LOW)
    put(LOW, HIGH)
    whole, mixed = ("expected", "whole"), ("expected", "mixed")
    for _ in range(2):
        placements = [(place.verdict, place.aggregate) for place in handled()]
        assert placements == [whole, whole, mixed, ("stray", "mixed")]
    assert fetched == [1, 0]
    stream.split(0)
    put(LOW)
    # A shard the map does not know: asked again, but not sooner than 5 seconds after the last time.
    handled()
    clock.now += 6
    handled()
    verdicts = Counter(place.verdict for place in handled())
    assert fetched[2:] == [0, 1, 0]
    assert verdicts == {"on-parent": 3, "stray": 1, "expected": 1}
    # and again when it is old
    clock.now += 61
    handled()
    assert fetched[5:] == [1]
    assert maps.error == {}


def test_without_a_map_the_batch_goes_on(clock: Any) -> None:
    event = adapters.to_lambda([kpl.KinesisRecord("a", b"plain", "7", "shardId-0")], stream_arn=STREAM)
    # The event does not name its stream.
    names = ("", None, "arn:aws:x")
    unnamed = {"Records": [{**event["Records"][0], "eventSourceARN": name} for name in names]}
    assert numbers(process_user_records(unnamed, Handler(), shard_map=ShardMapCache(ModelKinesis(1)))) == []
    # The role may not list shards, which no retry mends.
    stream = ModelKinesis(1)
    stream.list_shards = Mock(side_effect=refusal("AccessDeniedException", "ListShards"))  # type: ignore[method-assign]
    named, maps = {"Records": [{**event["Records"][0], "eventSourceARN": stream.arn}]}, ShardMapCache(stream)
    assert numbers(process_user_records(named, Handler(), shard_map=maps)) == []
    assert maps.error[str(stream.arn)].code == "AccessDeniedException"
    # There is no way to the service.
    settings: dict[str, Any] = {"region": "us-east-2", "access_key_id": "x", "secret_access_key": "x"}
    quick = Config(connect_timeout=1, read_timeout=1)
    nowhere = kinesis_client(**settings, endpoint_url="http://127.0.0.1:9", config=quick)
    calls: list[Any] = []
    nowhere.meta.events.register("before-call.kinesis.*", lambda **call: calls.append(call["model"].name))
    maps, handler = ShardMapCache(nowhere, patience=0.5), Handler()
    assert numbers(process_user_records(event, handler, shard_map=maps)) == []
    assert [record.placement for record in handler.done] == [None]
    assert maps.error[STREAM].code
    # The next batches do not wait for it again, until max_age has gone by.
    tried = len(calls)
    clock.now += 30
    assert numbers(process_user_records(event, Handler(), shard_map=maps)) == []
    assert len(calls) == tried
    clock.now += 31
    assert numbers(process_user_records(event, Handler(), shard_map=maps)) == []
    assert len(calls) > tried
