"""Files of other forms are named, each with a command that makes a capture of it."""

from __future__ import annotations

import base64
import bz2
import csv
import gzip
import io
import json
import lzma
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc
import pytest

import kpl_codec as kpl
from kpl_codec.captures.files import PIECE_BYTES
from tests.captures.test_account import LINES, gaps, read
from tests.captures.test_captures import FRAMES

JSON_LINES = b"\n".join(LINES)
#: What a program has made of the lines, as a table.
ROWS = [json.loads(line)["Records"][0] for line in LINES]
TABLE = pa.table({
    "data": [base64.b64decode(row["Data"]) for row in ROWS],
    "sequenceNumber": [row["SequenceNumber"] for row in ROWS],
})  # fmt: skip


def written(write: Callable[[Any], Any]) -> bytes:
    packed = io.BytesIO()
    write(packed)
    return packed.getvalue()


def piped(command: str, data: bytes) -> bytes:
    return subprocess.run(command, shell=True, input=data, capture_output=True, check=True).stdout


def arrow(new: Callable[[Any, pa.Schema], Any]) -> bytes:
    def write(file: Any) -> None:
        with new(file, TABLE.schema) as writer:
            writer.write_table(TABLE)

    return written(write)


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


def old_tar() -> bytes:
    """Without the magic, as programs wrote it before 1988."""
    header = bytearray(archive("made", tarfile.USTAR_FORMAT))
    header[257:265], header[148:156] = bytes(8), b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    return bytes(header)


def avro(file: Any) -> None:
    fields = [{"name": "data", "type": "bytes"}, {"name": "sequenceNumber", "type": "string"}]
    fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, TABLE.to_pylist())


def comma_separated() -> bytes:
    lines = io.StringIO()
    writer = csv.DictWriter(lines, ["sequenceNumber", "data"])
    writer.writeheader()
    writer.writerows({"sequenceNumber": row["SequenceNumber"], "data": row["Data"]} for row in ROWS)
    return lines.getvalue().encode()


def wide(encoding: str) -> bytes:
    return ("\n" + JSON_LINES.decode()).encode(encoding)


FRAME = FRAMES[0]
ZSTD, LZ4, LZ4_RAW = (pa.compress(JSON_LINES, name, asbytes=True) for name in ("zstd", "lz4", "lz4_raw"))
SKIPPABLE = b"\x5a\x2a\x4d\x18\3\0\0\0abc"
#: Files that are not read, and a word of the command that makes a capture of each.
OTHERS = {
    "bz2": (bz2.compress(JSON_LINES), "bunzip2"),
    "xz": (lzma.compress(JSON_LINES), "unxz"),
    "lzma": (lzma.compress(JSON_LINES, lzma.FORMAT_ALONE), "unlzma"),
    "zlib": (zlib.compress(JSON_LINES), "zlib"),
    "zstd": (ZSTD, "unzstd"),
    "zstd-skippable": (SKIPPABLE + ZSTD, "unzstd"),
    "lz4": (LZ4, "unlz4"),
    "lz4-legacy": (b"\x02\x21\x4c\x18" + len(LZ4_RAW).to_bytes(4, "little") + LZ4_RAW, "unlz4"),
    "snappy": (b"\xff\x06\x00\x00sNaPpY" + bytes(20), "snzip"),
    "snappy-java": (b"\x82SNAPPY\0\0\0\0\1" + bytes(20), "snappy-java"),
    "hadoop-snappy": (b"\0\0\x01\x20\0\0\0\xf0\x9f" + bytes(20), "hadoop-snappy"),
    "hadoop-snappy-large": (b"\0\4\0\0\0\1\x01\xf0\x9f" + bytes(20), "hadoop-snappy"),
    "gzip-in-gzip": (gzip.compress(gzip.compress(JSON_LINES)), "gunzip"),
    "zip": (written(zipped), "unzip"),
    "tar": (archive("made", tarfile.PAX_FORMAT), "tar -xf"),
    "tar-gnu": (archive("made", tarfile.GNU_FORMAT), "tar -xf"),
    "tar-of-a-bracket": (archive("[made", tarfile.PAX_FORMAT), "tar -xf"),
    "tar-old": (old_tar(), "tar -xf"),
    "orc": (written(lambda file: pyarrow.orc.write_table(TABLE, file)), "pyarrow.orc"),
    "arrow": (arrow(pa.ipc.new_file), "pyarrow.feather"),
    "arrow-stream": (arrow(pa.ipc.new_stream), "pyarrow.ipc"),
    "avro": (written(avro), "fastavro"),
    "sqlite": (b"SQLite format 3\0" + FRAME, "Parquet"),
    "cbor": (b"\xbf\x67Records\x81\xa1\x64Data\x58" + bytes([len(FRAME)]) + FRAME + b"\xff", "JSON"),
    "messagepack": (b"\x81\xa7Records\x91\x81\xa4Data\xc4" + bytes([len(FRAME)]) + FRAME, "JSON"),
    "ion": (b"\xe0\x01\x00\xea" + FRAME, "JSON"),
    **{name: (wide(name), f"iconv -f {name.upper()} ") for name in ("utf-16", "utf-32")},
    **{
        name: (wide(name), f"iconv -f {name.upper()[:6]}{name.upper()[7:]} ")
        for name in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
    },
    "base64": (base64.b64encode(FRAME), "base64 -d"),
    "base64-of-gzip": (base64.encodebytes(gzip.compress(JSON_LINES)), "base64 -d"),
    "base64-of-json": (b'"' + base64.urlsafe_b64encode(JSON_LINES) + b'"', "base64 -d"),
    "hex": (FRAME.hex().encode(), "xxd -r -p"),
    "hex-0x": (b"0x" + FRAME.hex().upper().encode(), "xxd -r -p"),
    "hex-of-sql": (b"\\x" + FRAME.hex().encode(), "xxd -r -p"),
    "hex-colons": (FRAME.hex(":").encode(), "xxd -r -p"),
    "hex-list": (b", ".join(b"0x%02x" % byte for byte in FRAME), "xxd -r -p"),
    "hex-of-gzip": (gzip.compress(JSON_LINES).hex(" ").encode(), "xxd -r -p"),
    "xxd": (piped("xxd", FRAME), "xxd -r FILE"),
    "xxd-one-line": (piped("xxd", FRAME[:15]), "xxd -r FILE"),
    "xxd-long-lines": (piped("xxd -c 64", FRAME), "xxd -p"),
    "xxd-of-json": (piped("xxd -g 1", JSON_LINES), "xxd -r FILE"),
    "xxd-of-gzip": (piped("xxd", gzip.compress(JSON_LINES)), "xxd -r FILE"),
    "xxd-words": (piped("xxd -e", FRAME), "xxd -p"),
    "xxd-decimal": (piped("xxd -d", FRAME), "xxd -p"),
    "hexdump": (piped("hexdump", FRAME), "xxd -p"),
    "hexdump-C": (piped("hexdump -C", JSON_LINES), "xxd -p"),
    "od": (piped("od", FRAME), "xxd -p"),
    "od-bytes": (piped("od -t x1", FRAME), "xxd -p"),
    "node": (b"<Buffer f3 89 9a c2 0a>", "writeFileSync"),
    "node-records": (b"{\n  Records: [\n    { Data: <Buffer f3>, PartitionKey: 'k' }\n  ]\n}", "stringify"),
    "java": (b"[-13, -119, -102, -62, 10, 2]", "Files.write"),
    "java-name": (b"[B@1b6d3586", "JSON"),
    "java-record": (b"Record(SequenceNumber=1, Data=SdkBytes(bytes=0xf3899ac2))", "base64"),
    "java-records": (b"GetRecordsResponse(Records=[Record(SequenceNumber=1)])", "base64"),
    "java-old": (b"{SequenceNumber: 1,Data: java.nio.HeapByteBuffer[pos=0 lim=8 cap=8]}", "JSON"),
    "scala": (b"Array(-13, -119, -102, -62, 10)", "Files.write"),
    "go": (b"[243 137 154 194 10 5]", "Base64"),
    "rust": (b"Record { sequence_number: \"1\", data: Blob { inner: [243, 137] } }", "JSON"),
    "ruby": (b'{"Data"=>"\\xF3\\x89"}', "JSON"),
    "python": (b"{'Data': b'\\xf3\\x89', 'PartitionKey': 'k'}", "json.dumps"),
    "python-bytes": (repr(FRAME).encode(), "literal_eval"),
    "python-records": (repr([kpl.KinesisRecord("k", FRAME, "1")]).encode(), "JSON"),
    "csv": (comma_separated(), "csv"),
    "aws-text": (b"RECORDS\t1700000000.0\tZDE=\tk\t4959\n", "--output json"),
    "aws-yaml": (b"Records:\n- Data: ZDE=\n", "--output json"),
    "spark-show": (b"+----+---+\n|data|key|\n+----+---+\n", "Parquet"),
    "xml": (b'<?xml version="1.0"?>\n<Error><Code>NoSuchKey</Code></Error>', "download"),
    "pdf": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "captures themselves"),
}  # fmt: skip


