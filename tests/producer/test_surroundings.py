"""What is around a producer: event loops that end, clients of the caller's, calls that never return."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest
from botocore.config import Config

from kpl_codec.producer import (
    AsyncProducer,
    Delivery,
    DeliveryError,
    Producer,
    ProducerClosed,
    ProducerConfig,
    ProducerCore,
)
from kpl_codec.producer.record_builder import PutRecordsRequest
from kpl_codec.shards.live_shard_map import LiveShardMap

from .model import ModelStream
from .model_client import AsyncModelClient, ModelClient

pytestmark = pytest.mark.timeout(120)
FAST = ProducerConfig(record_max_buffered_time_ms=5)
KEYS = {"region_name": "us-east-1", "aws_access_key_id": "x", "aws_secret_access_key": "x"}


@pytest.mark.requirement("PRD-9", "PRD-75")
@pytest.mark.parametrize("ends", ["asyncio.run", "close", "close, and it is used again"])
def test_one_that_was_never_closed_is_closed_by_its_event_loop_or_tells_what_it_had_left(
    ends: str, caplog: pytest.LogCaptureFixture
) -> None:
    waits = ProducerConfig(record_max_buffered_time_ms=20_000)  # longer than the test takes
    holder = [AsyncProducer("s", client=AsyncModelClient(ModelClient()), config=waits)]

    async def main() -> list[asyncio.Future[Delivery]]:
        return [await holder[0].put(f"key-{number}", b"x") for number in range(50)]

    if ends == "asyncio.run":
        futures = asyncio.run(main())
        assert all(isinstance(future.result(), Delivery) for future in futures)
        assert asyncio.run(holder[0].close())
    else:
        loop = asyncio.new_event_loop()
        futures = loop.run_until_complete(main())
        loop.close()
        del loop  # it holds the producer
    if ends == "close":
        assert not any(future.done() for future in futures)
    else:
        with pytest.raises(ProducerClosed, match="event loop"):
            asyncio.run(holder[0].put("k", b"x"))
        assert all(future.done() for future in futures)
        assert holder[0].outstanding == 0
    holder.clear()
    gc.collect()
    (line,) = [record for record in caplog.records if record.name == "kpl_codec.producer"]
    assert line.getMessage() == (
        "the event loop of a producer ends: it closes it, with 50 user records outstanding"
        if ends == "asyncio.run"
        else "50 user records not delivered: the producer was never closed"
    )


@pytest.mark.requirement("PRD-75")
@pytest.mark.parametrize("method", ["put", "flush", "wait_ready", "close", "__aenter__"])
@pytest.mark.parametrize("first", ["rests", "runs", "has ended", "was closed"])
def test_in_another_event_loop_every_method_raises_at_once(method: str, first: str) -> None:
    """Module-global producers meet a new loop with each asyncio.run: of an invocation, a task, a test."""
    config = ProducerConfig(max_outstanding_records=1, record_max_buffered_time_ms=20_000)
    producer = AsyncProducer("s", client=AsyncModelClient(ModelClient()), config=config)

    async def use() -> Any:
        return await getattr(producer, method)(*["k", b"x"] if method == "put" else [])

    async def put() -> None:
        await producer.put("k", b"x")  # now it is full

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    if first == "runs":
        thread.start()
        asyncio.run_coroutine_threadsafe(put(), loop).result()
    else:
        loop.run_until_complete(put())
    if first in ("has ended", "was closed"):
        loop.run_until_complete(loop.shutdown_asyncgens() if first == "has ended" else asyncio.sleep(0))
        loop.close()
    if method == "close" and first in ("has ended", "was closed"):
        assert asyncio.run(use()) is (first == "has ended")
    else:
        with pytest.raises(ProducerClosed, match="event loop") as raised:
            asyncio.run(asyncio.wait_for(use(), 30))
        assert raised.value.code == "loop-ended"
    if first == "runs":
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
    if first in ("rests", "runs"):
        assert loop.run_until_complete(producer.close())
        loop.close()


# -- settings of the caller's ------------------------------------------------------------------------------


def _config_of(skin: str, settings: dict[str, Any]) -> Any:
    if skin == "threads":
        with Producer("s", client_settings={**KEYS, **settings}) as producer:
            return producer._driver.client.meta.config

    async def main() -> Any:
        async with AsyncProducer("s", client_settings={**KEYS, **settings}) as producer:
            return producer._driver.client.meta.config

    return asyncio.run(main())


@pytest.mark.requirement("PRD-71")
@pytest.mark.parametrize("skin", ["threads", "asyncio"])
def test_a_config_of_the_callers_sets_all_but_retries(skin: str) -> None:
    plain = _config_of(skin, {})
    one: dict[str, Any] = {
        "tcp_keepalive": {"tcp_keepalive": True},
        "read_timeout": {"read_timeout": 55},
        "max_pool_connections": {"max_pool_connections": 3},
        "user_agent_extra": {"user_agent_extra": "orders"},
        "retries": {"retries": {"max_attempts": 7, "mode": "adaptive"}},
    }
    for name, options in one.items():
        config = _config_of(skin, {"config": Config(**options)})
        assert config.retries == {"total_max_attempts": 1, "mode": "standard"}
        expected = {"read_timeout": 6.0, "connect_timeout": 6.0}
        expected |= {"max_pool_connections": plain.max_pool_connections}
        if name != "retries":
            expected |= options
        assert {key: getattr(config, key) for key in expected} == expected


def test_a_config_of_aiobotocore_keeps_its_connector() -> None:
    from aiobotocore.config import AioConfig

    config = _config_of("asyncio", {"config": AioConfig(connector_args={"keepalive_timeout": 5})})
    assert config.connector_args["keepalive_timeout"] == 5
    assert config.retries["total_max_attempts"] == 1


@pytest.mark.requirement("PRD-71")
@pytest.mark.parametrize(
    ("retries", "told"),
    [
        (None, True),
        ({"max_attempts": 2}, True),
        ({"mode": "standard"}, True),
        ({"total_max_attempts": 1}, False),
        ({"max_attempts": 0}, False),
    ],
)
def test_a_client_that_repeats_calls_is_told(
    retries: Any, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    import boto3

    producer = Producer("s", client=boto3.client("kinesis", **KEYS, config=Config(retries=retries)))
    assert ("repeats calls by itself" in caplog.text) is told
    assert producer.close()


# -- calls that never return -------------------------------------------------------------------------------


class Hanging(ModelClient):
    """``hangs``: the operations that never return."""

    def __init__(self, *hangs: str) -> None:
        super().__init__()
        self.hangs = set(hangs)
        self.go = threading.Event()

    def put_records(self, **arguments: Any) -> Any:
        if "PutRecords" in self.hangs:
            self.go.wait(100)
            raise OSError
        return super().put_records(**arguments)

    def list_shards(self, **arguments: Any) -> Any:
        if "ListShards" in self.hangs:
            self.go.wait(100)
        return super().list_shards(**arguments)


@pytest.mark.requirement("PRD-72")
def test_user_records_end_whatever_call_never_returns(caplog: pytest.LogCaptureFixture) -> None:
    client = Hanging("PutRecords")
    config = ProducerConfig(record_max_buffered_time_ms=5, record_ttl_ms=300)
    ended: list[DeliveryError] = []
    with Producer("s", client=client, config=config, on_undelivered=ended.append) as producer:
        error: Any = producer.put("k", b"hangs").exception(60)
        assert (error.outcome, error.may_be_stored) == ("expired", True)
        assert [attempt.outcome for attempt in error.attempts] == ["no-answer"]
        assert producer.flush(60)
        client.hangs.clear()
        assert isinstance(producer.put("k", b"goes").result(60), Delivery)
        client.go.set()  # an answer that comes late changes nothing
        assert isinstance(producer.put("k", b"goes, too").result(60), Delivery)
    assert ended == [error]


@pytest.mark.requirement("PRD-72")
def test_a_task_that_never_returns_is_cancelled() -> None:
    class Never(AsyncModelClient):
        async def put_records(self, **arguments: Any) -> Any:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                cancelled.append(True)
                raise

    cancelled: list[bool] = []
    config = ProducerConfig(record_max_buffered_time_ms=5, record_ttl_ms=300)

    async def main() -> Any:
        async with AsyncProducer("s", client=Never(ModelClient()), config=config) as producer:
            future = await producer.put("k", b"x")
            await asyncio.wait([future], timeout=60)
            return future.exception()

    error = asyncio.run(main())
    assert (error.outcome, error.may_be_stored) == ("expired", True)
    assert cancelled


@pytest.mark.requirement("PRD-72")
@pytest.mark.parametrize(
    ("first", "last", "at"),
    [
        (5.0, 5.0, 8.0),  # both end before the timeouts: 3 seconds later
        (5.0, 90.0, 10.0),  # one ends before the timeouts: then
        (20.0, 90.0, 20.0),  # the first ends after the timeouts
        (900.0, 10**15, 70.0),  # hardly any time to live: a minute after the timeouts
    ],
)
def test_when_a_call_is_given_up(first: float, last: float, at: float) -> None:
    ttl = 1000.0
    config = ProducerConfig(connect_timeout_ms=2000, request_timeout_ms=8000, record_ttl_ms=int(ttl * 1000))
    live = LiveShardMap("s")
    live.refresh(0.0)
    core = ProducerCore(config, live, lambda n: 0)
    for number, expires_at in enumerate((first, last)):
        core.accept(core.prepare("k", b"%d" % number), 0.0, expires_at - ttl)
    core.flush()
    stream, calls = ModelStream.of(2), core.requests(0.0)
    while not isinstance(call := calls.pop(), PutRecordsRequest):
        core.receive(call, stream.answer(call), 0.0)
        calls += core.requests(0.0)
    assert core.is_under_way(call)
    core.requests(at - 0.001)
    assert core.is_under_way(call)
    core.requests(at)
    assert not core.is_under_way(call)
    core.receive(call, {"Records": [{"ShardId": "x", "SequenceNumber": "1"}]}, at)  # comes too late
    assert core.outstanding or {pending.result.outcome for pending in core.results()} == {"expired"}
