"""What happens to the files of a world (`model`): "missing" is said only of what nobody handled, and of what
nobody handled nothing is left out."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import random
from collections.abc import Callable
from contextlib import closing
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kpl_codec.audit import Ledger, Row, RowKind
from kpl_codec.audit.audit_run import AuditError, AuditResult, audit
from kpl_codec.audit.index import Name
from kpl_codec.audit.sources import lines_in
from kpl_codec.captures import InputError
from kpl_codec.captures.files import LEFT_OUT
from kpl_codec.cli.main import main
from kpl_codec.findings import kind_of
from kpl_codec.ledger.ledger import SUFFIX

from ..examples import examples
from .model import Odds, World, header, member

#: How a member begins in a ledger's file.
GZIP = b"\x1f\x8b\x08\0"
SHARDS = [f"shardId-{number:012d}" for number in range(2)]
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/"


class Folders:
    """The ledgers and tables of a world in two folders, and a ledger of another stream."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = chance = random.Random(seed)
        self.produced, self.consumed = folder / "produced", folder / "handled"
        self.log: list[str] = []
        self.joined: dict[Path, set[str]] = {}  # the writers whose members are in a joined file
        odds = Odds(
            seed=seed,
            steps=chance.randint(1, 10),
            largest=6,
            misplaced=chance.choice([0, 5]),
            producer_crash=chance.choice([0, 10]),
            consumer_crash=chance.choice([0, 5]),
            skip=chance.choice([0, 7]),
            split=chance.choice([0, 5]),
            foreign=chance.choice([0, 5]),
            aside=chance.choice([0, 5]),
            in_tables=chance.choice([0.0, 0.1, 0.7]),
            to_the_end=chance.random() < 0.5,
            stream=chance.choice(["orders", ARN + "orders"]),
        )
        in_log = chance.random() < 0.3
        consumer = Ledger(self.log.append).writer(odds.stream, "handled") if in_log else None
        self.world = world = World(odds, consumer).run()
        if chance.random() < 0.5:
            world.consumer_writer.close()
        self.produced.mkdir()
        for producer in world.producers + world.crashed:
            for name, members in producer.files.items():
                (self.produced / name).write_bytes(b"".join(members))
        # Records of another stream, with the same shard ids and numbers.
        with closing(Ledger(self.consumed).writer("payments", "handled")) as others:
            others.note([Row("handled", *name[:2], 1, 1, first=name[2]) for name in world.delivered.values()])
        if consumer is None:
            for name, members in world.consumer.items():
                (self.consumed / name).write_bytes(b"".join(members))
        for name, rows in world.tables.items():
            if rows:
                write_table(self.consumed / f"{name}.csv", [*rows])

    # -- what happens to files --------------------------------------------------------------------

    def files(self) -> list[Path]:
        return sorted(file for side in (self.produced, self.consumed) for file in side.rglob(f"*{SUFFIX}"))

    def writers(self, file: Path) -> set[str]:
        return self.joined.get(file) or {file.name.rpartition("-")[0]}

    def change(self, file: Path) -> None:
        data = bytearray(file.read_bytes())
        if data:
            data[self.chance.randrange(len(data))] ^= self.chance.randint(1, 255)
        file.write_bytes(data)

    def cut(self, file: Path) -> None:
        """Not just between two members: of a consumer that was killed nobody could see that."""
        data = file.read_bytes()
        at = self.chance.randrange(len(data)) if data else 0
        if not data[at:].startswith(GZIP):
            file.write_bytes(data[:at])

    def lose(self, file: Path) -> None:
        """But not the last one of a writer: nobody could know of it."""
        others = [self.writers(other) for other in self.files() if other != file]
        if self.writers(file) <= set().union(*others):
            file.unlink()

    def copy(self, file: Path) -> None:
        name = self.chance.choice([f"Copy of {file.name}", f"{file.name}.bak"])
        (file.parent / name).write_bytes(file.read_bytes())

    def add_noise(self, file: Path) -> None:
        file.write_bytes(file.read_bytes() + self.chance.randbytes(20))

    def join(self, file: Path) -> None:
        """Two files as one."""
        others = [other for other in self.files() if other != file and other.parent == file.parent]
        if others:
            other = self.chance.choice(others)
            self.joined[file] = self.writers(file) | self.writers(other)
            file.write_bytes(file.read_bytes() + other.read_bytes())
            other.unlink()

    def unpack(self, file: Path) -> None:
        """Lines as they are; some cut at the end, as a copy that was broken off. (gunzip leaves a
        damaged file as it is.)"""
        items = [*lines_in(io.BytesIO(file.read_bytes()))]
        lines = [item for item in items if isinstance(item, bytes)]
        if len(lines) < len(items):
            return
        text = b"".join(line + b"\n" for line in lines)
        end = self.chance.choice([len(text), self.chance.randint(0, len(text))])
        if end and text[:end].endswith(b"\n") and end < len(text):
            end -= 1  # (what is cut just between two members nobody could see)
        file.with_name(f"{file.name}.txt").write_bytes(text[:end])
        file.unlink()

    def put_strange(self, file: Path) -> None:
        (file.parent / self.chance.choice(["notes.txt", "x.bin", "y.parquet", "z.csv"])).write_bytes(
            self.chance.choice([b"", b"hello\n", bytes(range(256)), b"PAR1", b"a;b\n1;2\n"])
        )

    def spoil_table(self, _: Path) -> None:
        """(A row at most once: one of another shard, and then without a number, says what is not so.)"""
        sound = {(shard_id, one.number) for shard_id, at in self.world.shards.items() for one in at.records}
        for table in self.consumed.glob("sink-*.csv"):
            _, *rows = csv.reader(table.read_text().splitlines())
            for row in rows:
                if len(row) == 3 and (row[0], row[1]) in sound and self.chance.random() < 0.2:
                    bad = self.chance.choice(["", "x", "-1", "1.5", "NULL", "nan", "9" * 200])
                    column = self.chance.choice([0, 1, 2, 2])
                    row[column] = self.chance.choice([bad, *SHARDS]) if column == 0 else bad
            write_table(table, rows)

    def cut_table(self, _: Path) -> None:
        """Within a line, before its last cell: what is cut within that nobody could see."""
        for table in self.consumed.glob("sink-*.csv"):
            lines = table.read_text().splitlines()
            end = self.chance.randrange(len(lines))
            cut = lines[end][: self.chance.randint(1, max(lines[end].rfind(","), 1))]
            # (`spoil_table` writes the header anew: a table cut there would have no row, and no broken line.)
            kept = lines[end + 1 :] if end == 0 or self.chance.random() < 0.5 else []
            table.write_text("\n".join([*lines[:end], cut, *kept]))

    def write_log(self, spoiled: bool) -> None:
        lines = [f"2026-01-01 INFO {line}" for line in self.log]
        # What comes last of a consumer that was killed, nobody misses.
        for at in range(len(lines) - 1 if spoiled else 0):
            how = self.chance.randrange(20)
            if how == 0:
                lines[at] = ""
            elif how == 1:
                lines[at] = lines[at][: self.chance.randrange(40, len(lines[at]))]
            elif how == 2:
                lines[at] = lines[at] + "\n" + lines[at]
        if spoiled and self.chance.random() < 0.3:
            self.chance.shuffle(lines)
        (self.consumed / "app.log").write_text("\n".join([*lines, "a line of others"]) + "\n")

    HAPPENINGS = (change, cut, lose, copy, add_noise, join, unpack, put_strange, spoil_table, cut_table)


