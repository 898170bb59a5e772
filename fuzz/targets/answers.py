"""Responses of Kinesis: to the producer and its live shard map, to readers of shards.

An input is a list of answers in JSON, given one after the other, whatever was asked; "fail:CODE" is an
error instead of an answer. After the last one Kinesis answers as it should.
"""

from __future__ import annotations

import random
from datetime import datetime, timezone
from typing import Any

from botocore.exceptions import ClientError

from kpl_codec.aws.cursor import ShardCursor
from kpl_codec.producer import ProducerConfig, ProducerCore
from kpl_codec.producer.batch import Call
from kpl_codec.shards.live_shard_map import Failure, LiveShardMap, Request, StreamUnavailable
from kpl_codec.shards.starting_position import TRIM_HORIZON

from .target import Target, dumped, loaded, repeated

_CONFIG = ProducerConfig(aggregation_max_size=600, record_ttl_ms=30_000, max_connections=3)
_RECORDS = 30
_WHOLE = {"StartingHashKey": "0", "EndingHashKey": str(2**128 - 1)}
_SHARD = {
    "ShardId": "shardId-000000000000",
    "HashKeyRange": _WHOLE,
    "SequenceNumberRange": {"StartingSequenceNumber": "1"},
}


def proper(request: Call | Request) -> dict[str, Any]:
    """What a stream of one shard answers."""
    if isinstance(request, Call):
        stored = {"ShardId": "shardId-000000000000", "SequenceNumber": "2"}
        return {"FailedRecordCount": 0, "Records": [stored for _ in request.records]}
    if request.operation == "DescribeStreamSummary":
        return {"StreamDescriptionSummary": {"StreamName": "orders"}}
    return {"Shards": [_SHARD]}


def read_answers(given: bytes) -> list[Any]:
    value = loaded(given)
    return value[:1000] if isinstance(value, list) else [value]


def produce(given: bytes) -> None:
    """Whatever is answered, every accepted user record ends exactly once, in its time."""
    answers = iter(read_answers(given))
    chance = random.Random(0)
    core = ProducerCore(_CONFIG, LiveShardMap("orders"), chance.randrange)
    now = 1000.0
    core.live.refresh(now)
    accepted = {}
    results: list[Any] = []
    for step in range(400):
        if step < _RECORDS:
            pending = core.prepare(f"key-{step % 7}", b"x" * 50 * (step % 3), None)
            pending.token = step
            core.accept(pending, now)
            accepted[step] = pending
        for request in core.requests(now):
            answer = next(answers, proper(request))
            if isinstance(answer, str) and answer.startswith("fail:"):
                core.fail(request, Failure(answer[5:], "as told"), now, answered=True)
            else:
                core.receive(request, answer, now)
        results += core.results()
        if step == _RECORDS:
            core.flush()
        if step > _RECORDS and not core.outstanding:
            break
        timer = core.timer()
        now = max(now + 0.01, min(timer if timer is not None else now + 1, now + 1))
    assert not core.outstanding, f"{core.outstanding} user records without a result"
    assert sorted(pending.token for pending in results) == sorted(accepted)
    for pending in results:
        str(pending.result)


class _Client:
    """Kinesis, as boto3 shows it, with the input's answers."""

    def __init__(self, given: bytes) -> None:
        self._answers = iter(read_answers(given))

    def get_shard_iterator(self, **_: Any) -> Any:
        return self._answer({"ShardIterator": "i"})

    def get_records(self, **_: Any) -> Any:
        return self._answer({"Records": [], "MillisBehindLatest": 0, "NextShardIterator": None})

    def _answer(self, proper: dict[str, Any]) -> Any:
        answer = next(self._answers, proper)
        if isinstance(answer, str) and answer.startswith("fail:"):
            raise ClientError({"Error": {"Code": answer[5:], "Message": ""}}, "GetRecords")
        return parsed(answer)


def parsed(answer: Any) -> Any:
    """JSON as botocore hands it on: data as bytes, times as times, members of the right type or none."""
    if not isinstance(answer, dict):
        return {}
    found = {
        name: answer[name]
        for name in ("ShardIterator", "NextShardIterator")
        if isinstance(answer.get(name), str)
    }
    if isinstance(answer.get("MillisBehindLatest"), int):
        found["MillisBehindLatest"] = answer["MillisBehindLatest"]
    if isinstance(answer.get("Records"), list):
        found["Records"] = [_parsed_record(record) for record in answer["Records"]]
    return found


