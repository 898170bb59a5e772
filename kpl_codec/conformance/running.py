"""Asks a program all vectors, and shows the grades: a table, or a badge to publish."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from .judging import GRADES, LOSSES, Judgement, judge, question
from .program import Program
from .serving import FIELDS

#: The programs of this package: this library, and awslabs' Python module, if it is installed beside it.
ADAPTERS = ("kpl_codec", "aws_kinesis_agg")
_GREEN, _YELLOW, _RED = "#3c8527", "#a8730a", "#b3261e"
_LABEL = "KPL vectors"
#: Width of a character, and the room around a text, in pixels.
_CHARACTER, _ROOM = 7, 12


def adapter_command(name: str) -> list[str]:
    return [sys.executable, "-m", f"{__package__}.program_{name}"]


def vector_files() -> list[Path]:
    folder = Path(__file__).parent / "vectors"
    return sorted(path for path in folder.glob("*.json") if path.name != "schema.json")


def load(files: Iterable[Path]) -> list[dict[str, Any]]:
    return [vector for path in files for vector in json.loads(path.read_text(encoding="utf-8"))["vectors"]]


@dataclass
class Result:
    """One program's judgements; ``unsupported``: how many vectors were not asked. ``fields``: the parts of a
    user record that it gives."""

    name: str
    version: str
    fields: tuple[str, ...] = FIELDS
    judgements: list[Judgement] = field(default_factory=list)
    unsupported: int = 0

    @property
    def grades(self) -> Counter[str]:
        return Counter(judgement.grade for judgement in self.judgements)

    @property
    def conforms(self) -> bool:
        return set(self.grades) <= {"pass"}


def run(
    command: Sequence[str],
    vectors: Iterable[dict[str, Any]],
    *,
    lines: bool = False,
    timeout: float = 20.0,
) -> Result:
    """Ask ``command`` about every vector whose operation it knows. ``lines``: it speaks lines, not JSON.
    Raises ProgramError if it cannot be started or does not introduce itself."""
    with Program(command, lines=lines, timeout=timeout) as program:
        hello, known = program.hello, set(program.hello["ops"])
        fields = tuple(hello.get("fields", FIELDS))
        result = Result(str(hello["name"]), str(hello.get("version", "?")), fields)
        for vector in vectors:
            # CNF-2: "Only operations that a program names in its hello MUST be asked of it; the rest, and
            # what it answers unsupported, is counted as not asked."
            answer = program.ask(question(vector)) if vector["kind"] in known else {"unsupported": True}
            if answer.get("unsupported"):
                result.unsupported += 1
            else:
                result.judgements.append(judge(vector, answer, fields))
    return result


def table(results: Sequence[Result]) -> str:
    """The results side by side: how many vectors got which grade, by operation. Needs rich."""
    from ..pictures import terminal

    heads = ["implementation", "operation", *GRADES, "not asked"]
    rows = []
    for result in results:
        name = f"{result.name} {result.version}"
        unsupported = str(result.unsupported or "")
        for kind in sorted({judgement.kind for judgement in result.judgements}):
            grades = Counter(j.grade for j in result.judgements if j.kind == kind)
            counts = [str(grades[grade] or "") for grade in GRADES]
            if kind == "decode" and set(result.fields) < set(FIELDS):
                kind = f"decode ({', '.join(result.fields)})"
            rows.append([name, kind, *counts, unsupported])
            name = unsupported = ""
    return terminal.render(terminal.table(heads, rows, range(2, len(heads))), fit=False).rstrip("\n")


def badge(result: Result) -> str:
    """An SVG image: how many vectors pass, of those that were asked. Green: all. Yellow: no user record was
    lost or delivered wrong. Red: some were."""
    colour = _GREEN if result.conforms else _RED if LOSSES & result.grades.keys() else _YELLOW
    said = f"{result.grades['pass']} of {len(result.judgements)}"
    left, right = (len(text) * _CHARACTER + _ROOM for text in (_LABEL, said))
    title = escape(f"{result.name} {result.version}: {said} {_LABEL} pass")
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img">
<title>{title}</title>
<rect width="{left}" height="20" fill="#444"/><rect x="{left}" width="{right}" height="20" fill="{colour}"/>
<g fill="#fff" font-family="Verdana,sans-serif" font-size="11" text-anchor="middle">
<text x="{left / 2}" y="14">{_LABEL}</text><text x="{left + right / 2}" y="14">{said}</text>
</g>
</svg>
"""
