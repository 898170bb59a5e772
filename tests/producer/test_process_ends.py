"""Processes that end, each in its own way, with producers that nobody has closed. Real processes."""

from __future__ import annotations

import gc
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from kpl_codec.producer import Delivery, Producer, ProducerConfig
from kpl_codec.testing.local_kinesis import LocalKinesis

from .model_client import ModelClient
from .skins import NO_THREADS_AT_THE_END

pytestmark = pytest.mark.requirement("PRD-61")


def _client_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("kpl-codec")]


def test_producers_that_are_dropped_deliver_and_are_freed() -> None:
    client = ModelClient(latency=0.05)
    config = ProducerConfig(record_max_buffered_time_ms=5)
    futures: list[Any] = []
    references: list[weakref.ref[Any]] = []
    before = len(_client_threads())
    for number in range(20):
        producer = Producer("s", client=client, config=config).start()
        futures += [producer.put("k", b"%d" % number) for _ in range(3)]
        references += [weakref.ref(producer), weakref.ref(producer._core)]
        del producer
    assert all(isinstance(future.result(60), Delivery) for future in futures)
    assert sum(client.stream.delivered().values()) == 60
    until = time.monotonic() + 60
    while len(_client_threads()) > before and time.monotonic() < until:
        time.sleep(0.005)
    gc.collect()
    assert len(_client_threads()) <= before
    assert [reference for reference in references if reference() is not None] == []


@NO_THREADS_AT_THE_END
def test_the_start_may_come_after_the_main_thread_has_ended(tmp_path: Path) -> None:
    """boto3 cannot be imported then."""
    program = """
import threading
from kpl_codec.producer import Producer
from kpl_codec.producer import ProducerConfig

settings = {
    "endpoint_url": "http://127.0.0.1:9", "region": "us-east-1",
    "access_key_id": "x", "secret_access_key": "x",
}
producer = Producer("s", client_settings=settings, config=ProducerConfig(record_ttl_ms=300))

def put():
    threading.main_thread().join()
    print(producer.start().put("k", b"x").exception(60))

threading.Thread(target=put).start()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert "expired (EndpointConnectionError: Could not connect" in done.stdout, done.stderr


HANGS = """
import logging, sys, threading, time
logging.basicConfig(stream=sys.stdout, format="%(message)s")
from botocore.exceptions import ClientError
from kpl_codec.producer import Producer
from tests.producer.model_client import ModelClient

def refuse(operation, answer):
    if operation == "PutRecords":
        raise ClientError({"Error": {"Code": "AccessDeniedException"}}, operation)
    return answer

called = threading.Event()

def hang(_):
    called.set()
    threading.Event().wait()

what = sys.argv[1]
hook = {"on_undelivered": hang} if what == "on_undelivered" else {}
producer = Producer("s", client=ModelClient(spoil=refuse), exit_timeout=0.5, **hook).start()
future = producer.put("k", b"x")
if what == "callback":
    future.add_done_callback(hang)
called.wait()
if sys.argv[2] == "close":
    print(producer.close(0.1))
"""


@pytest.mark.requirement("PRD-73")
@pytest.mark.parametrize("what", ["on_undelivered", "callback"])
@pytest.mark.parametrize("how", ["exit", "close"])
def test_what_never_returns_keeps_no_process(what: str, how: str) -> None:
    here = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    program = [sys.executable, "-c", HANGS, what, how]
    done = subprocess.run(program, capture_output=True, text=True, timeout=100, env=here, check=True)
    told = "1 user record without a result: the process ends" in done.stdout
    assert told is (what == "on_undelivered")  # (with a callback they have)
    assert ("False" in done.stdout) is (how == "close")


ENDS = """
import asyncio, os, signal, sys
from botocore.exceptions import EndpointConnectionError
from kpl_codec.producer import AsyncProducer, Producer, ProducerConfig
from tests.producer.model_client import AsyncModelClient, ModelClient

def nobody(operation, answer):
    if operation == "PutRecords":
        raise EndpointConnectionError(endpoint_url="http://nowhere")
    return answer

