"""All of what is given is read, named, known to be empty or left out, and whoever reads can say so."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.arrow import Deaggregator
from kpl_codec.captures import plan, read_piece
from kpl_codec.captures.account import Account, SourceAccount
from kpl_codec.captures.files import PIECE_BYTES, RESULTS
from kpl_codec.validate import LocalEngine, validate
from kpl_codec.validate import task as task_module
from kpl_codec.validate.task import Job, pack
from tests.captures.test_captures import FRAMES, answer, gaps
from tests.captures.test_captures import read_all as read
from tests.every import every
from tests.examples import examples, share

MAP = kpl.ShardMap([kpl.Shard("shardId-000000000000", kpl.ALL_HASH_KEYS)])
ONE_FUNCTION_FIXTURE = [HealthCheck.function_scoped_fixture]


def by_duckdb(table: pa.Table, path: Path) -> None:
    import duckdb

    with duckdb.connect() as connection:
        connection.register("given", table)
        connection.execute(f"COPY given TO '{path}' (FORMAT parquet)")


def by_polars(table: pa.Table, path: Path) -> None:
    import polars

    polars.DataFrame(table).write_parquet(path)


WITH_INDEX: dict[str, Any] = {"write_page_index": True, "compression": "zstd", "data_page_version": "2.0"}
WRITERS: dict[str, Callable[[pa.Table, Path], object]] = {
    "pyarrow": pq.write_table,
    "pyarrow with an index": partial(pq.write_table, **WITH_INDEX),
    "duckdb": by_duckdb,
    "polars": by_polars,
}
BETWEEN = (b"", b"x", b"\r\n", bytes(4096))


@pytest.mark.requirement("ACC-6", "ACC-1")
@pytest.mark.parametrize("second", WRITERS)
def test_parquet_files_one_behind_the_other_are_named(second: str, tmp_path: Path) -> None:
    """Of two files of one layout the places in the second's footer fit the first, whose rows would be read in
    its place; of others reading fails. A record may hold what stands between two files."""
    wrong, named = [], 0

    @cache
    def made(writer: str, name: bytes, count: int) -> bytes:
        data = pa.array([b"%s PAR1PAR1 %d" % (name, number) for number in range(count)], pa.binary())
        WRITERS[writer](pa.table({"data": data, "partitionKey": ["k"] * count}), tmp_path / "one")
        content = (tmp_path / "one").read_bytes()
        (tmp_path / "one").unlink()
        return content

    for first in {"pyarrow", second}:
        for counts in ((10, 10), (2000, 10), (10, 2000), (0, 10), (10, 0)):
            a, b = made(first, b"a", counts[0]), made(second, b"b", counts[1])
            for between, cut in product(BETWEEN, (0, 60)):
                (tmp_path / "joined").write_bytes(a[: len(a) - cut] + between + b)
                rows, account = read(tmp_path / "joined", len(a))
                named += any("several Parquet files" in str(row["captureText"]) for row in rows)
                if not any(row["captureError"] for row in rows) and not gaps(tmp_path / "joined", account):
                    wrong.append((first, counts, between, cut, rows[:1]))
    assert wrong == []
    assert named > 20  # of 40 or 80
    for count in (1, 10, 2000):
        (tmp_path / "single").write_bytes(made(second, b"s", count))
        rows, account = read(tmp_path / "single", 300)
        assert len([row for row in rows if row["captureError"] is None]) == len(rows) == count


@pytest.mark.requirement("ACC-2", "ACC-1")
@settings(suppress_health_check=ONE_FUNCTION_FIXTURE, max_examples=examples(60))
@given(
    count=st.integers(0, 60),
    row_group=st.integers(1, 25),
    size=st.integers(0, 60),
    piece_bytes=st.sampled_from([60, 333, 2000, PIECE_BYTES]),
    compression=st.sampled_from(["none", "zstd", "snappy", "gzip"]),
    dictionary=st.booleans(),
    version=st.sampled_from(["1.0", "2.0"]),
    checksum=st.booleans(),
    key_first=st.booleans(),
)
def test_all_rows_of_parquet_are_read_however_it_was_written_and_cut(
    tmp_path: Path, count: int, row_group: int, size: int, piece_bytes: int, key_first: bool, **how: Any
) -> None:
    """As many rows as a reader that knows nothing of pieces: also where groups are much smaller than their
    content (b"shipped" compresses 20 times)."""
    columns = {"data": [b"%d" % n + b"shipped" * size for n in range(count)], "partitionKey": ["k"] * count}
    table = pa.table({name: columns[name] for name in sorted(columns, reverse=key_first)})
    path = tmp_path / "capture.parquet"
    pq.write_table(
        table,
        path,
        row_group_size=row_group,
        compression=how["compression"],
        use_dictionary=how["dictionary"],
        data_page_version=how["version"],
        write_page_checksum=how["checksum"],
    )
    rows, account = read(path, piece_bytes)
    assert [r["data"] for r in rows if r["captureError"] is None] == pq.read_table(path)["data"].to_pylist()
    assert gaps(path, account) == []


@pytest.mark.requirement("ACC-6")
def test_a_record_that_is_a_parquet_file_is_none(tmp_path: Path) -> None:
    """Of the same layout, or of another, in which it would stand before a second file."""
    made, outer = tmp_path / "made", tmp_path / "outer"
    how: dict[str, Any] = {"compression": "none", "use_dictionary": False}
    for columns in ({"data": [b"inner"]}, {"x": list(range(100))}):
        pq.write_table(pa.table(columns), made, **how)
        table = pa.table({"data": [made.read_bytes()] * 3, "body": [b"x" * 2000] * 3})
        made.unlink()
        for index, encoding in product((False, True), (None, {"data": "DELTA_LENGTH_BYTE_ARRAY"})):
            more = {"write_page_index": index, "column_encoding": encoding}
            pq.write_table(table, outer, row_group_size=1, **how, **more)
            for piece_bytes in (300, PIECE_BYTES):
                rows, _ = read(outer, piece_bytes)
                assert [row["data"] for row in rows] == table["data"].to_pylist()


def changed_contents(folder: Path, whole: bytes) -> dict[str, bytes]:
    """What a file may be by the time that its next piece is read."""
    pq.write_table(pa.table({"data": [b"x"]}).replace_schema_metadata({RESULTS: b""}), folder / "results")
    pq.write_table(pa.table({"x": [1]}), folder / "no-data")
    return {
        "cut": whole[: len(whole) // 2], "nothing": b"", "text": b'{"a": 1}\n' * 50, "junk": bytes(500),
        "broken parquet": b"PAR1" + b"x" * 500, "bzip2": b"BZh9" + bytes(500), "gzip": gzip.compress(whole),
        "results": (folder / "results").read_bytes(), "no data": (folder / "no-data").read_bytes(),
    }  # fmt: skip


@pytest.mark.requirement("ACC-1", "ACC-2", "SPK-12")
def test_a_file_that_changes_before_one_of_its_pieces_is_read_does_not_close(tmp_path: Path) -> None:
    """What was read of the file as it was, and what of the other, nobody knows. (The first piece is all of a
    text.)"""
    path = tmp_path / "capture"

    def parquet_of(name: bytes, count: int) -> bytes:
        numbers = range(count)
        columns = {"data": [name + b" %d" % n for n in numbers], "sequenceNumber": [f"{n}" for n in numbers]}
        pq.write_table(pa.table(columns), path, row_group_size=10)
        return path.read_bytes()

    for whole, records in ((parquet_of(b"old", 100), 100), (b"\n".join(LINES * 5), 30)):
        others = {f"{count} rows": parquet_of(b"new", count) for count in (0, 1, 99, 500)}
        for change, content in {**changed_contents(tmp_path, whole), **others}.items():
            for piece_bytes, first_changed in product((1000, PIECE_BYTES), (0, 1)):
                rows, account = [], Account()
                path.write_bytes(whole)
                for number, piece in enumerate(plan([str(path)], piece_bytes=piece_bytes)):
                    path.write_bytes(content if number >= first_changed else whole)
                    one = Account()
                    rows += [row for batch in read_piece(piece, account=one) for row in batch.to_pylist()]
                    account.add(Account.from_bytes(one.to_bytes()))
                told = [row["captureText"] for row in rows if row["captureError"]]
                told += account.findings({str(path)}, checked=False)
                assert told or len(rows) == records, (change, piece_bytes, first_changed)


def encrypted(path: Path, columns: list[str], *, plain_footer: bool) -> None:
    import pyarrow.parquet.encryption as pe

    class Keys(pe.KmsClient):  # type: ignore[misc]
        def __init__(self, _: Any) -> None:
            super().__init__()

        def wrap_key(self, key: Any, _: str) -> Any:
            return key

        def unwrap_key(self, key: Any, _: str) -> Any:
            return key

    table = pa.table({"data": [b"x"] * 10, "sequenceNumber": ["1"] * 10, "partitionKey": ["k"] * 10})
    config = pe.EncryptionConfiguration(
        footer_key="f", column_keys={"c": columns}, plaintext_footer=plain_footer
    )
    factory = pe.CryptoFactory(Keys)
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)


@pytest.mark.requirement("ACC-2", "ACC-1")
@every("plain_footer", [True, False])
@every("column", ["data", "sequenceNumber", "partitionKey"])
def test_an_encrypted_column_is_named_and_ends_no_process(
    column: str, plain_footer: bool, tmp_path: Path
) -> None:
    encrypted(tmp_path / "e.parquet", [column], plain_footer=plain_footer)
    rows, account = read(tmp_path)
    (code,) = {row["captureError"] for row in rows}
    assert code == ("file" if plain_footer else "other-form")
    assert gaps(tmp_path, account) == []
    assert not account.sources[str(tmp_path / "e.parquet")].is_whole


@pytest.mark.requirement("ACC-1", "ACC-2", "SPK-12")
def test_a_bit_that_turns_gives_no_other_row_and_hides_none(tmp_path: Path) -> None:
    """A footer has no checksum: it may give other rows, and is told, as is one whose numbers of rows of the
    file, of a row group and of a column contradict one another. Not all that pyarrow raises is an error of
    Arrow: of a name that is no UTF-8 it is Python's."""
    values = [b"value %06d" % number for number in range(90)]
    path = tmp_path / "a.parquet"
    how: dict[str, Any] = {"use_dictionary": False, "compression": "none", "write_page_checksum": True}
    pq.write_table(pa.table({"data": values}), path, row_group_size=45, **how)
    whole = path.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    # Numbers of rows as Thrift writes them: 45 of a group, and 90.
    numbers = [found.start() for found in re.finditer(rb"Z|\xb4\x01", whole) if found.start() >= footer]
    assert len(numbers) > 4
    turned = [(at, 2) for at in range(100, footer, 101)]
    turned += [(at, bit) for at in range(footer, len(whole), 3 * share()) for bit in (at % 8, 7)]
    turned += [(at, bit) for at in numbers for bit in range(1, 7)]
    for at, bit in turned:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
        rows, account = read(path, 1000)
        got = [row["data"] for row in rows if row["captureError"] is None]
        if not any(row["captureError"] for row in rows) and not gaps(path, account):
            assert got == values
            assert pq.read_metadata(path).num_rows == len(values)
        assert at >= footer or set(got) <= {*values}


