"""Capture files: JSON of every form, packed or not, Parquet with odd schemas.

An input starts with a byte that says what the rest is: "t" text, "p" the bytes of a Parquet file, "c" a
JSON object {column: values} of which one is written, anything else the bytes of the file as they are.
"""

from __future__ import annotations

import gzip
import io
import json
import tempfile
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from kpl_codec.captures import CAPTURE_SCHEMA, frames, plan, read_piece

from .. import corpus, invariants
from .target import Target, repeated

Rows = list[dict[str, Any]]
_FOLDER = tempfile.TemporaryDirectory(prefix="kpl-codec-fuzz-")


def rows_of(data: bytes, *, piece_bytes: int = 1 << 30) -> Rows:
    """Every row that comes out of a file."""
    path = Path(_FOLDER.name) / "capture"
    path.write_bytes(data)
    found: Rows = []
    for piece in plan([str(path)], piece_bytes=piece_bytes):
        for batch in read_piece(piece):
            assert batch.schema == CAPTURE_SCHEMA
            found += batch.to_pylist()
    return found


#: How files begin that are packed already, or hold one Kinesis record.
_NO_TEXT = (b"\x1f\x8b", b"BZh", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"\xf3\x89")


def captures(given: bytes) -> None:
    """Rows of records, or of what could not be read, with a place in the file; the same packed."""
    kind, data = given[:1], given[1:]
    if kind == b"c":
        data = parquet(data)
    rows = rows_of(data)
    assert rows, "a file without a row is lost in silence"
    for row in rows:
        assert 0 <= row["position"] <= max(len(data), len(rows))
        assert row["captureError"] is None or row["data"] is None
    if kind != b"t" or data[:4] == b"PAR1":
        return
    packed = rows_of(gzip.compress(data, 1, mtime=0))
    if data and not data.startswith(_NO_TEXT):
        assert packed == rows
    cut = rows_of(gzip.compress(data, 1, mtime=0)[:-9])
    assert [row["captureError"] for row in cut][-1:] != [None], "a file that broke off is told"


def columns_of(given: bytes) -> dict[str, list[Any]]:
    """Equally long columns out of any JSON."""
    try:
        value = json.loads(given)
    except (ValueError, RecursionError):
        value = None
    columns = value if isinstance(value, dict) else {"data": value}
    lists = {name: item if isinstance(item, list) else [item] for name, item in columns.items()}
    longest = max(map(len, lists.values()), default=0)
    return {name: list(islice(cycle(items or [None]), longest)) for name, items in lists.items()}


def parquet(given: bytes) -> bytes:
    """A Parquet file of `columns_of`; a column of one type as far as pyarrow finds one, else as text."""
    arrays: dict[str, pa.Array] = {}
    for name, items in columns_of(given).items():
        name = name.encode(errors="replace").decode()
        try:
            arrays[name] = pa.array(items)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            arrays[name] = pa.array([ascii(item) for item in items])
        if name.casefold() == "data" and arrays[name].type == pa.string():
            arrays[name] = arrays[name].cast(pa.binary())
    out = io.BytesIO()
    try:
        pq.write_table(pa.table(arrays), out)
    except pa.ArrowException:  # a type that Parquet does not have
        pq.write_table(pa.table({"data": pa.array([b"x"])}), out)
    return out.getvalue()


def seeds() -> list[bytes]:
    made: tuple[dict[str, list[Any]], ...] = (
        {"data": ["x"], "partitionKey": ["a"], "sequenceNumber": ["1"], "shardId": ["shardId-000000000000"]},
        {"data": ["x", None], "partition_key": ["a", None], "sequence_number": [1, 2]},
        {"data": ["x"], "approximateArrivalTimestamp": [0]},
        {"data": [{"a": 1}], "partitionKey": [[1]]},
        {"Data": ["x"], "PartitionKey": [7], "explicitHashKey": [1.5], "subSequenceNumber": ["1"]},
    )
    columns = [json.dumps(one).encode() for one in made]
    plain = parquet(columns[0])
    texts = list(corpus.events())[::5]
    return [
        *(b"t" + text for text in texts),
        b"t" + b"\n".join(texts[:3]),
        *(b"x" + gzip.compress(text, mtime=0) for text in texts[:2]),
        *(b"c" + column for column in columns),
        b"p" + plain,
    ]


