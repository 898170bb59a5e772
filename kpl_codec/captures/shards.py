"""The shard of each captured record: its own word, else the file's name, the sequence number, or the map."""

from __future__ import annotations

import re

import pyarrow as pa

from ..shards.sequence_numbers import sequence_hint
from ..shards.shard_map import ShardMap


def with_shards(batch: pa.RecordBatch, shard_map: ShardMap | None, schema: pa.Schema) -> pa.RecordBatch:
    """The columns ``schema`` of the batch, with ``shardId`` filled where possible; ``shardIdFrom``: given,
    path, sequence-number, map, or null."""
    given = batch["shardId"].cast(pa.string())
    origins: pa.Array = pa.repeat("given", batch.num_rows)
    if given.null_count:
        only = next(iter(shard_map)) if shard_map is not None and len(shard_map) == 1 else None
        files = batch["file"].to_pylist() if "file" in batch.schema.names else [""] * batch.num_rows
        rows = zip(given.to_pylist(), files, batch["sequenceNumber"].to_pylist(), strict=True)
        found = [
            (shard_id, "given") if shard_id is not None else shard_of(file or "", number, only)
            for shard_id, file, number in rows
        ]
        given, origins = (pa.array(column, pa.string()) for column in zip(*found, strict=True))
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns |= {"shardId": given, "shardIdFrom": origins}
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


_SHARD_IN_PATH = re.compile(r"shardId-[0-9]{12}")


def shard_of(
    file: str, sequence_number: str | None, only: str | None = None
) -> tuple[str | None, str | None]:
    """The shard of a record that names none, and what says so: path, sequence-number, map; else None.
    ``only``: the only shard of the map."""
    # SPK-16: "Where a captured record names no shard, the one in the file's path is taken, else the one
    # that the sequence number hints at, else the only one of the map; the row MUST say so."
    found = _SHARD_IN_PATH.findall(file)
    if found:
        return found[-1], "path"
    hint = sequence_hint(sequence_number)
    if hint is not None:
        return hint.shard_id, "sequence-number"
    return (only, "map") if only is not None else (None, None)
