"""The three laws of 15.2, over worlds (`model`) whose files are written in any form and damaged in any way,
all in memory: whatever is done, nothing is called complete that is not, nothing is called missing that was
handled, and what is lost is named."""

from __future__ import annotations

import gzip
import json
import random
import re
import zlib
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kpl_codec.audit import Row
from kpl_codec.audit.audit_run import AuditError, AuditResult, audit_files
from kpl_codec.audit.files import InputAccount, InputSide
from kpl_codec.audit.index import NAMED, SLICE, TIMES, Name, Place, runs_of
from kpl_codec.audit.judge import OPEN, STATES
from kpl_codec.findings import kind_of
from kpl_codec.ledger.ledger import Sink, Writer, packed

from ..examples import examples
from .model import (
    Files,
    World,
    account,
    names_of_runs,
    plain_audit,
    read_ledgers,
    rows_in,
    table_of,
)

GZIP = b"\x1f\x8b\x08"
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/"
SHARDS = [f"shardId-{number:012d}" for number in range(2)]


# -- forms -----------------------------------------------------------------------------------------


def members_of(data: bytes) -> list[bytes]:
    """The members of gzip in a file; of plain text those of the ledger."""
    if not data.startswith(GZIP):
        return [part for part in re.split(rb'(?m)^(?=\{"kpl_ledger")', data) if part]
    members = []
    while data:
        unpack = zlib.decompressobj(31)
        unpack.decompress(data)
        members.append(data[: len(data) - len(unpack.unused_data)])
        data = unpack.unused_data
    return members


def text_of(data: bytes) -> bytes:
    return gzip.decompress(data) if data.startswith(GZIP) else data


def names_in(data: bytes) -> list[tuple[bytes, int]]:
    """The members of ledgers in whole bytes: their writers and numbers."""
    found = re.findall(rb'"kpl_ledger":"([^"]*)","member":(\d+)', text_of(data))
    return [(writer, int(number)) for writer, number in found]


FORMS: tuple[Callable[[bytes], bytes], ...] = (
    lambda data: data,
    text_of,
    lambda data: gzip.compress(text_of(data), mtime=1),
    lambda data: text_of(data).replace(b"\n", b"\r\n"),
    lambda data: b"\xef\xbb\xbf" + text_of(data),
)