def _parsed_record(record: Any) -> dict[str, Any]:
    record = record if isinstance(record, dict) else {}
    found: dict[str, Any] = {
        name: record[name] for name in ("SequenceNumber", "PartitionKey") if isinstance(record.get(name), str)
    }
    if isinstance(record.get("Data"), str):
        found["Data"] = record["Data"].encode(errors="replace")
    if isinstance(record.get("ApproximateArrivalTimestamp"), int | float):
        at = record["ApproximateArrivalTimestamp"]
        at = at if 0 <= at < 2**32 else 0
        found["ApproximateArrivalTimestamp"] = datetime.fromtimestamp(at, timezone.utc)
    return found


def read(given: bytes) -> None:
    """Records, or StreamUnavailable; the end of a shard is its end."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def cursor() -> ShardCursor:
        return ShardCursor(
            _Client(given), "orders", "shardId-000000000000", TRIM_HORIZON,
            patience=60.0, sleep=sleep, clock=lambda: now[0], chance=lambda: 0.5,
        )  # fmt: skip

    one = cursor()
    try:
        while not one.ended:
            answer = one.fetch()
            assert answer.ended == one.ended
            for record in answer.records:
                assert isinstance(record["Data"], bytes)
                assert isinstance(record["SequenceNumber"], str)
    except StreamUnavailable as error:
        str(error)


_PUT = {"FailedRecordCount": 0, "Records": [{"ShardId": "shardId-000000000000", "SequenceNumber": "2"}] * 5}


def _produce_seeds() -> list[bytes]:
    listing = {"Shards": [_SHARD]}
    slow = {
        "FailedRecordCount": 1,
        "Records": [{"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "m"}],
    }
    elsewhere = {"Records": [{"ShardId": "shardId-000000000009", "SequenceNumber": "3"}]}
    return dumped(
        [],
        [listing, _PUT],
        [listing, slow, slow],
        [listing, elsewhere, listing],
        ["fail:ResourceNotFoundException"],
        [listing, "fail:ValidationException", "fail:InternalFailure"],
        [{"Shards": [], "NextToken": "t"}, listing],
        [{"Shards": [{**_SHARD, "ParentShardId": "shardId-000000000007"}]}],
        [listing, {"Records": None}, None, 7],
    )


def _read_seeds() -> list[bytes]:
    record = {"Data": "a", "PartitionKey": "k", "SequenceNumber": "5", "ApproximateArrivalTimestamp": 1.5}
    page = {"Records": [record], "MillisBehindLatest": 5, "NextShardIterator": "j"}
    return dumped(
        [], [{"ShardIterator": "i"}, page, page], [{"ShardIterator": "i"}, {}, page],
        [{"ShardIterator": "i"}, "fail:ExpiredIteratorException", {"ShardIterator": "k"}, page],
        [{}, "fail:ProvisionedThroughputExceededException", {"ShardIterator": "i"}, {"Records": [{}]}],
    )  # fmt: skip


PRODUCE = {
    "empty answers": repeated(b"{},", head=b"[", tail=b"{}]"),
    "failures": repeated(b'"fail:InternalFailure",', head=b"[", tail=b"{}]"),
    "shards": lambda size: dumped(
        [{"Shards": [{**_SHARD, "ShardId": f"shardId-{i:012}"} for i in range(size // 200)]}]
    )[0],
    "records": repeated(b'{"ShardId":"a","SequenceNumber":"1"},', head=b'[{},{"Records":[', tail=b"{}]}]"),
}
READ = {
    "records": repeated(
        b'{"Data":"a","SequenceNumber":"1"},', head=b'[{"ShardIterator":"i"},{"Records":[', tail=b"{}]}]"
    ),
    "answers without": repeated(b"{},", head=b"[", tail=b"{}]"),
}
TARGETS = {
    "produce": Target(produce, _produce_seeds, PRODUCE, json=True),
    "read": Target(read, _read_seeds, READ, json=True),
}
