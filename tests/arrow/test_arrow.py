"""Columns equal objects: `kpl_codec.arrow` against `kpl_codec.deaggregate`, under every policy."""

from __future__ import annotations

import gzip
import re
from array import array
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime, timezone
from decimal import Decimal
from importlib import import_module
from itertools import zip_longest
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from fuzz import corpus
from fuzz.invariants import frame as framed
from kpl_codec import adapters
from kpl_codec.arrow import (
    Deaggregator,
    coalesce,
    deaggregate_batches,
    deaggregate_table,
    new_deaggregator,
    output_schema,
)
from kpl_codec.arrow.layout import PLACEMENT_FIELDS, TYPES
from kpl_codec.deaggregation.policies import opened
from kpl_codec.deaggregation.policy_rules import POLICIES, rules_of
from kpl_codec.errors import CaptureError, KplError
from kpl_codec.format.hash_keys import hash_key_to_bytes
from kpl_codec.format.limits import MAGIC
from kpl_codec.format.records import opened_before, opening_of
from kpl_codec.testing import strategies as kst
from tests.examples import examples

from ..deaggregation.test_opened_before import USERS, cases, daemon, powertools
from ..deaggregation.test_policies import ACROSS
from ..every import every
from ..shards.test_shard_map import HALF, MAX, SPLIT, shard
from ..spec.vectors import VECTORS, load

#: The module; in `kpl_codec.arrow` this is the name of a function.
COMPILED_COLUMNS = import_module("kpl_codec.arrow.compiled_columns")

