"""Reading just the records that somebody names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
def test_just_the_records_that_a_dead_letter_object_names(
    client: Any, stream: str, kinesis_local: Any, tmp_path: Path, capsys: Any
) -> None:
    first, second, third = put(client, stream)
    gone = {**first, "sequenceNumber": str(int(second["sequenceNumber"]) + 1)}
    errors_file = tmp_path / "errors.json"
    documents = [third, {"failures": [{"record": first}, gone]}, {"sequenceNumber": 1e55}]
    errors_file.write_text("\n".join(map(json.dumps, documents)))
    items = list(fetch_records(client, stream, find_sequence_numbers(errors_file.read_bytes())))
    types = [kpl.KinesisRecord, kpl.KinesisRecord, GoneRecord, UnreadableEntry]
    assert [type(item) for item in items] == types
    assert items[0].sequence_number == third["sequenceNumber"]
    source = ["--stream", stream, "--endpoint-url", kinesis_local.endpoint_url, "--region", "us-east-1"]
    assert main(["cat", *source, "--only", str(errors_file), "--data-only"]) == 1
    shown = capsys.readouterr()
    assert shown.out.split() == [f"{number}.{user}" for number in (2, 0) for user in range(4)]
    assert gone["sequenceNumber"] in shown.err
    assert "--only, line 3" in shown.err
    out = tmp_path / "out"
    assert main(["validate", *source, "--only", str(errors_file), "--output", str(out), "--quiet"]) == 1
    findings = {finding["kind"]: finding["line"] for finding in pq.read_table(out / "findings").to_pylist()}
    assert findings.keys() >= {"capture-gone", "capture-only"}
    assert findings["capture-only"] == 3
    empty = tmp_path / "empty.json"
    empty.write_text("{}")
    assert main(["cat", *source, "--only", str(empty)]) == 2
    assert "no sequence number" in capsys.readouterr().err
    assert list(fetch_records(client, stream, [RecordLocation(None, "5")])) == [
        GoneRecord(RecordLocation(None, "5"), "its shard is not known: put the shardId beside it")
    ]


NAMES = ("sequenceNumber", "SequenceNumber", "sequence_number", "SEQUENCENUMBER")


@given(
    st.lists(
        st.tuples(st.integers(0, 10**30).map(str), st.sampled_from(NAMES), st.integers(0, 3), st.booleans()),
        max_size=6,
    ),
    st.booleans(),
)
@pytest.mark.requirement("CHN-3")
def test_every_sequence_number_is_found_wherever_it_is(rows: list[Any], as_list: bool) -> None:
    documents = []
    for number, name, depth, as_text in rows:
        value: Any = {name: number, "shardId": "shardId-000000000001", "error": "{not json"}
        for _ in range(depth):
            value = {"inner": [value]}
        documents.append({"body": json.dumps(value)} if as_text else value)
    text = json.dumps(documents) if as_list else "\n".join(map(json.dumps, documents))
    expected = dict.fromkeys(RecordLocation("shardId-000000000001", number) for number, *_ in rows)
    assert find_sequence_numbers(text.encode()) == list(expected)
    plain = "\n".join(number for number, *_ in rows).encode()
    assert [location.sequence_number for location in find_sequence_numbers(plain)] == [
        location.sequence_number for location in expected
    ]


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
    "objects": lambda records: "\n".join(map(json.dumps, records)),
    "JSON numbers": lambda records: json.dumps(
        [{**r, "sequenceNumber": int(r["sequenceNumber"])} for r in records]
    ),
    "numbers, one a line": lambda records: "\n".join(r["sequenceNumber"] for r in records),
    "texts, one a line": lambda records: "\n".join(json.dumps(r["sequenceNumber"]) for r in records),
    "a list of texts": lambda records: json.dumps([r["sequenceNumber"] for r in records]),
    "a list of numbers": lambda records: json.dumps([int(r["sequenceNumber"]) for r in records]),
    "lists in lists": lambda records: json.dumps([[[r["sequenceNumber"]] for r in records]]),
    "one member for all": lambda records: json.dumps(
        {"shardId": records[0]["shardId"], "sequenceNumber": [r["sequenceNumber"] for r in records]}
    ),
    "several spellings in one object": lambda records: json.dumps(
        dict(zip(NAMES, (r["sequenceNumber"] for r in records), strict=False))
    ),
    "event ids of Lambda": lambda records: json.dumps(
        [{"eventID": f"{r['shardId']}:{r['sequenceNumber']}"} for r in records]
    ),
    "a notice": lambda records: json.dumps(notice(*records)),
    "a notice in SQS": lambda records: json.dumps(
        {"Records": [{"messageId": "1", "body": json.dumps(notice(*records))}]}
    ),
    "notices that overlap": lambda records: "\n".join(
        map(json.dumps, [notice(*records[:2]), notice(*records[1:]), notice(*records), *records])
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
        (RecordLocation(shard_id, first, last, 5), 2),  # three have gone
        (RecordLocation(shard_id, str(int(first) + 1), last), 1),
        (RecordLocation(shard_id, first, str(int(last) + 1)), 2),
        (RecordLocation(shard_id, str(int(last) + 1), str(int(last) + 2)), 0),
    ):
        *records, gone = fetch_records(client, stream, [location])
        assert len(records) == held
        assert isinstance(gone, GoneRecord)
        assert gone.location == location
    range_of_no_stream = RecordLocation(shard_id, first, last)
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
        event = {"Records": [{"eventSourceARN": arn, "kinesis": {"sequenceNumber": one["sequenceNumber"]}}]}
        event["Records"][0]["eventID"] = f"{one['shardId']}:{one['sequenceNumber']}"
        for document in (batch, event, {**one, "streamName": name}):
            (item,) = fetch_records(client, stream, find_sequence_numbers(json.dumps(document).encode()))
            assert isinstance(item, kpl.KinesisRecord) == read
            assert read or (isinstance(item, GoneRecord) and name in item.reason)


@pytest.mark.requirement("CHN-4")
def test_a_range_with_more_records_than_its_batch_is_named_behind_them(client: Any, stream: str) -> None:
    first, _, last = (put_one(client, stream, b"x") for _ in range(3))
    place = first["shardId"], first["sequenceNumber"], last["sequenceNumber"]
    assert len([*fetch_records(client, stream, [RecordLocation(*place, 3)])]) == 3
    *records, more = fetch_records(client, stream, [RecordLocation(*place, 2)])
    assert len(records) == 3
    assert isinstance(more, UnreadableEntry)
    assert "3 records, and the batch had 2" in more.reason


@pytest.mark.requirement("CHN-3")
@pytest.mark.parametrize(
    "bad",
    [
        '{"shardId": "shardId-000000000001", "sequenceNumber": "495',
        '{"sequenceNumber": 4.954511524349098e+55}',
        '{"sequenceNumber": "4954.5"}',
        '{"sequenceNumber": ""}',
        '{"sequenceNumber": true}',
        '"no number"',
        "-5",
        "no JSON",
        '{"KinesisBatchInfo": {"startSequenceNumber": "9", "endSequenceNumber": "8"}}',
        '{"KinesisBatchInfo": {"startSequenceNumber": "x", "endSequenceNumber": "8"}}',
        '{"KinesisBatchInfo": {"startSequenceNumber": "7"}}',
        '{"KinesisBatchInfo": {"endSequenceNumber": "8", "startSequenceNumber": null}}',
        '{"sequenceNumber": []}',
        '{"sequenceNumber": {"N": "7"}}',
        '{"sequenceNumber": "[7"}',
        '{"DDBStreamBatchInfo": {"startSequenceNumber": "7", "endSequenceNumber": "8"}}',
    ],
)
def test_an_entry_that_cannot_be_read_is_named_with_its_line(bad: str) -> None:
    good = '{"shardId": "shardId-000000000001", "sequenceNumber": "12"}'
    first, entry, *rest = find_sequence_numbers(f"{good}\n{bad}\n{good}\n".encode())
    assert first == RecordLocation("shardId-000000000001", "12")
    assert isinstance(entry, UnreadableEntry)
    assert entry.line == 2
    assert all(isinstance(item, UnreadableEntry) for item in rest)


@pytest.mark.requirement("CHN-3")
@pytest.mark.parametrize(
    ("document", "numbers"),
    [
        ({"batchItemFailures": [{"itemIdentifier": "N1"}, {"itemIdentifier": "N2"}]}, ["N1", "N2"]),
        ({"batchItemFailures": [{"itemIdentifier": "shardId-000000000003:N1"}]}, ["N1"]),
        ({"sequenceNumbers": ["N1", "N2"]}, ["N1", "N2"]),
        (["N1", "N2"], ["N1", "N2"]),
        ({"message": "could not handle it"}, []),
        ({"message": "could not handle [N1] at [12, 3]"}, ["N1"]),
        ({"message": '[ERROR] of {"app": [{"sequenceNumber": "N1"}]} and ["N2"]'}, ["N1", "N2"]),
        ({"log": {"message": "[" * 3000 + 'failed: {"body": "so: [N1, 7]"}'}}, ["N1"]),
        ({"message": "could not handle [12, 3]"}, []),
        ({"body": "eyJhIjogMX0="}, []),
    ],
    ids=[
        "handler",
        "pipe",
        "plural",
        "list",
        "message",
        "list-in-message",
        "several-in-message",
        "message-in-message",
        "other-list-in-message",
        "base64",
    ],
)
def test_each_document_gives_numbers_or_is_named(document: object, numbers: list[str]) -> None:
    """With its line, also beside a document that gives some."""
    first = 49590338271490256608559692538361571095921575989136588898
    text = json.dumps(document)
    for n in (1, 2):
        text = text.replace(f"N{n}", str(first + n))
    found = find_sequence_numbers(f"{json.dumps({'sequenceNumber': str(first)})}\n{text}".encode())
    known = [one.sequence_number for one in found if isinstance(one, RecordLocation)]
    assert known == [str(first), *(str(first + int(name[1])) for name in numbers)]
    assert [one.line for one in found if isinstance(one, UnreadableEntry)] == ([] if numbers else [2])
