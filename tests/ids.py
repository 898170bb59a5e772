"""The name of a test, which must be the same in every process, on every machine, on every day.

pytest makes a name of the parameters. pytest-xdist compares the names that its processes have collected, and
ends the run where they differ: bytes that hold the second at which they were made are enough for that.
"""

from __future__ import annotations

import re
from pathlib import Path

#: The most characters that one parameter gives to a name, and the most of all parameters together.
MOST_OF_ONE, MOST = 32, 80

_ROOT = str(Path(__file__).parents[1])
_FAULTS = (
    ("an escape", re.compile(r"\\[xuUnrt0]")),
    ("an address", re.compile(r"\b0x[0-9a-f]{6,}", re.IGNORECASE)),
    ("a time", re.compile(r"\d{4}-?\d{2}-?\d{2}T|\b20\d\d-\d{2}-\d{2}|\d{1,2}:\d{2}:\d{2}")),
    ("a time", re.compile(r"\b1\d{9}(\d{3})?(\.|\b)")),  # of Unix, in seconds or milliseconds
)


def id_of(value: object, name: str) -> str | None:
    """What a parameter gives to a test's name: a short text as it is, a long or odd one by its first words,
    bytes and long numbers by the parameter's name, to which pytest adds a number. None: pytest's own."""
    if isinstance(value, bytes) or (isinstance(value, (int, float)) and len(repr(value)) > MOST_OF_ONE):
        return name
    if not isinstance(value, str):
        return None
    if len(value) <= MOST_OF_ONE and value.isascii() and value.isprintable() and fault_of(value) is None:
        return value
    words = ""
    for word in re.findall(r"[A-Za-z0-9]+", value):
        if len(words) + len(word) >= MOST_OF_ONE or fault_of(word):
            break
        words = f"{words} {word}".lstrip()
    return words or name


def fault_of(parameters: str) -> str | None:
    """Why the parameters in a test's name may differ next time, or cannot be read; None if all is well."""
    if len(parameters) > MOST:
        return f"{len(parameters)} characters, {MOST} are the most"
    if _ROOT in parameters:
        return "a path of this machine"
    return next((fault for fault, pattern in _FAULTS if pattern.search(parameters)), None)
