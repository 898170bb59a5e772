"""Files of other forms are named, never called plain, and never read in part."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import lzma
import re
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pytest

from kpl_codec.captures.files import PIECE_BYTES
from tests.captures.test_account import LINES
from tests.captures.test_captures import FRAMES, gaps
from tests.captures.test_captures import read_all as read

JSON_LINES = b"\n".join(LINES)
#: What a program has made of the lines, as a table.
TABLE = pa.table({"data": [b"%d" % number for number in range(6)], "sequenceNumber": ["1"] * 6})


def written(write: Callable[[Any], Any]) -> bytes:
    packed = io.BytesIO()
    write(packed)
    return packed.getvalue()


def archive(name: str, kind: int) -> bytes:
    def write(file: Any) -> None:
        with tarfile.open(fileobj=file, mode="w", format=kind) as tar:
            member = tarfile.TarInfo(name)
            member.size = len(JSON_LINES)
            tar.addfile(member, io.BytesIO(JSON_LINES))

    return written(write)


def zipped(file: Any) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("made", JSON_LINES)


def avro(file: Any) -> None:
    import fastavro

    fields = [{"name": "data", "type": "bytes"}, {"name": "sequenceNumber", "type": "string"}]
    fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, TABLE.to_pylist())


def wide(encoding: str) -> bytes:
    return ("\n" + JSON_LINES.decode()).encode(encoding)


FRAME = FRAMES[0]
ZSTD, LZ4 = (pa.compress(JSON_LINES, name, asbytes=True) for name in ("zstd", "lz4"))
#: Files of forms that are known, and a word of what makes a capture of each.
KNOWN = {
    "bz2": (bz2.compress(JSON_LINES), "bunzip2"),
    "xz": (lzma.compress(JSON_LINES), "unxz"),
    "zstd": (ZSTD, "unzstd"),
    "lz4": (LZ4, "unlz4"),
    "gzip-in-gzip": (gzip.compress(gzip.compress(JSON_LINES)), "gunzip"),
    "zip": (written(zipped), "unzip"),
    "tar": (archive("made", tarfile.PAX_FORMAT), "tar -xf"),
    "tar-gnu": (archive("made", tarfile.GNU_FORMAT), "tar -xf"),
    "tar-of-a-bracket": (archive("[made", tarfile.PAX_FORMAT), "tar -xf"),
    "orc": (written(partial(pyarrow.orc.write_table, TABLE)), "Parquet"),
    "arrow": (written(partial(pyarrow.feather.write_feather, TABLE)), "Parquet"),
    "avro": (written(avro), "Parquet"),
    "utf-16": (wide("utf-16"), "UTF-8"),
    "utf-32": (wide("utf-32"), "UTF-8"),
    "csv": (b"sequenceNumber,data\n" + b"".join(b"%d,ZDE=\n" % n for n in range(6)), "JSON"),
    "aws-text": (b"0\tAAAA\nRECORDS\t1700000000.0\tZDE=\tk\t4959\n", "--output json"),
    **{
        f"base64-{name}": (separator.join(map(base64.b64encode, FRAMES)) + b"\n", "base64 -di")
        for name, separator in (("lines", b"\n"), ("tabs", b"\t"))
    },
    "base64-folded": (b"".join(map(base64.encodebytes, FRAMES)), "base64 -di"),
    "base64-url-safe": (b"\n".join(map(base64.urlsafe_b64encode, FRAMES)), "base64 -di"),
    "base64-list": (b'["%b"]' % b'", "'.join(map(base64.b64encode, FRAMES)), "base64 -di"),
}  # fmt: skip
#: Files of forms that are not known.
UNKNOWN = {
    "lzma": lzma.compress(JSON_LINES, lzma.FORMAT_ALONE),
    "zlib": zlib.compress(JSON_LINES),
    "arrow-stream": b"".join(part.serialize() for part in (TABLE.schema, *TABLE.to_batches())),
    "sqlite": b"SQLite format 3\0" + bytes(20),
    "utf-16-le": wide("utf-16-le"),
    "base64-of-gzip": base64.encodebytes(gzip.compress(JSON_LINES)),
    "base64-of-json": b'"' + base64.urlsafe_b64encode(JSON_LINES) + b'"',
    "hex": FRAME.hex().encode(),
    "hex-list": b", ".join(b"0x%02x" % byte for byte in FRAME),
    "hexdump": b"".join(
        b"%07x %s\n" % (at, FRAME[at : at + 16].hex(" ").encode()) for at in range(0, len(FRAME), 16)
    ),
    "node": b"<Buffer f3 89 9a c2 0a>",
    "node-records": b"{\n  Records: [\n    { Data: <Buffer f3>, PartitionKey: 'k' }\n  ]\n}",
    "java": b"[-13, -119, -102, -62, 10, 2]",
    "java-record": b"Record(SequenceNumber=1, Data=SdkBytes(bytes=0xf3899ac2))",
    "go": b"[243 137 154 194 10 5]",
    "ruby": b'{"Data"=>"\\xF3\\x89"}',
    "python": b"{'Data': b'\\xf3\\x89', 'PartitionKey': 'k'}",
    "python-bytes": repr(FRAME).encode(),
    "aws-yaml": b"Records:\n- Data: ZDE=\n",
    "xml": b'<?xml version="1.0"?>\n<Error><Code>NoSuchKey</Code></Error>',
}


@pytest.mark.requirement("SPK-14", "ACC-1")
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "in-gzip"])
def test_a_form_that_is_known_is_one_error_with_what_to_do(packed: bool, tmp_path: Path) -> None:
    """However small its pieces are."""
    wrong = []
    for form, (content, word) in KNOWN.items():
        path = tmp_path / form
        path.write_bytes(gzip.compress(content) if packed else content)
        for piece_bytes in (max(20, len(content) // 50), PIECE_BYTES):
            rows, account = read(path, piece_bytes)
            named = [(row["captureError"], word in row["captureText"]) for row in rows]
            if named != [("other-form", True)] or gaps(path, account):
                wrong.append((form, rows))
    assert wrong == []


@pytest.mark.requirement("SPK-14", "ACC-1")
def test_a_form_that_is_not_known_is_an_error_with_its_first_bytes(tmp_path: Path) -> None:
    """Only what is JSON in spite of that, a list of numbers or a text, is told as such."""
    wrong = []
    for form, content in UNKNOWN.items():
        path = tmp_path / form
        path.write_bytes(content)
        rows, account = read(path)
        told = " ".join(str(row["captureText"]) for row in rows)
        shown = repr(content.lstrip(b"[ ")[:1])[2:-1] in told or form in ("java", "base64-of-json")
        if not rows or not all(row["captureError"] for row in rows) or not shown or gaps(path, account):
            wrong.append((form, rows))
    assert wrong == []


@pytest.mark.requirement("SPK-14", "CAP-14")
def test_the_command_for_a_text_of_base64_reads_all_of_it(tmp_path: Path) -> None:
    """As it is printed."""
    for form, (content, word) in KNOWN.items():
        if word == "base64 -di":
            (tmp_path / "FILE").write_bytes(content)
            (row,), _ = read(tmp_path / "FILE")
            (command,) = re.findall(r"\((tr .*)\)$", row["captureText"])
            subprocess.run(command, shell=True, check=True, cwd=tmp_path)
            rows, _ = read(tmp_path / "NEW")
            assert [row["data"] for row in rows] == FRAMES, form


@pytest.mark.requirement("SPK-14", "CAP-14")
def test_what_is_behind_something_else_is_read(tmp_path: Path) -> None:
    """Behind a plain record that begins as another form, and behind a line that is none of JSON."""
    packed = (
        gzip.compress(b"x"),
        zlib.compress(b"x"),
        pa.compress(b"hello", "zstd", asbytes=True),
        b"ORCHARD",
        b"\xff\xfe",
    )
    lines = (b"{broken: 1}", b"{'a': 1}", b"sequenceNumber,data", b"+--+\n|", b"Record(a=1)", bytes(8))
    contents = [(first + FRAME + FRAME, [FRAME, FRAME]) for first in packed]
    contents += [(line + b"\n" + JSON_LINES, TABLE["data"].to_pylist()) for line in lines]
    for content, wanted in contents:
        (tmp_path / "capture").write_bytes(content)
        rows, _ = read(tmp_path)
        assert [row["data"] for row in rows if row["captureError"] is None] == wanted, content[:20]
        assert any(row["captureError"] for row in rows), content[:20]
