"""What comes from outside in any shape: events of Lambda, answers of Kinesis, listings, files of commands.
Each gives its records, or one error of ours. Bytes of records and captures have targets in `fuzz`."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aws_lambda_powertools.utilities.data_classes import KinesisStreamEvent
from botocore.exceptions import ClientError
from hypothesis import example, given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from fuzz import corpus
from fuzz.invariants import check_json_listing, check_listing
from kpl_codec import adapters, aws_lambda
from kpl_codec.adapters.events_in import is_about_time
from kpl_codec.arrow import deaggregate_table
from kpl_codec.aws.cursor import ShardCursor
from kpl_codec.aws_lambda import aio
from kpl_codec.aws_lambda.events import records_of_event
from kpl_codec.aws_lambda.firehose import transform_user_records
from kpl_codec.aws_lambda.parser import KinesisUserRecordModel
from kpl_codec.aws_lambda.powertools import UserRecordBatchProcessor, user_record_event
from kpl_codec.captures.capture_rows import CaptureRows
from kpl_codec.shards.live_shard_map import Failure, StreamUnavailable
from kpl_codec.shards.starting_position import TRIM_HORIZON
from kpl_codec.testing import strategies as kst
from kpl_codec.watch import LastHour, ShardCall, Watch

from ..aws_lambda.conftest import load
from ..cli.commands import run as run_command
from ..examples import examples
from ..watch.model import START, ModelStream, open_map, run

ODD = (
    None, True, 0, -1, 2**63, 2**128, -(2**200), 1.5, float("nan"), [], {}, [[]], {"": None}, [None],
    "", "a", "007", "9" * 400, "\ud800", "\0\x1b[2J", "٣", "2026-01-01T00:00:00Z", "AAAA", "shardId-1",
)  # fmt: skip


@cache
def events() -> list[Any]:
    """Of each event of Lambda there is one more: somebody before has deaggregated its records, and each
    lacks what a record may lack."""
    found = [json.loads(event) for event in corpus.events()]
    opened = deepcopy([event for event in found if "kinesis" in str(event) and "Records" in event])
    times = (1767323045250, "2026-01-02T03:04", 1e300)  # milliseconds, no time, and none that there is
    for at, event in enumerate(opened):
        for number, record in enumerate(event["Records"]):
            kinesis = record["kinesis"]
            kinesis |= {"subSequenceNumber": number << 33, "approximateArrivalTimestamp": times[at % 3]}
            del kinesis[("partitionKey", "approximateArrivalTimestamp")[number % 2]]
    return found + opened


@cache
def transformations() -> list[Any]:
    return [event for event in events() if "recordId" in str(event)]


@cache
def listings() -> list[Any]:
    return [json.loads(listing.partition(b"\n")[0]) for listing in corpus.listings()]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every list or object under ``value`` with each of its keys."""
    items = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    for key, item in items:
        yield value, key
        yield from places(item)


@st.composite
def changed(draw: st.DrawFn, *sources: Callable[[], list[Any]]) -> Any:
    """A JSON document of ``sources`` with up to three places changed, taken away or copied."""
    documents = draw(st.sampled_from(sources))()
    root = [deepcopy(documents[draw(st.integers(0, len(documents) - 1))])]
    for _ in range(draw(st.integers(0, 3))):
        found = list(places(root))
        container, key = found[draw(st.integers(0, len(found) - 1))]
        other, other_key = found[draw(st.integers(0, len(found) - 1))]
        what = draw(st.sampled_from(["odd", "odd", "take away", "copy"]))
        if what == "take away" and container is not root:
            del container[key]
        elif what == "copy":
            container[key] = deepcopy(other[other_key])
        else:
            container[key] = deepcopy(draw(st.sampled_from(ODD)))
    return root[0]


# -- events ---------------------------------------------------------------------------------------------


def rows(records: Iterable[Any]) -> list[tuple[Any, ...]]:
    return [
        (record.sequence_number, record.partition_key, record.data, record.sub_sequence_number)
        for record in records
    ]


def by_asyncio(event: Any) -> tuple[list[Any], Any]:
    handled: list[Any] = []

    async def handle(record: Any) -> None:
        handled.append(record)

    answer = aio.run(aio.process_user_records(event, handle, after_failure="continue", concurrency=2))
    return sorted(rows(handled), key=repr), answer