how, ttl, exit_timeout = sys.argv[1], int(sys.argv[2]), eval(sys.argv[3])
hook = lambda error: print(error.outcome, flush=True)
options = {"config": ProducerConfig(record_ttl_ms=ttl), "on_undelivered": hook}

async def loop():
    producer = AsyncProducer("s", client=AsyncModelClient(ModelClient(spoil=nobody)), **options)
    await (await producer.start()).put("k", b"x")

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
if how == "loop":
    asyncio.run(loop())
else:
    producer = Producer("s", client=ModelClient(spoil=nobody), exit_timeout=exit_timeout, **options)
    producer.start()
    producer.put("k", b"x")
    if how == "block":
        with producer:
            pass
    elif how == "close":
        producer.close()
    elif how == "SIGTERM":
        os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.requirement("PRD-90")
@pytest.mark.parametrize(
    ("ttl", "exit_timeout", "outcome"),
    [(400, None, "expired"), (60_000, 0.2, "closed")],
    ids=["until-all-have-results", "exit-timeout"],
)
@pytest.mark.parametrize("how", ["block", "close", "exit", "SIGTERM", "loop"])
def test_whatever_ends_a_producer_waits_equally_long(
    how: str, ttl: int, exit_timeout: float | None, outcome: str
) -> None:
    if how == "loop" and exit_timeout is not None:
        pytest.skip("AsyncProducer has no exit_timeout")
    here = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    program = [sys.executable, "-c", ENDS, how, str(ttl), repr(exit_timeout)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=100, env=here)
    assert done.stdout == f"{outcome}\n", done.stderr
    assert done.returncode == (143 if how == "SIGTERM" else 0)


FIRST_CALL = """
import sys
from kpl_codec.producer import Producer

producer = Producer("s", client_settings=eval(sys.argv[1]))
before = set(sys.modules)
outcome = producer.start().put("k", b"x").result(60).attempts[-1].outcome
producer.close()
print(outcome, sorted(set(sys.modules) - before))
"""


@pytest.mark.server
@pytest.mark.requirement("PRD-74")
@pytest.mark.parametrize(
    ("scheme", "credentials"), [("http", "default"), ("http", "from a process"), ("https", "given")]
)
def test_a_first_call_loads_nothing(
    scheme: str, credentials: str, kinesis_local: LocalKinesis, stream: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = dict(kinesis_local.client_settings)
    environment = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
    if credentials != "given":
        keys = {name: settings.pop(name) for name in list(settings) if name.startswith("aws_")}
        environment["AWS_CONFIG_FILE"] = str(tmp_path / "config")
        if credentials == "default":
            environment |= {name.upper(): text for name, text in keys.items()}
        else:
            answer = {"Version": 1, "AccessKeyId": "x", "SecretAccessKey": "x"}
            (tmp_path / "config").write_text(f"[default]\ncredential_process = echo '{json.dumps(answer)}'\n")
    with ExitStack() as stack:
        if scheme == "https":
            settings |= stack.enter_context(over_tls(settings["endpoint_url"], tmp_path))
        program = [sys.executable, "-c", FIRST_CALL.replace('"s"', repr(stream)), repr(settings)]
        done = subprocess.run(program, capture_output=True, text=True, timeout=100, env=environment)
    assert done.stdout == "delivered []\n", done.stderr


@contextmanager
def over_tls(endpoint_url: str, folder: Path) -> Iterator[dict[str, str]]:
    """Settings for a server in front of ``endpoint_url`` that speaks TLS."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl, to make a certificate")
    new = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    new += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(new, check=True, capture_output=True, timeout=100)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    url = urlsplit(endpoint_url)

    def forward(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(2**16):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        with suppress(OSError):
            while True:
                caller = context.wrap_socket(listening.accept()[0], server_side=True)
                server = socket.create_connection((url.hostname, url.port))
                for pair in ((caller, server), (server, caller)):
                    threading.Thread(target=forward, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        port = listening.getsockname()[1]
        yield {"endpoint_url": f"https://localhost:{port}", "verify": str(certificate)}
