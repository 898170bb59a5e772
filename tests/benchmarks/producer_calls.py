"""The calls of a benchmarked producer: counted on their way to the server, or answered by a stub.

Both hook into botocore, which boto3 and aiobotocore share, so they treat all contenders alike.
"""

from __future__ import annotations

import hashlib
import itertools
from bisect import bisect_right
from typing import Any

import botocore.client
import botocore.endpoint

from kpl_codec import HashKeyRange
from kpl_codec.format.hash_keys import ALL_HASH_KEYS


class Calls:
    """PutRecords calls and their Kinesis records so far; ``wire_bytes``: of their HTTP bodies."""

    def __init__(self) -> None:
        self.put_records = self.wire_bytes = self.kinesis_records = 0

    def count(self) -> None:
        """Count what goes to a server from now on."""
        prepare = botocore.endpoint.Endpoint.prepare_request

        def counted(endpoint: Any, request: Any) -> Any:
            prepared = prepare(endpoint, request)
            if "PutRecords" in str(prepared.headers.get("X-Amz-Target")):
                self.put_records += 1
                self.wire_bytes += len(prepared.body)
            return prepared

        botocore.endpoint.Endpoint.prepare_request = counted  # type: ignore[method-assign]


class Stub:
    """Answers every call at once, in place of botocore and the network, as an active stream would."""

    def __init__(self, shards: int, calls: Calls) -> None:
        self._calls = calls
        self._ranges: list[HashKeyRange] = ALL_HASH_KEYS.split(shards)
        self._starts = [keys.starting_hash_key for keys in self._ranges]
        self._numbers = itertools.count(10**20)

    def install(self) -> None:
        from aiobotocore.client import AioBaseClient

        async def awaited(client: Any, operation: str, arguments: dict[str, Any]) -> Any:
            return self.answer(operation, arguments)

        def called(client: Any, operation: str, arguments: dict[str, Any]) -> Any:
            return self.answer(operation, arguments)

        botocore.client.BaseClient._make_api_call = called  # type: ignore[method-assign]
        AioBaseClient._make_api_call = awaited  # type: ignore[method-assign]

    def answer(self, operation: str, arguments: dict[str, Any]) -> Any:
        if operation == "PutRecords":
            self._calls.put_records += 1
            self._calls.kinesis_records += len(arguments["Records"])
            return {
                "FailedRecordCount": 0,
                "Records": [self._stored(entry) for entry in arguments["Records"]],
            }
        shards = [
            {
                "ShardId": f"shardId-{index:012}",
                "HashKeyRange": {
                    "StartingHashKey": str(keys.starting_hash_key),
                    "EndingHashKey": str(keys.ending_hash_key),
                },
                "SequenceNumberRange": {"StartingSequenceNumber": "1"},
            }
            for index, keys in enumerate(self._ranges)
        ]
        if operation == "ListShards":
            return {"Shards": shards}
        if operation == "DescribeStream":
            return {"StreamDescription": {"StreamStatus": "ACTIVE", "Shards": shards}}
        return {"StreamDescriptionSummary": {"StreamStatus": "ACTIVE"}}

    def _stored(self, entry: dict[str, Any]) -> dict[str, str]:
        given = entry.get("ExplicitHashKey")
        digest = hashlib.md5(entry["PartitionKey"].encode(), usedforsecurity=False).digest()
        hash_key = int.from_bytes(digest, "big") if given is None else int(given)
        index = bisect_right(self._starts, hash_key) - 1
        return {"ShardId": f"shardId-{index:012}", "SequenceNumber": str(next(self._numbers))}