LINES = [json.dumps(answer(b"%d" % n)).encode() for n in range(6)]
#: Whole files of JSON and frames, and what may lie between and behind.
PARTS = st.sampled_from(
    [*LINES, b"\n", b"\n", b"[\n", b"\n]", b",", b'{"x": 1}', b"junk", b"\xff", b"\0", b" "]
)


@pytest.mark.requirement("ACC-1", "SPK-10")
@settings(suppress_health_check=ONE_FUNCTION_FIXTURE, max_examples=examples(150))
@given(
    parts=st.lists(PARTS, max_size=12) | st.lists(st.sampled_from([*FRAMES, b"\n", b"x"]), max_size=6),
    packed=st.sampled_from(["no", "gzip", "two members"]),
    cut=st.integers(0, 40),
    piece_bytes=st.sampled_from([7, 100, 1000, PIECE_BYTES]),
)
def test_the_account_of_any_file_closes(
    tmp_path: Path, parts: list[bytes], packed: str, cut: int, piece_bytes: int
) -> None:
    content = b"".join(parts)
    path = tmp_path / "any"
    path.write_bytes(content)
    plain, _ = read(path)
    if packed != "no":
        half = len(content) // 2 if packed == "two members" else 0
        content = b"".join(map(gzip.compress, (content[:half], content[half:])))
    path.write_bytes(content[: len(content) - cut] if cut > 30 else content)
    rows, account = read(path, piece_bytes)
    assert gaps(path, account) == []
    assert rows == read(path)[0]
    assert cut > 30 or [row["data"] for row in rows] == [row["data"] for row in plain]
    source = account.sources[str(path)]
    assert source.records == sum(row["captureError"] is None for row in rows)
    assert source.is_whole == (source.named == 0)


