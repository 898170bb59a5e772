"""What a kind of finding is, and how bad it can be, worst first:

critical   consumers that use the KCL have lost, or will lose, user records
error      broken bytes; some consumer fails on them or reads them wrong
warning    something is inconsistent; a person should look at it
info       a useful fact; nothing is wrong
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

Severity = Literal["critical", "error", "warning", "info"]
#: Worst first.
SEVERITIES: tuple[Severity, ...] = get_args(Severity)


def at_least_as_bad(severity: Severity, than: Severity) -> bool:
    """Whether ``severity`` is as bad as ``than``, or worse."""
    return SEVERITIES.index(severity) <= SEVERITIES.index(than)


class Kind(NamedTuple):
    """One kind of finding. ``meaning``, ``concerns`` and ``todo`` are sentences for people, plain text.

    ``concerns``: which readers and writers of the stream are hurt, and which are not. ``requirement``: the
    sentence of spec/ behind it.
    """

    name: str
    severity: Severity
    title: str
    meaning: str
    concerns: str
    todo: str
    requirement: str | None = None


ONLY_THE_CHECK = "Nobody who reads the stream. It limits what this check can say."
NOBODY = "Nobody."
