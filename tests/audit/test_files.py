"""What lies under a given path is read, named as lost, left out, or refused by name, with what makes a ledger
or Parquet of it."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kpl_codec.audit import Row
from kpl_codec.audit.audit_run import AuditError, AuditResult, audit
from kpl_codec.audit.files import InputFile, InputSide, ReadProgress, RefusedFile, account_of, read
from kpl_codec.audit.lost_parts import LostPart
from kpl_codec.captures.files import LEFT_OUT
from kpl_codec.cli.main import main
from kpl_codec.ledger.ledger import Writer
from kpl_codec.ledger.ledger_rows import RowKind

from ..examples import examples
from .model import SHARD, Files, Memory, account, ledger_of, printed, read_ledgers, rows_of, table_of
from .test_law import GZIP, members_of, text_of

BASE = 49590338271490256608559692538361571095921575989136588898
NUMBERS = range(20)
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"


def rows(*numbers: int, kind: RowKind = "handled") -> list[Row]:
    return rows_of(kind, *(BASE + number for number in numbers))


def names(*numbers: int) -> list[Any]:
    return [(SHARD, str(BASE + number), 0) for number in numbers]


def text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def parquet(columns: dict[str, Any], **options: Any) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), out, **options)
    return bytes(out.getvalue())


def columns_of(*numbers: int) -> dict[str, Any]:
    shards, texts, subs = zip(*names(*numbers), strict=True)
    return {"shardId": shards, "sequenceNumber": texts, "subSequenceNumber": subs}


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def audit_of(folder: Path, files: dict[str, bytes], **options: Any) -> AuditResult:
    """20 were put; the files are those of consumers."""
    put = ledger_of("produced", rows(*NUMBERS, kind="delivered"))
    write(folder, {"put/p.ledger.jsonl.gz": put, **{f"in/{name}": data for name, data in files.items()}})
    return audit([str(folder / "put")], [str(folder / "in")], **options)


def sums(result: AuditResult) -> tuple[int, ...]:
    return tuple(result.facts["userRecords"][name] for name in ("handled", "missing", "unknown"))


# -- what is read ----------------------------------------------------------------------------------

LEDGER = ledger_of("handled", rows(*NUMBERS))
PLAIN = text_of(LEDGER)
LINES = printed(rows(*NUMBERS))
HALVES = [printed(rows(*range(10))), printed(rows(*range(10, 20)))]
STRINGS = columns_of(*NUMBERS)
LOG = text([f"INFO [7] {line}" for line in LINES])
DOCKER = text([json.dumps({"log": f"{line}\n", "stream": "stdout"}) for line in LINES])
CSV = b"shardId,sequenceNumber,subSequenceNumber\n" + text(
    [",".join(map(str, one)) for one in names(*NUMBERS)]
)
JSON = text([json.dumps(dict(zip(STRINGS, one, strict=True))) for one in names(*NUMBERS)])
READ = {
    "as it is": LEDGER,
    "unpacked": PLAIN,
    "packed again": gzip.compress(PLAIN),
    "lines of one member each": text(LINES),
    "in another order": text((HALVES[0] + HALVES[1])[::-1]),
    "CRLF, BOM and blank lines": b"\xef\xbb\xbf" + PLAIN.replace(b"\n", b"\r\n\r\n"),
    "a line in two members of gzip": gzip.compress(PLAIN[:900]) + gzip.compress(PLAIN[900:], mtime=7),
    "there twice": LEDGER + LEDGER,
    "keys in another order": text(
        [json.dumps(dict([*json.loads(line).items(), ("x", 1)][::-1])) for line in PLAIN.splitlines()]
    ),
    "a table": table_of(names(*NUMBERS)),
    "small letters": parquet({name.lower(): cells for name, cells in STRINGS.items()}),
    "other columns, and other types": parquet(
        {
            "streamName": pa.array(["orders"] * 20).dictionary_encode(),
            "shardId": pa.array(STRINGS["shardId"], pa.large_string()),
            "note": [["x"]] * 20,
            "sequenceNumber": STRINGS["sequenceNumber"],
            "subSequenceNumber": pa.array([0] * 20, pa.uint8()),
        },
        row_group_size=3,
    ),
    "no sub-sequence number of records with one user record": parquet(
        {**STRINGS, "subSequenceNumber": [None] * 20}
    ),
}


@pytest.mark.requirement("AUD-36", "AUD-41")
def test_each_form_is_read_whatever_its_name(tmp_path: Path) -> None:
    wrong = {}
    for number, (form, data) in enumerate(READ.items()):
        result = audit_of(tmp_path / str(number), {"x": data, "_SUCCESS": b"", "empty": b""})
        (rows_of,) = (one["rows"] for one in result.facts["files"] if one["file"].endswith("/in/x"))
        if sums(result) != (20, 0, 0) or rows_of != 20 or result.findings or len(result.notes) != 1:
            wrong[form] = result.facts
    assert wrong == {}


ANY_BYTES = st.binary(max_size=200)
ANY_FILE = st.one_of(
    ANY_BYTES,
    st.builds(
        lambda head, data: head + data,
        st.sampled_from([GZIP, b"PAR1", b"BZh9", b'{"kind":"handled"}\n', PLAIN[:300], LEDGER, LEDGER[:90]]),
        ANY_BYTES,
    ),
    st.builds(lambda data: gzip.compress(data) + data, ANY_BYTES),
    st.builds(lambda data: table_of(names(1)) + data, ANY_BYTES),
)


@pytest.mark.requirement("AUD-36")
@given(data=ANY_FILE, side=st.sampled_from(["produced", "handled"]))
@settings(max_examples=examples(1000))
def test_a_file_of_any_bytes_is_read_named_as_lost_or_refused(data: bytes, side: InputSide) -> None:
    """And it is opened once."""
    place = Memory("a", data, [])
    file = InputFile(place, "a", len(data), side)  # type: ignore[arg-type]
    try:
        items = [*read(file)]
    except RefusedFile as error:
        assert str(error)
        return
    finally:
        assert len(place.opened) == (data != b"")
    is_whole = data in (b"", LEDGER, PLAIN[:300])
    if not items:
        assert not text_of(data).strip()
    elif data.startswith((GZIP, b"{")) and not is_whole and data.removeprefix(LEDGER).strip():
        assert any(isinstance(item, LostPart) for item in items)


@pytest.mark.requirement("AUD-3", "AUD-21", "AUD-36")
def test_no_line_of_a_ledger_is_passed_over() -> None:
    """One that is not there, is cut, is changed, or stands between two others: each shows, in a file of two
    writers without their ends. (A file whose first line is none is refused.)"""
    other = text_of(ledger_of("handled", rows(1, 2), ARN))
    lines = [*PLAIN.splitlines(keepends=True)[:-2], *other.splitlines(keepends=True)[:-2]]
    assert not read_ledgers({"a": b"".join(lines)}, "handled")[1]
    silent = []
    for at, line in enumerate(lines[1:], 1):
        changed = [
            b"",
            line[: len(line) // 2] + b"\n",
            line.replace(b'"user_records":1', b'"user_records":2'),
        ]
        foreign = [b"INFO a line\n", CSV.splitlines(keepends=True)[1], JSON.splitlines(keepends=True)[0]]
        changed += [one + line for one in foreign]
        for new in changed:
            _, lost = read_ledgers({"a": b"".join([*lines[:at], new, *lines[at + 1 :]])}, "handled")
            if new != line and not lost:
                silent.append((at, new))
    assert silent == []


@pytest.mark.requirement("AUD-3", "AUD-21", "AUD-27", "AUD-36")
def test_behind_damage_the_rest_is_read_and_what_is_not_there_is_lost() -> None:
    """Also behind a last line that does not end, and behind a part that has ended."""
    first, *rest = members_of(LEDGER)
    for data, count in ((first[:-5] + b"12345" + b"".join(rest), 2), (PLAIN[:-1], 1)):
        read, lost = read_ledgers({"a": data}, "handled")
        assert (len(read), len(lost)) == (20, count)
    empty = account("handled", {"a.ledger.jsonl.gz": b"", "b.parquet": b"", "c": b""})
    assert [*empty.read(ReadProgress())] == []
    assert ([part.source for part in empty.lost], empty.empty) == (["a.ledger.jsonl.gz", "b.parquet"], ["c"])
    files = Files()
    writer = Writer(files.sink(1), "w", "orders", "handled", wait=True)
    for number in range(2):
        writer.note(rows(number))
    parts = {file: b"".join(part) for file, part in files.items()}
    for count in range(1, len(parts) + 1):
        _, lost = read_ledgers(dict([*parts.items()][:count]), "handled")
        assert bool(lost) == (count < len(parts))


# -- what is refused -------------------------------------------------------------------------------

REFUSED: dict[str, tuple[bytes, str]] = {
    "a.log": (LOG, "a log with lines of a ledger"),
    "b.log.gz": (gzip.compress(LOG), "a log with lines of a ledger"),
    "docker.log": (DOCKER, "a log with lines of a ledger"),
    "docker.log.gz": (gzip.compress(DOCKER), "a log with lines of a ledger"),
    "a.csv": (CSV, "CSV: "),
    "b.csv.gz": (gzip.compress(CSV), "CSV: "),
    "a.jsonl": (JSON, "JSON: "),
    "a.json": (b"[" + JSON.replace(b"}\n{", b"},{") + b"]", "JSON: "),
    "a.txt": (b"hello\n", "it begins with b'hello\\n'"),
    "a.bz2": (bz2.compress(PLAIN), "bzip2: unpack it first (bunzip2 < "),
    "twice.gz": (gzip.compress(LEDGER), "gzip within gzip"),
    "utf-16": (PLAIN.decode().encode("utf-16"), "UTF-16"),
    "zeros": (bytes(2 << 20), "it begins with b'\\x00"),
    "avro": (b"Obj\x01...", "write its rows as Parquet first"),
    "other.parquet": (parquet({"a": [1]}), "Parquet without a column shardId; it has: a"),
    "float.parquet": (parquet({**STRINGS, "sequenceNumber": [4.9e55] * 20}), "is double: write text"),
    "text.parquet": (parquet({**STRINGS, "subSequenceNumber": ["0"] * 20}), "is string: write integers"),
    "two.parquet": (parquet({**STRINGS, "shardid": ["x"] * 20}), "two columns shardId"),
    "runs.parquet": (parquet({**STRINGS, "lastSubSequenceNumber": [3] * 20}), "a row for each user record"),
    "joined.parquet": (table_of(names(1)) + table_of(names(2)), "several Parquet files in one"),
}


@pytest.mark.requirement("ACC-6", "AUD-36", "AUD-41")
def test_all_other_files_are_refused_at_once_by_name_or_left_out(tmp_path: Path) -> None:
    files = {name: data for name, (data, _) in REFUSED.items()}
    with pytest.raises(AuditError) as caught:
        audit_of(tmp_path, {"x": LEDGER, **files})
    told = str(caught.value)
    assert told.startswith(f"{len(REFUSED)} files are neither ledgers nor Parquet with the columns shardId, ")
    assert {Path(file).name for file in caught.value.files} == files.keys()
    missed = [
        name
        for name, (_, part) in REFUSED.items()
        if not re.search(rf"/in/{name}[^/]*\({re.escape(part)}|{re.escape(part)}", told)
    ]
    assert missed == []
    result = audit_of(tmp_path, {}, leave_out=["*.parquet", "*/in/[!x]*"])
    assert sums(result) == (20, 0, 0)
    (note,) = result.notes
    assert re.fullmatch(rf"left out by --leave-out: (\S+/in/\S+ ){{3}}and {len(files) - 3} more", note)
    left = {Path(one["file"]).name for one in result.facts["files"] if one["leftOut"]}
    assert left == files.keys()


@pytest.mark.requirement("AUD-10", "AUD-35", "AUD-36")
def test_of_producers_files_only_ledgers_are_read(tmp_path: Path) -> None:
    """A table has no end, and a hidden file may be a ledger: both are ways to a false "everything"."""
    write(tmp_path, {"in/h.parquet": table_of(names(*NUMBERS))})
    with pytest.raises(AuditError) as caught:
        audit_of(
            tmp_path,
            {
                "../put/a.parquet": table_of(names(1)),
                "../put/_b/a.gz": LEDGER,
                "../put/.c": LEDGER,
                "a.csv": CSV,
            },
        )
    assert {Path(file).name for file in caught.value.files} == {"a.parquet", "a.gz", ".c", "a.csv"}
    assert "Ledger(PLACE).writer(STREAM).put(...)" in str(caught.value)
    assert LEFT_OUT in str(caught.value)


@pytest.mark.requirement("AUD-36")
def test_the_command_of_a_refusal_makes_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is done literally, in the folder where the audit ran; then the file itself is left out."""
    import duckdb

    wrong = {}
    for name, (data, _) in REFUSED.items():
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        write(tmp_path / name, {"put/p": ledger_of("produced", rows(*NUMBERS, kind="delivered"))})
        write(tmp_path / name, {f"in/{name}": data})
        with pytest.raises(AuditError) as caught:
            audit(["put"], ["in"])
        if not (command := re.search(r"`(.*)`", caught.value.reason)):
            continue
        if sql := re.fullmatch(r'duckdb -c "(.*)"', command[1]):
            duckdb.sql(sql[1])
        else:
            subprocess.run(["bash", "-c", command[1]], check=True)
        if sums(audit(["put"], ["in"], leave_out=[name])) != (20, 0, 0):
            wrong[name] = command[1]
    assert wrong == {}


