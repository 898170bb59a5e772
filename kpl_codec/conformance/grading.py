"""Asks a program about the vectors of spec/vectors, grades its answers (section 9.3 of
spec/09-conformance.md), and shows the grades. Where a vector has an error, any error passes, because the
codes are those of this library.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from ..format.codec import decode
from ..rendering.labels import plural
from .program import FIELDS, Program, user_record

#: The command that runs this library as the program under test.
THIS_LIBRARY = (sys.executable, "-m", f"{__package__}.program_kpl_codec")
FOLDER = Path(__file__).parent / "vectors"
GRADES = ("pass", "refused", "unopened", "accepted", "lost", "other-bytes", "wrong", "failed")

#: Grades that mean that user records are lost, or delivered with other keys or data.
LOSSES = frozenset({"lost", "wrong", "failed"})

#: The members that an answer must have, by kind of vector.
_RESULTS = {
    "encode": ("data",),
    "hash-key": ("hash_key",),
    "hash-key-text": ("hash_key",),
    "hash-key-range": ("inside",),
    "shard-map": ("open_shards", "lookups", "unknown_parents"),
    "placement": ("verdict", "expected_shard_id", "in_range"),
    "deaggregate": ("rows",),
    "schema-frame": ("schema_version_id", "payload"),
}


def vectors() -> list[dict[str, Any]]:
    """All vectors, by the names of their files."""
    files = sorted(path for path in FOLDER.glob("*.json") if path.name != "schema.json")
    return [vector for path in files for vector in json.loads(path.read_text(encoding="utf-8"))["vectors"]]


class Grade(NamedTuple):
    """``grade``: one of GRADES. ``detail``: what the program did, without record data."""

    vector_id: str
    kind: str
    grade: str
    detail: str = ""


@dataclass
class Result:
    """The grades of one program, one for each vector that it was asked about. ``unsupported``: the number of
    the other vectors. ``fields``: the parts of a user record that the program gives."""

    name: str
    version: str
    fields: tuple[str, ...] = FIELDS
    grades: list[Grade] = field(default_factory=list)
    unsupported: int = 0

    @property
    def counts(self) -> Counter[str]:
        """How many vectors got which grade."""
        return Counter(grade.grade for grade in self.grades)

    @property
    def conforms(self) -> bool:
        """Whether it was asked at all, and every answer passed."""
        return set(self.counts) == {"pass"}


def question(vector: Mapping[str, Any]) -> dict[str, Any]:
    """The question about a vector (section 9.1 of spec/09-conformance.md)."""
    request = {"op": vector["kind"], "id": vector["id"], **vector["input"]}
    if vector["kind"] == "shard-map":
        request["probes"] = list(vector.get("lookups", {}))
    elif vector["kind"] == "hash-key-range":
        request["probes"] = [*vector.get("inside", []), *vector.get("outside", [])]
    elif vector["kind"] == "decode":
        request.pop("hash_key_range", None)  # only the KCL's results depend on it
    return request


def grade(vector: Mapping[str, Any], answer: Mapping[str, Any], fields: Sequence[str] = FIELDS) -> Grade:
    """The grade of a program's answer to the question about ``vector``. ``fields``: as of `Result`."""
    return Grade(vector["id"], vector["kind"], *_grade_of(vector, answer, fields))


def _grade_of(vector: Mapping[str, Any], answer: Mapping[str, Any], fields: Sequence[str]) -> tuple[str, str]:
    kind, invalid = vector["kind"], "error" in vector
    # CNF-3: "For a vector whose result is acceptable the named result and an error MUST both be taken
    # for right."
    acceptable = vector["result"] == "acceptable"
    if "failure" in answer:
        return "failed", f"{answer['failure']}: {str(answer.get('detail', ''))[-200:]}"
    if "error" in answer:
        # Rows that were given before the error are part of the result.
        right = acceptable or (invalid and answer.get("rows", vector.get("rows")) == vector.get("rows"))
        return "pass" if right else "wrong" if invalid else "refused", str(answer["error"])[:200]
    if kind == "decode":
        return _grade_of_decode(vector, answer, acceptable, fields)
    if invalid:
        return "pass" if acceptable else "accepted", _expected_error(vector)
    if kind == "encode":
        data, user_records = answer.get("data"), vector["input"]["user_records"]
        if len(user_records) == 1 and data == user_records[0]["data"]:
            return "pass", "a lone user record is sent bare, as the KPL does"
        if data != vector["data"] and _holds(data, user_records):
            return "other-bytes", "decode gives the same user records"
    wrong = [name for name in _RESULTS[kind] if answer.get(name) != vector[name]]
    return ("wrong", f"{wrong[0]} differs") if wrong else ("pass", "")


