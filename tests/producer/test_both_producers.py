"""What both producers promise, with threads and with asyncio: starts, ends, what callers get wrong."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.config import AioConfig
from botocore.config import Config
from botocore.exceptions import ClientError, NoRegionError
from hypothesis import example, given
from hypothesis import strategies as st

from kpl_codec.producer import (
    AsyncProducer,
    Delivery,
    DeliveryError,
    NotStarted,
    Producer,
    ProducerClosed,
    ProducerConfig,
    RecordTooLarge,
    batch,
    process,
)
from kpl_codec.producer.driver import Driver
from kpl_codec.producer.states import MOVES, NEXT, OPEN, Event, State
from kpl_codec.producer.threads import SIZE_AGE

from ..every import every
from .model_client import AsyncModelClient, ModelClient
from .skins import FAST, SKINS, Caller, call, check_handed_over, new_producer, refuse, result_of

ARN = "arn:aws:kinesis:ap-south-1:123456789012:stream/orders"
KEYS = {"region": "us-east-1", "access_key_id": "x", "secret_access_key": "x"}

#: What a caller does. "refuse" and "take": what the service answers from now on. "break": a bug in the core.
OF_THE_CALLER = ("start", "enter", "put", "put", "wait_ready", "flush", "close", "exit")
STEPS = st.sampled_from([*OF_THE_CALLER, "refuse", "take", "break"])


class Model:
    """What every caller of either producer gets for a step."""

    def __init__(self) -> None:
        self.state: State = "new"
        self.breaks = self.refusing = self.lost = False
        self.unsent = 0

    def answer(self, step: str) -> Any:
        if step in ("refuse", "take"):
            self.refusing = step == "refuse"
            return None
        if step == "break":
            self.breaks = self.state != "closed"
            return None
        if step == "flush":
            return self._send()
        if step in ("close", "exit"):
            self._send()
            self._becomes("close", "end")
            return not self.lost if step == "close" else None
        if step in ("start", "enter"):
            self._becomes("start")
        if self.state not in OPEN:
            return self.state
        if step == "put":
            self.unsent += 1
        return {"wait_ready": True, "put": "put"}.get(step, "entered")

    def _send(self) -> None:
        if self.unsent and (self.breaks or self.refusing):
            self.lost = True
            if self.breaks:
                self._becomes("break", "end")
        self.unsent = 0

    def _becomes(self, *events: Event) -> None:
        for event in events:
            self.state = NEXT.get((self.state, event), self.state)


async def answer_to(caller: Caller, step: str) -> Any:
    """What the caller of a producer gets for a step."""
    producer = caller.producer
    if step in ("refuse", "take"):
        caller.refusing = step == "refuse"
    elif step == "break":
        core = producer._core
        requests = core.requests
        core.requests = lambda now: 1 / 0 if core.outstanding else requests(now)
    else:
        try:
            if step == "put":
                await caller.put("k", b"%d" % len(caller.puts))
                return "put"
            name = step
            if step in ("enter", "exit"):
                name = f"__{'a' * isinstance(producer, AsyncProducer)}{step}__"
            answer = await caller(name, *[None] * 3 * (step == "exit"))
            return "entered" if answer is producer else answer
        except (ProducerClosed, NotStarted) as refused:
            return refused.code
    return None


@SKINS
@pytest.mark.requirement("PRD-9", "PRD-41", "PRD-60", "PRD-64", "PRD-92")
@given(steps=st.lists(STEPS, max_size=12))
@example(["enter", "put", "exit", "put"])
def test_both_start_and_end_alike(skin: str, steps: list[str]) -> None:
    # One user record alone meets the bug, so what is told does not depend on when the core is called.
    bug = ("start", "flush", "break", "put", "flush")
    steps = [one for step in steps for one in (bug if step == "break" else (step,))]
    called: list[DeliveryError] = []

    async def main() -> tuple[list[Any], list[Any]]:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        caller = Caller(skin, called.append, starts=False)
        answers = [await answer_to(caller, step) for step in steps]
        await caller("close")
        assert caller.producer.outstanding == 0
        return answers, caller.ended()

    hook, threading.excepthook = threading.excepthook, lambda args: None
    try:
        answers, ended = asyncio.run(main())
    finally:
        threading.excepthook = hook
    model = Model()
    assert answers == [model.answer(step) for step in steps]
    check_handed_over(called, ended)


@pytest.mark.requirement("PRD-9")
def test_the_specification_has_every_state() -> None:
    chapter = (Path(__file__).parents[2] / "spec" / "05-producer.md").read_text()

    def table(begins: str) -> list[list[str]]:
        head, _, *rows = (begins + chapter.partition(begins)[2].partition("\n\n")[0]).splitlines()
        return [[cell.strip() for cell in line.split("|")[1:-1]] for line in (head, *rows)]

    (_, _, *events), *of_a_producer = table("| state | takes")
    told = {}
    for state, takes, *following in of_a_producer:
        assert (state in OPEN) is (takes == "yes")
        told |= {(state, event): to for event, to in zip(events, following, strict=True) if to}
    assert told == NEXT
    _, *of_a_user_record = table("| state | where")
    assert {state: {*to.split(", ")} - {""} for state, _, to in of_a_user_record} == MOVES


#: A stream's name and options that are wrong, and what the error says.
WRONG: list[tuple[str, dict[str, Any], str]] = [
    *((stream, {}, "stream") for stream in ("", " ", "a/b", "x" * 129, "arn:aws:s3:::bucket")),
    ("s", {"region": "eu"}, "no option 'region'; it is the client's: client_settings={'region': ...}"),
    ("s", {"client_settings": {"region_name": "eu-west-1"}}, "did you mean region?"),
    ("s", {"client_settings": {"read_timeout": 5}}, "client_settings of "),
    ("s", {"client_settings": {"config": AioConfig()}}, "give a Config of botocore"),
    ("s", {"endpoint_url": "x"}, "client_settings={'endpoint_url': ...}"),
    ("s", {"record_ttl_ms": 1}, "it is a setting: config=ProducerConfig(record_ttl_ms=1)"),
    ("s", {"client_setings": {}}, "did you mean client_settings?"),
    ("s", {"config": {"rate_limit": 1}}, "is of type dict, give ProducerConfig(...)"),
    ("s", {"ledger": "folder"}, "is of type str, give Ledger(...)"),
    ("s", {"client_settings": "eu-west-1"}, "client_settings of "),
    ("s", {"on_undelivered": []}, "is of type list, give a function"),
    *(("s", {"exit_timeout": wrong}, "exit_timeout") for wrong in (-1, float("nan"), "1")),
]


@every("kind, wrong", [(kind, wrong) for kind in (Producer, AsyncProducer) for wrong in WRONG])
def test_what_is_wrong_is_refused_at_once_with_what_to_give(kind: Any, wrong: Any) -> None:
    stream, options, instead = wrong
    with pytest.raises((TypeError, ValueError)) as caught:
        kind(stream, **options)
    assert instead in str(caught.value)


@SKINS
def test_an_arn_is_a_stream_in_its_region(skin: str) -> None:
    asked: list[dict[str, Any]] = []

    class Client(ModelClient):
        def put_records(self, **arguments: Any) -> Any:
            asked.append(arguments)
            return super().put_records(**arguments)

    async def main() -> None:
        producer = new_producer(skin, ARN, client=Client())
        await call(producer.start)
        future = await call(producer.put, "k", b"x")
        assert await call(producer.close)
        assert isinstance(await result_of(future, 0), Delivery)

    asyncio.run(main())
    assert {request["StreamARN"] for request in asked} == {ARN}
    assert not any("StreamName" in request for request in asked)


async def until_read(producer: Any, times: int) -> None:
    """Wait until the stream's summary was read so many times."""
    while producer._core.summaries < times:
        await asyncio.sleep(0.001)


