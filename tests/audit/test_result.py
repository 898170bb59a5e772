"""What an audit says of small ledgers and tables: its headline, notes, errors and findings."""

from __future__ import annotations

import gzip
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
from kpl_codec.cli.main import main
from kpl_codec.ledger.ledger import SUFFIX

from .model import header, member, table_of
from .test_law import SHARDS


def write_ledger(folder: Path, *rows: Row, side: Literal["produced", "handled"] = "produced") -> None:
    with closing(Ledger(folder / side).writer("orders", side)) as writer:
        writer.note(rows)


def delivered(*numbers: str, shard_id: str = SHARDS[0], user_records: int = 1) -> list[Row]:
    return [
        Row("delivered", shard_id, sequence_number=number, user_records=user_records, at=1)
        for number in numbers
    ]


def write_table(path: Path, table: bytes | pa.Table) -> None:
    path.parent.mkdir(exist_ok=True)
    if isinstance(table, bytes):
        path.write_bytes(table)
    else:
        pq.write_table(table, path)


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
    (tmp_path / "handled/nothing").touch()
    (tmp_path / side / f"w-000000{SUFFIX}").write_bytes(gzip.compress(member([header(side, 2), row])))
    result = audit_of(tmp_path)
    assert (tmp_path / "out/report.html").exists()
    is_reported = any("/w-" in one.source for one in result.unreadable)
    assert is_reported == ("at_ms" not in facts)


@pytest.mark.requirement("AUD-21")
@pytest.mark.parametrize("column", ["shardId", "sequenceNumber"])
def test_a_text_that_is_no_utf_8_names_nothing(column: str, tmp_path: Path) -> None:
    """Its row is told, and what it may name is unknown."""
    write_ledger(tmp_path, *delivered("7", "8", "9", user_records=2))
    table = pa.table({"shardId": SHARDS[:1], "sequenceNumber": ["8"], "subSequenceNumber": [0]})
    column_of = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    write_table(
        tmp_path / "handled/strange",
        table.set_column(table.schema.get_field_index(column), column, column_of),
    )
    write_table(tmp_path / "handled/good", table_of([(SHARDS[0], "9", 0)]))
    result = audit_of(tmp_path)
    assert [Path(one.source).name for one in result.unreadable] == ["strange"]
    assert not any(one.kind == "audit-missing" and one.sequence_number == "8" for one in result.findings)


@pytest.mark.parametrize("rows", [0, 1])
def test_a_table_without_rows_is_a_note(rows: int, tmp_path: Path) -> None:
    """Also several of the same bytes, as Spark writes them for partitions without rows."""
    write_ledger(tmp_path, *delivered("7"))
    write_table(tmp_path / "handled/a", table_of([(SHARDS[0], "7", 0)] * rows))
    write_table(tmp_path / "handled/b", table_of([]))
    result = audit_of(tmp_path)
    (note,) = result.notes
    names = [Path(name).name for name in note.removeprefix("there is nothing in ").split(", ")]
    assert names == [*["a"] * (1 - rows), "b"]
    assert result.facts["complete"] == bool(rows)
    assert "audit-twice" not in {one.kind for one in result.findings}


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
        else "--produced names no user record that was delivered."
    )
    not_put = "3 user records reported to the producer as not delivered."
    assert audit_of(tmp_path).headline.endswith(f"{not_put} {rest}")
    assert "Everything was handled" not in (tmp_path / "out/report.html").read_text()


def write_sides(folder: Path) -> None:
    """Ledgers of a producer and a consumer of orders, and one that is damaged."""
    write_ledger(folder, *delivered("7"))
    write_ledger(folder, Row("handled", SHARDS[0], sequence_number="7", user_records=1, at=1), side="handled")
    (folder / "other").write_bytes(gzip.compress(b"")[:-3])


DAMAGED = "other cannot be read: gzip that is damaged, or cut off. "


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
            ["other"],
            f"--handled holds no row of a consumer of orders. HERE/{DAMAGED}Of 1 delivered ",
        ),
        ("produced", ["handled", "other"], f"HERE/{DAMAGED}Everything was handled: 1 user record."),
        ("empty", ["handled"], "--produced names no user record that was delivered."),
    ],
)
def test_the_headline_begins_with_what_says_nothing(
    produced: str, handled: list[str], headline: str, tmp_path: Path
) -> None:
    write_sides(tmp_path)
    Ledger(tmp_path / "empty").writer("orders").close()
    headline = headline.replace("HERE", str(tmp_path))
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
        ("handled", None, "no ledger of a producer; .*what was handled of orders"),
        ("other", None, "other: gzip that is damaged"),
    ],
)
def test_no_row_of_a_producer_is_an_error(
    produced: str, stream: str | None, reason: str, tmp_path: Path
) -> None:
    """Never "Everything was handled: 0 user records"."""
    write_sides(tmp_path)
    with pytest.raises(AuditError, match=reason):
        audit([str(tmp_path / produced)], [str(tmp_path / "handled")], stream=stream)


@pytest.mark.parametrize("numbers", [["8"], ["8", "7"]])
def test_a_table_of_another_stream_is_asked_about(numbers: list[str], tmp_path: Path) -> None:
    write_ledger(tmp_path, *delivered("7"))
    write_table(tmp_path / "handled/other", table_of([(SHARDS[0], number, 0) for number in numbers]))
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
        write_table(tmp_path / "handled/a", table_of([(*row, 0) for row in rows]))
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
