"""The table in which kcl_rs keeps its leases."""

from __future__ import annotations

from typing import Any

import kpl_codec as kpl


def create_leases(dynamodb: Any, table: str, shards: list[kpl.Shard]) -> None:
    """As kcl_rs does it; but it takes half a minute to begin."""
    dynamodb.create_table(
        TableName=table,
        KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    for shard in shards:
        keys = shard.hash_key_range
        item = {
            "leaseKey": {"S": shard.shard_id},
            "entityType": {"S": "LEASE"},
            "checkpoint": {"S": "TRIM_HORIZON"},
            "checkpointSubSequenceNumber": {"N": "0"},
            "leaseCounter": {"N": "0"},
            "ownerSwitchesSinceCheckpoint": {"N": "0"},
            "startingHashKey": {"S": str(keys.starting_hash_key)},
            "endingHashKey": {"S": str(keys.ending_hash_key)},
        }
        dynamodb.put_item(TableName=table, Item=item)
