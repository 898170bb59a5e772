"""What an audit says of small ledgers and tables: its headline, notes, errors and findings."""

from __future__ import annotations

import gzip
import json
from contextlib import closing
from html import escape
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from kpl_codec.audit import Ledger, Row, RowKind
from kpl_codec.audit.audit_run import AuditError, AuditResult, audit
from kpl_codec.captures.files import LEFT_OUT
from kpl_codec.cli.main import main
from kpl_codec.ledger.ledger import SUFFIX

from .model import header, member
from .test_law import SHARDS, write_table


def write_ledger(folder: Path, *rows: Row, side: Literal["produced", "handled"] = "produced") -> None:
    with closing(Ledger(folder / side).writer("orders", side)) as writer:
        writer.note(rows)


def delivered(*numbers: str, shard_id: str = SHARDS[0], user_records: int = 1) -> list[Row]:
    return [
        Row("delivered", shard_id, sequence_number=number, user_records=user_records, at=1)
        for number in numbers
    ]


def audit_of(folder: Path) -> AuditResult:
    """The audit of what is there, which must be fit to be written."""
    result = audit([str(folder / "produced")], [str(folder / "handled")])
    result.write(str(folder / "out"))
    return result


@pytest.mark.requirement("AUD-21")
@pytest.mark.parametrize("side", ["produced", "handled"])
@pytest.mark.parametrize(
    "facts",
    [{"shard": "\ud800"}, {"error_code": "\udc00"}, {"at_ms": 1 << 59}, {"at_ms": 253_402_300_800_000}],
    ids=["shard", "error code", "time of 64 bits", "time after the year 9999"],
)
def test_what_a_ledger_says_can_be_written_whatever_it_says(
    facts: dict[str, Any], side: str, tmp_path: Path
) -> None:
    """Half of a surrogate pair, and a time that no calendar has."""
    place = {"shard": SHARDS[0], "sequence_number": "7"} if "error_code" not in facts else {}
    kind = "refused" if "error_code" in facts else "delivered" if side == "produced" else "handled"
    row = {"kind": kind, **place, "sub_sequence_number": 0, "user_records": 2, "at_ms": 1, "digest": "0" * 16}
    row |= facts
    write_ledger(tmp_path, *delivered("8"))
    (tmp_path / "handled").mkdir()
    (tmp_path / "handled/notes.txt").write_text("nothing\n")
    (tmp_path / side / f"w-000000{SUFFIX}").write_bytes(gzip.compress(member([header(side, 2), row])))
    result = audit_of(tmp_path)
    assert (tmp_path / "out/report.html").exists()
    is_reported = any(one.file.startswith("w-") for one in result.unreadable)
    assert is_reported == ("at_ms" not in facts)


@pytest.mark.requirement("AUD-21")
@pytest.mark.parametrize("column", ["shardId", "sequenceNumber", "subSequenceNumber"])
@pytest.mark.parametrize(
    ("cell", "text"),
    [({"a": 1}, False), (["x"], False), (b"\xff", False), (b"\xff", True), (True, False), (1.5, False)],
)
def test_a_cell_of_any_type_is_read_or_reported(column: str, cell: Any, text: bool, tmp_path: Path) -> None:
    """Its row is told, and what it may name is unknown. ``text``: bytes that are no UTF-8, in a text."""
    write_ledger(tmp_path, *delivered("7", "8", "9", user_records=2))
    (tmp_path / "handled").mkdir()
    good = {"shardId": SHARDS[0], "sequenceNumber": "9", "subSequenceNumber": 0}
    pq.write_table(pa.Table.from_pylist([good]), tmp_path / "handled/good.parquet")
    one = {"shardId": [SHARDS[0]], "sequenceNumber": ["8"], "subSequenceNumber": [0], column: [cell]}
    table = pa.table(one)
    if text:
        bytes_of = table[column].chunk(0).buffers()
        table = pa.table({**one, column: pa.Array.from_buffers(pa.string(), 1, bytes_of)})
    pq.write_table(table, tmp_path / "handled/strange.parquet")
    result = audit_of(tmp_path)
    assert any("strange" in one.file for one in result.unreadable)
    assert not any(one.kind == "audit-missing" and one.sequence_number == "8" for one in result.findings)


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_table_without_rows_is_a_note(form: str, rows: int, tmp_path: Path) -> None:
    write_ledger(tmp_path, *delivered("7"))
    columns = {"shardId": [SHARDS[0]], "sequenceNumber": ["7"], "subSequenceNumber": ["0"]}
    write = pq.write_table if form == "parquet" else pa.csv.write_csv
    (tmp_path / "handled").mkdir()
    write(pa.table(columns).slice(0, rows), tmp_path / f"handled/handled.{form}")
    result = audit_of(tmp_path)
    assert result.notes == [f"there are no rows in handled.{form}"] * (1 - rows)
    assert result.facts["complete"] == bool(rows)


