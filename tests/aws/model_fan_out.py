"""Enhanced fan-out of the model stream, by the rules that AWS states, and with faults drawn at random.

Time is the model's: an event takes 70 ms, a silence ends with an empty event after 5 seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from botocore.exceptions import ClientError, EventStreamError
from urllib3.exceptions import ProtocolError

from tests.spark.source.model import ModelKinesis, ModelShard, as_answered, refusal

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/s"
#: What a call or an event stream may do besides what it should.
FAULTS = (
    "LimitExceededException",
    "InternalFailureException",
    "ExpiredTokenException",
    "cut",
    "lost",
    "broken",
    "end",
)


class FanOutKinesis(ModelKinesis):
    """``faults``: the share of calls and events that end with one of `FAULTS`. ``called`` and ``subscribed``:
    the times of all calls, and of those that succeeded; ``longest``: the greatest age in seconds that a
    subscription had."""

    def __init__(self, shards: int, *, faults: float = 0.0, most: int = 50, **settings: Any) -> None:
        super().__init__(shards, **settings)
        self.faults, self.most = faults, most
        self.consumers: dict[str, str] = {}
        self.called: list[float] = []
        self.subscribed: list[float] = []
        self.longest = 0.0
        self._current: dict[tuple[str, str], tuple[object, float]] = {}

    def _fault(self) -> str | None:
        return self._chance.choice(FAULTS) if self._chance.random() < self.faults else None

    # -- consumers ----------------------------------------------------------------------------

    def register_stream_consumer(self, *, StreamARN: str, ConsumerName: str) -> dict[str, Any]:
        arn = f"{StreamARN}/consumer/{ConsumerName}:{int(self.now)}"
        if any(f"/{ConsumerName}:" in known for known in self.consumers):
            raise refusal("ResourceInUseException", "RegisterStreamConsumer")
        self.consumers[arn] = "CREATING"
        return {"Consumer": {"ConsumerARN": arn, "ConsumerStatus": "CREATING"}}

    def describe_stream_consumer(self, **named: str) -> dict[str, Any]:
        for arn, status in self.consumers.items():
            if arn == named.get("ConsumerARN") or f"/{named.get('ConsumerName')}:" in arn:
                self.consumers[arn] = "ACTIVE"  # by the next look
                return {"ConsumerDescription": {"ConsumerARN": arn, "ConsumerStatus": status}}
        raise refusal("ResourceNotFoundException", "DescribeStreamConsumer")

    def deregister_stream_consumer(self, *, ConsumerARN: str) -> dict[str, Any]:
        if self.consumers.pop(ConsumerARN, None) is None:
            raise refusal("ResourceNotFoundException", "DeregisterStreamConsumer")
        return {}

    # -- subscriptions ------------------------------------------------------------------------

    def subscribe_to_shard(
        self, *, ConsumerARN: str, ShardId: str, StartingPosition: dict[str, Any]
    ) -> dict[str, Any]:
        self.calls["subscribe_to_shard"] += 1
        self.now += 0.02
        key = (ConsumerARN, ShardId)
        _, began = self._current.get(key, (None, float("-inf")))
        fault = self._fault()
        self.called.append(self.now)
        if self.consumers.get(ConsumerARN) != "ACTIVE":
            raise refusal("ResourceNotFoundException", "SubscribeToShard")
        if fault in FAULTS[:3]:
            raise refusal(fault, "SubscribeToShard")
        if fault == "cut":
            raise ConnectionResetError
        if self.now - began < 5:
            raise refusal("ResourceInUseException", "SubscribeToShard")
        # The iterator knows where a position is, and refuses what is gone.
        names = {"Type": "ShardIteratorType", "SequenceNumber": "StartingSequenceNumber"}
        position = {names.get(name, name): value for name, value in StartingPosition.items()}
        calls = self.calls.copy()
        iterator = self.get_shard_iterator(StreamName="s", ShardId=ShardId, **position)["ShardIterator"]
        self.calls = calls
        token = object()
        self._current[key] = token, self.now
        self.subscribed.append(self.now)
        return {"EventStream": self._events(key, token, self.shards[ShardId], int(iterator.split()[1]))}

    def _events(
        self, key: tuple[str, str], token: object, shard: ModelShard, bound: int
    ) -> Iterator[dict[str, Any]]:
        began = self.now
        while self.now - began < 300:
            fault = self._fault()
            there = [r for r in shard.records if r[0] >= bound and r[1] > self.now - self.retention]
            if not there and shard.end is None:
                self.now += 5
                there = [r for r in shard.records if r[0] >= bound]
            self.now += 0.07
            self.longest = max(self.longest, self.now - began)
            if self._current[key][0] is not token:
                raise stream_error("ResourceInUseException")
            if fault == "end":
                return
            if fault in FAULTS[:3]:
                raise stream_error(fault)
            if fault == "cut":
                raise ProtocolError("Connection broken")
            sent, left = there[: self.most], there[self.most :]
            bound = sent[-1][0] + 1 if sent else bound
            if fault == "lost":  # sent, and the connection broken before it came
                raise ConnectionResetError
            event: dict[str, Any] = {
                "Records": [as_answered(*record) for record in sent],
                "ContinuationSequenceNumber": str(bound - 1 if bound else shard.start),
                "MillisBehindLatest": int((left[-1][1] - sent[-1][1]) * 1000) + 1 if left and sent else 0,
            }
            self.given += len(sent)
            ended = shard.end is not None and not left
            if ended:
                del event["ContinuationSequenceNumber"]
                event["ChildShards"] = [
                    {"ShardId": child.shard_id, "ParentShards": list(child.parents)}
                    for child in self.shards.values()
                    if shard.shard_id in child.parents
                ]
            if fault == "broken":
                event["MillisBehindLatest"] = None
            yield {"SubscribeToShardEvent": event}
            if ended:
                return


def stream_error(code: str) -> ClientError:
    return EventStreamError({"Error": {"Code": code, "Message": "model"}}, "SubscribeToShard")
