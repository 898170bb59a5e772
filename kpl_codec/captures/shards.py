"""The shard of each captured record: its own word, else the file's name, the sequence number, or the map."""

from __future__ import annotations

import re

import pyarrow as pa

from ..shards.sequence_numbers import sequence_hint


def with_shards(batch: pa.RecordBatch, only: str | None = None) -> pa.RecordBatch:
    """The batch with its columns ``shardId`` and ``shardIdFrom`` filled. ``only``: see `shard_of`."""
    for name, column in shards_found(batch, only).items():
        at = batch.schema.get_field_index(name)
        batch = batch.set_column(at, batch.schema.field(at), column)
    return batch


def shards_found(batch: pa.RecordBatch, only: str | None) -> dict[str, pa.Array]:
    """``shardId``, with missing ids filled where possible, and ``shardIdFrom``."""
    given = batch["shardId"].cast(pa.string())
    origins: pa.Array = pa.repeat("given", batch.num_rows)
    if given.null_count:
        names = batch.schema.names
        files = batch["file"].to_pylist() if "file" in names else [""] * batch.num_rows
        numbers = batch["sequenceNumber"].to_pylist()
        found = [
            (shard_id, "given") if shard_id is not None else shard_of(files[row] or "", numbers[row], only)
            for row, shard_id in enumerate(given.to_pylist())
        ]
        given = pa.array([shard_id for shard_id, _ in found], pa.string())
        origins = pa.array([origin for _, origin in found], pa.string())
    return {"shardId": given, "shardIdFrom": origins}


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