@pytest.mark.parametrize("kind", ["refused", "left"])
@pytest.mark.parametrize("numbers", [(), ("7",)])
def test_what_was_not_delivered_is_in_the_headline(
    numbers: tuple[str, ...], kind: Literal["refused", "left"], tmp_path: Path
) -> None:
    write_ledger(
        tmp_path, *delivered(*numbers), Row(kind, "expired", sequence_number="", user_records=3, at=1)
    )
    write_ledger(
        tmp_path,
        *(Row("handled", SHARDS[0], sequence_number=number, user_records=1, at=1) for number in numbers),
        side="handled",
    )
    rest = (
        "Everything that was delivered was handled: 1 user record."
        if numbers
        else "--produced names none that was delivered."
    )
    not_put = "3 user records reported to the producer as not delivered."
    assert audit_of(tmp_path).headline.endswith(f"{not_put} {rest}")
    assert "Everything was handled" not in (tmp_path / "out/report.html").read_text()


def test_a_hidden_file_that_names_nothing_is_a_note(tmp_path: Path) -> None:
    write_sides(tmp_path)
    (tmp_path / "handled/_more.csv").write_text("shard,sequence_number\n")
    assert audit_of(tmp_path).notes == [f"left out, as are {LEFT_OUT}: _more.csv"]


def write_sides(folder: Path) -> None:
    """Ledgers of a producer and a consumer of orders, and a table without any of the columns."""
    write_ledger(folder, *delivered("7"))
    write_ledger(folder, Row("handled", SHARDS[0], sequence_number="7", user_records=1, at=1), side="handled")
    (folder / "other.csv").write_text("name,amount\nx,1\n")


NO_COLUMN = (
    "other.csv cannot be read: no column shard; it has: name, amount; write CSV with commas and a header. "
)


@pytest.mark.parametrize(
    ("produced", "handled", "headline"),
    [
        ("produced", ["handled"], "Everything was handled: 1 user record."),
        (
            "produced",
            ["produced"],
            "--handled holds no row of a consumer of orders, but a ledger of a producer. ",
        ),
        (
            "produced",
            ["other.csv"],
            f"--handled holds no row of a consumer of orders. {NO_COLUMN}Of 1 delivered ",
        ),
        ("produced", ["handled", "other.csv"], f"{NO_COLUMN}Everything was handled: 1 user record."),
        ("empty", ["handled"], "--produced names none that was delivered."),
    ],
)
def test_the_headline_begins_with_what_says_nothing(
    produced: str, handled: list[str], headline: str, tmp_path: Path
) -> None:
    write_sides(tmp_path)
    Ledger(tmp_path / "empty").writer("orders").close()
    result = audit([str(tmp_path / produced)], [str(tmp_path / name) for name in handled])
    assert result.headline.startswith(headline)
    result.write(str(tmp_path / "out"))
    page = (tmp_path / "out/report.html").read_text()
    assert escape(headline.strip()) in page
    assert ("Everything was handled" in page) == ("Everything was handled" in headline)


@pytest.mark.parametrize(
    ("produced", "stream", "reason"),
    [
        ("produced", "payments", "no ledger of a producer of payments.*what was produced of orders"),
        ("handled", None, "no ledger of a producer, .*what was handled of orders"),
        ("other.csv", None, "other.csv: no column shard"),
    ],
)
def test_no_row_of_a_producer_is_an_error(
    produced: str, stream: str | None, reason: str, tmp_path: Path
) -> None:
    """Never "Everything was handled: 0 user records"."""
    write_sides(tmp_path)
    with pytest.raises(AuditError, match=reason):
        audit([str(tmp_path / produced)], [str(tmp_path / "handled")], stream=stream)