@pytest.mark.requirement("ACC-1")
@every(
    ("spans", "told"),
    [
        ([[0, 10]], []),
        ([[5, 10], [0, 5]], []),
        ([[0, 12]], []),  # it has grown since it was listed
        ([], ["0 to 10"]),
        ([[0, 4], [6, 10]], ["4 to 6"]),
        ([[0, 9]], ["9 to 10"]),
        ([[0, 6], [4, 10]], ["4 to 6 were read twice"]),
        ([[0, 10], [0, 10]], ["0 to 10 were read twice"]),
    ],
)
def test_what_does_not_close_is_told(spans: list[list[int]], told: list[str]) -> None:
    found = list(SourceAccount(10, spans=spans).gaps())
    assert len(found) == len(told)
    assert all(part in text for part, text in zip(told, found, strict=True))


# -- the validate job -----------------------------------------------------------------------------


def make_captures(folder: Path) -> None:
    folder.mkdir()
    for number in range(6):
        lines = [json.dumps(answer(FRAMES[0], first=10 * number + n)) for n in range(1, 4)]
        (folder / f"{number}.json").write_text("\n".join(lines))


@pytest.mark.requirement("ACC-1")
def test_the_summary_says_that_all_was_read(tmp_path: Path) -> None:
    make_captures(tmp_path / "in")
    (tmp_path / "in" / "_hidden.json").write_text(LINES[0].decode())
    (tmp_path / "in" / "empty.json").write_text(json.dumps({"Records": []}))
    result = validate(
        [str(tmp_path / "in")], MAP, output=str(tmp_path / "out"), engine=LocalEngine(), task_bytes=1
    )
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert result.clean
    assert summary["read"] == {
        "unit": "file", "sources": 8, "whole": 7, "leftOut": 1, "records": 18, "unread": 0, "empty": 1,
        "bytes": sum(p.stat().st_size for p in (tmp_path / "in").iterdir() if p.name[0] != "_"),
    }  # fmt: skip
    for name in ("summary.txt", "report.html"):
        assert "All 7 files were read whole: 18 records in" in (tmp_path / "out" / name).read_text()


