"""The conformance runner: what it asks, how it grades, and that no program can stop it."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kpl_codec import conformance
from kpl_codec.cli.main import main
from kpl_codec.conformance.running import load

from ..spec.vectors import VECTORS
from ..spec.vectors import load as load_vectors

pytestmark = pytest.mark.timeout(120)

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
    assert conformance.judge(asked, answer).grade == grade


def test_the_vectors_it_comes_with_are_those_of_the_spec() -> None:
    assert {path.name: path.read_bytes() for path in conformance.vector_files()} == {
        path.name: path.read_bytes() for path in VECTORS.glob("*.json") if path.name != "schema.json"
    }


@pytest.mark.requirement("CNF-1", "CNF-2")
def test_this_library_conforms() -> None:
    vectors = load(conformance.vector_files())
    result = conformance.run(conformance.adapter_command("kpl_codec"), vectors)
    assert [judgement for judgement in result.judgements if judgement.grade != "pass"] == []
    assert len(result.judgements) == len(load_vectors())
    assert result.conforms
    assert result.unsupported == 0


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


@pytest.mark.requirement("CNF-4")
@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        ("sys.exit('boom')", "crash: boom"),
        ("os.kill(os.getpid(), 9)", "crash"),
        ("time.sleep(60)", "hang"),
        ("print('no JSON', flush=True)", "nonsense"),
        ("print('[]', flush=True)", "nonsense"),
        ("print(json.dumps({'id': 'other', 'plain': True}), flush=True)", "nonsense"),
    ],
)
def test_a_bad_answer_does_not_stop_the_run(tmp_path: Path, answer: str, detail: str) -> None:
    bad = program(tmp_path, f"{answer} if asked['id'] == 'bad' else {ANSWER}")
    vectors = [{**PLAIN, "id": "good"}, {**PLAIN, "id": "bad"}, {**PLAIN, "id": "good again"}]
    result = conformance.run(bad, vectors, timeout=3)
    assert [judgement.grade for judgement in result.judgements] == ["pass", "failed", "pass"]
    assert result.judgements[1].detail.startswith(detail)


@pytest.mark.requirement("CNF-2")
def test_only_what_a_program_names_is_asked(tmp_path: Path) -> None:
    result = conformance.run(program(tmp_path, ANSWER), [PLAIN, ENCODE])
    assert len(result.judgements) == result.unsupported == 1
    unsupported = program(tmp_path, "print(json.dumps({'id': asked['id'], 'unsupported': True}), flush=True)")
    assert conformance.run(unsupported, [PLAIN]).unsupported == 1


@pytest.mark.parametrize("code", ["", "print('{}', flush=True)", "print('hello', flush=True)"])
def test_a_program_that_does_not_introduce_itself_is_refused(code: str) -> None:
    with pytest.raises(conformance.ProgramError):
        conformance.run([sys.executable, "-c", code], [PLAIN], timeout=5)
    with pytest.raises(conformance.ProgramError):
        conformance.run(["no-such-command-anywhere"], [PLAIN])


def cli(*arguments: str) -> int:
    return main(["conformance", *arguments])


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli("--adapter", "kpl_codec", "--kind", "placement") == 0
    assert "kpl_codec" in capsys.readouterr().out
    assert cli("--kind", "decode", "--failures", "--", *program(tmp_path, ANSWER)) == 1
    assert "p: frame-one: unopened" in capsys.readouterr().out
    assert cli("--kind", "decode", "--json", "--", *program(tmp_path, ANSWER)) == 1
    (document,) = json.loads(capsys.readouterr().out)
    assert document["grades"]["unopened"] > 100
    for bad in (["--vectors", str(tmp_path)], ["--kind", "no-such-kind"], ["--", "no-such-command"]):
        assert cli(*bad) == 2
        assert "kpl-codec: " in capsys.readouterr().err
    (tmp_path / "broken.json").write_text("{}")
    assert cli("--vectors", str(tmp_path), "--adapter", "kpl_codec") == 2


def test_the_published_table_counts_today_s_vectors() -> None:
    """spec/09-conformance.md shows what this library does with all of them."""
    page = (Path(__file__).parents[2] / "spec" / "09-conformance.md").read_text()
    ours = page.partition("kpl_codec 0.1.0 ")[2].partition("aws_kinesis_agg 1.2.3")[0]
    shown = {kind: int(count) for kind, count in re.findall(r"([a-z-]+) +(\d+)$", ours, re.MULTILINE)}
    assert shown == Counter(vector["kind"] for vector in load(conformance.vector_files()))