def write_broken(path: Path, form: str, broken: str) -> None:
    """A table of the sequence numbers 7, 9, 10, and a line between the first two that is none, or the last
    line cut. Or every line is cut."""
    rows = [{"shard": SHARDS[0], "sequence_number": number, "sub": 0} for number in ("7", "9", "10")]
    if form == "jsonl":
        head, lines = [], [json.dumps(row) for row in rows]
    else:
        head, lines = ["shard,sequence_number,sub"], [",".join(map(str, row.values())) for row in rows]
    if broken == "between":
        lines.insert(1, lines[1][:15])
    elif broken == "last":
        lines.append(lines[1][:15])
    else:
        lines = [line[:15] for line in lines]
    path.parent.mkdir()
    path.write_text("\n".join(head + lines) + "\n" * (broken != "last"))


@pytest.mark.requirement("AUD-21")
@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize(("broken", "row"), [("between", 2), ("last", 4), ("all", 1)])
def test_of_a_table_with_a_broken_line_the_others_are_read(
    form: str, broken: str, row: int, tmp_path: Path
) -> None:
    """What the line may have named is unknown; the rows after it have their own numbers."""
    write_ledger(tmp_path, *delivered("7", "8", "9", "10"))
    write_broken(tmp_path / f"handled/rows.{form}", form, broken)
    result = audit_of(tmp_path)
    sums = result.facts["userRecords"]
    every = broken == "all"
    assert (sums["handled"], sums["missing"], sums["unknown"]) == ((0, 0, 0) if every else (3, 0, 1))
    why = "a line that is cut, or no row of the table"
    assert [one[:4] for one in result.unreadable] == [(f"rows.{form}", why, 3 if every else 1, row)]
    assert (f"rows.{form} cannot be read" in result.headline) == every
    assert result.notes == []


@pytest.mark.requirement("AUD-21")
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_row_behind_a_broken_line_is_reported_with_its_own_number(form: str, tmp_path: Path) -> None:
    write_ledger(tmp_path, *delivered("7"))
    write_broken(tmp_path / f"handled/rows.{form}", form, "between")
    spoiled = f"{SHARDS[0]},x," if form == "csv" else json.dumps({"shard": SHARDS[0], "sequence_number": "x"})
    with (tmp_path / f"handled/rows.{form}").open("a") as out:
        out.write(f"\n{spoiled}\n")
    assert [one.row for one in audit_of(tmp_path).unreadable] == [2, 5]


@pytest.mark.requirement("AUD-21")
def test_many_rows_and_a_line_cut_within_a_character(tmp_path: Path) -> None:
    """pyarrow reads a file in blocks of 1 MiB; the rows of those before the line count once."""
    write_ledger(tmp_path, *delivered("7", "8", user_records=40_000))
    (tmp_path / "handled").mkdir()
    rows = "".join(f"{SHARDS[0]},{number},{sub},Zürich\n" for number in (7, 8) for sub in range(40_000))
    text = f"\ufeffshard,sequence_number,sub,Straße\n{rows}{SHARDS[0]},8,Zü".encode()
    (tmp_path / "handled/rows.csv").write_bytes(text[:-1])
    result = audit_of(tmp_path)
    assert (result.facts["userRecords"]["handled"], result.facts["userRecords"]["twice"]) == (80_000, 0)
    assert [(one.times, one.row) for one in result.unreadable] == [(1, 80_001)]


@pytest.mark.requirement("AUD-10", "AUD-35")
@pytest.mark.parametrize("name", ["put.csv", "put.jsonl", "put.parquet"])
def test_a_table_of_what_was_put_is_refused(name: str, tmp_path: Path) -> None:
    """It has no end, so nobody could know that it is whole."""
    write_sides(tmp_path)
    row = {"shard": SHARDS[0], "sequence_number": str(10**55), "user_records": 1}
    text = (
        json.dumps(row) if name.endswith("jsonl") else ",".join(row) + "\n" + ",".join(map(str, row.values()))
    )
    table = tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist([row]), table)
    else:
        table.write_text(text + "\n")
    with pytest.raises(AuditError, match=r"a table of what was put has no end.*Ledger\(PLACE\)"):
        audit([str(table)], [str(tmp_path / "handled")])
    beside = audit([str(table), str(tmp_path / "produced")], [str(tmp_path / "handled")])
    assert (beside.audit.total("handled"), beside.audit.complete) == (1, False)


