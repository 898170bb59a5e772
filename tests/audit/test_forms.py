"""A small file for each form that is read, and for each that is refused with what to do."""

from __future__ import annotations

import bz2
import gzip
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kpl_codec as kpl
from kpl_codec.audit import Ledger, Row
from kpl_codec.audit.audit_run import AuditError, AuditResult, audit

from ..captures.test_captures import answer
from ..validate.test_job import MAP, validate_files

SHARD = "shardId-000000000000"
BASE = 49590338271490256608559692538361571095921575989136588898
NUMBERS = range(20)


def rows(*numbers: int, kind: str = "handled") -> list[Row]:
    return [
        Row(kind, SHARD, sequence_number=str(BASE + number), user_records=1, at=1_700_000_000_000)
        for number in numbers
    ]  # type: ignore[arg-type]


def lines_of(side: str, some: list[Row], stream: str = "orders") -> list[str]:
    lines: list[str] = []
    writer = Ledger(lines.append).writer(stream, side)
    writer.note(some)
    writer.close()
    return lines


def ledger_of(folder: Path, side: str, some: list[Row], stream: str = "orders") -> bytes:
    writer = Ledger(folder).writer(stream, side)
    writer.note(some)
    writer.close()
    (file,) = folder.glob(f"{writer.name}*")
    return file.read_bytes()


def text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def audit_of(folder: Path, name: str, data: bytes, *others: int) -> AuditResult:
    """20 were put; ``others`` are handled by another file."""
    if not (folder / "put").exists():
        ledger_of(folder / "put", "produced", rows(*NUMBERS, kind="delivered"))
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / name).write_bytes(data)
    if others:
        (folder / "in/other.log").write_bytes(text(lines_of("handled", rows(*others))))
    return audit([str(folder / "put")], [str(folder / "in")])


A, B = lines_of("handled", rows(*range(10))), lines_of("handled", rows(*range(10, 20)))
SNAKE = {"shard": SHARD, "seq": "", "sub": 0}
CAMEL = {"shardId": SHARD, "sequenceNumber": "", "subSequenceNumber": 0}


def objects(numbers: range, keys: dict[str, object]) -> str:
    shard, number, sub = keys
    return "".join(json.dumps({shard: SHARD, number: str(BASE + n), sub: 0}) + "\n" for n in numbers)


def csv(numbers: range, head: str = "shardId,sequenceNumber,subSequenceNumber\n") -> str:
    return head + "".join(f"{SHARD},{BASE + n},0\n" for n in numbers)


def escaped(line: str, times: int) -> str:
    for _ in range(times):
        line = json.dumps({"log": line})
    return line


def crlf(data: bytes) -> bytes:
    return b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n")


READ: dict[str, tuple[str, bytes]] = {
    "log": ("a.log", text([f"INFO [7] {line}" for line in A + B])),
    "docker": ("a.log", text([json.dumps({"log": f"{line}\n", "stream": "stdout"}) for line in A + B])),
    "one of two escaped": ("a.log", text(A + [escaped(line, 1) for line in B])),
    "escaped three times": ("a.log", text([escaped(line, 3) for line in A + B])),
    "escaped as u0022": ("a.log", text([escaped(line, 1).replace('\\"', "\\u0022") for line in A + B])),
    "several in a line": ("a.log", text([" ".join(A), json.dumps([{"m": line} for line in B])])),
    "keys in another order": (
        "a.log",
        text([json.dumps(dict([*json.loads(line).items(), ("x", 1)][::-1])) for line in A + B]),
    ),
    "members turned round": ("a.log", text((A + B)[::-1])),
    "log in gzip, two members": ("a.log.gz", gzip.compress(text(A)) + gzip.compress(text(B), mtime=7)),
    "a line in two members": ("a.gz", gzip.compress(text(A + B)[:900]) + gzip.compress(text(A + B)[900:])),
    "gzip in gzip": ("a", gzip.compress(gzip.compress(gzip.compress(text(A + B))))),
    "CR alone": ("a.log", text(A + B).replace(b"\n", b"\r")),
    "no end of the last line": ("a.log", text(A + B)[:-1]),
    "JSON of two spellings": (
        "a.jsonl",
        (objects(range(10), CAMEL) + objects(range(10, 20), SNAKE)).encode(),
    ),
    "JSON with numbers": ("a.json", re.sub(r'"(\d+)"', r"\1", objects(NUMBERS, CAMEL)).encode()),
    "CSV": ("a.csv", csv(NUMBERS).encode()),
    "CSV with BOM and CRLF": ("A.CSV", crlf(csv(NUMBERS).encode())),
    "CSV joined": ("a.csv", (csv(range(10)) + csv(range(10, 20))).encode()),
    "CSV in gzip": (
        "a.csv.gz",
        gzip.compress(csv(range(10)).encode()) + gzip.compress(csv(range(10, 20), "").encode()),
    ),
    "CSV with quotes": (
        "a.csv",
        csv(NUMBERS).replace(SHARD, f'"{SHARD}"').replace(",0\n", ',"0"\n').encode(),
    ),
}


