"""Every shape gives the same Kinesis records; writing and reading are inverse; bad ones hide nothing."""

from __future__ import annotations

import base64
import copy
import json
import re
from collections.abc import Iterable
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import botocore.session
import numpy as np
import pytest
from botocore.parsers import create_parser
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec import adapters
from kpl_codec.adapters import captured, kinesis_records, shapes
from kpl_codec.errors import CaptureError

from ..aws_lambda.conftest import EVENTS, KINESIS_RECORDS, SHARD, STREAM, load
from .shapes import to_analytics, to_pipes, to_subscribe_to_shard

ARRIVAL = "approximateArrivalTimestamp"


def of(stream: str, records: list[kpl.KinesisRecord]) -> list[kpl.KinesisRecord]:
    return [record.replace(stream=stream) for record in records]


#: As they come from events that name their stream.
NAMED = of(STREAM, KINESIS_RECORDS)
WITHOUT_SHARD = [record.replace(shard_id=None) for record in KINESIS_RECORDS]
#: Of Firehose and Kinesis Analytics, where no stream is the source.
DATA_AND_TIME = [
    kpl.KinesisRecord(None, r.data, None, None, r.approximate_arrival_timestamp) for r in KINESIS_RECORDS
]
CAPTURED = {
    "lambda_kinesis": NAMED,
    "lambda_tumbling_window": NAMED,
    "pipes_kinesis": NAMED,
    "lambda_failed_invocation_s3": NAMED,
    "firehose_kinesis_source": NAMED,
    "analytics_stream": NAMED,
    "get_records_cli_v2_pages": WITHOUT_SHARD,
    "get_records_cli_v1": WITHOUT_SHARD,
    "firehose_direct_put": DATA_AND_TIME,
    "analytics_firehose": DATA_AND_TIME,
}


@pytest.mark.parametrize("name", CAPTURED)
@pytest.mark.requirement("CAP-2", "CAP-3", "CAP-5", "CAP-6", "CAP-7")
def test_every_capture_gives_its_kinesis_records(name: str) -> None:
    text = (EVENTS / f"{name}.json").read_text()
    assert list(kinesis_records(text)) == CAPTURED[name]
    if "pages" not in name:  # of several documents
        assert list(kinesis_records(json.loads(text))) == CAPTURED[name]
    # The source's own shard id and stream go before those beside it.
    expected = [
        record.replace(shard_id=record.shard_id or "other", stream=record.stream or "beside")
        for record in CAPTURED[name]
    ]
    assert list(kinesis_records(text, shard_id="other", stream="beside")) == expected


def parsed_by_botocore(operation: str, wire: dict[str, Any]) -> dict[str, Any]:
    """What boto3 makes of an answer's bytes: the real model, the real parser."""
    model = botocore.session.get_session().get_service_model("kinesis")
    parser = create_parser(model.protocol)
    body = json.dumps(wire).encode()
    return parser.parse(
        {"status_code": 200, "headers": {}, "body": body}, model.operation_model(operation).output_shape
    )


def wire_record(record: kpl.KinesisRecord) -> dict[str, Any]:
    assert record.approximate_arrival_timestamp is not None
    return {
        "SequenceNumber": record.sequence_number,
        "ApproximateArrivalTimestamp": record.approximate_arrival_timestamp.timestamp(),
        "Data": base64.b64encode(record.data).decode(),
        "PartitionKey": record.partition_key,
    }


def test_live_boto3_answers() -> None:
    answer = parsed_by_botocore("GetRecords", {"Records": [wire_record(r) for r in KINESIS_RECORDS]})
    assert isinstance(answer["Records"][0]["Data"], bytes)
    assert list(adapters.kinesis_records(answer, shard_id=SHARD)) == KINESIS_RECORDS
    # pages, their records, and a generator of either
    assert list(kinesis_records([answer, answer], shard_id=SHARD)) == KINESIS_RECORDS * 2
    assert list(kinesis_records(iter(answer["Records"]), shard_id=SHARD)) == KINESIS_RECORDS
    stream = ({"SubscribeToShardEvent": answer} for _ in range(2))
    assert list(kinesis_records({"EventStream": stream}, shard_id=SHARD)) == KINESIS_RECORDS * 2