@pytest.mark.requirement("ACC-1")
def test_what_a_fault_of_ours_loses_is_an_error_that_names_it(tmp_path: Path) -> None:
    """A task that wrote nothing, a batch that was dropped, a piece that was not read."""
    make_captures(tmp_path / "in")
    run, process, read_one = Job.run, Deaggregator.process, task_module.read_piece

    def lossy_batches(self: Any, batch: Any) -> Any:
        return process(self, batch) if "/3.json" not in batch["file"][0].as_py() else iter(())

    def lossy_piece(piece: Any, account: Any) -> Any:
        return iter(()) if piece.path.endswith("3.json") else read_one(piece, account=account)

    faults: list[Any] = [
        mock.patch.object(Job, "run", lambda job, number: number and run(job, number)),
        mock.patch.object(Deaggregator, "process", lossy_batches),
        mock.patch.object(task_module, "read_piece", lossy_piece),
    ]
    assert len(pack(plan([str(tmp_path / "in")]), task_bytes=1)) == 6
    for number, fault in enumerate(faults):
        out = str(tmp_path / f"out{number}")
        with fault:
            result = validate([str(tmp_path / "in")], MAP, output=out, engine=LocalEngine(), task_bytes=1)
        assert not result.clean
        assert "not-accounted" in {kind["name"] for kind in result.summary["kinds"]}, number
