"""Writers are told apart by what they write, real ones among them."""

from __future__ import annotations

from collections import Counter

import pytest
from aws_kinesis_agg.aggregator import RecordAggregator

import kpl_codec as kpl
from kpl_codec.deaggregation.fingerprints import WRITERS, fingerprint
from kpl_codec.watch.record_checks import (
    Minute,
    RecordChecker,
    SampleSlot,
    writer_of,
)

from ..spec.vectors import wild


def writer_named(outer_key: str | None, data: bytes) -> str:
    record = kpl.KinesisRecord(outer_key, data)
    return writer_of(record, list(kpl.deaggregate([record], "report")), fingerprint(data, outer_key))


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
    assert writer_named(outer_key, data) == writer


@pytest.mark.requirement("WCH-12", "WCH-38", "FPR-3")
@pytest.mark.parametrize(
    ("encoder", "writers", "swapped"),
    [
        ("kplnet", {"unused-blanks": 8}, 0),
        ("zio", {"unused-zeros": 8}, 0),
        ("erlmld", {"foreign-magic": 8}, 0),
        ("ruby-hawknewton", {"index-of-record": 5, "first-key": 2, "kpl": 1}, 5),
        ("fluent-bit-go", {"first-key": 8}, 0),
    ],
)
def test_an_encoder_in_the_wild_is_named(encoder, writers, swapped):
    """Also that of what no consumer opens."""
    outputs = [output for case in wild()[encoder] for output in case.outputs]
    records = [
        output.replace(sequence_number=str(n), shard_id="shardId-000000000000")
        for n, output in enumerate(outputs, 1)
    ]
    checker = RecordChecker()
    checker.set_shard_map(kpl.ShardMap([kpl.Shard("shardId-000000000000", kpl.ALL_HASH_KEYS)]))
    result = checker.check(records, SampleSlot("shardId-000000000000", 1), Minute())
    assert result.writers == writers
    groups = Counter((fault.group.kind, fault.group.writer) for fault in result.faults)
    assert sum(count for (kind, _), count in groups.items() if kind == "swapped-keys") == swapped
    assert {writer for _, writer in groups} <= WRITERS.keys()
    if encoder == "erlmld":
        assert groups == {("capture-encoded-frame", "foreign-magic"): 8}
        assert WRITERS["foreign-magic"].startswith("erlmld (certain: ")
