"""Who enforces, tests and exemplifies each requirement of spec/*.md; and what is missing.

    python -m tests.spec.traceability            print what is missing, exit 1 if anything is
    python -m tests.spec.traceability PRD PRT    the same for these areas only
    python -m tests.spec.traceability --write    write spec/coverage.txt anew, too

What counts:

* code: a comment in kpl_codec/ that quotes the requirement: ``# FRM-1: "An aggregated record MUST..."``,
  over several comment lines if need be. The quoted text must stand in that requirement.
* tests: ``pytest.mark.requirement("FRM-1")`` in tests/.
* vectors: ``"requirements": ["FRM-1"]`` in spec/vectors/.

A requirement with the word MUST needs a citation. Every requirement needs a test or a vector, and a
vector if its area is one that vectors can express. Exceptions, with reasons: spec/exceptions.json.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

#: What the vectors' kinds can express: the format, hash keys, deaggregation, shards, placement.
VECTOR_AREAS = ("FRM", "MSG", "ENC", "KEY", "DAG", "KCL", "SHD", "PLC")

_REQUIREMENT = re.compile(r"\*\*(?P<id>[A-Z]{3}-\d+)\*\*\s+(?P<text>.*?)\s*(?:\*\((?P<source>.*)\)\*)?\s*$")
_CITATION = re.compile(r'\b(?P<id>[A-Z]{3}-\d+): "(?P<quote>.*?)"(?=\s|$|[.,;)])')
_MENTION = re.compile(r"\*\*[A-Z]{3}-\d+\*\*")


@dataclass
class Requirement:
    id: str
    text: str
    source: str | None
    file: str
    code: set[str] = field(default_factory=set)
    tests: set[str] = field(default_factory=set)
    vectors: int = 0

    @property
    def must(self) -> bool:
        return "MUST" in self.text


@dataclass
class Trace:
    requirements: dict[str, Requirement]
    problems: list[str]


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def requirements(lines: Iterable[str], file: str) -> Iterator[Requirement]:
    """The requirements of one chapter. Raises ValueError for a line that looks like one and is none."""
    for number, line in enumerate(lines, 1):
        match = _REQUIREMENT.match(line)
        if match:
            yield Requirement(match["id"], match["text"], match["source"], file)
        elif _MENTION.match(line):
            raise ValueError(f"{file}:{number}: a requirement stands on one line of its own")


def comment_blocks(source: str) -> Iterator[tuple[int, str]]:
    """Runs of comment lines, joined: line number and text."""
    block: list[str] = []
    start = 0
    for number, line in enumerate([*source.splitlines(), ""], 1):
        stripped = line.strip()
        comment = stripped if stripped.startswith("#") else ""
        if not comment and "  # " in line:  # behind code
            yield number, line.split("  # ", 1)[1].strip()
        if comment:
            start = start if block else number
            block.append(comment.lstrip("#:").strip())
        elif block:
            yield start, " ".join(block)
            block = []


def citations(source: str) -> Iterator[tuple[int, str, str]]:
    """Line, id and quoted text of every citation in a Python or Cython file."""
    for line, text in comment_blocks(source):
        for match in _CITATION.finditer(text):
            yield line, match["id"], " ".join(match["quote"].split())


def marked(source: str) -> Iterator[str]:
    """The ids in ``requirement(...)`` marks of a test module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", None) == "requirement":
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value


def trace(root: Path = REPOSITORY) -> Trace:
    """Read the whole repository. ``problems`` are sentences, by area."""
    found: dict[str, Requirement] = {}
    problems: list[str] = []
    for path in sorted((root / "spec").glob("[0-9]*.md")):
        for requirement in requirements(path.read_text().splitlines(), _relative(path, root)):
            if requirement.id in found:
                problems.append(
                    f"{requirement.id}: stands in {found[requirement.id].file} and {requirement.file}"
                )
            if not requirement.source:
                problems.append(f"{requirement.id}: {requirement.file} names no source")
            found[requirement.id] = requirement

    def known(id: str, where: str) -> Requirement | None:
        if id not in found:
            problems.append(f"{id}: {where} speaks of it, the spec does not")
        return found.get(id)

    code = [*(root / "kpl_codec").rglob("*.py"), *(root / "kpl_codec").rglob("*.pyx")]
    for path in sorted(code):
        for line, id, quote in citations(path.read_text()):
            where = f"{_relative(path, root)}:{line}"
            requirement = known(id, where)
            if requirement is None:
                continue
            if quote not in " ".join(requirement.text.split()):
                problems.append(f"{id}: {where} quotes what the spec does not say: {quote!r}")
            requirement.code.add(_relative(path, root))
    for path in sorted((root / "tests").rglob("*.py")):
        for id in marked(path.read_text()):
            requirement = known(id, _relative(path, root))
            if requirement is not None:
                requirement.tests.add(_relative(path, root))
    for path in sorted((root / "spec" / "vectors").glob("*.json")):
        if path.name != "schema.json":
            for vector in json.loads(path.read_text())["vectors"]:
                for id in vector["requirements"]:
                    requirement = known(id, f"{_relative(path, root)} {vector['id']}")
                    if requirement is not None:
                        requirement.vectors += 1
    exceptions = json.loads((root / "spec" / "exceptions.json").read_text())["exceptions"]
    problems += missing(found.values(), exceptions)
    return Trace(found, sorted(set(problems)))


def missing(found: Iterable[Requirement], exceptions: list[dict[str, str]]) -> Iterator[str]:
    """What each requirement lacks; and exceptions that nothing needs."""
    excused = {(exception["id"], exception["lacks"]) for exception in exceptions}
    for requirement in found:
        lacks = []
        if requirement.must and not requirement.code:
            lacks.append("code")
        if not requirement.tests and not requirement.vectors:
            lacks.append("test")
        if not requirement.vectors and requirement.id.startswith(VECTOR_AREAS):
            lacks.append("vector")
        for what in lacks:
            if (requirement.id, what) not in excused:
                yield f"{requirement.id}: no {what} ({requirement.file})"
            excused.discard((requirement.id, what))
    for id, what in sorted(excused):
        yield f"{id}: spec/exceptions.json excuses a missing {what}, but it is not missing"


def summary(requirements: dict[str, Requirement]) -> str:
    """spec/coverage.txt: a line for each requirement."""
    lines = [
        "# Requirement, MUST or not, where the code quotes it, where tests name it, how many vectors.",
        "# Written by: python -m tests.spec.traceability --write",
    ]
    by_file = defaultdict(list)
    for requirement in requirements.values():
        by_file[requirement.file].append(requirement)
    for file, group in sorted(by_file.items()):
        lines += ["", f"{file}: {len(group)} requirements"]
        for requirement in sorted(group, key=lambda r: (r.id[:3], int(r.id[4:]))):
            strength = "MUST" if requirement.must else "    "
            code = " ".join(sorted(requirement.code)) or "-"
            tests = " ".join(sorted(requirement.tests)) or "-"
            lines.append(f"{requirement.id:7} {strength} | {code} | {tests} | {requirement.vectors}")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    result = trace()
    if "--write" in arguments:
        (REPOSITORY / "spec" / "coverage.txt").write_text(summary(result.requirements))
    areas = tuple(argument for argument in arguments if argument != "--write") or ("",)
    problems = [problem for problem in result.problems if problem.startswith(areas)]
    print(*problems, sep="\n", end="\n" if problems else "")
    looked_at = [requirement for id, requirement in result.requirements.items() if id.startswith(areas)]
    must = sum(requirement.must for requirement in looked_at)
    print(f"{len(looked_at)} requirements, {must} of them MUST; {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