def write_table(path: Path, rows: list[Any]) -> None:
    with path.open("w", newline="") as out:
        table = csv.writer(out)
        table.writerow(["shard", "sequence_number", "sub_sequence_number"])
        table.writerows(rows)


def names_with(result: AuditResult, condition: Callable[[Any], bool]) -> set[Name]:
    return {
        (one.shard_id or "", one.sequence_number or "", (one.sub_sequence_number or 0) + sub)
        for one in result.findings
        if condition(one) and one.sequence_number
        for sub in range(one.user_records or 1)
    }


def check(world: World, result: AuditResult) -> None:
    missing = names_with(result, lambda one: kind_of(one.kind).severity == "critical")
    unknown = names_with(result, lambda one: one.kind == "audit-unknown")
    wrong = {name for name in missing if world.handled[name] or name[:2] in world.aside}
    assert not wrong, f"called missing, and was handled: {wrong}"
    twice = names_with(result, lambda one: one.kind == "audit-twice")
    assert all(world.handled[name] > 1 for name in twice)
    lost = {
        name for name in world.delivered.values() if not world.handled[name] and name[:2] not in world.aside
    }
    assert not (result.facts["complete"] and lost)
    in_ledgers = {result.index.place(record) for record in range(len(result.index))}
    silent = {name for name in lost if name[:2] in in_ledgers} - missing - unknown
    assert len(silent) <= result.facts["userRecords"]["tooEarly"]
    if not result.audit.handled_holes and not result.unreadable:
        last: dict[str, int] = {}
        for shard_id, number, _ in +world.handled:
            last[shard_id] = max(last.get(shard_id, -1), int(number))
        assert not {name for name in silent if int(name[1]) < last.get(name[0], -1)}
        assert unknown == set()