QUEUED = [
    record.replace(sequence_number=None, shard_id=None, record_id=f"r{number}")
    for number, record in enumerate(KINESIS_RECORDS)
]


def queue_answer(*, dump: bool) -> dict[str, Any]:
    return {
        "QueueRecords": [
            {
                "ReceiptHandle": f"handle {number}",
                "RecordId": record.record_id,
                "PartitionKey": record.partition_key,
                "Data": base64.b64encode(record.data).decode() if dump else record.data,
                "ApproximateArrivalTimestamp": record.approximate_arrival_timestamp.isoformat()
                if dump and record.approximate_arrival_timestamp
                else record.approximate_arrival_timestamp,
                "FirstReceiveTimestamp": record.approximate_arrival_timestamp,
                "ReceiveCount": 1,
            }
            for number, record in enumerate(QUEUED)
        ]
    }


@pytest.mark.requirement("QUE-1")
def test_answers_of_queues() -> None:
    answer = queue_answer(dump=False)
    assert list(kinesis_records(answer)) == QUEUED
    text = json.dumps(queue_answer(dump=True), default=str)
    assert list(kinesis_records(text)) == list(kinesis_records([json.loads(text)])) == QUEUED
    del answer["QueueRecords"][1]["RecordId"]
    items = list(captured(answer))
    assert [isinstance(item, CaptureError) for item in items][:3] == [False, True, False]
    assert (items[1].code, items[1].fields["field"]) == ("missing-field", "QueueRecords[1].RecordId")
    # what needs a place says that there is none
    shard_map = kpl.ShardMap([kpl.Shard(SHARD, kpl.ALL_HASH_KEYS)])
    judged = kpl.deaggregate(QUEUED, "report", shard_map=shard_map)
    verdicts = {(row.placement.verdict, row.placement.shard_id) for row in judged if row.placement}
    assert verdicts == {("unknown-shard", None)}


def test_events_that_sqs_brought() -> None:
    """Somebody put a Lambda event, or one record of it, into an SQS queue: the body is its text."""
    event = to_lambda(KINESIS_RECORDS)
    bodies = [json.dumps(event), json.dumps(event["Records"][0]), "not JSON"]
    wrapped = {"Records": [{"messageId": str(n), "body": body} for n, body in enumerate(bodies)]}
    *items, broken = captured(wrapped)
    assert items == [*NAMED, NAMED[0]]
    assert (broken.code, broken.fields["field"]) == ("json", "Records[2].body")


def test_reading_is_lazy() -> None:
    events = iter([load("lambda_kinesis.json")] * 3)
    records = kinesis_records(events)
    for _ in range(3):
        next(records)
    assert len(list(events)) == 2


class Kclpy:
    """The attributes of amazon_kclpy 3.2's Record: naive local time, milliseconds beside it."""

    def __init__(self, row: kpl.KinesisRecord) -> None:
        self.binary_data = row.data
        self.partition_key = row.partition_key
        self.sequence_number = row.sequence_number
        self.sub_sequence_number = row.sub_sequence_number
        self.timestamp_millis: int | None = None
        self.approximate_arrival_timestamp: datetime | None = None
        when = row.approximate_arrival_timestamp
        if when is not None:
            self.timestamp_millis = round(when.timestamp() * 1000)
            self.approximate_arrival_timestamp = when.astimezone().replace(tzinfo=None)


def as_given(records: Iterable[kpl.KinesisRecord]) -> list[kpl.KinesisRecord]:
    """Without what was seen of their siblings."""
    return [record.replace(opened_before=None) for record in records]


