"""What a failed call leaves in the stream, as far as anybody can know: nothing if no connection was made."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from typing import Any

import botocore.exceptions
import pytest
from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession

from kpl_codec.aws_errors import _TABLE
from kpl_codec.producer import ProducerConfig
from kpl_codec.producer.answers import failure_of_call, outcome_of
from kpl_codec.producer.results import ACTIONS, MAY_BE_STORED

from ..every import every
from .skins import SKINS, call, new_producer, result_of

pytestmark = pytest.mark.requirement("PRD-36")


@contextlib.contextmanager
def closed() -> Iterator[int]:
    """A port that nobody listens on, and nobody else gets."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@contextlib.contextmanager
def resets() -> Iterator[int]:
    """A server that reads some of each request and resets the connection."""

    class Reset(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1)
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.request.close()

    with socketserver.TCPServer(("127.0.0.1", 0), Reset) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@SKINS
@pytest.mark.parametrize("server", [closed, resets])
def test_without_a_connection_nothing_can_be_stored_and_with_one_it_may_be(server: type, skin: str) -> None:
    config = ProducerConfig(record_ttl_ms=500, record_max_buffered_time_ms=0, request_timeout_ms=200)
    settings = {"region": "us-east-1", "access_key_id": "x", "secret_access_key": "x"}

    async def put(port: int) -> Any:
        endpoint = f"http://127.0.0.1:{port}"
        options: dict[str, Any] = {"client_settings": {**settings, "endpoint_url": endpoint}}
        async with contextlib.AsyncExitStack() as stack:
            if skin == "asyncio":  # with a client of aiobotocore, whose errors have other causes
                keys = {"region_name": "x", "aws_access_key_id": "x", "aws_secret_access_key": "x"}
                once = AioConfig(read_timeout=0.2, retries={"total_max_attempts": 1})
                made = AioSession().create_client("kinesis", endpoint_url=endpoint, config=once, **keys)
                options = {"client": await stack.enter_async_context(made)}
            producer = new_producer(skin, config=config, **options)
            await call(producer.start)
            error = await result_of(await call(producer.put, "k", b"data"), 30)
            await call(producer.close)
        return error

    with server() as port:
        error = asyncio.run(put(port))
    connected = server is not closed
    assert {attempt.outcome for attempt in error.attempts} == {"no-answer" if connected else "not-sent"}
    assert error.may_be_stored is connected
    if not connected:
        assert error.reason == "EndpointConnectionError"


def botocores_error(name: str) -> Exception:
    """That exception of botocore, with some text for each of its fields."""
    kind = getattr(botocore.exceptions, name)
    fields = collections.defaultdict(lambda: "x", error=ValueError("x"))
    error: Exception = kind.__new__(kind)
    Exception.__init__(error, "x")
    error.kwargs = fields  # type: ignore[attr-defined]
    return error


def answered(code: str, message: str = "", operation: str = "PutRecords") -> Exception:
    return botocore.exceptions.ClientError({"Error": {"Code": code, "Message": message}}, operation)


NOT_SENT = [
    botocores_error(code)
    for rule, _, codes in _TABLE
    for code in codes.split()
    if rule.producer == "not-sent" and hasattr(botocore.exceptions, code)
    if code != "EndpointConnectionError"  # this depends on its cause
]
NOT_STORED = [
    botocores_error("CredentialRetrievalError"),
    botocore.exceptions.SSLError(endpoint_url="https://x", error="[SSL: CERTIFICATE_VERIFY_FAILED]"),
    answered("InvalidSignatureException", "Signature expired: 20260204T205323Z is now earlier"),
    answered("InvalidSignatureException", "Signature not yet current: 20181017T093750Z is still later"),
    answered("ExpiredTokenException"),
    answered("RequestExpired"),
    answered("UnrecognizedClientException"),
    answered("AccessDenied", operation="AssumeRole"),
    answered("ResourceNotFoundException", operation="GetRoleCredentials"),
    answered("InternalFailure", operation="CreateToken"),
    answered("ValidationException", operation="SomeCallOfTomorrow"),
]


@every("error", [*NOT_SENT, *NOT_STORED])
def test_what_stored_nothing_is_tried_anew_and_says_so(error: Exception) -> None:
    failure, known = failure_of_call(error, "PutRecords")
    outcome = outcome_of(*failure, answered=known)
    assert outcome not in MAY_BE_STORED
    assert ACTIONS[outcome] == "back-off"


def test_what_may_be_stored_says_so() -> None:
    for rule, _, codes in _TABLE:
        for code in codes.split():
            if rule.producer == "no-answer" and hasattr(botocore.exceptions, code):
                known = failure_of_call(botocores_error(code), "PutRecords")[1]
                assert outcome_of(code, answered=known) == "no-answer"
    for unknown in (type("NewError", (botocore.exceptions.BotoCoreError,), {})(), OSError(), ValueError()):
        assert not failure_of_call(unknown, "PutRecords")[1]
    assert outcome_of(*failure_of_call(answered("NewCode"), "PutRecords")[0]) in MAY_BE_STORED
