"""``kpl-codec explain``: nothing that this project can say is left without an explanation."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kpl_codec.cli.error_help import HELP
from kpl_codec.cli.explain import _below, error_classes, requirements
from kpl_codec.cli.main import main
from kpl_codec.errors import KplError
from kpl_codec.report.kinds import KINDS

SPEC = Path(__file__).parents[2] / "spec"
#: Never raised themselves: what is raised is below them.
BASES = {"DecodeError"}


def run(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> str:
    assert main(["explain", *argv]) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def test_every_error_class_is_explained() -> None:
    found = list(error_classes())
    ours = {kind.__name__ for kind in _below(KplError) if kind.__module__.startswith("kpl_codec.")}
    assert {error.name for error in found} == ours - BASES == HELP.keys()
    for error in found:
        assert error.codes, error.name
        assert error.concerns.endswith(".")
        assert error.todo.endswith(".")


def test_every_code_kind_and_requirement_has_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    codes = {code for error in error_classes() for code in error.codes}
    for name in (*sorted(codes)[::4], *list(KINDS)[::4], *list(requirements())[::25]):
        assert run(capsys, name).strip(), name


def test_every_chapter_of_the_spec_is_known() -> None:
    assert {rule.chapter for rule in requirements().values()} == {
        path.name for path in SPEC.glob("*.md") if "**" in path.read_text() and path.name[0].isdigit()
    }


def test_a_requirement_names_what_rests_on_it(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "frm-3")
    assert "The last 16 bytes MUST be the MD5 digest" in " ".join(out.split())
    assert "checksum-mismatch" in out
    assert "What to do" in out
    facts = json.loads(run(capsys, "FRM-3", "--json"))
    assert facts["requirement"]["chapter"] == "01-aggregated-record.md"
    assert [kind["name"] for kind in facts["findings"]] == ["checksum-mismatch"]


def test_without_a_code_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    listed = {row["code"] for row in json.loads(run(capsys, "--json"))}
    assert listed > {*KINDS, *requirements()}


def test_a_typo_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert "naive-aggregator, " in run(capsys, "naive-agregator", code=2)


def test_without_pyspark_all_else_is_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What needs a missing package, or a newer one, is left out."""
    for name in [name for name in sys.modules if name.startswith("kpl_codec.spark")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert "FRM-3" in run(capsys, "FRM-3")
