"""The asyncio producer on a real local Kinesis: the same promises as the thread one."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from typing import Any

import pytest

from kpl_codec.aws import AsyncProducer, Producer
from kpl_codec.producer import (
    Delivery,
    DeliveryError,
    Outcome,
    ProducerClosed,
    ProducerConfig,
    ProducerFull,
)
from kpl_codec.testing.faults import FaultProxy, cut_answer, lose_answer, server_error, slow, throttle
from kpl_codec.testing.local_kinesis import LocalKinesis

from .test_producer import PATIENT, delivered, through

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]


@pytest.mark.requirement("PRD-10", "PRD-21", "PRD-23")
def test_every_kind_of_fault_at_once_loses_nothing(
    kinesis_local: LocalKinesis, stream: str, proxy: FaultProxy
) -> None:
    for fault in (lose_answer(), cut_answer(0.5), throttle(), server_error()):
        proxy.on("PutRecords", fault, rate=0.12)

    async def main() -> list[Delivery]:
        config = ProducerConfig(record_max_buffered_time=10, aggregation_max_size=300, **PATIENT)
        async with AsyncProducer(
            stream, config=config, client_settings=through(kinesis_local, proxy)
        ) as producer:
            futures = [await producer.put(f"key-{n % 50}", b"%05d" % n) for n in range(500)]
            assert await producer.flush(60)
            return [future.result() for future in futures]

    assert len(asyncio.run(main())) == 500
    assert set(delivered(kinesis_local, stream)) == {b"%05d" % n for n in range(500)}


@pytest.mark.requirement("PRD-7", "PRD-9")
def test_back_pressure_and_close(kinesis_local: LocalKinesis, stream: str, proxy: FaultProxy) -> None:
    proxy.on("PutRecords", slow(0.2))
    settings = through(kinesis_local, proxy)
    few: dict[str, Any] = {"max_outstanding_records": 10, "record_max_buffered_time": 5}

    async def main() -> None:
        async with AsyncProducer(
            stream, config=ProducerConfig(when_full="fail", **few), client_settings=settings
        ) as producer:
            futures = [await producer.put("k", b"x") for _ in range(10)]
            with pytest.raises(ProducerFull):
                await producer.put("k", b"one more")
        assert all(future.result() for future in futures)
        with pytest.raises(ProducerClosed):
            await producer.put("k", b"x")

        async with AsyncProducer(
            stream, config=ProducerConfig(when_full="drop", **few), client_settings=settings
        ) as producer:
            futures = [await producer.put("k", b"x") for _ in range(11)]
            dropped = futures.pop().exception()
        assert isinstance(dropped, DeliveryError)
        assert dropped.outcome is Outcome.DROPPED

        async with AsyncProducer(stream, config=ProducerConfig(**few), client_settings=settings) as producer:
            most = 0
            for _ in range(15):
                await producer.put("k", b"x")
                most = max(most, producer.outstanding)
            assert most <= 10

        proxy.on("PutRecords", throttle())
        producer = AsyncProducer(stream, client_settings=settings)
        await producer.__aenter__()
        proxy.clear()
        proxy.on("PutRecords", throttle())
        futures = [await producer.put("k", b"x") for _ in range(5)]
        started = time.monotonic()
        assert await producer.close(timeout=0.3) is False
        assert time.monotonic() - started < 5
        assert {future.exception().outcome for future in futures} == {Outcome.CLOSED}  # type: ignore[union-attr]

    asyncio.run(main())


def test_a_cancelled_wait_does_not_take_the_record_back(kinesis_local: LocalKinesis, stream: str) -> None:
    async def main() -> None:
        async with AsyncProducer(stream, client_settings=kinesis_local.client_settings) as producer:
            future = await producer.put("k", b"wanted all the same")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(future, 0.001)
            await producer.flush()

    asyncio.run(main())
    assert delivered(kinesis_local, stream) == {b"wanted all the same": 1}


def test_a_cancelled_close_still_gives_every_future_its_result(
    kinesis_local: LocalKinesis, stream: str, proxy: FaultProxy
) -> None:
    proxy.on("PutRecords", throttle())

    async def main() -> None:
        producer = await AsyncProducer(stream, client_settings=through(kinesis_local, proxy)).__aenter__()
        futures = [await producer.put("k", b"x") for _ in range(5)]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(producer.close(), 0.3)
        assert all(isinstance(future.exception(), DeliveryError) for future in futures)

    asyncio.run(main())


@pytest.mark.requirement("PRD-9")
def test_one_that_was_never_closed_tells_what_it_had_left(
    kinesis_local: LocalKinesis, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        waits = ProducerConfig(record_max_buffered_time=20_000)  # longer than the test takes, on any machine
        settings = kinesis_local.client_settings
        producer = await AsyncProducer(stream, config=waits, client_settings=settings).__aenter__()
        for number in range(50):
            await producer.put(f"key-{number}", b"x")

    asyncio.run(main())
    gc.collect()
    (line,) = [record for record in caplog.records if record.name == "kpl_codec.producer"]
    assert line.getMessage() == "50 user records not delivered: the producer was never closed"


@pytest.mark.requirement("PRD-10")
def test_an_expired_record_says_what_kept_it(caplog: pytest.LogCaptureFixture) -> None:
    nowhere = {
        "endpoint_url": "http://127.0.0.1:9",
        "region_name": "us-east-1",
        "aws_access_key_id": "none",
        "aws_secret_access_key": "none",
    }

    async def main() -> None:
        config = ProducerConfig(record_ttl=700)
        async with AsyncProducer("orders", config=config, client_settings=nowhere) as producer:
            future = await producer.put("key", b"x")
        with pytest.raises(DeliveryError, match=r"expired \(EndpointConnectionError\) after"):
            await future

    asyncio.run(main())
    assert "1 user records not delivered: expired (EndpointConnectionError)" in caplog.text


@pytest.mark.requirement("PRD-35")
@pytest.mark.parametrize("skin", ["threads", "asyncio"])
def test_measuring_that_fails_costs_no_record(
    kinesis_local: LocalKinesis, stream: str, caplog: pytest.LogCaptureFixture, skin: str
) -> None:
    def observe(name: str, value: float, attributes: Any) -> None:
        raise OSError("the collector is down")

    settings = {"client_settings": kinesis_local.client_settings, "observe": observe}
    if skin == "threads":
        with Producer(stream, **settings) as producer:
            futures = [producer.put(f"key-{number}", b"%d" % number) for number in range(50)]
        assert all(future.result(0).shard_id for future in futures)
    else:

        async def main() -> None:
            async with AsyncProducer(stream, **settings) as producer:
                waiting = [await producer.put(f"key-{number}", b"%d" % number) for number in range(50)]
            assert all([(await future).shard_id for future in waiting])

        asyncio.run(main())
    assert delivered(kinesis_local, stream) == Counter({b"%d" % number: 1 for number in range(50)})
    assert caplog.text.count("observe failed") == 1