@pytest.mark.requirement("AUD-36")
@pytest.mark.parametrize("form", READ)
def test_a_form_is_read(form: str, tmp_path: Path) -> None:
    result = audit_of(tmp_path, *READ[form])
    assert result.facts["complete"], result.headline
    assert result.facts["userRecords"]["handled"] == 20
    assert [one.kind for one in result.findings] == []


OBJECTS = objects(NUMBERS, CAMEL)
REFUSED: dict[str, tuple[str, bytes, str]] = {
    "UTF-16": ("a.log", text(A).decode().encode("utf-16"), "UTF-16"),
    "zeros": ("a.log", text(A) + bytes(100) + text(B), "zero bytes"),
    "gzip with garbage": ("a.log.gz", gzip.compress(text(A)) + b"garbage", "damaged, or cut off"),
    "gzip that is cut": ("a.log.gz", gzip.compress(text(A + B))[:-4], "damaged, or cut off"),
    "semicolons": ("a.csv", csv(NUMBERS).replace(",", ";").encode(), "CSV with commas"),
    "tabs": ("a.csv", csv(NUMBERS).replace(",", "\t").encode(), "CSV with commas"),
    "no header": ("a.csv", csv(NUMBERS, "").encode(), "a header"),
    "a JSON list": ("a.json", f"[{OBJECTS.replace('}', '},')}{{}}]".replace("\n", "").encode(), "jq -c"),
    "an object a line of a list": ("a.json", f"[\n{OBJECTS.replace('}', '},')}{{}}]\n".encode(), "jq -c"),
    "floating point": (
        "a.csv",
        csv(NUMBERS).replace(str(BASE)[:40], "4.959e+55").encode(),
        "write it as text|as text",
    ),
    "two columns of one meaning": ("a.csv", csv(NUMBERS, "shard,seq,shard\n").encode(), "several columns"),
    "an open quote": ("a.csv", csv(NUMBERS).replace(",0\n", ',"0\n', 1).encode(), "cut, or no row"),
    "the last line is cut": ("a.jsonl", objects(NUMBERS, CAMEL).encode()[:-20], "cut, or no row"),
    "a ledger's last line is cut": ("a.log", text(A) + text(B)[:6], "its last line is cut"),
    "two columns in JSON": (
        "a.jsonl",
        OBJECTS.replace('"shardId"', '"shard": "x", "shardId"').encode(),
        "several columns",
    ),
    "a ledger in CSV": (
        "a.csv",
        ("time,message\n" + "".join('1,"{}"\n'.format(line.replace('"', '""')) for line in A)).encode(),
        "header that is cut",
    ),
    "a name of no table": ("rows.tsv", f"shard\tseq\tsub\na\t{BASE}\t0\n".encode(), "its name not that"),
    "bzip2": ("a.csv.bz2", bz2.compress(csv(NUMBERS).encode()), "no column shard"),
    "header and end are cut": ("a.csv", b"sh\nshardId-000000", "no column shard"),
    "cells": ("a.csv", csv(NUMBERS).replace(",0\n", "\n", 1).encode(), "cut, or no row"),
}