def test_raw_bytes_and_kclpy_objects_and_kinesis_records() -> None:
    frame = KINESIS_RECORDS[1].data
    for data in (frame, bytearray(frame), memoryview(frame)):
        assert list(kinesis_records(data, shard_id=SHARD)) == [kpl.KinesisRecord(None, frame, None, SHARD)]
    assert list(kinesis_records([frame, b""])) == [
        kpl.KinesisRecord(None, frame),
        kpl.KinesisRecord(None, b""),
    ]
    rows = [r.replace(sub_sequence_number=4) for r in KINESIS_RECORDS]
    assert as_given(adapters.kinesis_records(map(Kclpy, rows), shard_id=SHARD)) == rows
    assert list(kinesis_records([KINESIS_RECORDS[0].replace(shard_id=None)], shard_id="s")) == [
        KINESIS_RECORDS[0].replace(shard_id="s")
    ]


@pytest.mark.requirement("DAG-8")
def test_a_user_record_that_the_kcl_opened_is_not_opened_again() -> None:
    inner = KINESIS_RECORDS[1].data
    record = Kclpy(kpl.KinesisRecord("p", inner, "7", sub_sequence_number=3))
    (row,) = kpl.deaggregate(kinesis_records([record]))
    assert (row.data, row.sub_sequence_number, row.aggregated) == (inner, 3, True)


# -- laws ---------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
# A float of seconds carries microseconds up to 2^32, in 2106; later ones are refused, not changed.
times = st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1), timezones=st.just(timezone.utc))
millis = times.map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000))


def records(arrivals: st.SearchStrategy[datetime], subs: st.SearchStrategy[int | None]) -> Any:
    return st.lists(
        st.builds(
            kpl.KinesisRecord,
            st.none() | texts,
            st.binary(max_size=60),
            st.integers(0, 10**56).map(str),
            st.just(SHARD),
            st.none() | arrivals,
            st.none(),
            subs,
            st.none(),
        ),
        max_size=4,
    )


@given(records(times, st.none()))
@pytest.mark.requirement("CAP-9")
def test_reading_what_was_written_gives_the_same(rows: list[kpl.KinesisRecord]) -> None:
    named = of(STREAM, rows)
    beside: Any = {"shard_id": SHARD, "stream": STREAM}
    for written in (
        adapters.to_lambda(rows, stream_arn=STREAM),
        adapters.to_lambda(named, stream_arn=STREAM),
        to_pipes(rows, STREAM),
        adapters.to_get_records(named, dump=True),
        to_subscribe_to_shard(named, dump=True),
    ):
        assert list(kinesis_records(written, **beside)) == named
        assert list(kinesis_records(json.dumps(written), **beside)) == named
    for live in (adapters.to_get_records(named), to_subscribe_to_shard(named)):
        assert list(kinesis_records(live, **beside)) == named


@given(records(millis, st.none() | st.integers(0, 500)))
@pytest.mark.requirement("CAP-9")
def test_the_same_for_shapes_in_milliseconds(rows: list[kpl.KinesisRecord]) -> None:
    assert as_given(kinesis_records(map(Kclpy, rows), shard_id=SHARD)) == rows
    named = of(STREAM, rows)
    for written in (adapters.to_firehose(named, delivery_stream_arn=STREAM), to_analytics(rows, STREAM)):
        assert as_given(kinesis_records(written, shard_id=SHARD)) == named
        assert as_given(kinesis_records(json.dumps(written), shard_id=SHARD)) == named


@given(st.text(st.sampled_from("QUJD+/=-_ \n.A"), max_size=12))
@pytest.mark.requirement("CAP-2")
def test_base64_is_taken_only_if_it_is_what_an_encoder_writes(text: str) -> None:
    event = {"Records": [{"kinesis": {"data": text, "sequenceNumber": "1"}}]}
    (item,) = captured(event)
    try:
        strict = base64.b64decode(text, validate=True)
    except ValueError:
        strict = None
    if strict is not None and base64.b64encode(strict).decode() == text:
        assert isinstance(item, kpl.KinesisRecord)
        assert item.data == strict
    else:
        assert isinstance(item, kpl.CaptureError)
        assert (item.code, item.field) == ("base64", "Records[0].kinesis.data")


