"""From user records to Kinesis records: the KPL's bytes, exact sizes, limits kept."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.producer import Pending, ProducerConfig, RecordTooLarge
from kpl_codec.producer.batch import Batch, build_all
from kpl_codec.producer.lanes import Lanes
from kpl_codec.producer.record import PutValidator
from tests.examples import examples

VECTORS = Path(__file__).parents[2] / "spec" / "vectors"
KPL_CASES = [
    case
    for name in ("story-kpl.json", "story-kpl-refused.json")
    for case in json.loads((VECTORS / name).read_text())["vectors"]
    if case["observed"]
]

records = st.builds(
    kpl.UserRecord,
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30),
    st.binary(max_size=400),
    st.one_of(st.none(), st.integers(0, 2**128 - 1).map(str)),
    st.one_of(st.just(()), st.tuples(st.builds(kpl.Tag, st.text(max_size=5, alphabet="ab")))),
)


def prepared(config: ProducerConfig, record: kpl.UserRecord) -> Pending:
    return PutValidator(config).prepare(
        record.partition_key, record.data, record.explicit_hash_key, record.tags
    )


def aggregate(config: ProducerConfig, user_records: list[kpl.UserRecord]) -> list[Batch]:
    lanes = Lanes(config, lambda _: 0)
    for record in user_records:
        lanes.add("shard", prepared(config, record))
    return list(lanes.batches())


@pytest.mark.requirement("PRD-11", "PRD-12", "PRD-19")
@pytest.mark.parametrize("case", KPL_CASES, ids=lambda case: case["id"])
def test_the_same_bytes_keys_and_sizes_as_the_kpl(case: dict) -> None:
    user_records = [
        kpl.UserRecord(r["partition_key"], bytes.fromhex(r["data"]), r.get("explicit_hash_key"))
        for r in case["input"]["user_records"]
    ]
    if case["result"] == "invalid":  # what the KPL's Java layer refuses before its encoder sees it
        with pytest.raises(kpl.EncodeError):
            aggregate(ProducerConfig(), user_records)
        return
    written = case["observed"]["KPL 1.0.7 (C++)"]
    data = written.get("kinesis_record_data", case["data"])
    config = ProducerConfig(aggregation_max_size=10 * 2**20, max_record_size=10 * 2**20)
    (batch,) = aggregate(config, user_records)
    entry = build_all([batch])[0]
    assert entry["Data"].hex() == data
    assert entry["PartitionKey"] == written["outer_partition_key"]
    assert entry["ExplicitHashKey"] == written["outer_explicit_hash_key"]
    assert batch.data_size == len(data) // 2


@pytest.mark.requirement("PRD-15", "PRD-12", "PRD-14", "PRD-19")
@given(
    st.lists(records, min_size=1, max_size=30),
    st.integers(64, 1500),
    st.integers(1, 12),
    st.sampled_from(["fixed", "buckets"]),
)
def test_limits_hold_sizes_are_exact_and_nothing_is_left_out(
    user_records: list[kpl.UserRecord], max_size: int, max_count: int, outer_key: str
) -> None:
    config = ProducerConfig(
        aggregation_max_size=max_size, aggregation_max_count=max_count, outer_key=outer_key
    )
    batches = aggregate(config, user_records)
    out: list[kpl.UserRecord] = []
    for batch in batches:
        entry = build_all([batch])[0]
        data = entry["Data"]
        assert batch.data_size == len(data)
        assert batch.full_size == len(data) + len(entry["PartitionKey"].encode())
        assert len(batch.records) <= max_count
        assert len(batch.records) == 1 or len(data) <= max_size
        hash_keys = [
            kpl.effective_hash_key(p.record.partition_key, p.record.explicit_hash_key) for p in batch.records
        ]
        assert int(entry["ExplicitHashKey"]) == hash_keys[0]
        if outer_key == "buckets":
            outer = {f"a{kpl.effective_hash_key(p.record.partition_key, None) % 10}" for p in batch.records}
            assert outer == {entry["PartitionKey"]}
        if kpl.is_aggregated(data):
            out += kpl.decode(data)
        else:
            out.append(kpl.UserRecord(entry["PartitionKey"], data, batch.records[0].record.explicit_hash_key))
    if outer_key != "buckets":
        assert out == user_records
    else:
        assert Counter(out) == Counter(user_records)


@pytest.mark.requirement("PRD-15")
@settings(max_examples=examples(25))
@given(st.integers(0, 4), st.sampled_from(["fixed", "buckets"]))
def test_an_aggregate_never_outgrows_the_stream_with_its_key(delta: int, outer_key: str) -> None:
    """The KPL's edge: aggregationMaxSize 1 MiB lets data + "a" be one byte too many."""
    config = ProducerConfig(aggregation_max_size=2**20, outer_key=outer_key)
    first = kpl.UserRecord("key", b"x" * 500_000)
    probe = kpl.AggregatedRecordBuilder()
    probe.add(first)
    rest = 2**20 - probe.size - 14 + delta
    batches = aggregate(config, [first, kpl.UserRecord("key", b"y" * rest)])
    assert all(batch.full_size <= 2**20 for batch in batches)
    assert sum(len(batch.records) for batch in batches) == 2


@pytest.mark.requirement("PRD-5", "PRD-13", "PRD-14")
@pytest.mark.parametrize("outer_key", ["fixed", "buckets"])
@given(extra=st.integers(-3, 3), tagged=st.booleans())
@settings(max_examples=examples(20))
def test_what_must_be_wrapped_is_refused_by_its_wrapped_size(
    outer_key: str, extra: int, tagged: bool
) -> None:
    config = ProducerConfig(outer_key=outer_key)
    tags = (kpl.Tag("t", "v"),) if tagged else ()
    magic = b"" if tagged else b"\xf3\x89\x9a\xc2"
    size = 2**20 - 60 + extra
    record = kpl.UserRecord("key", magic + b"x" * size, None, tags)
    wrapped = len(kpl.encode([record])) + len({"fixed": "a", "buckets": "a0"}[outer_key])
    if wrapped > 2**20:
        with pytest.raises(RecordTooLarge) as caught:
            prepared(config, record)
        assert caught.value.size == wrapped
    else:
        entry = build_all([Lanes(config, lambda _: 0).alone(None, prepared(config, record))])[0]
        assert kpl.is_aggregated(entry["Data"])
        assert len(entry["Data"]) + len(entry["PartitionKey"]) == wrapped


@pytest.mark.requirement("PRD-16")
@given(
    st.lists(st.integers(0, 200_000), min_size=1, max_size=80),
    st.integers(1, 20),
    st.integers(52224, 300_000),
)
@settings(max_examples=examples(50))
def test_requests_keep_their_limits(sizes: list[int], max_count: int, max_size: int) -> None:
    config = ProducerConfig(collection_max_count=max_count, collection_max_size=max_size)
    lanes = Lanes(config, lambda _: 0)
    for size in sizes:  # without a shard there are no token buckets
        lanes.alone(None, prepared(config, kpl.UserRecord("key", b"x" * size)))
    full = list(iter(lambda: lanes.next_call(0.0), None))
    requests = [*full, *iter(lambda: lanes.next_call(1.0), None)]
    assert len(requests) <= len(full) + 1
    assert [len(u.records[0].record.data) for batches in requests for u in batches] == sizes
    for batches in requests:
        assert len(batches) <= max_count
        assert len(batches) == 1 or sum(batch.full_size for batch in batches) <= max_size