def by_powertools(event: Any) -> tuple[list[Any], Any]:
    handled: list[Any] = []

    def handle(record: Any) -> None:
        kinesis = record.kinesis
        assert isinstance(kinesis.approximate_arrival_timestamp, float | None)
        place = kinesis.sequence_number, kinesis.partition_key
        handled.append((*place, kinesis.data_as_bytes(), kinesis.sub_sequence_number))

    processor = UserRecordBatchProcessor(raise_on_entire_batch_failure=False)
    with processor(event["Records"], handle):
        processor.process()
    assert all(issubclass(kind, kpl.KplError) for kind, *_ in processor.exceptions)
    return sorted(handled, key=repr), processor.response()


def by_models(event: Any) -> tuple[list[Any], list[str]]:
    """A model that refuses a user record fails its Kinesis record. Gives the numbers of these, too."""
    models: list[Any] = []
    processor = UserRecordBatchProcessor(model=KinesisUserRecordModel, raise_on_entire_batch_failure=False)
    with processor(event["Records"], lambda record: models.append(record.kinesis)):
        processor.process()
    failed = [failure["itemIdentifier"] for failure in processor.response()["batchItemFailures"]]
    return [(one.sequenceNumber, one.partitionKey, one.data, one.subSequenceNumber) for one in models], failed


def by_own_class(event: Any) -> list[Any]:
    """The event of user records, as JSON, read with Powertools' own class."""
    ours = KinesisStreamEvent(json.loads(json.dumps(user_record_event(event))))
    return [
        (one.sequence_number, one.partition_key, one.data_as_bytes(), one["subSequenceNumber"])
        for one in (record.kinesis for record in ours.records)
    ]


def by_columns(records: list[kpl.KinesisRecord]) -> list[Any]:
    """The columns that `validate` makes of a capture."""
    captured = CaptureRows(None)
    for record in records:
        captured.record(record, "orders")
    found: list[Any] = []
    for batch in captured.take():
        table = deaggregate_table(batch, "report").table
        names = ("sequenceNumber", "partitionKey", "data", "subSequenceNumber")
        columns = [table[name].to_pylist() for name in names]
        found += [row for row in zip(*columns, strict=True) if row[3] is not None]
    return found


def check_each_way(event: Any) -> None:
    found = list(adapters.captured(event))
    records = [one for one in found if isinstance(one, kpl.KinesisRecord)]
    position = 0
    for one in found:
        # What is about the time of a record comes behind it.
        position -= is_about_time(one)
        if not isinstance(one, kpl.KinesisRecord):
            assert one.position == position
            assert str(one)
        position += 1
    report = kpl.deaggregate(records, "report")
    assert len(list(report)) >= len(records)  # one without a user record has a row that says why
    with contextlib.suppress(kpl.CaptureError, kpl.DecodeError):
        list(kpl.deaggregate(adapters.kinesis_records(event)))
    handled: list[Any] = []
    try:
        answer = aws_lambda.process_user_records(event, handled.append, after_failure="continue")
    except kpl.CaptureError:
        return
    except ValueError:
        assert "isFinalInvokeForWindow" in event  # LMB-9
        return
    expected, sound = [], []
    for record in records:
        with contextlib.suppress(kpl.DecodeError):
            expected += rows(list(kpl.deaggregate([record])))
            sound.append(record)
    opened = records_of_event(event)
    poison = list(dict.fromkeys(unit.identifier for unit in opened if unit.poison is not None))
    assert answer == {"batchItemFailures": [{"itemIdentifier": number} for number in poison]}
    assert rows(handled) == expected
    in_any_order = sorted(expected, key=repr)
    assert by_asyncio(event) == (in_any_order, answer)
    if isinstance(event, dict):  # Powertools takes no list of EventBridge Pipes
        assert by_powertools(event) == (in_any_order, answer)
        models, failed = by_models(event)
        assert not Counter(models) - Counter(expected)
        assert {row[0] for row in (Counter(expected) - Counter(models))} <= {*failed}
        is_of_lambda = event in events() and "eventSourceARN" in str(event)
        assert not is_of_lambda or failed == poison
    if not poison:
        assert by_own_class(event) == expected
    assert by_columns(sound) == expected


