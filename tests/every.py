"""One test for a whole table of cases: it tries every case, and names all that fail."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def every(
    names: str | tuple[str, ...], cases: Iterable[Any], ids: Any = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """``pytest.mark.parametrize`` in one test. ``names``, ``cases`` and ``ids`` are as there; a case's marks
    are not looked at. A table of thousands of cases costs pytest more than the cases themselves, and a
    failing one is named here as well. For cases that a person reruns alone use ``parametrize``.

    The test fails with the number of each failing case, its id, and its error; the traceback is that of
    the first. A case cannot skip."""
    wanted = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = list(cases)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def whole_table(**fixtures: Any) -> None:
            assert table, "the table has no cases"
            failed: list[str] = []
            first: BaseException | None = None
            for number, case in enumerate(table):
                values = case.values if isinstance(case, _PARAMETERS) else case
                if len(wanted) == 1 and not isinstance(case, _PARAMETERS):
                    values = (case,)
                try:
                    test(**dict(zip(wanted, values, strict=True)), **fixtures)
                except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:  # noqa: BLE001
                    first = first or error
                    said = "".join(traceback.format_exception_only(type(error), error)).strip()
                    failed.append(f"case {number}, {_id(case, values, ids, number)}: {said}")
            if failed:
                count = f"{len(failed)} of {len(table)} cases fail:"
                raise AssertionError("\n\n".join([count, *failed[:20]])) from first

        signature = inspect.signature(test)
        left = [one for one in signature.parameters.values() if one.name not in wanted]
        whole_table.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return whole_table

    return decorate


_PARAMETERS = type(pytest.param())


def _id(case: Any, values: Any, ids: Any, number: int) -> str:
    """What names a case to a person."""
    if isinstance(case, _PARAMETERS) and case.id is not None:
        return str(case.id)
    if callable(ids):
        return "-".join(str(ids(value)) for value in values)
    if ids is not None:
        return str(list(ids)[number])
    return ", ".join(repr(value)[:80] for value in values)
