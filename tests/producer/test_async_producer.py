"""The asyncio producer on a real local Kinesis: the same promises as the thread one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kpl_codec import schema_registry
from kpl_codec.producer import AsyncProducer, Delivery, DeliveryError, ProducerClosed, ProducerConfig
from kpl_codec.testing.faults import FaultProxy, cut_answer, error, lose_answer, throttle
from kpl_codec.testing.local_kinesis import LocalKinesis

from .test_threaded_producer import PATIENT, delivered, through

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]


@pytest.mark.requirement("PRD-10", "PRD-21", "PRD-23")
def test_every_kind_of_fault_at_once_loses_nothing(
    kinesis_local: LocalKinesis, stream: str, proxy: FaultProxy
) -> None:
    for fault in (lose_answer(), cut_answer(0.5), throttle(), error("InternalFailure", status=500)):
        proxy.on("PutRecords", fault, rate=0.12)

    async def main() -> list[Delivery]:
        config = ProducerConfig(record_max_buffered_time_ms=10, aggregation_max_size=300, **PATIENT)
        async with AsyncProducer(
            stream, config=config, client_settings=through(kinesis_local, proxy)
        ) as producer:
            futures = [await producer.put(f"key-{n % 50}", b"%05d" % n) for n in range(500)]
            assert await producer.flush(60)
            return [future.result() for future in futures]

    assert len(asyncio.run(main())) == 500
    assert set(delivered(kinesis_local, stream)) == {b"%05d" % n for n in range(500)}


def test_a_cancelled_wait_does_not_take_the_record_back(kinesis_local: LocalKinesis, stream: str) -> None:
    async def main() -> None:
        async with AsyncProducer(stream, client_settings=kinesis_local.client_settings) as producer:
            future = await producer.put("k", b"wanted all the same")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(future, 0.001)
            await producer.flush()

    asyncio.run(main())
    assert delivered(kinesis_local, stream) == {b"wanted all the same": 1}


@pytest.mark.requirement("GSR-8")
def test_a_put_with_a_schema_is_framed(kinesis_local: LocalKinesis, stream: str) -> None:
    version = "b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63"

    async def main() -> None:
        async with AsyncProducer(stream, client_settings=kinesis_local.client_settings) as producer:
            await producer.put("k", b"payload", schema=version)
            await producer.flush()

    asyncio.run(main())
    assert delivered(kinesis_local, stream) == {schema_registry.frame(b"payload", version): 1}


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


def test_closing_while_the_first_put_makes_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    from aiobotocore.session import ClientCreatorContext

    entered = ClientCreatorContext.__aenter__
    closing, exits = asyncio.Event(), []

    async def enter(self: Any) -> Any:
        await closing.wait()
        return await entered(self)

    async def leave(self: Any, *_: object) -> None:
        exits.append(self)

    monkeypatch.setattr(ClientCreatorContext, "__aenter__", enter)
    monkeypatch.setattr(ClientCreatorContext, "__aexit__", leave)

    async def main() -> None:
        producer = AsyncProducer("s", client_settings={"region_name": "eu-west-1"})
        put = asyncio.create_task(producer.put("k", b"x"))
        await asyncio.sleep(0)
        close = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        closing.set()
        assert await close
        with pytest.raises(ProducerClosed):
            await put
        assert len(exits) == 1  # its client is closed, too

    asyncio.run(main())


def test_a_client_that_cannot_be_made_is_told_and_closing_hides_nothing() -> None:
    async def main() -> None:
        producer = AsyncProducer("s", client_settings={"region_name": "eu-west-1", "endpoint_url": "::bad"})
        with pytest.raises(ValueError, match="Invalid endpoint"):
            await producer.put("k", b"x")
        assert await producer.close()

    asyncio.run(main())
