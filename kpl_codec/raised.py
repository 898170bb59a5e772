"""What a log may say of an exception that a caller's function raised."""

from __future__ import annotations


class OwnText(Exception):
    """An error whose text is this library's own: it repeats no record data and no key."""


def place_of(error: BaseException) -> str:
    """The class of what a caller's function raised, and the file and line of each call to there, the last one
    first. Without its text, which may repeat data or keys, unless that is this library's own."""
    places, trace = list[str](), error.__traceback__
    while trace is not None:
        places.append(f"{trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno}")
        trace = trace.tb_next
    where = f" in {places.pop()}" + "".join(f", from {place}" for place in reversed(places)) if places else ""
    return f"{type(error).__name__}{f': {error}' if isinstance(error, OwnText) else ''}{where}"