@pytest.mark.requirement("CAP-1", "CAP-4")
@settings(max_examples=examples(400))
@given(changed(events), st.booleans())
def test_an_event_gives_the_same_user_records_in_each_way_or_capture_error(event: Any, last: bool) -> None:
    check_each_way({**event, "isFinalInvokeForWindow": True} if last and isinstance(event, dict) else event)


@pytest.mark.requirement("CAP-3", "CAP-13", "DAG-3", "DAG-8")
def test_what_a_record_may_lack_is_lacking_in_each_way() -> None:
    for event in events():
        check_each_way(event)


@pytest.mark.requirement("LMB-5")
@settings(max_examples=examples(600))
@given(changed(transformations))
@example(load("analytics_firehose.json"))
@example(load("analytics_stream.json"))
@example(load("firehose_direct_put.json"))
@example(load("firehose_kinesis_source.json"))
def test_a_transformation_answers_each_record_id_once_in_order(event: Any) -> None:
    """And hands on the user records that any other way gives, each with its delimiter."""
    poisons: list[Any] = []
    handled: list[Any] = []

    def handle(record: kpl.DeaggregatedRecord) -> bytes:
        handled.append(record)
        return record.data

    try:
        answer = transform_user_records(event, handle, delimiter=b"\n", on_poison=poisons.append)
    except kpl.CaptureError as error:
        assert str(error)
        given = event.get("records") if isinstance(event, dict) else None
        given = given if isinstance(given, list) else [None]
        assert not all(isinstance(one, dict) and isinstance(one.get("recordId"), str) for one in given)
        return
    ids = [record["recordId"] for record in event["records"]]
    assert all(isinstance(one, str) for one in ids)
    assert [record["recordId"] for record in answer["records"]] == ids
    results = [record["result"] for record in answer["records"]]
    assert set(results) <= {"Ok", "Dropped", "ProcessingFailed"}
    assert results.count("ProcessingFailed") >= len(poisons)
    if not poisons:
        assert rows(handled) == rows(kpl.deaggregate(adapters.kinesis_records(event)))
        data = b"".join(base64.b64decode(record.get("data", "")) for record in answer["records"])
        assert data == b"".join(record.data + b"\n" for record in handled)


# -- listings -------------------------------------------------------------------------------------------


@settings(max_examples=examples(1000))
@given(changed(listings))
def test_a_listing_gives_a_map_that_finds_what_linear_search_finds_or_shard_map_error(pages: Any) -> None:
    check_json_listing(json.dumps(pages).encode())
    if isinstance(pages, list | dict):
        check_listing(pages, [])


# -- answers of Kinesis: members of the right types, as botocore makes them, or none -----------------------

TIMES = st.sampled_from([START, 0, 2**31]).map(lambda at: datetime.fromtimestamp(at, timezone.utc))
ITERATOR = st.sampled_from(["0", "1", "", "x"])


