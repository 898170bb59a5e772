"""All of each file of an audit is read, or is a hole: also where two records meet in a gap, where a file is
of several, changes while it is read, or has rows that only a ledger's header explains."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Callable
from io import BytesIO
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpl_codec.audit.audit_run import AuditResult, audit
from kpl_codec.audit.inputs import Side as InputSide
from kpl_codec.audit.sources import Holes, ReadProgress, lines_in
from kpl_codec.audit.tables import csv_rows

from .test_damage import FIRST, SHARD, Side, joined, objects, parquet, table, text_of, uncompressed

HANDLED = Side(
    "handled",
    (
        0,
        1,
        2,
    ),
    closed=True,
)
PUT = Side(
    "produced",
    (
        0,
        1,
        2,
    ),
    closed=True,
)


def audit_of(folder: Path, handled: dict[str, bytes], *put: bytes) -> AuditResult:
    """The last that was put is handled: what comes before it is not too early."""
    for side, contents in (("produced", dict(enumerate(put or (PUT.ledger(),)))), ("handled", handled)):
        (folder / side).mkdir()
        for name, content in contents.items():
            (folder / side / str(name)).write_bytes(content)
        last = Side(side, (99,), closed=True)
        (folder / side / "last.log").write_bytes(text_of(last.lines()))
    return audit([str(folder / "produced")], [str(folder / "handled")])


def sums(result: AuditResult) -> dict[str, int]:
    return {name: result.facts["userRecords"][name] for name in ("handled", "missing", "unknown")}


# -- gaps in a table ------------------------------------------------------------------------------


def damaged(content: bytes) -> bytes:
    """A member of gzip whose checksum is wrong."""
    member = bytearray(gzip.compress(content, mtime=0))
    member[-5] ^= 1
    return bytes(member)


def cells_of(content: bytes) -> list[tuple[str, ...]]:
    rows = csv_rows("a.csv", lines_in(BytesIO(content)), Holes(), lambda number: True)
    return [tuple(cells.values()) for _, cells in rows]


@pytest.mark.requirement("AUD-21", "AUD-36")
@pytest.mark.parametrize(
    "columns",
    [
        ("shardId", "sequenceNumber", "note", "subSequenceNumber"),
        ("note", "subSequenceNumber", "sequenceNumber", "shardId"),
        ("subSequenceNumber", "shardId", "sequenceNumber"),
        ("shardId", "sequenceNumber", "subSequenceNumber"),
    ],
    ids=["note-within", "note-first", "sub-first", "sub-last"],
)
def test_no_row_is_made_of_two_that_meet_in_a_gap(columns: tuple[str, ...]) -> None:
    """Every gap from one byte to another: a quote that opens before it, and a number that ends in it."""
    rows = [
        {"shardId": SHARD, "sequenceNumber": str(number), "note": f'"a\n{number}"', "subSequenceNumber": sub}
        for number in (30, 41)
        for sub in ("1", "12", "112")
    ]
    lines = [",".join(columns), *(",".join(row[name] for name in columns) for row in rows)]
    content = "".join(f"{line}\n" for line in lines).encode()
    whole = {*cells_of(content)}
    assert len(whole) == len(rows)
    head = len(lines[0]) + 1
    seen = 0
    for begin in range(head, len(content)):
        for end in range(begin + 1, len(content) + 1, 7):
            members = (
                gzip.compress(content[:begin]),
                damaged(content[begin:end]),
                gzip.compress(content[end:]),
            )
            found = cells_of(b"".join(members))
            seen += len(found)
            assert {*found} <= whole, (begin, end)
    assert seen > 1000


@pytest.mark.requirement("AUD-10", "AUD-21")
def test_a_quote_that_is_open_before_a_gap_makes_no_user_record_handled(tmp_path: Path) -> None:
    """The number before the gap and the sub-sequence number behind it are of two rows."""
    head = "shardId,sequenceNumber,note,subSequenceNumber\n"
    rows = [f'{SHARD},{FIRST + number},"no\nte",{sub}\n' for number in (0, 1) for sub in range(3)]
    cut = rows[0].index("te"), rows[-1].index("te")
    before, behind = head + rows[0][: cut[0]], rows[-1][cut[1] :]
    between = rows[0][cut[0] :] + "".join(rows[1:-1]) + rows[-1][: cut[1]]
    members = gzip.compress(before.encode()), damaged(between.encode()), gzip.compress(behind.encode())
    others = head + f"{SHARD},{FIRST},x,0\n" + f"{SHARD},{FIRST},x,1\n" + "".join(rows[3:])
    handled = {"a.csv.gz": b"".join(members), "b.csv": others.encode()}
    result = audit_of(
        tmp_path,
        handled,
        Side(
            "produced",
            (
                0,
                1,
            ),
            closed=True,
        ).ledger(),
    )
    assert sums(result) == {"handled": 8, "missing": 0, "unknown": 1}
    assert "audit-damaged" in {finding.kind for finding in result.findings}


# -- files that hold other things than they say ---------------------------------------------------


@pytest.mark.requirement("AUD-36")
@pytest.mark.parametrize("name", ["pipe", ".pipe", "_old/pipe"])
def test_a_pipe_is_named_and_never_opened(name: str, tmp_path: Path) -> None:
    (tmp_path / "handled" / name).parent.mkdir(parents=True)
    os.mkfifo(tmp_path / "handled" / name)
    (tmp_path / "handled" / ".link").symlink_to("nowhere")
    (tmp_path / "handled" / "none.csv").write_text("")
    side = InputSide(Holes(), ReadProgress())
    assert list(side.read([str(tmp_path)])) == []
    noted = [hole.file for hole in side.holes] + [*chain(*side.progress.notes.values())]
    assert sorted(noted) == sorted([Path(name).name, ".link", "none.csv"])


@pytest.mark.requirement("ACC-6", "AUD-36")
@pytest.mark.parametrize("between", [b"", b"\n", b"--part--"], ids=["nothing", "lf", "text"])
def test_parquet_files_one_behind_the_other_are_a_hole(between: bytes, tmp_path: Path) -> None:
    """The footer at the end reads the rows of the first as those of the second, if they are of one shape."""
    first, second = (uncompressed(Side("handled", (number,), closed=False)) for number in (1, 2))
    result = audit_of(tmp_path, {"a.parquet": first + between + second})
    assert sums(result) == {"handled": 3, "missing": 0, "unknown": 9}
    assert "several Parquet files in one" in result.headline


@pytest.mark.requirement("AUD-36")
@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.log", lambda side: text_of(side.lines())),
        ("a.log.gz", Side.ledger),
        ("a.csv", table),
        ("a.json", objects),
        ("a.parquet", parquet),
    ],
)
def test_a_file_of_s3_is_read_like_one_of_this_machine(
    name: str, form: Callable[[Side], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small files of S3 are fetched whole before the first look at them."""
    for folder, fetch in (("here", False), ("s3", True)):
        if fetch:
            fetched = lambda file: file._replace(data=file.place.read())  # noqa: E731
            monkeypatch.setattr("kpl_codec.audit.inputs.loaded", fetched)
        (tmp_path / folder).mkdir()
        result = audit_of(tmp_path / folder, {name: form(HANDLED)})
        assert sums(result) == {"handled": 12, "missing": 0, "unknown": 0}, folder


