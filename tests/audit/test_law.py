"""Worlds of ledgers and tables with a truth, and what happens to files: "missing" is said only of what nobody
handled, and of nothing that nobody handled nothing is said."""

from __future__ import annotations

import csv
import gzip
import json
import random
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.audit import Ledger, Row
from kpl_codec.audit.audit_run import AuditError, AuditResult, audit
from kpl_codec.audit.ledger_reader import _members
from kpl_codec.findings import kind_of
from kpl_codec.ledger.ledger import SUFFIX

Name = tuple[str, str, int]
Place = tuple[str, str]
SHARDS = [f"shardId-{number:012d}" for number in range(2)]
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/"


class World:
    """Two streams with the same shard ids, producers and consumers of both; all of it in two folders."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(seed)
        self.produced, self.consumed = folder / "produced", folder / "handled"
        self.delivered: dict[Place, int] = {}
        self.handled = Counter[Name]()
        self.aside: set[Place] = set()
        self.number = 10**55
        self.closed: dict[str, bool] = {}
        self.digests: dict[Place, bytes] = {}
        self._run()

    def _writer(self, place: Any, stream: str, side: str) -> Any:
        writer = Ledger(place).writer(stream, side)
        writer._sink = writer._sink._replace(part_bytes=self.chance.choice([1, 600, 1 << 20]))
        return writer

    def _put(self, stream: str, writer: Any) -> list[Place]:
        places = []
        for _ in range(self.chance.randint(1, 8)):
            self.number += self.chance.randint(1, 1000)
            place, count = (self.chance.choice(SHARDS), str(self.number)), self.chance.randint(1, 6)
            digest = self.chance.randbytes(8)
            writer.note([Row("delivered", *place, count, 1_700_000_000_000, digest)])
            writer.flush()
            places.append(place)
            if stream == "orders":
                self.delivered[place], self.digests[place] = count, digest
        return places

    def _run(self) -> None:
        chance = self.chance
        streams = {
            "orders": chance.choice(["orders", ARN + "orders"]),
            "payments": chance.choice(["payments", ARN + "payments"]),
        }
        self.logs: list[list[str]] = []
        for name, stream in streams.items():
            put: list[Place] = []
            for _ in range(chance.randint(1, 2)):
                writer = self._writer(
                    self.produced if name == "orders" else self.produced / "x", stream, "produced"
                )
                put += self._put(name, writer)
                self.closed[writer.name] = chance.random() < 0.7
                if self.closed[writer.name]:
                    writer.close()
            for _ in range(chance.randint(1, 2)):
                self._consume(name, stream, put)
        for file in list((self.produced / "x").glob("*")):  # a producer of the other stream
            file.unlink()

    def _consume(self, name: str, stream: str, put: list[Place]) -> None:
        chance, lines = self.chance, list[str]()
        how = chance.choice(["folder", "folder", "log", "table"])
        table: list[Name] = []
        writer = None
        if how != "table":
            writer = self._writer(self.consumed if how == "folder" else lines.append, stream, "handled")
        upto = chance.randint(0, len(put))
        for place in put[:upto] if chance.random() < 0.9 else put[upto:]:
            count = self.delivered.get(place, 1)
            skip = chance.randrange(count) if chance.random() < 0.15 else None
            subs = [sub for sub in range(count) if sub != skip]
            if writer is not None and chance.random() < 0.05 and name == "orders" and "aside" in _KINDS:
                self.aside.add(place)
                writer.note([Row("aside", *place, 0, 1)])
            elif writer is not None:
                writer.note([Row("handled", *place, 1, 1, first=sub) for sub in subs])
            if name == "orders" and place not in self.aside:
                self.handled.update((*place, sub) for sub in subs)
            table += [(*place, sub) for sub in subs]
        if writer is not None:
            self.closed[writer.name] = chance.random() < 0.5
            if self.closed[writer.name]:
                writer.close()
        if how == "log":
            self.logs.append(lines)
        if how == "table" and name == "orders":
            self.consumed.mkdir(exist_ok=True, parents=True)
            with (self.consumed / f"table-{chance.randrange(10**9)}.csv").open("w", newline="") as out:
                rows = csv.writer(out)
                rows.writerow(["shard", "sequence_number", "sub_sequence_number"])
                rows.writerows(table)

    # -- what happens to files --------------------------------------------------------------------

    def files(self) -> list[Path]:
        return sorted(file for side in (self.produced, self.consumed) for file in side.rglob(f"*{SUFFIX}"))

    def change(self, file: Path) -> None:
        data = bytearray(file.read_bytes())
        if data:
            data[self.chance.randrange(len(data))] ^= self.chance.randint(1, 255)
        file.write_bytes(data)

    def cut(self, file: Path) -> None:
        """Not just between two members: of a consumer that was killed nobody could see that."""
        data = file.read_bytes()
        at = self.chance.randrange(len(data)) if data else 0
        if at not in boundaries(data):
            file.write_bytes(data[:at])

    def lose(self, file: Path) -> None:
        """But not the last one of a writer: nobody could know of it."""
        writer = file.name.rpartition("-")[0]
        if len([other for other in self.files() if other.name.startswith(writer)]) > 1:
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
            file.write_bytes(file.read_bytes() + other.read_bytes())
            other.unlink()

    def unpack(self, file: Path) -> None:
        """Lines as they are; some cut at the end, as a copy that was broken off."""
        text = b"".join(_members(file.read_bytes()))
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
        for table in self.consumed.glob("table-*.csv"):
            rows = list(csv.reader(table.read_text().splitlines()))
            for row in rows[1:]:
                if self.chance.random() < 0.2:
                    bad = self.chance.choice(["", "x", "-1", "1.5", "NULL", "nan", "9" * 200])
                    column = self.chance.choice([0, 1, 2, 2])
                    row[column] = self.chance.choice([bad, *SHARDS]) if column == 0 else bad
            with table.open("w", newline="") as out:
                csv.writer(out).writerows(rows)

    def write_logs(self, spoiled: bool) -> None:
        for number, lines in enumerate(self.logs):
            text = [f"2026-01-01 INFO {line}" for line in lines] + ["a line of others"]
            # What comes last of a consumer that was killed, nobody misses.
            for at in range(len(lines) - 1 if spoiled else 0):
                how = self.chance.randrange(20)
                if how == 0:
                    text[at] = ""
                elif how == 1:
                    text[at] = text[at][: self.chance.randrange(40, len(text[at]))]
                elif how == 2:
                    text[at] = text[at] + "\n" + text[at]
            if spoiled and self.chance.random() < 0.3:
                self.chance.shuffle(text)
            self.consumed.mkdir(exist_ok=True, parents=True)
            (self.consumed / f"app-{number}.log").write_text("\n".join(text) + "\n")

    HAPPENINGS = (change, cut, lose, copy, add_noise, join, unpack, put_strange, spoil_table)


_KINDS = __import__("typing").get_args(__import__("kpl_codec").audit.RowKind)


def boundaries(data: bytes) -> set[int]:
    """Where members of gzip end."""
    found, at = {0, len(data)}, 0
    while at < len(data):
        unpack = zlib.decompressobj(31)
        try:
            unpack.decompress(data[at:])
        except zlib.error:
            break
        if not unpack.eof:
            break
        at = len(data) - len(unpack.unused_data)
        found.add(at)
    return found


def said(audited: AuditResult, wanted: Callable[[Any], bool]) -> set[Name]:
    return {
        (one.shard_id or "", one.sequence_number or "", (one.sub_sequence_number or 0) + sub)
        for one in audited.findings
        if wanted(one) and one.sequence_number
        for sub in range(one.user_records or 1)
    }


def check(world: World, audited: AuditResult) -> None:
    missing = said(audited, lambda one: kind_of(one.kind).severity == "critical")
    unknown = said(audited, lambda one: one.kind == "audit-unknown")
    handled = set(world.handled)
    wrong = {name for name in missing if name in handled or name[:2] in world.aside}
    assert not wrong, f"called missing, and was handled: {wrong}"
    lost = {
        (*place, sub)
        for place, count in world.delivered.items()
        if place not in world.aside
        for sub in range(count)
        if (*place, sub) not in handled
    }
    sums = audited.facts["userRecords"]
    if audited.facts["complete"]:
        assert not lost
    known = {(row.shard_id, row.sequence_number) for row in audited.names.rows}
    silent = {name for name in lost if name[:2] in known} - missing - unknown
    assert len(silent) <= sums["tooEarly"]
    last = {shard: max([int(one[1]) for one in handled if one[0] == shard], default=-1) for shard in SHARDS}
    told = {place for place, times in world.handled.items() if times}
    assert told is not None
    if not audited.audit.handled_holes and not audited.unreadable:
        assert not {name for name in silent if int(name[1]) < last[name[0]]}
        assert unknown == set()


@pytest.mark.requirement("AUD-3", "AUD-5", "AUD-10", "AUD-11", "AUD-12", "AUD-20", "AUD-21", "AUD-22")
@given(seed=st.integers(0, 2**32), happenings=st.lists(st.sampled_from(World.HAPPENINGS), max_size=4))
def test_missing_is_said_only_of_what_nobody_handled(seed: int, happenings: list[Any]) -> None:
    with TemporaryDirectory() as scratch:
        live(World(seed, Path(scratch)), happenings)


def live(world: World, happenings: list[Any]) -> None:
    world.write_logs(spoiled=bool(happenings))
    for happening in happenings:
        if files := world.files():
            happening(world, world.chance.choice(files))
    world.consumed.mkdir(exist_ok=True)
    if not any(world.consumed.iterdir()):
        (world.consumed / "empty.log").write_text("nothing\n")
    try:
        audited = audit([str(world.produced)], [str(world.consumed)])
    except AuditError as error:
        assert error.code == "nothing-produced"
        assert happenings
        return
    check(world, audited)


@pytest.mark.requirement("AUD-21")
@pytest.mark.parametrize("side", ["produced", "handled"])
@pytest.mark.parametrize(
    "facts",
    [{"shard": "\ud800"}, {"error_code": "\udc00"}, {"at_ms": 1 << 59}, {"at_ms": 253_402_300_800_000}],
    ids=str,
)
def test_what_a_ledger_says_can_be_written_whatever_it_says(
    facts: dict[str, Any], side: str, tmp_path: Path
) -> None:
    """Half of a surrogate pair, and a time that no calendar has."""
    place = {"shard": SHARDS[0], "sequence_number": "7"} if "error_code" not in facts else {}
    kind = "refused" if "error_code" in facts else "delivered" if side == "produced" else "handled"
    row = {"kind": kind, **place, "sub_sequence_number": 0, "user_records": 2, "at_ms": 1, "digest": "0" * 16}
    row |= facts
    header = {"kpl_ledger": "w", "member": 0, "kind": "header", "version": 1, "lines": 2}
    header |= {"side": side, "stream": "orders", "stream_arn": None}
    producer = Ledger(tmp_path / "produced").writer("orders")
    producer.note([Row("delivered", SHARDS[0], "8", 1, 1)])
    producer.close()
    (tmp_path / "handled").mkdir()
    (tmp_path / "handled/notes.txt").write_text("nothing\n")
    text = "".join(json.dumps(line) + "\n" for line in (header, row))
    (tmp_path / side / f"w-000000{SUFFIX}").write_bytes(gzip.compress(text.encode()))
    audited = audit([str(tmp_path / "produced")], [str(tmp_path / "handled")])
    audited.write(str(tmp_path / "out"))
    assert (tmp_path / "out/report.html").exists()
    told = any(one.file.startswith("w-") for one in audited.unreadable)
    assert told == ("at_ms" not in facts)


@pytest.mark.requirement("AUD-21")
@pytest.mark.parametrize("column", ["shardId", "sequenceNumber", "subSequenceNumber"])
@pytest.mark.parametrize(
    ("cell", "text"),
    [({"a": 1}, False), (["x"], False), (b"\xff", False), (b"\xff", True), (True, False), (1.5, False)],
)
def test_a_cell_of_any_type_is_read_or_told(column: str, cell: Any, text: bool, tmp_path: Path) -> None:
    """Its row is told, and what it may name is unknown. ``text``: bytes that are no UTF-8, in a text."""
    with closing(Ledger(tmp_path / "produced").writer("orders")) as producer:
        producer.note([Row("delivered", SHARDS[0], str(number), 2, 1) for number in (7, 8, 9)])
    (tmp_path / "handled").mkdir()
    good = {"shardId": SHARDS[0], "sequenceNumber": "9", "subSequenceNumber": 0}
    pq.write_table(pa.Table.from_pylist([good]), tmp_path / "handled/good.parquet")
    one = {"shardId": [SHARDS[0]], "sequenceNumber": ["8"], "subSequenceNumber": [0], column: [cell]}
    table = pa.table(one)
    if text:
        bytes_of = table[column].chunk(0).buffers()
        table = pa.table({**one, column: pa.Array.from_buffers(pa.string(), 1, bytes_of)})
    pq.write_table(table, tmp_path / "handled/strange.parquet")
    audited = audit([str(tmp_path / "produced")], [str(tmp_path / "handled")])
    audited.write(str(tmp_path / "out"))
    assert any("strange" in one.file for one in audited.unreadable)
    assert not any(name[1] == "8" for name in said(audited, lambda one: one.kind == "audit-missing"))


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_table_without_rows_is_a_note(form: str, rows: int, tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "produced").writer("orders")) as producer:
        producer.note([Row("delivered", SHARDS[0], "7", 1, 1)])
    columns = {"shardId": [SHARDS[0]], "sequenceNumber": ["7"], "subSequenceNumber": ["0"]}
    table = pa.table(columns).slice(0, rows)
    write = pq.write_table if form == "parquet" else pa.csv.write_csv
    write(table, tmp_path / f"handled.{form}")
    result = audit([str(tmp_path / "produced")], [str(tmp_path / f"handled.{form}")])
    assert result.notes == [f"there are no rows in handled.{form}"] * (1 - rows)
    assert result.facts["complete"] == bool(rows)


@pytest.mark.requirement("AUD-28")
@pytest.mark.parametrize("how", ["table", "ledger", "aside"])
def test_a_row_of_another_shard_than_it_says(how: str, tmp_path: Path) -> None:
    """The record it names is unknown, and nothing before it on the shard that it says is missing."""
    with closing(Ledger(tmp_path / "produced").writer("orders")) as producer:
        producer.note([Row("delivered", SHARDS[0], number, 1, 1) for number in ("10", "11", "14")])
        producer.note([Row("delivered", SHARDS[1], number, 1, 1) for number in ("12", "13")])
    (tmp_path / "handled").mkdir()
    rows = [(SHARDS[0], "10"), (SHARDS[0], "14"), (SHARDS[1], "11")]
    if how == "table":
        columns = {"shardId": [s for s, _ in rows], "sequenceNumber": [n for _, n in rows]}
        pq.write_table(pa.table({**columns, "subSequenceNumber": [0, 0, 0]}), tmp_path / "handled/a.parquet")
    else:
        consumer = Ledger(tmp_path / "handled").writer("orders", "handled")
        consumer.note([Row("handled", *row, 1, 1) for row in rows[:2]])
        consumer.note([Row("aside" if how == "aside" else "handled", *rows[2], 1, 1)])
        consumer.close()
    audited = audit([str(tmp_path / "produced")], [str(tmp_path / "handled")])
    sums = audited.facts["userRecords"]
    assert (sums["handled"], sums["missing"], sums["unknown"], sums["tooEarly"]) == (2, 0, 1, 2)
    assert [one.times for one in audited.unreadable] == [1]


@pytest.mark.soak
@pytest.mark.requirement("AUD-12")
def test_the_same_at_length() -> None:
    chance = random.Random()
    for _ in range(20_000):
        seed = chance.randrange(2**62)
        happenings = chance.choices(World.HAPPENINGS, k=chance.randint(0, 6))
        try:
            with TemporaryDirectory() as scratch:
                live(World(seed, Path(scratch)), happenings)
        except Exception as error:
            raise AssertionError(f"World({seed}), {[one.__name__ for one in happenings]}") from error
