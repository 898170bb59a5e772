"""What only the producer with threads has: callbacks, forks, calls that never return."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from kpl_codec.producer import (
    Delivery,
    DeliveryError,
    NotStarted,
    Producer,
    ProducerClosed,
    ProducerConfig,
    process,
)

from .model_client import ModelClient

FAST = ProducerConfig(record_max_buffered_time_ms=5, aggregation_max_size=2000)
FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="a fork is what is tested: this system has none")
others: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def threads_of_other_tests() -> None:
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


def faults(rng: random.Random) -> Any:
    """Now and then an answer is lost, a call is throttled as a whole, or a shard splits."""

    def spoil(operation: str, answer: Any) -> Any:
        if operation == "PutRecords" and rng.random() < 0.1:
            raise ReadTimeoutError(endpoint_url="model")
        if rng.random() < 0.05:
            raise ClientError({"Error": {"Code": "LimitExceededException"}}, operation)
        return answer

    return spoil


def broken_by_a_put(producer: Producer) -> None:
    """A bug that the first user record meets."""
    core, requests = producer._core, producer._core.requests
    core.requests = lambda now: [1 / 0] if core.outstanding else requests(now)  # type: ignore[method-assign]


@pytest.mark.requirement("PRD-10")
def test_producers_of_several_streams_lose_nothing_and_mix_nothing() -> None:
    rng = random.Random(1)
    clients = [ModelClient(latency=0.001, spoil=faults(rng)) for _ in range(5)]
    producers = [Producer(f"s{n}", client=client, config=FAST).start() for n, client in enumerate(clients)]
    futures: list[list[tuple[bytes, Any]]] = [[] for _ in producers]

    def put(caller: int) -> None:
        mine = random.Random(caller)
        for number in range(400):
            which = mine.randrange(5)
            data = b"%d %d %d" % (which, caller, number)
            futures[which].append((data, producers[which].put(f"k{mine.randrange(50)}", data)))
            if number % 100 == 99:
                with clients[which]._lock:
                    clients[which].stream.split(mine.randrange(4))
                producers[which].flush(60)

    callers = [threading.Thread(target=put, args=(caller,)) for caller in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    for producer in producers:
        assert producer.close(60)
    assert all_end()
    for client, stream in zip(clients, futures, strict=True):
        results = {data: future.result(0) for data, future in stream}
        found = client.stream.delivered()
        assert set(found) == set(results)
        lost_answers = {d for d, result in results.items() if len(result.attempts) > 1}
        assert {data for data, copies in found.items() if copies > 1} <= lost_answers


@pytest.mark.requirement("PRD-39")
@FORKS
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_orphans_the_records_of_all_and_the_parent_goes_on() -> None:
    read_write, forked = os.pipe(), threading.Event()

    def wait_for_the_fork(operation: str, answer: Any) -> Any:
        assert operation != "PutRecords" or forked.wait(60)
        return answer

    producers = [
        Producer(n, client=ModelClient(spoil=wait_for_the_fork), config=FAST).start() for n in ("a", "b")
    ]
    futures = [producer.put("k", b"x") for producer in producers]
    for future in futures:
        future.add_done_callback(lambda _: os.write(read_write[1], b"called "))
    child = os.fork()
    if child == 0:
        wrong = 1
        try:
            codes = Counter(getattr(future.exception(60), "code", None) for future in futures)
            for producer in producers:
                with pytest.raises(NotStarted) as refused:
                    producer.put("k", b"y")
                assert refused.value.code == "forked"
                with pytest.raises(ProducerClosed):  # its client is the parent's
                    producer.start()
            assert all(producer.outstanding == 0 and producer.close() for producer in producers)
            assert codes == {"forked": 2}
            wrong = len(running())
        finally:
            os._exit(wrong)
    forked.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all(producer.close(60) for producer in producers)
    assert all(isinstance(future.result(0), Delivery) for future in futures)
    assert os.read(read_write[0], 100) == b"called called "  # in the parent only
    for end in read_write:
        os.close(end)


@pytest.mark.requirement("PRD-39", "PRD-41")
@FORKS
@pytest.mark.parametrize("state", ["closed", "broken"])
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_one_that_takes_nothing_takes_nothing_in_a_forked_child(
    state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    producer = Producer("s", client=ModelClient(), config=FAST)
    if state == "broken":
        broken_by_a_put(producer)
    producer.start()
    future = producer.put("k", b"x")
    producer.close()
    assert isinstance(future.exception(), DeliveryError) is (state == "broken")
    child = os.fork()
    if child == 0:
        try:
            producer.put("k", b"y")
        except ProducerClosed as closed:
            os._exit(closed.code != state or isinstance(closed.__cause__, Exception) != (state == "broken"))
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.requirement("MAP-8")
def test_a_map_that_was_refused_is_logged_and_requested_again(caplog: pytest.LogCaptureFixture) -> None:
    refused, code = 1, "AccessDeniedException"

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
        assert not producer.wait_ready(0.3)  # the next request is after a second
        assert measured["ShardMapErrors"] == 1
        assert [record.levelname for record in caplog.records if code in record.getMessage()] == ["WARNING"]
        assert producer.wait_ready(60)
        futures = [producer.put("k", b"%d" % n) for n in range(50)]
    assert max(future.result(0).sub_sequence_number for future in futures) > 0  # aggregated again


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
    background.wait(60)
    assert made == [1, 2]