@pytest.mark.requirement("AUD-36")
def test_no_pipe_is_opened_and_no_link_to_nothing_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    os.mkfifo(tmp_path / "in/pipe")
    os.mkfifo(tmp_path / "in/.pipe")
    (tmp_path / "in/link").symlink_to("nowhere")
    with pytest.raises(AuditError, match=r"2 files are.*/in/link, .*/in/pipe \(not a file: a pipe"):
        audit_of(tmp_path, {"x": LEDGER})
    result = audit_of(tmp_path, {}, leave_out=["pipe", "link"])
    assert sums(result) == (20, 0, 0)
    assert any(note.endswith("/in/.pipe") for note in result.notes)


@pytest.mark.requirement("AUD-36")
@pytest.mark.parametrize("log", ["_delta_log/00000000000000000000.json", ".hoodie/hoodie.properties"])
def test_the_folder_of_a_versioned_table_is_refused(log: str, tmp_path: Path) -> None:
    """It has files of rows that were taken out of the table: they would count as handled."""
    with pytest.raises(AuditError, match=r"1 file is .*/in/t \(a table of Delta Lake or Hudi"):
        audit_of(tmp_path, {"x": LEDGER, f"t/{log}": b"{}", "t/part-0.parquet": table_of(names(1))})


@pytest.mark.requirement("ACC-3", "AUD-36")
def test_results_are_no_input_wherever_they_lie(tmp_path: Path) -> None:
    """In their folder they are left out; named, or moved out of it, they are refused."""
    before = audit_of(tmp_path, {"x": ledger_of("handled", rows(*NUMBERS[:7], *NUMBERS[8:]))})
    before.write(str(tmp_path / "in/out"))
    after = audit_of(tmp_path, {})
    assert sums(after) == sums(before) == (19, 1, 0)
    assert after.notes[-1].startswith(f"left out, as are {LEFT_OUT}: ")
    parts = [path for path in (tmp_path / "in/out").rglob("*.*") if path.is_file()]
    assert len(parts) >= 3
    for part in parts:
        with pytest.raises(AuditError) as caught:
            audit([str(tmp_path / "put")], [str(part)])
        assert part.name in str(caught.value)
        assert "results of kpl-codec" in str(caught.value) or part.suffix != ".parquet"


