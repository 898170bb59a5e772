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
from hypothesis import example, given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.captures.capture_rows import CaptureRows
from kpl_codec.findings import Finding
from kpl_codec.findings.counters import MAX_EXAMPLES, Tally, sample
from kpl_codec.format.hash_keys import ALL_HASH_KEYS, hash_key_from_bytes
from kpl_codec.shards.placement import ACROSS_SHARDS, Causes
from kpl_codec.shards.shard import Shard
from kpl_codec.shards.shard_map import ShardMap
from kpl_codec.validate.check import check
from kpl_codec.validate.scan import FINDINGS_SCHEMA, Scan, findings_batch
from tests.examples import examples

from ..arrow.test_arrow import (
    SIBLINGS,
    SPLIT_AGAIN,
    batch_of,
    continues,
    framed,
    kinesis_records,
    objects,
    opened_records,
)
from ..shards.model import BEGIN, ModelStream
from .report.examples import (
    INPUT_SCHEMA,
    SPLIT_AT,
    Stream,
    report_of,
    scanned,
)

#: Open are shards 2, 5 and 6. Some hash keys of shard 5 were in its grandparent, shard 0; others were not.
LISTED = ModelStream(2, now=0)
LISTED.split(0)
LISTED.merge(1)
LISTED.split(1)
MAPS = [ShardMap(SPLIT_AGAIN), ShardMap(LISTED.shards)]
#: On shard 5: the third was overtaken by the split of shard 0; without its user record of other keys each of
#: the others would have been. The user record of another shard is large.
ACROSS = [
    kpl.encode([kpl.UserRecord("k", bytes(300 * (part == 2)), str(2**124 * part)) for part in parts])
    for parts in ((6, 9, 2), (2, 6, 9), (6, 2))
]
#: The last two user records have no partition key; there is no user record.
BROKEN = [b"\x0a\x01k" + b"".join(b"\x1a\x05\x08%c\x1a\x01x" % at for at in (0, 0, 7, 7)), b"\x0a\x01k"]
#: Each once as neither the first nor the last one, and with a time.
TELLING = [
    kpl.KinesisRecord("k", data, str(number), LISTED.shards[5].shard_id)
    for number, data in enumerate(3 * [*ACROSS, *map(framed, BROKEN)])
]


@pytest.fixture(scope="module", autouse=True)
def held_as_little_as_can_be() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kpl_codec.validate.scan.AT_ONCE", 1)
        patch.setattr("kpl_codec.validate.scan._WRITTEN_AT_ONCE", 3)
        yield


def batch_and_records(records: list[kpl.KinesisRecord]) -> tuple[pa.RecordBatch, list[kpl.KinesisRecord]]:
    """As they are captured, one a second; every third has no time. Each has a number: nobody can tell which
    user records are of one Kinesis record that has none."""
    records = [
        one.replace(
            sequence_number=one.sequence_number or str(at),
            approximate_arrival_timestamp=BEGIN + timedelta(seconds=at) if at % 3 else None,
        )
        for at, one in enumerate(records)
    ]
    rows = [{**row, "line": at} for at, row in enumerate(batch_of(records).to_pylist())]
    return pa.RecordBatch.from_pylist(rows, INPUT_SCHEMA), records


def counted_plainly(records: list[kpl.KinesisRecord], shard_map: ShardMap) -> Counter[tuple[str, Any]]:
    """Kinesis records by sort and shard, aggregates and their causes, user records by verdict and by what the
    KCL does, findings by kind."""
    counts = Counter[tuple[str, Any]]()
    causes = Causes(shard_map)
    each: list[list[dict[str, Any]]] = []
    for row in objects(records, "report", shard_map)[0]:
        if row["firstOfRecord"]:
            each.append([])
        each[-1].append(row)
    for rows in each:
        real = [row for row in rows if row["subSequenceNumber"] >= 0]
        counts.update(("finding", row["error"]) for row in rows if row["error"])
        counts.update(("about", row["error"]) for row in real if row["error"])
        counts.update(("verdict", row["placement"]) for row in real)
        counts.update(("kcl", row["kcl"]) for row in real)
        strays = [row for row in real if row["placement"] == "stray"]
        stray = sum(not row["aggregated"] or row["kcl"] == "delivered" for row in strays)
        kcl = Counter(row["kcl"] for row in real)
        for kind, findings, about in (
            ("stray", stray, stray),
            ("siblings-missing", kcl["unknown"] > 0, kcl["unknown"]),
        ):
            counts.update({("finding", kind): findings, ("about", kind): about})
        opened = any(row["aggregated"] or row["subSequenceNumber"] < 0 for row in rows)
        broken = any(row["error"] for row in rows)
        if opened:
            counts["record", "aggregated"] += 1
        elif broken:
            counts["record", "broken"] += 1
        else:
            counts["record", "plain"] += 1
        shard_id, at = rows[0]["shardId"], rows[0]["approximateArrivalTimestamp"]
        counts.update({("on shard", shard_id): 1, ("opened on shard", shard_id): opened})
        for kind in {row["aggregatePlacement"] for row in real} & {"mixed", "foreign"}:
            # (The KCL drops nothing of a frame that it does not open, and has delivered what it has opened.)
            if kcl["dropped"] or not (kcl["raw"] or kcl["delivered"]):
                keys = [hash_key_from_bytes(row["hashKey"]) for row in real if row["hashKey"]]
                cause = causes.of(shard_id, min(keys), max(keys), at).name
                counts.update([("record", kind), ("finding", f"{kind}-aggregate"), ("cause", cause)])
                counts["about", f"{kind}-aggregate"] += len(real)
    return +counts


