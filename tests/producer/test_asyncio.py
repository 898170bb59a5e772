"""What only the producer with asyncio has: loops that end, cancelled tasks, futures that nobody visits."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
import time
import weakref
from typing import Any

import pytest

from kpl_codec import deaggregate
from kpl_codec.producer import (
    AsyncProducer,
    Delivery,
    DeliveryError,
    ProducerClosed,
    ProducerConfig,
    WouldDeadlock,
    async_producer,
    driver,
    process,
    threads,
)
from kpl_codec.producer.driver import Driver

from .model_client import AsyncModelClient, ModelClient
from .skins import Caller, call, refuse


@pytest.mark.requirement("PRD-75")
@pytest.mark.parametrize("method", ["put", "flush", "wait_ready", "close", "start", "__aenter__"])
@pytest.mark.parametrize("first", ["rests", "has ended", "was closed"])
def test_in_another_event_loop_every_method_raises_at_once(method: str, first: str) -> None:
    """Module-global producers meet a new loop with each asyncio.run: of an invocation, a task, a test."""
    config = ProducerConfig(max_outstanding_records=1, record_max_buffered_time_ms=20_000)
    producer = AsyncProducer("s", client=ModelClient(), config=config)

    async def use() -> Any:
        return await call(getattr(producer, method), *["k", b"x"] if method == "put" else [])

    async def put() -> None:
        await producer.start()
        await producer.put("k", b"x")  # now it is full

    loop = asyncio.new_event_loop()
    loop.run_until_complete(put())
    if first != "rests":
        loop.run_until_complete(loop.shutdown_asyncgens() if first == "has ended" else asyncio.sleep(0))
        loop.close()
    if method == "close" and first == "has ended":
        assert asyncio.run(use())
    else:
        with pytest.raises(ProducerClosed, match="event loop") as raised:
            asyncio.run(asyncio.wait_for(use(), 60))
        assert raised.value.code == "loop-ended"
    if first == "rests":
        assert loop.run_until_complete(producer.close())
        loop.close()


def test_tasks_that_wait_for_room_are_let_in_in_order() -> None:
    async def main() -> list[bytes]:
        client = ModelClient(1)
        config = ProducerConfig(record_max_buffered_time_ms=0, max_outstanding_records=10, max_connections=1)
        async with AsyncProducer("s", client=client, config=config) as producer:
            tasks = [asyncio.create_task(producer.put("k", b"%04d" % n)) for n in range(500)]
            await asyncio.sleep(0)
            tasks[20].cancel()
            futures = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(futures.pop(20), asyncio.CancelledError)
            await producer.flush()
            assert all(isinstance(future.result(), Delivery) for future in futures)
        return [one.data for one in deaggregate(client.stream.stored)]

    assert asyncio.run(main()) == [b"%04d" % n for n in range(500) if n != 20]


@pytest.mark.requirement("PRD-46")
def test_putting_in_a_loop_keeps_neither_the_thread_nor_other_tasks_from_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = itertools.count()
    # Every look at the clock takes 0.1 ms: time does not depend on the machine.
    monkeypatch.setattr(Driver, "clock", staticmethod(lambda: next(ticks) / 10_000))
    monkeypatch.setattr(async_producer, "CROWD", 100)
    monkeypatch.setattr(async_producer, "CROWD_WAIT", 60.0)
    monkeypatch.setattr(driver, "CROWD", 100)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def main() -> None:
        async with AsyncProducer("s", client=ModelClient()) as producer:
            other = asyncio.create_task(count_turns())
            puts = 0  # since the other task ran
            for n in range(2000):
                before = turns
                await producer.put(f"k{n % 9}", b"%d" % n)
                puts = puts + 1 if turns == before else 0
                assert puts <= 10  # of 0.1 ms each
                assert len(producer._mailbox.inbox) <= 100
            other.cancel()

    asyncio.run(main())


def test_a_task_that_keeps_the_loop_busy_does_not_keep_user_records_from_being_sent() -> None:
    async def main() -> None:
        client = ModelClient()
        async with AsyncProducer("s", client=client) as producer:
            future = await producer.put("k", b"x")
            until = time.monotonic() + 60
            while not client.stream.stored and time.monotonic() < until:
                time.sleep(0.001)
            assert client.stream.stored
            assert not future.done()
            await producer.flush()
            assert future.done()

    asyncio.run(main())


@pytest.mark.requirement("PRD-64", "PRD-75")
@pytest.mark.parametrize("closed_first", ["producer", "loop"])
def test_a_client_and_a_callback_of_asyncio_are_awaited_in_the_event_loop(
    closed_first: str, caplog: pytest.LogCaptureFixture
) -> None:
    loops: set[Any] = set()
    client = ModelClient(spoil=refuse)

    class Client(AsyncModelClient):
        def __getattr__(self, operation: str) -> Any:
            async def call(**arguments: Any) -> Any:
                loops.add(asyncio.get_running_loop())
                return await super(Client, self).__getattr__(operation)(**arguments)

            return call

    async def undelivered(error: DeliveryError) -> None:
        loops.add(asyncio.get_running_loop())
        with pytest.raises(WouldDeadlock):
            await producer.flush()
        called.append(error)

    async def put() -> Any:
        await producer.start()
        return await producer.put("k", b"x")

    called: list[DeliveryError] = []
    config = ProducerConfig(record_max_buffered_time_ms=1, record_ttl_ms=300)
    producer = AsyncProducer("s", client=Client(client), config=config, on_undelivered=undelivered)
    loop = asyncio.new_event_loop()
    future = loop.run_until_complete(put())
    if closed_first == "producer":
        assert not loop.run_until_complete(producer.close())
        assert called == [future.exception()]
    loop.close()
    assert loops <= {loop}
    # A loop that is gone keeps no user record: it fails in its time, and the log says so.
    until = time.monotonic() + 60
    while producer.outstanding and time.monotonic() < until:
        time.sleep(0.001)
    assert not producer.outstanding
    process.log_thread.made().wait(60)
    assert ("on_undelivered failed for 1 user record: LoopEnded" in caplog.text) is (closed_first == "loop")


def test_closing_while_the_start_makes_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = threading.Event()

    def slow(*_: Any) -> ModelClient:
        assert closed.wait(60)
        return ModelClient()

    monkeypatch.setattr(threads, "new_client", slow)

    async def main() -> None:
        producer = AsyncProducer("s", client_settings={"region": "eu-west-1"})
        start = asyncio.create_task(producer.start())
        await asyncio.sleep(0)
        assert await producer.close()
        closed.set()
        with pytest.raises(ProducerClosed):
            await start

    asyncio.run(main())


@pytest.mark.requirement("PRD-9")
@pytest.mark.parametrize("ends", ["delivered", "refused", "cancelled", "left"])
def test_an_awaited_future_leaves_no_garbage(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing leads back to one that has ended."""
    monkeypatch.setattr(ProducerConfig, "end_seconds", 0.1)
    seen: list[weakref.ref[Any]] = []

    async def use(producer: Caller) -> None:
        future = await producer.put("k", b"x")
        producer.puts.clear()
        seen.append(weakref.ref(future))
        if ends == "cancelled":
            future.cancel()
        try:
            await future
        except (DeliveryError, asyncio.CancelledError) as error:
            kept = error  # whose traceback leads to this frame, and to the future
            assert kept
        assert future.done()

    async def main() -> None:
        producer = Caller("asyncio", None)
        producer.refusing = ends == "refused"
        if ends == "left":
            producer.producer._core.requests = lambda now: []
            tasks.append(asyncio.create_task(use(producer)))
            await asyncio.sleep(0.02)
            tasks.clear()
            return
        await use(producer)
        await producer("close")

    tasks: list[asyncio.Task[None]] = []
    asyncio.run(main())
    gc.collect()
    assert [future() for future in seen] == [None]