KEYS = [
    "Records", "records", "kinesis", "data", "Data", "SequenceNumber", "sequenceNumber", "recordId",
    "payload", "EventStream", "eventSource", "kinesisRecordMetadata", "shardId", "eventID",
    "approximateArrivalTimestamp", "partitionKey", "subSequenceNumber",
]  # fmt: skip


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(KEYS),
                inner | st.sampled_from(["QQ==", "{", "[1]"]),
                max_size=5,
            )
        ),
        max_leaves=12,
    )
)
@pytest.mark.requirement("CAP-1", "CAP-4")
def test_whatever_comes_in_items_come_out_in_order(source: Any) -> None:
    items = list(captured(source))
    for position, item in enumerate(items):
        assert isinstance(item, (kpl.KinesisRecord, kpl.CaptureError))
        if isinstance(item, kpl.CaptureError):
            assert item.position == position


# -- what is refused -----------------------------------------------------------------------------


def broken(change: Any) -> dict[str, Any]:
    event = copy.deepcopy(load("lambda_kinesis.json"))
    change(event["Records"][1])
    return event


def put(*path: str, value: Any) -> Any:
    def change(record: dict[str, Any]) -> None:
        for key in path[:-1]:
            record = record[key]
        record[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        (put("kinesis", value=None), "missing-field", "kinesis"),
        (put("kinesis", value=[]), "wrong-type", "kinesis"),
        (put("kinesis", "data", value=None), "missing-field", "kinesis.data"),
        (put("kinesis", "data", value=b"QQ=="), "wrong-type", "kinesis.data"),
        (put("kinesis", "data", value="sécret"), "base64", "kinesis.data"),
        (put("kinesis", "sequenceNumber", value=None), "missing-field", "kinesis.sequenceNumber"),
        (put("kinesis", "sequenceNumber", value=5), "wrong-type", "kinesis.sequenceNumber"),
        (put("kinesis", "partitionKey", value=5), "wrong-type", "kinesis.partitionKey"),
        (put("kinesis", "partitionKey", value="\ud800"), "utf-8", "kinesis.partitionKey"),
        (put("eventID", value=5), "wrong-type", "eventID"),
        (put("kinesis", "subSequenceNumber", value=2**63), "wrong-type", "kinesis.subSequenceNumber"),
        (put("kinesis", "subSequenceNumber", value=-2), "wrong-type", "kinesis.subSequenceNumber"),
        (put("kinesis", "subSequenceNumber", value="9" * 19), "wrong-type", "kinesis.subSequenceNumber"),
    ],
)
@pytest.mark.requirement("CAP-1", "CAP-4")
def test_a_bad_record_is_named_and_hides_no_other(change: Any, code: str, field: str) -> None:
    event = broken(change)
    before, bad, after = captured(event)
    assert (before, after) == (NAMED[0], NAMED[2])
    assert isinstance(bad, kpl.CaptureError)
    assert (bad.code, bad.field, bad.position) == (code, f"Records[1].{field}", 1)
    assert "cret" not in repr(bad) + str(bad)
    if isinstance(event["Records"][1]["kinesis"], dict) and field != "kinesis.sequenceNumber":
        assert bad.sequence_number == KINESIS_RECORDS[1].sequence_number
    with pytest.raises(kpl.CaptureError) as raised:
        list(kinesis_records(event))
    assert raised.value == bad


