"""Reading just the records that somebody names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import kpl_codec as kpl
from kpl_codec.aws.fetch_by_sequence_number import (
    GoneRecord,
    RecordLocation,
    UnreadableEntry,
    fetch_records,
    find_sequence_numbers,
)
from kpl_codec.cli.main import main

from .test_record_lists import notice, place

pytestmark = pytest.mark.server


def put_one(client: Any, stream: str, data: bytes) -> dict[str, str]:
    """A record on the last shard; where it is, as a list of errors says it."""
    last = str((1 << 128) - 1)
    response = client.put_record(StreamName=stream, PartitionKey="k", Data=data, ExplicitHashKey=last)
    names = {"shardId": response["ShardId"], "sequenceNumber": response["SequenceNumber"]}
    return {**names, "errorCode": "Invalid"}


def put(client: Any, stream: str, count: int = 3) -> list[dict[str, str]]:
    """Aggregates on a stream; where each is."""
    records = [
        [kpl.UserRecord("k", b"%d.%d" % (number, user)) for user in range(4)] for number in range(count)
    ]
    return [put_one(client, stream, kpl.encode(users)) for users in records]


@pytest.mark.requirement("CHN-3")
def test_just_the_records_that_a_list_names(
    client: Any, stream: str, kinesis_local: Any, tmp_path: Path, capsys: Any
) -> None:
    first, second, third = put(client, stream)
    gone = {**first, "sequenceNumber": str(int(second["sequenceNumber"]) + 1)}
    numbers_file = tmp_path / "numbers.txt"
    lines = [place(third), place(first), place(gone), "4.95e55"]
    numbers_file.write_text("\n".join(lines))
    items = list(fetch_records(client, stream, find_sequence_numbers(numbers_file.read_bytes())))
    types = [kpl.KinesisRecord, kpl.KinesisRecord, GoneRecord, UnreadableEntry]
    assert [type(item) for item in items] == types
    assert items[0].sequence_number == third["sequenceNumber"]
    source = ["--stream", stream, "--endpoint-url", kinesis_local.endpoint_url, "--region", "us-east-1"]
    assert main(["cat", *source, "--only", str(numbers_file)]) == 1
    shown = capsys.readouterr()
    data = [json.loads(line)["data"] for line in shown.out.splitlines()]
    assert data == [f"{number}.{user}" for number in (2, 0) for user in range(4)]
    assert gone["sequenceNumber"] in shown.err
    assert "--only, line 4" in shown.err
    out = tmp_path / "out"
    assert main(["validate", *source, "--only", str(numbers_file), "--output", str(out), "--quiet"]) == 1
    findings = {finding["kind"]: finding["line"] for finding in pq.read_table(out / "findings").to_pylist()}
    assert findings.keys() >= {"capture-gone", "capture-only"}
    assert findings["capture-only"] == 4
    empty = tmp_path / "empty.json"
    empty.write_text("{}")
    assert main(["cat", *source, "--only", str(empty)]) == 2
    assert "no sequence number" in capsys.readouterr().err
    assert list(fetch_records(client, stream, [RecordLocation(None, "5")])) == [
        GoneRecord(RecordLocation(None, "5"), "its shard is not known: put the shardId beside it")
    ]


@pytest.mark.requirement("CHN-3", "CHN-4")
def test_a_notice_gives_its_records_once_and_names_what_the_stream_does_not_hold(
    client: Any, stream: str
) -> None:
    listed = [put_one(client, stream, b"x") for _ in range(3)]
    shard_id = listed[0]["shardId"]
    first, middle, last = (record["sequenceNumber"] for record in listed)
    overlap = [notice(*listed[:2]), notice(*listed[1:]), notice(*listed), place(listed[0])]
    locations = find_sequence_numbers("\n".join(map(json.dumps, overlap)).encode())
    items = list(fetch_records(client, stream, locations))
    assert [item.sequence_number for item in items if isinstance(item, kpl.KinesisRecord)] == [
        *(first, middle, last)
    ]
    assert len(items) == 3
    whole = RecordLocation(shard_id, first, last=last)
    for location, held in (
        (whole.replace(size=5), 3),  # two have gone
        (RecordLocation(shard_id, str(int(first) + 1), last=last), 2),
        (RecordLocation(shard_id, first, last=str(int(last) + 1)), 3),
        (RecordLocation(shard_id, str(int(last) + 1), last=str(int(last) + 2)), 0),
    ):
        *records, gone = fetch_records(client, stream, [location])
        assert len(records) == held
        assert isinstance(gone, GoneRecord)
        assert gone.location == location
    assert len([*fetch_records(client, stream, [whole.replace(size=3)])]) == 3
    *records, more = fetch_records(client, stream, [whole.replace(size=2)])
    assert len(records) == 3
    assert isinstance(more, UnreadableEntry)
    assert "3 records, and the batch had 2" in more.reason
    # Another stream's are not read; of one that is not there it is not said that it holds none of them.
    arns = {name: f"arn:aws:kinesis:us-east-1:000000000000:stream/{name}" for name in (stream, "payments")}
    for name, arn in arns.items():
        batch = notice(listed[0])
        batch["KinesisBatchInfo"]["streamArn"] = arn
        for document in (batch, {"body": json.dumps(batch)}):
            (item,) = fetch_records(client, stream, find_sequence_numbers(json.dumps(document).encode()))
            assert isinstance(item, kpl.KinesisRecord if name == stream else GoneRecord)
            assert name == stream or name in item.reason
    (gone,) = fetch_records(client, "never-made", [whole])
    assert isinstance(gone, GoneRecord)
    assert "never-made" in gone.reason
