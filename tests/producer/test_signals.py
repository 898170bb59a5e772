"""A producer whose methods signal handlers call, whatever they have interrupted, and whose callbacks raise.

The signals come at given lines of the producer's code and of the standard library's: always the same.
"""

from __future__ import annotations

import linecache
import logging
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import _base, as_completed, wait
from contextlib import nullcontext, suppress
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import InvalidRegionError

from kpl_codec.producer import (
    Delivery,
    DeliveryFuture,
    Producer,
    ProducerClosed,
    ProducerConfig,
    ProducerFull,
    RecordTooLarge,
    WouldDeadlock,
    delivery,
    delivery_future,
    driver,
)
from kpl_codec.producer.delivery_future import end_all
from tests.examples import share

from .model_client import ModelClient

#: What drives the producer's core: its threads and locks, and the calls.
SKIN = (
    "/kpl_codec/aws/",
    *(
        f"/kpl_codec/producer/{name}.py"
        for name in (*("async_producer", "delivery", "delivery_future", "driver", "pending", "threads"),)
    ),
)


FILES = (*SKIN, _base.__file__, threading.__file__)
ENDED = DeliveryFuture()
_ended: Any = SimpleNamespace(token=ENDED, result=Delivery("shard", "1", 0, ()))
end_all([_ended])
#: Everything that may wait for the producer, or keep it from going on.
CALLS: dict[str, Callable[[Producer, Any], object]] = {
    "put": lambda producer, future: producer.put("k", b"more"),
    "put and result": lambda producer, future: producer.put("k", b"more").result(),
    "put when full": lambda producer, future: [producer.put("k", b"%d" % n) for n in range(12)],
    "flush": lambda producer, future: producer.flush(),
    "wait_ready": lambda producer, future: producer.wait_ready(),
    "result": lambda producer, future: future.result(),
    "exception": lambda producer, future: future.exception(),
    "wait": lambda producer, future: wait([future, producer.put("k", b"more")]),
    "as_completed": lambda producer, future: list(as_completed([producer.put("k", b"more"), future])),
    "wait for ended ones": lambda producer, future: (wait([ENDED]), list(as_completed([ENDED]))),
    "add_done_callback": lambda producer, future: future.add_done_callback(lambda _: None),
    "repr": lambda producer, future: (repr(future), producer.outstanding),
    "close": lambda producer, future: producer.close(),
}


@pytest.mark.requirement("PRD-40")
@pytest.mark.parametrize("interrupted", CALLS)
def test_nothing_waits_for_itself_whatever_is_interrupted(interrupted: str) -> None:
    """At each line of a call comes a handler, which makes one of the others: in turn, so that each meets
    each. It returns or raises WouldDeadlock; then the call goes on as if nothing had been."""
    refused: Counter[str] = Counter()
    handled: Counter[str] = Counter()
    for turn, name in enumerate(CALLS):
        line = turn
        while _interrupt(interrupted, name, line, handled, refused):
            line += len(CALLS) * share()
    assert set(handled) == set(CALLS) or interrupted == "repr"  # it has few lines
    assert sum(refused.values()) < sum(handled.values())


def _interrupt(interrupted: str, name: str, line: int, handled: Counter[str], refused: Counter[str]) -> bool:
    """Whether there are so many lines."""
    config = ProducerConfig(record_max_buffered_time_ms=0, max_outstanding_records=10)
    client = ModelClient(latency=0.001)
    producer = Producer("s", client=client, config=config)
    futures = [producer.put("k", b"first")]
    left = line
    come = False

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left, come
        if come or not any(file in frame.f_code.co_filename for file in FILES):
            return None
        left -= event == "line"
        if left < 0:
            come = True
            sys.settrace(None)  # in the handler, too
            try:
                handled[name] += 1
                CALLS[name](producer, futures[0])
            except WouldDeadlock:
                assert name != "wait for ended ones"
                refused[name] += 1
            except ProducerClosed:
                assert "close" in (name, interrupted)
        return trace

    sys.settrace(trace)
    try:
        CALLS[interrupted](producer, futures[0])
    except ProducerClosed:
        assert name == "close"
    finally:
        sys.settrace(None)
    assert producer.close()
    assert isinstance(futures[0].result(0), Delivery)
    assert len(client.stream.in_order()) == producer._core.accepted
    return come