class Sides:
    """The files of a world, ``whole`` and as they are now, by side and name. ``until``: the time (ms since
    1970) before which all that was put must be handled; ``asks``: whether the audit calls the service."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        stream = chance.choice(["orders", ARN + "orders"])
        lines: list[str] = []
        sink = Sink(lambda _, some: lines.append(some[0]), by_line=True)
        by_line = Writer(sink, "line-0", stream, "handled", wait=True)
        self.world = world = World(chance, stream, by_line if chance.random() < 0.3 else None).run()
        if chance.random() < 0.5:
            world.consumer_writer.close()
        others = Files()  # records of another stream, with the same shard ids and numbers
        with_others = Writer(others.sink(1 << 20), "payments-0", "payments", "handled", wait=True)
        with_others.note(
            [
                Row("handled", name[0], sequence_number=name[1], user_records=1, at=1, first=name[2])
                for name in world.delivered.values()
            ]
        )
        self.whole: dict[tuple[InputSide, str], bytes] = {}
        for producer in world.producers + world.crashed:
            self.whole |= {("produced", name): b"".join(part) for name, part in producer.files.items()}
        for files in (world.consumer, others):
            self.whole |= {("handled", name): b"".join(part) for name, part in files.items()}
        if world.consumer_writer is by_line:
            self.whole["handled", "line"] = "".join(f"{line}\n" for line in lines).encode()
        self.tables = {name: [*rows] for name, rows in world.tables.items() if rows}
        self.whole |= {("handled", f"{name}.parquet"): table_of(rows) for name, rows in self.tables.items()}
        self.now = {**self.whole}
        self.sound_tables = self.tables_now()
        self.slice_of = chance.choice([7, SLICE])
        self.asks = chance.random() < 0.7
        back = chance.choice([None, None, None, 0, 10_000])
        self.until = None if back is None else (world.now - back) // 1000 * 1000

    def tables_now(self) -> dict[tuple[InputSide, str], bytes]:
        return {file: data for file, data in self.now.items() if file[1].endswith(".parquet")}

    def write(self, file: tuple[InputSide, str], data: bytes) -> None:
        self.whole[file] = self.now[file] = data

    def write_in_any_form(self) -> None:
        """Some files joined, packed again, unpacked, there twice: nothing is lost by it."""
        for side in ("produced", "handled"):
            files = [file for file in self.whole if file[0] == side and not file[1].endswith(".parquet")]
            for file in files:
                self.write(file, self.chance.choice(FORMS)(self.whole[file]))
            if len(files) > 1 and self.chance.random() < 0.3:
                first, second = self.chance.sample(files, 2)
                self.write(first, text_of(self.whole[first]) + text_of(self.whole.pop(second)))
                del self.now[second]
            if files and self.chance.random() < 0.3:
                self.write((side, "copy"), self.whole[self.chance.choice([*set(files) & {*self.whole}])])

    def spoil_rows(self) -> None:
        """Rows that name nothing, or not what they should; each at most once."""
        for name, rows in self.tables.items():
            sound = {
                (shard_id, one.number) for shard_id, at in self.world.shards.items() for one in at.records
            }
            bad: list[Any] = []
            for shard_id, number, sub in rows:
                row: list[Any] = [shard_id, number, sub]
                if (shard_id, number) in sound and self.chance.random() < 0.2:
                    at = self.chance.randrange(3)
                    texts = [None, "", "x", b"\xff", "9" * 200, *SHARDS * 3 * (at == 0)]
                    row[at] = (
                        self.chance.choice([None, -1, 1 << 40]) if at == 2 else self.chance.choice(texts)
                    )
                bad.append(row)
            self.write(("handled", f"{name}.parquet"), table_of(bad))

    # -- damage ------------------------------------------------------------------------------------

    def lose(self, file: tuple[InputSide, str]) -> None:
        """Not the last that there is of a writer: nobody could know of it. A table has no end, either."""
        side = file[0]
        others = [names_in(data) for name, data in self.whole.items() if name[0] == side and name != file]
        last: dict[bytes, int] = {}
        for writer, number in (one for names in others for one in names):
            last[writer] = max(number, last.get(writer, -1))
        lost = names_in(self.whole[file])
        if lost and all(last.get(writer, -1) > number for writer, number in lost):
            del self.whole[file], self.now[file]

    def damage(self, file: tuple[InputSide, str]) -> None:
        """A stretch, often from one member or line to another."""
        data, chance = self.now[file], self.chance
        if not data:
            return
        edge = chance.choice([rb"\x1f\x8b\x08|(?<=\n).", rb'\x1f\x8b\x08|(?<=\n)\{"kpl_ledger"'])
        edges = [0, *(found.start() for found in re.finditer(edge, data, re.DOTALL))]
        first = chance.choice(edges)
        last = chance.choice([*(edge for edge in edges if edge > first), len(data)][:3])
        if chance.random() < 0.4:
            self.now[file] = chance.choice(
                [data[:first] + data[last:], data[:last] + data[first:], data[: max(first - 1, 0)]]
            )
            return
        at = chance.choice([chance.choice(edges), chance.randrange(len(data))])
        end = chance.choice([*(edge for edge in edges if edge > at), len(data)][:2])
        end = min(len(data), chance.choice([end, at + chance.choice([1, 5, 30, 300])]))
        part = data[at:end]
        digit = chance.choice([*(found.start() for found in re.finditer(rb"[0-8]", data)), at])
        foreign = chance.choice([b"INFO a line\n", b"shardId-000000000000,7,0\n", b'{"shardId":"7"}\n'])
        self.now[file] = chance.choice(
            [
                data[:at] + data[end:],
                data[:at] + bytes(len(part)) + data[end:],
                data[:end] + data[at:],
                data[:at] + part[::-1] + data[end:],
                data[:at] + chance.randbytes(len(part)) + data[end:],
                data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :],
                data[:at],
                data[:digit] + bytes([data[digit] ^ 1]) + data[digit + 1 :],
                data[:at] + foreign + data[at:],
                data + chance.randbytes(20),
            ]
        )

    def undo_what_nobody_can_see(self) -> None:
        for file, data in self.now.items():
            if data != self.whole[file] and is_silent(file[0], self.whole[file], data):
                self.now[file] = self.whole[file]

    def ledgers(self, files: dict[tuple[InputSide, str], bytes], side: InputSide) -> dict[str, bytes]:
        return {
            name: data for (of, name), data in files.items() if of == side and not name.endswith(".parquet")
        }

    def account(self, side: InputSide) -> InputAccount:
        return account(side, {name: data for (of, name), data in self.now.items() if of == side})

    def audit(self) -> AuditResult:
        put_before = None if self.until is None else datetime.fromtimestamp(self.until / 1000, timezone.utc)
        shard_map = self.world.shard_map()
        with (
            patch("kpl_codec.aws.stream_reading.fetch_shard_map", lambda *_: shard_map),
            patch("kpl_codec.audit.audit_run.fetch", self.world.fetch),
            patch("kpl_codec.audit.index.SLICE", self.slice_of),
        ):
            sides = self.account("produced"), self.account("handled")
            return audit_files(*sides, put_before, self if self.asks else None, "orders")


def is_silent(side: InputSide, whole: bytes, data: bytes) -> bool:
    """Whether nobody can see what a file of whole members has lost: of a consumer's writer the last members;
    all of any writer."""
    if whole.startswith(b"PAR1"):
        return False
    members, kept, at = members_of(whole), list[bytes](), 0
    while at < len(data):
        member = next((one for one in members if data.startswith(one, at)), None)
        if member is None:
            return False
        kept.append(member)
        at += len(member)
    left, had = ({name for one in some for name in names_in(one)} for some in (kept, members))
    last: dict[bytes, int] = {}
    for writer, number in had:
        last[writer] = max(number, last.get(writer, -1))
    if {writer for writer, _ in left} < last.keys():
        return True
    whole_to = {writer: min((n for w, n in had - left if w == writer), default=1 << 60) for writer in last}
    return side == "handled" and all(number < whole_to[writer] for writer, number in left)


# -- the laws --------------------------------------------------------------------------------------


def names_with(result: AuditResult, condition: Callable[[Any], bool]) -> set[Name]:
    return {
        (one.shard_id or "", one.sequence_number or "", (one.sub_sequence_number or 0) + sub)
        for one in result.findings
        if condition(one) and one.sequence_number
        for sub in range(one.user_records or 1)
    }


def check(sides: Sides, result: AuditResult) -> None:
    world, audit = sides.world, result.audit
    # AUD-27: even where nothing is missing
    damaged = [one.detail for one in result.findings if one.kind == "audit-damaged"]
    assert damaged == [part.why for part in audit.lost_of_consumers if part.kind != "rows"]
    # By the truth: nothing that was handled is called missing; nothing is complete that is not.
    missing = names_with(result, lambda one: kind_of(one.kind).severity == "critical")
    wrong = {name for name in missing if world.handled[name] or name[:2] in world.aside}
    assert not wrong, f"called missing, and was handled: {wrong}"
    twice = names_with(result, lambda one: "a consumer's retry" in str(one.detail))
    assert all(world.handled[name] > 1 for name in twice)
    lost = {
        name for name in world.delivered.values() if not world.handled[name] and name[:2] not in world.aside
    }
    assert not (result.facts["complete"] and lost), "called complete, and is not"
    in_ledgers = {result.index.place(record) for record in range(len(result.index))}
    is_open = set[Name]().union(*(names_of_runs(runs_of(result.index, audit.of(state))) for state in OPEN))
    assert {name for name in lost if name[:2] in in_ledgers} <= is_open
    handled = {name for name in world.delivered.values() if world.handled[name]}
    if result.facts["userRecords"]["handled"] < len(handled):
        assert [*result.producers.lost, *result.consumers.lost], "nothing says what is lost"
    if sides.tables_now() == sides.sound_tables:
        check_exactly(sides, result)


def check_exactly(sides: Sides, result: AuditResult) -> None:
    """Against plain sets, by what there is to read: every row of a table names a user record."""
    world, audit = sides.world, result.audit
    notes = rows_in(sides.account("handled"), "handled", "orders")
    rows = rows_in(sides.account("produced"), "produced", "orders")
    times = Counter((row.shard_id, row.sequence_number, row.first) for row in notes if row.kind == "handled")
    aside = {(row.shard_id, row.sequence_number) for row in notes if row.kind == "aside"}
    stored = {(name, one.number): one for name, shard in world.shards.items() for one in shard.records}
    digests, finished = dict[Place, bytes](), set[str]()
    if sides.asks:
        digests = {place: one.digest for place, one in stored.items()}
        finished = {str(world.shards[shard_id].parent) for shard_id, _, _ in times}
        finished |= {str(world.shards[shard_id].parent) for shard_id, _ in aside}
    states = plain_audit(rows, times, aside, audit, digests=digests, finished=finished, until=sides.until)
    for state in STATES[1:]:
        assert names_of_runs(runs_of(result.index, audit.of(state))) == states[state], state
    assert {state: audit.total(state) for state in STATES} == {
        name: len(some) for name, some in states.items()
    }
    assert audit.total("delivered") == sum(map(len, states.values()))
    duplicates = {name: many for run, many in audit.duplicates for name in names_of_runs([run])}
    again = {name: min(times[name], TIMES) for name in states["handled"] if times[name] > 1}
    assert duplicates == again
    is_open = any(states[state] for state in OPEN)
    assert audit.complete == (not is_open and not audit.lost_of_producers and not audit.conflicts)
    if not audit.lost_of_consumers:
        delivered = {(row.shard_id, row.sequence_number) for row in rows if row.kind == "delivered"}
        twice = {name for name, many in world.handled.items() if many > 1 and name[:2] in delivered}
        assert duplicates.keys() == twice
    # What no ledger names.
    whole = not audit.lost_of_producers
    for origin, one in audit.unclaimed:
        record = stored[one.shard_id, one.sequence_number]
        if origin in ("unanswered", "stored"):
            assert record.role == "unanswered" or (record.role in ("delivered", "again") and not whole)
        if origin == "foreign":
            assert record.role == "foreign"
        if origin == "stored":  # no record that a ledger names has its bytes
            assert all(row.digest != record.digest for row in rows if row.kind in NAMED)
    for kind in ("refused", "left") if whole else ():
        assert sum(audit.undelivered[kind].values()) == world.refused[kind]


def live(sides: Sides, times: int) -> None:
    sides.write_in_any_form()
    if times and sides.chance.random() < 0.3:
        sides.spoil_rows()
    for _ in range(times):
        happening = sides.chance.choice([sides.lose, sides.damage, sides.damage, sides.damage])
        # (The more members a file has, the more may happen to it.)
        files = {file: 1 + len(names_in(sides.whole[file])) for file in sides.now}
        happening(*sides.chance.choices([*files], [*files.values()]))
    sides.undo_what_nobody_can_see()
    judge(sides, damaged=times > 0)


def judge(sides: Sides, *, damaged: bool) -> None:
    try:
        result = sides.audit()
    except AuditError as error:
        assert damaged
        assert error.code in ("nothing-produced", "other-files")
        changed = {file[1] for file, data in sides.now.items() if data != sides.whole[file]}
        assert {*error.files} <= changed
        return
    check(sides, result)
    for side in {file[0] for file, data in sides.now.items() if data != sides.whole[file]}:
        had, _ = read_ledgers(sides.ledgers(sides.whole, side), side)
        has, lost = read_ledgers(sides.ledgers(sides.now, side), side)
        assert len(lost) or not Counter(had) - Counter(has), "rows are lost, and nothing says so"


@pytest.mark.requirement("AUD-3", "AUD-5", "AUD-10", "AUD-11", "AUD-12", "AUD-14", "AUD-20", "AUD-21")
@pytest.mark.requirement("AUD-22", "AUD-27", "AUD-30", "AUD-36")
@given(seed=st.integers(0, 2**32), times=st.integers(0, 3))
@settings(max_examples=examples(480))
def test_whatever_is_done_to_the_files_the_laws_hold(seed: int, times: int) -> None:
    live(Sides(seed), times)


def regrouped(files: dict[str, bytes], chance: random.Random) -> dict[str, bytes]:
    """The same members in other files, with other names, in another order."""
    members = [member for data in files.values() for member in members_of(data)]
    members = [packed(text_of(one).decode().splitlines()) for one in chance.sample(members, len(members))]
    groups: dict[str, bytes] = {}
    for member in members:
        name = f"{chance.randrange(4)}"
        groups[name] = groups.get(name, b"") + member
    return {name: chance.choice(FORMS)(data) for name, data in groups.items()}


def said(result: AuditResult) -> tuple[Any, ...]:
    """What an audit says, without the names of files."""
    facts = {name: value for name, value in result.facts.items() if name not in ("files", "notes")}
    return json.dumps(facts), *sorted(map(repr, result.findings))


@pytest.mark.requirement("AUD-36")
@given(seed=st.integers(0, 2**32))
@example(seed=2421934772)  # two tables of the same rows
@settings(max_examples=examples(120))
def test_the_result_is_the_same_whatever_the_files_are(seed: int) -> None:
    """Not the order, the names and the grouping of files matter, nor the order of rows."""
    sides = Sides(seed)
    before = said(sides.audit())
    chance = random.Random(seed)
    rows: list[Any] = [row for table in sides.tables.values() for row in table]
    rows = chance.sample(rows, len(rows))
    sides.now = {
        (side, name): data
        for side in ("produced", "handled")
        for name, data in regrouped(sides.ledgers(sides.whole, side), chance).items()
    }
    for number in range(3):
        sides.now["handled", f"{number}.parquet"] = table_of(rows[number::3])
    assert said(sides.audit()) == before