def content(tally: Tally) -> dict[str, object]:
    examples = {kind: sample(kept, MAX_EXAMPLES) for kind, kept in tally.examples.items()}
    return {**vars(tally), "examples": examples}


def counted(tally: Tally) -> Counter[tuple[str, Any]]:
    counts = Counter[tuple[str, Any]]()
    for (_, _, verdict, kcl), (count, *_) in tally.groups.items():
        counts.update({("verdict", verdict): count, ("kcl", kcl): count})
    counts.update({("record", sort): count for sort, count in tally.records.items() if sort != "kinesis"})
    for shard_id, (on_shard, opened, *_) in tally.shards.items():
        counts.update({("on shard", shard_id): on_shard, ("opened on shard", shard_id): opened})
    counts.update({("cause", name): count for name, (count, *_) in tally.causes.items()})
    for kind, (findings, about) in tally.kinds.items():
        counts.update({("finding", kind): findings, ("about", kind): about})
    return +counts


@pytest.mark.requirement("DAG-5", "DAG-6", "DAG-7", "PLC-5", "SPK-1", "SPK-17")
@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(kinesis_records, max_size=14) | opened_records,
    st.integers(0, 25),
    st.sampled_from(MAPS),
    st.sampled_from([1, 500, 1 << 20]),
)
@example(TELLING, 2, MAPS[1], 500)
@example(TELLING, 9, MAPS[1], 1 << 20)
@example(SIBLINGS, 25, MAPS[0], 1)
def test_columns_count_what_objects_count_however_batches_are_cut(
    records: list[kpl.KinesisRecord], at: int, shard_map: ShardMap, max_bytes: int
) -> None:
    """In one partition or in two; and each finding is in the table as it was made."""
    batch, records = batch_and_records(records)
    while 0 < at < len(records) and continues(*records[at - 1 : at + 1]):
        at += 1
    whole, found = scanned(batch, shard_map)
    parts = [scanned(piece, shard_map, max_bytes) for piece in (batch.slice(0, at), batch.slice(at))]
    tally = Tally.merge_all(Tally.from_bytes(one.to_bytes()) for one, _ in parts)
    assert content(tally) == content(whole)
    assert Counter([*parts[0][1], *parts[1][1]]) == Counter(found)
    assert counted(tally) == counted_plainly(records, shard_map)
    assert Counter(found) == Counter(finding for kept in tally.examples.values() for finding in kept)
    assert Counter(finding.kind for finding in found) == Counter(
        {kind: count for kind, (count, _) in tally.kinds.items()}
    )
    table = findings_batch(found)
    assert table.schema == FINDINGS_SCHEMA
    assert table["severity"].to_pylist() == [finding.severity for finding in found]
    dropped = sum(count for (*_, kcl), (count, *_) in tally.groups.items() if kcl == "dropped")
    assert sum(lost for _, _, lost in tally.causes.values()) <= dropped


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
    scan = Scan(MAPS[1])
    for checked in check(parts, MAPS[1], scan.report):
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
    tally, found = scanned(rows.set_column(at, INPUT_SCHEMA.field(at), times), MAPS[1])
    assert [f.approximate_arrival_timestamp for f in found] == [None, BEGIN, None]
    assert tally.shards["s"] == [3, 0, BEGIN.timestamp(), BEGIN.timestamp()]
    assert tally.records["broken"] == 3


def test_evidence_names_the_place_and_never_the_data() -> None:
    keys = [f"secret-customer-{number}" for number in range(40)]
    home = MAPS[1].shard_for(kpl.effective_hash_key(keys[0]))
    data = kpl.encode([kpl.UserRecord(key, b"secret-data") for key in keys])
    place = {"shardId": home.shard_id, "sequenceNumber": "7" * 56, "file": "f", "line": 3, "position": 4}
    rows = [{**place, "partitionKey": keys[0], "data": frame} for frame in (data, data[:-1])]
    tally, found = scanned(pa.RecordBatch.from_pylist(rows, schema=INPUT_SCHEMA), MAPS[1])
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
@example([(second, "a") for second in range(60)], random.Random(0))
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
