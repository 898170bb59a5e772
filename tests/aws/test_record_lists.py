"""Lists of records to read (``--only``): each line, and each item of a list, gives records or is named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.aws.fetch_by_sequence_number import RecordLocation, UnreadableEntry, find_sequence_numbers

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
    *("sequence_number", "# failed", "shard,seq", "no JSON", '"no number"', "-5", "4.95e55", "true"),
    *('""', "{}", "[]"),
    *('{"sequenceNumber": "7"}', '{"body": "eyJhIjogMX0="}', '{"message": "could not handle [7]"}'),
    '{"KinesisBatchInfo": {"startSequenceNumber": "9", "endSequenceNumber": "8"}}',
    '{"KinesisBatchInfo": {"startSequenceNumber": "x", "endSequenceNumber": "8"}}',
    '{"KinesisBatchInfo": {"startSequenceNumber": "7"}}',
    '{"KinesisBatchInfo": {}}',
    '{"Records": [{"body": "{\\"KinesisBatchInfo\\": {\\"endSequenceNumber\\": \\"8\\"}}"}]}',
    '{"DDBStreamBatchInfo": {"startSequenceNumber": "7", "endSequenceNumber": "8"}}',
]
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