@pytest.mark.requirement("AUD-3", "AUD-5", "AUD-10", "AUD-11", "AUD-12", "AUD-20", "AUD-21", "AUD-22")
@given(seed=st.integers(0, 2**32), happenings=st.lists(st.sampled_from(Folders.HAPPENINGS), max_size=3))
@settings(max_examples=examples(400))
def test_missing_is_said_only_of_what_nobody_handled(seed: int, happenings: list[Any]) -> None:
    with TemporaryDirectory() as scratch:
        live(Folders(seed, Path(scratch)), happenings)


def live(folders: Folders, happenings: list[Any]) -> None:
    folders.write_log(spoiled=bool(happenings))
    for happening in happenings:
        if files := folders.files():
            happening(folders, folders.chance.choice(files))
    try:
        result = audit([str(folders.produced)], [str(folders.consumed)], stream="orders")
    except AuditError as error:
        assert error.code == "nothing-produced"
        assert happenings
        return
    check(folders.world, result)


def write_ledger(folder: Path, *rows: Row, side: Literal["produced", "handled"] = "produced") -> None:
    with closing(Ledger(folder / side).writer("orders", side)) as writer:
        writer.note(rows)


def delivered(*numbers: str, shard_id: str = SHARDS[0], user_records: int = 1) -> list[Row]:
    return [Row("delivered", shard_id, number, user_records, 1) for number in numbers]


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
    is_reported = any(one.where.startswith("w-") for one in result.unreadable)
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
    assert any("strange" in one.where for one in result.unreadable)
    assert not any(name[1] == "8" for name in names_with(result, lambda one: one.kind == "audit-missing"))


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
    write_ledger(tmp_path, *delivered(*numbers), Row(kind, "expired", "", 3, 1))
    write_ledger(tmp_path, *(Row("handled", SHARDS[0], number, 1, 1) for number in numbers), side="handled")
    rest = (
        "Everything that was delivered was handled: 1 user record."
        if numbers
        else "--produced names none that was delivered."
    )
    not_put = "3 user records reported to the producer as not delivered."
    assert audit_of(tmp_path).headline.endswith(f"{not_put} {rest}")
    assert "Everything was handled" not in (tmp_path / "out/report.html").read_text()


def test_a_hidden_file_is_a_note(tmp_path: Path) -> None:
    write_sides(tmp_path)
    (tmp_path / "handled/_more.csv").write_text("shard,sequence_number\n")
    assert audit_of(tmp_path).notes == [f"left out, as are {LEFT_OUT}: _more.csv"]


