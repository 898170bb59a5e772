"""Folders of results: whole or not there, never input, read again only if they are whole."""

from __future__ import annotations

import json
import shutil
from base64 import b64encode
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kpl_codec as kpl
from kpl_codec.arrow import deaggregate_table
from kpl_codec.audit.audit_run import audit
from kpl_codec.audit.missing_causes import FetchedRecords
from kpl_codec.captures import InputError, Location
from kpl_codec.cli.main import main
from kpl_codec.validate import LocalEngine, validate
from kpl_codec.validate.results import OutputError, check_whole, new_results
from tests.audit.model import table_of
from tests.captures.test_account import MAP, make_captures
from tests.captures.test_captures import answer
from tests.captures.test_captures import read_all as read
from tests.cli.commands import ledger_of
from tests.every import every
from tests.examples import share


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs (out, other) of a job of six tasks, with findings, over one folder (in)."""
    folder = tmp_path_factory.mktemp("results")
    make_captures(folder / "in")
    (folder / "in" / "0.json").write_text('{"cut": \n')
    for name in ("out", "other"):
        output = str(folder / name)
        validate([str(folder / "in")], MAP, output=output, engine=LocalEngine(), task_bytes=1)
    return folder


@pytest.mark.requirement("SPK-42")
def test_results_appear_at_once_or_not_at_all(tmp_path: Path) -> None:
    output = Location(tmp_path / "out")
    with new_results(output) as folder:
        (folder / "summary.json").write(b"{}")
        assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with pytest.raises(OutputError, match="not empty"), new_results(output):
        pass
    other = Location(tmp_path / "other")
    with pytest.raises(KeyError), new_results(other) as folder:  # noqa: PT012
        (folder / "summary.json").write(b"{}")
        raise KeyError
    with pytest.raises(OutputError), new_results(other) as folder:  # noqa: PT012
        (folder / "summary.json").write(b"mine")
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "summary.json").write_text("another job's")
    assert (tmp_path / "other" / "summary.json").read_text() == "another job's"
    assert {path.name for path in tmp_path.iterdir()} == {"out", "other"}


def test_a_log_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "spark.log").write_text("begun")
    with pytest.raises(KeyError), new_results(Location(tmp_path / "out"), keep="spark.log"):
        raise KeyError
    assert (tmp_path / "out" / "spark.log").read_text() == "begun"
    with new_results(Location(tmp_path / "out"), keep="spark.log") as folder:
        (folder / "summary.json").write(b"{}")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"spark.log", "summary.json"}


@pytest.mark.requirement("ACC-3", "CAP-32")
def test_saved_rows_of_the_report_policy_are_no_capture(tmp_path: Path) -> None:
    """As `kpl_codec.arrow` and Spark give them, whole or with a part of their columns. Judged anew, a broken
    frame would be a plain record that is delivered, and a defect of a frame would be there twice."""
    broken = kpl.encode([kpl.UserRecord("a", b"1"), kpl.UserRecord("a", b"2")])[:-1] + b"x"
    frames = {"data": [broken, b"plain"], "sequenceNumber": ["7", "8"], "shardId": ["s", "s"]}
    rows = deaggregate_table(pa.table(frames), "report", shard_map=MAP).table
    strict = deaggregate_table(pa.table(frames).slice(1), "strict").table
    taken = []
    errors = [name for name in rows.column_names if name.startswith("error")]
    for names in (rows.column_names, *([*rows.column_names[:8], name] for name in errors)):
        pq.write_table(rows.select(names), tmp_path / "rows.parquet")
        (first, *others), _ = read(tmp_path / "rows.parquet")
        if others or first["captureError"] != "hidden" or "report policy" not in first["captureText"]:
            taken.append(names[8:])
    line = {**rows.drop_columns(["hashKey"]).to_pylist()[0], "data": b64encode(broken).decode()}
    (tmp_path / "rows.json").write_text(json.dumps(line))
    (row,), _ = read(tmp_path / "rows.json")
    assert row["data"] is None
    assert "a row of the report policy" in row["captureText"]
    # One column of this name may be anybody's.
    assert taken == [["error"]]
    pq.write_table(strict, tmp_path / "rows.parquet")
    assert [row["data"] for row in read(tmp_path / "rows.parquet")[0]] == [b"plain"]


FOLDERS = ("findings", "user-records")
Change = Callable[[Path], object]


def copied(source: Path, target: str | Path) -> Change:
    """Puts a file, or all files of a folder, at ``target`` of results."""
    if source.is_dir():
        return lambda results: shutil.copytree(source, results / target, dirs_exist_ok=True)
    return lambda results: shutil.copy(source, results / target)


def without(part: Path) -> Change:
    return lambda results: (results / part).unlink()


def without_mark(part: Path) -> Change:
    """As pyarrow writes rows, or a version that did not say which run they are of."""

    def change(results: Path) -> None:
        pq.write_table(pq.read_table(results / part).replace_schema_metadata(None), results / part)

    return change


def without_run(results: Path) -> None:
    summary = json.loads((results / "summary.json").read_text())
    summary.pop("run", None)
    (results / "summary.json").write_text(json.dumps(summary))


def of_another_run(results: Path, other: Path) -> None:
    for folder in FOLDERS:
        shutil.copytree(other / folder, results / folder, dirs_exist_ok=True)


def exchange_folders(results: Path) -> None:
    (results / "findings").rename(results / "between")
    (results / "user-records").rename(results / "findings")
    (results / "between").rename(results / "user-records")


def changes_of(whole: Path, other: Path) -> Iterator[tuple[str, str, Change]]:
    """What may become of ``whole`` results: a name, the folder that is changed ("" if not just one), and the
    change. ``other``: results of another run of the job, with as many rows in each part."""
    for folder in FOLDERS:
        rows = {
            path.relative_to(whole): pq.read_metadata(path).num_rows
            for path in sorted((whole / folder).glob("*.parquet"))
        }
        for part in rows:
            yield f"{part} of another run", folder, copied(other / part, part)
            yield f"{part} without a mark", folder, without_mark(part)
        for part in filter(rows.get, rows):
            yield f"{part} lost", folder, without(part)
            yield f"{part} twice", folder, copied(whole / part, f"{folder}/copy.parquet")
            yield f"{part} kept", folder, copied(whole / part, f"{part}.bak")
        for lost, twice in combinations(filter(rows.get, rows), 2):
            if rows[lost] == rows[twice]:
                yield f"{lost} lost, {twice} twice", folder, copied(whole / twice, lost)
        yield f"all of {folder} of another run", folder, copied(other / folder, folder)
    yield "all parts of another run", "", lambda results: of_another_run(results, other)
    yield "summary of another run", "", copied(other / "summary.json", "summary.json")
    yield "folders exchanged", "", exchange_folders
    yield "no summary", "", without(Path("summary.json"))
    yield "a damaged summary", "", lambda results: (results / "summary.json").write_text("{}")
    yield "a summary that names no run", "", without_run


@pytest.fixture(scope="module")
def audits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two audits (out, other), each with a finding and a missing user record."""
    folder = tmp_path_factory.mktemp("audits")
    (shard_id,) = MAP
    (folder / "put.jsonl").write_text(ledger_of({"1": b"plain", "2": b"later"}))
    (folder / "handled.parquet").write_bytes(table_of([(shard_id, "2", 0)]))
    result = audit([str(folder / "put.jsonl")], [str(folder / "handled.parquet")])
    stored = kpl.KinesisRecord(b"plain", "a", sequence_number="1", shard_id=shard_id)
    result.shard_map, result.fetched = MAP, FetchedRecords({(shard_id, "1"): stored})
    for name in ("out", "other"):
        result.write(folder / name)
    return folder


