"""The watch in a consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

import kpl_codec as kpl
from kpl_codec.adapters import to_lambda
from kpl_codec.aws_lambda import aio, process_user_records
from kpl_codec.aws_lambda.consumer_watch import ConsumerWatch

from ..watch.model import open_map
from ..watch.test_watch import NAIVE, SOUND, aggregate
from .conftest import STREAM, utc

NOW = 1545084712.0


class Maps:
    """Gives one shard map for any stream."""

    def __init__(self, shard_map: kpl.ShardMap | None) -> None:
        self._map = shard_map

    def shard_map(self, stream_arn: str, shard_id: str | None) -> kpl.ShardMap | None:
        return self._map


def event(kinds: list[str], first: int = 0) -> dict[str, Any]:
    shard_map = open_map(2)
    shard = shard_map.open_shards[1]
    data = [aggregate(shard_map, shard, kind) for kind in kinds]
    records = [
        kpl.KinesisRecord("a", one, str(10**20 + first + n), shard.shard_id, utc(1545084711, 0))
        for n, one in enumerate(data)
    ]
    return to_lambda(records, stream_arn=STREAM)


def consumer(**settings: Any) -> tuple[ConsumerWatch, list[Mapping[str, Any]]]:
    lines: list[Mapping[str, Any]] = []
    return ConsumerWatch(Maps(open_map(2)), write=lines.append, clock=lambda: NOW, **settings), lines


def test_it_finds_what_the_kcl_would_lose():
    watch, lines = consumer()
    handled: list[Any] = []
    response = process_user_records(event([SOUND, NAIVE, SOUND]), handled.append, watch=watch)
    assert response == {"batchItemFailures": []}
    assert len(handled) == 30
    (finding,) = [line for line in lines if "kind" in line]
    assert (finding["kind"], finding["stream"], finding["writer"]) == ("naive-aggregator", "orders", "kpl")
    assert finding["lost"]["seen"] == finding["lost"]["high"] == 10
    metrics = {name: value for line in lines if "_aws" in line for name, value in line.items()}
    assert metrics["LostUserRecordsSeen"] == 10
    assert metrics["UserRecordsRead"] == 30


@pytest.mark.requirement("SPK-111")
def test_a_shard_map_judges_its_own_stream_alone(caplog: pytest.LogCaptureFixture) -> None:
    other = {"Records": [{**one, "eventSourceARN": STREAM + "-2"} for one in event([NAIVE])["Records"]]}

    def found(shard_map: kpl.ShardMap, *events: Any) -> list[str]:
        lines: list[Any] = []
        watch = ConsumerWatch(shard_map, write=lines.append, clock=lambda: NOW)
        for one in events:
            watch.check(one)
        return [line["stream"] for line in lines if "kind" in line]

    nameless = open_map(2)
    named = kpl.ShardMap(nameless.values(), stream="orders")
    assert found(nameless, event([NAIVE])) == found(named, event([NAIVE])) == ["orders"]
    assert found(named, other, event([NAIVE])) == ["orders"]
    assert not caplog.records
    assert found(nameless, other, event([NAIVE]), other) == ["orders-2"]
    assert [one.getMessage().partition(",")[0] for one in caplog.records] == [
        f"records of the streams {STREAM}-2 and {STREAM}"
    ]


def test_a_batch_delivered_again_is_counted_once_and_no_duplicate(monkeypatch):
    """Lambda gives a batch again after a failure. The same record twice in one event is a duplicate."""
    monkeypatch.setattr("kpl_codec.aws_lambda.consumer_watch._METRICS_INTERVAL", 0.0)
    watch, lines = consumer()
    for _ in range(2):
        asyncio.run(aio.process_user_records(event([NAIVE]), _nothing, watch=watch))
    assert [line["kind"] for line in lines if "kind" in line] == ["naive-aggregator"]
    assert sum(line.get("UserRecordsRead", 0) for line in lines) == 10
    watch, lines = consumer()
    watch.check({"Records": event([NAIVE])["Records"] * 2})
    assert [line["kind"] for line in lines if "kind" in line] == ["naive-aggregator", "duplicate"]


async def _nothing(record: kpl.DeaggregatedRecord) -> None:
    pass


def test_late_records_are_a_finding():
    watch, lines = consumer()
    watch._clock = lambda: NOW + 600
    process_user_records(event([SOUND]), lambda record: None, watch=watch)
    assert [line["kind"] for line in lines if "kind" in line] == ["lag"]


@pytest.mark.requirement("WCH-28")
@pytest.mark.parametrize(
    "broken", [{}, {"Records": None}, {"Records": [{"kinesis": {"data": "?"}}]}, {"Records": [1]}, 7]
)
def test_it_never_raises(broken):
    watch, _ = consumer()
    watch.check(broken)
    ConsumerWatch(Maps(None), write=lambda line: 1 / 0).check(event([NAIVE]))


@pytest.mark.requirement("WCH-28")
def test_the_answer_is_the_same_with_and_without():
    def fails(record: kpl.DeaggregatedRecord) -> None:
        raise ValueError

    watch, _ = consumer()
    for kinds in ([SOUND], [NAIVE, SOUND]):
        without = process_user_records(event(kinds), fails)
        assert process_user_records(event(kinds), fails, watch=watch) == without
