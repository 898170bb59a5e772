"""A law of reading a stream: each record once, each shard after its parents, and an end, while it changes."""

from __future__ import annotations

from itertools import islice
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.aws.stream_reading import read_stream

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
