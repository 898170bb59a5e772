"""What `validate` tells of frames of the Schema Registry, and that it leaves them on."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kpl_codec as kpl
from kpl_codec.captures import CAPTURE_SCHEMA
from kpl_codec.schema_registry import frame
from kpl_codec.validate import LocalEngine, validate
from kpl_codec.validate.check import check
from kpl_codec.validate.report.scan import Scan, findings_of

from ..captures.test_captures import answer

FIRST, SECOND = "b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63", "00000000-0000-4000-8000-000000000001"
SHARD = "shardId-000000000000"
MAP = kpl.ShardMap([kpl.Shard(SHARD, kpl.ALL_HASH_KEYS)])


def captured(records: list[bytes]) -> pa.RecordBatch:
    count = len(records)
    values: dict[str, Any] = {
        "data": records,
        "sequenceNumber": [str(n) for n in range(count)],
        "partitionKey": ["a"] * count,
        "shardId": [SHARD] * count,
        "file": ["f.json"] * count,
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(values.get(field.name, [None] * count), field.type) for field in CAPTURE_SCHEMA],
        schema=CAPTURE_SCHEMA,
    )


def aggregate(*data: bytes) -> bytes:
    return kpl.encode([kpl.UserRecord(f"k{n}", item) for n, item in enumerate(data)])


@pytest.mark.requirement("GSR-11")
@pytest.mark.parametrize("whole", [True, False])
def test_frames_are_told_and_stay(whole: bool) -> None:
    broken = frame(b"x" * 50, FIRST, compress=True)[:-1]
    records = [
        aggregate(frame(b"1", FIRST), frame(b"2", FIRST, compress=True), b"bare"),
        aggregate(frame(b"3", FIRST), frame(b"4", SECOND)),
        frame(b"plain", SECOND),
        aggregate(broken, b"\x03\x00short"),
        b"bare",
    ]
    written: list[pa.RecordBatch] = []
    scan, rows = Scan(MAP, written.append), []
    for batch in check([captured(records[:2]), captured(records[2:])], MAP, scan.report, whole=whole):
        rows += batch["data"].to_pylist()
        scan.process(batch)
    scan.finish()
    findings = [finding for part in written for finding in findings_of(part)]
    first = [user.data for data in records[:2] for user in kpl.decode(data)]
    assert rows == [*first, records[2], broken, b"\x03\x00short", b"bare"]
    kinds = Counter(finding.kind for finding in findings if finding.kind != "writer")
    assert kinds == {"schema-version": 2, "mixed-schema-versions": 1, "schema-frame-damaged": 1}
    by_kind = {finding.kind: finding for finding in findings}
    mixed = by_kind["mixed-schema-versions"]
    assert (mixed.sequence_number, mixed.shard_id, mixed.severity) == ("1", SHARD, "info")
    assert by_kind["schema-frame-damaged"].detail is not None
    assert FIRST in by_kind["schema-frame-damaged"].detail
    assert by_kind["schema-frame-damaged"].requirement == "GSR-3"
    versions = [finding.detail or "" for finding in findings if finding.kind == "schema-version"]
    assert versions == [
        f"4 user records of schema version {FIRST}",
        f"2 user records of schema version {SECOND}",
    ]
    # Nothing else changes: no user record is counted twice.
    assert scan.tally.records["kinesis"] == 5
    assert sum(group[0] for group in scan.tally.groups.values()) == len(rows)


@pytest.mark.requirement("GSR-11")
def test_very_many_versions_are_not_all_told() -> None:
    data = [
        aggregate(*(frame(b"", f"{n:012x}40008000{n:012x}") for n in range(part, part + 300)))
        for part in range(0, 1500, 300)
    ]
    written: list[pa.RecordBatch] = []
    scan = Scan(MAP, written.append)
    assert sum(batch.num_rows for batch in check([captured(data)], MAP, scan.report)) == 1500
    scan.finish()
    kinds = Counter(kind for part in written for kind in part["kind"].to_pylist())
    assert (kinds["schema-version"], kinds["mixed-schema-versions"]) == (1000, 5)


SOUND, BROKEN = frame(b"y" * 9, FIRST), frame(b"x" * 50, FIRST, compress=True)[:-1]
RARE = frame(b"x" * 50, SECOND, compress=True)[:-1]  # its version stands in no sound frame


@pytest.mark.requirement("GSR-11", "SPK-43")
@pytest.mark.parametrize("more", [(), ("--no-user-records",)])
@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 0, 2]])
def test_damaged_is_what_stands_sound_elsewhere_in_the_run(
    tmp_path: Path, order: list[int], tasks: int, more: tuple[str, ...]
) -> None:
    """Also where the sound frame comes later, or is read by another task."""
    texts = [aggregate(b"bare", SOUND), aggregate(BROKEN), aggregate(RARE, b"bare")]
    pages = [json.dumps(answer(texts[n], shard=SHARD, first=10 * n + 1)) for n in order]
    for n, text in enumerate(pages if tasks > 1 else ["\n".join(pages)]):
        (tmp_path / f"{n}.jsonl").write_text(text)
    made = validate(
        [str(tmp_path)],
        MAP,
        str(tmp_path / "out"),
        engine=LocalEngine(cores=1),
        task_bytes=1 if tasks > 1 else None,
        user_records=not more,
    )
    kinds = {kind["name"]: kind for kind in made.summary["kinds"]}
    assert {"schema-frame-damaged", "schema-frame-doubtful", "schema-version"} <= kinds.keys()
    assert (kinds["schema-frame-damaged"]["findings"], kinds["schema-frame-doubtful"]["findings"]) == (1, 1)
    assert kinds["schema-frame-doubtful"]["severity"] == "info"
    assert not made.clean
    (tmp_path / "rare").mkdir()
    (tmp_path / "rare/a.jsonl").write_text(json.dumps(answer(texts[2], shard=SHARD, first=1)))
    rare = validate([str(tmp_path / "rare")], MAP, str(tmp_path / "other"), engine=LocalEngine(cores=1))
    assert {kind["name"] for kind in rare.summary["kinds"]} == {"schema-frame-doubtful"}
    assert rare.clean