@pytest.mark.requirement("PRD-38")
@pytest.mark.parametrize("raised", [ValueError, KeyboardInterrupt, SystemExit])
def test_what_a_callback_raises_is_logged_and_costs_no_other_result(
    raised: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def callback(_: object) -> None:
        raise raised

    with Producer("s", client=ModelClient(latency=0.01)) as producer:
        futures = [producer.put(f"k{n}", b"%d" % n) for n in range(5)]
        for future in futures:
            future.add_done_callback(callback)
    assert all(isinstance(future.result(0), Delivery) for future in futures)
    assert caplog.text.count("a callback of a delivery failed") == 5


@pytest.mark.requirement("PRD-40", "PRD-70")
@pytest.mark.parametrize("lock", ["of a handler", "of the module"])
@pytest.mark.parametrize("name", ["put when full", "flush", "result", "wait", "close"])
def test_in_a_log_call_nothing_waits_for_long(name: str, lock: str) -> None:
    """botocore logs, too: a call may wait for the lock that its caller has."""
    config = ProducerConfig(record_max_buffered_time_ms=0, max_outstanding_records=10)
    log = logging.NullHandler()  # of no logger: a callback may log to any
    log.lock = threading.RLock()
    held: Any = log.lock if lock == "of a handler" else logging._lock  # type: ignore[attr-defined]
    ends: Any = {"result": WouldDeadlock, "wait": WouldDeadlock, "put when full": ProducerFull}.get(name)
    with Producer("s", client=ModelClient(latency=0.01), config=config) as producer:
        future = producer.put("k", b"x")
        with held, pytest.raises(ends) if ends else nullcontext():
            CALLS[name](producer, future)


@pytest.mark.requirement("PRD-62", "PRD-70")
@pytest.mark.parametrize("name", ["flush", "close", "wait_ready", "put"])
def test_a_call_that_needs_the_log_of_who_waits_for_it_ends_the_wait(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``put`` is of a user record that is too large: it does not wait for the stream's limit."""
    monkeypatch.setattr(delivery_future, "LOG_WAIT", 0.2)
    monkeypatch.setattr(driver, "SIZE_WAIT", 1e6)
    log = logging.NullHandler()
    log.lock = threading.RLock()

    def spoil(operation: str, answer: Any) -> Any:
        assert log.lock is not None
        with log.lock:  # as botocore does when its DEBUG is on
            return answer

    producer = Producer("s", client=ModelClient(spoil=spoil))
    future = producer.put("k", b"x")
    with log.lock:
        if name == "put":
            with pytest.raises(RecordTooLarge):
                producer.put("k", bytes(1 << 21))
        else:
            assert getattr(producer, name)() is False
    assert isinstance(future.result(60), Delivery)
    assert producer.close()


@pytest.mark.requirement("PRD-10")
@pytest.mark.parametrize("sound", [True, False])
def test_a_log_handler_may_put_while_the_client_is_made(sound: bool) -> None:
    """botocore logs then, at DEBUG: each line is a put in the middle of the first put."""

    class Puts(logging.Handler):
        def emit(self, line: logging.LogRecord) -> None:
            if line.name.startswith("botocore") and len(futures) < 20:
                futures.append(producer.put("k", line.getMessage().encode()[:1000]))

    futures: list[Any] = []
    settings: dict[str, Any] = {"region": "us-east-1" if sound else "no such region"}
    settings |= {"access_key_id": "x", "secret_access_key": "x", "endpoint_url": "http://127.0.0.1:9"}
    config = ProducerConfig(record_ttl_ms=300)
    producer = Producer("s", client_settings=settings, config=config)
    root, handler = logging.getLogger(), Puts()
    level = root.level
    root.addHandler(handler)
    root.setLevel("DEBUG")
    try:
        with nullcontext() if sound else pytest.raises(InvalidRegionError):
            futures.append(producer.put("k", b"x"))
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
    assert len(futures) > 1
    assert {future.exception(60).outcome for future in futures} == {"expired" if sound else "closed"}
    assert producer.outstanding == 0
    assert producer.close() is False


@pytest.mark.requirement("PRD-7")
def test_a_put_that_ctrl_c_interrupts_keeps_no_room() -> None:
    line = 0
    while _ctrl_c_in_put(line):
        line += share()
    assert line > 10


def _ctrl_c_in_put(line: int) -> bool:
    """Whether there are so many lines."""
    config = ProducerConfig(record_max_buffered_time_ms=0, max_outstanding_records=1)
    left = line

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if not any(file in frame.f_code.co_filename for file in SKIN):
            return None
        # At the end of a with statement Python itself would not release the lock.
        source = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        left -= event == "line" and not source.strip().startswith("with ")
        if left < 0:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    with Producer("s", client=ModelClient(), config=config) as producer:
        producer.put("k", b"before")
        assert producer.flush(60)
        sys.settrace(trace)
        try:
            with suppress(KeyboardInterrupt):
                producer.put("k", b"interrupted")
        finally:
            sys.settrace(None)
        after = threading.Thread(target=producer.put, args=("k", b"after"), daemon=True)
        after.start()
        after.join(60)
        assert not after.is_alive()
        assert producer.flush(60)
        assert producer.outstanding == producer._mailbox.bytes == 0
    return left < 0


@pytest.mark.requirement("PRD-40")
@pytest.mark.parametrize("name", ["put", "flush", "close", "wait_ready", "result"])
def test_a_handler_that_has_interrupted_a_log_call_of_a_producer_is_refused(name: str) -> None:
    """The driver of any producer may have to log before it goes on."""
    with Producer("s", client=ModelClient(latency=0.1)) as producer:
        future = producer.put("k", b"x")
        with delivery.log_thread._idle, pytest.raises(WouldDeadlock) as refused:
            CALLS[name](producer, future)
        assert refused.value.code == "in-signal-handler"
