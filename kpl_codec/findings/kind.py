"""What a kind of finding is, and how bad it can be, worst first:

critical   consumers that use the KCL have lost, or will lose, user records
error      broken bytes; some consumer fails on them or reads them wrong
warning    something is inconsistent; a person should look at it
info       a useful fact; nothing is wrong
"""

from __future__ import annotations

from typing import Literal, NamedTuple, cast, get_args

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


def kinds(text: str, concerns: str = NOBODY, todo: str = "Nothing.") -> tuple[Kind, ...]:
    """The kinds in ``text``, each a paragraph:

    name: severity, requirement (or -): title
    the meaning, in any number of lines
    Whom: whom it concerns, unless that is ``concerns``
    Do: what to do, unless that is ``todo``
    """
    found = []
    for paragraph in text.strip().split("\n\n"):
        head, _, told = paragraph.partition("\n")
        name, grade, title = head.split(": ", 2)
        severity, requirement = grade.split(", ")
        meaning, _, what_to_do = told.replace("\n", " ").partition(" Do: ")
        meaning, _, whom = meaning.partition(" Whom: ")
        texts = title, meaning, whom or concerns, what_to_do or todo
        found.append(
            Kind(name, cast("Severity", severity), *texts, None if requirement == "-" else requirement)
        )
    return tuple(found)