@pytest.mark.requirement("AUD-21")
@pytest.mark.parametrize(
    ("row", "why"),
    [
        ((SHARDS[0], "4.968e+55"), "sequence numbers as floating point, whose digits were lost: "),
        ((SHARDS[0], "jane@example.com"), "rows without a shard id, or without a sequence number"),
        (("jane@example.com", "7"), "rows without a shard id, or without a sequence number"),
    ],
)
def test_what_names_no_record_is_said_but_no_text_of_others(
    row: tuple[str, str], why: str, tmp_path: Path
) -> None:
    """It may be data."""
    write_ledger(tmp_path, *delivered("7"))
    (tmp_path / "handled").mkdir()
    write_table(tmp_path / "handled/rows.csv", [(*row, 0), (*row, 1)])
    (one,) = audit_of(tmp_path).unreadable
    assert (one.file, one.times, one.row, one.why.startswith(why)) == ("rows.csv", 2, 1, True)


@pytest.mark.parametrize("numbers", [["8"], ["8", "7"]])
def test_a_table_of_another_stream_is_asked_about(numbers: list[str], tmp_path: Path) -> None:
    write_ledger(tmp_path, *delivered("7"))
    (tmp_path / "handled").mkdir()
    write_table(tmp_path / "handled/other.csv", [(SHARDS[0], number, "0") for number in numbers])
    asks = "No row of --handled names a user record of --produced: are both of one stream"
    assert audit_of(tmp_path).headline.startswith(asks) == ("7" not in numbers)


def test_ledgers_of_several_streams_say_what_to_do(tmp_path: Path) -> None:
    """Choosing one needs no network here: `audit` takes a stream without a client."""
    write_sides(tmp_path)
    with closing(Ledger(tmp_path / "produced").writer("payments", "produced")) as others:
        others.note(delivered("8"))
    sides = [str(tmp_path / "produced")], [str(tmp_path / "handled")]
    with pytest.raises(AuditError, match="several streams: orders, payments; choose one with --stream, or"):
        audit(*sides)
    assert audit(*sides, stream="orders").audit.complete


@pytest.mark.requirement("AUD-17")
@pytest.mark.parametrize(
    ("later", "fail_on", "status"),
    [(False, "info", 0), (True, "warning", 1), (True, "critical", 1)],
)
def test_too_early_is_no_success_whatever_fails(
    later: bool, fail_on: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The findings are info at most; the help says what else counts."""
    write_sides(tmp_path)
    if later:
        write_ledger(tmp_path, *delivered("8"))
    produced, handled = str(tmp_path / "produced"), str(tmp_path / "handled")
    assert {one.kind for one in audit([produced], [handled]).findings} == (
        {"audit-not-yet"} if later else set()
    )
    assert main(["audit", "--produced", produced, "--handled", handled, "--fail-on", fail_on]) == status
    with pytest.raises(SystemExit):
        main(["audit", "--help"])
    help_text = " ".join(capsys.readouterr().out.split())
    assert "(whatever --fail-on is) a user record is missing, unknown or too early to say" in help_text


@pytest.mark.requirement("AUD-28")
@pytest.mark.parametrize("how", ["table", "ledger", "aside"])
def test_a_row_of_another_shard_than_it_says(how: str, tmp_path: Path) -> None:
    """The record it names is unknown, and nothing before it on the shard that it says is missing."""
    write_ledger(tmp_path, *delivered("10", "11", "14"), *delivered("12", "13", shard_id=SHARDS[1]))
    (tmp_path / "handled").mkdir()
    rows = [(SHARDS[0], "10"), (SHARDS[0], "14"), (SHARDS[1], "11")]
    if how == "table":
        columns = {"shardId": [s for s, _ in rows], "sequenceNumber": [n for _, n in rows]}
        pq.write_table(pa.table({**columns, "subSequenceNumber": [0, 0, 0]}), tmp_path / "handled/a.parquet")
    else:
        kinds: list[RowKind] = ["handled", "handled", "aside" if how == "aside" else "handled"]
        handled = [
            Row(kind, shard_id, sequence_number=number, user_records=1, at=1)
            for kind, (shard_id, number) in zip(kinds, rows, strict=True)
        ]
        write_ledger(tmp_path, *handled, side="handled")
    result = audit_of(tmp_path)
    sums = result.facts["userRecords"]
    assert (sums["handled"], sums["missing"], sums["unknown"], sums["tooEarly"]) == (2, 0, 1, 2)
    assert [one.times for one in result.unreadable] == [1]
