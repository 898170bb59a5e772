"""``kpl-codec findings``: what validate wrote, without reading Parquet."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kpl_codec.findings import Finding
from tests.cli.commands import run, write_findings

CUT = [
    Finding("truncated", shard_id="s", sequence_number=str(i), offset=i, detail="it ends") for i in range(300)
]
FOUND = [
    Finding("duplicate", shard_id="shardId-000000000001", sequence_number="7", user_records=2),
    Finding("unknown-shard", shard_id="t"),
    *CUT,
    Finding("mixed-aggregate", shard_id="s", sequence_number="5", inside=1, outside=2),
    Finding("shard-of-file", file="a.json"),
    Finding("writer", file="a.json"),
]


@pytest.mark.requirement("SPK-19", "ACC-5")
def test_findings_are_shown_worst_first_or_all_as_json(tmp_path: Path) -> None:
    """And the status says whether one is shown that counts, or that names no shard where one is asked for."""
    write_findings(tmp_path, FOUND[:100], FOUND[100:])
    shown = run(["findings", str(tmp_path)])
    assert [row.split() for row in shown.out.splitlines()[:5]] == [
        ["findings", "severity", "kind"],
        ["1", "critical", "mixed-aggregate"],
        ["300", "error", "truncated"],
        ["1", "warning", "unknown-shard"],
        ["1", "warning", "duplicate"],
    ]
    assert "100 of 305 findings shown; --json-lines shows all" in shown.err
    places = [row for row in shown.out.splitlines() if row.startswith("  s, ")]
    assert len(places) == 100
    assert places[1] == "  s, 0, byte 0 of the record, it ends"
    rows = [json.loads(row) for row in run(["findings", str(tmp_path), "--json-lines"]).out.splitlines()]
    assert len(rows) == len(FOUND)
    assert rows[0] == {
        "severity": "warning", "kind": "duplicate", "shardId": "shardId-000000000001",
        "sequenceNumber": "7", "userRecords": 2, "requirement": "LIN-2",
    }  # fmt: skip
    for options, status, kinds, left_out in (
        ("", 1, {one.kind for one in FOUND}, 0),
        ("--kind duplicate", 1, {"duplicate"}, 0),
        ("--kind duplicate --kind mixed-aggregate", 1, {"duplicate", "mixed-aggregate"}, 0),
        ("--kind duplicate --fail-on error", 0, {"duplicate"}, 0),
        ("--shard-id shardId-000000000001", 1, {"duplicate"}, 2),
        ("--shard-id no-such", 1, set(), 2),
        ("--shard-id no-such --kind writer", 0, set(), 1),
        ("--shard-id no-such --kind truncated", 0, set(), 0),
        ("--kind nonsense", 2, set(), 0),
    ):
        given = ["findings", str(tmp_path), *options.split()]
        ended, lines = run(given), run([*given, "--json-lines"])
        assert ended.status == lines.status == status, options
        assert ("kpl-codec: no kind of finding is called nonsense" in ended.err) == (status == 2)
        assert {json.loads(row)["kind"] for row in lines.out.splitlines()} == kinds
        assert {one.kind for one in FOUND if one.kind in ended.out} == kinds
        for said in (ended.err, lines.err):
            counts = re.findall(r"(\d+) findings? left out: each names no shard", said)
            assert sum(map(int, counts)) == left_out, options
