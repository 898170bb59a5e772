"""What a failed call leaves in the stream, as far as anybody can know: nothing if no connection was made."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from kpl_codec.aws import AsyncProducer, Producer
from kpl_codec.producer import DeliveryError, ProducerConfig

pytestmark = [pytest.mark.timeout(60), pytest.mark.requirement("PRD-36")]


@contextlib.contextmanager
def closed() -> Iterator[int]:
    """A port that nobody listens on, and nobody else gets."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@contextlib.contextmanager
def hangs() -> Iterator[int]:
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@contextlib.contextmanager
def resets() -> Iterator[int]:
    """A server that reads some of each request and resets the connection."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection:
                    connection.recv(1)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def failure(asynchronous: bool, port: int) -> DeliveryError:
    config = ProducerConfig(record_ttl_ms=1500, record_max_buffered_time_ms=0, request_timeout_ms=200)
    settings = {
        "endpoint_url": f"http://127.0.0.1:{port}",
        "region_name": "us-east-1",
        "aws_access_key_id": "x",
        "aws_secret_access_key": "x",
    }
    if asynchronous:

        async def put() -> BaseException | None:
            async with AsyncProducer("s", config=config, client_settings=settings) as producer:
                future = await producer.put("k", b"data")
                await asyncio.wait([future])
            return future.exception()

        error = asyncio.run(put())
    else:
        with Producer("s", config=config, client_settings=settings) as producer:
            error = producer.put("k", b"data").exception(30)
    assert isinstance(error, DeliveryError)
    return error


@pytest.mark.parametrize("asynchronous", [False, True], ids=["boto3", "aiobotocore"])
def test_without_a_connection_nothing_can_be_stored(asynchronous: bool) -> None:
    with closed() as port:
        error = failure(asynchronous, port)
    assert {attempt.outcome for attempt in error.attempts} == {"not-sent"}
    assert error.reason == "EndpointConnectionError"
    assert not error.may_be_stored


@pytest.mark.parametrize("asynchronous", [False, True], ids=["boto3", "aiobotocore"])
@pytest.mark.parametrize("server", [hangs, resets])
def test_with_one_it_may_be(server: type, asynchronous: bool) -> None:
    with server() as port:
        error = failure(asynchronous, port)
    assert {attempt.outcome for attempt in error.attempts} == {"no-answer"}
    assert error.may_be_stored
