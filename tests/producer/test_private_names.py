"""Each private name of the standard library that the producers use does what they need, in this Python."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait

import pytest

from kpl_codec.producer import private_names

pytestmark = pytest.mark.requirement("PRD-40", "PRD-39")


def test_a_lock_knows_whether_this_thread_has_it() -> None:
    lock = threading.RLock()
    assert not private_names.is_owned(lock)
    with lock, ThreadPoolExecutor(1) as other:
        assert private_names.is_owned(lock)
        assert not other.submit(private_names.is_owned, lock).result(60)
    assert not private_names.is_owned(lock)
    assert not private_names.is_owned(threading.Lock())
    assert not private_names.is_owned(None)


def test_a_lock_begins_anew() -> None:
    lock = threading.RLock()
    with ThreadPoolExecutor(1) as other:
        other.submit(lock.acquire).result(60)
        assert not lock.acquire(blocking=False)
        private_names.begin_anew(lock)
        assert lock.acquire(blocking=False)


def test_the_locks_of_logging_are_found() -> None:
    handler = logging.NullHandler()
    handler.lock = threading.RLock()  # (a NullHandler has none)
    locks = private_names.locks_of_logging()
    assert handler.lock in locks
    with handler.lock:
        assert any(map(private_names.is_owned, locks))
    entered: list[bool] = []

    class Emits(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            entered.append(any(map(private_names.is_owned, private_names.locks_of_logging())))

    Emits().handle(logging.makeLogRecord({}))
    assert entered == [True]
    assert not any(map(private_names.is_owned, private_names.locks_of_logging()))


def test_a_future_has_the_lock_and_the_list_that_it_was_given() -> None:
    lock, waiters = threading.RLock(), list[object]()
    future = private_names.future_with(lock, waiters)
    with ThreadPoolExecutor(1) as other, lock:
        assert not other.submit(future._condition.acquire, blocking=False).result(60)
    assert not waiters
    assert wait([future], 0).not_done == {future}
    waiter = futures._base._create_and_install_waiters([future], futures.ALL_COMPLETED)
    assert waiters == [waiter]


@pytest.mark.parametrize("outcome", [1, OSError()])
@pytest.mark.parametrize("when", [futures.ALL_COMPLETED, futures.FIRST_COMPLETED, futures.FIRST_EXCEPTION])
def test_who_waits_for_a_future_is_told_later(outcome: object, when: str) -> None:
    future = private_names.future_with(threading.RLock(), [])
    with ThreadPoolExecutor(2) as other:
        waiting = other.submit(wait, [future], 10, when), other.submit(list, as_completed([future], 10))
        while len(future._waiters) < 2:
            time.sleep(0.001)
        waiters = private_names.take_waiters(future)
        assert len(waiters) == 2
        assert future._waiters == []
        if isinstance(outcome, OSError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
        future._waiters += waiters
        assert not any(one.done() for one in waiting)
        private_names.tell_waiters([(future, waiters)])
        assert waiting[0].result(60).done == {future}
        assert waiting[1].result(60) == [future]


def test_the_functions_that_wait_are_known_by_their_code() -> None:
    seen: list[bool] = []

    class Waiters(list):  # type: ignore[type-arg]
        def append(self, waiter: object) -> None:
            frame = private_names.caller(1)
            while frame is not None and frame.f_code not in private_names.WAITS:
                frame = frame.f_back
            seen.append(frame is not None)
            super().append(waiter)

    for waits in (lambda one: wait([one], 0), lambda one: next(as_completed([one], 0), None)):
        future: Future[int] = Future()
        future._waiters = Waiters()  # type: ignore[attr-defined]
        with contextlib.suppress(futures.TimeoutError):
            waits(future)
    assert seen == [True, True]
