"""Whatever a handler or a ``once`` does, a user record that was not handled comes again, in every way of
handling an event."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import kpl_codec as kpl
from kpl_codec.adapters import to_lambda
from kpl_codec.audit import Ledger
from kpl_codec.aws.calls import maybe_await, run_sync
from kpl_codec.aws_lambda import (
    Transformed,
    aio,
    process_user_records,
    transform_user_records,
    user_records,
)

from ..every import every
from .conftest import SHARD, STREAM
from .ways import WAYS, event_for, numbers

FRAME = kpl.encode([kpl.UserRecord("a", b"1"), kpl.UserRecord("b", b"2"), kpl.UserRecord("c", b"3")])
ROWS = [kpl.KinesisRecord("k", data, number, SHARD) for number, data in (("0", FRAME), ("1", b"4"))]


def data_of(record: Any) -> bytes:
    return record.data if isinstance(record, kpl.DeaggregatedRecord) else record.kinesis.data_as_bytes()


async def coroutine() -> None: ...


def generator() -> Iterator[None]:
    yield


async def both() -> AsyncIterator[None]:
    yield


NOT_RUN: list[Any] = [coroutine, generator, both]


@pytest.mark.requirement("LMB-2", "LMB-6", "LMB-15")
@every("way", WAYS)
@every("fault", [ValueError, StopIteration, StopAsyncIteration, *NOT_RUN])
def test_a_handler_that_fails_has_handled_nothing(way: str, fault: Any) -> None:
    if way == "asyncio" and fault is coroutine:
        return  # it is awaited

    def handler(record: Any) -> object:
        if data_of(record) not in (b"2", b"3"):
            return None
        if isinstance(fault, type):
            raise fault
        return fault()

    assert WAYS[way](event_for(way, ROWS), handler) == ["0"]  # once, though two of its user records fail


@pytest.mark.requirement("LMB-15")
@every("function", NOT_RUN)
def test_a_hook_that_has_not_run_has_done_nothing(function: Any) -> None:
    event = to_lambda(ROWS[1:], stream_arn=STREAM)
    hook, seen = lambda *arguments: function(), list[Any]()
    assert numbers(process_user_records(event, seen.append, once=hook)) == ["1"]
    event["Records"][0]["kinesis"]["data"] = "%%%"
    for way in ("plain", "asyncio"):
        assert WAYS[way](event, seen.append, on_poison=hook) == ["1"]
    assert not seen


@pytest.mark.requirement("LMB-1", "LMB-5")
@every("way", [*WAYS, "user_records"])
def test_a_handler_may_empty_the_event(way: str) -> None:
    event = event_for(way, ROWS)
    handled: list[bytes] = []

    def handler(record: Any) -> None:
        handled.append(data_of(record))
        event["records" if way == "firehose" else "Records"].clear()

    if way == "user_records":
        for record in user_records(event):
            handler(record)
    else:
        assert WAYS[way](event, handler) == []
    assert handled == [b"1", b"2", b"3", b"4"]


@pytest.mark.requirement("ZIP-3", "ZIP-4", "LMB-4", "LMB-7")
@every("way", WAYS)
def test_every_way_decompresses(way: str) -> None:
    packed = [kpl.UserRecord("a", gzip.compress(b"one")), kpl.UserRecord("b", b"two")]
    large = [kpl.UserRecord("a", b"sibling"), kpl.UserRecord("a", gzip.compress(bytes(5000)))]
    rows = [
        kpl.KinesisRecord("x", kpl.encode(users), str(number), SHARD)
        for number, users in enumerate([packed, large])
    ]
    data: list[bytes] = []
    event = event_for(way, rows)
    assert WAYS[way](event, lambda record: data.append(data_of(record)), max_decompressed_size=1000) == ["1"]
    assert data == [b"one", b"two"]
    if way == "plain":
        found = user_records(event, "report", max_decompressed_size=1000)
        assert [record.data for record in found] == [b"one", b"two", b"sibling", large[1].data]


@every("other", ["text", bytearray(b"4"), Transformed(b"4", {"a": b"bytes"})])  # type: ignore[dict-item]
def test_a_result_of_another_type_fails_its_record_alone(other: Any) -> None:
    response = transform_user_records(
        event_for("firehose", ROWS), lambda record: record.data if record.aggregated else other
    )
    assert [result["result"] for result in response["records"]] == ["Ok", "ProcessingFailed"]


# -- a once that is not as it should be -----------------------------------------------------------------


async def catches(key: str, call: Callable[[], Any]) -> None:
    with suppress(ValueError):
        await maybe_await(call())


async def does_not_await(key: str, call: Callable[[], Any]) -> None:
    call().close()  # (close: else Python warns)


async def does_not_wait(key: str, call: Callable[[], Any]) -> None:
    asyncio.get_running_loop().call_soon(call().close)


async def tries_again(key: str, call: Callable[[], Any]) -> None:
    try:
        await maybe_await(call())
    except ValueError:
        await maybe_await(call())


#: Each with what it makes of a handler that fails at first: whether the user record is handled.
ONCES = {catches: False, does_not_await: False, does_not_wait: False, tries_again: True}


@pytest.mark.requirement("LMB-22")
@every("once", ONCES)
@every("way", ["plain", "asyncio"])
def test_once_cannot_lose_a_user_record(way: str, once: Any) -> None:
    event = to_lambda(ROWS[1:], stream_arn=STREAM)
    calls = 0

    def handler(record: kpl.DeaggregatedRecord) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError

    def plain(key: str, call: Callable[[], object]) -> None:
        run_sync(once(key, call))

    failed = WAYS[way](event, handler, once=once if way == "asyncio" else plain)
    assert failed == ([] if ONCES[once] else ["1"])


@pytest.mark.requirement("LMB-14")
def test_nothing_runs_on_behind_an_invocation_that_raises() -> None:
    """Its records come again: an event loop that goes on would handle them a second time, out of order."""
    ended: list[bytes] = []

    async def handler(record: kpl.DeaggregatedRecord) -> None:
        if record.data == b"1":
            raise asyncio.CancelledError
        await asyncio.sleep(0.001)
        ended.append(record.data)

    async def later() -> None:
        await asyncio.sleep(0.01)

    with pytest.raises(asyncio.CancelledError):
        aio.run(aio.process_user_records(event_for("asyncio", ROWS), handler))
    aio.run(later())
    assert ended == []


@pytest.mark.requirement("AUD-7")
def test_a_ledger_names_the_stream_of_each_record() -> None:
    lines: list[str] = []
    event = to_lambda(ROWS[1:], stream_arn=STREAM)
    event["Records"] += to_lambda(ROWS[1:], stream_arn=STREAM + "-2")["Records"]
    process_user_records(event, lambda record: None, ledger=Ledger(lines.append))
    handled = [line for line in lines if '"kind":"handled"' in line]
    assert ["orders-2" in line for line in handled] == [False, True]