@pytest.mark.requirement("AUD-36")
@pytest.mark.parametrize("change", ["empty", "cut", "gone"])
def test_a_file_that_is_cut_after_it_was_listed_is_lost_in_part(change: str, tmp_path: Path) -> None:
    """As a rotation by copy and truncate does: of another file, while this one is read."""
    other = rows(0, kind="delivered")
    for form, data in (("gz", ledger_of("produced", other * 3)), ("text", PLAIN)):
        write(tmp_path, {"a": ledger_of("produced", other), form: data})
        account = account_of([str(tmp_path)], "produced", ())
        reading = account.read(ReadProgress())
        next(reading)
        first = members_of(data)[0]
        (tmp_path / form).unlink() if change == "gone" else write(
            tmp_path, {form: first if change == "cut" else b""}
        )
        list(reading)
        assert {part.source for part in account.lost} == {str(tmp_path / form)}
        (tmp_path / form).unlink(missing_ok=True)


def test_the_option_takes_names_and_paths_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    audit_of(tmp_path, {"x": LEDGER})
    write(tmp_path, {"in/a.csv": CSV, "in/old/b": b"x"})
    line = ["audit", "--produced", "put", "--handled", "in"]
    assert main([*line, "--leave-out", "*.csv", "--leave-out", "in/old/*"]) == 0
    assert "left out by --leave-out: in/a.csv, in/old/b\n" in capsys.readouterr().err


