"""Every shape gives the same Kinesis records; writing and reading are inverse; bad ones hide nothing."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from decimal import Decimal
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from amazon_kclpy.messages import Record
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec import adapters
from kpl_codec.adapters import captured, kinesis_records, shapes
from kpl_codec.captures.capture_rows import CaptureRows
from kpl_codec.errors import CaptureError

from ..aws_lambda.conftest import EVENTS, KINESIS_RECORDS, SHARD, STREAM, load
from ..every import every
from .shapes import (
    EXTREMES,
    MEMBERS,
    NUMBER,
    RECORDS,
    to_analytics,
    to_pipes,
    to_subscribe_to_shard,
    with_member,
)

ARRIVAL = "approximateArrivalTimestamp"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


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


@pytest.mark.requirement("CAP-2", "CAP-3", "CAP-5", "CAP-6", "CAP-7")
@every("name", CAPTURED)
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


def test_pages_their_records_and_generators_of_either() -> None:
    answer = adapters.to_get_records(KINESIS_RECORDS)
    assert list(kinesis_records([answer, answer], shard_id=SHARD)) == KINESIS_RECORDS * 2
    assert list(kinesis_records(iter(answer["Records"]), shard_id=SHARD)) == KINESIS_RECORDS
    stream = ({"SubscribeToShardEvent": answer} for _ in range(2))
    assert list(kinesis_records({"EventStream": stream}, shard_id=SHARD)) == KINESIS_RECORDS * 2


@pytest.mark.requirement("QUE-1")
def test_answers_of_queues() -> None:
    rows = adapters.to_get_records(KINESIS_RECORDS, dump=True)["Records"]
    for number, row in enumerate(rows):
        del row["SequenceNumber"]
        row |= {"ReceiptHandle": f"handle {number}", "RecordId": f"r{number}", "ReceiveCount": 1}
    queued = [
        record.replace(sequence_number=None, shard_id=None, record_id=f"r{number}")
        for number, record in enumerate(KINESIS_RECORDS)
    ]
    answer = {"QueueRecords": rows}
    assert list(kinesis_records(json.dumps(answer))) == list(kinesis_records([answer])) == queued


def test_reading_is_lazy() -> None:
    events = iter([load("lambda_kinesis.json")] * 3)
    records = kinesis_records(events)
    for _ in range(3):
        next(records)
    assert len(list(events)) == 2


def test_raw_bytes_and_kinesis_records() -> None:
    frame = KINESIS_RECORDS[1].data
    for data in (frame, bytearray(frame), memoryview(frame)):
        assert list(kinesis_records(data, shard_id=SHARD)) == [kpl.KinesisRecord(None, frame, None, SHARD)]
    assert list(kinesis_records([frame, b""])) == [
        kpl.KinesisRecord(None, frame),
        kpl.KinesisRecord(None, b""),
    ]
    assert list(kinesis_records([KINESIS_RECORDS[0].replace(shard_id=None)], shard_id="s")) == [
        KINESIS_RECORDS[0].replace(shard_id="s")
    ]


# -- laws ---------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
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


def kclpy(row: kpl.KinesisRecord) -> Record:
    """What amazon_kclpy gives on: its naive local time has milliseconds beside it."""
    assert row.approximate_arrival_timestamp is not None
    return Record(
        {
            "data": b64(row.data),
            "partitionKey": row.partition_key,
            "sequenceNumber": row.sequence_number,
            "subSequenceNumber": row.sub_sequence_number,
            "approximateArrivalTimestamp": round(row.approximate_arrival_timestamp.timestamp() * 1000),
        }
    )


def as_given(records: Iterable[kpl.KinesisRecord]) -> list[kpl.KinesisRecord]:
    """Without what was seen of their siblings."""
    return [record.replace(opened_before=None) for record in records]


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
    timed = [row for row in rows if row.approximate_arrival_timestamp is not None]
    assert as_given(kinesis_records(map(kclpy, timed), shard_id=SHARD)) == timed
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


# -- what is refused -----------------------------------------------------------------------------


#: Sub-sequence numbers of a record that nobody has opened, and all that one may be.
NO_COUNTS = (None, "", -1, "-1")
COUNTS = (*NO_COUNTS, "0", 0, 2**31, 2**53 + 1, 2**63 - 1)


def is_count(name: str) -> bool:
    return name.lower().replace("_", "") == "subsequencenumber"


def code_of(shape: str, name: str, value: Any) -> str | None:
    """The code with which a member is refused; None for a text that may be one."""
    if name == TIMED[shape][1][-1]:
        return "timestamp"
    if is_count(name):
        return None if value in COUNTS else "wrong-type"
    of_data = name.lower().endswith("data")
    of_named = shape == "named" and (of_data or name == "sequenceNumber")
    if of_named and not isinstance(value, (str, dict) if of_data else str):
        return "unknown-shape"
    if value is None:
        needed = name.lower().endswith(("data", "number", "recordid")) and shape != "failed"
        return "missing-field" if needed or of_data else None
    if not isinstance(value, str):
        return "wrong-type"
    return "base64" if of_data else "utf-8" if value == "\ud800" else None


#: All shapes that may have a time: their members, the time last.
TIMED: dict[str, Any] = {
    **MEMBERS,
    "kcl": (None, ["partition_key", "sequence_number", "sub_sequence_number", "timestamp_millis"]),
}
#: Values that are no time, of which JSON has none.
NO_TIMES = [
    "2020-01-01T00:00:00", float("nan"), float("-inf"), -(10**400), datetime(2020, 1, 1), datetime.min,
    Decimal("sNaN"), Decimal("inf"), 1j,
]  # fmt: skip


@pytest.mark.requirement("CAP-1", "CAP-4", "CAP-6", "CAP-13", "CAP-32")
@every("shape", TIMED)
def test_a_member_of_any_value_costs_its_record_at_most_and_is_named(shape: str) -> None:
    """A time that cannot be read costs no record. Columns hold each record."""
    _, names = TIMED[shape]
    rows = CaptureRows(None)
    sound = next(kinesis_records(RECORDS["lambda"]))
    changes = [*product(names, EXTREMES), *product(names[-1:], NO_TIMES)]
    for name, value in changes:
        source = [RECORDS["lambda"], with_member(shape, name, value), RECORDS["lambda"]]
        before, first, *error, after = captured(source)
        assert before == after == sound
        code = code_of(shape, name, value)
        if isinstance(first, kpl.KinesisRecord):
            rows.record(first, first.stream)
            assert [record.data for record in kinesis_records(source)] == [sound.data, first.data, sound.data]
            assert not error or first.approximate_arrival_timestamp is None
            assert not error or name == names[-1]
            assert code in (None, "timestamp", "base64"), (name, value)
            if is_count(name):
                assert first.sub_sequence_number == (None if value in NO_COUNTS else int(value))
            assert error or name != names[-1] or not any(value is one for one in NO_TIMES)
        else:
            assert not error
            error = [first]
            with pytest.raises(CaptureError) as raised:
                list(kinesis_records(source))
            assert raised.value == first
        for one in error:
            assert isinstance(one, CaptureError)
            assert one.position == 1
            assert one.code == code, (name, value, one.code)
            assert one.field.endswith(f".{name}") or one.field == f"[1].{name}" or one.code == "unknown-shape"
            assert one.requirement == "CAP-13" or one.code != "timestamp"
            assert one.sequence_number == NUMBER or shape != "lambda" or name == "sequenceNumber"
            assert "cret" not in f"{one!r} {one}" or "ata" not in name
    (batch,) = rows.take()
    assert None not in batch["data"].to_pylist()


@pytest.mark.requirement("CAP-3")
@every("shape", TIMED)
def test_a_number_shows_its_unit_in_every_shape(shape: str) -> None:
    """Seconds where milliseconds are usual, and the other way round; microseconds, nanoseconds."""
    kinds: Any = (int, float, Decimal, np.int64)
    for year, unit, kind in product((2013, 2018, 2026, 2099), (1, 10**3, 10**6, 10**9), kinds):
        when = datetime(year, 3, 5, 20, 2, 53, tzinfo=timezone.utc)
        number = kind(int(when.timestamp()) * unit)
        (found,) = kinesis_records([with_member(shape, TIMED[shape][1][-1], number)])
        assert found.approximate_arrival_timestamp == when


@pytest.mark.requirement("CAP-10", "CAP-1")
def test_a_document_with_a_member_twice_hides_no_other() -> None:
    good = json.dumps(load("lambda_kinesis.json"))
    twice = good.replace('"data":', '"data": "", "data":', 1)
    same = f'{{"Records": [], "Re\\u0063ords": {json.dumps(load("lambda_kinesis.json")["Records"])}}}'
    for bad in (twice, same):
        items = list(captured(f"{good}\n{bad}\n{good}\n{{}}\n17"))
        assert items[:3] == items[4:7] == NAMED[:3]
        errors = [item for item in items if isinstance(item, CaptureError)]
        assert [error.code for error in errors] == ["duplicate-member", "unknown-shape", "unknown-shape"]
        assert [error.field for error in errors] == ["<1>", "<3>", "<4>"]
        assert (errors[0].offset, errors[0].position) == (len(good) + 1, 3)


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


FINER = datetime(2020, 1, 1, microsecond=1, tzinfo=timezone.utc)
#: Later than what a float of seconds carries to the microsecond.
LATE = datetime(2107, 1, 1, 0, 0, 0, 69, tzinfo=timezone.utc)
WRITERS: dict[str, Callable[[list[kpl.KinesisRecord]], Any]] = {
    "lambda": partial(adapters.to_lambda, stream_arn=STREAM),
    "firehose": partial(adapters.to_firehose, delivery_stream_arn=STREAM),
    "get-records": adapters.to_get_records,
}


@every(
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


def test_every_shape_has_a_reader_a_row_in_both_tables_and_an_example() -> None:
    names = set(get_args(shapes.Shape))
    assert set(shapes.READERS) == names
    table = (shapes.__doc__ or "").split("--------")[-1]
    assert set(re.findall(r"^    (\w+) {2,}", table, re.MULTILINE)) >= names
    chapter = (Path(__file__).parents[2] / "spec/06-lambda.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", chapter, re.MULTILINE)) >= names
    assert set(TIMED) | {"raw"} >= names  # bytes alone have no time


PRINTED = {"data": "abcd", "sequenceNumber": "7", "subSequenceNumber": 0, "aggregated": True}


@pytest.mark.requirement("CAP-1", "CAP-4")
@every(
    ("value", "told"),
    [
        # What `kpl-codec cat` prints: its data is text, which may look like base64.
        (PRINTED, "unknown-shape: kpl-codec cat"),
        (
            {"data": b64(b"1"), "sequenceNumber": "7", "sequence_number": "8"},
            "wrong-type: must be given once",
        ),
        ({**RECORDS["lambda"], "kinesis": [1]}, "wrong-type: must be an object"),
        ({**RECORDS["firehose"], "kinesisRecordMetadata": [1]}, "wrong-type: must be an object"),
        ({"action": "shutdown", "order": 1}, "unknown-shape"),
        ({"action": ["shutdown"]}, "unknown-shape"),
        ({"action": "record", "order": 1}, "unknown-shape"),
        ({"rawData": "x", "order": 1}, "unknown-shape"),
        ({"messageId": 1, "body": "x"}, "unknown-shape"),
        ({"requestPayload": 5}, "unknown-shape"),
        ({"payload": 5}, "unknown-shape"),
    ],
)
def test_what_looks_a_little_like_a_record_is_named_and_not_passed_over(value: Any, told: str) -> None:
    (error,) = captured(value)
    assert isinstance(error, CaptureError)
    code, _, hint = told.partition(": ")
    assert error.code == code
    assert bool(error.hint) == bool(hint)
    assert hint in str(error.hint)
    assert error.field in value or code != "wrong-type"


LONE = RECORDS["boto3"]


@pytest.mark.requirement("CAP-16", "CAP-1")
def test_each_member_that_may_hold_records_is_read_and_a_record_that_has_one() -> None:
    for member in ("Records", "records", "QueueRecords", "EventStream"):
        assert len([*kinesis_records({**LONE, member: []})]) == 1
        assert len([*kinesis_records({**LONE, member: [LONE]})]) == 2
    event = {"Records": [LONE], "records": [RECORDS["firehose"]], "payload": json.dumps(LONE)}
    assert len([*kinesis_records({**event, "requestPayload": LONE})]) == 4
    for member, value in product(("Records", "records", "QueueRecords", "EventStream"), EXTREMES):
        *items, last = captured([{**event, member: value}, LONE])
        assert isinstance(last, kpl.KinesisRecord)
        codes = [item.code for item in items if isinstance(item, CaptureError)]
        assert "wrong-type" in codes or member == "EventStream" or isinstance(value, list), (member, value)


@pytest.mark.requirement("CAP-16")
@every("blank", ["", " ", "\n,", "not JSON"])
def test_a_blank_text_where_an_event_belongs_is_an_error(blank: str) -> None:
    message = {"messageId": "m", "body": blank}
    whole = {"messageId": "n", "body": json.dumps(LONE)}
    for source, field in (
        ({"Records": [message, whole]}, "Records[0].body"),
        ([{"payload": blank, "requestContext": {}}, whole["body"]], "[0].payload"),
    ):
        error, record = captured(source)
        assert isinstance(error, CaptureError)
        assert (error.code, error.field) == ("json", field)
        assert error.requirement == ("CAP-1" if blank == "not JSON" else "CAP-16")
        assert isinstance(record, kpl.KinesisRecord)


# -- what is read, or called by its name -----------------------------------------------------------


PACKED = kpl.encode([kpl.UserRecord("a", b"one"), kpl.UserRecord("b", b"two")])
BUFFER = {"type": "Buffer", "data": list(PACKED)}
READ: dict[str, Any] = {
    "Firehose's failed transformation": {"rawData": b64(PACKED), "errorCode": "Lambda.X", "attemptsMade": 1},
    "a row of a connector, as JSON": {"data": b64(PACKED), "sequence_number": "1", "stream": "orders"},
    "Firehose's body for an HTTP endpoint": {"requestId": "r", "records": [{"data": b64(PACKED)}]},
    "Node's Buffer": {"Records": [{"SequenceNumber": "1", "Data": BUFFER}]},
    "JavaScript's Uint8Array": {
        "Records": [{"SequenceNumber": "1", "Data": {str(n): byte for n, byte in enumerate(PACKED)}}]
    },
    "a Buffer in Lambda's event": {"Records": [{"kinesis": {"sequenceNumber": "1", "data": BUFFER}}]},
}  # fmt: skip


@pytest.mark.requirement("CAP-1", "CAP-6")
@every("name", READ)
def test_other_forms_of_records_are_read(name: str) -> None:
    for source in (READ[name], json.dumps(READ[name])):
        (record,) = kinesis_records(source)
        assert (record.data, record.sub_sequence_number) == (PACKED, None)  # nobody has opened it


@pytest.mark.requirement("CAP-1")
def test_messages_of_the_multi_language_daemon_without_records_give_none() -> None:
    """Lines of what a consumer in another language gets."""
    lines = [
        {"action": "initialize", "shardId": SHARD, "sequenceNumber": "TRIM_HORIZON", "subSequenceNumber": 0},
        {"action": "processRecords", "millisBehindLatest": 0, "records": [RECORDS["daemon"]]},
        {"action": "shutdownRequested"},
    ]
    (record,) = captured("\n".join(map(json.dumps, lines)))
    assert record == next(kinesis_records(RECORDS["daemon"]))
