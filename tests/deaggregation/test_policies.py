"""The policies against what the implementations were observed to do, and their laws."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from fuzz.invariants import frame
from kpl_codec.deaggregation.deaggregated_record import Counts
from kpl_codec.deaggregation.policies import opened
from kpl_codec.deaggregation.policy_rules import POLICIES, rules_of
from kpl_codec.shards.placement import aggregate_kind, verify_placement
from kpl_codec.testing import strategies

from ..every import every
from ..shards.test_shard_map import HALF, SPLIT
from ..spec import vectors

#: Those that go on after a defect.
NOT_RAISING = tuple(policy for policy in POLICIES if not rules_of(policy).raises)
#: What the vectors open.
FRAMES = [data for data in vectors.frames() if len(data) < 2000]
#: Aggregated records whose user records are of both shards of SPLIT.
_LOW, _HIGH = kpl.UserRecord("a", b"low"), kpl.UserRecord("a", b"high", str(HALF))
ACROSS = [kpl.encode([_LOW, _HIGH]), kpl.encode([_HIGH] * 3), kpl.encode([_LOW] * 4 + [_HIGH])]
WHEN = datetime(2026, 11, 21, tzinfo=timezone.utc)


def record(
    data: bytes, sequence_number: str = "7", shard_id: str | None = "shardId-000000000001"
) -> kpl.KinesisRecord:
    return kpl.KinesisRecord("outer", data, sequence_number, shard_id, WHEN)


@pytest.mark.requirement("PLC-5", "MSG-12")
@given(strategies.non_canonical_records(), st.booleans(), st.booleans())
def test_however_it_is_written_its_user_records_are_the_same(
    aggregate: strategies.Aggregate, mapped: bool, ranged: bool
) -> None:
    shard_map = kpl.ShardMap(SPLIT) if mapped else None
    hash_key_range = kpl.HashKeyRange(0, HALF) if ranged else None
    for policy in POLICIES:
        as_written, canonical = (
            kpl.deaggregate([record(data)], policy, shard_map=shard_map, hash_key_range=hash_key_range)
            for data in (aggregate.data, kpl.encode(kpl.decode(aggregate.data)))
        )
        assert list(as_written) == list(canonical)
        assert as_written.counts == canonical.counts


@pytest.mark.requirement("DAG-9")
@given(
    strategies.non_canonical_records() | strategies.defective_frames(),
    st.sampled_from(NOT_RAISING),
    st.booleans(),
)
def test_a_range_decides_fates_and_a_map_makes_placements(made: Any, policy: Any, at_once: bool) -> None:
    source = [record(made.data), record(b"plain")]
    shard_map, hash_key_range = kpl.ShardMap(SPLIT), SPLIT[1].hash_key_range
    given_ = source if at_once else iter(source)
    ranged = list(kpl.deaggregate(given_, policy, hash_key_range=hash_key_range))
    mapped = list(kpl.deaggregate(source, policy, shard_map=shard_map))
    assert {row.placement for row in ranged} <= {None}
    assert [row.replace(placement=None) for row in mapped] == ranged
    assert all(row.placement for row in mapped if not row.defects)


@pytest.mark.requirement("DAG-4", "DAG-5", "DAG-12")
@every("mapped", [True, False])
@every("policy", POLICIES)
def test_many_records_give_what_each_gives_alone(policy: Any, mapped: bool) -> None:
    """The same user records, drops and counts, for every frame of the vectors, in a list and an iterator."""
    shard_map = kpl.ShardMap(SPLIT) if mapped else None

    def outcome(records: Any, **more: Any) -> tuple[list[Any], list[kpl.Drop], Any]:
        drops: list[kpl.Drop] = []
        found = opened(records, policy, shard_map=shard_map, on_drop=drops.append, **more)
        return list(found), drops, found.counts

    source = [
        record(data, str(number), f"shardId-{number % 3 + 1:012}")
        for number, data in enumerate([*FRAMES, *ACROSS * 3])
        if not rules_of(policy).raises or kpl.explain(data).kind in ("plain", "encoded frame", "aggregated")
    ]
    rows, drops, total = [], [], Counts()
    for one in source:
        alone, dropped, counted = outcome([one])
        rows += alone
        drops += dropped
        total.add(counted)
    reasons = {"index-out-of-table", "hash-key", "out-of-range"} if rules_of(policy).as_kcl else set()
    assert {drop.reason for drop in drops} == total.dropped.keys() == reasons
    assert bool(total.empty_records) == rules_of(policy).as_kcl
    assert outcome(source) == (rows, drops, total)
    for read_ahead in (None, False, True):
        assert outcome(iter(source), read_ahead=read_ahead) == (rows, drops, total)


@pytest.mark.requirement("DAG-5", "PLC-4", "PLC-5")
@pytest.mark.parametrize("policy", NOT_RAISING)
def test_user_records_of_defective_aggregates_are_placed_by_the_hash_key_that_is_known(policy: Any) -> None:
    shard_map = kpl.ShardMap(SPLIT)
    for data in FRAMES:
        rows = list(kpl.deaggregate([record(data)], policy, shard_map=shard_map))
        rows = [row for row in rows if row.aggregated and row.sub_sequence_number >= 0]
        keys = [
            row.replace(partition_key=None)
            if any(d.fields.get("table") == "explicit_hash_key_table" for d in row.defects)
            else row
            for row in rows
        ]
        alone = [verify_placement(row, shard_map) for row in keys]
        kind = aggregate_kind(
            sum(found.in_range is True for found in alone), sum(found.in_range is False for found in alone)
        )
        assert [row.placement for row in rows] == [found.replace(aggregate=kind) for found in alone]
        assert {row.approximate_arrival_timestamp for row in rows} <= {WHEN}


@pytest.mark.slow
def test_a_key_of_ten_megabytes_of_nonsense_takes_linear_time() -> None:
    raw = b"\xff" * 3_000_000
    message = b"\x0a" + b"\xc0\x8d\xb7\x01" + raw + b"\x1a\x05\x08\x00\x1a\x01x"
    (row,) = kpl.deaggregate([record(frame(message))], "kcl")
    assert len(row.partition_key or "") == len(raw)


@every(
    ("wrong", "hint"),
    [
        ({"Records": [{"kinesis": {"data": "eA=="}}]}, "kpl_codec.aws_lambda.user_records"),
        ([{"kinesis": {"data": "eA=="}}], "kpl_codec.aws_lambda.user_records"),
        ([{"Data": b"x"}], "kpl_codec.adapters.kinesis_records"),
        (record(b"x"), "kinesis_records of deaggregate is of type KinesisRecord, give a list"),
        ([record("eA==")], "base64.b64decode"),  # type: ignore[arg-type]
    ],
)
@every("lazily", [False, True])
def test_a_mistake_is_told_which_function_to_use(wrong: Any, hint: str, lazily: bool) -> None:
    with pytest.raises(TypeError, match=re.escape(hint)):
        list(kpl.deaggregate(iter(wrong) if lazily and isinstance(wrong, list) else wrong))
    for function in ("aws_lambda.user_records", "adapters.kinesis_records"):
        module, _, name = f"kpl_codec.{function}".rpartition(".")
        assert callable(getattr(importlib.import_module(module), name))


def test_a_deaggregation_is_an_iterator_that_goes_on_where_it_was() -> None:
    found = kpl.deaggregate([record(b"x"), record(b"y"), record(b"z")])
    assert isinstance(found, Iterator)
    assert [next(iter(found)).data, next(found).data] == [b"x", b"y"]
    assert [row.data for row in found] == [b"z"]
    assert found.counts.kinesis_records == 3


#: What the table of chapter 3 says of each rule.
ON_DEFECT = {
    "raise": "the first defect is raised",
    "as-kcl": "what the KCL delivers; dropped user records are counted by reason",
    "report": "every user record in the bytes, with its defects; "
    "a frame that cannot be opened, as one raw record",
}
ON_PAYLOAD = {
    "raise": "raised",
    "report": "as it is, with the defect",
}


@pytest.mark.parametrize("policy", POLICIES)
def test_the_table_of_chapter_3_says_what_each_policy_does(policy: str) -> None:
    chapter = (vectors.VECTORS.parent / "03-deaggregation.md").read_text()
    rule = rules_of(policy)
    row = (
        f"| `{policy}` | {'what the KCL delivers' if rule.as_kcl else 'its user records'} "
        f"| {ON_DEFECT[rule.on_defect]} | {ON_PAYLOAD[rule.on_compression]} | "
    )
    assert row in chapter
