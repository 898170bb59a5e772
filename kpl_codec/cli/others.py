"""How others read one record: the KCL by its rules, other implementations by running them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..conformance import Program, ProgramError, adapter_command
from ..deaggregation.kcl import Outcome
from ..errors import DecodeError
from ..format.codec import decode
from ..format.records import UserRecord
from ..pictures.labels import plural
from ..pictures.terminal import Part

#: The other implementations to run: adapters of ``kpl_codec.conformance``.
OTHERS = ("aws_kinesis_agg",)


def ask(data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """Runs each of `OTHERS` on ``data``, in its own process.

    ``outcome``: same, plain, lost, differs, refused, crashed, not-installed; with ``delivered``, the
    number of user records, and ``detail``.
    """
    try:
        expected: list[UserRecord] | None = list(decode(data))
    except DecodeError:
        expected = None
    for name in OTHERS:
        try:
            with Program(adapter_command(name), timeout=20) as program:
                version = str(program.hello.get("version", "?"))
                answer = program.ask({"op": "decode", "id": "inspect", "data": data.hex()})
        except ProgramError as error:
            yield name, {"outcome": "not-installed", "detail": str(error)}
        else:
            yield f"{name} {version}", _compared(answer, expected)


def _compared(answer: dict[str, Any], expected: list[UserRecord] | None) -> dict[str, Any]:
    if "error" in answer:
        return {"outcome": "refused", "detail": str(answer["error"])}
    if answer.get("plain"):
        return {"outcome": "plain", "delivered": 1}
    if "user_records" not in answer:
        return {"outcome": "crashed", "detail": str(answer)}
    got = [
        (r.get("partition_key"), r.get("explicit_hash_key"), r.get("data")) for r in answer["user_records"]
    ]
    if expected is None:
        return {"outcome": "differs" if got else "lost", "delivered": len(got)}
    ours = [(r.partition_key, r.explicit_hash_key, r.data.hex()) for r in expected]
    if got == ours:
        return {"outcome": "same", "delivered": len(got)}
    wrong = sum(a != b for a, b in zip(got, ours, strict=False))
    outcome = "lost" if len(got) < len(ours) else "differs"
    return {"outcome": outcome, "delivered": len(got), "expected": len(ours), "wrong": wrong}


def text(outcome: dict[str, Any]) -> Part:
    """An outcome of `ask` for people."""
    kind, delivered = outcome["outcome"], outcome.get("delivered", 0)
    if kind == "same":
        return f"delivers the same {delivered} user records", "green"
    if kind == "plain":
        return "hands it on unopened, as a plain record"
    if kind == "not-installed":
        return "could not be asked (is it installed?)", "dim"
    if kind in ("refused", "crashed"):
        return f"{kind}: {outcome['detail'][:200]}", "yellow"
    if "expected" in outcome:
        said = f"delivers {delivered} of {outcome['expected']} user records, {outcome['wrong']} of them wrong"
    else:
        said = f"delivers {delivered} user records out of a broken frame"
    return said + (", and loses the rest in silence" if kind == "lost" else ""), "red"


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