@SKINS
@pytest.mark.parametrize("method", ["put", "check"])
@pytest.mark.requirement("PRD-5", "PRD-62")
def test_the_limit_is_the_streams_own_and_is_read_again_once_a_minute(
    skin: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mebibytes, later = 1, [0.0]
    monkeypatch.setattr(Driver, "clock", staticmethod(lambda: time.monotonic() + later[0]))

    def spoil(operation: str, answer: Any) -> Any:
        if operation == "DescribeStreamSummary":
            answer["StreamDescriptionSummary"]["MaxRecordSizeInKiB"] = mebibytes * 1024
        return answer

    client = ModelClient(spoil=spoil)

    async def main() -> None:
        nonlocal mebibytes
        producer = new_producer(skin, client=client)
        await call(producer.start)
        await call(producer.wait_ready)
        try_it = getattr(producer, method)
        with pytest.raises(RecordTooLarge) as caught:
            await call(try_it, "k", b"x" * (3 << 20))
        assert caught.value.max_size == 1 << 20
        assert "once a minute" in caught.value.todo
        await until_read(producer, 2)
        mebibytes = 3
        for _ in range(5):  # it was read just now
            with pytest.raises(RecordTooLarge):
                await call(try_it, "k", b"x" * ((3 << 20) - 1))
        assert client.calls.count("DescribeStreamSummary") == 2
        later[0] = SIZE_AGE + 1
        with pytest.raises(RecordTooLarge):
            await call(try_it, "k", b"x" * ((3 << 20) - 1))
        await until_read(producer, 3)
        await call(try_it, "k", b"x" * ((3 << 20) - 1))
        future = await call(producer.put, "k", b"x" * ((3 << 20) - 1))
        assert client.calls.count("DescribeStreamSummary") == 3
        assert (await result_of(future, 10)).shard_id
        with pytest.raises(RecordTooLarge) as caught:
            await call(try_it, "k", b"x" * (3 << 20))
        assert caught.value.max_size == 3 << 20
        await call(producer.close)

    asyncio.run(main())


@SKINS
@pytest.mark.requirement("PRD-5", "PRD-62")
def test_a_limit_that_is_set_goes_before_and_a_stream_that_may_not_be_described_takes_1_mib(
    skin: str,
) -> None:
    def spoil(operation: str, answer: Any) -> Any:
        if operation == "DescribeStreamSummary":
            raise ClientError({"Error": {"Code": "AccessDeniedException"}}, operation)
        return answer

    for limit in (None, 2 << 20):
        config = ProducerConfig(record_max_buffered_time_ms=5, max_record_size=limit)

        async def main(config: ProducerConfig = config, most: int = limit or 1 << 20) -> None:
            producer = new_producer(skin, client=ModelClient(spoil=spoil), config=config)
            await call(producer.start)
            key, room = "é" * 256, most - 512  # the key counts in bytes
            with pytest.raises(RecordTooLarge) as caught:
                await call(producer.put, key, b"x" * (room + 1))
            assert (caught.value.size, caught.value.max_size) == (most + 1, most)
            future = await call(producer.put, key, b"x" * room)
            assert (await result_of(future, 30)).shard_id
            await call(producer.close)

        asyncio.run(main())


@SKINS
@pytest.mark.requirement("PRD-72")
def test_user_records_end_whatever_call_never_returns(skin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "GRACE", 0.1)
    go, hangs = threading.Event(), [True]

    class Hanging(ModelClient):
        def put_records(self, **arguments: Any) -> Any:
            if hangs[0]:
                go.wait(100)
                raise OSError
            return super().put_records(**arguments)

    ended: list[DeliveryError] = []

    async def main() -> None:
        producer = new_producer(skin, client=Hanging(), config=FAST, on_undelivered=ended.append)
        await call(producer.start)
        error = await result_of(await call(producer.put, "k", b"hangs"), 60)
        assert (error.outcome, error.may_be_stored) == ("expired", True)
        assert [attempt.outcome for attempt in error.attempts] == ["no-answer"]
        await call(producer.flush, 60)
        hangs[0] = False
        for data in (b"goes", b"goes, too"):
            assert isinstance(await result_of(await call(producer.put, "k", data), 60), Delivery)
            go.set()  # an answer that comes late changes nothing
        assert ended == [error]
        await call(producer.close)

    asyncio.run(main())


def _meta_of(skin: str, stream: str, settings: dict[str, Any]) -> Any:
    """The ``meta`` of the client that a producer makes."""

    async def main() -> Any:
        producer = new_producer(skin, stream, client_settings={**KEYS, **settings})
        enter, leave = ("__enter__", "__exit__") if skin == "threads" else ("__aenter__", "__aexit__")
        await call(getattr(producer, enter))
        await call(getattr(producer, leave), None, None, None)
        return producer._driver.client.meta

    return asyncio.run(main())


@SKINS
def test_the_region_of_an_arn_counts_and_one_that_is_missing_is_asked_for(
    skin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _meta_of(skin, ARN, {}).region_name == "ap-south-1"
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "nosuch")
    with pytest.raises(NoRegionError) as caught:
        _meta_of(skin, "orders", {"region": None})
    assert str(caught.value) == "no region: give region, or set AWS_DEFAULT_REGION"


@pytest.mark.requirement("PRD-71")
@SKINS
def test_a_config_of_the_callers_sets_all_but_retries(skin: str) -> None:
    theirs: dict[str, Any] = {"tcp_keepalive": True, "read_timeout": 55, "user_agent_extra": "orders"}
    retries: Any = {"max_attempts": 7, "mode": "adaptive"}
    config = _meta_of(skin, "s", {"config": Config(**theirs, retries=retries)}).config
    assert config.retries == {"total_max_attempts": 1, "mode": "standard"}
    assert {name: getattr(config, name) for name in theirs} == theirs
    assert config.connect_timeout == 6.0
    assert config.max_pool_connections == _meta_of(skin, "s", {}).config.max_pool_connections


@pytest.mark.requirement("PRD-71")
def test_a_client_that_repeats_calls_is_told(caplog: pytest.LogCaptureFixture) -> None:
    import boto3

    repeats: list[Any] = [None, {"max_attempts": 2}, {"mode": "standard"}]
    for retries in [*repeats, {"total_max_attempts": 1}, {"max_attempts": 0}]:
        caplog.clear()
        config = Config(retries=retries)
        producer = Producer("s", client=boto3.client("kinesis", region_name="us-east-1", config=config))
        process.log_thread.made().wait(60)
        assert ("repeats calls by itself" in caplog.text) is (retries in repeats)
        assert producer.close()


@SKINS
@pytest.mark.requirement("PRD-66")
def test_a_producer_that_rests_keeps_no_user_record_that_has_ended(skin: str) -> None:
    """Nor does garbage, until it is collected."""

    async def main(client: Any) -> None:
        options = {"client": AsyncModelClient(client) if skin == "asyncio" else client}
        producer = Caller(skin, None, options=options)
        seen = weakref.ref(await producer.put("k", b"x"))
        await producer("flush")
        producer.puts.clear()
        until = time.monotonic() + 60
        while seen() is not None and time.monotonic() < until:
            await asyncio.sleep(0.001)
        assert seen() is None
        await producer("close")

    gc.disable()
    try:
        asyncio.run(main(ModelClient()))
        asyncio.run(main(ModelClient(spoil=refuse)))
    finally:
        gc.enable()
