"""What only the skins can get wrong: signals, callbacks, forks, bugs below. On the model stream."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import Any

import pytest
from botocore.exceptions import ClientError

from kpl_codec.producer import (
    AsyncProducer,
    Attempt,
    Delivery,
    DeliveryError,
    Producer,
    ProducerClosed,
    ProducerConfig,
    ProducerFull,
)
from kpl_codec.producer.delivery_future import DeliveryFuture
from kpl_codec.producer.outcomes import NO_HISTORY

from .model_client import AsyncModelClient, ModelClient
from .skins import SKINS, call, new_producer, result_of

pytestmark = pytest.mark.timeout(60)
FAST = ProducerConfig(record_max_buffered_time_ms=5)


@pytest.mark.requirement("PRD-38")
@pytest.mark.parametrize("raised", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_callback_that_raises_costs_nobody_a_result(
    raised: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    client = ModelClient(latency=0.2)  # so none has ended before its callbacks are added

    def callback(future: Any) -> None:
        raise raised

    with Producer("s", client=client, config=FAST) as producer:
        futures = [producer.put(f"k{n}", b"%d" % n) for n in range(100)]
        for future in futures[::3]:
            future.add_done_callback(callback)
        called: list[Any] = []
        futures[0].add_done_callback(called.append)
        assert producer.flush(20)
        again = producer.put("k", b"after")
    assert all(isinstance(future.result(0), Delivery) for future in (*futures, again))
    assert called == [futures[0]]
    assert sum(client.stream.delivered().values()) == 101
    assert "callback" in caplog.text


def small(skin: str, client: ModelClient, **settings: Any) -> Any:
    """A producer with room for ten user records."""
    config = ProducerConfig(record_max_buffered_time_ms=5, max_outstanding_records=10, **settings)
    return new_producer(skin, client=client, config=config)


def throttled(operation: str, answer: Any) -> Any:
    if operation == "PutRecords":
        raise ClientError({"Error": {"Code": "ProvisionedThroughputExceededException"}}, operation)
    return answer


@pytest.mark.requirement("PRD-7", "PRD-9")
@pytest.mark.parametrize("when_full", ["fail", "drop"])
@SKINS
def test_a_full_producer_fails_or_drops_and_gives_up_in_time(skin: str, when_full: str) -> None:
    async def main() -> list[Any]:
        producer = small(skin, ModelClient(spoil=throttled), when_full=when_full)
        futures = [await call(producer.put, "k", b"x") for _ in range(10)]
        if when_full == "drop":
            dropped = await call(producer.put, "k", b"x")
            if skin == "asyncio":
                await asyncio.wait([dropped])
            assert dropped.exception().outcome == "dropped"
        else:
            with pytest.raises(ProducerFull):
                await call(producer.put, "k", b"x")
        assert await call(producer.close, 0.1) is False
        with pytest.raises(ProducerClosed):
            await call(producer.put, "k", b"x")
        assert await call(producer.close) is False
        return futures

    assert {future.exception().outcome for future in asyncio.run(main())} == {"closed"}


@pytest.mark.requirement("PRD-7")
@SKINS
def test_a_full_producer_makes_its_callers_wait(skin: str) -> None:
    async def main() -> tuple[int, list[Any]]:
        producer = small(skin, ModelClient(latency=0.001))
        futures, most = [], 0
        for _ in range(60):
            futures.append(await call(producer.put, "k", b"x"))
            most = max(most, producer.outstanding)
        assert await call(producer.close)
        return most, futures

    most, futures = asyncio.run(main())
    assert most <= 10
    assert all(isinstance(future.result(), Delivery) for future in futures)


@pytest.mark.requirement("PRD-39")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_runs_no_callback_of_the_parents() -> None:
    with Producer("s", client=ModelClient(latency=0.3), config=FAST) as producer:
        future = producer.put("k", b"x")
        read, write = os.pipe()
        future.add_done_callback(lambda _: os.write(write, b"called "))
        child = os.fork()
        if child == 0:
            failed = future.exception(5)
            os._exit(0 if isinstance(failed, DeliveryError) and failed.code == "forked" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert os.read(read, 100) == b"called "
    os.close(read)
    os.close(write)


#: The machine of tests/producer/machine.py gives the core all shapes; here are some for the skins.
HOSTILE: list[Any] = [None, "x", {"Records": [{}]}, {"Shards": "x"}, {"StreamDescriptionSummary": ["x"]}]


@pytest.mark.requirement("PRD-23", "PRD-41")
@pytest.mark.parametrize("answer", HOSTILE, ids=str)
@SKINS
def test_answers_of_any_shape_end_in_results(answer: Any, skin: str) -> None:
    client = ModelClient(spoil=lambda operation, good: answer)
    config = ProducerConfig(record_max_buffered_time_ms=1, record_ttl_ms=300)
    results = run(skin, client, config)
    assert all(isinstance(result, DeliveryError) for result in results)


@pytest.mark.requirement("PRD-41")
@pytest.mark.parametrize("method", ["receive", "requests", "results", "fail"])
@SKINS
def test_a_bug_in_the_core_ends_every_future_and_says_what_may_be_stored(
    method: str, skin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    client = ModelClient()

    def bug(core: Any) -> None:
        def crash(*arguments: Any, **named: Any) -> Any:
            raise ZeroDivisionError

        if method == "fail":
            client._spoil = lambda operation, answer: 1 / 0
        setattr(core, method, crash)

    results = run(skin, client, FAST, bug)
    assert all(isinstance(result, DeliveryError) for result in results)
    assert {result.code for result in results} <= {"broken"}
    assert all(result.may_be_stored or not client.stream.stored for result in results)


@pytest.mark.requirement("PRD-42")
def test_a_broken_producer_counts_the_attempts_that_are_left_out() -> None:
    history = NO_HISTORY
    for outcome in ["throttled"] * 5 + ["no-answer"] + ["throttled"] * 24:
        history = history.with_attempt(Attempt(outcome, 0.0, 0.0, None))
    driver = Producer("s", client=ModelClient())._driver
    pending = driver.core.prepare("k", b"x", None, ())
    pending.number, pending.history, pending.token = 1, history, DeliveryFuture()
    driver.unresolved.add(pending)
    driver._break(ValueError())
    error = pending.token.exception()
    assert isinstance(error, DeliveryError)
    assert len(error.attempts) + error.attempts_left_out == 31
    assert error.left_out_may_be_stored


def run(skin: str, client: ModelClient, config: ProducerConfig, before: Any = lambda core: None) -> list[Any]:
    """Put five user records and close; what came of them."""

    async def main() -> list[Any]:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        producer = new_producer(skin, client=client, config=config)
        before(producer._core)
        futures: list[Any] = []
        for number in range(5):
            try:
                futures.append(await call(producer.put, f"k{number}", b"%d" % number))
            except ProducerClosed as closed:
                assert closed.code == "broken"
        started = time.monotonic()
        await call(producer.close, 20)
        assert time.monotonic() - started < 10
        return [await result_of(future, 1) for future in futures]

    return asyncio.run(main())


@pytest.mark.requirement("MAP-8")
@pytest.mark.parametrize("code", ["AccessDeniedException", "UnrecognizedClientException"])
def test_a_map_that_was_refused_is_told_and_asked_for_again(
    code: str, caplog: pytest.LogCaptureFixture
) -> None:
    refused = 1

    def spoil(operation: str, answer: Any) -> Any:
        nonlocal refused
        if operation == "ListShards" and refused:
            refused -= 1
            raise ClientError({"Error": {"Code": code}}, operation)
        return answer

    client = ModelClient(spoil=spoil)
    measured: Counter[str] = Counter()

    def observe(name: str, value: float, attributes: Any) -> None:
        measured[name] += int(value)

    with Producer("s", client=client, config=FAST, observe=observe) as producer:
        assert not producer.wait_ready(0.3)  # the next look is after a second,
        assert measured["ShardMapErrors"] == 1
        assert [record.levelname for record in caplog.records if code in record.getMessage()] == ["WARNING"]
        producer.refresh_shard_map()  # or now
        assert producer.wait_ready(5)
        futures = [producer.put("k", b"%d" % n) for n in range(50)]
    assert max(future.result(0).sub_sequence_number for future in futures) > 0  # aggregated again


CHILD = """
import logging, os, sys, time
logging.basicConfig(stream=sys.stdout, format="%(message)s")
from kpl_codec.producer import Producer
from kpl_codec.producer import ProducerConfig