ONE = KINESIS_RECORDS[0]
NO_TIMES = [
    True, "yesterday", "2020-01-01T00:00:00", float("nan"), float("-inf"), 1e300, -(10**400), [], {},
    datetime(2020, 1, 1), datetime.min, Decimal("sNaN"), Decimal("inf"), 1j,
]  # fmt: skip
#: How a record of each shape is written with a time, and where that stands.
TIMED: dict[str, Any] = {
    "lambda": (
        lambda t: {"Records": [put_in(to_lambda_row(), t, "kinesis")]},
        f"Records[0].kinesis.{ARRIVAL}",
    ),
    "pipes": (lambda t: [put_in(to_pipes([ONE])[0], t)], f"[0].{ARRIVAL}"),
    "firehose": (
        lambda t: {"records": [put_in(firehose_row(), t, "kinesisRecordMetadata")]},
        f"records[0].kinesisRecordMetadata.{ARRIVAL}",
    ),
    "failed": (lambda t: {"rawData": b64(ONE.data), "arrivalTimestamp": t}, "arrivalTimestamp"),
    "daemon": (lambda t: daemon_message([ONE], t), f"records[0].{ARRIVAL}"),
    "boto3": (
        lambda t: {"Records": [{"SequenceNumber": "1", "Data": ONE.data, "ApproximateArrivalTimestamp": t}]},
        "Records[0].ApproximateArrivalTimestamp",
    ),
    "queue": (
        lambda t: {"QueueRecords": [{"RecordId": "1", "Data": ONE.data, "ApproximateArrivalTimestamp": t}]},
        "QueueRecords[0].ApproximateArrivalTimestamp",
    ),
    "kcl": (lambda t: [SimpleNamespace(binary_data=ONE.data, sequence_number="1", timestamp_millis=t)],
            "[0].timestamp_millis"),
    "named": (lambda t: {"data": b64(ONE.data), "sequenceNumber": "1", ARRIVAL: t}, ARRIVAL),
}  # fmt: skip


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def to_lambda_row() -> dict[str, Any]:
    return dict(adapters.to_lambda([ONE], stream_arn=STREAM)["Records"][0])


def firehose_row() -> dict[str, Any]:
    row = dict(adapters.to_firehose([ONE], delivery_stream_arn=STREAM)["records"][0])
    row.pop(ARRIVAL)
    return row


def put_in(record: dict[str, Any], when: Any, key: str | None = None) -> dict[str, Any]:
    (record if key is None else record[key])[ARRIVAL] = when
    return record


def daemon_message(records: list[kpl.KinesisRecord], when: Any) -> dict[str, Any]:
    """What the KCL's MultiLangDaemon writes to a consumer in another language."""
    rows = [
        {"action": "record", "data": b64(r.data), "partitionKey": r.partition_key, ARRIVAL: when,
         "sequenceNumber": r.sequence_number, "subSequenceNumber": r.sub_sequence_number}
        for r in records
    ]  # fmt: skip
    return {"action": "processRecords", "millisBehindLatest": 0, "records": rows}


@pytest.mark.requirement("CAP-3")
@pytest.mark.parametrize("shape", TIMED)
@pytest.mark.parametrize("year", [2013, 2018, 2026, 2099])
def test_a_number_shows_its_unit_in_every_shape(shape: str, year: int) -> None:
    """Seconds where milliseconds are usual, and the other way round; microseconds, nanoseconds."""
    when = datetime(year, 3, 5, 20, 2, 53, tzinfo=timezone.utc)
    for unit in (1, 10**3, 10**6, 10**9):
        for kind in (int, float, Decimal, np.int64):
            number = kind(int(when.timestamp()) * unit)
            (found,) = kinesis_records(TIMED[shape][0](number))
            assert found.approximate_arrival_timestamp == when


@pytest.mark.requirement("CAP-13", "CAP-3")
@pytest.mark.parametrize("shape", TIMED)
@pytest.mark.parametrize("value", NO_TIMES)
def test_a_time_that_cannot_be_read_costs_no_record(shape: str, value: Any) -> None:
    make, field = TIMED[shape]
    sound = adapters.to_lambda([KINESIS_RECORDS[1]], stream_arn=STREAM)
    given_ = [make(value), sound] if shape != "pipes" else [*make(value), sound]
    first, error, second = captured(given_)
    assert isinstance(first, kpl.KinesisRecord)
    assert (first.data, first.approximate_arrival_timestamp) == (ONE.data, None)
    assert isinstance(error, CaptureError)
    assert (error.code, error.requirement, error.position) == ("timestamp", "CAP-13", 0)
    assert error.field.endswith(field.removeprefix("[0]").lstrip("."))
    assert second == NAMED[1]
    assert [record.data for record in kinesis_records(given_)] == [ONE.data, KINESIS_RECORDS[1].data]


