"""Processes that end, each in its own way, with producers that nobody has closed. Real processes."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

from kpl_codec.aws import Producer, ProducerThreads
from kpl_codec.producer import Delivery, ProducerConfig

from .model_client import ModelClient

pytestmark = [pytest.mark.timeout(60), pytest.mark.requirement("PRD-61")]

#: Writes into a file what is put; the first call takes so long that a process which does not wait has ended.
PROGRAM = """
import os, sys, threading, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from kpl_codec.aws import Producer
from kpl_codec.producer import ProducerConfig
from tests.aws.model_client import ModelClient

class Client(ModelClient):
    def put_records(self, *, Records, **_):
        time.sleep(0.1)
        with open(sys.argv[1], "ab") as file:
            for record in Records:
                file.write(record["Data"])
        return super().put_records(Records=Records)

def put(end="return"):
    producer = Producer("s", client=Client(), config=ProducerConfig(aggregation_enabled=False))
    for number in range(7):
        producer.put("k", b"%d" % number)
    if end == "raise":
        raise ZeroDivisionError
    if end == "exit":
        sys.exit(3)
    if end == "drop":
        del producer

def program(how, end):
    if how == "itself":
        put(end)
    elif how == "thread":
        thread = threading.Thread(target=lambda: (time.sleep(0.1), put(end)))
        thread.start()
    elif how == "os.fork":
        if os.fork():
            os.wait()
        else:
            put(end)
    elif how == "pool":
        with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
            pool.submit(put, end).result()
    elif how == "nested":
        process = get_context("fork").Process(target=program, args=("fork", end))
        process.start()
        process.join()
    else:
        process = get_context(how).Process(target=put, args=(end,))
        process.start()
        process.join()

if __name__ == "__main__":
    program(sys.argv[2], sys.argv[3])
"""
WAYS = ["itself", "thread", "os.fork", "pool", "nested", *multiprocessing.get_all_start_methods()]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a fork is what is tested: this system has none")
@pytest.mark.parametrize(
    ("how", "end"),
    [(how, "return") for how in WAYS]
    + [(how, end) for how in ("itself", "fork") for end in ("exit", "raise", "drop")],
)
def test_what_was_accepted_is_delivered(how: str, end: str, tmp_path: Path) -> None:
    program, delivered = tmp_path / "program.py", tmp_path / "delivered"
    program.write_text(PROGRAM)
    here = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    subprocess.run(
        [sys.executable, str(program), str(delivered), how, end], timeout=50, check=False, env=here, stderr=-3
    )
    assert sorted(delivered.read_bytes()) == list(b"0123456")  # calls side by side end in any order


def _client_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("kpl-codec")]


def test_producers_that_are_dropped_deliver_and_are_freed() -> None:
    client = ModelClient(latency=0.05)
    config = ProducerConfig(record_max_buffered_time_ms=5)
    threads = ProducerThreads()
    futures: list[Any] = []
    references: list[weakref.ref[Any]] = []
    before = len(_client_threads())
    for number in range(20):
        shared: Any = {"threads": threads} if number % 2 else {}
        producer = Producer("s", client=client, config=config, **shared)
        futures += [producer.put("k", b"%d" % number) for _ in range(3)]
        references += [weakref.ref(producer), weakref.ref(producer._core)]
        del producer
    assert all(isinstance(future.result(20), Delivery) for future in futures)
    assert sum(client.stream.delivered().values()) == 60
    until = time.monotonic() + 20
    while len(_client_threads()) > before and time.monotonic() < until:
        time.sleep(0.005)
    gc.collect()
    assert len(_client_threads()) <= before
    assert [reference for reference in references if reference() is not None] == []


def test_the_first_put_may_come_after_the_main_thread_has_ended(tmp_path: Path) -> None:
    """boto3 cannot be imported then."""
    program = """
import threading
from kpl_codec.aws import Producer
from kpl_codec.producer import ProducerConfig

settings = {
    "endpoint_url": "http://127.0.0.1:9", "region_name": "us-east-1",
    "aws_access_key_id": "x", "aws_secret_access_key": "x",
}
producer = Producer("s", client_settings=settings, config=ProducerConfig(record_ttl_ms=300))

def put():
    threading.main_thread().join()
    print(producer.put("k", b"x").exception(20))

threading.Thread(target=put).start()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)
    assert "expired (EndpointConnectionError)" in done.stdout, done.stderr