producer = Producer(
    "s",
    config=ProducerConfig(record_ttl_ms=60_000),
    exit_timeout=0.3,
    client_settings={
        "endpoint_url": "http://127.0.0.1:9",
        "region_name": "us-east-1",
        "aws_access_key_id": "x",
        "aws_secret_access_key": "x",
    },
)

def work():
    for number in range(7):
        producer.put("k", b"x")

if sys.argv[1] == "fork":
    if os.fork() == 0:
        work()
        sys.exit(0)
    os.wait()
else:
    import multiprocessing

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
"""


@pytest.mark.requirement("PRD-9")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a fork is what is tested: this system has none")
@pytest.mark.parametrize("how", ["fork", "multiprocessing"])
def test_what_a_child_leaves_unsent_is_logged(how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, how], capture_output=True, text=True, timeout=50, check=True
    )
    assert "7 user records not delivered: closed" in done.stdout


def test_tasks_that_wait_for_room_are_let_in_in_order() -> None:
    async def main() -> list[bytes]:
        client = ModelClient()
        config = ProducerConfig(record_max_buffered_time_ms=0, max_outstanding_records=10)
        async with AsyncProducer("s", client=AsyncModelClient(client), config=config) as producer:
            tasks = [asyncio.create_task(producer.put("k", b"%04d" % n)) for n in range(500)]
            await asyncio.sleep(0)
            tasks[100].cancel()
            futures = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(futures.pop(100), asyncio.CancelledError)
            await producer.flush()
            assert all(isinstance(future.result(), Delivery) for future in futures)
        return [record.data for record in client.stream.stored]

    asyncio.run(main())


@pytest.mark.requirement("PRD-46")
def test_putting_in_a_loop_keeps_nothing_from_being_sent() -> None:
    ticks = itertools.count()

    def clock() -> float:  # every look at it takes 0.1 ms: time does not depend on the machine
        return next(ticks) / 10_000

    async def main() -> list[float]:
        client = AsyncModelClient(ModelClient())
        config = ProducerConfig(record_max_buffered_time_ms=10)
        async with AsyncProducer("s", client=client, config=config, clock=clock) as producer:
            assert await producer.wait_ready()
            put = [(clock(), await producer.put(f"k{n % 9}", b"%d" % n)) for n in range(2000)]
            ended = sum(future.done() for _, future in put)
            await producer.flush()
        assert ended > 1500
        return [future.result().attempts[0].started_at - put_at for put_at, future in put]

    waited = asyncio.run(main())
    assert max(waited) < 0.03


@pytest.mark.requirement("PRD-46")
def test_a_caller_waits_a_moment_for_a_thread_that_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    with Producer("s", client=ModelClient(latency=0.1), config=FAST) as producer:
        go, held = threading.Event(), threading.Event()

        def hold(future: Any) -> None:
            held.set()
            go.wait(30)

        producer.put("k", b"first").add_done_callback(hold)
        assert held.wait(30)
        waits: list[tuple[int, float]] = []
        mailbox = producer._mailbox
        wait_for = mailbox.news.wait_for

        def crowded(predicate: Any, seconds: float | None = None) -> bool:
            if seconds is None:
                return wait_for(predicate)
            waits.append((len(mailbox.inbox), seconds))
            return False

        monkeypatch.setattr(mailbox.news, "wait_for", crowded)
        futures = [producer.put("k", b"%d" % n) for n in range(1005)]
        go.set()
    assert waits == [(n, 0.01) for n in range(1000, 1006)]
    assert all(isinstance(future.result(0), Delivery) for future in futures)


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
