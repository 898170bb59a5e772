"""Lists of records to read (``--only``): each line, and each item of a list, gives records or is named; and
what a stream gives for them."""

from __future__ import annotations

import json
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

from ..every import every

FIRST = 49545115243490985018280067714973144582180062593244200961
SHARD = "shardId-000000000001"
ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
BATCH = {"shardId": SHARD, "startSequenceNumber": str(FIRST), "endSequenceNumber": str(FIRST + 5)}


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


#: The first of three numbers that say their shard themselves.
HINTED = 49587497311274533994574834252742144236107130636007899138
OF_IT = "shardId-000000000000"
RECORDS = [{"shardId": OF_IT, "sequenceNumber": str(HINTED + (number << 80))} for number in range(3)]
NUMBERS = [record["sequenceNumber"] for record in RECORDS]
NOTICE = json.dumps(notice(*RECORDS))
#: Lists of the three records in every form in which somebody may have them.
LISTS = {
    "numbers, one a line": "\n".join(NUMBERS),
    "texts, one a line": "\n".join(map(json.dumps, NUMBERS)),
    "a list of texts": json.dumps(NUMBERS),
    "a list of numbers": json.dumps([*map(int, NUMBERS)]),
    "shards and numbers": "\n".join(map(place, RECORDS)),
    "a list of them": json.dumps([*map(place, RECORDS)]),
    "a notice": NOTICE,
    "a notice in SQS": json.dumps({"Records": [{"messageId": "1", "body": NOTICE}]}),
    "a notice in SNS": json.dumps({"Records": [{"EventSource": "aws:sns", "Sns": {"Message": NOTICE}}]}),
    "a message of SQS": json.dumps({"Messages": [{"Body": NOTICE}]}),
}


@pytest.mark.requirement("CHN-3")
@every("form", LISTS)
def test_every_form_of_a_list_names_every_record_once(form: str) -> None:
    found = find_sequence_numbers(LISTS[form].encode())
    each = [RecordLocation(OF_IT, number) for number in NUMBERS]
    batch = [RecordLocation(OF_IT, NUMBERS[0], last=NUMBERS[2], size=3)]
    assert found == (batch if "KinesisBatchInfo" in LISTS[form] else each)


#: Lines with one number.
WITH_NUMBER: dict[str, Any] = {
    "a number": lambda number: number,
    "text": json.dumps,
    "a shard before it": lambda number: f"{SHARD}:{number}",
    "a list of one": lambda number: f'["{number}"]',
    "a carriage return": lambda number: f"{number}\r",
    "a comma behind it": lambda number: f"{number},",
}
#: Lines without one.
WITHOUT = [
    "sequence_number", "# failed", "shard,seq", "no JSON", '"no number"', "-5", "4.95e55", "true",
    '""', "{}", "[]",
    '{"sequenceNumber": "7"}', '{"body": "eyJhIjogMX0="}', '{"message": "could not handle [7]"}',
    '{"KinesisBatchInfo": {"startSequenceNumber": "9", "endSequenceNumber": "8"}}',
    '{"KinesisBatchInfo": {"startSequenceNumber": "x", "endSequenceNumber": "8"}}',
    '{"KinesisBatchInfo": {"startSequenceNumber": "7"}}',
    '{"KinesisBatchInfo": {}}',
    '{"Records": [{"body": "{\\"KinesisBatchInfo\\": {\\"endSequenceNumber\\": \\"8\\"}}"}]}',
    '{"DDBStreamBatchInfo": {"startSequenceNumber": "7", "endSequenceNumber": "8"}}',
]  # fmt: skip
#: What stands open takes lines behind it along, and names them; what closes nothing holds nothing.
BRACKETS = ["]", "}", '{"a": ', "'"]


@pytest.mark.requirement("CHN-3")
@given(st.lists(st.sampled_from([*WITH_NUMBER, *WITHOUT, *BRACKETS, "", ""]), max_size=12))
def test_each_line_gives_its_number_or_is_named(kinds: list[str]) -> None:
    text, expected = [], []
    for line, kind in enumerate(kinds, 1):
        number = str(FIRST + line)
        text.append(WITH_NUMBER[kind](number) if kind in WITH_NUMBER else kind)
        if kind:
            expected.append((line, number if kind in WITH_NUMBER else None))
    found = find_sequence_numbers("\n".join(text).encode())
    numbers = {one.sequence_number for one in found if isinstance(one, RecordLocation)}
    named = {one.line for one in found if isinstance(one, UnreadableEntry)}
    assert numbers <= {number for _, number in expected}
    for line, number in expected:
        is_read = number in numbers if number else bool(set(kinds) & {*BRACKETS})
        assert is_read or line in named, (line, text)


@pytest.mark.requirement("CHN-3")
@every("bad", [None, "", "LATEST", 4.9e55, True, {}, {"error": "x"}, []])
def test_each_item_of_a_list_names_its_record_or_is_named(bad: Any) -> None:
    found = find_sequence_numbers(json.dumps([str(FIRST), bad, FIRST + 1]).encode())
    numbers = [one.sequence_number for one in found if isinstance(one, RecordLocation)]
    assert numbers == [str(FIRST), str(FIRST + 1)]
    assert [one.line for one in found if isinstance(one, UnreadableEntry)] == [1]


@pytest.mark.requirement("CHN-3", "CHN-4")
@every("size", [3, "3", 3.0])
def test_the_size_of_a_batch_may_be_text(size: Any) -> None:
    notice = {"KinesisBatchInfo": {**BATCH, "batchSize": size, "streamArn": ARN}}
    assert find_sequence_numbers(json.dumps(notice).encode()) == [
        RecordLocation(SHARD, str(FIRST), last=str(FIRST + 5), size=3, stream=ARN)
    ]


@pytest.mark.requirement("CHN-3", "CAP-12")
@every("unit", ["[", '{"a":[', "[[ ", '{"a":"'])
def test_hostile_brackets_are_named(unit: str) -> None:
    for text in (f"x {unit * 20_000}", json.dumps({"body": unit * 20_000})):
        (entry,) = find_sequence_numbers(text.encode())
        assert isinstance(entry, UnreadableEntry)


def test_text_is_refused_with_what_to_give() -> None:
    with pytest.raises(TypeError, match="data of find_sequence_numbers is of type str, give bytes"):
        find_sequence_numbers("49545115243490985018280067714973144582180062593244200961")  # type: ignore[arg-type]


# -- what a stream gives for them -----------------------------------------------------------------------


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


@pytest.mark.server
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


@pytest.mark.server
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
