"""An HTTP proxy in front of a local Kinesis server that makes its calls fail: the server itself never does.

    >>> from kpl_codec.testing.faults import FaultProxy, error, fail_records, slow, throttle
    >>> from kpl_codec.testing.local_kinesis import local_kinesis
    >>> records = [{"Data": b"one", "PartitionKey": "a"}, {"Data": b"two", "PartitionKey": "b"}]
    >>> with local_kinesis() as kinesis, FaultProxy(kinesis.endpoint_url) as proxy:
    ...     kinesis.create_stream("payments", shards=1)
    ...     client = kinesis.client(endpoint_url=proxy.endpoint_url)
    ...     proxy.on("PutRecords", throttle(), times=1)  # the next call
    ...     proxy.on("PutRecords", fail_records([0]), times=1)  # then one partial failure
    ...     proxy.on("*", slow(0.01), rate=0.1)  # one call in ten, seeded
    ...     for _ in range(2):
    ...         try:
    ...             print(client.put_records(StreamName="payments", Records=records)["FailedRecordCount"])
    ...         except client.exceptions.ClientError as failure:
    ...             print(failure.response["Error"]["Code"])
    ...     print(proxy.calls[0].operation)
    FaultRule(...)
    FaultRule(...)
    FaultRule(...)
    ProvisionedThroughputExceededException
    1
    PutRecords

The faults are `error`, `throttle`, `slow`, `cut_response`, `lose_response` and `fail_records`. The proxy
checks the rules in the order they were made; only the first that applies acts.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ..base.arguments import add_row, check_arguments, text, whole_number, wrong_function
from ..base.lazy import public_names
from ..base.values import Value
from .serving import ServerThread

__all__ = [
    "CallResult", "FaultProxy", "FaultRule",
    "cut_response", "error", "fail_records", "lose_response", "slow", "throttle",
]  # fmt: skip
__dir__ = public_names(__name__)

_JSON_TYPE = "application/x-amz-json-1.1"


class HttpResponse(NamedTuple):
    """An HTTP response. ``body``: bytes, mostly JSON."""

    status: int
    body: bytes
    content_type: str = _JSON_TYPE

    @property
    def json(self) -> Any:
        """The body read as JSON; {} where it is empty."""
        return json.loads(self.body or b"{}")

    def with_json(self, value: Any) -> HttpResponse:
        """The same response with another body."""
        return HttpResponse(self.status, json.dumps(value).encode(), self.content_type)


class Cut(Exception):
    """Raised by a fault to reset the connection. ``beginning``: bytes of the response to send before."""

    def __init__(self, beginning: bytes = b"") -> None:
        super().__init__()
        self.beginning = beginning


@dataclass
class Exchange:
    """One call. ``operation``: PutRecords, ... ``request``: its JSON, which a fault may change.
    ``forwarded``: how often `forward` has sent it."""

    operation: str
    request: dict[str, Any]
    _send: Callable[[dict[str, Any]], HttpResponse]
    forwarded: int = field(default=0, init=False)

    def forward(self) -> HttpResponse:
        """Send ``request`` as it is now to the server; its response."""
        self.forwarded += 1
        return self._send(self.request)


#: A function of an `Exchange` that gives an `HttpResponse`. Callers make none, so its types are not public.
FaultFunction = Callable[[Any], Any]


class CallResult(Value):
    """The result of one call. ``fault``: the name of the fault that acted, None for none. ``status``: of the
    HTTP response, None if the connection was cut. ``forwarded``: how often the server got the call."""

    operation: str
    request: Mapping[str, Any]
    fault: str | None
    status: int | None
    forwarded: int


@dataclass
class FaultRule:
    """A fault with its conditions: ``matched`` calls met them, on ``acted`` it acted."""

    operation: str
    fault: FaultFunction
    times: int | None = None
    after: int = 0
    rate: float = 1.0
    matched: int = field(default=0, init=False)
    acted: int = field(default=0, init=False)

    def _applies(self, operation: str, chance: random.Random) -> bool:
        """Count this call, and say whether the fault acts on it. ``chance`` decides by ``rate``."""
        if self.operation not in ("*", operation) or (self.times is not None and self.acted >= self.times):
            return False
        self.matched += 1
        unlucky = self.rate < 1 and chance.random() >= self.rate
        if self.matched <= self.after or unlucky:
            return False
        self.acted += 1
        return True


def _wrong_places(which: Any) -> type[Exception] | None:
    if callable(which):
        return TypeError if wrong_function(which, 2, awaits=False) else None
    if isinstance(which, (str, bytes, Mapping)) or not isinstance(which, Iterable):
        return TypeError
    return next(filter(None, map(whole_number(0), which)), None)


add_row("target of FaultProxy", text(("http://",)), "the server's URL, as LocalKinesis().endpoint_url")
add_row("seed of FaultProxy", whole_number(-sys.maxsize), "a whole number")
add_row("operation of FaultProxy.on", text(), '"PutRecords", another call, or "*"')
add_row("fault of FaultProxy.on", 1, "a fault, as throttle()")
add_row("times of FaultProxy.on", whole_number(0), "a number of calls, 0 or more", optional=True)
add_row("after of FaultProxy.on", whole_number(0), "a number of calls, 0 or more")


_A_CODE, _STATUS = "the code of an error of AWS", whole_number(100, 599)
add_row("code of error", text(), _A_CODE)
add_row("code of fail_records", text(), _A_CODE)
add_row("status of error", _STATUS, "a status of HTTP, 100 to 599")
add_row("message of error", lambda value: None if isinstance(value, str) else TypeError, "text")
add_row("which of fail_records", _wrong_places, "positions from 0, or a function of position and entry")


class FaultProxy(ServerThread):
    """The proxy: a context manager with ``endpoint_url``, `on`, `clear` and ``calls``.

    ``target``: the server's URL. ``seed`` decides which calls a ``rate`` below 1 picks.
    """

    def __init__(self, target: str, *, seed: int = 0) -> None:
        check_arguments("FaultProxy", {"target": target, "seed": seed})
        parts = urlsplit(target)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._rules: list[FaultRule] = []
        self._calls: list[CallResult] = []
        self._lock = threading.Lock()
        self._random = random.Random(seed)
        super().__init__(type("Handler", (_Handler,), {"owner": self}), "127.0.0.1", 0)

    def on(
        self,
        operation: str,
        fault: FaultFunction,
        *,
        times: int | None = None,
        after: int = 0,
        rate: float = 1.0,
    ) -> FaultRule:
        """Let ``fault`` act on calls of ``operation`` ("*": any): on ``times`` at most, not on the first
        ``after``, on the part ``rate`` of them (0 to 1)."""
        check_arguments("FaultProxy.on", locals())
        rule = FaultRule(operation, fault, times, after, rate)
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Forget all rules and calls."""
        with self._lock:
            self._rules.clear()
            self._calls.clear()

    @property
    def calls(self) -> list[CallResult]:
        """Every call that has ended, in that order."""
        with self._lock:
            return list(self._calls)

    @property
    def endpoint_url(self) -> str:
        """``http://127.0.0.1:<port>``."""
        return f"http://127.0.0.1:{self.port}"

    def _handle(self, operation: str, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        """The response. Raises Cut."""
        request = json.loads(body or b"{}")

        def send(changed: dict[str, Any]) -> HttpResponse:
            data = body if changed == request else json.dumps(changed).encode()
            return self._forward(operation, data, headers)

        with self._lock:
            rule = next((rule for rule in self._rules if rule._applies(operation, self._random)), None)
        status = None
        exchange = Exchange(operation, dict(request), send)
        try:
            response = rule.fault(exchange) if rule else exchange.forward()
            status = response.status
        finally:
            name = rule.fault.__name__ if rule else None
            with self._lock:
                self._calls.append(CallResult(operation, request, name, status, exchange.forwarded))
        return response

    def _pieces(self, response: HttpResponse) -> Iterator[bytes]:
        """The bytes of a response, each sent as it comes. Raises Cut."""
        yield _as_http(response)

    def _forward(self, operation: str, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        """The server's response to a call."""
        with closing(http.client.HTTPConnection(*self._target, timeout=60)) as connection:
            connection.request("POST", "/", body, dict(headers))
            response = connection.getresponse()
            return HttpResponse(
                response.status, response.read(), response.getheader("Content-Type", _JSON_TYPE)
            )


def _as_http(response: HttpResponse) -> bytes:
    reason = http.client.responses.get(response.status, "")
    head = (
        f"HTTP/1.1 {response.status} {reason}\r\nContent-Type: {response.content_type}\r\n"
        f"Content-Length: {len(response.body)}\r\nx-amzn-RequestId: injected\r\n\r\n"
    )
    return head.encode() + response.body


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    owner: FaultProxy

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        operation = self.headers.get("X-Amz-Target", "").rpartition(".")[2]
        keep = ("Content-Type", "X-Amz-Target", "X-Amz-Date", "Authorization", "Accept", "User-Agent")
        headers = {name: self.headers[name] for name in keep if name in self.headers}
        try:
            response = self.owner._handle(operation, body, headers)
            for piece in self.owner._pieces(response):
                self.wfile.write(piece)
        except Cut as cut:
            if cut.beginning:
                self.wfile.write(cut.beginning)
                time.sleep(0.02)  # let the bytes leave: a reset may overtake them
            # Linger 0: close sends RST, the peer sees a connection that broke.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
        except OSError:
            # The server or the client is gone, so this connection is over.
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """No access log: `FaultProxy.calls` has more."""


# -- faults, each a function of the name that `CallResult` shows ------------------------------------


def error(code: str, *, status: int = 400, message: str = "injected") -> FaultFunction:
    """Answer with an AWS error, such as InternalFailure with status 500; the server never sees the call.
    Raises TypeError, ValueError."""
    check_arguments("error", {"code": code, "status": status, "message": message})

    def fault(exchange: Exchange) -> HttpResponse:
        return HttpResponse(status, json.dumps({"__type": code, "message": message}).encode())

    fault.__name__ = f"error({code})"
    return fault


def throttle() -> FaultFunction:
    """Too many calls: LimitExceeded for control operations, else ProvisionedThroughputExceeded."""

    def throttle(exchange: Exchange) -> Any:
        data = exchange.operation in ("PutRecord", "PutRecords", "GetRecords", "GetShardIterator")
        code = "ProvisionedThroughputExceededException" if data else "LimitExceededException"
        return error(code, message="Rate exceeded")(exchange)

    return throttle


def slow(seconds: float) -> FaultFunction:
    """Wait, then send the call on. Raises TypeError, ValueError."""
    check_arguments("slow", {"seconds": seconds})

    def slow(exchange: Exchange) -> HttpResponse:
        time.sleep(seconds)
        return exchange.forward()

    return slow


def lose_response() -> FaultFunction:
    """The server executes the call, but the connection is reset before the response."""

    def lose_response(exchange: Exchange) -> HttpResponse:
        exchange.forward()
        raise Cut

    return lose_response


def cut_response(fraction: float = 0.5) -> FaultFunction:
    """The server executes the call; the connection is reset after a part of the response. Raises TypeError,
    ValueError."""
    check_arguments("cut_response", {"fraction": fraction})

    def cut_response(exchange: Exchange) -> HttpResponse:
        response = exchange.forward()
        whole = _as_http(response)
        head = len(whole) - len(response.body)
        raise Cut(whole[: head + int(len(response.body) * fraction)])

    return cut_response


def fail_records(
    which: Iterable[int] | Callable[[int, Mapping[str, Any]], bool],
    code: str = "ProvisionedThroughputExceededException",
) -> FaultFunction:
    """PutRecords: these records (positions, or a test of position and entry) fail, the others are put.
    Raises TypeError, ValueError."""
    which = which if callable(which) or not isinstance(which, Iterator) else [*which]
    check_arguments("fail_records", {"which": which, "code": code})
    places = () if callable(which) else frozenset(which)

    def fail_records(exchange: Exchange) -> HttpResponse:
        entries = exchange.request["Records"]
        failing = [which(i, entry) if callable(which) else i in places for i, entry in enumerate(entries)]
        passed = [entry for entry, fails in zip(entries, failing, strict=True) if not fails]
        response = HttpResponse(200, b'{"Records": []}')
        if passed:
            exchange.request = {**exchange.request, "Records": passed}
            response = exchange.forward()
            if response.status != 200:
                return response
        body = response.json
        results = iter(body["Records"])
        records = [
            {"ErrorCode": code, "ErrorMessage": "injected"} if fails else next(results) for fails in failing
        ]
        count = sum(record.get("ErrorCode") is not None for record in records)
        return response.with_json({**body, "FailedRecordCount": count, "Records": records})

    return fail_records