@pytest.mark.requirement("AUD-21", "AUD-36")
@pytest.mark.parametrize("form", REFUSED)
def test_a_form_that_is_not_read_says_what_to_do(form: str, tmp_path: Path) -> None:
    """And what it may have named is unknown: another consumer is past it."""
    name, data, advice = REFUSED[form]
    result = audit_of(tmp_path, name, data, 19)
    sums = result.facts["userRecords"]
    assert sums["missing"] == 0
    assert result.facts["complete"] == (sums["handled"] == 20)
    told = " ".join(str(one.detail) for one in result.findings if one.file == name)
    assert any(part in told for part in advice.split("|")), told


@pytest.mark.requirement("AUD-21")
@pytest.mark.parametrize(
    ("row", "unknown"),
    [
        (f"{SHARD},{BASE + 1},-1\n", 1),
        (f"{SHARD},{BASE + 1},x\n", 1),
        (f",{BASE + 1},0\n", 1),
        (f"shardId-000000000009,{BASE + 1},0\n", 1),
        (f"{SHARD},,0\n", 19),
        (f"{SHARD},{'9' * 90},0\n", 19),
        (",,0\n", 19),
        (f"{SHARD},{BASE + 1}", 19),
        (f"{SHARD},{BASE + 1},0", 0),
    ],
    ids=[
        "-1",
        "no number",
        "no shard",
        "another's",
        "no sequence number",
        "too long",
        "neither",
        "cut",
        "no end",
    ],
)
def test_unknown_reaches_what_the_row_may_name(row: str, unknown: int, tmp_path: Path) -> None:
    result = audit_of(
        tmp_path,
        "a.csv",
        csv(range(0), "shardId,sequenceNumber,subSequenceNumber\n").encode() + row.encode(),
        19,
    )
    sums = result.facts["userRecords"]
    handled = 1 + (row.endswith(",0") and unknown == 0)
    assert (sums["handled"], sums["unknown"]) == (handled, unknown)
    assert sums["missing"] == 20 - handled - unknown


@pytest.mark.requirement("AUD-12", "AUD-21")
def test_the_cause_of_unknown_is_the_hole_that_reaches_it(tmp_path: Path) -> None:
    """Of several the one that reaches least, and of none that reaches others."""
    other = "shardId-000000000009"
    put = [
        *rows(1, 2, 19, kind="delivered"),
        Row("delivered", other, sequence_number=str(BASE + 5), user_records=1, at=1),
    ]
    ledger_of(tmp_path / "put", "produced", put)
    table = csv(range(19, 20)) + f"{other},{BASE + 7},0\n{SHARD},{BASE + 2},x\n{SHARD},,0\n"
    result = audit_of(tmp_path, "a.csv", table.encode())
    told = [(one.sequence_number, one.detail) for one in result.findings if one.kind == "audit-unknown"]
    assert [(number, detail.partition(":")[0]) for number, detail in told] == [
        (str(BASE + 1), "it may be named by what cannot be read of a.csv, row 4"),
        (str(BASE + 2), "it may be named by what cannot be read of a.csv, row 3"),
    ]
    assert result.facts["userRecords"]["missing"] == 1  # (the other shard's)
    writer = Ledger(tmp_path / "in").writer("orders", "handled")
    for number in (1, 2, 19):
        writer.note(rows(number))
        writer.flush()
    writer.close()
    (file,) = (tmp_path / "in").glob(f"{writer.name}*")
    parts = file.read_bytes().split(b"\x1f\x8b\x08")
    file.write_bytes(b"\x1f\x8b\x08".join([*parts[:2], *parts[3:]]))
    (tmp_path / "in/a.csv").write_text(csv(range(19, 20)) + f"{other},{BASE + 7},0\n")
    result = audit([str(tmp_path / "put")], [str(tmp_path / "in")])
    (why,) = {one.detail for one in result.findings if one.kind == "audit-unknown"}
    assert why == (
        f"it may be named by what cannot be read of {writer.name}: member 1: not there, or not whole"
    )


