"""Each private name of the standard library that the producers use does what they need, in this Python."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing.process
import os
import threading
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from concurrent.futures._base import FINISHED, RUNNING

import pytest

from kpl_codec.producer import DeliveryFuture, private_names

pytestmark = pytest.mark.requirement("PRD-40", "PRD-39")


def test_a_lock_knows_whether_this_thread_has_it() -> None:
    lock = threading.RLock()
    assert not private_names.is_owned(lock)
    with lock, ThreadPoolExecutor(1) as other:
        assert private_names.is_owned(lock)
        assert not other.submit(private_names.is_owned, lock).result(10)
    assert not private_names.is_owned(lock)
    assert not private_names.is_owned(threading.Lock())
    assert not private_names.is_owned(None)


def test_a_lock_begins_anew() -> None:
    lock = threading.RLock()
    with ThreadPoolExecutor(1) as other:
        other.submit(lock.acquire).result(10)
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


def test_a_child_of_multiprocessing_has_a_parent() -> None:
    process = multiprocessing.process
    here = process.current_process()
    assert private_names.has_parent(process) is (here._parent_pid is not None)  # type: ignore[attr-defined]
    child = process.BaseProcess()
    assert child._parent_pid == os.getpid()  # type: ignore[attr-defined]


def test_a_future_has_no_other_attributes_and_the_two_states() -> None:
    future: Future[int] = Future()
    assert vars(future).keys() == set(private_names.OF_A_FUTURE)
    assert all(
        hasattr(DeliveryFuture, name) or name in ("_waiters", "_done_callbacks") for name in vars(future)
    )
    assert (private_names.FINISHED, private_names.FUTURE_RUNNING) == (FINISHED, RUNNING)
    future.set_running_or_notify_cancel()
    assert future._state == private_names.FUTURE_RUNNING
    future.set_result(1)
    assert future._state == private_names.FINISHED


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