# -- what rows of a table may name -----------------------------------------------------------------


@pytest.mark.requirement("AUD-12", "AUD-21")
def test_unknown_reaches_what_a_row_may_name(tmp_path: Path) -> None:
    """Another consumer is past all of them."""
    number = str(BASE + 1)
    cases = {
        (SHARD, number, -1): 1,
        (SHARD, number, 1 << 40): 1,
        (None, number, 0): 1,
        ("jane@example.com", number, 0): 1,
        ("shardId-000000000009", number, 0): 1,
        (SHARD, None, 0): 19,
        (SHARD, "jane@example.com", 0): 19,
        (SHARD, "9" * 90, 0): 19,
        (SHARD, b"\xff", 0): 19,
        (b"\xff", number, 0): 1,
        ("shardId-000000000009", None, 0): 0,
        (None, None, 0): 19,
    }
    wrong = {}
    for at, (row, unknown) in enumerate(cases.items()):
        result = audit_of(tmp_path / str(at), {"x": table_of([row] * 2), "y": table_of(names(19))})
        said = [(one.times, one.row, "jane" in one.why) for one in result.unreadable]
        if sums(result) != (1, 19 - unknown, unknown) or said != [(2, 1, False)]:
            wrong[row] = sums(result), said
    assert wrong == {}