def _grade_of_decode(
    vector: Mapping[str, Any], answer: Mapping[str, Any], acceptable: bool, fields: Sequence[str]
) -> tuple[str, str]:
    delivered, in_vector = answer.get("user_records"), vector.get("user_records")
    if answer.get("plain"):
        return ("pass", "") if vector.get("plain") else ("unopened", "handed on as a plain record")
    if not isinstance(delivered, list):
        return "failed", "nonsense: neither user_records nor plain nor error"
    if vector.get("plain"):
        return "lost", f"a plain record became {plural(len(delivered), 'user record')}"
    if in_vector is None and not delivered:
        return "lost", f"neither user records nor an error: {_expected_error(vector)}"
    if in_vector is None:
        return ("pass", "accepted") if acceptable else ("accepted", _expected_error(vector))
    # CNF-5: "A program that names its fields in its hello MUST be graded by these fields alone."
    ours, theirs = _only(fields, in_vector), _only(fields, delivered)
    if theirs == ours:
        return "pass", "" if delivered == in_vector else "not all parts are delivered"
    if len(theirs) < len(ours):
        return "lost", f"{len(theirs)} of {plural(len(ours), 'user record')}{_differences(theirs, ours)}"
    return "wrong", f"other user records{_differences(theirs, ours)}"


def _expected_error(vector: Mapping[str, Any]) -> str:
    why = ", ".join(vector.get("requirements", ()))  # published vectors have them all
    return f"expected {vector['error']['code']}{f' [{why}]' if why else ''}"


def _holds(data: Any, user_records: list[Any]) -> bool:
    try:
        return [user_record(*record) for record in decode(bytes.fromhex(data))] == user_records
    except (ValueError, TypeError):  # no hex, or a DecodeError
        return False


def _differences(theirs: list[Any], ours: list[Any]) -> str:
    """The parts in which user records differ, and in how many of them: "; partition_key of 2, data of 1"."""
    wrong = Counter(
        name
        for one, other in zip(theirs, ours, strict=False)
        for name in FIELDS
        if not isinstance(one, Mapping) or one.get(name) != other.get(name)
    )
    differences = ", ".join(f"{name} of {count}" for name, count in wrong.items())
    return f"; {differences} differs" if differences else ""


def _only(fields: Sequence[str], records: list[Any]) -> list[Any]:
    """The user records with only these fields."""
    return [
        {name: value for name, value in record.items() if name.removesuffix("_bytes") in fields}
        if isinstance(record, dict)
        else record
        for record in records
    ]


def run(command: Sequence[str], vectors: Iterable[dict[str, Any]], **options: Any) -> Result:
    """Ask the program ``command`` about every vector whose operation it knows. ``options``: of `Program`.
    Raises ProgramError if the program cannot be started or its answer to hello is invalid."""
    with Program(command, **options) as program:
        hello, operations = program.hello, set(program.hello["ops"])
        fields = tuple(hello.get("fields", FIELDS))
        result = Result(str(hello["name"]), str(hello.get("version", "?")), fields)
        for vector in vectors:
            # CNF-2: "Only operations that a program names in its hello MUST be asked of it; the rest, and
            # what it answers unsupported, is counted as not asked."
            answer = program.ask(question(vector)) if vector["kind"] in operations else {"unsupported": True}
            if answer.get("unsupported"):
                result.unsupported += 1
            else:
                result.grades.append(grade(vector, answer, fields))
    return result


def by_requirement(result: Result, vectors: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """How many of ``vectors`` did not pass, by the first of their requirements."""
    first = {vector["id"]: next(iter(vector.get("requirements", ())), "-") for vector in vectors}
    return Counter(first[grade.vector_id] for grade in result.grades if grade.grade != "pass")


def table(results: Sequence[Result]) -> str:
    """How many vectors got which grade: a line for each program, and below it one for each of its operations.
    A grade that no vector got has no column. Needs rich."""
    from ..rendering import terminal

    there = set[str]().union(*(result.counts for result in results))
    grades = [word for word in GRADES if word in there or word == "pass"]
    rows = []
    for result in results:
        rows.append([f"{result.name} {result.version}", *[""] * len(grades), str(result.unsupported or "")])
        for kind in sorted({grade.kind for grade in result.grades}):
            of_kind = Counter(grade.grade for grade in result.grades if grade.kind == kind)
            counts = [str(of_kind[word] or "") for word in grades]
            if kind == "decode" and set(result.fields) < set(FIELDS):
                kind = f"decode ({', '.join(result.fields)})"
            rows.append([f"  {kind}", *counts, ""])
    heads = ["program, operation", *grades, "not asked"]
    return terminal.render(terminal.table(heads, rows, range(1, len(heads))), fit=False).rstrip("\n")


def badge(result: Result) -> str:
    """An SVG image that says how many of the vectors pass. It is green where all pass, red where user records
    are lost or wrong, else yellow."""
    colour = "#3c8527" if result.conforms else "#b3261e" if LOSSES & result.counts.keys() else "#a8730a"
    label, count = "KPL vectors", f"{result.counts['pass']} of {len(result.grades)}"
    width, rest = (7 * len(text) + 12 for text in (label, count))  # pixels
    title = escape(f"{result.name} {result.version}: {count} {label} pass")
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{width + rest}" height="20" role="img">
<title>{title}</title>
<rect width="{width}" height="20" fill="#444"/><rect x="{width}" width="{rest}" height="20" fill="{colour}"/>
<g fill="#fff" font-family="Verdana,sans-serif" font-size="11" text-anchor="middle">
<text x="{width / 2}" y="14">{label}</text><text x="{width + rest / 2}" y="14">{count}</text>
</g>
</svg>
"""
