"""User records that could not be delivered, with both producers: each is handed over once, as it was put."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kpl_codec.producer import (
    Delivery,
    DeliveryError,
    ProducerConfig,
    ProducerFull,
    Put,
    WouldDeadlock,
    process,
)

from .skins import SKINS, Caller


@SKINS
@pytest.mark.requirement("PRD-65")
def test_one_that_hangs_holds_up_no_other_user_record(skin: str) -> None:
    go, begun = threading.Event(), threading.Event()

    def hook(error: DeliveryError) -> None:
        begun.set()
        assert go.wait(60)

    async def main() -> None:
        producer = Caller(skin, hook)
        producer.refusing = True
        held = await producer.put("k", b"held")
        assert await asyncio.to_thread(begun.wait, 30)
        producer.refusing = False
        others = [await producer.put("k", b"%d" % n) for n in range(20)]
        while not all(other.done() for other in others):
            await asyncio.sleep(0.01)
        assert all(isinstance(other.result(), Delivery) for other in others)
        assert not held.done()
        assert producer.producer.outstanding == 1
        await producer("flush", 0.3)
        assert not held.done()
        go.set()
        await producer("flush")
        assert held.done()
        assert await producer("close") is False

    asyncio.run(main())


@SKINS
@pytest.mark.requirement("PRD-40", "PRD-64")
def test_it_cannot_wait_for_its_own_producer_but_put_there(skin: str) -> None:
    told: list[Any] = []

    async def ask(error: DeliveryError) -> None:
        if error.user_record.data == b"again":
            return
        producer.refusing = False
        for name in ("flush", "close", "wait_ready"):
            try:
                await producer(name)
            except WouldDeadlock as refused:
                told.append((name, refused.code))
        await producer.put("k", b"again")
        try:
            await producer.put("k", b"again")
        except ProducerFull:
            told.append("full")

    def hook(error: DeliveryError) -> None:
        asyncio.run(ask(error))

    async def main() -> None:
        nonlocal producer
        producer = Caller(skin, hook if skin == "threads" else ask, max_outstanding_records=2)
        producer.refusing = True
        await producer.put("k", b"x")
        await producer("flush")
        assert await producer("close") is False

    producer: Any = None
    asyncio.run(main())
    assert told == [("flush", "in-callback"), ("close", "in-callback"), ("wait_ready", "in-callback"), "full"]


@pytest.mark.requirement("PRD-64")
def test_a_coroutine_function_is_told_to_be_none_of_the_thread_producer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def hook(error: DeliveryError) -> None: ...

    async def main() -> None:
        with pytest.raises(TypeError, match=r"^on_undelivered of Producer is an async function, give "):
            Caller("threads", hook)
        producer = Caller("threads", lambda error: hook(error))
        producer.refusing = True
        await producer.put("k", b"x")
        assert await producer("close") is False

    asyncio.run(main())
    assert "on_undelivered failed for 1 user record: TypeError" in caplog.text


@pytest.mark.requirement("PRD-64")
@pytest.mark.parametrize("seconds", [0.001, 3600])
def test_an_event_loop_that_ends_tells_for_how_many_it_was_not_awaited(
    seconds: float, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cancels the call under way. The others are made, unless one does not return."""
    monkeypatch.setattr(ProducerConfig, "end_seconds", 30.0 if seconds < 1 else 0.1)
    called = []

    async def hook(error: DeliveryError) -> None:
        called.append(error)
        await asyncio.sleep(seconds if len(called) > 1 else 3600)

    async def main() -> list[tuple[Put, Any]]:
        producer = Caller("asyncio", hook)
        producer.refusing = True
        for _ in range(5):
            await producer.put("k", b"x")
        while not called:
            await asyncio.sleep(0.01)
        return producer.puts

    puts = asyncio.run(main())
    process.log_thread.made().wait(60)
    assert len(called) == (5 if seconds < 1 else 2)
    assert ("on_undelivered failed for 3 user records: LoopEnded" in caplog.text) is (seconds > 1)
    assert all(isinstance(future.exception(), DeliveryError) for _, future in puts)


@pytest.mark.requirement("PRD-73")
@pytest.mark.parametrize(
    ("calls", "ends_at", "waits"),
    [
        ([], 3.0, 3.0),
        ([], None, 20.0),
        ([(-5.0, 99.0)], None, 10.0),
        ([(0.5, 99.0)], None, 10.5),
        ([(0.0, 9.0), (9.0, 99.0)], None, 19.0),
        ([(0.0, 9.0), (11.0, 99.0)], None, 20.0),
        ([(0.0, 9.0), (9.0, 15.0)], 15.0, 15.0),
    ],
)
def test_an_exit_waits_so_long(
    calls: list[tuple[float, float]], ends_at: float | None, waits: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an exit_timeout of 10 seconds. ``calls``: of on_undelivered, when each begins and returns. Time
    passes only while it waits."""
    now, logged = 0.0, list[str]()

    class Driver:
        """It is its own mailbox, news, callback and log."""

        exit_timeout = 10.0
        records = 4

        def __init__(self) -> None:
            self.mailbox = self.news = self.callback = self.stream_log = self

        @property
        def ended(self) -> bool:
            return ends_at is not None and now >= ends_at

        @property
        def called_at(self) -> float | None:
            return next((begin for begin, end in calls if begin <= now < end), None)

        def wait_for(self, ended: Any, seconds: float) -> None:
            nonlocal now
            now += seconds if ends_at is None else min(seconds, ends_at - now)

        def user_records(self, count: int, text: str) -> None:
            logged.append(text[:24])

    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: now))
    driver = Driver()
    process._wait_for_end(driver, 0.0)
    process._wait_for_end(driver, -50.0)  # another producer has taken all the time
    assert now == waits
    assert logged == ([] if ends_at else ["%s without a result: the"] * 2)