#: Those made of an aggregated record.
OF_A_FRAME = {
    *("base64", "hex", "hex-0x", "hex-of-sql", "hex-colons", "hex-list", "xxd", "xxd-one-line"),
    "python-bytes",
}


@pytest.mark.requirement("SPK-14", "ACC-1")
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "in-gzip"])
@pytest.mark.parametrize("form", OTHERS)
def test_a_form_that_is_not_read_is_named_with_what_converts_it(
    form: str, packed: bool, tmp_path: Path
) -> None:
    """And the command makes a capture of it that is read whole, where there is such a program."""
    content, word = OTHERS[form]
    path = tmp_path / "capture"
    path.write_bytes(gzip.compress(content) if packed else content)
    for piece_bytes in (max(20, len(content) // 50), PIECE_BYTES):
        (row,), account = read(path, piece_bytes)
        assert row["captureError"] == "other-form"
        assert word in row["captureText"]
        assert gaps(path, account) == []
    command = re.search(r"\(((?:\S+/)?([\w-]+) .*(FILE|NEW).*)\)", row["captureText"])
    if packed or command is None or not shutil.which(command[2]):
        return
    text = command[1].partition(", or ")[0].replace("python3", sys.executable)
    text = text.replace("FILE", "capture").replace("NEW", "made")
    subprocess.run(text, shell=True, check=True, cwd=tmp_path)
    (made,) = (file for file in tmp_path.iterdir() if file != path)
    rows, account = read(made)
    assert gaps(made, account) == []
    wanted = [FRAME] if form in OF_A_FRAME else TABLE["data"].to_pylist()
    wanted = [FRAME[:15]] if form == "xxd-one-line" else wanted
    assert [row["data"] for row in rows] == wanted


@pytest.mark.requirement("SPK-14")
@pytest.mark.parametrize(
    "head", [b"{broken: 1}", b"{'a': 1}", b"sequenceNumber,data", b"+--+\n|", b"Record(a=1)", bytes(8)]
)
def test_values_behind_a_line_that_is_something_else_are_read(head: bytes, tmp_path: Path) -> None:
    (tmp_path / "capture").write_bytes(head + b"\n" + JSON_LINES)
    rows, _ = read(tmp_path)
    assert [row["data"] for row in rows if row["captureError"] is None] == TABLE["data"].to_pylist()
    assert any(row["captureError"] for row in rows)
