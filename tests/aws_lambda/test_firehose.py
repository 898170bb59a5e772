"""Firehose transformations: one response per record id, aggregates whole or not at all, 6 MB."""

from __future__ import annotations

import base64
import json
import operator
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec import adapters
from kpl_codec.audit import Ledger
from kpl_codec.aws_lambda import Poison, firehose
from kpl_codec.aws_lambda.firehose import Transformed, transform_user_records
from tests.examples import examples

from .conftest import SHARD, STREAM, load
from .ways import event_for


def data_of(result: dict[str, Any]) -> bytes:
    return base64.b64decode(result["data"], validate=True)


def same(record: kpl.DeaggregatedRecord) -> bytes:
    return record.data


def test_partition_keys_for_dynamic_partitioning() -> None:
    response = transform_user_records(
        load("firehose_kinesis_source.json"), lambda r: Transformed(r.data, {"key": str(r.partition_key)})
    )
    # the third record's user records have different keys: no one result can say so
    assert [r["result"] for r in response["records"]] == ["Ok", "Ok", "ProcessingFailed"]
    assert response["records"][1]["metadata"] == {"partitionKeys": {"key": "3g0"}}


def test_an_event_of_ours_has_the_members_of_a_real_one() -> None:
    real = load("firehose_kinesis_source.json")
    made = adapters.to_firehose(adapters.kinesis_records(real), delivery_stream_arn=STREAM)
    for ours, theirs in zip(made["records"], real["records"], strict=True):
        assert ours.keys() == theirs.keys()
        assert ours["kinesisRecordMetadata"].keys() >= theirs["kinesisRecordMetadata"].keys() - {
            "subsequenceNumber"
        }


def answer_size(response: dict[str, Any]) -> int:
    """As the Lambda runtime client writes it."""
    return len(json.dumps(response).encode())


def noted(lines: list[str]) -> list[tuple[str, int]]:
    """The user records that the lines of a ledger name."""
    rows = [row for row in map(json.loads, lines) if row["kind"] == "handled"]
    assert {row["stream_arn"] for row in rows} <= {STREAM}
    return [
        (row["sequence_number"], row["sub_sequence_number"] + index)
        for row in rows
        for index in range(row["user_records"])
    ]


#: Its letters say what the handler makes of it: kept, dropped or failed.
datas = st.builds(operator.mul, st.sampled_from([b"k", b"k", b"d", b"f"]), st.integers(1, 3000))
#: User records of one aggregated record, and what is wrong with it.
aggregates = st.tuples(
    st.lists(datas, min_size=1, max_size=4),
    st.sampled_from([None, None, None, kpl.ChecksumMismatch, kpl.CaptureError]),
)


@given(st.lists(aggregates, min_size=1, max_size=6), st.integers(600, 12_000))
@settings(max_examples=examples(80))
@pytest.mark.requirement("LMB-4", "LMB-5", "LMB-6", "LMB-7", "AUD-7")
def test_the_answer_fits_and_nothing_is_left_out(batch: list[Any], limit: int) -> None:
    """Poison goes to the hook, and to Firehose's error output."""

    def handler(record: kpl.DeaggregatedRecord) -> bytes | None:
        if record.data.startswith(b"f"):
            raise RuntimeError
        return None if record.data.startswith(b"d") else record.data

    rows = [
        kpl.KinesisRecord("k", kpl.encode(kpl.UserRecord("k", data) for data in datas), str(i), SHARD)
        for i, (datas, _) in enumerate(batch)
    ]
    event = event_for("firehose", rows)
    for record, (_, wrong) in zip(event["records"], batch, strict=True):
        if wrong is kpl.ChecksumMismatch:
            record["data"] = record["data"][:-4] + "AAAA"
        elif wrong is kpl.CaptureError:
            record["data"] = "?"
    lines: list[str] = []
    poisons: list[Poison] = []
    with patch.object(firehose, "MAX_RESPONSE_SIZE", limit):
        response = transform_user_records(
            event, handler, ledger=Ledger(lines.append), on_poison=poisons.append
        )
    assert [type(poison.error) for poison in poisons] == [wrong for _, wrong in batch if wrong]
    assert {poison.stream_arn for poison in poisons} <= {STREAM}
    handled: list[tuple[str | None, int]] = []
    whole_size = sum(150 + 4 * sum(map(len, datas)) / 3 for datas, _ in batch)  # at most
    assert answer_size(response) <= limit
    assert [r["recordId"] for r in response["records"]] == [r["recordId"] for r in event["records"]]
    for (datas, wrong), row, result in zip(batch, rows, response["records"], strict=True):
        kept = b"".join(data for data in datas if data.startswith(b"k"))
        fails = wrong or any(data.startswith(b"f") for data in datas)
        if result["result"] == "ProcessingFailed":
            assert set(result) == {"recordId", "result"}
            assert fails or whole_size > limit
        else:
            assert result["result"] == ("Ok" if kept else "Dropped")
            assert not fails
            assert data_of(result) == kept if kept else "data" not in result
            handled += [(row.sequence_number, sub) for sub in range(len(datas))]
    assert noted(lines) == handled


@pytest.mark.requirement("LMB-38")
def test_with_a_ledger_each_record_must_name_its_place() -> None:
    """Refused before the handler runs: nothing is then handled without a row."""
    frame = kpl.encode([kpl.UserRecord("a", b"1")])
    whole = event_for("firehose", [kpl.KinesisRecord("a", frame, str(n), SHARD) for n in range(3)])
    delivery = STREAM.replace("stream/", "deliverystream/")
    nameless: list[dict[str, Any]] = [
        adapters.to_firehose([kpl.KinesisRecord(None, frame)], delivery_stream_arn=delivery),
        {name: value for name, value in whole.items() if name != "sourceKinesisStreamArn"},
    ]
    for lost in ("kinesisRecordMetadata", "shardId", "sequenceNumber"):
        event = json.loads(json.dumps(whole))
        last = event["records"][-1]
        last.pop(lost, None)
        last.get("kinesisRecordMetadata", {}).pop(lost, None)
        nameless.append(event)
    called: list[Any] = []
    lines: list[str] = []
    for event in nameless:
        with pytest.raises(ValueError, match="its source is a Kinesis stream"):
            transform_user_records(event, called.append, ledger=Ledger(lines.append))
    assert (called, noted(lines)) == ([], [])
    assert len(transform_user_records(nameless[0], same)["records"]) == 1
