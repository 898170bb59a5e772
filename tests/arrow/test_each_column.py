"""Each column of `kpl_codec.arrow` by itself, one that is added to the tables of `arrow.layout`, and the
column of the Schema Registry."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import kpl_codec as kpl
from fuzz.invariants import frame as framed
from kpl_codec.arrow import Deaggregator, layout
from kpl_codec.deaggregation.policy_rules import POLICIES
from kpl_codec.format.hash_keys import hash_key_from_bytes

from ..shards.test_shard_map import HALF, SPLIT
from .test_arrow import COMPILED_COLUMNS, batch_of

LOWER, UPPER = (shard.shard_id for shard in SPLIT[1:3])
TAGGED = kpl.UserRecord("a", b"in", None, (kpl.Tag("key", "value"),))
SOUND = [
    kpl.encode([TAGGED, kpl.UserRecord("b", b"also in", "7")]),
    kpl.encode([TAGGED, kpl.UserRecord("a", b"out", str(HALF))]),
    b"plain",
]
#: A user record without a key, an explicit hash key that nobody uses, a digest that is wrong.
DEFECTIVE = [
    framed(b"\x0a\x01k\x1a\x05\x08\x07\x1a\x01x\x1a\x05\x08\x00\x1a\x01y"),
    framed(b"\x0a\x01k\x12\x00\x1a\x05\x08\x00\x1a\x01x"),
    SOUND[0][:-1] + bytes([SOUND[0][-1] ^ 1]),
]


def batch(policy: str) -> pa.RecordBatch:
    data = SOUND if policy == "strict" else [*SOUND, *DEFECTIVE]
    places = enumerate([(one, shard_id) for one in data for shard_id in (LOWER, UPPER, None)])
    return batch_of([kpl.KinesisRecord("k", one, str(n), shard_id) for n, (one, shard_id) in places])


def rows(policy: Any, compiled: bool, **options: Any) -> pa.Table:
    records = batch(policy)
    with nullcontext() if compiled else mock.patch.object(COMPILED_COLUMNS, "_FrameColumns", None):
        deaggregator = Deaggregator(
            records.schema, policy, shard_map=kpl.ShardMap(SPLIT), tags=True, **options
        )
        return pa.Table.from_batches(deaggregator.process(records), deaggregator.schema)


@pytest.mark.requirement("SPK-76")
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("policy", POLICIES)
def test_each_column_alone_is_as_among_all(policy: str, compiled: bool) -> None:
    everything = rows(policy, compiled)
    for name in everything.column_names:
        assert rows(policy, compiled, columns=[name]).equals(everything.select([name])), name
    placed = [field.name for field in layout.PLACEMENT_FIELDS]
    assert all(everything[name].null_count < everything.num_rows for name in placed)


@pytest.mark.requirement("SPK-3", "SPK-76")
def test_a_placement_column_is_a_row_with_its_values() -> None:
    """In objects and compiled code, among all columns and alone; null without a placement."""

    def below_end(hash_keys: pa.Array, of_shards: layout.OfShards) -> pa.Array:
        ends = of_shards(lambda shard: shard.hash_key_range and str(shard.hash_key_range[1]), pa.string())
        values = [
            None if key is None or end is None else (int(end) - hash_key_from_bytes(key)) >> 96
            for key, end in zip(hash_keys.to_pylist(), ends.to_pylist(), strict=True)
        ]
        return pa.array(values, pa.int64())

    field, text = pa.field("belowEnd", pa.int64()), pa.field("verdictLength", pa.int64())
    with (
        mock.patch.object(layout, "PLACEMENT_FIELDS", (*layout.PLACEMENT_FIELDS, field, text)),
        mock.patch.dict(layout.TYPES, {"belowEnd": pa.int64(), "verdictLength": pa.int64()}),
        mock.patch.dict(layout.HASH_KEY_COLUMNS, {"belowEnd": (pa.int64(), below_end)}),
        mock.patch.dict(layout.VERDICT_VALUES, {"verdictLength": lambda place: len(place.verdict)}),
    ):
        for policy in POLICIES:
            compiled, objects = rows(policy, True), rows(policy, False)
            assert compiled.equals(objects)
            for name in ("belowEnd", "verdictLength"):
                assert rows(policy, True, columns=[name]).equals(objects.select([name]))
                assert 0 < compiled[name].null_count < compiled.num_rows or name == "verdictLength"
            lengths = [
                None if verdict is None else len(verdict) for verdict in objects["placement"].to_pylist()
            ]
            assert compiled["verdictLength"].to_pylist() == lengths