def without_headers(side: Side) -> bytes:
    lines = gzip.decompress(side.ledger()).splitlines(keepends=True)
    return b"".join(line for line in lines if b"kpl_ledger" not in line)


@pytest.mark.requirement("AUD-21")
@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("side", [HANDLED, PUT], ids=["handled", "put"])
def test_rows_of_a_ledger_without_its_headers_are_no_table(side: Side, form: str, tmp_path: Path) -> None:
    """A row stands for several user records, and only some kinds say that they were handled."""
    content = without_headers(side)
    rows = [row for row in map(json.loads, content.splitlines()) if "shard" in row]
    table = pa.Table.from_pylist(rows)
    if form == "csv":
        content = "".join(
            ",".join(map(str, row)) + "\n" for row in (rows[0].keys(), *(row.values() for row in rows))
        ).encode()
    elif form == "parquet":
        pq.write_table(table, tmp_path / "table")
        content = (tmp_path / "table").read_bytes()
    result = audit_of(tmp_path, {f"a.{form}": content})
    assert sums(result) == {"handled": 3, "missing": 0, "unknown": 9}
    assert any("rows of a ledger" in finding.detail for finding in result.findings if finding.detail)


@pytest.mark.requirement("AUD-21")
def test_a_row_that_has_a_member_twice_is_a_hole(tmp_path: Path) -> None:
    """A parser keeps the last one."""
    row = '{{"shardId":"{}","sequenceNumber":"{}","sequenceNumber":"{}","subSequenceNumber":{}}}\n'
    rows = [row.format(SHARD, FIRST + number, FIRST + 2, sub) for number in range(3) for sub in range(3)]
    result = audit_of(tmp_path, {"a.jsonl": "".join(rows).encode()})
    assert sums(result) == {"handled": 3, "missing": 0, "unknown": 9}


@pytest.mark.requirement("AUD-36")
def test_a_log_that_begins_with_what_a_command_printed_is_read(tmp_path: Path) -> None:
    log = b'{"summaryVersion": 1}\n' + text_of(PUT.lines())
    result = audit_of(tmp_path, {}, log)
    assert sums(result) == {"handled": 3, "missing": 9, "unknown": 0}


@pytest.mark.requirement("AUD-36")
@pytest.mark.parametrize("change", ["empty", "cut", "gone"])
@pytest.mark.parametrize("form", ["log", "gz"])
def test_a_file_that_is_cut_after_it_was_listed_is_a_hole(change: str, form: str, tmp_path: Path) -> None:
    """As a rotation of logs by copy and truncate does: the reading of another file is under way."""
    (tmp_path / "a.log").write_bytes(text_of(PUT.lines()))
    second = Side(
        "produced",
        (
            7,
            8,
        ),
        closed=True,
    )
    path = tmp_path / f"b.{form}"
    path.write_bytes(text_of(second.lines()) if form == "log" else joined(second))
    side = InputSide(Holes(), ReadProgress())
    read = side.read([str(tmp_path)])
    assert next(read)[0] == "a.log"
    whole = path.read_bytes()
    if change == "gone":
        path.unlink()
    else:
        begin = whole.find(b'{"kpl_ledger"', 1) if form == "log" else member_end(whole)
        path.write_bytes(b"" if change == "empty" else whole[:begin])
    list(read)
    assert path.name in {hole.file for hole in side.holes}


def member_end(content: bytes) -> int:
    unpack = zlib.decompressobj(31)
    unpack.decompress(content)
    return len(content) - len(unpack.unused_data)