def input_among(results: Path) -> set[str]:
    """The files whose rows are read, and the parts that are not named as left out, where ``results`` and a
    capture lie in one folder."""
    (results.parent / "capture.json").write_text(json.dumps(answer(b"a capture")))
    rows, _ = read(results.parent)
    hidden = {row["file"] for row in rows if row["captureError"] == "hidden"}
    parts = {str(path) for path in results.glob("*/*") if path.suffix in (".parquet", ".bin", ".bak")}
    return {Path(name).name for name in (parts - hidden).union(row["file"] for row in rows if row["data"])}


@pytest.mark.requirement("ACC-3", "ACC-4")
@pytest.mark.parametrize("job", ["runs", "audits"])
def test_results_that_are_not_whole_are_named_and_no_row_of_results_is_input(
    job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(job)
    check_whole(Location(folder / "out"), *FOLDERS)
    taken, tried = [], 0
    for number, (name, changed, change) in enumerate(changes_of(folder / "out", folder / "other")):
        results = tmp_path / str(number) / "out"
        shutil.copytree(folder / "out", results)
        change(results)
        tried += 1
        try:
            check_whole(Location(results), *([changed] if changed else FOLDERS))
            taken.append(name)
        except InputError as error:
            if error.code != "not-whole":
                taken.append(f"{name}: {error}")
        if changed != "user-records":
            status = main(["findings", str(results)])
            if (status, "is not whole" in capsys.readouterr().err) != (2, True):
                taken.append(f"{name}: kpl-codec findings ended with {status}")
        given = input_among(results)
        for file in results.glob("*.*"):
            file.unlink()
        for file in results.glob("*/*.parquet"):
            file.rename(file.with_suffix(".bin"))
        if "without a mark" not in name:
            given |= input_among(results)
        if given != {"capture.json"}:
            taken.append(f"{name}: read as input: {given}")
    assert not taken, "\n".join(taken)
    assert tried >= 18


@pytest.mark.requirement("ACC-4", "ACC-2")
@every("folder", ["findings", "user-records"])
def test_a_bit_that_turns_in_results_gives_no_other_row(folder: str, tmp_path: Path) -> None:
    """Who puts lost user records again would put it. (Parquet has no checksum of a file's footer.)"""
    out = tmp_path / folder
    users = [kpl.UserRecord(f"key {number}", b"data %d" % number) for number in range(30)]
    records = [answer(kpl.encode(users[at : at + 3]), first=at + 1) for at in range(0, 30, 3)]
    (tmp_path / "in.json").write_text("\n".join(map(json.dumps, records)))
    half = kpl.HashKeyRange(0, 2**127 - 1), kpl.HashKeyRange(2**127, 2**128 - 1)
    of_two = kpl.ShardMap([kpl.Shard(f"shardId-{n:012d}", keys) for n, keys in enumerate(half)])
    validate([str(tmp_path / "in.json")], of_two, output=str(out), engine=LocalEngine())
    reads = 0
    for part in sorted((out / folder).glob("*.parquet")):
        whole = part.read_bytes()
        expected = rows_of(out / folder)
        assert expected
        footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
        for at in range(4, footer, 23 * max(share() - 1, 1)):
            part.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            try:
                assert rows_of(out / folder) == expected, at
            except InputError:
                reads += 1
        part.write_bytes(whole)
    assert reads > 20 / share()


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [row for batch in Location(folder).rows() for row in batch.to_pylist()]
