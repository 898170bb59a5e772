"""The proxy for `faults`: the call that a fault sees, the rules that choose a fault, the server."""

from __future__ import annotations

import http.client
import json
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ..outlets.serving import ServerThread

JSON_TYPE = "application/x-amz-json-1.1"


class Answer(NamedTuple):
    """An HTTP answer. ``body``: its JSON, as bytes. ``parts``: what follows it, sent as it comes."""

    status: int
    body: bytes
    content_type: str = JSON_TYPE
    parts: Iterator[bytes] | None = None

    @property
    def json(self) -> Any:
        """The body read as JSON; {} where it is empty."""
        return json.loads(self.body or b"{}")

    def with_json(self, value: Any) -> Answer:
        """The same answer with another body."""
        return Answer(self.status, json.dumps(value).encode(), self.content_type)


class Cut(Exception):
    """End the connection with a reset, after sending ``sent``: the begin of an answer or message."""

    def __init__(self, sent: bytes = b"") -> None:
        super().__init__()
        self.sent = sent


@dataclass
class Exchange:
    """One call: ``operation``, the ``request`` (JSON, may be changed), `forward` to send it."""

    operation: str
    request: dict[str, Any]
    _send: Callable[[dict[str, Any]], Answer]
    forwarded: int = field(default=0, init=False)

    def forward(self) -> Answer:
        """Send ``request`` as it is now to the server; its answer."""
        self.forwarded += 1
        return self._send(self.request)


Fault = Callable[[Exchange], Answer]


class Call(NamedTuple):
    """The result of one call: ``fault`` is the name of the fault that acted, ``status`` None if cut,
    ``forwarded`` how often the server got it."""

    operation: str
    request: Mapping[str, Any]
    fault: str | None
    status: int | None
    forwarded: int


@dataclass
class Rule:
    """A fault with its conditions. ``acted`` counts how often it did."""

    operation: str
    fault: Fault
    times: int | None = None
    after: int = 0
    rate: float = 1.0
    when: Callable[[Mapping[str, Any]], bool] | None = None
    matched: int = field(default=0, init=False)
    acted: int = field(default=0, init=False)

    def applies(self, operation: str, request: Mapping[str, Any], chance: float) -> bool:
        """Whether it acts on this call, which it counts. ``chance``: 0 to 1, against ``rate``."""
        if self.operation not in ("*", operation) or (self.when and not self.when(request)):
            return False
        if self.times is not None and self.acted >= self.times:
            return False
        self.matched += 1
        if self.matched <= self.after or chance >= self.rate:
            return False
        self.acted += 1
        return True


class FaultProxy(ServerThread):
    """The proxy: a context manager with ``endpoint_url``, `on`, `clear` and ``calls``.

    ``target``: the server's URL. ``seed`` decides which calls a ``rate`` below 1 picks.
    """

    def __init__(self, target: str, *, seed: int = 0) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._rules: list[Rule] = []
        self._calls: list[Call] = []
        self._lock = threading.Lock()
        self._random = random.Random(seed)
        proxy = self

        class Handler(_Handler):
            owner = proxy

        super().__init__(Handler, "127.0.0.1", 0)

    def on(
        self,
        operation: str,
        fault: Fault,
        *,
        times: int | None = None,
        after: int = 0,
        rate: float = 1.0,
        when: Callable[[Mapping[str, Any]], bool] | None = None,
    ) -> Rule:
        """Let ``fault`` act on ``operation`` ("*" for any): at most ``times``, skipping the first
        ``after`` that match, on a share ``rate`` of them, and only ``when`` the request is so."""
        rule = Rule(operation, fault, times, after, rate, when)
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Forget all rules and calls."""
        with self._lock:
            self._rules.clear()
            self._calls.clear()

    @property
    def calls(self) -> list[Call]:
        """Every finished call, in the order they ended."""
        with self._lock:
            return list(self._calls)

    @property
    def endpoint_url(self) -> str:
        """``http://127.0.0.1:<port>``."""
        return f"http://127.0.0.1:{self.port}"

    def _choose(self, operation: str, request: Mapping[str, Any]) -> Rule | None:
        with self._lock:
            for rule in self._rules:
                chance = self._random.random() if rule.rate < 1 else 0.0
                if rule.applies(operation, request, chance):
                    return rule
        return None

    def _handle(self, operation: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """The answer. Raises Cut."""
        request = json.loads(body or b"{}")

        def send(changed: dict[str, Any]) -> Answer:
            sent = body if changed == request else json.dumps(changed).encode()
            return self.forward(operation, sent, headers)

        rule, status = self._choose(operation, request), None
        exchange = Exchange(operation, dict(request), send)
        try:
            answer = rule.fault(exchange) if rule else exchange.forward()
            status = answer.status
        finally:
            name = rule.fault.__name__ if rule else None
            with self._lock:
                self._calls.append(Call(operation, request, name, status, exchange.forwarded))
        return answer

    def forward(self, operation: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """The server's answer to a call."""
        with closing(http.client.HTTPConnection(*self._target, timeout=60)) as connection:
            connection.request("POST", "/", body, dict(headers))
            response = connection.getresponse()
            return Answer(response.status, response.read(), response.getheader("Content-Type", JSON_TYPE))


def as_http(answer: Answer) -> bytes:
    reason = http.client.responses.get(answer.status, "")
    length = "Transfer-Encoding: chunked" if answer.parts else f"Content-Length: {len(answer.body)}"
    head = (
        f"HTTP/1.1 {answer.status} {reason}\r\nContent-Type: {answer.content_type}\r\n"
        f"{length}\r\nx-amzn-RequestId: injected\r\n\r\n"
    )
    return head.encode() + answer.body


def _chunks(parts: Iterator[bytes]) -> Iterator[bytes]:
    """The parts of an HTTP answer as its chunks."""
    try:
        for part in parts:
            yield b"%x\r\n%b\r\n" % (len(part), part)
    except Cut as cut:
        # A chunk that ends too early.
        raise Cut(b"%x\r\n%b" % (len(cut.sent) + 1, cut.sent) if cut.sent else b"") from None
    yield b"0\r\n\r\n"


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
            answer = self.owner._handle(operation, body, headers)
            self.wfile.write(as_http(answer))
            for chunk in _chunks(answer.parts) if answer.parts else ():
                self.wfile.write(chunk)
        except Cut as cut:
            if cut.sent:
                self.wfile.write(cut.sent)
                time.sleep(0.02)  # let the bytes leave: a reset may overtake them
            # Linger 0: close sends RST, the peer sees a connection that broke.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
        except OSError:
            # The server or the client is gone, so this connection is over.
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """No access log: `FaultProxy.calls` has more."""
