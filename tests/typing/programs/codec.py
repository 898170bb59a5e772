"""A tool that writes and reads aggregated records."""

from __future__ import annotations

import kpl_codec as kpl


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
