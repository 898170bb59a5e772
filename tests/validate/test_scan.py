"""The scan against the plain way: what is counted in columns equals what is counted record by record,
however the rows are cut into batches, partitions and tallies."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.captures.capture_rows import CaptureRows
from kpl_codec.findings import Finding
from kpl_codec.findings.counters import MAX_EXAMPLES, Tally, sample
from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.shards.placement import ACROSS_SHARDS, Causes
from kpl_codec.shards.shard import Shard
from kpl_codec.shards.shard_map import ShardMap
from kpl_codec.validate.check import check
from kpl_codec.validate.scan import FINDINGS_SCHEMA, Scan, findings_batch
from tests.examples import examples

from ..shards.model import BEGIN
from .report.examples import (
    BROKEN,
    INPUT_SCHEMA,
    SPLIT_AT,
    Stream,
    opened,
    report_of,
    scanned,
)

THREE = ShardMap(Shard(f"shardId-{i:012d}", held) for i, held in enumerate(ALL_HASH_KEYS.split(3)))


@pytest.fixture(scope="module", autouse=True)
def held_as_little_as_can_be() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kpl_codec.validate.scan.AT_ONCE", 1)
        patch.setattr("kpl_codec.validate.scan._WRITTEN_AT_ONCE", 3)
        yield


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    """Kinesis records of every sort on three shards, one unknown shard, and none."""
    rnd = random.Random(draw(st.integers(0, 2**32)))
    rows = []
    for index in range(draw(st.integers(0, 14))):
        what = draw(st.sampled_from(["plain", "any", "one-shard", "broken", "null"]))
        count = draw(st.integers(1, 6))
        keys = [f"k{rnd.randrange(30)}" for _ in range(count)]
        if what == "one-shard":
            keys = [keys[0]] * count
        data = {"plain": b"plain", "null": None, "broken": rnd.choice(BROKEN)}
        aggregate = kpl.encode([kpl.UserRecord(k, b"d" * rnd.randrange(9)) for k in keys])
        home = THREE.shard_for(kpl.effective_hash_key(keys[0])).shard_id
        rows.append(
            {
                "streamName": "s",
                "shardId": draw(st.sampled_from([home, home, home, "shardId-000000000001", "strange", None])),
                "sequenceNumber": str(10**55 + draw(st.integers(0, 3)) + index),
                "partitionKey": keys[0],
                "data": data.get(what, aggregate),
                "approximateArrivalTimestamp": draw(
                    st.none() | st.integers(0, 9).map(lambda s: BEGIN + timedelta(seconds=s))
                ),
                "file": "f",
                "position": index,
                "line": index + 1,
                "recordIndex": 0,
            }
        )
    return pa.RecordBatch.from_pylist(rows, schema=INPUT_SCHEMA)


def counted_plainly(batch: pa.RecordBatch) -> Counter[tuple[str, str]]:
    """Kinesis records by sort, aggregates, user records by verdict and by what the KCL does, defects."""
    counts = Counter[tuple[str, str]]()
    for row in batch.to_pylist():
        if row["data"] is None:
            counts.update([("record", "broken"), ("verdict", "not-judged")])
            counts.update([("defect", "no-data"), ("with a defect", "no-data")])
            continue
        record = kpl.KinesisRecord(
            row["partitionKey"], row["data"], row["sequenceNumber"], row["shardId"],
            row["approximateArrivalTimestamp"],
        )  # fmt: skip
        rows = list(kpl.deaggregate([record], "report", shard_map=THREE))
        real = [one for one in rows if one.sub_sequence_number >= 0]
        counts.update(("defect", one.defects[0].code) for one in rows if one.defects)
        counts.update(("with a defect", one.defects[0].code) for one in real if one.defects)
        counts.update(("verdict", one.placement.verdict if one.placement else "not-judged") for one in real)
        counts.update(("kcl", one.kcl) for one in real if one.kcl)
        opened = any(one.aggregated or one.sub_sequence_number < 0 for one in rows)
        broken = any(one.defects for one in rows)
        if opened:
            counts["record", "aggregated"] += 1
        elif broken:
            counts["record", "broken"] += 1
        else:
            counts["record", "plain"] += 1
        kind = next((one.placement.aggregate for one in real if one.placement), None) if opened else None
        if kind in ("mixed", "foreign") and not all(one.kcl == "raw" for one in real):
            counts["aggregate", kind] += 1
    return counts


def content(tally: Tally) -> dict[str, object]:
    examples = {kind: sample(kept, MAX_EXAMPLES) for kind, kept in tally.examples.items()}
    return {**vars(tally), "examples": examples}


def counted(tally: Tally) -> Counter[tuple[str, str]]:
    counts = Counter[tuple[str, str]]()
    for (_, _, verdict, kcl), (count, *_) in tally.groups.items():
        counts["verdict", verdict or "not-judged"] += count
        if kcl is not None:
            counts["kcl", kcl] += count
    for sort in ("plain", "aggregated", "broken"):
        counts["record", sort] = tally.records[sort]
    for kind in ("mixed", "foreign"):
        counts["aggregate", kind] = tally.records[kind]
    for name, (count, user_records) in tally.kinds.items():
        if name not in ("mixed-aggregate", "foreign-aggregate", "stray"):
            counts["defect", name] = count
            counts["with a defect", name] = user_records
    return +counts


@pytest.mark.requirement("DAG-5", "DAG-6", "DAG-7", "PLC-5", "SPK-1")
@settings(max_examples=examples(40), deadline=None)
@given(batches(), st.sampled_from([1, 300, 1 << 20]))
def test_columns_count_what_objects_count_however_batches_are_cut(
    batch: pa.RecordBatch, max_bytes: int
) -> None:
    """And each finding is in the table as it was made."""
    tally, found = scanned(batch, THREE, max_bytes)
    assert tally.records["kinesis"] == batch.num_rows
    assert counted(tally) == counted_plainly(batch)
    assert Counter(found) == Counter(finding for kept in tally.examples.values() for finding in kept)
    assert Counter(finding.kind for finding in found) == Counter(
        {kind: count for kind, (count, _) in tally.kinds.items()}
    )
    table = findings_batch(found)
    assert table.schema == FINDINGS_SCHEMA
    assert table["severity"].to_pylist() == [finding.severity for finding in found]
    dropped = sum(count for (*_, kcl), (count, *_) in tally.groups.items() if kcl == "dropped")
    assert sum(lost for _, _, lost in tally.causes.values()) <= dropped


@settings(max_examples=examples(40), deadline=None)
@given(batches(), st.integers(0, 25), st.sampled_from([1, 300]))
def test_two_partitions_count_what_one_does(batch: pa.RecordBatch, at: int, max_bytes: int) -> None:
    whole, found = scanned(batch, THREE)
    parts = [scanned(piece, THREE, max_bytes) for piece in (batch.slice(0, at), batch.slice(at))]
    merged = Tally.merge_all(Tally.from_bytes(tally.to_bytes()) for tally, _ in parts)
    assert content(merged) == content(whole)
    assert Counter([*parts[0][1], *parts[1][1]]) == Counter(found)


@settings(max_examples=examples(40), deadline=None)
@given(batches(), st.integers(0, 200))
def test_a_kinesis_record_cut_between_two_scans_counts_once(batch: pa.RecordBatch, at: int) -> None:
    rows = list(opened(batch, THREE))
    if not rows:
        return
    table = pa.Table.from_batches(rows).combine_chunks().to_batches()
    while table and at and table[0].slice(at - 1, 1)["subSequenceNumber"].to_pylist() == [-1]:
        at += 1
    tally = Tally()
    for piece in (table[0].slice(0, at), table[0].slice(at)) if table else ():
        scan = Scan(THREE)
        scan.process(piece)
        scan.finish()
        tally.merge(scan.tally)
    assert tally.records["kinesis"] == batch.num_rows
    verdicts = [count for (what, _), count in counted_plainly(batch).items() if what == "verdict"]
    assert sum(group[0] for group in tally.groups.values()) == sum(verdicts)


@given(
    st.lists(
        st.integers(1, 4)  # an aggregate of so many
        | st.sets(st.integers(0, 9), min_size=1, max_size=4).map(sorted),  # captured by themselves
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 3),
)
@pytest.mark.requirement("SPK-17")
def test_every_kinesis_record_counts_once(captured: list[Any], cut: int) -> None:
    rows = CaptureRows("file")
    user_records = 0
    for record, item in enumerate(captured):
        subs = [None] if isinstance(item, int) else item
        user_records += item if isinstance(item, int) else len(item)
        for sub in subs:
            users = [kpl.UserRecord("k", b"%d" % n) for n in range(item)] if sub is None else []
            data = kpl.encode(users) if users else b"x"
            one = kpl.KinesisRecord("k", data, str(10**55 + record), "shardId-000000000000")
            rows.record(one.replace(sub_sequence_number=sub), None, record)
    (batch,) = rows.take()
    parts = [batch.slice(start, cut) for start in range(0, batch.num_rows, cut)]
    scan = Scan(THREE)
    for checked in check(parts, THREE, scan.report):
        scan.process(checked)
    scan.finish()
    assert scan.tally.records["kinesis"] == len(captured)
    assert scan.tally.records["aggregated"] == sum(item != [0] for item in captured)
    assert sum(group[0] for group in scan.tally.groups.values()) == user_records


def test_times_outside_the_calendar_count_as_missing() -> None:
    second = int(BEGIN.timestamp()) * 10**6
    rows = pa.RecordBatch.from_pylist(
        [
            {"shardId": "s", "sequenceNumber": str(n), "data": b"\xf3\x89\x9a\xc2" + bytes(20)}
            for n in range(3)
        ],
        schema=INPUT_SCHEMA,
    )
    times = pa.array([2**62, second, None], pa.int64()).cast(pa.timestamp("us", "UTC"))
    at = INPUT_SCHEMA.get_field_index("approximateArrivalTimestamp")
    tally, found = scanned(rows.set_column(at, INPUT_SCHEMA.field(at), times), THREE)
    assert [f.approximate_arrival_timestamp for f in found] == [None, BEGIN, None]
    assert tally.shards["s"] == [3, 0, BEGIN.timestamp(), BEGIN.timestamp()]
    assert tally.records["broken"] == 3


def test_evidence_names_the_place_and_never_the_data() -> None:
    keys = [f"secret-customer-{number}" for number in range(40)]
    home = THREE.shard_for(kpl.effective_hash_key(keys[0]))
    data = kpl.encode([kpl.UserRecord(key, b"secret-data") for key in keys])
    place = {"shardId": home.shard_id, "sequenceNumber": "7" * 56, "file": "f", "line": 3, "position": 4}
    rows = [{**place, "partitionKey": keys[0], "data": frame} for frame in (data, data[:-1])]
    tally, found = scanned(pa.RecordBatch.from_pylist(rows, schema=INPUT_SCHEMA), THREE)
    mixed, broken = sorted(found, key=lambda finding: finding.severity != "critical")
    assert (mixed.kind, broken.kind) == ("mixed-aggregate", "checksum-mismatch")
    inside = sum(kpl.effective_hash_key(key) in home.hash_key_range for key in keys)
    assert (mixed.inside, mixed.outside, mixed.dropped, mixed.user_records) == (inside, 40 - inside, 40, 40)
    assert (mixed.file, mixed.line, mixed.sequence_number, mixed.cause) == ("f", 3, "7" * 56, ACROSS_SHARDS)
    assert "secret" not in repr(found)
    assert b"secret" not in tally.to_bytes()


# -- causes ----------------------------------------------------------------------------------------


def test_causes_tell_a_reshard_from_a_writer_that_does_not_look() -> None:
    shards = Stream().shards
    causes = Causes(ShardMap(shards))
    parent, child, other = (shards[i].shard_id for i in (1, 4, 5))
    low, high = (shards[i].hash_key_range.starting_hash_key for i in (4, 5))
    soon, late = (BEGIN + timedelta(seconds=SPLIT_AT, minutes=minutes) for minutes in (1, 30))
    assert causes.of(child, low, high, soon) == ("reshard", parent)
    assert causes.of(child, low, high, late) == (ACROSS_SHARDS, None)
    assert causes.of(child, high, high + 1, late) == ("wrong-shard", other)
    assert causes.of(child, 0, 2**128 - 1, soon) == (ACROSS_SHARDS, None)
    # An expired parent accuses nobody.
    listed = ShardMap(shard for shard in shards if shard.shard_id != parent)
    assert Causes(listed).of(child, low, high, None) == ("unknown-lineage", None)


def test_without_times_only_a_parent_explains() -> None:
    quarters = ALL_HASH_KEYS.split(4)
    root = Shard("r", ALL_HASH_KEYS, ending_sequence_number="1")
    halves = [
        Shard(f"h{i}", held, parent_shard_id="r", ending_sequence_number="2")
        for i, held in enumerate(ALL_HASH_KEYS.split(2))
    ]
    leaves = [Shard(f"q{i}", held, parent_shard_id=f"h{i // 2}") for i, held in enumerate(quarters)]
    causes = Causes(ShardMap([root, *halves, *leaves]))
    assert causes.of("q0", 0, quarters[1].starting_hash_key, None) == ("reshard", "h0")
    assert causes.of("q0", 0, quarters[3].starting_hash_key, None) == (ACROSS_SHARDS, None)


# -- tallies ---------------------------------------------------------------------------------------


def test_tallies_stay_bounded_and_count_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in {"SHARDS": 5, "CELLS": 20, "GROUPS": 12, "EXAMPLES": 3}.items():
        monkeypatch.setattr(f"kpl_codec.findings.counters.MAX_{name}", limit)
    one = Tally()
    for index in range(400):
        shard = f"s{index % 50}"
        one.add("groups", (shard, f"e{index % 20}", "stray", "dropped"), 1, 10, str(index))
        one.add("cells", (index * 7, shard), 1, 10, 1)
        one.add_finding(Finding("stray", shard_id=shard, sequence_number=str(index), user_records=1))
    assert len(one.shards) == 6
    assert len(one.groups) <= 12 + 6
    assert len(one.cells) <= 20
    assert sum(group[0] for group in one.groups.values()) == 400
    assert sum(cell[0] for cell in one.cells.values()) == 400
    assert one.kinds["stray"] == [400, 400]
    assert len(Tally.from_bytes(one.to_bytes()).examples["stray"]) == 3


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.tuples(st.integers(-(2**35), 2**35), st.sampled_from("ab")), max_size=60), st.randoms())
def test_the_order_of_merging_does_not_matter(cells: list[tuple[int, str]], rnd: random.Random) -> None:
    """Also where there are too many cells for the shortest buckets."""

    def tally(some: list[tuple[int, str]]) -> Tally:
        one = Tally()
        for second, shard in some:
            one.add("cells", (second, shard), 1, 2, 0)
            one.add("shards", shard, 0, 0, second, second)
            one.add_finding(Finding("stray", shard_id=shard, line=second))
        return one

    with mock.patch("kpl_codec.findings.counters.MAX_CELLS", 5):
        whole = tally(cells)
        parts = [tally(cells[i::3]) for i in range(3)]
        rnd.shuffle(parts)
        assert content(Tally.merge_all(parts)) == content(whole)
    assert content(Tally.from_bytes(whole.to_bytes())) == content(whole)


def test_bytes_that_are_no_tally_are_refused() -> None:
    for data in (b"{}", b"[]", b"nonsense"):
        with pytest.raises(ValueError):
            Tally.from_bytes(data)


def test_times_far_outside_a_calendar_do_no_harm() -> None:
    one = Tally()
    one.add("cells", (2**62, "s"), 1, 1, 0)
    one.add("cells", (-(2**62), "s"), 1, 1, 0)
    one.add("shards", "s", 0, 0, -(2**62), 2**62)
    facts, _ = report_of(one, None)
    assert facts["arrivals"] is None
    assert facts["firstArrival"] is None
