"""The conformance runner: what it asks, how it grades, and that no program can stop it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kpl_codec.cli.main import main
from kpl_codec.conformance import grading
from kpl_codec.conformance.program import ProgramError

from ..spec.vectors import load as load_vectors

A, B = {"partition_key": "a", "data": "78"}, {"partition_key": "b", "data": "79"}


def vector(kind: str, result: str = "valid", **members: Any) -> dict[str, Any]:
    return {"id": "x", "kind": kind, "result": result, "input": {}, **members}


VALID = vector("decode", user_records=[A, B])
PLAIN = vector("decode", plain=True)
INVALID = vector("decode", "invalid", error={"code": "truncated"})
ACCEPTABLE = vector("decode", "acceptable", user_records=[A])
ACCEPTABLE_ERROR = vector("decode", "acceptable", error={"code": "key-too-long"})
ENCODE = vector("encode", data="00", size=1, input={"user_records": [A]})
NO_ENCODE = vector("encode", "invalid", error={"code": "x"}, input={"user_records": [A]})
DEAGGREGATE = vector("deaggregate", "invalid", error={"code": "x"}, rows=[A])


@pytest.mark.requirement("CNF-3")
@pytest.mark.parametrize(
    ("asked", "answer", "grade"),
    [
        (VALID, {"user_records": [A, B]}, "pass"),
        (VALID, {"user_records": [{**A, "tags": [{"key": "k"}]}, B]}, "pass"),
        (VALID, {"user_records": [A]}, "lost"),
        (VALID, {"user_records": []}, "lost"),
        (VALID, {"user_records": [B, A]}, "wrong"),
        (VALID, {"user_records": [A, {**B, "explicit_hash_key": "5"}]}, "wrong"),
        (VALID, {"error": "no"}, "refused"),
        (VALID, {"plain": True}, "unopened"),
        (VALID, {}, "failed"),
        (VALID, {"failure": "crash"}, "failed"),
        (PLAIN, {"plain": True}, "pass"),
        (PLAIN, {"error": "no"}, "refused"),
        (PLAIN, {"user_records": []}, "lost"),
        (INVALID, {"error": "other words"}, "pass"),
        (INVALID, {"plain": True}, "unopened"),
        (INVALID, {"user_records": [A]}, "accepted"),
        (INVALID, {"user_records": []}, "lost"),
        (ACCEPTABLE, {"user_records": [A]}, "pass"),
        (ACCEPTABLE, {"error": "no"}, "pass"),
        (ACCEPTABLE, {"user_records": [B]}, "wrong"),
        (ACCEPTABLE, {"user_records": []}, "lost"),
        (ACCEPTABLE_ERROR, {"error": "no"}, "pass"),
        (ACCEPTABLE_ERROR, {"user_records": [A]}, "pass"),
        (ENCODE, {"data": "00"}, "pass"),
        (ENCODE, {"data": "78"}, "pass"),
        (ENCODE, {"data": "01"}, "wrong"),
        (ENCODE, {"error": "no"}, "refused"),
        (NO_ENCODE, {"error": "no"}, "pass"),
        (NO_ENCODE, {"data": "00"}, "accepted"),
        (DEAGGREGATE, {"rows": [A], "error": "x"}, "pass"),
        (DEAGGREGATE, {"rows": [], "error": "x"}, "wrong"),
        (DEAGGREGATE, {"rows": [A]}, "accepted"),
    ],
)
def test_grades(asked: dict[str, Any], answer: dict[str, Any], grade: str) -> None:
    assert grading.grade(asked, answer).grade == grade


EXPLICIT = {**A, "explicit_hash_key": "5"}
NO_TEXT = {"partition_key": None, "partition_key_bytes": "ff", "data": "78"}


@pytest.mark.requirement("CNF-5")
@pytest.mark.parametrize(
    ("fields", "answer", "grade", "detail"),
    [
        (["data"], [{"data": "78"}], "pass", "not all parts are delivered"),
        (["data"], [NO_TEXT], "pass", "not all parts are delivered"),
        (["data"], [{"data": "79"}], "wrong", "other user records; data of 1 differs"),
        (["data"], [], "lost", "0 of 1 user record"),
        (["partition_key", "data"], [A], "pass", "not all parts are delivered"),
        (["partition_key", "data"], [B], "wrong", "other user records; partition_key of 1, d"),
        (["partition_key", "data"], [NO_TEXT], "wrong", "other user records; partition_key of 1 differs"),
        (["partition_key", "explicit_hash_key", "data"], [EXPLICIT], "pass", ""),
        (["partition_key", "explicit_hash_key", "data"], [A], "wrong", "other user records; expl"),
    ],
)  # fmt: skip
def test_only_the_fields_that_a_program_has_are_graded(
    fields: list[str], answer: list[dict[str, Any]], grade: str, detail: str
) -> None:
    graded = grading.grade(vector("decode", user_records=[EXPLICIT]), {"user_records": answer}, fields)
    assert graded.grade == grade
    assert graded.detail.startswith(detail)


@pytest.mark.requirement("CNF-1", "CNF-2")
def test_this_library_conforms() -> None:
    result = grading.run(grading.THIS_LIBRARY, grading.vectors())
    assert [grade for grade in result.grades if grade.grade != "pass"] == []
    assert (len(result.grades), result.unsupported, result.conforms) == (len(load_vectors()), 0, True)


def program(tmp_path: Path, answer: str) -> list[str]:
    """A program that introduces itself and then does ``answer`` for every question."""
    path = tmp_path / "program.py"
    path.write_text(
        "import json, os, sys, time\n"
        "for line in sys.stdin:\n"
        "    asked = json.loads(line)\n"
        "    if asked['op'] == 'hello':\n"
        "        print(json.dumps({'name': 'p', 'ops': ['decode']}), flush=True)\n"
        "    else:\n"
        f"        {answer}\n"
    )
    return [sys.executable, str(path)]


ANSWER = "print(json.dumps({'id': asked['id'], 'plain': True}), flush=True)"


def in_lines(tmp_path: Path, answer: str, hello: str = "ops decode") -> list[str]:
    """As `program`, without JSON: ``answer`` prints the lines of an answer, the last too."""
    path = tmp_path / "lines.py"
    path.write_text(
        "import os, sys, time\n"
        "for line in sys.stdin:\n"
        f"    if line == 'hello 1\\n': print('name p\\n{hello}\\nend', flush=True)\n"
        f"    else: {answer}\n"
    )
    return [sys.executable, str(path)]


@pytest.mark.requirement("CNF-4", "CNF-6")
@pytest.mark.parametrize(
    ("lines", "answer", "grade", "detail"),
    [
        (False, "sys.exit('boom')", "failed", "crash: boom"),
        (False, "os.kill(os.getpid(), 9)", "failed", "crash"),
        (False, "time.sleep(60)", "failed", "hang"),
        (False, "print('no JSON', flush=True)", "failed", "nonsense"),
        (False, "print('[]', flush=True)", "failed", "nonsense"),
        (
            False,
            "print(json.dumps({'id': 'other', 'plain': True}), flush=True)",
            "failed",
            "nonsense",
        ),
        (True, "print('plain\\nend', flush=True)", "pass", ""),
        (True, "print('error no\\nend', flush=True)", "refused", "no"),
        (True, "print('data 78\\nend', flush=True)", "lost", "a plain record became 1 user record"),
        (True, "print('plain', flush=True)", "failed", "hang: "),
        (True, "print('what is this\\nend', flush=True)", "failed", "nonsense: "),
        (True, "sys.exit('boom')", "failed", "crash: boom"),
    ],
)
def test_a_bad_answer_does_not_stop_the_run(
    tmp_path: Path, lines: bool, answer: str, grade: str, detail: str
) -> None:
    good, bad = ({**PLAIN, "id": data, "input": {"data": data}} for data in ("79", "78"))
    command = program(tmp_path, f"{answer} if asked['id'] == '78' else {ANSWER}")
    if lines:
        command = in_lines(
            tmp_path, f"({answer}) if line == 'decode 78\\n' else print('plain\\nend', flush=True)"
        )
    patience = 5 if detail.startswith("hang") else 60
    before, graded, after = grading.run(command, [good, bad, good], lines=lines, timeout=patience).grades
    assert (graded.grade, graded.detail.startswith(detail)) == (grade, True)
    assert before.grade == after.grade == "pass"


@pytest.mark.requirement("CNF-5")
def test_a_hello_in_lines_names_the_fields(tmp_path: Path) -> None:
    answer = "print('data 78\\ndata 79\\nend', flush=True)"
    asked = {**VALID, "input": {"data": "78"}}
    result = grading.run(in_lines(tmp_path, answer, "ops decode\\nfields data"), [asked], lines=True)
    assert result.conforms
    assert "decode (data)" in grading.table([result])
    with pytest.raises(ProgramError):
        grading.run(in_lines(tmp_path, answer, "ops decode\\nfields dat"), [asked], lines=True)


@pytest.mark.requirement("CNF-2")
def test_only_what_a_program_names_is_asked(tmp_path: Path) -> None:
    result = grading.run(program(tmp_path, ANSWER), [PLAIN, ENCODE])
    assert len(result.grades) == result.unsupported == 1
    unsupported = program(tmp_path, "print(json.dumps({'id': asked['id'], 'unsupported': True}), flush=True)")
    assert grading.run(unsupported, [PLAIN]).unsupported == 1


@pytest.mark.requirement("CNF-2")
def test_a_program_that_was_asked_nothing_does_not_conform(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked_nothing = in_lines(tmp_path, "pass", "ops decod")
    assert grading.run(asked_nothing, [PLAIN], lines=True).conforms is False
    assert cli("--kind", "decode", "--failures", "--lines", "--", *asked_nothing) == 1
    assert "p was asked nothing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("", "ended without an answer"),
        ("print('{}', flush=True)", "cannot test"),
        ("print('hello', flush=True)", "cannot test"),
        ("raise ValueError('no port')", ": ValueError: no port; if it answers in lines"),
    ],
)
def test_a_program_that_does_not_introduce_itself_is_refused(code: str, reason: str) -> None:
    with pytest.raises(ProgramError, match=reason):
        grading.run([sys.executable, "-c", code], [PLAIN])


def cli(*arguments: str) -> int:
    return main(["conformance", *arguments])


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli("--kind", "placement") == 0
    assert "kpl_codec" in capsys.readouterr().out
    assert cli("--kind", "decode", "--failures", "--", *program(tmp_path, ANSWER)) == 1
    out = capsys.readouterr().out
    assert "p: frame-one: unopened" in out
    causes = out[out.index("p: not passed, by requirement: ") :]
    counts = [int(number) for number in re.findall(r"[A-Z]+-[0-9]+\s+([0-9]+)", causes)]
    assert sum(counts) == out.count(": unopened")
    assert cli("--kind", "decode", "--json", "--", *program(tmp_path, ANSWER)) == 1
    (document,) = json.loads(capsys.readouterr().out)
    assert document["counts"]["unopened"] > 100


def test_a_result_to_publish(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "published"
    command = in_lines(tmp_path, "print('plain\\nend', flush=True)")
    assert cli("--kind", "decode", "--lines", "--publish", str(out), "--", *command) == 1
    facts = json.loads((out / "conformance.json").read_text())
    passed, asked = facts["counts"]["pass"], len(facts["grades"])
    assert (facts["name"], facts["vectors"]) == ("p", "2.0")
    assert 0 < passed < asked
    badge = ElementTree.parse(out / "conformance.svg").getroot()
    assert f"{passed} of {asked}" in {part.text for part in badge.iter()}


@pytest.mark.parametrize(
    ("grades", "colour"),
    [(["pass"], "#3c8527"), (["pass", "refused"], "#a8730a"), (["lost", "pass"], "#b3261e")],
)
def test_the_colour_of_a_badge(grades: list[str], colour: str) -> None:
    result = grading.Result("<p>", "1", grades=[grading.Grade("x", "decode", grade) for grade in grades])
    image = grading.badge(result)
    assert colour in image
    assert "&lt;p&gt; 1: 1 of" in image
