"""The scan against the plain way: what is counted in columns equals what is counted record by record,
however the rows are cut into batches, partitions and tallies."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.findings import Finding
from kpl_codec.findings.counters import MAX_EXAMPLES, Tally, sample
from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.shards.placement import ACROSS_SHARDS, Causes
from kpl_codec.shards.shard import Shard
from kpl_codec.shards.shard_map import ShardMap
from kpl_codec.validate.scan import FINDINGS_SCHEMA, Scan, findings_batch, findings_of
from tests.examples import examples

from .report.examples import (
    INPUT_SCHEMA,
    START,
    Stream,
    broken_frame,
    mixed_stream,
    opened,
    report_of,
    scanned,
)

THREE = ShardMap(Shard(f"shardId-{i:012d}", held) for i, held in enumerate(ALL_HASH_KEYS.split(3)))


@pytest.fixture(scope="module", autouse=True)
def held_as_little_as_can_be() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kpl_codec.validate.scan.AT_ONCE", 1)
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
        data = {
            "plain": b"plain",
            "null": None,
            "broken": broken_frame(rnd),
        }.get(what) or (kpl.encode([kpl.UserRecord(k, b"d" * rnd.randrange(9)) for k in keys]))
        home = THREE.shard_for(kpl.effective_hash_key(keys[0])).shard_id
        rows.append(
            {
                "streamName": "s",
                "shardId": draw(st.sampled_from([home, home, home, "shardId-000000000001", "strange", None])),
                "sequenceNumber": str(10**55 + draw(st.integers(0, 3)) + index),
                "partitionKey": keys[0],
                "data": None if what == "null" else data,
                "approximateArrivalTimestamp": draw(
                    st.none() | st.integers(0, 9).map(lambda s: START + timedelta(seconds=s))
                ),
                "file": "f",
                "position": index,
                "line": index + 1,
                "recordIndex": 0,
            }
        )
    return pa.RecordBatch.from_pylist(rows, schema=INPUT_SCHEMA)


def counted_plainly(batch: pa.RecordBatch, shard_map: ShardMap) -> dict[str, object]:
    """The same counts, one object at a time."""
    records = [
        kpl.KinesisRecord(
            row["partitionKey"], row["data"], row["sequenceNumber"], row["shardId"],
            row["approximateArrivalTimestamp"],
        )
        for row in batch.to_pylist()
    ]  # fmt: skip
    verdicts: Counter[str] = Counter()
    kcl: Counter[str] = Counter()
    defects: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    plain = aggregated = broken = user_records = 0
    for record in records:
        if record.data is None:
            broken += 1
            user_records += 1
            defects["no-data"] += 1
            verdicts["not-judged"] += 1
            continue
        rows = list(kpl.deaggregate([record], "report", shard_map=shard_map))
        defects.update(row.defects[0].code for row in rows if row.defects)
        real = [row for row in rows if row.sub_sequence_number >= 0]
        user_records += len(real)
        verdicts.update(str(row.placement.verdict) if row.placement else "not-judged" for row in real)
        kcl.update(row.kcl for row in real if row.kcl)
        opened = any(row.aggregated or row.sub_sequence_number < 0 for row in rows)
        aggregated += opened
        broken += not opened and any(row.defects for row in rows)
        plain += not opened and not any(row.defects for row in rows)
        kind = next((row.placement.aggregate for row in real if row.placement), None) if opened else None
        if kind in ("mixed", "foreign") and not all(row.kcl == "raw" for row in real):
            kinds[kind] += 1
    return {
        "kinesis": len(records),
        "plain": plain,
        "aggregated": aggregated,
        "broken": broken,
        "user records": user_records,
        "verdicts": verdicts,
        "kcl": kcl,
        "defects": defects,
        "aggregates": kinds,
    }


def content(tally: Tally) -> dict[str, object]:
    examples = {kind: sample(kept, MAX_EXAMPLES) for kind, kept in tally.examples.items()}
    return {**vars(tally), "examples": examples}


def counted(tally: Tally) -> dict[str, object]:
    verdicts: Counter[str] = Counter()
    kcl: Counter[str] = Counter()
    for (_, _, verdict, fate), (count, *_) in tally.groups.items():
        verdicts[verdict or "not-judged"] += count
        if fate is not None:
            kcl[fate] += count
    return {
        "kinesis": tally.records["kinesis"],
        "plain": tally.records["plain"],
        "aggregated": tally.records["aggregated"],
        "broken": tally.records["broken"],
        "user records": sum(group[0] for group in tally.groups.values()),
        "verdicts": verdicts,
        "kcl": kcl,
        "defects": Counter(
            {
                kind: count
                for kind, (count, _) in tally.kinds.items()
                if kind not in ("mixed-aggregate", "foreign-aggregate", "stray")
            }
        ),
        "aggregates": Counter(
            {kind: tally.records[kind] for kind in ("mixed", "foreign") if tally.records[kind]}
        ),
    }


@pytest.mark.requirement("DAG-5", "DAG-6", "DAG-7", "PLC-5", "SPK-1")
@settings(max_examples=examples(40), deadline=None)
@given(batches(), st.sampled_from([1, 300, 1 << 20]))
def test_columns_count_what_objects_count_however_batches_are_cut(
    batch: pa.RecordBatch, max_bytes: int
) -> None:
    tally, found = scanned(batch, THREE, max_bytes)
    assert counted(tally) == counted_plainly(batch, THREE)
    assert Counter(finding.kind for finding in found) == Counter(
        {kind: count for kind, (count, _) in tally.kinds.items()}
    )
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
    plainly = counted_plainly(batch, THREE)
    assert tally.records["kinesis"] == plainly["kinesis"]
    assert counted(tally)["user records"] == plainly["user records"]


def test_findings_survive_the_table_they_are_written_to() -> None:
    stream, batch = mixed_stream(200)
    _, found = scanned(batch, stream.map)
    assert len(found) > 5
    assert list(findings_of(findings_batch(found))) == found
    assert findings_batch(found).schema == FINDINGS_SCHEMA
    assert set(findings_batch(found)["severity"].to_pylist()) == {finding.severity for finding in found}


def test_times_outside_the_calendar_count_as_missing() -> None:
    second = int(START.timestamp()) * 10**6
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
    assert [f.approximate_arrival_timestamp for f in found] == [None, START, None]
    assert tally.shards["s"] == [3, 0, START.timestamp(), START.timestamp()]
    assert tally.records["broken"] == 3


def test_evidence_names_the_place_and_never_the_data() -> None:
    secret = "secret-customer-name"
    other = next(
        f"{secret}-{i}"
        for i in range(99)
        if THREE.shard_for(kpl.effective_hash_key(f"{secret}-{i}")) != THREE.shard_for(
            kpl.effective_hash_key(secret)
        )
    )  # fmt: skip
    data = kpl.encode([kpl.UserRecord(secret, b"secret-data"), kpl.UserRecord(other, b"secret-data")])
    rows = [
        {"shardId": THREE.shard_for(kpl.effective_hash_key(secret)).shard_id, "sequenceNumber": "7" * 56,
         "partitionKey": secret, "data": frame, "file": "f", "line": 3, "position": 4}
        for frame in (data, data[:-1])
    ]  # fmt: skip
    tally, found = scanned(pa.RecordBatch.from_pylist(rows, schema=INPUT_SCHEMA), THREE)
    mixed, broken = sorted(found, key=lambda finding: finding.severity != "critical")
    assert (mixed.kind, broken.kind) == ("mixed-aggregate", "checksum-mismatch")
    assert (mixed.inside, mixed.outside, mixed.dropped, mixed.user_records) == (1, 1, 2, 2)
    assert (mixed.file, mixed.line, mixed.sequence_number, mixed.cause) == ("f", 3, "7" * 56, ACROSS_SHARDS)
    assert "secret" not in repr(found)
    assert b"secret" not in tally.to_bytes()


# -- causes ----------------------------------------------------------------------------------------


def test_causes_tell_a_reshard_from_a_writer_that_does_not_look() -> None:
    stream = Stream()
    causes = Causes(stream.map)
    low, high = (stream.shards[i].hash_key_range.starting_hash_key for i in (4, 5))
    soon = stream.split_at + timedelta(minutes=1)
    late = stream.split_at + timedelta(minutes=30)
    child = stream.shards[4].shard_id
    assert causes.of(child, low, high, soon) == ("reshard", stream.shards[1].shard_id)
    assert causes.of(child, low, high, late) == (ACROSS_SHARDS, None)
    assert causes.of(child, high, high + 1, late) == ("wrong-shard", stream.shards[5].shard_id)
    assert causes.of(child, 0, 2**128 - 1, soon) == (ACROSS_SHARDS, None)


def test_an_expired_parent_accuses_nobody() -> None:
    stream = Stream()
    listed = ShardMap(shard for shard in stream.shards if shard.shard_id != stream.shards[1].shard_id)
    low, high = (stream.shards[i].hash_key_range.starting_hash_key for i in (4, 5))
    assert Causes(listed).of(stream.shards[4].shard_id, low, high, None) == ("unknown-lineage", None)


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
    from kpl_codec.findings import counters as module

    monkeypatch.setattr(module, "MAX_SHARDS", 5)
    monkeypatch.setattr(module, "MAX_CELLS", 20)
    monkeypatch.setattr(module, "MAX_GROUPS", 12)
    monkeypatch.setattr(module, "MAX_EXAMPLES", 3)
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
    def tally(some: list[tuple[int, str]]) -> Tally:
        one = Tally()
        for second, shard in some:
            one.add("cells", (second, shard), 1, 2, 0)
            one.add("shards", shard, 0, 0, second, second)
            one.add_finding(Finding("stray", shard_id=shard, line=second))
        return one

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
