"""Signals that come in the middle of a producer's methods, and callbacks that raise.

The signals come at given lines of the producer's code and of the standard library's: always the same.
"""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import _base
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from kpl_codec.producer import Delivery, Producer, ProducerClosed, ProducerConfig, process, threads
from tests.examples import share

from .model_client import ModelClient

#: What drives the producer's core: its threads and locks, and the calls.
MODULES = ("async_producer", "driver", "future", "mailbox", "process", "record", "threads")
SKIN = ("/kpl_codec/aws/", *(f"/kpl_codec/producer/{name}.py" for name in MODULES))
FILES = (*SKIN, _base.__file__, threading.__file__)
#: What a signal interrupts.
CALLS: dict[str, Callable[[Producer, Any], object]] = {
    "put": lambda producer, future: producer.put("k", b"more"),
    "start": lambda producer, future: producer.start(),
    "flush": lambda producer, future: producer.flush(),
    "wait_ready": lambda producer, future: producer.wait_ready(),
    "result": lambda producer, future: future.result(),
    "add_done_callback": lambda producer, future: future.add_done_callback(lambda _: None),
    "repr": lambda producer, future: (repr(future), producer.outstanding),
    "close": lambda producer, future: producer.close(),
}


@pytest.mark.requirement("PRD-40")
@pytest.mark.parametrize("interrupted", CALLS)
def test_a_handler_may_put_whatever_it_interrupts(interrupted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each line of a call comes a handler that puts, as one that logs does. Both calls go on, also where
    the handler has waited (PRD-46) and so taken the notification that the other waits for."""
    monkeypatch.setattr(threads, "CROWD", 1)
    monkeypatch.setattr(process, "LOOK_AGAIN", 0.01)
    line = 0
    while _interrupted_at(line, CALLS[interrupted]):
        line += share()
    assert line


def _interrupted_at(line: int, call: Callable[[Producer, Any], object]) -> bool:
    """Whether there are so many lines."""
    client = ModelClient(latency=0.001)
    producer = Producer("s", client=client, config=ProducerConfig(record_max_buffered_time_ms=0)).start()
    futures = [producer.put("k", b"first")]
    taken = 0

    def handler() -> None:
        nonlocal taken
        for _ in range(3):
            with suppress(ProducerClosed):
                futures.append(producer.put("k", b"of the handler"))
                taken += 1

    came = at_line(line, FILES, handler, lambda: call(producer, futures[0]))
    assert producer.close()
    assert all(isinstance(future.result(0), Delivery) for future in futures)
    assert len(futures) == 1 + taken
    assert len(client.stream.in_order()) == producer._core.accepted
    return came


def at_line(
    line: int, files: Sequence[str], interrupt: Callable[[], object], call: Callable[[], object]
) -> bool:
    """Call ``interrupt`` at that line of ``call`` in these files. Whether there are so many lines."""
    left = line

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if left < 0 or not any(file in frame.f_code.co_filename for file in files):
            return None
        # At the end of a with statement Python itself would not release the lock.
        source = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        left -= event == "line" and not source.strip().startswith("with ")
        if left < 0:
            sys.settrace(None)  # in the handler, too
            interrupt()
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return left < 0


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


@pytest.mark.requirement("PRD-7")
def test_a_put_that_ctrl_c_interrupts_keeps_no_room() -> None:
    line = 0
    while _ctrl_c_in_put(line):
        line += share()
    assert line > 10


def _ctrl_c_in_put(line: int) -> bool:
    """Whether there are so many lines."""
    config = ProducerConfig(record_max_buffered_time_ms=0, max_outstanding_records=1)
    came = False

    def ctrl_c() -> None:
        nonlocal came
        came = True
        raise KeyboardInterrupt

    with Producer("s", client=ModelClient(), config=config) as producer:
        producer.put("k", b"before")
        producer.flush(60)
        assert producer.outstanding == 0
        with suppress(KeyboardInterrupt):
            at_line(line, SKIN, ctrl_c, lambda: producer.put("k", b"interrupted"))
        after = threading.Thread(target=producer.put, args=("k", b"after"), daemon=True)
        after.start()
        after.join(60)
        assert not after.is_alive()
        producer.flush(60)
        assert producer.outstanding == producer._mailbox.bytes == 0
    return came


@pytest.mark.requirement("PRD-39")
def test_ctrl_c_in_a_start_in_a_forked_child_leaves_it_nothing_of_the_parents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "new_client", lambda *_: ModelClient())
    interrupts: list[int] = []

    def ctrl_c() -> None:
        interrupts.append(1)
        raise KeyboardInterrupt

    line = 0
    while line == len(interrupts):
        producer = Producer("s")
        parents = producer._driver
        with monkeypatch.context() as patch:
            patch.setattr(threads, "process_id", lambda: -1)
            with suppress(KeyboardInterrupt):
                at_line(line, SKIN, ctrl_c, producer.start)
            producer.start()
        assert producer._driver is not parents
        assert producer.close()
        line += 1
    assert line > 10
