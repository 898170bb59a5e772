"""Asks a program all vectors of the files, and shows a table of grades."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .judging import GRADES, Judgement, check_vector, judge, question
from .program import Program
from .serving import FIELDS

#: The programs of this package, by name, and what each speaks for.
ADAPTERS = {
    "kpl_codec": "this library",
    "aws_kinesis_agg": "awslabs' Python module (PyPI), which has to be installed beside this library",
}


def adapter_command(name: str) -> list[str]:
    """The command that starts the adapter ``name``. Raises KeyError for an unknown name."""
    ADAPTERS[name]
    return [sys.executable, "-m", f"{__package__}.program_{name}"]


def vector_files(directory: Path | None = None) -> list[Path]:
    """The vector files in ``directory``, or those of this library."""
    directory = directory or Path(__file__).parent / "vectors"
    return sorted(path for path in directory.glob("*.json") if path.name != "schema.json")


def load(files: Iterable[Path]) -> list[dict[str, Any]]:
    """All vectors of the files. Raises OSError, and ValueError for files that are none."""
    found: list[dict[str, Any]] = []
    for path in files:
        try:
            some = json.loads(path.read_text(encoding="utf-8"))["vectors"]
            if not isinstance(some, list):
                raise TypeError("vectors is no list")
            for vector in some:
                check_vector(vector)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ValueError(f"{path.name}: {type(error).__name__}: {error}") from None
        found += some
    return found


@dataclass
class Result:
    """One program's judgements, in the order of the vectors; ``unsupported`` vectors were not asked.
    ``fields``: the parts of a user record that it gives."""

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

    Raises ProgramError if the command cannot be started or does not introduce itself.
    """
    with Program(command, lines=lines, timeout=timeout) as program:
        hello = program.hello
        fields = tuple(hello.get("fields", FIELDS))
        result = Result(str(hello["name"]), str(hello.get("version", "?")), fields)
        known = set(program.hello["ops"])
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