def written(
    rows_per_byte: float = 0.01,
    *,
    data: Any = b"x" * 50,
    group: int = 1 << 20,
    columns: int = 0,
    keep: float = 1,
) -> Callable[[int], bytes]:
    """Parquet of about so many bytes: rows of ``data``, more ``columns`` or none; its first part is kept."""

    def make(size: int) -> bytes:
        rows = max(1, int(size * rows_per_byte))
        arrays = {"data": pa.array([data] * rows), "sequenceNumber": pa.array([str(n) for n in range(rows)])}
        arrays |= {f"column{n}": pa.nulls(rows, pa.int8()) for n in range(int(size * columns / 200))}
        out = io.BytesIO()
        pq.write_table(pa.table(arrays), out, row_group_size=group, compression="none", use_dictionary=False)
        return out.getvalue()[: int(keep * out.tell()) or None]

    return make


def page_damaged(size: int) -> bytes:
    """Parquet whose pages are overwritten, its footer not."""
    made = bytearray(written()(size))
    made[len(made) // 4 : len(made) // 2] = b"\xff" * (len(made) // 2 - len(made) // 4)
    return bytes(made)


_RECORD = (
    b'{"eventID":"shardId-000000000000:1","kinesis":{"data":"YQ==","partitionKey":"a","sequenceNumber":"1",'
    b'"approximateArrivalTimestamp":1.5}},'
)
#: An aggregated record whose digest is wrong.
_BROKEN = invariants.frame(b"\x0a\x01a\x1a\x04\x08\x00\x1a\x00")[:-1] + b"x"
#: Text that is no capture, or no JSON: `tests/adapters/test_json_stream.py` counts the work of it.
GROWN = {
    "records": repeated(_RECORD, head=b'{"Records":[', tail=b"{}]}"),
    "records without data": repeated(b'{"kinesis":{}},', head=b'{"Records":[', tail=b"{}]}"),
    "members": repeated(b'"a":1,', head=b"{", tail=b'"b":2}'),
    "broken base64": repeated(b"%", head=b'{"Records":[{"kinesis":{"data":"', tail=b'"}}]}'),
    "lines": repeated(b'{"Records":[{"Data":"YQ==","PartitionKey":"a","SequenceNumber":"1"}]}\n'),
    "Parquet": written(),
    "Parquet of large values": written(1 / 20_000, data=b"x" * 20_000),
    "Parquet of many row groups": written(0.002, group=1),
    "Parquet of many columns": written(0.0001, columns=1),
    "Parquet of lists": written(data=[b"x"] * 20),
    "Parquet that breaks off": written(keep=0.5),
    "Parquet with damaged pages": page_damaged,
    "magics": repeated(b"\xf3\x89\x9a\xc2"),
    "frames within frames, all broken": repeated(b"\xf3\x89\x9a\xc2\n\x04"),
    "frames whose digest is wrong": repeated(_BROKEN),
    "frames whose first field is long": repeated(b"\xf3\x89\x9a\xc2\n\x80\x80\x01"),
    "packed": lambda size: gzip.compress(repeated(b'{"a":1}\n')(size)),
}


def read_grown(data: bytes) -> None:
    """Broken frames are searched with as small a budget as makes `fuzz.growth` quick."""
    with mock.patch.object(frames, "_BUDGET", 1 << 22):
        rows_of(data)


TARGETS = {"captures": Target(captures, seeds, GROWN, work=read_grown)}
