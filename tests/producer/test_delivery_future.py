"""The producer's future does what any future does, only cheaper."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ALL_COMPLETED, Future, InvalidStateError, as_completed, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.producer import Delivery, DeliveryError, Producer, Put, process
from kpl_codec.producer.future import DeliveryFuture, WouldDeadlock, _call_back, end_all, new_future
from kpl_codec.producer.process import driving

from .model_client import ModelClient

DELIVERY = Delivery("shard", "1", 0, ())
REFUSED = DeliveryError(user_record=Put("k", b"x"), outcome="refused", code="refused", attempts=())


def of(future: DeliveryFuture, result: object = DELIVERY) -> Any:
    """A user record with this future that has ended so."""
    return SimpleNamespace(token=future, result=result)


OPERATIONS: dict[str, Callable[[Any, list[Any]], Any]] = {
    "result": lambda future, told: future.result(0),
    "exception": lambda future, told: future.exception(0),
    "done": lambda future, told: future.done(),
    "running": lambda future, told: future.running(),
    "cancelled": lambda future, told: future.cancelled(),
    "cancel": lambda future, told: future.cancel(),
    "wait": lambda future, told: len(wait([future], 0).done),
    "call back": lambda future, told: future.add_done_callback(lambda ended: told.append(ended.done())),
    "deliver": lambda future, told: future.set_result(DELIVERY),
    "fail": lambda future, told: future.set_exception(REFUSED),
}


@given(st.lists(st.sampled_from(sorted(OPERATIONS)), max_size=8))
def test_it_answers_as_any_future_does(operations: list[str]) -> None:
    def run(future: Future[Delivery]) -> list[Any]:
        told: list[Any] = []
        answers: list[Any] = []
        for name in operations:
            try:
                answers.append(OPERATIONS[name](future, told))
            except (FutureTimeoutError, InvalidStateError, DeliveryError) as error:
                answers.append(type(error))
        return [answers, told]

    other: Future[Delivery] = Future()
    other.set_running_or_notify_cancel()
    assert run(DeliveryFuture()) == run(other)


def test_nobody_misses_the_end_whenever_it_comes(request: pytest.FixtureRequest) -> None:
    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-6)  # threads take turns as often as they can
    for _ in range(60):
        futures = [new_future() for _ in range(40)]
        called: list[Future[Delivery]] = []
        yielded: list[Future[Delivery]] = []
        waited: list[Delivery | None] = []

        def one_by_one(futures: list[DeliveryFuture] = futures, waited: list[Any] = waited) -> None:
            for future in reversed(futures):
                waited.append(None if future.exception(60) else future.result(60))

        def together(futures: list[DeliveryFuture] = futures, yielded: list[Any] = yielded) -> None:
            yielded.extend(as_completed(futures, 60))
            assert not wait(futures, 60, ALL_COMPLETED).not_done

        def call_back(futures: list[DeliveryFuture] = futures, called: list[Any] = called) -> None:
            for future in futures:
                future.add_done_callback(called.append)

        threads = [threading.Thread(target=target) for target in (one_by_one, together, call_back, together)]
        for thread in threads:
            thread.start()
        for number, future in enumerate(futures):
            end_all([of(future, DELIVERY if number % 7 else REFUSED)])
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert waited.count(DELIVERY) == 34
        assert waited.count(None) == 6
        assert len(yielded) == 2 * len(set(yielded)) == 80
        assert len(called) == len(set(called)) == 40


@pytest.mark.requirement("PRD-10", "PRD-41")
@pytest.mark.parametrize("asked", [False, True], ids=["plain", "whole"])
def test_a_caller_who_ends_one_neither_breaks_the_producer_nor_wins(asked: bool) -> None:
    """As a mistake, or in a test of his program."""
    not_so: Any = "not so"
    with Producer("s", client=ModelClient(latency=0.01)) as producer:
        futures = [producer.put("k", b"%d" % number) for number in range(4)]
        for future in futures[:2]:
            if asked:
                assert wait([future], 0).not_done
            with suppress(InvalidStateError):
                future.set_result(not_so)
            with suppress(InvalidStateError):
                future.set_exception(OSError())
            assert not future.cancel()
        after = producer.put("k", b"after")
    assert all(isinstance(future.result(0), Delivery) for future in [*futures, after])
    assert all(future.exception(0) is None for future in [*futures, after])


@pytest.mark.requirement("PRD-40")
def test_a_refused_wait_keeps_no_lock() -> None:
    """`wait` takes the locks of its futures in turn: who is refused at one of them must have taken none."""
    ended, pending = sorted([DeliveryFuture(), DeliveryFuture()], key=id)
    ended.set_exception(OSError())
    refused = []

    def in_a_callback() -> None:
        driving.here = True
        try:
            wait([ended, pending], timeout=0)
        except WouldDeadlock as error:
            refused.append(error.code)

    thread = threading.Thread(target=in_a_callback)
    thread.start()
    thread.join()
    assert refused == ["in-callback"]
    assert all(future._condition.acquire(blocking=False) for future in (ended, pending))


def test_a_child_that_its_caller_forks_in_a_callback_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the future ended while the callback was added, so that the caller's thread calls it."""

    def fork(_: object) -> None:
        monkeypatch.setattr(process, "_forks", process._forks + 1)

    caller = threading.Thread(target=_call_back, args=(fork, DeliveryFuture()), daemon=True)
    caller.start()
    caller.join(60)
    assert not caller.is_alive()
