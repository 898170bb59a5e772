"""Writers are told apart by what they write, real ones among them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_kinesis_agg.aggregator import RecordAggregator
from hypothesis import given

import kpl_codec as kpl
from kpl_codec.testing import strategies as kpl_st
from kpl_codec.watch import LastHour, Look
from kpl_codec.watch.writers import SHAPES, WRITERS, described, writer_of

from ..spec.vectors import VECTORS
from .model import START, open_map


def told_as(outer_key: str | None, data: bytes) -> str:
    record = kpl.KinesisRecord(outer_key, data)
    return writer_of(record, list(kpl.deaggregate([record], "report")))


def by_aws_kinesis_agg(keys: list[str], hash_key: str | None = None) -> tuple[str, bytes]:
    aggregator = RecordAggregator()
    for key in keys:
        aggregator.add_user_record(key, b"an order", hash_key)
    outer_key, _, data = aggregator.clear_and_get().get_contents()
    return outer_key, data


KEYS = [f"customer-{n % 7}" for n in range(20)]
SOUND = kpl.encode([kpl.UserRecord(key, b"an order") for key in KEYS])
EXPLICIT = kpl.encode([kpl.UserRecord(key, b"an order", "17") for key in KEYS])
TAGGED = kpl.encode([kpl.UserRecord("k", b"an order", None, (kpl.Tag("t", "v"),)), kpl.UserRecord("k", b"")])


@pytest.mark.requirement("WCH-12")
@pytest.mark.parametrize(
    ("outer_key", "data", "writer"),
    [
        ("customer-1", b"an order", "plain"),
        ("a", SOUND, "kpl"),
        (*by_aws_kinesis_agg(KEYS), "first-key"),
        (*by_aws_kinesis_agg(KEYS, "17"), "first-key+explicit"),
        ("8f3a", SOUND, "other-key"),
        ("a", EXPLICIT, "kpl+explicit"),
        ("8f3a", TAGGED, "other-key+tags"),
        (None, SOUND, "unknown"),
        ("a", SOUND[:-1] + b"?", "unknown"),
    ],
)
def test_the_kind_of_a_writer(outer_key, data, writer):
    assert told_as(outer_key, data) == writer


@pytest.mark.requirement("WCH-12")
@pytest.mark.parametrize("writer", ["kpl", "aiokpl", "aws-kinesis-agg-python", "aws-kinesis-agg-npm"])
def test_what_real_writers_wrote_has_no_shape_but_explicit_hash_keys(writer):
    for vector in json.loads((VECTORS / f"story-{writer}.json").read_text())["vectors"]:
        data = bytes.fromhex(vector.get("data") or vector["input"]["data"])
        if kpl.is_aggregated(data):
            assert told_as("8f3a", data) in ("other-key", "other-key+explicit")


def by_hand(table: list[str], indices: list[int]) -> bytes:
    """An aggregate with this table of partition keys, and user records with these indices."""
    from kpl_codec.format.frame import join_frame

    entries = b"".join(b"\x0a" + bytes([len(key)]) + key.encode() for key in table)
    records = b"".join(b"\x1a\x05\x08" + bytes([index]) + b"\x1a\x01x" for index in indices)
    return join_frame(entries + records)


@pytest.mark.requirement("WCH-12")
@pytest.mark.parametrize(
    ("table", "indices", "writer"),
    [
        (["a", "b"], [0, 1, 0], "other-key"),
        (["a", "b"], [1, 0, 0], "other-key+own-bytes"),  # sorted
        (["a", "a"], [0, 1], "other-key+own-bytes"),  # an entry for each user record
        (["a", "b"], [0, 0], "other-key+own-bytes"),  # an entry that nobody uses
    ],
)
def test_a_table_that_the_kpl_would_not_write(table, indices, writer):
    assert told_as("8f3a", by_hand(table, indices)) == writer


@given(kpl_st.aggregated_records())
def test_every_writer_can_be_described(aggregate: Any):
    for outer_key in ("a", aggregate.user_records[0].partition_key, "8f3a"):
        name, *shape = told_as(outer_key, aggregate.data).split("+")
        assert name in WRITERS
        assert set(shape) <= set(SHAPES)
        assert described("+".join((name, *shape)))
    assert described("unknown") is None


@pytest.mark.requirement("WCH-12")
def test_two_aggregators_of_different_shape_are_two_findings():
    shard_map = open_map(4)
    last_hour = LastHour("orders")
    last_hour.use(shard_map, START)
    explicit = kpl.encode([kpl.UserRecord(KEYS[0], b"", str(n * 2**127)) for n in range(2)])
    records = [
        kpl.KinesisRecord(outer_key, data, str(10**20 + n), "shardId-000000000002")
        for n, (outer_key, data) in enumerate([by_aws_kinesis_agg(KEYS), (KEYS[0], explicit)] * 4)
    ]
    told = last_hour.observe(Look("shardId-000000000002", 1), records, START)
    found = {f.writer: f.lost.seen for f in last_hour.findings()}
    assert found == {"first-key": 4 * len(KEYS), "first-key+explicit": 4 * 2}
    (finding,) = (f for f in told if f.writer == "first-key+explicit")
    assert "as aws_kinesis_agg does (every user record has an explicit hash key)" in finding.text
    assert last_hour.writers == {"first-key": 4, "first-key+explicit": 4}
