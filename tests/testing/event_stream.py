"""A fault proxy that answers SubscribeToShard as AWS does, over the GetRecords of a local server.

    with FanOutProxy(kinesis.endpoint_url) as proxy:
        proxy.on("SubscribeToShard", cut_events(after=2), times=1)

No local server serves it so that boto3 can read it (spec/11-enhanced-fan-out.md lists the differences), so
the proxy answers it: the records, their order, the end of a shard and the registered consumers are the
server's, the bytes are this module's. A subscription ends after a few events, as after AWS's five minutes.
"""

from __future__ import annotations

import json
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kpl_codec.testing.faults import Cut, Exchange, FaultFunction, FaultProxy, HttpResponse, _as_http, error

_EVENT_STREAM: Final = "application/vnd.amazon.eventstream"
#: The most records of an event; the fewest and the most events of a subscription; seconds to the next event
#: where there are no records.
_RECORDS, _FEWEST, _MOST, _LOOK_EVERY = 10, 2, 4, 0.02
_POSITION: Final = {
    "Type": "ShardIteratorType",
    "SequenceNumber": "StartingSequenceNumber",
    "Timestamp": "Timestamp",
}


def message(kind: str, name: str, payload: Mapping[str, Any]) -> bytes:
    """One message of an event stream: lengths, their CRC, headers, payload, CRC of all (AWS: event stream
    encoding). ``kind``: event or exception; ``name``: its type."""
    named = {":message-type": kind, f":{kind}-type": name, ":content-type": "application/json"}
    headers = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in named.items()
    )
    text = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(text), len(headers))
    data = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + text
    return data + struct.pack(">I", zlib.crc32(data))


def messages_of(body: bytes) -> Iterator[bytes]:
    while body:
        size = int.from_bytes(body[:4], "big")
        yield body[:size]
        body = body[size:]


class Refused(Exception):
    """A call ends with an AWS error, whose response this is."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__()
        self.response = response


class FanOutProxy(FaultProxy):
    """See the module."""

    def _forward(self, operation: str, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        """The server's answer, or the messages of a subscription."""
        if operation != "SubscribeToShard":
            return super()._forward(operation, body, headers)

        def ask(operation: str, **arguments: Any) -> dict[str, Any]:
            target = {**headers, "X-Amz-Target": f"Kinesis_20131202.{operation}"}
            answer = FaultProxy._forward(self, operation, json.dumps(arguments).encode(), target)
            if answer.status != 200:
                raise Refused(answer)
            return dict(answer.json)

        try:
            events = b"".join(self._events(json.loads(body), ask))
        except Refused as refused:
            return refused.response
        return HttpResponse(200, message("event", "initial-response", {}) + events, _EVENT_STREAM)

    def _events(self, request: dict[str, Any], ask: Callable[..., dict[str, Any]]) -> Iterator[bytes]:
        consumer, position = request["ConsumerARN"], request["StartingPosition"]
        status = ask("DescribeStreamConsumer", ConsumerARN=consumer)["ConsumerDescription"]["ConsumerStatus"]
        if status != "ACTIVE":
            code = "ResourceInUseException" if status == "CREATING" else "ResourceNotFoundException"
            raise Refused(error(code, message=f"the consumer is {status}")(None))
        iterator = ask(
            "GetShardIterator",
            StreamARN=consumer.partition("/consumer/")[0],
            ShardId=request["ShardId"],
            **{_POSITION[name]: value for name, value in position.items()},
        )["ShardIterator"]
        last, count, records = position.get("SequenceNumber", "0"), 0, [None]
        while iterator is not None and (count < _FEWEST or (records and count < _MOST)):
            found = ask("GetRecords", ShardIterator=iterator, Limit=_RECORDS)
            iterator, records = found.get("NextShardIterator"), found["Records"]
            last = records[-1]["SequenceNumber"] if records else last
            event = {"Records": records, "MillisBehindLatest": found.get("MillisBehindLatest") or 0}
            if iterator is None:
                event["ChildShards"] = found["ChildShards"]
            else:
                event["ContinuationSequenceNumber"] = last
            yield message("event", "SubscribeToShardEvent", event)
            count += 1
            time.sleep(0 if records else _LOOK_EVERY)


def _after(count: int, name: str, then: Callable[[HttpResponse, int, bytes], HttpResponse]) -> FaultFunction:
    """SubscribeToShard: the initial response and ``count`` events as they are; ``then`` says what follows. It
    gets the answer, how many bytes of its body are to stay, and the next event. ``name``: for calls."""

    def fault(exchange: Exchange) -> HttpResponse:
        answer = exchange.forward()
        messages = [*messages_of(answer.body)] if answer.content_type == _EVENT_STREAM else []
        if len(messages) < count + 2:
            return answer
        return then(answer, sum(map(len, messages[: count + 1])), messages[count + 1])

    fault.__name__ = name
    return fault


def cut_before(exchange: Exchange) -> HttpResponse:
    """Any call: reset the connection; the server never sees the call."""
    raise Cut


def cut_events(after: int = 0, *, fraction: float = 0.5) -> FaultFunction:
    """SubscribeToShard: reset the connection after ``after`` events and a part of the next."""

    def cut(answer: HttpResponse, size: int, event: bytes) -> HttpResponse:
        whole = _as_http(answer)
        raise Cut(whole[: len(whole) - len(answer.body) + size + int(len(event) * fraction)])

    return _after(after, "cut_events", cut)


def end_events(after: int = 0) -> FaultFunction:
    """SubscribeToShard: end the subscription after ``after`` events, without an error."""
    return _after(after, "end_events", lambda answer, size, _: answer._replace(body=answer.body[:size]))


def fail_events(code: str, after: int = 0) -> FaultFunction:
    """SubscribeToShard: an error in the stream of events, after ``after`` of them."""
    failure = message("exception", code, {"message": "injected"})
    return _after(
        after,
        f"fail_events({code})",
        lambda answer, size, _: answer._replace(body=answer.body[:size] + failure),
    )
