"""Writers are told apart by what they write, real ones among them."""

from __future__ import annotations

import json

import pytest
from aws_kinesis_agg.aggregator import RecordAggregator

import kpl_codec as kpl
from kpl_codec.watch.writers import writer_of

from ..spec.vectors import VECTORS


def told_as(outer_key: str | None, data: bytes) -> str:
    record = kpl.KinesisRecord(outer_key, data)
    return writer_of(record, list(kpl.deaggregate([record], "report")))


def by_aws_kinesis_agg() -> tuple[str, bytes]:
    aggregator = RecordAggregator()
    for key in KEYS:
        aggregator.add_user_record(key, b"an order")
    outer_key, _, data = aggregator.clear_and_get().get_contents()
    return outer_key, data


KEYS = [f"customer-{n % 7}" for n in range(20)]
SOUND = kpl.encode([kpl.UserRecord(key, b"an order") for key in KEYS])


@pytest.mark.requirement("WCH-12")
@pytest.mark.parametrize(
    ("outer_key", "data", "writer"),
    [
        ("customer-1", b"an order", "plain"),
        ("a", SOUND, "kpl"),
        (*by_aws_kinesis_agg(), "first-key"),
        ("8f3a", SOUND, "other-key"),
        (None, SOUND, "unknown"),
        ("a", SOUND[:-1] + b"?", "unknown"),
    ],
)
def test_the_kind_of_a_writer(outer_key, data, writer):
    assert told_as(outer_key, data) == writer


@pytest.mark.requirement("WCH-12")
@pytest.mark.parametrize("writer", ["kpl", "aiokpl", "aws-kinesis-agg-python", "aws-kinesis-agg-npm"])
def test_every_aggregate_of_a_real_writer_is_told_by_its_outer_key(writer):
    for vector in json.loads((VECTORS / f"story-{writer}.json").read_text())["vectors"]:
        data = bytes.fromhex(vector.get("data") or vector["input"]["data"])
        if kpl.is_aggregated(data):
            assert told_as("8f3a", data) == "other-key"
            assert told_as("a", data) == "kpl"
