"""What a caller may get wrong, or may ask for, and what the producers say; in both skins alike."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from itertools import count, product
from typing import Any

import pytest
from botocore.exceptions import ClientError

from kpl_codec.producer import (
    AsyncProducer,
    Delivery,
    DeliveryError,
    Producer,
    ProducerClosed,
    ProducerConfig,
    RecordTooLarge,
    async_producer,
    delivery,
)
from kpl_codec.producer.driver import SIZE_AGE
from kpl_codec.shards.stream_name import StreamNameError

from .model_client import AsyncModelClient, ModelClient
from .skins import SKINS, call, new_producer, result_of

pytestmark = pytest.mark.timeout(60)
FAST = ProducerConfig(record_max_buffered_time_ms=5, record_ttl_ms=300)
ARN = "arn:aws:kinesis:ap-south-1:123456789012:stream/orders"


def run(skin: str, client: ModelClient, records: int = 5, stream: str = "s", **options: Any) -> Any:
    """Put user records, flush, close. Returns what flush and close gave, and the results."""

    async def main() -> Any:
        producer = new_producer(skin, stream, client=client, **{"config": FAST, **options})
        futures = [await call(producer.put, f"k{n}", b"%d" % n) for n in range(records)]
        flushed = await call(producer.flush, float("inf"))
        closed = await call(producer.close, float("inf"))
        return flushed, closed, [await result_of(future, float("inf")) for future in futures]

    return asyncio.run(main())


def refusing(code: str) -> Any:
    def spoil(operation: str, answer: Any) -> Any:
        raise ClientError({"Error": {"Code": code}}, operation)

    return spoil


@SKINS
@pytest.mark.parametrize("before", ["put", "close", "wait_ready", "flush", "refresh_shard_map"])
def test_both_start_and_end_alike_without_a_block(skin: str, before: str) -> None:
    """``before``: the first method that is called."""

    async def steps() -> list[Any]:
        producer = new_producer(skin, client=ModelClient(), config=FAST)
        told: list[Any] = []
        for name, *arguments in (
            (before, *["k", b"x"] * (before == "put")),
            ("put", "k", b"y"),
            ("close",),
            ("close",),
            ("put", "k", b"z"),
        ):
            try:
                given = await call(getattr(producer, name), *arguments)
                told.append(given if isinstance(given, bool) else None)
            except ProducerClosed as closed:
                told.append(closed.code)
        return told

    first = None if before in ("put", "refresh_shard_map") else True
    put = "closed" if before == "close" else None
    assert asyncio.run(steps()) == [first, put, True, True, "closed"]


@SKINS
@pytest.mark.requirement("PRD-60")
@pytest.mark.parametrize("code", ["ResourceNotFoundException", "InternalFailure", "ValidationException"])
def test_close_does_not_call_a_failure_delivered(skin: str, code: str) -> None:
    """The stream is missing; every record expires; every call is refused. Nothing is left when it closes."""
    flushed, closed, results = run(skin, ModelClient(spoil=refusing(code)))
    assert all(isinstance(result, DeliveryError) for result in results)
    assert flushed is True
    assert closed is False


@SKINS
@pytest.mark.requirement("PRD-60")
@pytest.mark.parametrize("hook", [False, True])
@pytest.mark.parametrize("what", ["record", "call"])
def test_a_log_that_raises_hides_no_failure(
    skin: str, what: str, hook: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raising(error: DeliveryError) -> None:
        called.append(error)
        raise ValueError

    called: list[DeliveryError] = []

    def spoil(operation: str, answer: Any) -> Any:
        if operation == "PutRecords" and what == "record":
            return {"Records": [{"ErrorCode": "AccessDeniedException"}]}
        if operation == "PutRecords":
            raise ClientError({"Error": {"Code": "AccessDeniedException"}}, operation)
        return answer

    def broken_filter(line: logging.LogRecord) -> bool:
        raise RuntimeError

    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    monkeypatch.setattr(logging.getLogger("kpl_codec.producer"), "filters", [broken_filter])
    options: dict[str, Any] = {"on_undelivered": raising} if hook else {}
    _, closed, results = run(skin, ModelClient(spoil=spoil), records=1, **options)
    assert [result.code for result in results] == ["AccessDeniedException"]
    assert called == results * hook
    assert closed is False


@SKINS
@pytest.mark.parametrize(
    "stream", ["", " ", "a/b", "x" * 129, "arn:aws:s3:::bucket", "arn:aws:kinesis:x:1:y"]
)
def test_what_is_no_stream_is_refused_at_once(skin: str, stream: str) -> None:
    with pytest.raises(StreamNameError):
        (Producer if skin == "threads" else AsyncProducer)(stream)


@pytest.mark.parametrize("kind", [Producer, AsyncProducer])
@pytest.mark.parametrize(
    ("options", "instead"),
    [
        ({"region": "eu-west-1"}, "no option 'region'; it is boto3's: client_settings={'region_name': ...}"),
        ({"endpoint_url": "x"}, "client_settings={'endpoint_url': ...}"),
        ({"record_ttl_ms": 1}, "it is a setting: config=ProducerConfig(record_ttl_ms=1)"),
        ({"client_setings": {}}, "did you mean client_settings?"),
        ({"x": 1}, "it has config, ledger, client"),
        ({"config": {"rate_limit": 1}}, "is of type dict: give config=ProducerConfig(...)"),
        ({"ledger": "folder"}, "is of type str: give ledger=Ledger(...)"),
        ({"client_settings": "eu-west-1"}, "is of type str: give client_settings={"),
        ({"observe": 1}, "is of type int: give observe=a function"),
        ({"on_undelivered": []}, "is of type list: give on_undelivered=a function"),
    ],
)
def test_an_option_that_is_wrong_names_the_right_one(kind: Any, options: Any, instead: str) -> None:
    with pytest.raises(TypeError) as caught:
        kind("s", **options)
    assert instead in str(caught.value)


@SKINS
def test_an_arn_is_a_stream_in_its_region(skin: str) -> None:
    asked: list[dict[str, Any]] = []

    class Client(ModelClient):
        def put_records(self, **arguments: Any) -> Any:
            asked.append(arguments)
            return super().put_records(**arguments)

    _, closed, results = run(skin, Client(), stream=ARN)
    assert closed
    assert all(isinstance(result, Delivery) for result in results)
    assert {request["StreamARN"] for request in asked} == {ARN}
    assert not any("StreamName" in request for request in asked)


def test_the_region_of_an_arn_counts() -> None:
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    with Producer(ARN, client_settings=keys) as producer:
        producer._connect()
        client: Any = producer._driver.client
        assert client.meta.region_name == "ap-south-1"

    async def main() -> str:
        async with AsyncProducer(ARN, client_settings=keys) as asynchronous:
            client: Any = asynchronous._client
            return str(client.meta.region_name)

    assert asyncio.run(main()) == "ap-south-1"


@SKINS
@pytest.mark.requirement("PRD-35")
@pytest.mark.parametrize("raised", [OSError, SystemExit, GeneratorExit])
def test_measuring_that_raises_costs_no_record(
    skin: str, raised: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def observe(name: str, value: float, attributes: Any) -> None:
        raise raised

    _, closed, results = run(skin, ModelClient(), observe=observe)
    assert closed
    assert all(isinstance(result, Delivery) for result in results)
    assert caplog.text.count("observe failed") == 1


BROKEN_ANSWERS = [AttributeError, UnicodeDecodeError("utf-8", b"secret", 0, 1, "x")]


@pytest.mark.requirement("PRD-34", "PRD-36")
@pytest.mark.parametrize(
    ("skin", "error"),
    # (In a task SystemExit ends the event loop: asyncio sees to that.)
    [*product(["threads", "asyncio"], BROKEN_ANSWERS), ("threads", SystemExit)],
)
def test_whatever_a_client_raises_is_one_line(
    skin: str, error: Any, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """botocore raises anything for an answer that is no JSON."""
    broken = True

    def spoil(operation: str, answer: Any) -> Any:
        nonlocal broken
        if operation == "PutRecords" and broken:
            broken = False
            raise error
        return answer

    with caplog.at_level(logging.INFO):
        _, closed, results = run(skin, ModelClient(spoil=spoil), records=1)
    assert closed
    assert isinstance(results[0], Delivery)
    assert [attempt.outcome for attempt in results[0].attempts] == ["no-answer", "delivered"]
    assert len([line for line in caplog.messages if "PutRecords failed" in line]) == 1
    assert "Traceback" not in caplog.text + capsys.readouterr().err
    assert "secret" not in caplog.text


def of_size(mebibytes: float, *, answers: bool = True) -> ModelClient:
    """A stream that takes records of so many MiB, and says it, or refuses to be described."""

    def spoil(operation: str, answer: Any) -> Any:
        if operation == "DescribeStreamSummary":
            if not answers:
                raise ClientError({"Error": {"Code": "AccessDeniedException"}}, operation)
            summary = answer["StreamDescriptionSummary"]
            return {"StreamDescriptionSummary": {**summary, "MaxRecordSizeInKiB": int(mebibytes * 1024)}}
        return answer

    return ModelClient(spoil=spoil)


def put_of_size(skin: str, client: ModelClient, size: int, config: ProducerConfig) -> Any:
    async def main() -> Any:
        producer = new_producer(skin, client=client, config=config)
        try:
            future = await call(producer.put, "k", b"x" * size)
        finally:
            await call(producer.close)
        return await result_of(future, 0)

    return asyncio.run(main())


@SKINS
@pytest.mark.requirement("PRD-5", "PRD-62")
def test_the_limit_is_the_streams_own(skin: str) -> None:
    config = ProducerConfig(record_max_buffered_time_ms=5)
    assert put_of_size(skin, of_size(3), 3 * 2**20 - 1, config).shard_id
    with pytest.raises(RecordTooLarge) as caught:
        put_of_size(skin, of_size(3), 3 * 2**20, config)
    assert caught.value.max_size == 3 * 2**20
    with pytest.raises(RecordTooLarge) as caught:
        put_of_size(skin, of_size(3, answers=False), 2**20, config)
    assert caught.value.max_size == 2**20
    told = ProducerConfig(record_max_buffered_time_ms=5, max_record_size=2 * 2**20)
    with pytest.raises(RecordTooLarge) as caught:
        put_of_size(skin, of_size(3), 2 * 2**20, told)
    assert caught.value.max_size == 2 * 2**20
    assert put_of_size(skin, of_size(1, answers=False), 2 * 2**20 - 1, told).shard_id


@SKINS
@pytest.mark.requirement("PRD-62")
def test_a_limit_that_is_raised_is_noticed_and_asked_for_once_a_minute(skin: str) -> None:
    mebibytes, asked, later = [1], [0], [0.0]

    def spoil(operation: str, answer: Any) -> Any:
        if operation == "DescribeStreamSummary":
            asked[0] += 1
            summary = answer["StreamDescriptionSummary"]
            return {"StreamDescriptionSummary": {**summary, "MaxRecordSizeInKiB": mebibytes[0] * 1024}}
        return answer

    def clock() -> float:
        return time.monotonic() + later[0]

    client, data = ModelClient(spoil=spoil), b"x" * (2 << 20)

    async def main() -> None:
        producer = new_producer(skin, client=client, clock=clock)
        await call(producer.wait_ready)
        with pytest.raises(RecordTooLarge):
            await call(producer.put, "k", data)
        before, mebibytes[0] = asked[0], 10
        for _ in range(5):  # it was read just now
            with pytest.raises(RecordTooLarge) as caught:
                await call(producer.put, "k", data)
        assert "once a minute" in caught.value.todo
        assert asked[0] == before
        later[0] = SIZE_AGE + 1
        future = await call(producer.put, "k", data)
        assert asked[0] == before + 1
        assert (await result_of(future, 10)).shard_id
        await call(producer.close)

    asyncio.run(main())


@pytest.mark.requirement("PRD-41")
def test_a_call_that_its_event_loop_has_left_behind_ends_without_a_word() -> None:
    """Whatever the client makes of that."""

    class Client(AsyncModelClient):
        async def put_records(self, **arguments: Any) -> Any:
            try:
                await asyncio.get_running_loop().create_future()
            except GeneratorExit:
                raise OSError from None

    producer = AsyncProducer("s", client=Client(ModelClient()), config=FAST)

    async def main() -> None:
        await producer.__aenter__()
        await producer.put("k", b"x")
        while producer.outstanding and not producer._core._in_flight:
            await asyncio.sleep(0.001)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    (call,) = producer._tasks
    call.get_coro().close()  # type: ignore[union-attr]
    call._log_destroy_pending = False  # type: ignore[attr-defined]
    assert producer._mailbox.broken is None


def test_a_closed_producer_makes_no_more_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_producer, "_AFTER_CANCELLING", 0.0)
    ticks = count(step=10)  # so that every wait of the core is over at the next look
    calls = 0

    class Client(AsyncModelClient):
        async def list_shards(self, **arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            await asyncio.get_running_loop().create_future()

    async def main() -> None:
        client = Client(ModelClient())
        async with AsyncProducer("s", client=client, clock=lambda: float(next(ticks))):
            while not calls:
                await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0.001)

    asyncio.run(main())
    assert calls == 1


def test_another_event_loop_can_ask_for_no_shard_map() -> None:
    producer = AsyncProducer("s", client=AsyncModelClient(ModelClient()), config=FAST)

    async def begin() -> None:
        await producer.wait_ready()

    async def elsewhere() -> None:
        with pytest.raises(ProducerClosed) as caught:
            producer.refresh_shard_map()
        assert caught.value.code == "loop-ended"

    asyncio.run(begin())
    asyncio.run(elsewhere())


def test_ctrl_c_at_the_start_of_the_log_thread_stops_no_later_log_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    background, made = delivery._LogThread(), []

    class Interrupted:
        def __init__(self, **_: Any) -> None: ...

        def start(self) -> None:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading, "Thread", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            background.add(lambda: made.append(1))
    background.add(lambda: made.append(2))
    background.wait(30)
    assert made == [1, 2]
