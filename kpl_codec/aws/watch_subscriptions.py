"""The subscriptions of a watch: SubscribeToShard in place of GetShardIterator and GetRecords.

    subscriptions = WatchSubscriptions(client, consumer_arn)
    subscriptions.answer(call)           # in a worker; waits for the next event of the call's shard

Kinesis sends an event at least every few seconds, an empty one where a shard is silent.
Specification: spec/10-watch.md, WCH-34; spec/11-enhanced-fan-out.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..shards.live_shard_map import Failure, StreamUnavailable
from ..shards.place import Place
from ..watch import Call
from .subscription import SubscriptionCursor


class WatchSubscriptions:
    """One cursor for each shard. Calls of different shards may be answered at the same time."""

    def __init__(self, client: Any, consumer_arn: str) -> None:
        self._client, self._consumer_arn = client, consumer_arn
        self._cursors: dict[str, SubscriptionCursor] = {}
        self._calls_of_old_ones = 0

    @property
    def calls(self) -> int:
        """How many calls of SubscribeToShard were made."""
        return self._calls_of_old_ones + sum(cursor.calls for cursor in list(self._cursors.values()))

    def answer(self, call: Call) -> Mapping[str, Any] | Failure:
        """As the operations that it replaces answer."""
        if call.operation == "SubscribeToShard":
            self._begin(call.shard_id, call.place)
            return {"ShardIterator": call.shard_id}
        cursor = self._cursors[call.shard_id]
        try:
            answer = cursor.fetch(int(call.arguments["Limit"]))
        except StreamUnavailable as error:
            return Failure(error.code, error.reason)
        going_on = {} if answer.ended else {"NextShardIterator": call.shard_id}
        return {"Records": answer.records, "MillisBehindLatest": answer.behind, **going_on}

    def _begin(self, shard_id: str, place: Place) -> None:
        """The subscription itself begins with the first event that is asked for."""
        old = self._cursors.get(shard_id)
        if old is not None:
            old.close()
            self._calls_of_old_ones += old.calls
        # The watch decides when a call is made again.
        self._cursors[shard_id] = SubscriptionCursor(
            self._client, self._consumer_arn, shard_id, place, patience=0.0
        )

    def close(self) -> None:
        """End all subscriptions. Call it when no call is under way."""
        for cursor in self._cursors.values():
            cursor.close()