@pytest.mark.requirement("CAP-1")
def test_broken_json_hides_no_other_document() -> None:
    good = json.dumps(load("lambda_kinesis.json"), indent=1)
    items = list(captured(f"{good}\n{good[:200]}\n{good}\n{{}}\n17"))
    codes = [item.code if isinstance(item, kpl.CaptureError) else "" for item in items]
    assert codes == ["", "", "", "json", "", "", "", "unknown-shape", "unknown-shape"]
    assert [item.field for item in items if isinstance(item, kpl.CaptureError)] == ["<1>", "<3>", "<4>"]


@pytest.mark.requirement("CAP-10", "CAP-1")
def test_a_member_that_is_there_twice_hides_nothing() -> None:
    good = json.dumps(load("lambda_kinesis.json"))
    records = json.dumps(load("lambda_kinesis.json")["Records"])
    inner = good.replace('"data":', '"data": "", "data":', 1)
    for bad in (f'{{"Records": [], "Re\\u0063ords": {records}}}', inner):
        items = list(captured(f"{good}\n{bad} {good}"))
        assert items[:3] == items[4:] == NAMED[:3]
        error = items[3]
        assert isinstance(error, kpl.CaptureError)
        assert (error.code, error.field) == ("duplicate-member", "<1>")
        assert (error.offset, error.position) == (len(good) + 1, 3)


def test_files_and_text_where_data_belongs_are_refused() -> None:
    for text, advice in (
        ("captured/events.json", "of a file give the content"),
        ("eHh4", "base64.b64decode"),
    ):
        with pytest.raises(kpl.CaptureError, match=advice):
            list(kinesis_records(text))
    with pytest.raises(TypeError, match="read_text"):
        captured(EVENTS / "lambda_kinesis.json")
    with (EVENTS / "lambda_kinesis.json").open("rb") as file, pytest.raises(TypeError, match="read_text"):
        captured(file)


def to_lambda(rows: list[kpl.KinesisRecord]) -> Any:
    return adapters.to_lambda(rows, stream_arn=STREAM)


def to_firehose(rows: list[kpl.KinesisRecord]) -> Any:
    return adapters.to_firehose(rows, delivery_stream_arn=STREAM)


FINER = datetime(2020, 1, 1, microsecond=1, tzinfo=timezone.utc)
#: Later than what a float of seconds carries to the microsecond.
LATE = datetime(2107, 1, 1, 0, 0, 0, 69, tzinfo=timezone.utc)
WRITERS = {"lambda": to_lambda, "firehose": to_firehose, "get-records": adapters.to_get_records}


@pytest.mark.parametrize(
    ("fields", "writers"),
    [
        ({"explicit_hash_key": "5"}, ["lambda", "firehose", "get-records"]),
        ({"sub_sequence_number": 1}, ["lambda", "get-records"]),
        ({"sequence_number": None}, ["lambda", "firehose", "get-records"]),
        ({"record_id": "a1"}, ["lambda", "firehose", "get-records"]),
        ({"partition_key": "\ud800"}, ["lambda", "firehose", "get-records"]),
        ({"sequence_number": "1:2"}, ["lambda"]),
        ({"shard_id": ""}, ["lambda"]),
        ({"sub_sequence_number": 2**63}, ["firehose"]),
        ({"shard_id": "shardId-000000000007"}, ["get-records"]),  # an answer is of one shard
        ({"approximate_arrival_timestamp": FINER}, ["firehose"]),
        ({"approximate_arrival_timestamp": FINER.replace(tzinfo=None)}, ["get-records"]),
        ({"approximate_arrival_timestamp": LATE}, ["lambda"]),
        ({"stream": "returns"}, ["lambda", "firehose", "get-records"]),
        ({"stream": STREAM.replace("us-east-2", "eu-west-1")}, ["lambda", "get-records"]),
    ],
)
@pytest.mark.requirement("CAP-8")
def test_what_a_shape_cannot_hold_is_refused(fields: dict[str, Any], writers: list[str]) -> None:
    for writer in writers:
        with pytest.raises(kpl.CaptureError):
            WRITERS[writer]([KINESIS_RECORDS[1], KINESIS_RECORDS[0].replace(**fields)])


