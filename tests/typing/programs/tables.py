"""A notebook: user records as an Arrow table."""

# pyright: basic
# (pyarrow has no types: in strict mode each use of it is an error.)

from __future__ import annotations

import pyarrow as pa

import kpl_codec as kpl
from kpl_codec.arrow import Deaggregator, Options, deaggregate_batches, deaggregate_table, output_schema


def keys(table: pa.Table, shard_map: kpl.ShardMap) -> int:
    users, counts = deaggregate_table(table, "report", shard_map=shard_map, columns=["partitionKey", "kcl"])
    print(users.num_rows, output_schema(table.schema, tags=True))
    return counts.user_records


def stream(batches: list[pa.RecordBatch]) -> int:
    options: Options = {"tags": True, "max_decompressed_size": 1 << 20}
    made = deaggregate_batches(batches, "kcl", **options)
    rows: int = sum(batch.num_rows for batch in made)
    return rows + made.counts.kinesis_records


def by_hand(batch: pa.RecordBatch) -> pa.Table:
    deaggregator = Deaggregator(batch.schema, "strict", max_batch_bytes=1 << 20)
    return pa.Table.from_batches(deaggregator.process(batch), deaggregator.schema)
