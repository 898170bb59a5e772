"""User records that could not be delivered, with both producers: each is handed over once, as it was put."""

from __future__ import annotations

import asyncio
import gc
import re
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.format.records import Tag
from kpl_codec.producer import Delivery, DeliveryError, ProducerFull, Put, WouldDeadlock

from .skins import SKINS, Caller, check_handed_over

KEYS = st.one_of(st.none(), st.sampled_from(["a", "k", "customer-17"]))


PUTS = st.tuples(
    KEYS,
    st.sampled_from([b"", b"x", b"y" * 400_000, b"\x1f\x8b\x08 looks like gzip"]),
    st.sampled_from([None, "0", str(2**127)]),
    st.sampled_from([(), (Tag("t", "v"),)]),
)


SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "compression": st.just("gzip"),
        "reshard_proof": st.just(True),
        "when_full": st.sampled_from(["block", "fail"]),
        "max_outstanding_records": st.integers(1, 5),
        "max_outstanding_bytes": st.just(2**20),
        "record_ttl_ms": st.just(100),
    },
)


class Awaitable:
    """As a future of asyncio: it can be awaited, and not closed."""

    def __await__(self) -> Iterator[None]:
        yield


#: What on_undelivered raises. Python 3.10 does not say whose CancelledError it is.
RAISES = [None, ValueError, SystemExit, Awaitable, *[asyncio.CancelledError] * (sys.version_info >= (3, 11))]


@SKINS
@pytest.mark.requirement("PRD-7", "PRD-63", "PRD-64", "PRD-65")
@given(
    puts=st.lists(PUTS, max_size=20),
    settings=SETTINGS,
    refusing=st.booleans(),
    raising=st.lists(st.sampled_from(RAISES)),
    give_up=st.booleans(),
    awaited=st.booleans(),
)
def test_every_user_record_is_delivered_or_handed_over_as_it_was_put(
    skin: str,
    puts: list[Any],
    settings: dict[str, Any],
    refusing: bool,
    raising: list[Any],
    give_up: bool,
    awaited: bool,
) -> None:
    called: list[DeliveryError] = []

    def hook(error: DeliveryError) -> Any:
        called.append(error)
        kind = raising[len(called) - 1] if len(called) <= len(raising) else None
        if kind is Awaitable:
            return Awaitable()
        if kind is not None:
            raise kind

    async def awaitable(error: DeliveryError) -> None:
        await asyncio.sleep(0)
        hook(error)

    async def main() -> list[tuple[Put, Any]]:
        producer = Caller(skin, awaitable if awaited and skin == "asyncio" else hook, **settings)
        producer.refusing = refusing
        for put in puts:
            try:
                await producer.put(*put)
            except ProducerFull:
                assert settings.get("when_full", "block") != "block"
            most = settings.get("max_outstanding_records", 100_000)
            assert producer.producer.outstanding <= most
            assert producer.producer._mailbox.bytes <= settings.get("max_outstanding_bytes", 2**40)
        closed = await producer("close", *[0.0] * give_up)
        assert producer.producer.outstanding == 0
        assert closed is not any(isinstance(result, DeliveryError) for _, result in producer.ended())
        return producer.ended()

    check_handed_over(called, asyncio.run(main()))


@SKINS
def test_without_it_the_log_counts_what_nobody_has_asked_for(
    skin: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        producer = Caller(skin, None)
        producer.refusing = True
        for _ in range(3):
            await producer.put("key", b"data")
        assert await producer("close") is False

    asyncio.run(main())
    gc.collect()
    assert "never retrieved" not in caplog.text
    counts = re.findall(r"(\d) user records? not delivered: ", caplog.text)
    assert sum(map(int, counts)) == 3


@SKINS
@pytest.mark.requirement("PRD-34", "PRD-63", "PRD-65")
def test_what_it_raises_is_told_without_data(skin: str, caplog: pytest.LogCaptureFixture) -> None:
    def hook(error: DeliveryError) -> None:
        raise KeyError(error.user_record.partition_key, error.user_record.data)

    async def main() -> DeliveryError:
        producer = Caller(skin, hook)
        producer.refusing = True
        futures = [await producer.put("secret-key", b"secret-data") for _ in range(3)]
        assert await producer("close") is False
        producer.puts.clear()
        return futures[0].exception()

    error = asyncio.run(main())
    gc.collect()
    assert "never retrieved" not in caplog.text
    counts = re.findall(r"on_undelivered failed for (\d) user records?: KeyError in ", caplog.text)
    assert sum(map(int, counts)) == 3  # told at once, or as they come
    shown = caplog.text + str(error) + repr(error) + repr(error.user_record)
    assert "secret" not in shown
    assert error.user_record.data == b"secret-data"


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
def test_an_event_loop_that_ends_tells_for_how_many_it_was_not_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def hook(error: DeliveryError) -> None:
        await asyncio.sleep(3600)

    async def main() -> list[tuple[Put, Any]]:
        producer = Caller("asyncio", hook)
        producer.refusing = True
        for _ in range(5):
            await producer.put("k", b"x")
        while not producer.producer._driver.callback.held:
            await asyncio.sleep(0.01)
        return producer.puts

    puts = asyncio.run(main())
    assert "on_undelivered was not called for 4 user records: its event loop ends" in caplog.text
    assert all(isinstance(future.exception(), DeliveryError) for _, future in puts)
