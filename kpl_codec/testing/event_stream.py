"""SubscribeToShard as AWS serves it, over the GetRecords of a local server: for `fault_proxy`.

No local server serves it so that boto3 can read it (spec/11-enhanced-fan-out.md lists the differences), so
the proxy answers it: the records, their order, the end of a shard and the registered consumers are the
server's. One subscription per consumer and shard, its end after five minutes and the bytes are this module's.
"""

from __future__ import annotations

import json
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

EVENT: Final = "SubscribeToShardEvent"
#: Seconds between two looks at the server, and between two events of a silent shard.
_LOOK_EVERY, _EVENT_EVERY = 0.05, 1.0


class Message(NamedTuple):
    """One message of an event stream. ``kind``: event or exception; ``name``: its type."""

    kind: str
    name: str
    payload: dict[str, Any]

    def encoded(self) -> bytes:
        """The bytes: lengths, their CRC, headers, payload, CRC of all (AWS: event stream encoding)."""
        named = {
            ":message-type": self.kind,
            f":{self.kind}-type": self.name,
            ":content-type": "application/json",
        }
        headers = b"".join(
            bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
            for name, value in named.items()
        )
        payload = json.dumps(self.payload).encode()
        prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
        message = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
        return message + struct.pack(">I", zlib.crc32(message))


class Refused(Exception):
    """A call ends with an AWS error. ``body``: the answer's JSON."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__()
        self.status, self.body = status, body

    @classmethod
    def by(cls, code: str, message: str) -> Refused:
        return cls(400, json.dumps({"__type": code, "message": message}).encode())


class Subscriptions:
    """The subscriptions of all consumers. ``lifetime``: seconds that one lives; ``refused_for``: seconds for
    which a second one of the same consumer and shard is refused."""

    def __init__(self, *, lifetime: float, refused_for: float) -> None:
        self._lifetime, self._refused_for = lifetime, refused_for
        self._current: dict[tuple[str, str], tuple[object, float]] = {}
        self._lock = threading.Lock()

    def subscribe(
        self, request: dict[str, Any], ask: Callable[[str, dict[str, Any]], dict[str, Any]]
    ) -> Iterator[Message]:
        """The messages of a new subscription. ``ask`` calls the server, and raises Refused as this does."""
        consumer, shard_id, position = (
            request[name] for name in ("ConsumerARN", "ShardId", "StartingPosition")
        )
        described = ask("DescribeStreamConsumer", {"ConsumerARN": consumer})["ConsumerDescription"]
        if described["ConsumerStatus"] != "ACTIVE":
            creating = described["ConsumerStatus"] == "CREATING"
            code = "ResourceInUseException" if creating else "ResourceNotFoundException"
            raise Refused.by(code, f"the consumer is {described['ConsumerStatus']}")
        iterator = ask(
            "GetShardIterator",
            {
                "StreamARN": consumer.partition("/consumer/")[0],
                "ShardId": shard_id,
                "ShardIteratorType": position["Type"],
                **(
                    {"StartingSequenceNumber": position["SequenceNumber"]}
                    if "SequenceNumber" in position
                    else {}
                ),
                **({"Timestamp": position["Timestamp"]} if "Timestamp" in position else {}),
            },
        )["ShardIterator"]
        mine = object()
        with self._lock:
            _, began = self._current.get((consumer, shard_id), (None, float("-inf")))
            if time.monotonic() - began < self._refused_for:
                raise Refused.by("ResourceInUseException", "Another active subscription exists")
            self._current[consumer, shard_id] = mine, time.monotonic()

        def replaced() -> bool:
            with self._lock:
                return self._current[consumer, shard_id][0] is not mine

        known = position.get("SequenceNumber", "0")
        return self._messages(iterator, known, ask, replaced)

    def _messages(
        self,
        iterator: str | None,
        last: str,
        ask: Callable[[str, dict[str, Any]], dict[str, Any]],
        replaced: Callable[[], bool],
    ) -> Iterator[Message]:
        began = sent = time.monotonic()
        yield Message("event", "initial-response", {})
        while time.monotonic() - began < self._lifetime:
            if replaced():
                yield Message(
                    "exception", "ResourceInUseException", {"message": "A newer subscription exists"}
                )
                return
            found = ask("GetRecords", {"ShardIterator": iterator, "Limit": 1000})
            iterator = found.get("NextShardIterator")
            records = found["Records"]
            if records or iterator is None or time.monotonic() - sent > _EVENT_EVERY:
                sent = time.monotonic()
                last = records[-1]["SequenceNumber"] if records else last
                event = {
                    "Records": records,
                    "MillisBehindLatest": found.get("MillisBehindLatest") or 0,
                    "ContinuationSequenceNumber": last,
                }
                if iterator is None:
                    del event["ContinuationSequenceNumber"]
                    event["ChildShards"] = found["ChildShards"]
                yield Message("event", EVENT, event)
            if iterator is None:
                return
            if not records:
                time.sleep(_LOOK_EVERY)