@pytest.mark.requirement("CAP-1")
def test_records_under_both_spellings_are_all_read() -> None:
    rows = [kpl.KinesisRecord("k", b"%d" % i, str(i), SHARD) for i in range(2)]
    both = {
        "records": adapters.to_firehose(rows[1:], delivery_stream_arn=STREAM)["records"],
        "Records": adapters.to_lambda(rows[:1], stream_arn=STREAM)["Records"],
    }
    assert [item.data for item in adapters.kinesis_records(both)] == [b"0", b"1"]
    half = [*adapters.captured({**both, "Records": None})]
    assert [getattr(item, "code", None) for item in half] == ["wrong-type", None]


def test_every_shape_has_a_reader_a_row_in_both_tables_and_an_example() -> None:
    names = set(get_args(shapes.Shape))
    assert set(shapes.READERS) == names
    table = (shapes.__doc__ or "").split("--------")[-1]
    assert set(re.findall(r"^    (\w+) {2,}", table, re.MULTILINE)) >= names
    chapter = (Path(__file__).parents[2] / "spec/06-lambda.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", chapter, re.MULTILINE)) >= names
    assert set(TIMED) | {"raw"} >= names  # bytes alone have no time


@pytest.mark.requirement("CAP-4")
def test_what_firehose_could_not_convert_keeps_its_numbers() -> None:
    failed = {"rawData": b64(ONE.data), "attemptsMade": 1, "sequenceNumber": "7", "subSequenceNumber": 2}
    (record,) = kinesis_records(failed)
    assert (record.data, record.sequence_number, record.sub_sequence_number) == (ONE.data, "7", 2)


@pytest.mark.requirement("CAP-32")
def test_minus_one_is_no_sub_sequence_number() -> None:
    for mark in (-1, "-1"):
        for shape in ({"data": b64(ONE.data)}, {"rawData": b64(ONE.data), "attemptsMade": 1}):
            (record,) = captured({**shape, "sequenceNumber": "7", "subSequenceNumber": mark})
            assert (record.data, record.sub_sequence_number) == (ONE.data, None)


def test_what_cat_prints_is_no_record() -> None:
    """Its data is text, which may look like base64."""
    (error,) = captured({"data": "abcd", "sequenceNumber": "7", "subSequenceNumber": 0, "aggregated": True})
    assert isinstance(error, CaptureError)
    assert error.code == "unknown-shape"
    assert "kpl-codec cat" in (error.hint or "")


def test_a_record_with_two_spellings_of_a_member_is_refused() -> None:
    (error,) = captured({"data": b64(b"1"), "sequenceNumber": "7", "sequence_number": "8"})
    assert isinstance(error, CaptureError)
    assert error.code == "wrong-type"


LONE = {"SequenceNumber": "1", "PartitionKey": "k", "Data": b64(b"1")}


@pytest.mark.requirement("CAP-16")
@pytest.mark.parametrize("member", ["Records", "records", "QueueRecords", "EventStream"])
def test_a_record_that_has_an_events_member_is_read_too(member: str) -> None:
    assert [item.data for item in kinesis_records({**LONE, member: []})] == [b"1"]
    assert [item.data for item in kinesis_records({**LONE, member: [LONE]})] == [b"1", b"1"]


@pytest.mark.requirement("CAP-16")
def test_each_member_that_holds_an_event_is_read() -> None:
    event = {"Records": [], "payload": json.dumps(LONE), "requestPayload": LONE}
    assert [item.data for item in kinesis_records(event)] == [b"1", b"1"]


@pytest.mark.requirement("CAP-16")
@pytest.mark.parametrize("blank", ["", " ", "\n,"], ids=["none", "space", "comma"])
def test_a_blank_text_where_an_event_belongs_is_an_error(blank: str) -> None:
    message = {"messageId": "m", "body": blank}
    whole = {"messageId": "n", "body": json.dumps(LONE)}
    for source, field in (
        ({"Records": [message, whole]}, "Records[0].body"),
        ([{"payload": blank, "requestContext": {}}, whole["body"]], "[0].payload"),
    ):
        error, record = captured(source)
        assert isinstance(error, CaptureError)
        assert (error.code, error.field, error.requirement) == ("json", field, "CAP-16")
        assert isinstance(record, kpl.KinesisRecord)


