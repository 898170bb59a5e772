"""A law of reading a stream: each record once, each shard after its parents, and an end, while it changes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.aws.stream_reading import fetch_shard_map, read_record, read_stream
from kpl_codec.aws.subscription import StreamConsumers
from kpl_codec.shards.live_shard_map import StreamUnavailable

from ..producer.model_client import ModelClient

#: Records of one answer.
_MOST = 2
_CHANGES = st.lists(st.sampled_from(["put", "split", "merge", "nothing"]), max_size=30)


class ChangingStream(ModelClient):
    """A stream that changes before each GetRecords: as ``changes`` say, ``then`` always the same."""

    def __init__(self, changes: list[str], then: str) -> None:
        super().__init__(2)
        self._changes, self._then, self._puts = iter(changes), then, 0
        for _ in range(6):
            self.change("put")

    def change(self, what: str) -> None:
        if what == "put":
            self._puts += 1
            data = b"%d" % self._puts
            hash_key = str(self._puts * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128)
            self.stream.put_records([{"Data": data, "PartitionKey": "a", "ExplicitHashKey": hash_key}])
        elif what == "split":
            self.stream.split(self._puts)
        elif what == "merge" and len(self.stream.open) > 1:
            self.stream.merge(self._puts)

    def get_shard_iterator(self, *, ShardId: str, **_: Any) -> Any:
        return {"ShardIterator": f"{ShardId}:0"}

    def get_records(self, *, ShardIterator: str, Limit: int, **_: Any) -> Any:
        self.change(next(self._changes, self._then))
        shard_id, _, begin = ShardIterator.partition(":")
        held = [record for record in self.stream.stored if record.shard_id == shard_id]
        end = min(int(begin) + min(Limit, _MOST), len(held))
        records = [
            {"Data": r.data, "PartitionKey": "a", "SequenceNumber": r.sequence_number}
            for r in held[int(begin) : end]
        ]
        is_open = shard_id in {shard.shard_id for shard in self.stream.open}
        answer: dict[str, Any] = {"Records": records, "MillisBehindLatest": 1000 * (end < len(held))}
        if is_open or end < len(held):
            answer["NextShardIterator"] = f"{shard_id}:{end}"
        return answer


@given(_CHANGES, st.sampled_from(["put", "nothing"]))
def test_each_record_once_after_those_of_the_parents(changes: list[str], then: str) -> None:
    client = ChangingStream(changes, then)
    before = [(record.shard_id, record.sequence_number) for record in client.stream.stored]
    # A stream that is written to all the time has a tip all the same.
    records = list(islice(read_stream(client, "orders", sleep=lambda _: None), 1000))
    assert len(records) < 1000
    read = [(record.shard_id, record.sequence_number) for record in records]
    assert len(set(read)) == len(read)
    assert set(before) <= set(read)
    shards = {shard.shard_id: shard for shard in client.stream.shards}
    # Before a record of a child all of its parents' records are given.
    begun = {parent for shard_id, _ in read for parent in shards[str(shard_id)].parent_shard_ids}
    stored = [(record.shard_id, record.sequence_number) for record in client.stream.stored]
    assert {place for place in stored if place[0] in begun} <= set(read)
    for at, (shard_id, _) in enumerate(read):
        later = {other for other, _ in read[at:]}
        assert not later & set(shards[str(shard_id)].parent_shard_ids)
        same = [number for other, number in read if other == shard_id]
        assert same == sorted(same, key=lambda number: int(str(number)))


class Truncated:
    """A client whose every response was cut short: botocore makes a success without members of it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, operation: str) -> Callable[..., dict[str, Any]]:
        def call(**_: Any) -> dict[str, Any]:
            self.calls.append(operation)
            return {"ResponseMetadata": {}}

        return call


STREAM = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"


@pytest.mark.requirement("MAP-14")
@pytest.mark.parametrize(
    "request_of",
    [
        lambda client: fetch_shard_map(client, "orders", patience=0),
        lambda client: read_record(client, "orders", "shardId-000000000000", "1", patience=0),
        lambda client: StreamConsumers(client, patience=0).describe_stream("orders"),
        lambda client: StreamConsumers(client, patience=0).require_active("orders", "reader"),
        lambda client: StreamConsumers(client, patience=0).require_active(STREAM, "reader"),
        lambda client: StreamConsumers(client, patience=0).require_active("", f"{STREAM}/consumer/reader:1"),
    ],
)
def test_a_truncated_response_is_a_call_that_failed(request_of: Callable[[Any], object]) -> None:
    client = Truncated()
    with pytest.raises(
        StreamUnavailable, match=r"IncompleteAnswer|answer without|malformed|has no list"
    ) as caught:
        request_of(client)
    assert "permanent" not in caught.value.fields or not caught.value.fields["permanent"]
    assert "register_stream_consumer" not in client.calls  # nobody knows that there is none
