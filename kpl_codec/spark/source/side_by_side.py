"""Reads several items in threads into one stream of results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def side_by_side(
    read: Callable[[_Item], Iterator[_Result]], items: Sequence[_Item], threads: int = 8
) -> Iterator[tuple[_Item, _Result]]:
    """``read`` of each item, in threads; the results of an item keep their order. At most one result of each
    thread waits. The first error of a thread is raised here."""
    if len(items) == 1:
        yield from ((items[0], result) for result in read(items[0]))
        return
    left = iter(items)
    asked: dict[Future[_Result | None], tuple[_Item, Iterator[_Result]]] = {}
    with ThreadPoolExecutor(threads, "kpl-codec read") as pool:

        def ask(item: _Item, results: Iterator[_Result]) -> None:
            asked[pool.submit(next, results, None)] = item, results

        for item in islice(left, threads):
            ask(item, read(item))
        while asked:
            for future in wait(asked, return_when=FIRST_COMPLETED).done:
                item, results = asked.pop(future)
                result = future.result()
                if result is not None:
                    ask(item, results)
                    yield item, result
                elif (following := next(left, None)) is not None:
                    ask(following, read(following))