@pytest.mark.requirement("AUD-20")
@pytest.mark.parametrize("column", ["name", "ARN"])
def test_rows_of_another_stream_in_a_table_are_skipped(column: str, tmp_path: Path) -> None:
    """They move no consumer on, either."""
    prefix = "arn:aws:kinesis:eu-west-1:123456789012:stream/" * (column == "ARN")
    streams = [f"{prefix}orders", f"{prefix}payments", None]
    table = pa.table(
        {
            "streamName": [streams[0], streams[1], streams[1], streams[2]],
            "shardId": [SHARD] * 4,
            "sequenceNumber": [str(BASE + n) for n in (1, 5, 19, 2)],
            "subSequenceNumber": [0] * 4,
        }
    )
    out = pa.BufferOutputStream()
    pq.write_table(table, out)
    result = audit_of(tmp_path, "a.parquet", bytes(out.getvalue()))
    sums = result.facts["userRecords"]
    assert (sums["handled"], sums["missing"], sums["tooEarly"]) == (2, 1, 17)
    assert result.notes == [f"rows of another stream were skipped: {prefix}payments"]


@pytest.mark.requirement("AUD-20")
def test_consumers_in_two_regions_and_producers_by_name(tmp_path: Path) -> None:
    arns = [f"arn:aws:kinesis:{region}:123456789012:stream/orders" for region in ("us-east-1", "eu-west-1")]
    ledger_of(tmp_path / "put", "produced", rows(*NUMBERS, kind="delivered"))
    ledger_of(tmp_path / "in", "handled", rows(1), arns[0])
    ledger_of(tmp_path / "in", "handled", rows(5, 19), arns[1])
    ledger_of(tmp_path / "in", "handled", rows(7))
    sides = [str(tmp_path / "put")], [str(tmp_path / "in")]
    with pytest.raises(AuditError, match="choose one with --stream"):
        audit(*sides)
    sums = audit(*sides, stream=arns[0]).facts["userRecords"]
    # (What names only the stream counts, and moves nobody on.)
    assert (sums["handled"], sums["missing"], sums["tooEarly"]) == (2, 1, 17)


@pytest.mark.requirement("AUD-36")
@pytest.mark.parametrize("name", ["_b/b.log", ".b.log", "x/.hidden/b.csv", "x/b.log"])
@pytest.mark.parametrize("side", ["put", "in"])
def test_what_is_hidden_is_no_silence(name: str, side: str, tmp_path: Path) -> None:
    ledger_of(tmp_path / "put", "produced", rows(*range(10), kind="delivered"))
    lines = lines_of(
        "produced" if side == "put" else "handled",
        rows(*range(10, 20), kind="delivered" if side == "put" else "handled"),
    )
    if side == "in":
        ledger_of(tmp_path / "put", "produced", rows(*range(10, 20), kind="delivered"))
    ledger_of(tmp_path / "in", "handled", rows(*range(10), *[19] * (side == "in")))
    file = tmp_path / side / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text(lines))
    if name == "x/b.log":
        (file.parent / "report.html").write_text("x\n")
        (file.parent / "summary.json").write_text("{}\n")
    result = audit([str(tmp_path / "put")], [str(tmp_path / "in")])
    assert not result.facts["complete"] or side == "in"
    assert result.facts["userRecords"]["missing"] == 0
    assert any(one.file == file.name for one in result.findings)


