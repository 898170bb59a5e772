"""Faults on demand: an HTTP proxy in front of a local Kinesis server (none of them fails by itself).

    with local_kinesis() as kinesis, FaultProxy(kinesis.endpoint_url) as proxy:
        client = kinesis.client(endpoint_url=proxy.endpoint_url)
        proxy.on("PutRecords", throttle(), times=2)               # the next two calls
        proxy.on("PutRecords", fail_records([0, 3]), times=1)     # then one partial failure
        proxy.on("ListShards", expired_next_token(), when=has("NextToken"))
        proxy.on("*", slow(0.2), rate=0.1)                        # one call in ten, seeded
        ...
        proxy.calls                                               # all calls and their results

A fault is a function of an `Exchange`: it may answer by itself, change the request, send it on with
``exchange.forward()``, change the answer, or end the connection with ``raise Cut``. Rules are checked in the
order they were made; only the first that applies acts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .fault_proxy import Answer, Call, Cut, Exchange, Fault, FaultProxy, Rule, as_http

__all__ = [
    "Answer", "Call", "Cut", "Exchange", "Fault", "FaultProxy", "Rule", "cut_answer", "cut_before", "error",
    "expired_iterator", "expired_next_token", "fail_records", "has", "lose_answer", "rewrite",
    "server_error", "slow", "throttle",
]  # fmt: skip


def error(code: str, *, status: int = 400, message: str = "injected") -> Fault:
    """Answer with an AWS error; the server never sees the call."""

    def fault(exchange: Exchange) -> Answer:
        return Answer(status, json.dumps({"__type": code, "message": message}).encode())

    fault.__name__ = f"error({code})"
    return fault


def throttle() -> Fault:
    """Too many calls: LimitExceeded for control operations, else ProvisionedThroughputExceeded."""

    def throttled(exchange: Exchange) -> Answer:
        data = exchange.operation in ("PutRecord", "PutRecords", "GetRecords", "GetShardIterator")
        code = "ProvisionedThroughputExceededException" if data else "LimitExceededException"
        return error(code, message="Rate exceeded")(exchange)

    return throttled


def server_error(status: int = 500) -> Fault:
    """A 500 (or 503 ...) without the server having seen the call."""
    return error("InternalFailure", status=status)


def slow(seconds: float) -> Fault:
    """Wait, then send the call on."""

    def slowed(exchange: Exchange) -> Answer:
        time.sleep(seconds)
        return exchange.forward()

    return slowed


def cut_before() -> Fault:
    """Reset the connection; the server never sees the call."""

    def cut_before_sending(exchange: Exchange) -> Answer:
        raise Cut

    return cut_before_sending


def lose_answer() -> Fault:
    """The server executes the call, but the connection is reset before the answer."""

    def lost_answer(exchange: Exchange) -> Answer:
        exchange.forward()
        raise Cut

    return lost_answer


def cut_answer(fraction: float = 0.5) -> Fault:
    """The server executes the call; the connection is reset after a part of the answer."""

    def answer_cut(exchange: Exchange) -> Answer:
        answer = exchange.forward()
        whole = as_http(answer)
        head = len(whole) - len(answer.body)
        raise Cut(whole[: head + int(len(answer.body) * fraction)])

    return answer_cut


def fail_records(
    which: Iterable[int] | Callable[[int, Mapping[str, Any]], bool],
    code: str = "ProvisionedThroughputExceededException",
) -> Fault:
    """PutRecords: these records (positions, or a test of position and entry) fail, the others are put."""
    places = () if callable(which) else frozenset(which)

    def failed_records(exchange: Exchange) -> Answer:
        entries = exchange.request["Records"]
        failing = [which(i, entry) if callable(which) else i in places for i, entry in enumerate(entries)]
        passed = [entry for entry, fails in zip(entries, failing, strict=True) if not fails]
        answer = Answer(200, b'{"Records": []}')
        if passed:
            exchange.request = {**exchange.request, "Records": passed}
            answer = exchange.forward()
            if answer.status != 200:
                return answer
        answered = answer.json
        results = iter(answered["Records"])
        records = [
            {"ErrorCode": code, "ErrorMessage": "injected"} if fails else next(results) for fails in failing
        ]
        count = sum(record.get("ErrorCode") is not None for record in records)
        return answer.with_json({**answered, "FailedRecordCount": count, "Records": records})

    return failed_records


def expired_next_token() -> Fault:
    """ListShards with a NextToken more than 300 s old."""
    return error("ExpiredNextTokenException", message="NextToken expired")


def expired_iterator() -> Fault:
    """GetRecords with an iterator more than 300 s old."""
    return error("ExpiredIteratorException", message="Iterator expired")


def rewrite(change: Callable[[Any], Any]) -> Fault:
    """Send the call on and change the (JSON) answer."""

    def rewritten(exchange: Exchange) -> Answer:
        answer = exchange.forward()
        return answer.with_json(change(answer.json))

    return rewritten


def has(name: str) -> Callable[[Mapping[str, Any]], bool]:
    """A condition for ``when``: the request carries this argument."""
    return lambda request: request.get(name) is not None
