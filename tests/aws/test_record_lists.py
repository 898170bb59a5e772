"""Lists of records to read (``--only``): each line, and each item of a list, gives records or is named."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.aws.fetch_by_sequence_number import RecordLocation, UnreadableEntry, find_sequence_numbers

FIRST = 49545115243490985018280067714973144582180062593244200961
SHARD, OTHER = "shardId-000000000001", "shardId-000000000002"
ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"


def found(text: str) -> tuple[list[str], list[UnreadableEntry]]:
    entries = find_sequence_numbers(text.encode())
    locations = [one.sequence_number for one in entries if isinstance(one, RecordLocation)]
    return locations, [one for one in entries if isinstance(one, UnreadableEntry)]


def lines_named(entries: list[UnreadableEntry]) -> set[int]:
    """The lines that ``entries`` name: one each, or up to another."""
    lines: set[int] = set()
    for entry in entries:
        assert entry.line is not None
        to = re.search(r"; so are the lines to (\d+)$", entry.reason)
        lines.update(range(entry.line, int(to[1]) + 1 if to else entry.line + 1))
    return lines


#: Lines with one number.
WITH_NUMBER: dict[str, Any] = {
    "a number": lambda number: number,
    "text": json.dumps,
    "a shard before it": lambda number: f"{SHARD}:{number}",
    "an object": lambda number: json.dumps({"sequenceNumber": number}),
    "an answer": lambda number: json.dumps({"batchItemFailures": [{"itemIdentifier": number}]}),
    "a line of a log": lambda number: (
        f'2026-01-02 ERROR {{"batchItemFailures":[{{"itemIdentifier":"{number}"}}]}}'
    ),
    "a list in a log": lambda number: f"[app] failed: [{number}]",
    "a carriage return": lambda number: f"{number}\r",
    "nothing but a comma behind it": lambda number: f"{number},",
}
#: Lines without one.
WITHOUT = [
    "sequence_number",
    "# failed",
    "Traceback (most recent call last):",
    "shard,seq",
    '{"a": ',
    "]",
    "}",
    "'",
]


@pytest.mark.requirement("CHN-3")
@given(
    st.lists(st.one_of(st.sampled_from([*WITH_NUMBER]), st.sampled_from(WITHOUT), st.just("")), max_size=12)
)
def test_each_line_gives_its_number_or_is_named(kinds: list[str]) -> None:
    numbers, text, without = [], [], set()
    for line, kind in enumerate(kinds, 1):
        if kind in WITH_NUMBER:
            numbers.append(str(FIRST + line))
            text.append(WITH_NUMBER[kind](numbers[-1]))
        else:
            text.append(kind)
            without |= {line} if kind else set()
    locations, entries = found("\n".join(text))
    named = lines_named(entries)
    kept = set(locations)
    for line, kind in enumerate(kinds, 1):
        if kind in WITH_NUMBER:
            assert str(FIRST + line) in kept or line in named, (line, kind, text)
    # What stands open before may take a line along, and then names it.
    assert named <= without | {line for line, kind in enumerate(kinds, 1) if kind in WITH_NUMBER}
    if not any(kind in ('{"a": ', "]", "}", "'") for kind in kinds):
        assert locations == numbers
        assert named == without


@pytest.mark.requirement("CHN-3")
@pytest.mark.parametrize("bad", [None, "", "LATEST", 4.9e55, True, {}, {"error": "x"}, "absent"])
@pytest.mark.parametrize("around", ["batchItemFailures", "failures", "sequenceNumbers"])
def test_each_item_of_a_list_names_its_record_or_is_named(bad: Any, around: str) -> None:
    member = "itemIdentifier" if around == "batchItemFailures" else "sequenceNumber"
    item = {} if bad == "absent" else {member: bad}
    good = [{member: str(FIRST)}, {member: str(FIRST + 1)}]
    locations, entries = found(json.dumps({around: [good[0], item, good[1]]}))
    assert locations == [str(FIRST), str(FIRST + 1)]
    assert [entry.line for entry in entries] == [1]


@pytest.mark.requirement("CHN-3")
@pytest.mark.parametrize("member", ["failed", "records", "ids", "batchItemFailures"])
@pytest.mark.parametrize("as_number", [True, False])
def test_a_list_of_numbers_is_read_whatever_it_is_called(member: str, as_number: bool) -> None:
    numbers = [FIRST + n for n in range(3)]
    items = numbers if as_number else [*map(str, numbers)]
    assert found(json.dumps({member: items, "sizes": [1, 2, 3]})) == ([*map(str, numbers)], [])


@pytest.mark.requirement("CHN-3", "CHN-4")
@pytest.mark.parametrize("size", [3, "3", 3.0])
def test_the_size_of_a_batch_may_be_text(size: Any) -> None:
    batch = {"shardId": SHARD, "startSequenceNumber": str(FIRST), "endSequenceNumber": str(FIRST + 5)}
    notice = {"KinesisBatchInfo": {**batch, "batchSize": size, "streamArn": ARN}}
    assert find_sequence_numbers(json.dumps(notice).encode()) == [
        RecordLocation(SHARD, str(FIRST), str(FIRST + 5), 3, ARN)
    ]


@pytest.mark.requirement("CHN-3")
@pytest.mark.parametrize(
    "batch", [{}, {"shardId": SHARD}, {"startSequenceNumber": None, "endSequenceNumber": None}]
)
def test_a_notice_without_its_range_is_named_beside_others(batch: dict[str, Any]) -> None:
    document = {"KinesisBatchInfo": batch, "before": {"sequenceNumber": str(FIRST)}}
    locations, entries = found(json.dumps(document))
    assert locations == [str(FIRST)]
    assert [entry.line for entry in entries] == [1]


@pytest.mark.requirement("CHN-4")
@pytest.mark.parametrize(
    "member",
    ["eventSourceARN", "streamArn", "StreamARN", "stream_arn", "streamName", "stream_name", "consumerArn"],
)
def test_the_stream_of_a_list_is_known_in_every_spelling(member: str) -> None:
    stream = "orders" if "name" in member.lower() else ARN
    given_as = f"{ARN}/consumer/app:1" if member == "consumerArn" else stream
    for document in (
        {member: given_as, "sequenceNumber": str(FIRST)},
        {member: given_as, "batchItemFailures": [{"itemIdentifier": str(FIRST)}]},
    ):
        (location,) = find_sequence_numbers(json.dumps(document).encode())
        assert isinstance(location, RecordLocation)
        assert location.stream == stream


@pytest.mark.requirement("CHN-3", "CAP-12")
@pytest.mark.parametrize("unit", ["[", '{"a":[', "[[ ", '{"a":"'])
def test_hostile_brackets_are_named(unit: str) -> None:
    for text in (f"x {unit * 20_000}", json.dumps({"message": f"x {unit * 20_000}"})):
        locations, entries = found(text)
        assert locations == []
        assert entries