@pytest.mark.requirement("AUD-36")
def test_results_are_no_input_wherever_they_lie(tmp_path: Path) -> None:
    """Whole, in part, renamed, beside rows of a consumer."""
    ledger_of(tmp_path / "put", "produced", rows(*NUMBERS, kind="delivered"))
    ledger_of(tmp_path / "in", "handled", rows(*(n for n in NUMBERS if n != 7)))
    sides = [str(tmp_path / "put")], [str(tmp_path / "in")]
    before = audit(*sides)
    before.write(str(tmp_path / "in/out"))
    before.write(str(tmp_path / "put/out"))
    for file in (tmp_path / "in/out").rglob("*.*"):
        if file.is_file():
            (tmp_path / "in" / f"copy-{file.name}").write_bytes(file.read_bytes())
    (tmp_path / "in/out/summary.json").unlink()
    after = audit(*sides)
    assert after.facts["userRecords"] == before.facts["userRecords"]
    assert [one.kind for one in after.findings] == [one.kind for one in before.findings]


@pytest.mark.requirement("AUD-40", "AUD-41")
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_equal_parts_of_a_table_count_once(form: str, tmp_path: Path) -> None:
    """In one folder; and each file's rows are in the summary."""
    table = pa.Table.from_pylist([{**CAMEL, "sequenceNumber": str(BASE + number)} for number in range(20)])
    data = {"csv": csv(NUMBERS).encode(), "jsonl": objects(NUMBERS, CAMEL).encode(), "parquet": b""}[form]
    if form == "parquet":
        pq.write_table(table, out := pa.BufferOutputStream())
        data = bytes(out.getvalue())
    for name in ("part-1", "part-2", "part-3"):
        result = audit_of(tmp_path, f"{name}.{form}", data)
    assert result.facts["complete"]
    assert result.facts["userRecords"]["twice"] == 0
    told = [(one.kind, one.file, str(one.detail)[:28]) for one in result.findings]
    assert told == [
        ("audit-twice", f"part-{n}.{form}", f"the same bytes as part-1.{form}"[:28]) for n in (2, 3)
    ]
    rows_of = {Path(one["file"]).name: one["rows"] for one in result.facts["files"]}
    assert sorted(rows_of.values()) == [0, 0, 20, 20]
    (tmp_path / "in/x").mkdir()
    elsewhere = audit_of(tmp_path, f"x/part-4.{form}", data).facts["userRecords"]
    assert (elsewhere["handled"], elsewhere["twice"]) == (20, 20)


@pytest.mark.requirement("AUD-36")
@pytest.mark.parametrize("name", ["summary.json", "report.html", "shards.json", "findings", "user-records"])
def test_results_that_are_named_are_refused(name: str, tmp_path: Path) -> None:
    """Nothing is missing for it, and the headline says what to name. (A folder of results, and a shard map,
    which may be of anybody, are noted.)"""
    users = [kpl.UserRecord("a", b"lower", "5"), kpl.UserRecord("a", b"upper", str(2**128 - 5))]
    page = {**answer(kpl.encode(users), shard=SHARD, first=BASE), "StreamName": "orders"}
    (tmp_path / "capture.jsonl").write_text(json.dumps(page))
    assert validate_files(tmp_path / "capture.jsonl", MAP, tmp_path / "out") == 1
    ledger_of(
        tmp_path / "put",
        "produced",
        [Row("delivered", SHARD, sequence_number=str(BASE), user_records=2, at=1)],
    )
    result = audit([str(tmp_path / "put")], [str(tmp_path / "out" / name)])
    assert "--handled holds no row of a consumer of orders" in result.headline
    assert ("name ledgers, or tables" in result.headline) == (name in ("summary.json", "report.html"))
    assert not result.facts["complete"]
    assert result.facts["userRecords"]["missing"] == 0
    # In a folder beside rows they are passed over: they name nothing.
    ledger_of(
        tmp_path / "out" / "in",
        "handled",
        [Row("handled", SHARD, sequence_number=str(BASE), user_records=2, at=1)],
    )
    assert audit([str(tmp_path / "put")], [str(tmp_path / "out" / "in")]).facts["complete"]
