"""A consumer of a queue on asyncio: aiobotocore with the model of 1.44, and boto3 in threads."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.session import AioSession

import kpl_codec as kpl
from kpl_codec.aws_lambda import Poison
from kpl_codec.queues import QueuesUnsupported, QueueUnavailable
from kpl_codec.queues.aio import process_queue_records

from .queue_model import client_of, loader_of, model_of
from .queue_service import QueueServer, QueueService, Rates, RealClock
from .test_threaded_consumer import aggregate

pytestmark = pytest.mark.asyncio


@pytest.fixture
def service(newest_boto3: Path) -> QueueService:
    return QueueService(model_of(newest_boto3), RealClock())


@asynccontextmanager
async def clients(service: QueueService, folder: Path, kind: str) -> AsyncIterator[Any]:
    with QueueServer(service) as url:
        if kind == "boto3":
            yield client_of(folder, url)
            return
        session = AioSession()
        session.register_component("data_loader", loader_of(folder))
        settings = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
        async with session.create_client("kinesis", endpoint_url=url, **settings) as client:
            yield client


@pytest.mark.parametrize("kind", ["aiobotocore", "boto3"])
@pytest.mark.requirement("QUE-2", "QUE-7")
async def test_in_order_within_aggregates_that_run_in_parallel(
    service: QueueService, newest_boto3: Path, kind: str
) -> None:
    queue = service.create()
    ids = [service.put("a", aggregate(number, 4)) for number in range(12)]
    events: list[tuple[str | None, int, str]] = []

    async def handle(record: kpl.DeaggregatedRecord) -> None:
        events.append((record.record_id, record.sub_sequence_number, "begin"))
        await asyncio.sleep(0.01)
        events.append((record.record_id, record.sub_sequence_number, "end"))

    async with clients(service, newest_boto3, kind) as client:
        counts = await process_queue_records(client, queue, handle, wait=1, drain=True)
    assert (counts.user_records, counts.acknowledged) == (48, 12)
    for record_id in ids:
        own = [event[1:] for event in events if event[0] == record_id]
        assert own == [(number, what) for number in range(4) for what in ("begin", "end")]
    running = peak = 0
    for *_, what in events:
        running += 1 if what == "begin" else -1
        peak = max(peak, running)
    assert peak == 10


@pytest.mark.requirement("QUE-5", "QUE-6", "QUE-8")
async def test_once_poison_and_visibility(service: QueueService, newest_boto3: Path) -> None:
    queue = service.create()
    service.put("a", aggregate(0, 5))
    store: set[str] = set()
    aside: list[Poison] = []
    calls: list[bytes] = []

    async def once(key: str, call: Callable[[], Awaitable[object]]) -> None:
        if key not in store:
            await call()
            store.add(key)

    async def handle(records: list[kpl.DeaggregatedRecord]) -> None:
        calls.extend(record.data for record in records)
        await asyncio.sleep(1.2)  # all together longer than the visibility
        if any(record.data == b"0.3" for record in records):
            raise ValueError("never")

    store.add(f"{queue}/r00000/1")
    async with clients(service, newest_boto3, "aiobotocore") as client:
        counts = await process_queue_records(
            client, queue, handle, wait=1, drain=True, visibility=2, once=once, batch=2, poison_after=1,
            on_poison=aside.append,
        )  # fmt: skip
    assert sorted(calls) == [b"0.0", b"0.2", b"0.3", b"0.4"]
    assert (counts.kinesis_records, counts.acknowledged, counts.put_aside, counts.skipped) == (1, 1, 1, 1)
    assert [poison.user_record.data for poison in aside if poison.user_record] == [b"0.3"]
    assert service.calls.count("UpdateQueueRecordsVisibility") >= 4


@pytest.mark.requirement("QUE-4", "QUE-9", "QUE-11")
async def test_refusals_and_sigterm(service: QueueService, newest_boto3: Path) -> None:
    queue = service.create()
    for number in range(8):
        service.put("a", aggregate(number, 2))
    handled: list[str | None] = []

    async def handle(record: kpl.DeaggregatedRecord) -> None:
        handled.append(record.record_id)
        if len(handled) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.05)

    before = signal.getsignal(signal.SIGTERM)
    async with clients(service, newest_boto3, "aiobotocore") as client:
        service.rates = Rates(entries=0.3)
        one, other = await asyncio.gather(
            process_queue_records(client, queue, handle, wait=1, concurrency=1),
            process_queue_records(client, queue, handle, wait=1, concurrency=1),
        )
        assert signal.getsignal(signal.SIGTERM) == before
        counts = [one, other]
        begun = len(set(handled))
        assert begun <= 2
        assert sum(c.acknowledged + c.not_acknowledged for c in counts) == begun
        assert sum(c.given_back for c in counts) >= 8 - begun  # the other one may get them, too
        service.rates = Rates()
        with pytest.raises(QueueUnavailable, match="ResourceNotFoundException"):
            await process_queue_records(client, queue + "0", handle, wait=1)


@pytest.mark.requirement("QUE-10")
async def test_todays_aiobotocore_is_refused_by_name(service: QueueService) -> None:
    settings = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    async with AioSession().create_client("kinesis", **settings) as client:
        with pytest.raises(QueuesUnsupported, match=r"botocore 1\.44"):
            await process_queue_records(client, service.create(), print)  # type: ignore[arg-type]