@pytest.mark.requirement("PRD-9")
def test_a_cancelled_close_still_gives_every_future_its_result() -> None:
    def throttled(operation: str, answer: Any) -> Any:
        return refuse(operation, answer, "ProvisionedThroughputExceededException")

    async def main() -> None:
        client = ModelClient(spoil=throttled)
        producer = await AsyncProducer("s", client=client).__aenter__()
        futures = [await producer.put("k", b"x") for _ in range(5)]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(producer.close(), 0.1)
        assert all(isinstance(future.exception(), DeliveryError) for future in futures)

    asyncio.run(main())


@pytest.mark.requirement("PRD-61", "PRD-64", "PRD-75")
def test_an_event_loop_that_ends_waits_for_a_producer_that_was_dropped() -> None:
    called: list[DeliveryError] = []

    async def hook(error: DeliveryError) -> None:
        await asyncio.sleep(0.01)
        called.append(error)

    async def main() -> None:
        producer = await AsyncProducer("s", client=ModelClient(spoil=refuse), on_undelivered=hook).start()
        futures.extend([await producer.put("k", b"x") for _ in range(5)])
        seen = weakref.ref(producer)
        del producer
        assert seen() is None

    futures: list[asyncio.Future[Delivery]] = []
    asyncio.run(main())
    assert called == [future.exception() for future in futures]


@pytest.mark.requirement("PRD-9")
def test_closing_needs_no_thread_of_the_loops_which_may_be_busy_or_gone() -> None:
    async def main() -> None:
        producer = await AsyncProducer("s", client=ModelClient()).start()
        future = await producer.put("k", b"x")
        await asyncio.get_running_loop().shutdown_default_executor()
        assert await producer.close()
        assert future.result()

    asyncio.run(main())


@pytest.mark.requirement("PRD-9")
def test_ctrl_c_while_futures_get_their_results_takes_none_of_them() -> None:
    """Where the program catches it, and the event loop goes on."""

    class Interrupted(asyncio.Future[Delivery]):
        def set_result(self, result: Delivery) -> None:
            if not interrupts:
                interrupts.append(self)
                raise KeyboardInterrupt
            super().set_result(result)

    async def put() -> list[asyncio.Future[Delivery]]:
        await producer.start()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "create_future", lambda: Interrupted(loop=loop))
            return [await producer.put("k", b"x") for _ in range(5)]

    interrupts: list[Any] = []
    producer = AsyncProducer("s", client=ModelClient())
    loop = asyncio.new_event_loop()
    futures = loop.run_until_complete(put())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(producer.flush())
    assert loop.run_until_complete(producer.close())
    loop.close()
    assert all(future.result() for future in futures)


def test_asyncio_logs_no_error_of_a_future_that_nobody_awaits(caplog: pytest.LogCaptureFixture) -> None:
    """The producer's log counts it."""

    async def main() -> None:
        async with AsyncProducer("s", client=ModelClient(spoil=refuse)) as producer:
            await producer.put("k", b"x")

    asyncio.run(main())
    gc.collect()
    assert [record.name for record in caplog.records if record.name == "asyncio"] == []
