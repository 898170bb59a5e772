"""``kpl-codec cat``: every user record once, from everything that holds Kinesis records."""

from __future__ import annotations

import base64
import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kpl_codec import UserRecord, encode
from kpl_codec.cli.main import main

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
LAMBDA = {
    "Records": [
        {"eventSource": "aws:kinesis", "eventID": "shardId-000000000003:7", "eventVersion": "1.0",
         "kinesis": {"kinesisSchemaVersion": "1.0", "sequenceNumber": "7", "partitionKey": "x",
                     "data": base64.b64encode(FRAME).decode(), "approximateArrivalTimestamp": 1767323045.0}}
    ]
}  # fmt: skip


@pytest.fixture
def capture(tmp_path: Path) -> str:
    path = tmp_path / "capture.jsonl"
    path.write_text(json.dumps(ANSWER) + "\n")
    return str(path)


def lines(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> list[dict[str, Any]]:
    assert main(["cat", *argv]) == code
    return [json.loads(row) for row in capsys.readouterr().out.splitlines()]


def test_a_line_for_each_user_record(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, _, plain = lines(capsys, capture)
    assert first == {
        "streamName": "orders", "shardId": "shardId-000000000003", "sequenceNumber": "7",
        "subSequenceNumber": 0, "partitionKey": "a",
        "approximateArrivalTimestamp": "2026-01-02T03:04:05+00:00", "aggregated": True,
        "data": "one",
    }  # fmt: skip
    assert base64.b64decode(second["dataBase64"]) == b"\xff\x00"
    assert "data" not in second
    assert (plain["aggregated"], plain["data"]) == (False, "plain")


def test_events_frames_and_standard_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "event.json").write_text(json.dumps(LAMBDA))
    (tmp_path / "frame.bin").write_bytes(FRAME)
    (tmp_path / "packed.json").write_bytes(gzip.compress(json.dumps(ANSWER).encode()))
    assert len(lines(capsys, str(tmp_path / "event.json"))) == 3
    assert len(lines(capsys, str(tmp_path / "frame.bin"))) == 3
    assert len(lines(capsys, str(tmp_path / "packed.json"), str(tmp_path / "event.json"))) == 7
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(LAMBDA).encode())))
    assert [row["shardId"] for row in lines(capsys, "-")] == ["shardId-000000000003"] * 3


def test_filters(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert [row["partitionKey"] for row in lines(capsys, capture, "--key", "a")] == ["a", "a"]
    assert lines(capsys, capture, "--shard-id", "shardId-000000000000") == []
    assert len(lines(capsys, capture, "--since", "2026-01-02T03:30:00Z")) == 1
    assert len(lines(capsys, capture, "--since", "5m")) == 0
    assert len(lines(capsys, capture, "--until", "2026-01-02T03:30:00")) == 3
    assert len(lines(capsys, capture, "--limit", "2")) == 2


def test_what_was_compressed(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = lines(capsys, capture, "--decompress")
    assert [row.get("data") for row in rows] == ["one", None, "packed", "plain"]
    assert base64.b64decode(rows[1]["dataBase64"]) == b"\xff\x00"


def test_what_is_defective_is_shown_and_what_is_unreadable_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "frame.bin").write_bytes(FRAME[:-1] + b"?")
    (tmp_path / "other.json").write_text('{"Records": [{"Data": 5}]}\n{')
    assert main(["cat", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    (row,) = map(json.loads, out.splitlines())
    assert row["defects"] == ["checksum-mismatch"]
    assert base64.b64decode(row["dataBase64"]) == FRAME[:-1] + b"?"
    assert err.count("other.json") >= 2


def test_where_a_defect_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the second of three records in one file: the file, the record's first byte, and the byte in it."""
    broken = FRAME[:-1] + b"?"
    (tmp_path / "joined.bin").write_bytes(FRAME + broken + FRAME)
    assert main(["cat", str(tmp_path / "joined.bin")]) == 1
    out, err = capsys.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    (row,) = [row for row in rows if "defects" in row]
    file, at = str(tmp_path / "joined.bin"), len(FRAME)
    assert (row["file"], row["position"], row["offset"]) == (file, at, at - 16)
    assert not any("file" in other for other in rows if other != row)
    place = f"{file} at file offset {at}, byte {at - 16} of the record"
    counts = "a Kinesis record that cannot be opened counts as one user record"
    text = f"1 of 7 user records is defective: checksum-mismatch (1); the first: {place}; {counts}; "
    assert text in err
    assert "explain checksum-mismatch" in err


def test_what_the_kcl_opened_before_is_not_opened_again_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = {"partitionKey": "x", "sequenceNumber": "7", "data": base64.b64encode(FRAME).decode(),
               "approximateArrivalTimestamp": 1767323045678}  # fmt: skip
    path = tmp_path / "messages.json"
    for before, found in ({}, 3), ({"subSequenceNumber": 0}, 1):
        records = [{"action": "record", **message, **before}]
        path.write_text(json.dumps({"action": "processRecords", "records": records}))
        assert len(lines(capsys, str(path), code=int(found == 1))) == found
    main(["cat", str(path)])
    assert "the KCL or its MultiLangDaemon has deaggregated the records" in capsys.readouterr().err


def test_what_standard_input_holds_is_not_told_by_a_temporary_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"no JSON")))
    assert main(["cat", "-"]) == 1
    assert capsys.readouterr().err.startswith("kpl-codec: standard input, line 1: json: ")


