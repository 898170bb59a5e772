"""How others read one record: the KCL by its rules, other implementations by running them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..conformance import ProgramError, adapter_command, run
from ..conformance.judging import decode_vector
from ..deaggregation.kcl import Outcome
from ..pictures.labels import plural
from ..pictures.terminal import Part

#: The other implementations to run: adapters of ``kpl_codec.conformance``.
OTHERS = ("aws_kinesis_agg",)


def ask(data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """Runs each of `OTHERS` on ``data``, in its own process: the grade of its answer
    (`conformance.GRADES`, or not-installed) and what it did."""
    vector = decode_vector(data)
    for name in OTHERS:
        try:
            result = run(adapter_command(name), [vector])
        except ProgramError as error:
            yield name, {"grade": "not-installed", "detail": str(error)}
        else:
            (judgement,) = result.judgements
            yield f"{result.name} {result.version}", {"grade": judgement.grade, "detail": judgement.detail}


#: What a grade means for this one record, and its style.
_SAID = {
    "pass": ("agrees with this library", "green"),
    "refused": ("refuses it", "yellow"),
    "unopened": ("hands it on unopened, as a plain record", "yellow"),
    "accepted": ("delivers user records out of a broken frame", "red"),
    "lost": ("loses user records in silence", "red"),
    "wrong": ("delivers other user records", "red"),
    "failed": ("fails", "red"),
    "not-installed": ("could not be asked (is it installed?)", "dim"),
}


def text(answer: dict[str, Any]) -> Part:
    """An answer of `ask` for people."""
    said, style = _SAID[answer["grade"]]
    detail = answer["detail"][:200] if answer["grade"] != "not-installed" else ""
    return f"{said}: {detail}" if detail else said, style


def kcl_text(outcome: Outcome) -> Part:
    """What the KCL does with a record, for people."""
    if outcome.raw:
        return "hands it on unopened, as a plain record"
    if outcome.delivered == outcome.total and outcome.total:
        return f"delivers all: {plural(outcome.total, 'user record')}", "green"
    where = f" at user record {outcome.record_index}" if outcome.record_index is not None else ""
    return (
        f"delivers {outcome.delivered} of {outcome.total} user records, and drops the rest"
        f" ({outcome.reason}{where})",
        "red",
    )
