"""A tool that writes and reads aggregated records, and its tests with strategies and faults."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec import schema_registry
from kpl_codec.adapters import kinesis_records, to_lambda
from kpl_codec.testing import strategies as kst
from kpl_codec.testing.faults import FaultProxy, throttle
from kpl_codec.testing.local_kinesis import LocalKinesis, local_kinesis


def pack(orders: dict[str, bytes]) -> list[bytes]:
    builder = kpl.AggregatedRecordBuilder(max_size=51_200)
    packed: list[bytes] = []
    for key, data in orders.items():
        record = kpl.UserRecord(key, data, explicit_hash_key=5, tags=(kpl.Tag("a", None),))
        try:
            builder.add(record)
        except kpl.AggregateFull as error:
            print(error.size, error.max_size)
            packed.append(builder.build())
            builder.clear()
            builder.add(record)
    return [*packed, builder.build()]


def unpack(data: bytes) -> list[tuple[str, bytes]]:
    try:
        return [(record.partition_key, record.data) for record in kpl.decode(data)]
    except kpl.DecodeError as error:
        print(error.code, error.requirement, error.describe(), kpl.explain(data).kind)
        return []


def route(shard_map: kpl.ShardMap, key: str) -> str:
    low, high = kpl.ALL_HASH_KEYS.split(2)
    shard = kpl.Shard("shardId-000000000000", low, parent_shard_id=None, starting_sequence_number="1")
    print(high.starting_hash_key, shard.open)
    return shard_map.shard_for(kpl.effective_hash_key(key)).shard_id


def registry(data: bytes) -> str | None:
    version, payload = schema_registry.unframe(data, max_decompressed_size=1 << 20)
    print(len(kpl.decompress(payload, max_decompressed_size=1 << 20)))
    return version


@given(kst.aggregated_records(), st.booleans())
def test_a_handler(aggregate: kst.Aggregate, whole: bool) -> None:
    record = kpl.KinesisRecord("a", aggregate.data, "1", "shardId-000000000000")
    event = to_lambda([record], stream_arn="arn:aws:kinesis:us-east-1:123456789012:stream/orders")
    found = [user.data for user in kpl.deaggregate(kinesis_records(event))]
    assert whole or found == [user.data for user in aggregate.user_records]


def test_throttling(server: LocalKinesis) -> None:
    with FaultProxy(server.endpoint_url) as proxy:
        rule = proxy.on("PutRecords", throttle(), times=1)
        assert rule.acted == 0
    with local_kinesis() as other:
        other.create_stream("orders", 2)
