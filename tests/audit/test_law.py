"""What happens to the files of a world (`model`): "missing" is said only of what nobody handled, and of what
nobody handled nothing is left out."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kpl_codec.audit import Row
from kpl_codec.audit.audit_run import AuditError, AuditResult, audit
from kpl_codec.audit.index import Name
from kpl_codec.audit.sources import lines_in
from kpl_codec.findings import kind_of
from kpl_codec.ledger.ledger import SUFFIX

from ..examples import examples
from .model import Odds, World, named_writer

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
        consumer = named_writer(self.log.append, "log-0", odds.stream, "handled") if in_log else None
        self.world = world = World(odds, consumer).run()
        if chance.random() < 0.5:
            world.consumer_writer.close()
        self.produced.mkdir()
        for producer in world.producers + world.crashed:
            for name, members in producer.files.items():
                (self.produced / name).write_bytes(b"".join(members))
        # Records of another stream, with the same shard ids and numbers.
        with closing(named_writer(self.consumed, "payments-0", "payments", "handled")) as others:
            others.note(
                [
                    Row("handled", name[0], sequence_number=name[1], user_records=1, at=1, first=name[2])
                    for name in world.delivered.values()
                ]
            )
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
        if text[end : end + 1] == b"\n" and b"\n" not in text[:end]:
            end -= 1  # (nor that behind the first line, which may be a log)
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
