"""Reading just the records that somebody names."""

from __future__ import annotations

import json
from collections.abc import Callable
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


def place(one: dict[str, str]) -> str:
    return f"{one['shardId']}:{one['sequenceNumber']}"


def notice(*records: dict[str, Any]) -> dict[str, Any]:
    """What Lambda puts into a queue where a batch failed for good."""
    return {
        "requestContext": {"condition": "RetryAttemptsExhausted"},
        "KinesisBatchInfo": {
            "shardId": records[0]["shardId"],
            "startSequenceNumber": records[0]["sequenceNumber"],
            "endSequenceNumber": records[-1]["sequenceNumber"],
            "batchSize": len(records),
        },
    }


#: Lists of records in every form in which somebody may have them.
LISTS: dict[str, Callable[[list[dict[str, Any]]], str]] = {
    "numbers, one a line": lambda records: "\n".join(r["sequenceNumber"] for r in records),
    "texts, one a line": lambda records: "\n".join(json.dumps(r["sequenceNumber"]) for r in records),
    "a list of texts": lambda records: json.dumps([r["sequenceNumber"] for r in records]),
    "a list of numbers": lambda records: json.dumps([int(r["sequenceNumber"]) for r in records]),
    "shards and numbers": lambda records: "\n".join(map(place, records)),
    "a list of them": lambda records: json.dumps([*map(place, records)]),
    "a notice": lambda records: json.dumps(notice(*records)),
    "a notice in SQS": lambda records: json.dumps(
        {"Records": [{"messageId": "1", "body": json.dumps(notice(*records))}]}
    ),
    "a notice in SNS": lambda records: json.dumps(
        {"Records": [{"EventSource": "aws:sns", "Sns": {"Message": json.dumps(notice(*records))}}]}
    ),
    "a message of SQS": lambda records: json.dumps({"Messages": [{"Body": json.dumps(notice(*records))}]}),
    "notices that overlap": lambda records: "\n".join(
        map(json.dumps, [notice(*records[:2]), notice(*records[1:]), notice(*records), place(records[0])])
    ),
}


@pytest.mark.requirement("CHN-3")
@pytest.mark.parametrize("form", LISTS)
def test_every_form_of_a_list_gives_every_record_once(form: str, client: Any, stream: str) -> None:
    listed = [put_one(client, stream, b"x") for _ in range(3)]
    locations = find_sequence_numbers(LISTS[form](listed).encode())
    items = list(fetch_records(client, stream, locations))
    assert sorted(item.sequence_number for item in items if isinstance(item, kpl.KinesisRecord)) == [
        one["sequenceNumber"] for one in listed
    ]
    assert len(items) == 3


@pytest.mark.requirement("CHN-3")
def test_a_notice_names_records_that_the_stream_does_not_hold(client: Any, stream: str) -> None:
    listed = [put_one(client, stream, b"x") for _ in range(2)]
    first, last = (record["sequenceNumber"] for record in listed)
    shard_id = listed[0]["shardId"]
    for location, held in (
        (RecordLocation(shard_id, first, last=last, size=5), 2),  # three have gone
        (RecordLocation(shard_id, str(int(first) + 1), last=last), 1),
        (RecordLocation(shard_id, first, last=str(int(last) + 1)), 2),
        (RecordLocation(shard_id, str(int(last) + 1), last=str(int(last) + 2)), 0),
    ):
        *records, gone = fetch_records(client, stream, [location])
        assert len(records) == held
        assert isinstance(gone, GoneRecord)
        assert gone.location == location
    range_of_no_stream = RecordLocation(shard_id, first, last=last)
    (gone,) = fetch_records(client, "never-made", [range_of_no_stream])
    assert isinstance(gone, GoneRecord)
    assert "never-made" in gone.reason  # and not: the stream holds none of it


@pytest.mark.requirement("CHN-4")
def test_what_names_another_stream_is_not_read(client: Any, stream: str) -> None:
    one = put_one(client, stream, b"x")
    for name, read in ((stream, True), ("payments", False)):
        arn = f"arn:aws:kinesis:us-east-1:000000000000:stream/{name}"
        batch = notice(one)
        batch["KinesisBatchInfo"]["streamArn"] = arn
        for document in (batch, {"body": json.dumps(batch)}):
            (item,) = fetch_records(client, stream, find_sequence_numbers(json.dumps(document).encode()))
            assert isinstance(item, kpl.KinesisRecord) == read
            assert read or (isinstance(item, GoneRecord) and name in item.reason)


@pytest.mark.requirement("CHN-4")
def test_a_range_with_more_records_than_its_batch_is_named_behind_them(client: Any, stream: str) -> None:
    first, _, last = (put_one(client, stream, b"x") for _ in range(3))
    place = RecordLocation(first["shardId"], first["sequenceNumber"], last=last["sequenceNumber"])
    assert len([*fetch_records(client, stream, [place.replace(size=3)])]) == 3
    *records, more = fetch_records(client, stream, [place.replace(size=2)])
    assert len(records) == 3
    assert isinstance(more, UnreadableEntry)
    assert "3 records, and the batch had 2" in more.reason
