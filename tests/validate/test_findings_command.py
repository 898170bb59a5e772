"""``kpl-codec findings``: what validate wrote, without reading Parquet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kpl_codec.cli.main import main
from kpl_codec.findings import Finding
from tests.cli.commands import write_findings

FOUND = [
    Finding("duplicate", shard_id="shardId-000000000001", sequence_number="7", user_records=2),
    Finding("unknown-shard", shard_id="t"),
    *(
        Finding("truncated", shard_id="s", sequence_number=str(i), offset=i, detail="it ends")
        for i in range(300)
    ),
    Finding("mixed-aggregate", shard_id="s", sequence_number="5", inside=1, outside=2),
]


@pytest.fixture
def results(tmp_path: Path) -> str:
    write_findings(tmp_path, FOUND[:100], FOUND[100:])
    return str(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *argv: str, status: int = 1) -> str:
    assert main(["findings", *argv]) == status
    return capsys.readouterr().out


@pytest.mark.requirement("SPK-19")
@pytest.mark.parametrize("form", [[], ["--json-lines"]])
def test_the_status_says_whether_something_is_shown(
    results: str, form: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["findings", results, *form]) == 1
    assert main(["findings", results, *form, "--kind", "duplicate"]) == 1
    assert main(["findings", results, *form, "--kind", "duplicate", "--fail-on", "error"]) == 0
    assert main(["findings", results, *form, "--shard-id", "no such shard"]) == 0


def test_the_worst_come_first_and_what_is_left_out_is_said(
    results: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["findings", results]) == 1
    out, err = capsys.readouterr()
    assert [row.split() for row in out.splitlines()[:5]] == [
        ["findings", "severity", "kind"],
        ["1", "critical", "mixed-aggregate"],
        ["300", "error", "truncated"],
        ["1", "warning", "unknown-shard"],
        ["1", "warning", "duplicate"],
    ]
    assert "100 of 303 findings shown; --json-lines shows all" in err
    shown = [row for row in out.splitlines() if row.startswith("  s, ")]
    assert len(shown) == 100
    assert shown[1] == "  s, 0, byte 0 of the record, it ends"


def test_filters(results: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "truncated" not in run(capsys, results, "--kind", "mixed-aggregate")
    assert "mixed-aggregate" not in run(capsys, results, "--kind", "truncated")
    assert "truncated" not in run(capsys, results, "--shard-id", "shardId-000000000001")
    assert run(capsys, results, "--shard-id", "no-such", status=0) == ""


def test_json_lines_hold_every_finding(results: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.loads(row) for row in run(capsys, results, "--json-lines").splitlines()]
    assert len(rows) == len(FOUND)
    assert rows[0] == {
        "severity": "warning", "kind": "duplicate", "shardId": "shardId-000000000001",
        "sequenceNumber": "7", "userRecords": 2, "requirement": "LIN-2",
    }  # fmt: skip


def test_what_is_no_folder_of_results(
    tmp_path: Path, results: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for argv in ([str(tmp_path / "nothing")], [results, "--kind", "nonsense"]):
        assert main(["findings", *argv]) == 2
        assert capsys.readouterr().err.startswith("kpl-codec: ")
