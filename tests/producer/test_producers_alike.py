"""Both producers start, end and hand over alike: any sequence of calls, in both skins and in a model."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.format.records import Tag
from kpl_codec.producer import (
    AsyncProducer,
    Delivery,
    DeliveryError,
    ProducerClosed,
    ProducerConfig,
    ProducerFull,
    Put,
    WouldDeadlock,
    async_producer,
    delivery,
    driver,
)

from .model_client import ModelClient
from .skins import SKINS, call, new_producer

pytestmark = pytest.mark.timeout(120)

#: What a caller does. "refuse" and "take": what the service answers from now on. "break": a bug in the core.
STEPS = st.sampled_from(
    [
        "enter",
        "put",
        "put",
        "wait_ready",
        "refresh_shard_map",
        "flush",
        "close",
        "exit",
        "refuse",
        "take",
        "break",
    ]
)


class Model:
    """What every caller of either producer is told."""

    def __init__(self) -> None:
        self.closed = self.broken = self.breaks = self.refusing = self.lost = False
        self.unsent = 0

    def told(self, step: str) -> Any:
        if step in ("refuse", "take"):
            self.refusing = step == "refuse"
            return None
        if step == "break":
            self.breaks = not self.closed
            return None
        if step == "flush":
            self._send()
            return True
        if step in ("close", "exit"):
            self._send()
            self.closed = True
            return not self.lost if step == "close" else None
        if self.broken or self.closed:
            return "broken" if self.broken else "closed"
        if step == "put":
            self.unsent += 1
        return {"wait_ready": True, "put": "put", "enter": "entered"}.get(step)

    def _send(self) -> None:
        if self.unsent and (self.breaks or self.refusing):
            self.lost = True
        self.unsent = 0
        self.broken = self.broken or self.breaks


class Skin:
    """A producer of either kind on the model stream, and what it has told."""

    def __init__(self, skin: str, hook: Callable[[DeliveryError], Any] | None, **settings: Any) -> None:
        def spoil(operation: str, answer: Any) -> Any:
            if operation == "PutRecords" and self.refusing:
                raise ClientError({"Error": {"Code": "AccessDeniedException"}}, operation)
            return answer

        self.refusing = False
        client = ModelClient(spoil=spoil)
        config = ProducerConfig(record_max_buffered_time_ms=1, **settings)
        options: Any = {"config": config, "on_undelivered": hook}
        self.producer: Any = new_producer(skin, client=client, **options)
        self.given: list[tuple[Put, Any]] = []

    async def __call__(self, name: str, *arguments: Any) -> Any:
        return await call(getattr(self.producer, name), *arguments)

    async def put(self, *arguments: Any) -> Any:
        future = await self("put", *arguments)
        put = Put(*arguments)
        if put.partition_key is None and put.explicit_hash_key is not None:
            put = put._replace(partition_key="a")  # which makes no difference
        self.given.append((put, future))
        return future

    async def do(self, step: str) -> Any:
        if step in ("refuse", "take"):
            self.refusing = step == "refuse"
        elif step == "break":
            core = self.producer._core
            requests = core.requests
            core.requests = lambda now: 1 / 0 if core.outstanding else requests(now)
        elif step in ("enter", "exit"):
            name = f"__{'a' * isinstance(self.producer, AsyncProducer)}{step}__"
            given = await self(name, *[None] * 3 * (step == "exit"))
            return "entered" if given is self.producer else given
        elif step == "put":
            await self.put("k", b"%d" % len(self.given))
            return "put"
        else:
            return await self(step)
        return None

    async def told(self, step: str) -> Any:
        try:
            return await self.do(step)
        except ProducerClosed as closed:
            return closed.code

    def ended(self) -> list[tuple[Put, Any]]:
        return [(put, future.exception() or future.result()) for put, future in self.given]


@SKINS
@pytest.mark.requirement("PRD-9", "PRD-41", "PRD-60", "PRD-64")
@given(steps=st.lists(STEPS, max_size=12))
def test_both_start_and_end_alike(skin: str, steps: list[str]) -> None:
    # One user record alone meets the bug, so what is told does not depend on when the core is called.
    bug = ("flush", "break", "put", "flush")
    steps = [one for step in steps for one in (bug if step == "break" else (step,))]
    called: list[DeliveryError] = []

    async def main() -> tuple[list[Any], list[tuple[Put, Any]]]:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        producer = Skin(skin, called.append)
        told = [await producer.told(step) for step in steps]
        await producer("close")
        assert producer.producer.outstanding == 0
        return told, producer.ended()

    hook, threading.excepthook = threading.excepthook, lambda args: None
    try:
        told, ended = asyncio.run(main())
    finally:
        threading.excepthook = hook
    model = Model()
    assert told == [model.told(step) for step in steps]
    check(called, ended)


def check(called: list[DeliveryError], ended: list[tuple[Put, Any]]) -> None:
    """Each user record was delivered, or handed over as it was put; never both."""
    assert all(isinstance(result, (Delivery, DeliveryError)) for _, result in ended)
    failed = [(put, result) for put, result in ended if isinstance(result, DeliveryError)]
    assert all(error.user_record == put for put, error in failed)
    assert Counter(map(id, called)) == Counter(id(error) for _, error in failed)


KEYS = st.one_of(st.none(), st.sampled_from(["a", "k", "customer-17"]))
PUTS = st.tuples(
    KEYS,
    st.sampled_from([b"", b"x", b"y" * 100, b"\x1f\x8b\x08 looks like gzip"]),
    st.sampled_from([None, "0", str(2**127)]),
    st.sampled_from([(), (Tag("t", "v"),)]),
)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "compression": st.just("gzip"),
        "reshard_proof": st.just(True),
        "when_full": st.sampled_from(["block", "fail", "drop"]),
        "max_outstanding_records": st.integers(1, 5),
        "record_ttl_ms": st.just(100),
    },
)


@SKINS
@pytest.mark.requirement("PRD-7", "PRD-63", "PRD-64", "PRD-65")
@given(
    puts=st.lists(PUTS, max_size=20),
    settings=SETTINGS,
    refusing=st.booleans(),
    raising=st.lists(st.booleans()),
    give_up=st.booleans(),
    awaited=st.booleans(),
)
def test_every_user_record_is_delivered_or_handed_over_as_it_was_put(
    skin: str,
    puts: list[Any],
    settings: dict[str, Any],
    refusing: bool,
    raising: list[bool],
    give_up: bool,
    awaited: bool,
) -> None:
    called: list[DeliveryError] = []

    def hook(error: DeliveryError) -> None:
        called.append(error)
        if len(called) <= len(raising) and raising[len(called) - 1]:
            raise SystemExit

    async def awaitable(error: DeliveryError) -> None:
        await asyncio.sleep(0)
        called.append(error)
        if len(called) <= len(raising) and raising[len(called) - 1]:
            raise ValueError

    async def main() -> list[tuple[Put, Any]]:
        producer = Skin(skin, awaitable if awaited and skin == "asyncio" else hook, **settings)
        producer.refusing = refusing
        for put in puts:
            try:
                await producer.put(*put)
            except ProducerFull:
                assert settings.get("when_full", "block") != "block"
        closed = await producer("close", *[0.0] * give_up)
        assert producer.producer.outstanding == 0
        assert closed is not any(isinstance(result, DeliveryError) for _, result in producer.ended())
        return producer.ended()

    check(called, asyncio.run(main()))


@SKINS
@pytest.mark.requirement("PRD-34", "PRD-63", "PRD-65")
def test_what_it_raises_is_told_without_data(skin: str, caplog: pytest.LogCaptureFixture) -> None:
    def hook(error: DeliveryError) -> None:
        raise KeyError(error.user_record.partition_key, error.user_record.data)

    async def main() -> DeliveryError:
        producer = Skin(skin, hook)
        producer.refusing = True
        futures = [await producer.put("secret-key", b"secret-data") for _ in range(3)]
        assert await producer("close") is False
        producer.given.clear()
        return futures[0].exception()

    error = asyncio.run(main())
    gc.collect()
    assert "never retrieved" not in caplog.text
    counts = re.findall(r"on_undelivered failed for (\d) user records: KeyError in ", caplog.text)
    assert sum(map(int, counts)) == 3  # told at once, or as they come
    shown = caplog.text + str(error) + repr(error) + repr(error.user_record)
    assert "secret" not in shown
    assert error.user_record.data == b"secret-data"


@SKINS
@pytest.mark.requirement("PRD-65")
def test_one_that_hangs_holds_up_no_other_user_record_and_is_told(
    skin: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (driver, delivery):
        monkeypatch.setattr(module, "SLOW", 0.1)
    go, begun = threading.Event(), threading.Event()

    def hook(error: DeliveryError) -> None:
        begun.set()
        assert go.wait(30)

    async def main() -> None:
        producer = Skin(skin, hook)
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
        assert await producer("flush", 0.3) is False
        assert caplog.text.count("on_undelivered has not returned for 0 s; 1 user records wait for it") == 1
        go.set()
        assert await producer("flush") is True
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
        producer = Skin(skin, hook if skin == "threads" else ask, max_outstanding_records=2)
        producer.refusing = True
        await producer.put("k", b"x")
        assert await producer("flush")
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
        producer = Skin("threads", hook)
        producer.refusing = True
        await producer.put("k", b"x")
        assert await producer("close") is False

    asyncio.run(main())
    assert "on_undelivered failed for 1 user records: TypeError" in caplog.text


@pytest.mark.requirement("PRD-64")
def test_an_event_loop_that_ends_tells_for_how_many_it_was_not_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def hook(error: DeliveryError) -> None:
        await asyncio.sleep(3600)

    async def main() -> list[tuple[Put, Any]]:
        producer = Skin("asyncio", hook)
        producer.refusing = True
        for _ in range(5):
            await producer.put("k", b"x")
        while not producer.producer._driver.callback.held:
            await asyncio.sleep(0.01)
        return producer.given

    given = asyncio.run(main())
    assert "on_undelivered was not called for 4 user records: its event loop ends" in caplog.text
    assert all(isinstance(future.exception(), DeliveryError) for _, future in given)


@pytest.mark.requirement("PRD-7", "PRD-10")
@SKINS
def test_dropped_ones_are_handed_over_and_bounded(skin: str) -> None:
    go = threading.Event()
    called: list[DeliveryError] = []

    def hook(error: DeliveryError) -> None:
        assert go.wait(30)
        called.append(error)

    async def main() -> list[tuple[Put, Any]]:
        producer = Skin(skin, hook, when_full="drop", max_outstanding_records=3)
        full = 0
        for _ in range(20):
            try:
                await producer.put("k", b"x")
            except ProducerFull:
                full += 1
        assert full
        go.set()
        assert await producer("close") is False
        return producer.ended()

    ended = asyncio.run(main())
    check(called, ended)
    assert {error.outcome for error in called} == {"dropped"}


@pytest.mark.requirement("PRD-9")
@pytest.mark.parametrize("ends", ["delivered", "refused", "cancelled", "left"])
def test_an_awaited_future_leaves_no_garbage(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector does not visit those of AsyncProducer: nothing may lead back to one that has ended."""
    monkeypatch.setattr(async_producer, "_EXIT_TIMEOUT", 0.1)
    seen: list[weakref.ref[Any]] = []

    async def use(producer: Skin) -> None:
        future = await producer.put("k", b"x")
        producer.given.clear()
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
        producer = Skin("asyncio", None)
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
