"""What a worker does for the validate job: captured records in, checked user records and findings out.

User records are rows, which Spark writes. Findings and counts are written beside, by each task, under a
name that depends on the task only: a task that runs twice writes the same files twice, so nothing is
counted twice, whichever attempt wins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..arrow import DEFAULT_BATCH_BYTES, Deaggregator, coalesce
from ..report.scan import FINDINGS_SCHEMA, Scan
from ..report.tally import Tally
from ..sequence_numbers import SequenceNumberError, sequence_hint
from ..shards import ShardMap
from .captures import CAPTURE_SCHEMA, Piece, open_path, read_piece

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


def task(
    tasks: list[list[Piece]], shard_map: ShardMap, beside: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For mapInArrow over the numbers of ``tasks``: gives their user records, and writes findings and
    counts of each under ``beside``."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                captured = (out for piece in tasks[number] for out in read_piece(piece))
                yield from scanned(check(captured, shard_map), shard_map, beside, f"part-{number:05d}")

    return run


def scanned(
    rows: Iterable[pa.RecordBatch], shard_map: ShardMap, beside: str, name: str
) -> Iterator[pa.RecordBatch]:
    """The user records among ``rows``; when they are through, the findings and counts stand in
    ``beside/findings/name.parquet`` and ``beside/tally/name.json``."""
    scan = Scan(shard_map)
    system, directory = open_path(beside)
    hidden = f"{directory}/findings/.{name}.{uuid4().hex}"
    with pq.ParquetWriter(hidden, FINDINGS_SCHEMA, filesystem=system) as writer:
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
    # SPK-22: "A task that runs twice MUST NOT be counted twice."
    system.move(hidden, f"{directory}/findings/{name}.parquet")
    with system.open_output_stream(f"{directory}/tally/{name}.json") as out:
        out.write(scan.tally.to_bytes())


def gather(beside: str) -> Tally:
    """All counts that tasks left, added up."""
    from pyarrow import fs

    system, directory = open_path(beside)
    total = Tally()
    for file in system.get_file_info(fs.FileSelector(f"{directory}/tally")):
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
