"""What only the producer with threads has: several callers, callers that drop it, and its threads."""

from __future__ import annotations

import gc
import queue
import random
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from kpl_codec.producer import Delivery, Producer, ProducerConfig, lambda_handler, process

from .model_client import ModelClient

FAST = ProducerConfig(record_max_buffered_time_ms=5, aggregation_max_size=2000)
others: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def threads_of_other_tests() -> None:
    process.log_thread.add(lambda: None)  # (this thread ends with the process)
    others.clear()
    others.update(threading.enumerate())


def running() -> list[str]:
    return [t.name for t in threading.enumerate() if t not in others and t.name.startswith("kpl-codec")]


def all_end() -> bool:
    """The workers end a moment after the last producer has."""
    until = time.monotonic() + 60
    while running() and time.monotonic() < until:
        time.sleep(0.005)
    return not running()


@pytest.mark.requirement("PRD-10")
def test_several_callers_of_two_producers_lose_nothing_and_mix_nothing() -> None:
    """Now and then an answer is lost, a call is throttled as a whole, or a shard splits."""
    rng = random.Random(1)

    def spoil(operation: str, answer: Any) -> Any:
        if operation == "PutRecords" and rng.random() < 0.1:
            raise ReadTimeoutError(endpoint_url="model")
        if rng.random() < 0.05:
            raise ClientError({"Error": {"Code": "LimitExceededException"}}, operation)
        return answer

    clients = [ModelClient(latency=0.001, spoil=spoil) for _ in range(2)]
    producers = [Producer("s", client=client, config=FAST).start() for client in clients]
    futures: list[dict[bytes, Any]] = [{}, {}]

    def put(caller: int) -> None:
        mine = random.Random(caller)
        for number in range(400):
            which, data = mine.randrange(2), b"%d %d" % (caller, number)
            futures[which][data] = producers[which].put(f"k{mine.randrange(50)}", data)
            if number % 100 == 99:
                with clients[which]._lock:
                    clients[which].stream.split(mine.randrange(4))
                producers[which].flush(60)

    with ThreadPoolExecutor() as pool:
        assert list(pool.map(put, range(3))) == [None] * 3
    assert all(producer.close(60) for producer in producers)
    assert all_end()
    for client, of_one in zip(clients, futures, strict=True):
        found = client.stream.delivered()
        assert found.keys() == of_one.keys()
        lost_answers = {data for data, future in of_one.items() if len(future.result(0).attempts) > 1}
        assert {data for data, copies in found.items() if copies > 1} <= lost_answers


@pytest.mark.requirement("PRD-46")
def test_a_caller_waits_a_moment_for_a_thread_that_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    with Producer("s", client=ModelClient(latency=0.1), config=FAST) as producer:
        go, held = threading.Event(), threading.Event()

        def hold(future: Any) -> None:
            held.set()
            go.wait(60)

        producer.put("k", b"first").add_done_callback(hold)
        assert held.wait(60)
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


def test_ctrl_c_at_the_start_of_the_log_thread_stops_no_later_log_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    background, made = process._LogThread(), []

    class Interrupted:
        def __init__(self, **_: Any) -> None: ...

        def start(self) -> None:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading, "Thread", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            background.add(lambda: made.append(1))
    background.add(lambda: made.append(2))
    background.made().wait(60)
    assert made == [1, 2]


def test_a_log_call_that_another_thread_makes_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread can start, as at the end of the interpreter, each makes the log calls."""

    class Emptied(queue.SimpleQueue[Any]):
        def empty(self) -> bool:
            return False  # another thread takes the last one now

    def start_no_thread(*_: Any) -> None:
        raise RuntimeError

    background, made = process._LogThread(), []
    monkeypatch.setattr(process, "start_thread", start_no_thread)
    background._calls = Emptied()
    caller = threading.Thread(target=background.add, args=(lambda: made.append(1),), daemon=True)
    caller.start()
    caller.join(60)
    assert (made, caller.is_alive()) == ([1], False)


@pytest.mark.requirement("PRD-61")
def test_producers_that_are_dropped_deliver_and_are_freed() -> None:
    client = ModelClient(latency=0.05)
    futures: list[Any] = []
    references: list[weakref.ref[Any]] = []
    for number in range(20):
        producer = Producer("s", client=client, config=FAST).start()
        futures += [producer.put("k", b"%d" % number) for _ in range(3)]
        references += [weakref.ref(producer), weakref.ref(producer._core)]
        del producer
    assert all(isinstance(future.result(60), Delivery) for future in futures)
    assert sum(client.stream.delivered().values()) == 60
    assert all_end()
    gc.collect()
    assert [reference for reference in references if reference() is not None] == []


@pytest.mark.requirement("PRD-93")
def test_an_invocation_that_ends_takes_no_error_from_another() -> None:
    """In a process of Lambda that has several at a time."""
    driver = Producer("s", client=ModelClient())._driver
    first, second = (lambda_handler._raises_undelivered(driver) for _ in range(2))
    first.__enter__()
    second.__enter__()

    class Errors(list[Any]):
        def __iter__(self) -> Any:  # while the first invocation is given them
            if len(driver.watchers) == 2:
                first.__exit__(None, None, None)
            return super().__iter__()

    driver._count_failed(Errors([ValueError()]))
    with pytest.raises(ValueError):
        second.__exit__(None, None, None)
