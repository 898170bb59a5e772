"""``kpl-codec cat``: every user record once, from everything that holds Kinesis records."""

from __future__ import annotations

import base64
import gzip
import json
import os
from pathlib import Path
from typing import Any

from kpl_codec import UserRecord, encode

from .commands import run

USERS = [UserRecord("a", b"one"), UserRecord("b", b"\xff\x00"), UserRecord("a", gzip.compress(b"packed"))]
FRAME = encode(USERS)
ANSWER = {
    "StreamName": "orders",
    "ShardId": "shardId-000000000003",
    "Records": [
        {"SequenceNumber": "7", "PartitionKey": "x", "Data": base64.b64encode(FRAME).decode(),
         "ApproximateArrivalTimestamp": "2026-01-02T03:04:05Z"},
        {"SequenceNumber": "9", "PartitionKey": "plain", "Data": base64.b64encode(b"plain").decode(),
         "ApproximateArrivalTimestamp": "2026-01-02T04:00:00Z"},
    ],
}  # fmt: skip


def lines(*argv: str, code: int = 0, stdin: bytes = b"") -> list[dict[str, Any]]:
    ended = run(["cat", *argv], stdin=stdin)
    assert ended.status == code
    return [json.loads(row) for row in ended.out.splitlines()]


def written(path: Path, value: Any) -> str:
    path.write_text(json.dumps(value))
    return str(path)


def test_a_line_for_each_user_record(tmp_path: Path) -> None:
    capture = written(tmp_path / "capture.json", ANSWER)
    first, second, _, plain = lines(capture)
    assert first == {
        "streamName": "orders", "shardId": "shardId-000000000003", "sequenceNumber": "7",
        "subSequenceNumber": 0, "partitionKey": "a",
        "approximateArrivalTimestamp": "2026-01-02T03:04:05+00:00", "aggregated": True,
        "data": "one",
    }  # fmt: skip
    assert base64.b64decode(second["dataBase64"]) == b"\xff\x00"
    assert "data" not in second
    assert (plain["aggregated"], plain["data"]) == (False, "plain")
    rows = lines(capture, "--decompress")
    assert [row.get("data") for row in rows] == ["one", None, "packed", "plain"]
    assert base64.b64decode(rows[1]["dataBase64"]) == b"\xff\x00"
    assert len(lines(capture, "--since", "5m")) == 0
    assert len(lines(capture, "--until", "2026-01-02T03:30:00")) == 3
    assert len(lines(capture, "--limit", "2")) == 2


def test_frames_packed_files_and_standard_input(tmp_path: Path) -> None:
    frame, packed = (str(tmp_path / name) for name in ("frame.bin", "packed.json"))
    Path(frame).write_bytes(FRAME)
    Path(packed).write_bytes(gzip.compress(json.dumps(ANSWER).encode()))
    assert len(lines(packed, frame)) == 7
    shards = [row["shardId"] for row in lines("-", stdin=json.dumps(ANSWER).encode())]
    assert shards == ["shardId-000000000003"] * 4
    # It has no temporary name.
    ended = run("cat -", stdin=b"no JSON")
    assert ended.status == 1
    assert ended.err.startswith("kpl-codec: standard input, line 1: json: ")


def test_where_a_defect_is(tmp_path: Path) -> None:
    """Of the second of three records in one file: the file, the record's first byte, and the byte in it. In a
    page of `aws kinesis get-records`, which is printed over many lines: which of its records."""
    broken = FRAME[:-1] + b"?"
    file, at = str(tmp_path / "joined.bin"), len(FRAME)
    Path(file).write_bytes(FRAME + broken + FRAME)
    status, out, err = run(["cat", file])
    rows = [json.loads(line) for line in out.splitlines()]
    (row,) = [row for row in rows if "defects" in row]
    assert (status, row["file"], row["position"], row["offset"]) == (1, file, at, at - 16)
    assert (row["defects"], base64.b64decode(row["dataBase64"])) == (["checksum-mismatch"], broken)
    assert not any("file" in other for other in rows if other != row)
    place = f"{file} at file offset {at}, byte {at - 16} of the record"
    counts = "a Kinesis record that cannot be opened counts as one user record"
    text = f"1 of 7 user records is defective: checksum-mismatch (1); the first: {place}; {counts}; "
    assert text in err
    assert "explain checksum-mismatch" in err

    one = {**ANSWER["Records"][1], "Data": base64.b64encode(broken).decode()}
    page = tmp_path / "page.json"
    page.write_text(json.dumps({**ANSWER, "Records": [one] * 3}, indent=4))
    ended = run(["cat", str(page)])
    assert [json.loads(row)["item"] for row in ended.out.splitlines()] == [0, 1, 2]
    assert f"{page} line 1, Records[0], shardId-000000000003" in ended.err
    assert "item" not in lines(written(page, ANSWER["Records"][1]))[0]


def test_what_the_kcl_opened_before_is_not_opened_again_and_says_so(tmp_path: Path) -> None:
    message = {"partitionKey": "x", "sequenceNumber": "7", "data": base64.b64encode(FRAME).decode(),
               "approximateArrivalTimestamp": 1767323045678}  # fmt: skip
    for before, found in ({}, 3), ({"subSequenceNumber": 0}, 1):
        records = [{"action": "record", **message, **before}]
        path = written(tmp_path / "messages.json", {"action": "processRecords", "records": records})
        assert len(lines(path, code=int(found == 1))) == found
    assert "the KCL or its MultiLangDaemon has deaggregated the records" in run(["cat", path]).err


def test_what_is_broken_counts_also_when_the_reader_has_gone(tmp_path: Path) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    (tmp_path / "broken.bin").write_bytes(FRAME[:-1] + b"?")
    with open(writes, "w") as left_by_its_reader:
        ended = run(["cat", str(tmp_path / "broken.bin")], stdout=left_by_its_reader)
    assert ended.status == 1
    assert "1 of 1 user record is defective" in ended.err


def test_what_is_unreadable_is_said_and_a_file_that_ends_within_a_value_is_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "page.json"
    path.write_text('{"Records": [{"Data": 5}]}\n{')
    assert run(["cat", str(path)]).err.count("page.json") >= 2
    for end in (40, 60, 90):  # within a name, a number, data
        path.write_text(json.dumps(ANSWER)[:end])
        ended = run(["cat", str(path)])
        assert ended.status == 1
        assert f"cut short (byte {end};" in ended.err