WHEN = datetime(2026, 11, 21, tzinfo=timezone.utc)
#: Its first two shards have closed, and each of their keys has an expected shard of its own.
SPLIT_AGAIN = [
    SPLIT[0],
    shard(1, 0, HALF - 1, 0, closed=True),
    SPLIT[2],
    shard(3, 0, HALF // 2 - 1, 1),
    shard(4, HALF // 2, HALF - 1, 1),
]
MAPS = [
    None,
    kpl.ShardMap(SPLIT),
    kpl.ShardMap(SPLIT, distribution="AUTO"),
    kpl.ShardMap(SPLIT_AGAIN),
    kpl.ShardMap([shard(0, 0, MAX)]),
]
SHARD_IDS = [*(f"shardId-{n:012d}" for n in range(4)), None]
OBSERVED = [bytes.fromhex(vector["input"]["data"]) for vector in load() if vector["kind"] == "decode"]
text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
hash_key_texts = st.integers(0, MAX).map(str) | st.sampled_from(["0", str(HALF), str(HALF - 1), str(MAX)])
sound = kst.aggregated_records(max_records=5).map(lambda made: made.data)


def with_byte(data: bytes, at: int, byte: int) -> bytes:
    """A frame whose message is that of ``data`` with one byte changed."""
    message = bytearray(data[len(MAGIC) : -16])
    message[at % len(message)] = byte
    return framed(bytes(message))


damaged = st.one_of(
    kst.defective_frames(max_records=5).map(lambda made: made.data),
    st.builds(with_byte, sound, st.integers(0, 300), st.integers(0, 255)),
)


def records_of(data: st.SearchStrategy[bytes]) -> st.SearchStrategy[kpl.KinesisRecord]:
    return st.builds(
        kpl.KinesisRecord,
        st.none() | text,
        data,
        st.none() | st.integers(0, 10**20).map(str),
        st.sampled_from(SHARD_IDS),
        st.none() | st.just(WHEN),
        st.none() | hash_key_texts | st.just("no number"),
        st.sampled_from([None, None, 0, 3, 2**63 - 1]),
    )


#: Data that can be decompressed, and data that cannot; both as a record's and as user records'.
WHOLE, CUT = gzip.compress(b"whole" * 20, mtime=0), b"\x1f\x8b\x08cut"
COMPRESSED = [b"plain", WHOLE, kpl.encode([kpl.UserRecord("k", data) for data in (b"1", WHOLE, CUT)]), CUT]
sound_records = records_of(sound | st.sampled_from(ACROSS))
kinesis_records = sound_records | records_of(
    st.one_of(damaged, st.binary(max_size=30), st.sampled_from(OBSERVED), st.sampled_from(COMPRESSED))
)


def read_by_others(several: list[Any]) -> list[kpl.KinesisRecord]:
    """The user records that somebody opened of each aggregated record, and that record itself."""
    records: list[kpl.KinesisRecord] = []
    for number, (opener, users, kept) in enumerate(several):
        for one in adapters.kinesis_records(opener(users, kept)):
            own: Any = opening_of(one)
            keys = one.partition_key, one.explicit_hash_key
            alone = own and opened_before(own.by, own.marked, one.sub_sequence_number, *keys)
            place = {"sequence_number": str(number), "shard_id": SHARD_IDS[1], "stream": None}
            records.append(one.replace(**place, opened_before=alone))
        records.append(kpl.KinesisRecord("a", kpl.encode(users), str(1000 + number), SHARD_IDS[1]))
    return records


opened_records = st.lists(cases(), min_size=1, max_size=3).map(read_by_others)
#: Three user records by the KCL, and three by somebody else; the second of each is of another shard.
SIBLINGS = read_by_others([(opener, USERS, range(3)) for opener in (daemon, powertools)])


def batch_of(records: list[kpl.KinesisRecord], *, large: bool = False) -> pa.RecordBatch:
    """As `validate` has captured records in columns."""
    batch = pa.RecordBatch.from_pydict(
        {
            "partitionKey": pa.array([r.partition_key for r in records], pa.string()),
            "data": pa.array([r.data for r in records], pa.large_binary() if large else pa.binary()),
            "sequenceNumber": pa.array([r.sequence_number for r in records], pa.string()),
            "shardId": pa.array([r.shard_id for r in records], pa.string()),
            "approximateArrivalTimestamp": pa.array(
                [r.approximate_arrival_timestamp for r in records], pa.timestamp("us", "UTC")
            ),
            "explicitHashKey": pa.array([r.explicit_hash_key for r in records], pa.string()),
            "subSequenceNumber": pa.array([r.sub_sequence_number for r in records], pa.int64()),
            "file": pa.array([f"file-{i}" for i in range(len(records))]),
        }
    )
    if not any(record.opened_before for record in records):
        return batch
    openings = [opening_of(record) for record in records]
    marks = [one and (one.marked or None) for one in openings]
    batch = batch.append_column("aggregated", pa.array(marks, pa.bool_()))
    return batch.append_column("openedBy", pa.array([one and one.by for one in openings], pa.string()))


def in_tight_buffers(column: pa.Array) -> pa.Array:
    """The same column without a byte to spare: `fuzz.sanitize` sees who reads on. (An array that is made of a
    list has no room for more; one that is made of bytes has.)"""
    buffers = [one and pa.py_buffer(array("B", [*one.to_pybytes()])) for one in column.buffers()]
    return pa.Array.from_buffers(column.type, len(column), buffers)


#: What each column of placement must be.
PLACEMENT_VALUES: dict[str, Callable[[kpl.Placement], Any]] = {
    "hashKey": lambda place: None if place.hash_key is None else hash_key_to_bytes(place.hash_key),
    "expectedShardId": lambda place: place.expected_shard_id,
    "placement": lambda place: place.verdict,
    "aggregatePlacement": lambda place: place.aggregate,
}


def row_of(
    record: kpl.DeaggregatedRecord, policy: str, shard_map: kpl.ShardMap | None, first_of_record: bool
) -> dict[str, Any]:
    row = {
        "streamName": None,
        "shardId": record.shard_id,
        "sequenceNumber": record.sequence_number,
        "subSequenceNumber": record.sub_sequence_number,
        "aggregated": record.aggregated,
        "partitionKey": record.partition_key,
        "explicitHashKey": record.explicit_hash_key,
        "data": record.data,
        "approximateArrivalTimestamp": record.approximate_arrival_timestamp,
        "tags": [{"key": t.key, "value": t.value} for t in record.tags] or None,
    }
    if shard_map is not None:
        place = record.placement
        row |= {name: None if place is None else value(place) for name, value in PLACEMENT_VALUES.items()}
    if rules_of(policy).shows_defects:
        first = record.defects[0] if record.defects else None
        row |= {
            "kcl": record.kcl,
            "error": first.code if first else None,
            "errorOffset": first.offset if first else None,
            "errorRecordIndex": first.record_index if first else None,
            "errorRequirement": first.requirement if first else None,
            "errorText": first.describe() if first else None,
            "errorCount": len(record.defects),
            "firstOfRecord": first_of_record,
        }
        if shard_map is not None:
            row["inRange"] = record.placement.in_range if record.placement else None
    return row


def test_each_column_of_placement_has_its_value_and_its_row_in_chapter_7() -> None:
    assert list(PLACEMENT_VALUES) == [field.name for field in PLACEMENT_FIELDS]
    chapter = (VECTORS.parent / "07-spark.md").read_text()
    table = chapter[chapter.index("## 7.1") : chapter.index("**SPK-1**")]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    described = re.findall(r"`(\w+)`", " ".join(cells))
    assert sorted(described) == sorted(TYPES), "the columns of layout.py, and the rows of chapter 7.1"


def python_alone_unless(compiled: bool) -> Any:
    return nullcontext() if compiled else mock.patch.object(COMPILED_COLUMNS, "_FrameColumns", None)


def continues(before: kpl.KinesisRecord, record: kpl.KinesisRecord) -> bool:
    """Whether both are user records, opened before, of one Kinesis record."""
    return (
        before.sub_sequence_number is not None
        and bool(record.sub_sequence_number)
        and ((before.shard_id, before.sequence_number) == (record.shard_id, record.sequence_number))
    )


def objects(
    records: list[kpl.KinesisRecord], policy: Any, shard_map: Any, **options: Any
) -> tuple[list[dict], Any, Any]:
    result = opened(records, policy, shard_map=shard_map, read_ahead=False, **options)
    rows, error = [], None
    seen = 0
    try:
        for record in result:
            number = result.counts.kinesis_records - 1
            first = number == seen and not (number and continues(*records[number - 1 : number + 1]))
            seen = number + 1
            rows.append(row_of(record, policy, shard_map, first))
    except KplError as caught:
        error = caught
    return rows, error, result.counts


def kept_records() -> list[kpl.KinesisRecord]:
    """The frames that libFuzzer kept, side by side: random bytes get no further than the first fields."""
    kept = corpus.kept("decode")
    assert len(kept) > 300
    frames = [one[1:] if one[:1] and one[0] % 2 else framed(one[1:]) for one in kept]
    return [kpl.KinesisRecord("a", data, str(n), SHARD_IDS[1 + n % 2]) for n, data in enumerate(frames)]


@pytest.mark.requirement(
    "SPK-3", "DAG-1", "DAG-3", "DAG-4", "DAG-5", "DAG-6", "DAG-7", "KCL-4", "PLC-5", "PLC-6", "PLC-7", "ZIP-5"
)
@settings(max_examples=examples(120))
@given(
    st.lists(kinesis_records, max_size=8) | st.lists(sound_records, max_size=8) | opened_records,
    st.sampled_from(MAPS),
    st.integers(1, 2000),
    st.booleans(),
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from([None, None, 3000]),
)
@example(
    [kpl.KinesisRecord("k", data, str(n), SHARD_IDS[1]) for n, data in enumerate(COMPRESSED)],
    MAPS[1], 2000, False, 0, False, 3000,
)  # fmt: skip
@example(SIBLINGS, MAPS[1], 2000, False, 0, False, None)
@example(kept_records(), MAPS[1], 2**20, False, 0, False, None)
def test_columns_equal_objects(
    records: list[kpl.KinesisRecord],
    shard_map: Any,
    limit: int,
    large: bool,
    skip: int,
    dictionaries: bool,
    max_size: int | None,
) -> None:
    batch = batch_of(records, large=large)
    batch = pa.record_batch([*map(in_tight_buffers, batch)], schema=batch.schema)
    batch, records = batch.slice(min(skip, len(records))), records[skip:]
    for policy in POLICIES:  # drawn, one of them would come once in fifty examples
        drops: list[kpl.Drop] = []
        options: dict[str, Any] = {"max_decompressed_size": max_size, "on_drop": drops.append}
        expected, expected_error, counts = objects(records, policy, shard_map, **options)
        places = {f"file-{i + skip}": (r.sequence_number, r.shard_id) for i, r in enumerate(records)}
        options |= {"shard_map": shard_map, "tags": True, "dictionaries": dictionaries}
        for compiled in (True, False):
            rows: list[dict] = []
            error = None
            options["on_drop"] = (found_drops := []).append
            with python_alone_unless(compiled):
                deaggregator = new_deaggregator(batch.schema, policy, max_batch_bytes=limit, **options)
                try:
                    for out in deaggregator.process(batch):
                        assert out.schema == deaggregator.schema
                        assert out.num_rows
                        out.validate(full=True)
                        rows.extend(out.to_pylist())
                except KplError as caught:
                    error = caught
            files = [row.pop("file") for row in rows]
            for row in rows:
                row.pop("openedBy", None)
            # A strict run may stop inside a batch: objects come one by one, columns by what is before.
            assert rows == expected
            assert error == expected_error
            if error is None:
                assert (deaggregator.counts, found_drops) == (counts, drops)
            assert [places[f] for f in files] == [(r["sequenceNumber"], r["shardId"]) for r in rows]
            coded = {field.name for field in deaggregator.schema if pa.types.is_dictionary(field.type)}
            if dictionaries:
                words = {"expectedShardId", "placement", "aggregatePlacement", "kcl"}
                assert coded >= {"streamName", "shardId", "sequenceNumber"} | (
                    words & {*deaggregator.schema.names}
                )
                assert coded.isdisjoint({"partitionKey", "explicitHashKey"})
            else:
                assert not coded


@pytest.mark.requirement("SPK-76")
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("policy", POLICIES)
def test_each_column_alone_is_as_among_all_and_they_come_in_the_order_of_the_caller(
    policy: Any, compiled: bool
) -> None:
    """Of frames within a shard and across two, tagged ones, plain and compressed data, on each shard and on
    none, and of the rows that an earlier run with another map has made of these, and has not decompressed.

    Where the policy does not raise, broken ones are among them: no key, a hash key that nobody uses, a wrong
    digest. Where it reports, data that cannot be decompressed."""
    tagged = kpl.encode([kpl.UserRecord("a", b"x", str(HALF), (kpl.Tag("key", "value"),))])
    frames = [*ACROSS, tagged, b"plain", WHOLE]
    if not rules_of(policy).raises:
        no_key = b"\x0a\x01k\x1a\x05\x08\x07\x1a\x01x\x1a\x05\x08\x00\x1a\x01y"
        nobodys_hash_key = b"\x0a\x01k\x12\x00\x1a\x05\x08\x00\x1a\x01x"
        frames += [framed(no_key), framed(nobodys_hash_key), tagged[:-1] + bytes([tagged[-1] ^ 1])]
    if rules_of(policy).on_compression == "report":
        frames += COMPRESSED
    records = [
        kpl.KinesisRecord("k", frame, f"{n}.{shard_id}", shard_id)
        for n, frame in enumerate(frames)
        for shard_id in SHARD_IDS
    ]
    options: Any = {"shard_map": kpl.ShardMap(SPLIT_AGAIN), "tags": True, "max_decompressed_size": 3000}

    def run(source: list[pa.RecordBatch], columns: list[str] | None = None) -> tuple[pa.Table, Any]:
        deaggregator = Deaggregator(source[0].schema, policy, columns=columns, **options)
        made = (out for batch in source for out in deaggregator.process(batch))
        return pa.Table.from_batches(made, deaggregator.schema), deaggregator.counts

    once = [batch_of(records)]
    twice = list(deaggregate_batches(once, policy, shard_map=MAPS[-1], tags=True))
    with python_alone_unless(compiled):
        for source in (once, twice):
            everything, counts = run(source)
            names = everything.column_names
            for columns in [*([name] for name in names), names[::-1], names[::2], names[1::3]]:
                table, counted = run(source, columns)
                assert table.equals(everything.select(columns)), columns
                assert table.schema == everything.select(columns).schema, columns
                assert counted == counts, columns
            for field in PLACEMENT_FIELDS:
                assert everything[field.name].null_count < everything.num_rows, field.name


@pytest.mark.requirement("SPK-4")
def test_dictionaries_that_are_written_out_stay_within_the_limit() -> None:
    data = kpl.encode([kpl.UserRecord("k", b"d")] * 300)
    batch = batch_of([kpl.KinesisRecord("p", data, "1", "s" * 50_000, None, None)] * 4)
    deaggregator = new_deaggregator(batch.schema, "report", max_batch_bytes=1_000_000, dictionaries=True)
    kind = output_schema(batch.schema, "report")
    made = [out.cast(kind) for out in coalesce(deaggregator.process(batch), 1_000_000)]
    assert sum(out.num_rows for out in made) == 1200
    assert max(out.nbytes for out in made) < 1_100_000


def cut_data(key: str | None, shard_id: str | None = None, sub: int | None = None) -> kpl.KinesisRecord:
    """A record, or a user record, whose data begins like gzip and cannot be decompressed."""
    return kpl.KinesisRecord(key, CUT, "1", shard_id, sub_sequence_number=sub)


@pytest.mark.requirement("SPK-2")
@given(
    st.lists(kinesis_records, max_size=6),
    st.sampled_from(POLICIES),
    st.sampled_from(MAPS),
    st.sampled_from([None, 3000]),
)
@example([cut_data("k")], "report", None, 3000)
@example([cut_data(None, SHARD_IDS[0], 3)], "report", MAPS[1], 3000)
def test_running_twice_does_no_harm(
    records: list[kpl.KinesisRecord], policy: Any, shard_map: Any, max_size: int | None
) -> None:
    def rows(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        options: Any = {"shard_map": shard_map, "tags": True, "max_decompressed_size": max_size}
        return list(deaggregate_batches(batches, policy, **options))

    try:
        once = rows([batch_of(records)])
    except KplError:
        assert rules_of(policy).on_compression == "raise"
        return
    twice = rows(once)
    first, second = ([row for batch in batches for row in batch.to_pylist()] for batches in (once, twice))
    if rules_of(policy).as_kcl:  # raw frames are opened again, with the same result; nested ones stay closed
        assert [row["data"] for row in second] == [row["data"] for row in first]
    else:
        assert second == first


@pytest.mark.requirement("CAP-32", "SPK-2")
@settings(max_examples=examples(100))
@given(st.lists(kinesis_records, max_size=6), st.sampled_from(POLICIES), st.sampled_from(MAPS))
@example([kpl.KinesisRecord("k", kpl.encode([kpl.UserRecord("k", b"1")] * 2), "7")], "strict", None)
@example([kpl.KinesisRecord("k", b"plain", "7")], "strict", None)
def test_the_mark_of_a_plain_record_is_no_sub_sequence_number(
    records: list[kpl.KinesisRecord], policy: Any, shard_map: Any
) -> None:
    """The connectors of awslabs and Flink write -1, also in rows of aggregated records."""

    def outcome(batch: pa.RecordBatch) -> Any:
        try:
            batches = list(deaggregate_batches([batch], policy, shard_map=shard_map))
        except KplError as error:
            return str(error)
        return [row for out in batches for row in out.to_pylist()]

    unmarked = batch_of(records)
    at = unmarked.schema.get_field_index("subSequenceNumber")
    marks = unmarked.column(at).fill_null(-1)
    assert outcome(unmarked.set_column(at, unmarked.schema.field(at), marks)) == outcome(unmarked)

    def of_objects(source: Any) -> Any:
        try:
            return list(kpl.deaggregate(source, policy, shard_map=shard_map))
        except (KplError, ValueError) as error:
            return str(error)

    marked = [
        one if one.sub_sequence_number is not None else one.replace(sub_sequence_number=-1) for one in records
    ]
    assert of_objects(marked) == of_objects(records)
    assert of_objects(iter(marked)) == of_objects(iter(records))


@pytest.mark.requirement("CAP-32")
@every("number", [-2, True, "1", 1.5, 1 << 63])
def test_what_is_no_sub_sequence_number_is_refused_by_name(number: Any) -> None:
    record = kpl.KinesisRecord("k", b"plain", "7", sub_sequence_number=number)
    for source in ([record], iter([record]), [record, record]):
        with pytest.raises(ValueError, match=r"sub_sequence_number of a KinesisRecord is .*, give a number"):
            list(kpl.deaggregate(source, "report"))


@pytest.mark.requirement("SPK-4")
@given(st.lists(kinesis_records, max_size=8), st.integers(1000, 9000))
def test_output_batches_are_bounded(records: list[kpl.KinesisRecord], limit: int) -> None:
    batch = batch_of(records)
    for out in coalesce(Deaggregator(batch.schema, "report", max_batch_bytes=limit).process(batch), limit):
        assert out.num_rows == 1 or pa.Table.from_batches([out]).nbytes <= 2 * limit


@pytest.mark.requirement("SPK-4")
def test_wide_columns_beside_many_user_records_stay_bounded() -> None:
    data = kpl.encode([kpl.UserRecord("k", b"")] * 50_000)
    batch = pa.RecordBatch.from_pydict({"data": pa.array([data]), "note": pa.array(["n" * 1_000_000])})
    largest = total = 0
    for out in Deaggregator(batch.schema).process(batch):
        largest, total = max(largest, out.nbytes), total + out.num_rows
        if total > 100:
            break
    assert largest < 5_000_000


@pytest.mark.requirement("SPK-1")
@every("threads", [1, 3])
@every("row", [0, 7, 3_999])
def test_a_row_without_data_is_named_with_what_to_choose(row: int, threads: int) -> None:
    """Rows of several chunks and portions: 4,000 rows are 16 MB."""
    data: list[bytes | None] = [kpl.encode([kpl.UserRecord("k", bytes(4000))])] * 4_000
    data[row] = None
    table = pa.table({"data": pa.array(data, pa.binary()), "sequenceNumber": [str(n) for n in range(4_000)]})
    table = pa.concat_tables([table[:5], table[5:3_000], table[3_000:]])
    told = rf"^data of row {row} \(from 0\) is null \(no-data\): leave such rows out, or give policy=.report"
    with pytest.raises(CaptureError, match=told) as caught:
        deaggregate_table(table, threads=threads)
    assert (caught.value.position, caught.value.sequence_number) == (row, str(row))
    with pytest.raises(CaptureError, match=told):
        for _ in deaggregate_batches(table):
            pass
    assert deaggregate_table(table, "report").counts.user_records == 4_000


@pytest.mark.requirement("SPK-1")
def test_rows_without_data() -> None:
    whole = kpl.encode([kpl.UserRecord("k", b"x")])
    batch = pa.RecordBatch.from_pydict({"data": pa.array([whole, None, b"plain"])})
    rows = [r for b in deaggregate_batches([batch], "report") for r in b.to_pylist()]
    assert [(r["data"], r["error"], r["aggregated"]) for r in rows] == [
        (b"x", None, True),
        (None, "no-data", False),
        (b"plain", None, False),
    ]
    for policy in POLICIES:
        users: Any = deaggregate_batches([batch], policy)
        if rules_of(policy).raises:
            assert next(users)["data"].to_pylist() == [b"x"]
            with pytest.raises(CaptureError, match="no-data"):
                next(users)
            continue
        assert [value for made in users for value in made["data"].to_pylist()] == [b"x", None, b"plain"]
        assert (users.counts.kinesis_records, users.counts.user_records) == (3, 3)
        assert (users.counts.dropped, users.counts.defects) == ({}, {"no-data": 1})


@pytest.mark.requirement("SPK-3")
@every("compiled", [True, False])
@every("name", ["own", "tags", "placement", "hashKey", "errorCount"])
@every(
    "values",
    [
        *(pa.array([7, 1, 0, 1, None], kind) for kind in (pa.int8(), pa.uint16(), pa.int64(), pa.float64())),
        pa.array([2**64 - 1] * 5, pa.uint64()),
        pa.array([WHEN] * 5, pa.timestamp("us", "UTC")),
        pa.array([True, False, None, True, True]),
        pa.array([Decimal("1.25")] * 5, pa.decimal128(9, 2)),
        pa.array([b"abc", b"def", b"\xff\xff\xff", b"jkl", None], pa.binary(3)),
        pa.array(["007", "+8", "1", "true", "yes"]),
        pa.array([["x"], [], None, ["y", "z"], [""]]),
        pa.array([[("k", 1)]] * 5, pa.map_(pa.string(), pa.int64())),
        pa.array([1, 2, 1, None, 3]).dictionary_encode(),
        pa.array([b"\xff", b"a", b"", b"b", None]).dictionary_encode(),
        pa.array(['{"a": 1}'] * 5, pa.json_()),
        pa.nulls(5),
    ],
    ids=lambda values: str(values.type),
)
def test_columns_of_the_caller_are_copied_whatever_their_names_and_types(
    values: pa.Array, name: str, compiled: bool
) -> None:
    """One that has the name of a column that these options do not make, too."""
    frames = [kpl.encode([kpl.UserRecord("a", b"x")] * count) for count in (1, 3, 2, 40, 1)]
    batch = pa.RecordBatch.from_pydict({"data": pa.array(frames, pa.binary()), name: values})
    with python_alone_unless(compiled):
        (out,) = deaggregate_batches([batch.slice(1)])
    assert out[name].type == values.type
    counts = zip(values.to_pylist()[1:], (3, 2, 40, 1), strict=True)
    assert out[name].to_pylist() == [value for value, count in counts for _ in range(count)]


@pytest.mark.parametrize("name", ["errorCount", "firstOfRecord", "tags"])
def test_a_column_of_an_earlier_run_has_the_type_that_the_run_gave_it(name: str) -> None:
    batch = pa.RecordBatch.from_pydict({"data": [b"x"], name: [1.5]})
    with pytest.raises(TypeError, match=f"column {name} is double, not "):
        output_schema(batch.schema, "report", tags=True)


@pytest.mark.slow
def test_batches_that_are_read_side_by_side_share_nothing() -> None:
    """The compiled tables of one batch serve the next one when it is gone, not before."""
    batches = []
    for number in range(12):
        records = [
            kpl.UserRecord(f"{number} {i}", bytes([number]) * i, str(i)) for i in range(100 * number + 1)
        ]
        frames = [kpl.encode(records), b"plain", kpl.encode(records[:7])]
        batches.append(
            pa.RecordBatch.from_pydict({"data": pa.array(frames, pa.binary()), "shardId": [None] * 3})
        )
    shard_map = kpl.ShardMap(SPLIT)
    made = [
        Deaggregator(
            batch.schema, "report", shard_map=shard_map if number % 3 else None, max_batch_bytes=2000
        ).process(batch)
        for number, batch in enumerate(batches)
    ]
    names = ["partitionKey", "data"]
    in_turns = zip(*zip_longest(*made), strict=True)
    for batch, made_of_it in zip(batches, in_turns, strict=True):
        found = [rows.select(names) for rows in made_of_it if rows is not None]
        alone = [rows.select(names) for rows in deaggregate_batches([batch])]
        assert pa.Table.from_batches(found).equals(pa.Table.from_batches(alone))


@pytest.mark.requirement("SPK-76")
def test_schemas_and_columns_that_cannot_be_worked_with() -> None:
    for columns in (["nothing"], ["data", "data"], []):
        with pytest.raises(ValueError, match="column"):
            output_schema(batch_of([]).schema, columns=columns)
    with pytest.raises(CaptureError, match="the column data is missing"):
        output_schema(pa.schema([("value", pa.binary())]))
    with pytest.raises(TypeError, match="column data"):
        output_schema(pa.schema([("data", pa.string())]))
    for twice in ("data", "own"):  # also one that is only copied: the values of one would stand in both
        schema = pa.schema([(name, pa.binary()) for name in ("data", "own", twice)])
        with pytest.raises(TypeError, match=f"column {twice} is there 2 times"):
            output_schema(schema)
    with pytest.raises(ValueError, match="policy"):
        Deaggregator(pa.schema([("data", pa.binary())]), "lenient")  # type: ignore[arg-type]
    one = pa.RecordBatch.from_pydict({"data": pa.array([b"x"])})
    with pytest.raises(TypeError, match="one schema"):
        list(deaggregate_batches([one, one.append_column("more", pa.array([1]))]))
    assert list(deaggregate_batches([])) == []
    assert list(deaggregate_batches([one.slice(0, 0)])) == []
