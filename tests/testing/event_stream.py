"""A fault proxy that answers SubscribeToShard as AWS does, over the GetRecords of a local server.

    with FanOutProxy(kinesis.endpoint_url) as proxy:
        proxy.on("SubscribeToShard", cut_events(after=2), times=1)

No local server serves it so that boto3 can read it (spec/11-enhanced-fan-out.md lists the differences), so
the proxy answers it: the records, their order, the end of a shard and the registered consumers are the
server's. One subscription per consumer and shard, and the bytes, are this module's.
"""

from __future__ import annotations

import json
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from kpl_codec.testing.faults import Cut, Exchange, FaultFunction, FaultProxy, HttpResponse

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
    """A call ends with an AWS error, whose response this is."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__()
        self.response = response


def refused(code: str, message: str) -> Refused:
    return Refused(HttpResponse(400, json.dumps({"__type": code, "message": message}).encode()))


class Subscriptions:
    """The subscriptions of all consumers: of each consumer and shard the newest one lives."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], object] = {}

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
            raise refused(code, f"the consumer is {described['ConsumerStatus']}")
        arguments = {"StreamARN": consumer.partition("/consumer/")[0], "ShardId": shard_id}
        names = {
            "Type": "ShardIteratorType", "SequenceNumber": "StartingSequenceNumber", "Timestamp": "Timestamp"
        }  # fmt: skip
        arguments |= {names[name]: value for name, value in position.items()}
        iterator = ask("GetShardIterator", arguments)["ShardIterator"]
        mine = self._newest[consumer, shard_id] = object()
        return self._messages(
            iterator,
            position.get("SequenceNumber", "0"),
            ask,
            lambda: self._newest[consumer, shard_id] is not mine,
        )

    def _messages(
        self,
        iterator: str | None,
        last: str,
        ask: Callable[[str, dict[str, Any]], dict[str, Any]],
        replaced: Callable[[], bool],
    ) -> Iterator[Message]:
        sent = time.monotonic()
        yield Message("event", "initial-response", {})
        while iterator is not None:
            if replaced():
                newer = {"message": "A newer subscription exists"}
                yield Message("exception", "ResourceInUseException", newer)
                return
            found = ask("GetRecords", {"ShardIterator": iterator, "Limit": 1000})
            iterator = found.get("NextShardIterator")
            records = found["Records"]
            if records or iterator is None or time.monotonic() - sent > _EVENT_EVERY:
                sent = time.monotonic()
                last = records[-1]["SequenceNumber"] if records else last
                event = {"Records": records, "MillisBehindLatest": found.get("MillisBehindLatest") or 0}
                if iterator is None:
                    event["ChildShards"] = found["ChildShards"]
                else:
                    event["ContinuationSequenceNumber"] = last
                yield Message("event", EVENT, event)
            else:
                time.sleep(_LOOK_EVERY)


class _Streamed(HttpResponse):
    """A response whose body is a stream of messages."""

    messages: Iterator[Message]


def _streamed(messages: Iterator[Message]) -> HttpResponse:
    response = _Streamed(200, b"", "application/vnd.amazon.eventstream")
    response.messages = messages
    return response


class FanOutProxy(FaultProxy):
    """See the module."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._subscriptions = Subscriptions()

    def _pieces(self, response: HttpResponse) -> Iterator[bytes]:
        """Each message of a stream as a chunk."""
        if not isinstance(response, _Streamed):
            yield from super()._pieces(response)
            return
        yield f"HTTP/1.1 200 OK\r\nContent-Type: {response.content_type}\r\n".encode()
        yield b"Transfer-Encoding: chunked\r\nx-amzn-RequestId: injected\r\n\r\n"
        try:
            for message in response.messages:
                data = message.encoded()
                yield b"%x\r\n%b\r\n" % (len(data), data)
        except Cut as cut:
            # A chunk that ends too early.
            rest = cut.beginning
            raise Cut(b"%x\r\n%b" % (len(rest) + 1, rest) if rest else b"") from None
        yield b"0\r\n\r\n"

    def _forward(self, operation: str, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        """The server's answer, or the messages of a subscription."""
        if operation != "SubscribeToShard":
            return super()._forward(operation, body, headers)

        def ask(operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
            target = {**headers, "X-Amz-Target": f"Kinesis_20131202.{operation}"}
            answer = FaultProxy._forward(self, operation, json.dumps(arguments).encode(), target)
            if answer.status != 200:
                raise Refused(answer)
            return dict(answer.json)

        def checked(messages: Iterator[Message]) -> Iterator[Message]:
            try:
                yield from messages
            except Refused:  # the server is gone
                raise Cut from None

        try:
            return _streamed(checked(self._subscriptions.subscribe(json.loads(body), ask)))
        except Refused as error:
            return error.response


def _after(count: int, name: str, then: Callable[[Message], Iterator[Message]]) -> FaultFunction:
    """SubscribeToShard: the initial response and ``count`` events as they are; the next one goes to ``then``,
    which ends it. ``name``: for calls."""

    def changed(messages: Iterator[Message]) -> Iterator[Message]:
        for number, message in enumerate(messages):
            if number > count:
                yield from then(message)
                return
            yield message

    def fault(exchange: Exchange) -> HttpResponse:
        answer = exchange.forward()
        return _streamed(changed(answer.messages)) if isinstance(answer, _Streamed) else answer

    fault.__name__ = name
    return fault


def cut_events(after: int = 0, *, fraction: float = 0.5) -> FaultFunction:
    """SubscribeToShard: reset the connection after ``after`` events and a part of the next."""

    def cut(message: Message) -> Iterator[Message]:
        data = message.encoded()
        raise Cut(data[: int(len(data) * fraction)])
        yield message

    return _after(after, "cut_events", cut)


def end_events(after: int = 0) -> FaultFunction:
    """SubscribeToShard: end the subscription after ``after`` events, without an error."""
    return _after(after, "end_events", lambda message: iter(()))


def fail_events(code: str, after: int = 0) -> FaultFunction:
    """SubscribeToShard: an error in the stream of events, after ``after`` of them."""
    failure = Message("exception", code, {"message": "injected"})
    return _after(after, f"fail_events({code})", lambda message: iter((failure,)))
