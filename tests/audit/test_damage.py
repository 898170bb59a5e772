"""Every byte is read, or is a hole: stretches of ledgers, logs and tables are taken out, zeroed, doubled,
turned round, overwritten, cut off. Whatever is done, nothing is complete that is not, and nothing is called
missing that was handled."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, combinations, pairwise, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kpl_codec.audit import Row
from kpl_codec.audit.audit_run import AuditError, audit
from kpl_codec.findings import kind_of
from kpl_codec.ledger.ledger import Place, Writer

from ..examples import examples
from .model import named_writer

SHARD = "shardId-000000000000"
FIRST = 49590338271490256608559692538361571095921575989136588898
#: gzip whose bytes do not hold the time.
pack = partial(gzip.compress, mtime=1)
#: How a member of gzip begins.
GZIP = b"\x1f\x8b\x08\0"
#: A Kinesis record and a sub-sequence number.
Name = tuple[int, int]
USERS = 3


@dataclass(frozen=True)
class Side:
    """What one process has noted. ``numbers``: its Kinesis records, each of three user records."""

    side: str
    numbers: tuple[int, ...]
    closed: bool

    def writer(self, place: Place) -> Writer:
        return named_writer(place, f"w-{zlib.crc32(repr(self).encode()):08x}", "orders", self.side)

    @cache  # noqa: B019 - they are small
    def lines(self) -> list[str]:
        """As `Ledger(print)` writes them."""
        lines: list[str] = []
        writer = self.writer(lines.append)
        for number in self.numbers:
            writer.note([self.row(number)])
            writer.flush()
        if self.closed:
            writer.close()
        return lines

    def row(self, number: int) -> Row:
        kind = "delivered" if self.side == "produced" else "handled"
        return Row(
            kind,
            SHARD,
            sequence_number=str(FIRST + number),
            user_records=USERS,
            at=1_700_000_000_000 + number,
            digest=b"%08d" % number,
        )

    @cache  # noqa: B019 - they are small
    def ledger(self) -> bytes:
        """As a ledger in a folder has them, several members."""
        with TemporaryDirectory() as folder:
            writer = self.writer(folder)
            for start in range(0, len(self.numbers), 4):
                writer.note([self.row(number) for number in self.numbers[start : start + 4]])
                writer.flush()
            if self.closed:
                writer.close()
            (file,) = Path(folder).iterdir()
            return file.read_bytes()

    def names(self) -> list[list[str]]:
        return [[SHARD, str(FIRST + number), str(sub)] for number in self.numbers for sub in range(USERS)]


def joined(side: Side) -> bytes:
    """The ledgers of two processes in one file."""
    halves = side.numbers[::2], side.numbers[1::2]
    return b"".join(Side(side.side, half, closed=side.closed).ledger() for half in halves)


def text_of(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def wrapped(lines: list[str]) -> bytes:
    return text_of([json.dumps({"level": "INFO", "message": line}) for line in lines])


def table(side: Side) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([["shardId", "sequenceNumber", "subSequenceNumber", "note"]])
    writer.writerows([*row, "a, b"] for row in side.names())
    return out.getvalue().encode()


def objects(side: Side) -> bytes:
    keys = ("shardId", "sequenceNumber", "subSequenceNumber")
    return text_of([json.dumps(dict(zip(keys, row, strict=True))) for row in side.names()])


def parquet(side: Side) -> bytes:
    out = pa.BufferOutputStream()
    columns = dict(
        zip(("shardId", "sequenceNumber", "subSequenceNumber"), zip(*side.names(), strict=True), strict=True)
    )
    pq.write_table(
        pa.table({name: list(cells) for name, cells in columns.items()}), out, write_page_checksum=True
    )
    return bytes(out.getvalue())


#: What a line of the log begins with. A log that ends within the first of them says nothing of a ledger.
LOG_HEAD = "2026-01-01 INFO "


def uncompressed(side: Side) -> bytes:
    """As `parquet`, without compression: two such files of one shape have their pages in the same places."""
    out = pa.BufferOutputStream()
    shards, numbers, subs = map(list, zip(*side.names(), strict=True))
    columns = {"shardId": shards, "sequenceNumber": numbers, "subSequenceNumber": subs}
    pq.write_table(pa.table(columns), out, use_dictionary=False, compression="none")
    return bytes(out.getvalue())


#: How a side's rows are written, by the name of the file.
LEDGERS: dict[str, Callable[[Side], bytes]] = {
    "w-000000.ledger.jsonl.gz": Side.ledger,
    "ledger.jsonl": lambda side: gzip.decompress(side.ledger()),
    "again.gz": lambda side: pack(gzip.decompress(side.ledger())),
    "twice.gz": lambda side: pack(side.ledger()),
    "joined.gz": joined,
    "joined.jsonl": lambda side: gzip.decompress(joined(side)),
    "app.log": lambda side: text_of([f"{LOG_HEAD}{line}" for line in side.lines()]),
    "app.log.gz": lambda side: pack(text_of(side.lines())),
    "json.log": lambda side: wrapped(side.lines()),
}
TABLES: dict[str, Callable[[Side], bytes]] = {
    "a.csv.gz": lambda side: pack(table(side)),
    "a.jsonl.gz": lambda side: pack(objects(side)),
    "a.parquet": parquet,
}


def remove(data: bytes, at: int, end: int, chance: random.Random) -> bytes:
    return data[:at] + data[end:]


def zero(data: bytes, at: int, end: int, chance: random.Random) -> bytes:
    return data[:at] + bytes(end - at) + data[end:]


def double(data: bytes, at: int, end: int, chance: random.Random) -> bytes:
    return data[:end] + data[at:]


def turn(data: bytes, at: int, end: int, chance: random.Random) -> bytes:
    return data[:at] + data[at:end][::-1] + data[end:]


def overwrite(data: bytes, at: int, end: int, chance: random.Random) -> bytes:
    return data[:at] + chance.randbytes(end - at) + data[end:]


def cut(data: bytes, at: int, end: int, chance: random.Random) -> bytes:
    return data[:at]


DAMAGES = (remove, zero, double, turn, overwrite, cut)


def borders(data: bytes) -> list[int]:
    """Where lines and members of gzip begin."""
    sign = GZIP if data.startswith(GZIP) else rb"(?<=\n)."
    return [0, *(found.start() for found in re.finditer(sign, data, re.DOTALL))]


def left_of_writers(before: bytes, sign: bytes) -> dict[bytes, bool]:
    """What a file of whole members can have lost so that nobody sees it: of each writer it has the first
    members only, or none. By the bytes that are left: whether some writer has none. ``sign``: how a member
    begins."""
    ends = [*(found.start() for found in re.finditer(sign, before)), len(before)]
    writers: list[list[bytes]] = []
    for start, end in pairwise(ends):
        member = before[start:end]
        text = zlib.decompressobj(31).decompress(member) if member.startswith(GZIP) else member
        if b'"member":0,' in text:
            writers.append([])
        writers[-1].append(member)
    left = {b"": False}
    for members in writers:
        left = {
            data + b"".join(members[:first]): lacks or not first
            for data, lacks in left.items()
            for first in range(len(members) + 1)
        }
    return left


#: How a member begins in a file that has nothing between its members.
MEMBER_SIGNS = {"w-000000.ledger.jsonl.gz": GZIP, "joined.gz": GZIP}
MEMBER_SIGNS |= {"ledger.jsonl": rb'\{"kpl_ledger"', "joined.jsonl": rb'\{"kpl_ledger"'}


def is_silent(before: bytes, after: bytes, form: str) -> bool:
    """Whether nobody can see the damage of a consumer's file: of each writer the last members are gone, or
    all; or a log ends behind a line. A log's last line may be printed without its line feed, and a ledger of
    one line may be a log."""
    if form in MEMBER_SIGNS:
        left = left_of_writers(before, MEMBER_SIGNS[form])
        is_log = all(b'"lines":1,' in line for line in after.split(b"\n"))
        return after in left or (is_log and after + b"\n" in left)
    ends = b"\n" in (after[-1:], before[len(after) : len(after) + 1])
    is_log = form.endswith("log") and before.startswith(after) and ends
    return is_log or LOG_HEAD.encode().startswith(after)


def is_without_writer(before: bytes, after: bytes, form: str) -> bool:
    """Whether nothing is left of a writer of a file: nobody can know of it."""
    if form in MEMBER_SIGNS:
        return left_of_writers(before, MEMBER_SIGNS[form]).get(after, False)
    return LOG_HEAD.encode().startswith(after)


def write(folder: Path, file: str, data: bytes) -> None:
    folder.mkdir(exist_ok=True)
    (folder / file).write_bytes(data)


def check(side: str, form: str, sides: dict[str, Side], whole: bytes, data: bytes, *more: bytes) -> None:
    """An audit whose file of that side and form has these bytes, and not the whole. ``more``: of other
    files."""
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        # The last of all is handled, so that the consumer is past what it has not handled.
        write(folder / "produced", "w-000000.ledger.jsonl.gz", sides["produced"].ledger())
        write(folder / "produced", "last.log", text_of(Side("produced", (99,), closed=True).lines()))
        write(folder / "handled", "last.log", text_of(Side("handled", (99,), closed=True).lines()))
        if side == "produced":
            (folder / "produced/w-000000.ledger.jsonl.gz").unlink()
            write(folder / "handled", "w-000000.ledger.jsonl.gz", sides["handled"].ledger())
        write(folder / side, form, data)
        for number, other in enumerate(more):
            write(folder / side, f"{number}-{form}", other)
        try:
            result = audit([str(folder / "produced")], [str(folder / "handled")])
        except AuditError:
            assert side == "produced"
            return
    truth = {(number, sub) for number in [*sides["handled"].numbers, 99] for sub in range(USERS)}
    lost = {(number, sub) for number in [*sides["produced"].numbers, 99] for sub in range(USERS)} - truth
    missing = {
        (int(one.sequence_number or 0) - FIRST, (one.sub_sequence_number or 0) + sub)
        for one in result.findings
        if kind_of(one.kind).severity == "critical"
        for sub in range(one.user_records or 1)
    }
    silent = not more and is_silent(whole, data, form)
    if side == "produced" or not silent:
        assert not missing & truth, "called missing, and was handled"
    if not (side == "produced" and is_without_writer(whole, data, form)):
        assert not (lost and result.facts["complete"]), "called complete, and is not"
    if result.facts["userRecords"]["handled"] < len(truth) and not silent:
        told = {"audit-damaged", "audit-unreadable", "audit-incomplete"}
        assert told & {one.kind for one in result.findings}, "nothing says what is lost"


@pytest.mark.requirement("AUD-3", "AUD-5", "AUD-10", "AUD-12", "AUD-21", "AUD-27", "AUD-30", "AUD-36")
@given(
    seed=st.integers(0, 2**32),
    side=st.sampled_from(["produced", "handled"]),
    form=st.sampled_from([*LEDGERS, *TABLES]),
    damage=st.sampled_from(DAMAGES),
)
@settings(max_examples=examples(1200))
def test_a_damaged_stretch_is_a_hole(seed: int, side: str, form: str, damage: Callable[..., bytes]) -> None:
    if form in TABLES:
        side = "handled"
    chance = random.Random(seed)
    put = tuple(range(20))
    handled = tuple(number for number in put if chance.random() < 0.8) or (7,)
    sides = {
        "produced": Side("produced", put, closed=True),
        "handled": Side("handled", handled, closed=chance.random() < 0.5),
    }
    whole = {**LEDGERS, **TABLES}[form](sides[side])
    begins = chance.choice(borders(whole))
    at = min(
        len(whole) - 1, chance.choice([begins, begins + chance.randrange(20), chance.randrange(len(whole))])
    )
    border = next((border for border in borders(whole) if border > at), len(whole))
    end = min(len(whole), chance.choice([border, at + chance.choice([1, 5, 30, 100, 1000])]))
    data = damage(whole, at, end, chance)
    check(side, form, sides, whole, data)


@pytest.mark.requirement("AUD-3", "AUD-10", "AUD-21", "AUD-36")
@pytest.mark.parametrize("side", ["produced", "handled"])
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("form", LEDGERS)
def test_whole_lines_and_members_are_a_hole(form: str, closed: bool, side: str) -> None:
    """What is removed or is there twice begins and ends where a line or a member does."""
    put = tuple(range(5 if form.endswith("log") else 8))
    sides = {
        "produced": Side("produced", put, closed=closed or side == "handled"),
        "handled": Side("handled", tuple(number for number in put if number % 5 != 1), closed=closed),
    }
    whole = LEDGERS[form](sides[side])
    for end in [*borders(whole)[1:], len(whole)]:
        check(side, form, sides, whole, whole[: end - 1])  # without a line feed, which is all that shows
    for at, end in combinations(sorted({*borders(whole), len(whole)}), 2):
        check(side, form, sides, whole, whole[:at] + whole[end:])
        check(side, form, sides, whole, whole[:end] + whole[at:])


# -- texts of which nothing is lost, but as they were written -------------------------------------


def wide_table(side: Side) -> bytes:
    """A table of which the header and each number go over column 80."""
    lines = ["a note,partition key,event time,application,version,subSequenceNumber,sequenceNumber,shardId"]
    for shard_id, number, sub in side.names():
        lines.append(",".join(["a note " * 4, "key", "12:00:00", "orders", "1", sub, number, shard_id]))
    return text_of(lines)


#: Texts, by the name of the file.
TEXTS = {form: LEDGERS[form] for form in ("ledger.jsonl", "joined.jsonl", "app.log", "json.log")}
TEXTS |= {"a.csv": table, "wide.csv": wide_table, "a.jsonl": objects}


def in_columns(width: int) -> Callable[[bytes], list[bytes]]:
    """As a terminal or a mail wraps lines."""
    return lambda data: [
        b"".join(
            line[at : at + width].rstrip(b"\n") + b"\n"
            for line in data.splitlines()
            for at in range(0, len(line), width)
        )
    ]


def lines_by(order: Callable[[list[bytes]], list[bytes]]) -> Callable[[bytes], list[bytes]]:
    return lambda data: [b"".join(order(data.splitlines(keepends=True)))]


def glued(at: int) -> Callable[[bytes], list[bytes]]:
    """Without the line feed of one line."""
    return lambda data: [b"\n".join(data.split(b"\n")[:at]) + b"\n".join([b"", *data.split(b"\n")[at:]])[1:]]


REARRANGED: dict[str, Callable[[bytes], list[bytes]]] = {
    "crlf": lambda data: [data.replace(b"\n", b"\r\n")],
    "cr": lambda data: [data.replace(b"\n", b"\r")],
    "one line": lambda data: [data.replace(b"\n", b"")],
    "bom": lambda data: [b"\xef\xbb\xbf" + data],
    "blank lines": lambda data: [data.replace(b"\n", b"\n\n")],
    "80 columns": in_columns(80),
    "40 columns": in_columns(40),
    "turned round": lines_by(lambda lines: lines[::-1]),
    "sorted": lines_by(sorted),
    "two as one by line": lines_by(lambda lines: [*chain(*zip_longest(*halves(lines), fillvalue=b""))]),
    "broken off and begun anew": lambda data: [data[: len(data) * 2 // 3] + data],
    "broken off and gone on with": lambda data: [data[: len(data) * 2 // 3], data[len(data) // 2 :]],
    "rotated within a line": lambda data: [data[: len(data) // 2], data[len(data) // 2 :]],
    "the first two lines as one": glued(1),
    "as text in JSON": lines_by(lambda lines: [json.dumps(line.decode()).encode() + b"\n" for line in lines]),
}


def halves(lines: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    return lines[: len(lines) // 2], lines[len(lines) // 2 :]


@pytest.mark.requirement("AUD-10", "AUD-21", "AUD-36")
@pytest.mark.parametrize("how", REARRANGED)
def test_a_text_that_was_written_otherwise_is_read_or_is_a_hole(how: str) -> None:
    put = tuple(range(8))
    for form, write_side in TEXTS.items():
        for side in ("produced", "handled")[form in ("a.csv", "wide.csv", "a.jsonl") :]:
            for handled in ((0, 1, 3, 6, 7), (5,)):
                sides = {
                    "produced": Side("produced", put, closed=True),
                    "handled": Side("handled", handled, closed=True),
                }
                whole = write_side(sides[side])
                check(side, form, sides, whole, *REARRANGED[how](whole))
