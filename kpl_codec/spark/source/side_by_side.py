"""Reads several items in threads into one stream of results."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

#: Items that are read at the same time.
THREADS: Final = 8

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def side_by_side(
    read: Callable[[_Item], Iterator[_Result]], items: Sequence[_Item], threads: int = THREADS
) -> Iterator[tuple[_Item, _Result]]:
    """``read`` of each item, in threads; the results of an item keep their order. At most two results per
    thread wait. The first error of a thread is raised here."""
    if len(items) == 1:
        yield from ((items[0], result) for result in read(items[0]))
        return
    threads = min(threads, len(items))
    ready: queue.Queue[tuple[_Item, _Result] | BaseException | None] = queue.Queue(2 * threads)
    stopped = threading.Event()

    def hand_over(result: tuple[_Item, _Result] | BaseException | None) -> None:
        while not stopped.is_set():
            try:
                return ready.put(result, timeout=0.5)
            except queue.Full:
                continue

    def run(item: _Item) -> None:
        try:
            for result in () if stopped.is_set() else read(item):
                hand_over((item, result))
                if stopped.is_set():
                    return
            hand_over(None)
        except BaseException as error:  # noqa: BLE001 - raised by the caller's thread
            hand_over(error)

    with ThreadPoolExecutor(threads, "kpl-codec read") as pool:
        try:
            for item in items:
                pool.submit(run, item)
            left = len(items)
            while left:
                result = ready.get()
                if isinstance(result, BaseException):
                    raise result
                if result is None:
                    left -= 1
                else:
                    yield result
        finally:
            stopped.set()