def lacking(members: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """All of ``members``, or all but one or two."""
    left_out = st.sets(st.sampled_from(sorted(members)), max_size=2) | st.just(set[str]())
    return st.builds(
        lambda whole, left_out: {name: value for name, value in whole.items() if name not in left_out},
        st.fixed_dictionaries(members),
        left_out,
    )


RECORDS = lacking(
    {
        "Data": st.sampled_from([b"", b"a", kpl.encode([kpl.UserRecord("a", b"x")])]),
        "PartitionKey": st.sampled_from(["k", "", "\ud800"]),
        "SequenceNumber": st.sampled_from(["5", "6", "5" * 60, "", "x"]),
        "ApproximateArrivalTimestamp": TIMES,
    }
)
ANSWERS = st.sampled_from(
    ["ExpiredIteratorException", "ProvisionedThroughputExceededException", "AccessDeniedException"]
) | lacking(
    {
        "ShardIterator": ITERATOR,
        "NextShardIterator": ITERATOR,
        "MillisBehindLatest": st.sampled_from([0, 5, -1, 10**12]),
        "Records": st.lists(RECORDS, max_size=3),
    }
)


class Client:
    """Kinesis as boto3 shows it: the given answers first, then those of an empty shard that is closed."""

    def __init__(self, answers: list[Any]) -> None:
        self._answers = iter(answers)

    def get_shard_iterator(self, **_: Any) -> Any:
        return self._answer({"ShardIterator": "i"})

    def get_records(self, **_: Any) -> Any:
        return self._answer({"Records": [], "MillisBehindLatest": 0, "NextShardIterator": None})

    def _answer(self, proper: dict[str, Any]) -> Any:
        answer = next(self._answers, proper)
        if isinstance(answer, str):
            raise ClientError({"Error": {"Code": answer, "Message": ""}}, "GetRecords")
        return answer


@settings(max_examples=examples(200))
@given(st.lists(ANSWERS, max_size=6))
def test_a_reader_gives_records_or_stream_unavailable(answers: list[Any]) -> None:
    now = [0.0]
    cursor = ShardCursor(
        Client(answers), "orders", "shardId-000000000000", TRIM_HORIZON, patience=60.0, chance=lambda: 0.5,
        sleep=lambda seconds: now.__setitem__(0, now[0] + seconds), clock=lambda: now[0],
    )  # fmt: skip
    try:
        while not cursor.ended:
            page = cursor.fetch()
            assert page.ended == cursor.ended
            for record in page.records:
                assert isinstance(record["Data"], bytes)
                assert isinstance(record["SequenceNumber"], str)
    except StreamUnavailable as error:
        assert str(error)


class OddStream(ModelStream):
    """A stream that gives the given answers first, and then its own."""

    def __init__(self, answers: list[Any]) -> None:
        super().__init__(open_map(2))
        self._given = iter(answers)

    def answer(self, call: ShardCall, now: float) -> dict[str, Any] | Failure:
        try:
            proper = super().answer(call, now)
        except ValueError:  # an iterator that this stream never gave
            proper = Failure("InvalidArgumentException", "not one of this stream")
        given = next(self._given, proper)
        return Failure(given) if isinstance(given, str) else given


@settings(max_examples=examples(100))
@given(st.lists(ANSWERS, max_size=8))
def test_a_watch_polls_every_shard_once_the_answers_are_sound(answers: list[Any]) -> None:
    stream, watch = OddStream(answers), Watch(LastHour("orders"), sampling_rate=0.05)
    findings = watch.set_shard_map(stream.shard_map, START) + run(watch, stream, START, START + 600)
    for finding in findings:
        json.dumps(finding.to_json())
        assert finding.text
    assert set(stream.shard_map) == {*watch.shards, *watch._ended}
    assert [shard_id for shard_id, state in watch.shards.items() if not state.polls] == []


# -- files of commands --------------------------------------------------------------------------------------

LINES = (
    "inspect FILE",
    "inspect FILE --json",
    "keys hash --keys-from FILE",
    "keys allocate 2 --existing FILE",
    "shards list --shards FILE --closed",
    "shards predict --shards FILE a --json",
    "cat FILE",
    "cat FILE --key a --decompress --since 2020-01-01 --limit 3",
    "findings .",
    "findings . --json-lines --kind duplicate",
)
#: What a terminal would obey.
CONTROL = {chr(code) for code in range(32)} - {"\n", "\t", "\r"} | {"\x7f", "\x9b"}


@settings(max_examples=examples(160))
@given(
    st.sampled_from(LINES),
    changed(events, listings).map(lambda value: json.dumps(value).encode())
    | kst.defective_frames().map(lambda frame: frame.data)
    | st.lists(st.sampled_from(["key", "7", "é", "\x1b[2J", "", str(2**128)])).map("\n".join).map(str.encode),
)
def test_a_command_on_any_file_ends_with_a_status_and_no_traceback(line: str, data: bytes) -> None:
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        for name in ("file", "shards.json", "findings/part-0.parquet"):
            path = Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
        os.chdir(folder)
        try:
            ended = run_command(line.replace("FILE", "file"), COLUMNS="100")
        finally:
            os.chdir(before)
    text = ended.out + ended.err
    assert ended.status in (0, 1, 2)
    assert ended.status == 0 or text.strip()
    assert "Traceback" not in text
    assert not set(text) & CONTROL