def test_what_is_broken_counts_also_when_the_reader_has_gone(tmp_path: Path) -> None:
    frame = base64.b64encode(FRAME[:-1] + b"?").decode()
    records = [{**ANSWER["Records"][0], "Data": frame, "SequenceNumber": str(n)} for n in range(2000)]
    (tmp_path / "broken.json").write_text(json.dumps({**ANSWER, "Records": records}))
    command = [sys.executable, "-m", "kpl_codec.cli.main", "cat", str(tmp_path / "broken.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 1


@pytest.mark.server
def test_follow_goes_through_a_split(kinesis_local: Any, stream: str, connection: list[str]) -> None:
    client = kinesis_local.client()

    def put(data: bytes) -> None:
        client.put_record(StreamName=stream, Data=data, PartitionKey="k")

    put(FRAME)
    command = [sys.executable, "-u", "-m", "kpl_codec.cli.main", "cat", *connection, "--follow"]
    with subprocess.Popen(
        [*command, "--since", "TRIM_HORIZON"], stdout=subprocess.PIPE, text=True
    ) as following:
        assert following.stdout is not None
        try:
            assert [json.loads(following.stdout.readline())["subSequenceNumber"] for _ in range(3)] == [
                0,
                1,
                2,
            ]
            for shard in ("shardId-000000000000", "shardId-000000000001"):
                listed = client.list_shards(StreamName=stream)["Shards"]
                keys = next(one["HashKeyRange"] for one in listed if one["ShardId"] == shard)
                middle = (int(keys["StartingHashKey"]) + int(keys["EndingHashKey"])) // 2
                client.split_shard(StreamName=stream, ShardToSplit=shard, NewStartingHashKey=str(middle))
                kinesis_local.wait_active(stream)
            put(b"late")
            assert json.loads(following.stdout.readline())["data"] == "late"
        finally:
            following.terminate()


def test_the_place_in_a_page_is_that_of_the_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`aws kinesis get-records` prints a page over many lines, and all of it begins in line 1."""
    broken = base64.b64encode(FRAME[:-1] + bytes([FRAME[-1] ^ 1])).decode()
    page = {**ANSWER, "Records": [{**ANSWER["Records"][1], "Data": broken} for _ in range(3)]}
    path = tmp_path / "page.json"
    path.write_text(json.dumps(page, indent=4))
    assert main(["cat", str(path)]) == 1
    captured = capsys.readouterr()
    assert [json.loads(row)["item"] for row in captured.out.splitlines()] == [0, 1, 2]
    assert "page.json line 1, Records[0], shardId-000000000003" in " ".join(captured.err.split())
    path.write_text(json.dumps(ANSWER["Records"][1]))
    assert "item" not in lines(capsys, str(path))[0]


@pytest.mark.parametrize("end", [40, 60, 90], ids=["within a name", "within a number", "within data"])
def test_a_file_that_ends_within_a_value_is_cut_short(
    end: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page.json"
    path.write_text(json.dumps(ANSWER)[:end])
    assert main(["cat", str(path)]) == 1
    assert f"cut short (byte {end};" in " ".join(capsys.readouterr().err.split())
