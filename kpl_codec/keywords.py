"""The error for a keyword argument that a function does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def check_keywords(name: str, options: Iterable[str], *takers: Callable[..., Any]) -> None:
    """Raise TypeError if ``options``, the keywords of a call of the function ``name``, has one that no
    function or TypedDict in ``takers`` has. The text names the function that the user called."""
    known: set[str] = set()
    for taker in takers:
        if isinstance(taker, type):
            known.update(taker.__annotations__)
        else:
            code: Any = taker.__code__
            known.update(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    for option in options:
        if option not in known:
            from difflib import get_close_matches  # slow to import

            near = get_close_matches(option, known, 1, 0.7)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise TypeError(f"{name}() has no argument {option!r}{hint}")
