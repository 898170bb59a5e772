"""Who enforces, tests and exemplifies each requirement of spec/*.md; and what is missing.

    python -m tests.spec.traceability            print what is missing, exit 1 if anything is
    python -m tests.spec.traceability PRD PRT    the same for these areas only

What counts:

* code: a comment in kpl_codec/ (Python, Cython, C) that quotes the requirement, over several comment lines
  if need be: ``# FRM-1: "An aggregated record MUST..."``. The quoted text must stand in that requirement,
  and the comment directly above the line that enforces it, or behind it.
* tests: ``pytest.mark.requirement("FRM-1")`` in tests/.
* vectors: ``"requirements": ["FRM-1"]`` in spec/vectors/.

A requirement with the word MUST needs a citation. Every requirement needs a test or a vector, and a
vector if its area is one that vectors can express. Exceptions, with reasons: spec/exceptions.json.
An id that the spec does not have may stand nowhere in kpl_codec/, nor a range that is not whole.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

#: What the vectors' kinds can express: the format, hash keys, deaggregation, shards, placement.
VECTOR_AREAS = ("FRM", "MSG", "ENC", "KEY", "DAG", "KCL", "SHD", "PLC")

_REQUIREMENT = re.compile(r"\*\*(?P<id>[A-Z]{3}-\d+)\*\*\s+(?P<text>.*?)\s*(?:\*\((?P<source>.*)\)\*)?\s*$")
_CITATION = re.compile(r'\b(?P<id>[A-Z]{3}-\d+): "(?P<quote>.*?)"(?=\s|$|[.,;)])')
_RANGE = re.compile(r"\b(?P<area>[A-Z]{3})-(?P<first>\d+)(?:\s+to\s+(?:(?P=area)-)?(?P<last>\d+))?\b")
SOURCES = (".py", ".pyx", ".pxi", ".h")
_MENTION = re.compile(r"\*\*[A-Z]{3}-\d+\*\*")


@dataclass
class Requirement:
    id: str
    text: str
    source: str | None
    file: str
    is_quoted: bool = False
    is_tested: bool = False
    has_vector: bool = False

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


def citations(source: str, sign: str) -> Iterator[tuple[int, str, str, bool]]:
    """Line, id and quoted text of every citation in a source file, and whether its comment stands behind code
    or directly above, in the same block. ``sign``: a regular expression of what begins a line of comment."""
    comments = []
    for match in re.finditer(rf"((?:^[ \t]*{sign}.*\n)+)(.*)", source, re.MULTILINE):
        text = " ".join(re.sub(rf"^\s*{sign}|\*/$", "", line) for line in match[1].splitlines())
        indent, below = (len(line) - len(line.lstrip()) for line in (match[1], match[2]))
        code = match[2].strip()
        comments.append((match.start(), text, bool(code) and code[0] not in ")]}" and below >= indent))
    for match in re.finditer(rf"\S.*  {sign} (.*)$", source, re.MULTILINE):
        comments.append((match.start(), match[1], True))
    for start, text, stands_at_code in comments:
        line = source.count("\n", 0, start) + 1
        for match in _CITATION.finditer(" ".join(text.split())):
            yield line, match["id"], match["quote"], stands_at_code


def mentioned(source: str) -> Iterator[tuple[int, str]]:
    """Line and id of everything a source file says that looks like a requirement, ranges in full."""
    for match in _RANGE.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        first = int(match["first"])
        for number in range(first, int(match["last"] or first) + 1):
            yield line, f"{match['area']}-{number}"


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

    areas = {id[:3] for id in found}
    for path in sorted(path for path in (root / "kpl_codec").rglob("*") if path.suffix in SOURCES):
        source, name = path.read_text(), _relative(path, root)
        for line, id in mentioned(source):
            if id[:3] in areas:
                known(id, f"{name}:{line}")
        sign = r"(?://|/\*|\*)" if path.suffix == ".h" else "#:?"
        for line, id, quote, stands_at_code in citations(source, sign):
            where = f"{name}:{line}"
            requirement = known(id, where)
            if requirement is None:
                continue
            if quote not in " ".join(requirement.text.split()):
                problems.append(f"{id}: {where} quotes what the spec does not say: {quote!r}")
            if not stands_at_code:
                problems.append(f"{id}: {where} stands above no code")
            requirement.is_quoted = True
    for path in sorted((root / "tests").rglob("*.py")):
        for id in marked(path.read_text()):
            requirement = known(id, _relative(path, root))
            if requirement is not None:
                requirement.is_tested = True
    for path in sorted((root / "spec" / "vectors").glob("*.json")):
        if path.name != "schema.json":
            for vector in json.loads(path.read_text())["vectors"]:
                for id in vector["requirements"]:
                    requirement = known(id, f"{_relative(path, root)} {vector['id']}")
                    if requirement is not None:
                        requirement.has_vector = True
    exceptions = json.loads((root / "spec" / "exceptions.json").read_text())["exceptions"]
    problems += missing(found.values(), exceptions)
    return Trace(found, sorted(set(problems)))


def missing(found: Iterable[Requirement], exceptions: list[dict[str, str]]) -> Iterator[str]:
    """What each requirement lacks; and exceptions that nothing needs."""
    excused = {(exception["id"], exception["lacks"]) for exception in exceptions}
    for requirement in found:
        lacks = []
        if requirement.must and not requirement.is_quoted:
            lacks.append("code")
        if not requirement.is_tested and not requirement.has_vector:
            lacks.append("test")
        if not requirement.has_vector and requirement.id.startswith(VECTOR_AREAS):
            lacks.append("vector")
        for what in lacks:
            if (requirement.id, what) not in excused:
                yield f"{requirement.id}: no {what} ({requirement.file})"
            excused.discard((requirement.id, what))
    for id, what in sorted(excused):
        yield f"{id}: spec/exceptions.json excuses a missing {what}, but it is not missing"


def main(areas: tuple[str, ...]) -> int:
    result = trace()
    problems = [problem for problem in result.problems if problem.startswith(areas)]
    looked_at = [one for id, one in result.requirements.items() if id.startswith(areas)]
    print(*problems, sep="\n", end="\n" if problems else "")
    must = sum(requirement.must for requirement in looked_at)
    print(f"{len(looked_at)} requirements, {must} of them MUST; {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(tuple(sys.argv[1:]) or ("",)))
