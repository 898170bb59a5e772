"""What a worker does for the validate job: captured records in, checked user records and findings out.

User records, findings and counts are written by each task, under a name that depends on the task only: a
task that runs twice writes the same files twice, so nothing is counted twice, whichever attempt wins.
Parquet is written here, from the columns as they are: Spark would turn them into rows first, which takes
several times as long as everything else together. In other formats Spark writes the user records.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...arrow import DEFAULT_BATCH_BYTES, Deaggregator, coalesce
from ...report.counters import Tally
from ...report.scan import FINDINGS_SCHEMA, Scan
from ...shards.sequence_numbers import SequenceNumberError, sequence_hint
from ...shards.shard_map import ShardMap
from ..captures import Piece, open_path, read_piece
from ..captures.rows import CAPTURE_SCHEMA

_IN = pa.schema(
    [
        *(field for field in CAPTURE_SCHEMA if not field.name.startswith("capture")),
        pa.field("shardIdFrom", pa.string()),  # given, path, sequence-number; null if not known
    ]
)


def checked_schema(shard_map: ShardMap) -> pa.Schema:
    """The columns of `check`: those of `kpl_codec.arrow` under the report policy, and where it was read."""
    return Deaggregator(_IN, "report", shard_map, tags=True).schema


def pack(
    pieces: Iterable[Piece], task_bytes: int = 64 * 1024 * 1024, task_files: int = 500
) -> list[list[Piece]]:
    """Pieces put together to tasks of about ``task_bytes``: thousands of small files make few tasks, and
    a large one many. The largest come first, so that none starts last."""
    tasks: list[list[Piece]] = []
    size = 0
    for piece in sorted(pieces, key=lambda piece: piece.start - piece.stop):
        weight = piece.stop - piece.start
        if not tasks or size + weight > task_bytes or len(tasks[-1]) >= task_files:
            tasks.append([])
            size = 0
        tasks[-1].append(piece)
        size += weight
    return tasks


#: A row group of user records: what a task holds until it writes.
_GROUP_BYTES = 32 * 1024 * 1024


def task(
    tasks: list[list[Piece]], shard_map: ShardMap, beside: str, users: str | None = None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For mapInArrow over the numbers of ``tasks``: writes findings and counts of each under ``beside``,
    and its user records as Parquet in the folder ``users``; without a folder it gives them."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                captured = (out for piece in tasks[number] for out in read_piece(piece))
                name = f"part-{number:05d}"
                rows = scanned(check(captured, shard_map), shard_map, beside, name)
                yield from rows if users is None else written(rows, checked_schema(shard_map), users, name)

    return run


#: What `written` gives.
WRITTEN = "userRecords long"


def written(
    rows: Iterable[pa.RecordBatch], schema: pa.Schema, folder: str, name: str
) -> Iterator[pa.RecordBatch]:
    """Writes ``rows`` to ``folder/name.parquet``, also where there are none; then says how many."""
    held: list[pa.RecordBatch] = []
    size = count = 0
    system, inner = open_path(folder)
    system.create_dir(inner, recursive=True)
    with _whole(f"{folder}/{name}.parquet") as out, pq.ParquetWriter(out, schema) as writer:
        for batch in rows:
            held.append(batch)
            size += batch.nbytes
            count += batch.num_rows
            if size >= _GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(held))
                held, size = [], 0
        if held:
            writer.write_table(pa.Table.from_batches(held))
    yield pa.RecordBatch.from_arrays([pa.array([count], pa.int64())], ["userRecords"])


@contextmanager
def _whole(path: str) -> Iterator[Any]:
    """A file to write, which is there whole or not at all: several attempts may write it, and be killed."""
    system, inner = open_path(path)
    folder, _, name = inner.rpartition("/")
    hidden = f"{folder}/.{name}.{uuid4().hex}"
    with system.open_output_stream(hidden) as out:
        yield out
    system.move(hidden, inner)


def scanned(
    rows: Iterable[pa.RecordBatch], shard_map: ShardMap, beside: str, name: str
) -> Iterator[pa.RecordBatch]:
    """The user records among ``rows``; when they are through, the findings and counts stand in
    ``beside/findings/name.parquet`` and ``beside/tally/name.json``."""
    scan = Scan(shard_map)
    # SPK-22: "A task that runs twice MUST NOT be counted twice."
    with (
        _whole(f"{beside}/findings/{name}.parquet") as out,
        pq.ParquetWriter(out, FINDINGS_SCHEMA) as writer,
    ):
        for batch in rows:
            # SPK-18: "Everything that is not as it should be MUST be a finding with its file and place, or
            # its shard and sequence number."
            found = scan.process(batch)
            if found.num_rows:
                writer.write_batch(found)
            # SPK-17: "Every user record that the input holds MUST be in the output, once, with its verdict."
            # A row that is no user record (sub-sequence number null or -1, or no data) is a finding only.
            users = pc.and_(pc.greater_equal(batch["subSequenceNumber"], 0), pc.is_valid(batch["data"]))
            kept = batch.filter(pc.fill_null(users, False))
            if kept.num_rows:
                yield kept
        found = scan.finish()
        if found.num_rows:
            writer.write_batch(found)
    with _whole(f"{beside}/tally/{name}.json") as out:
        out.write(scan.tally.to_bytes())


def gather(beside: str) -> Tally:
    """All counts that tasks left, added up."""
    from pyarrow import fs

    system, directory = open_path(beside)
    total = Tally()
    for file in system.get_file_info(fs.FileSelector(f"{directory}/tally")):
        if file.base_name.startswith("."):  # an attempt that was killed
            continue
        with system.open_input_stream(file.path) as source:
            total.merge(Tally.from_bytes(source.read()))
    return total


def check(captured: Iterable[pa.RecordBatch], shard_map: ShardMap) -> Iterator[pa.RecordBatch]:
    """Batches of CAPTURE_SCHEMA in, batches of `checked_schema` out: every user record judged, and every
    unreadable bit as a row with its error and no sub-sequence number."""
    deaggregator = Deaggregator(_IN, "report", shard_map, tags=True)

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in captured:
            bad = pc.is_valid(batch["captureError"])
            if pc.any(bad).as_py():
                yield _unreadable(batch.filter(bad), deaggregator.schema)
                batch = batch.filter(pc.invert(bad))
            yield from deaggregator.process(_prepared(batch))

    return coalesce(rows(), DEFAULT_BATCH_BYTES)


def _prepared(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with shard ids found where they are missing."""
    given = batch["shardId"]
    origins: pa.Array = pa.repeat("given", batch.num_rows)
    if given.null_count:
        files = batch["file"].to_pylist()
        numbers = batch["sequenceNumber"].to_pylist()
        found = [
            (shard_id, "given") if shard_id is not None else _shard_of(files[row], numbers[row])
            for row, shard_id in enumerate(given.to_pylist())
        ]
        given = pa.array([shard_id for shard_id, _ in found], pa.string())
        origins = pa.array([origin for _, origin in found], pa.string())
    columns = {"shardId": given, "shardIdFrom": origins}
    return pa.RecordBatch.from_arrays(
        [columns.get(f.name, batch[f.name] if f.name in batch.schema.names else None) for f in _IN],
        schema=_IN,
    )


_SHARD_IN_PATH = re.compile(r"shardId-[0-9]{12}")


def _shard_of(file: str, sequence_number: str | None) -> tuple[str | None, str | None]:
    # SPK-16: "Where a captured record names no shard, the one in the file's path is taken, else the one
    # that the sequence number hints at; the row MUST say so."
    found = _SHARD_IN_PATH.findall(file)
    if found:
        return found[-1], "path"
    try:
        hint = sequence_hint(sequence_number) if sequence_number else None
    except SequenceNumberError:
        hint = None
    return (hint.shard_id, "sequence-number") if hint is not None else (None, None)


def _unreadable(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    count = batch.num_rows
    values = {name: batch[name] for name in ("file", "position", "line", "recordIndex")}
    values["error"] = batch["captureError"]
    values["errorText"] = batch["captureText"]
    values["errorCount"] = pa.repeat(pa.scalar(1, pa.int64()), count)
    arrays = [values.get(field.name, pa.nulls(count, field.type)) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