def write_sides(folder: Path) -> None:
    """Ledgers of a producer and a consumer of orders, and a table without any of the columns."""
    write_ledger(folder, *delivered("7"))
    write_ledger(folder, Row("handled", SHARDS[0], "7", 1, 1), side="handled")
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
    spoiled = (
        json.dumps({"shard": SHARDS[0], "sequence_number": "x"}) if form == "jsonl" else f"{SHARDS[0]},x,"
    )
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
        (
            (SHARDS[0], "4.968e+55"),
            "sequence numbers as floating point, whose digits were lost: write them as text",
        ),
        (("0", "7"), "rows without a shard id, or without a sequence number as text"),
        ((SHARDS[0], "jane@example.com"), "rows without a shard id, or without a sequence number as text"),
        (("jane@example.com", "7"), "rows without a shard id, or without a sequence number as text"),
    ],
)
def test_what_names_no_record_is_said_but_no_text_of_others(
    row: tuple[str, str], why: str, tmp_path: Path
) -> None:
    """It may be data."""
    write_ledger(tmp_path, *delivered("7"))
    (tmp_path / "handled").mkdir()
    write_table(tmp_path / "handled/rows.csv", [(*row, 0), (*row, 1)])
    assert [one[:4] for one in audit_of(tmp_path).unreadable] == [("rows.csv", why, 2, 1)]


@pytest.mark.requirement("AUD-21")
@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("rows.tsv", b"shard\tseq\tsub\na\t7\t0\n", "its name not that of a table"),
        ("ROWS.CSV", b"Sequence Number;Shard ID\n7;a\n", "no column shard"),
        ("rows.csv.bz2", bz2.compress(b"shard,sequence_number"), "no column shard"),
        ("rows.csv", b"shard,sequence_number,sub,shard\na,7,0,b\n", "it has several columns shard"),
        ("rows.csv", b"sh\nshardId-000000", "no column shard"),
        ("notes.txt", b"Look at shard 0\n", None),
    ],
    ids=["tabs", "semicolons", "bz2", "columns", "header and end are cut", "nothing"],
)
def test_what_a_file_may_hold_that_is_not_read_is_not_missing(
    name: str, content: bytes, why: str | None, tmp_path: Path
) -> None:
    write_ledger(tmp_path, *delivered("7", "8"))
    write_ledger(tmp_path, Row("handled", SHARDS[0], "8", 1, 1), side="handled")
    (tmp_path / "handled" / name).write_bytes(content)
    result = audit_of(tmp_path)
    sums = result.facts["userRecords"]
    assert (sums["missing"], sums["unknown"]) == ((0, 1) if why else (1, 0))
    if why is None:  # it names nothing
        assert (result.unreadable, [name in note for note in result.notes]) == ([], [True])
        return
    (one,) = result.unreadable
    assert one.where == name
    assert why in one.why


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


def test_results_to_be_repaired_must_be_some(tmp_path: Path) -> None:
    write_sides(tmp_path)
    sides = [str(tmp_path / "produced")], [str(tmp_path / "handled")]
    for name, reason in (
        ("nosuch", "no such file or folder"),
        ("other.csv", "it is a file, not a folder of results"),
        ("handled", "it holds no results"),
    ):
        with pytest.raises(InputError, match=f"{name}: {reason}"):
            audit(*sides, repaired=[str(tmp_path / name)])
    audit(*sides).write(str(tmp_path / "out"))
    assert audit(*sides, repaired=[f"{tmp_path}/out"]).notes == [
        f"there are no rows in {tmp_path}/out/repair/log"
    ]


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
        handled = [Row(kind, *row, 1, 1) for kind, row in zip(kinds, rows, strict=True)]
        write_ledger(tmp_path, *handled, side="handled")
    result = audit_of(tmp_path)
    sums = result.facts["userRecords"]
    assert (sums["handled"], sums["missing"], sums["unknown"], sums["tooEarly"]) == (2, 0, 1, 2)
    assert [one.times for one in result.unreadable] == [1]


@pytest.mark.soak
@pytest.mark.requirement("AUD-12")
def test_the_same_at_length() -> None:
    chance = random.Random()
    for _ in range(20_000):
        seed = chance.randrange(2**62)
        happenings = chance.choices(Folders.HAPPENINGS, k=chance.randint(0, 6))
        try:
            with TemporaryDirectory() as scratch:
                live(Folders(seed, Path(scratch)), happenings)
        except Exception as error:
            raise AssertionError(f"Folders({seed}), {[one.__name__ for one in happenings]}") from error