@pytest.mark.requirement("AUD-12", "AUD-21")
def test_the_cause_of_unknown_is_the_lost_part_that_may_have_named_it(tmp_path: Path) -> None:
    """Of several the one that may have named fewest, and of none that has named others."""
    table = table_of([*names(19), (SHARD, str(BASE + 2), -1), (SHARD, None, 0)])
    result = audit_of(tmp_path, {"x": table})
    told = {one.sequence_number: str(one.detail) for one in result.findings if one.kind == "audit-unknown"}
    begin = f"it may be named by what cannot be read of {tmp_path}/in/x, row "
    assert told[str(BASE + 1)].startswith(f"{begin}3: ")
    assert told[str(BASE + 2)].startswith(f"{begin}2: ")


@pytest.mark.requirement("ACC-2", "AUD-21", "AUD-36")
def test_of_a_damaged_table_the_other_row_groups_are_read(tmp_path: Path) -> None:
    data = parquet(STRINGS, row_group_size=10, write_page_checksum=True, compression="none")
    at = data.index(str(BASE + 1).encode())
    result = audit_of(tmp_path, {"x": data[:at] + b"5" + data[at + 1 :]})
    assert sums(result) == (10, 0, 10)
    (part,) = result.unreadable
    assert (part.row, part.why.partition(":")[0]) == (1, "rows that cannot be read")
    assert {one.kind for one in result.findings} == {"audit-unknown", "audit-unreadable"}


@pytest.mark.requirement("AUD-20")
@pytest.mark.parametrize("prefix", ["", "arn:aws:kinesis:eu-west-1:123456789012:stream/"])
def test_rows_of_another_stream_in_a_table_are_skipped(prefix: str, tmp_path: Path) -> None:
    """They move no consumer on, either. A streamName that is none is nobody's."""
    streams = [f"{prefix}orders", f"{prefix}payments", f"{prefix}payments", None, "o r"]
    table = parquet({"streamName": streams, **columns_of(1, 5, 19, 2, 0)})
    result = audit_of(tmp_path, {"x": table})
    assert sums(result) == (2, 0, 1)
    assert result.facts["userRecords"]["tooEarly"] == 17
    assert result.notes == [f"rows of another stream were skipped: {prefix}payments"]


@pytest.mark.requirement("AUD-20")
def test_consumers_in_two_regions_and_producers_by_name(tmp_path: Path) -> None:
    files = {
        "a": ledger_of("handled", rows(1), ARN),
        "b": ledger_of("handled", rows(5, 19), ARN.replace("us-east-1", "eu-west-1")),
        "c": ledger_of("handled", rows(7)),
    }
    with pytest.raises(AuditError, match="choose one with --stream"):
        audit_of(tmp_path, files)
    result = audit_of(tmp_path, files, stream=ARN)
    # (What names only the stream counts, and moves nobody on.)
    assert (*sums(result), result.facts["userRecords"]["tooEarly"]) == (2, 1, 0, 17)
