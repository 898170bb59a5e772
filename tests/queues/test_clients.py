"""A consumer with real clients, over HTTP: boto3 and aiobotocore, and boto3 1.44 itself."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import boto3
import pytest
from aiobotocore.session import AioSession

import kpl_codec as kpl
from kpl_codec.adapters import kinesis_records
from kpl_codec.queues import QueuesUnsupported, aio, find_queue, process_queue_records

from .bench import aggregate
from .queue_model import client_of, loader_of, model_of
from .queue_service import NEVER, QueueServer, QueueService, Rates, RealClock

SETTINGS = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}


@pytest.fixture
def service(newest_boto3: Path) -> QueueService:
    return QueueService(model_of(newest_boto3), RealClock())


#: Run with boto3 1.44 itself, which is then the only boto3 there.
_PROGRAM = """
import sys, boto3, botocore
from kpl_codec.queues import process_queue_records
assert botocore.__version__ == "1.44.5", botocore.__version__
client = boto3.client("kinesis", endpoint_url=sys.argv[1], region_name="us-east-1")
print("ready", flush=True)
handle = lambda record: print(record.data.decode(), flush=True)
counts = process_queue_records(client, sys.argv[2], handle, poll_wait=1)
print(counts.user_records, counts.acknowledged, flush=True)
"""


@pytest.mark.requirement("QUE-9")
def test_with_boto3_1_44_until_sigterm(service: QueueService, newest_boto3: Path) -> None:
    queue = service.create()
    for number in range(3):
        service.put("a", aggregate(number))
    path = os.pathsep.join([str(newest_boto3), str(Path(kpl.__file__).parents[1])])
    with QueueServer(service) as url:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, url, queue],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(10)]
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
    assert lines[0] == "ready"
    assert sorted(lines[1:]) == sorted(f"{n}.{i}" for n in range(3) for i in range(3))
    assert rest.split() == ["9", "3"]
    assert process.returncode == 0


_FORKS = """
import os, signal, sys, time
from kpl_codec.queues.threaded_consumer import stop_on_sigterm
ready, begin = os.pipe()
with stop_on_sigterm(lambda: print("stop")):
    child = os.fork()
    if not child:
        os.write(begin, b"x")
        time.sleep(60)
        os._exit(0)
    os.read(ready, 1)
    os.kill(child, signal.SIGTERM)
    sys.exit(os.WTERMSIG(os.waitpid(child, 0)[1]) != signal.SIGTERM)
"""


def test_sigterm_ends_a_process_that_a_handler_forks() -> None:
    """Else `multiprocessing.Pool.terminate` in a handler would wait for ever."""
    subprocess.run([sys.executable, "-c", _FORKS], check=True)


@pytest.mark.requirement("QUE-1", "QUE-5")
def test_boto3_in_a_thread(service: QueueService, newest_boto3: Path) -> None:
    """In real time: a handler that takes longer than the visibility; another consumer gets nothing."""
    queue = [service.create(name) for name in ("another", "orders-queue")][1]
    service.put("a", aggregate(0, 1))
    others: list[Any] = []
    with QueueServer(service) as url:
        client = client_of(newest_boto3, url)

        def handle(record: kpl.DeaggregatedRecord) -> None:
            response = client.receive_queue_records(QueueARN=queue, WaitTimeSeconds=4)
            others.extend(response["QueueRecords"])

        assert find_queue(client, "orders-queue") == queue
        counts = process_queue_records(client, queue, handle, visibility=3, poll_wait=1, drain=True)
        assert (counts.acknowledged, others) == (1, [])
        assert service.calls.count("UpdateQueueRecordsVisibility") >= 2
        service.put("a", aggregate(1))
        (record,) = kinesis_records(client.receive_queue_records(QueueARN=queue))
        assert (record.record_id, record.sequence_number, record.shard_id) == ("r00001", None, None)
        with pytest.raises(TypeError, match="shard_map"):
            process_queue_records(client, queue, print, shard_map=None)  # type: ignore[call-arg]


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["aiobotocore", "boto3"])
@pytest.mark.requirement("QUE-4", "QUE-9")
async def test_on_asyncio_two_consumers_until_sigterm(
    service: QueueService, newest_boto3: Path, kind: str
) -> None:
    queue = service.create()
    for number in range(8):
        service.put("a", aggregate(number, 2))
    handled: list[str | None] = []

    async def handle(record: kpl.DeaggregatedRecord) -> None:
        handled.append(record.record_id)
        if len(handled) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.05)

    threads: dict[str, set[int]] = {}

    async def consume(client: Any) -> None:
        client.meta.events.register(
            "before-call.kinesis",
            lambda model, **_: threads.setdefault(model.name, set()).add(threading.get_ident()),
        )
        service.rates = Rates(entries=0.3)
        calls = (
            aio.process_queue_records(client, queue, handle, poll_wait=1, concurrency=1) for _ in range(2)
        )
        counts = await asyncio.gather(*calls)
        begun = len(set(handled))
        assert begun <= 2
        assert sum(c.acknowledged + c.not_acknowledged for c in counts) == begun
        assert sum(c.given_back for c in counts) >= 8 - begun  # the other one may get them, too
        service.rates = NEVER

    before = signal.getsignal(signal.SIGTERM)
    with QueueServer(service) as url:
        if kind == "boto3":
            await consume(client_of(newest_boto3, url))
            assert "AcknowledgeQueueRecords" in threads
            assert all(threading.get_ident() not in idents for idents in threads.values()), "the loop waits"
        else:
            session = AioSession()
            session.register_component("data_loader", loader_of(newest_boto3))
            async with session.create_client("kinesis", endpoint_url=url, **SETTINGS) as client:
                await consume(client)
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.asyncio
@pytest.mark.requirement("QUE-10")
async def test_older_clients_are_refused_with_their_version() -> None:
    arn = "arn:aws:kinesis:us-east-1:123456789012:queue/q"
    old = boto3.client("kinesis", **SETTINGS)
    for use in (lambda: process_queue_records(old, arn, print), lambda: find_queue(old, "orders")):
        with pytest.raises(QueuesUnsupported, match=r"botocore 1\.44, and this is 1\.4"):
            use()
    async with AioSession().create_client("kinesis", **SETTINGS) as client:
        with pytest.raises(QueuesUnsupported, match=r"botocore 1\.44"):
            await aio.process_queue_records(client, arn, print)  # type: ignore[arg-type]