# -- what is read, or called by its name -----------------------------------------------------------

USERS = [kpl.UserRecord("a", b"one"), kpl.UserRecord("b", b"two")]
PACKED = kpl.encode(USERS)
BUFFER = {"type": "Buffer", "data": list(PACKED)}
READ: dict[str, Any] = {
    "Firehose's failed transformation": {"rawData": b64(PACKED), "errorCode": "Lambda.X", "attemptsMade": 1},
    "Lambda's kinesis member alone": to_lambda_row()["kinesis"] | {"data": b64(PACKED)},
    "a row of a connector, as JSON": {"data": b64(PACKED), "sequence_number": "1", "stream": "orders"},
    "Firehose's body for an HTTP endpoint": {"requestId": "r", "records": [{"data": b64(PACKED)}]},
    "a failed asynchronous invocation": {"version": "1.0", "requestPayload": {"Records": [to_lambda_row()]}},
    "Node's Buffer": {"Records": [{"SequenceNumber": "1", "Data": BUFFER}]},
    "JavaScript's Uint8Array": {
        "Records": [{"SequenceNumber": "1", "Data": {str(n): byte for n, byte in enumerate(PACKED)}}]
    },
    "a Buffer in Lambda's event": {
        "Records": [{**to_lambda_row(), "kinesis": {"sequenceNumber": "1", "data": BUFFER}}]
    },
}  # fmt: skip


@pytest.mark.requirement("CAP-1", "CAP-6")
@pytest.mark.parametrize("name", READ)
def test_other_forms_of_records_are_read(name: str) -> None:
    for source in (READ[name], json.dumps(READ[name])):
        (record,) = kinesis_records(source)
        assert record.data == (ONE.data if "asynchronous" in name else PACKED)
        assert record.sub_sequence_number is None  # nobody has opened it


@pytest.mark.requirement("DAG-8", "CAP-1")
def test_messages_of_the_multi_language_daemon() -> None:
    """Lines of what a consumer in another language gets: the KCL has opened what is in them."""
    opened = [
        kpl.KinesisRecord(user.partition_key, user.data, "7", None, None, None, sub)
        for sub, user in enumerate([*USERS, kpl.UserRecord("c", PACKED)])
    ]
    lines = [
        {"action": "initialize", "shardId": SHARD, "sequenceNumber": "TRIM_HORIZON", "subSequenceNumber": 0},
        daemon_message(opened, None),
        {"action": "shutdownRequested"},
    ]
    records = list(kinesis_records("\n".join(map(json.dumps, lines))))
    assert as_given(records) == opened
    rows = list(kpl.deaggregate(records))
    assert [(row.data, row.sub_sequence_number) for row in rows] == [(b"one", 0), (b"two", 1), (PACKED, 2)]


@pytest.mark.requirement("CAP-6")
@pytest.mark.parametrize(
    "data",
    [{"type": "Buffer"}, {"type": "Buffer", "data": "x"}, {"type": "Buffer", "data": [256]}, {}, {"0": "x"},
     {"type": "Buffer", "data": [1.0]}, {"0": 1, "2": 3}, {"1": 1}, [1, 2]],
)  # fmt: skip
def test_what_is_no_buffer_is_refused(data: Any) -> None:
    (error,) = captured({"Records": [{"SequenceNumber": "1", "Data": data}]})
    assert isinstance(error, CaptureError)
    assert (error.code, error.field) == ("wrong-type", "Records[0].Data")


@pytest.mark.requirement("CAP-1")
@pytest.mark.parametrize(
    "value",
    [
        {"action": "shutdown", "order": 1},
        {"action": ["shutdown"]},
        {"action": "record", "order": 1},
        {"rawData": "x", "order": 1},
        {"messageId": 1, "body": "x"},
        {"requestPayload": 5},
        {"payload": 5},
    ],
)
def test_user_data_that_looks_a_little_like_a_record_is_not_passed_over(value: Any) -> None:
    (error,) = captured(value)
    assert isinstance(error, CaptureError)
    assert (error.code, error.hint) == ("unknown-shape", None)
