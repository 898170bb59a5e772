"""The tasks of a validate job: captured records in; user records, findings, counts out.

Each task writes its own files, whose names depend only on its number: one that runs twice writes the same
files twice.

    WORK/user-records/part-00007.parquet    the columns of `checked_schema`
    WORK/findings/part-00007.parquet        one row per finding (validate/report/scan.py)
    WORK/kinesis-records/part-00007.parquet one row per Kinesis record, for the search for repeats
    WORK/copies/part-00007.json             what says that it is a copy (repaired.py)
    WORK/tally/part-00007.json              counts (findings/counters.py)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..captures import FileRange, Location, read_piece
from ..findings.counters import Tally
from ..shards.shard_map import ShardMap
from .check import check, checked_schema
from .duplicates import RECORDS_SCHEMA
from .repair_marks import Copies, copies_in
from .report.scan import FINDINGS_SCHEMA, Scan
from .shard_tasks import ShardPart, read_shard

#: What a task reads.
TaskPart = FileRange | ShardPart

#: What readers of user records filter by: only of these columns Parquet keeps the least and largest value.
_FILTERED = ["shardId", "sequenceNumber", "approximateArrivalTimestamp", "placement", "kcl", "error"]
#: Values of a column that are encoded at a time: with pyarrow's 1,024 writing takes a tenth longer.
_AT_ONCE = 32 * 1024
#: Text such as JSON takes fewer bytes by zstd.
_CODEC = "zstd" if pa.Codec.is_available("zstd") else "snappy"
#: Bytes of a row group, which a task holds before it writes.
_GROUP_BYTES = 32 * 1024 * 1024


_VERSION = re.compile(r"schema version ([0-9a-f-]{36})")


@contextmanager
def _parquet(file: Location, schema: pa.Schema, **options: Any) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Writes batches as row groups of about `_GROUP_BYTES`: one for each batch would take longer."""
    batches: list[pa.RecordBatch] = []
    size = 0
    with (
        file.whole_file() as out,
        pq.ParquetWriter(out, schema, compression=_CODEC, **options) as writer,
    ):

        def write(batch: pa.RecordBatch | None) -> None:
            nonlocal size
            if batch is not None and batch.num_rows:
                batches.append(batch)
                size += batch.nbytes
            if batches and (batch is None or size >= _GROUP_BYTES):
                # Codes of dictionary arrays are taken over where all batches have the same dictionary.
                writer.write_table(pa.Table.from_batches(batches).unify_dictionaries())
                batches.clear()
                size = 0

        yield write
        write(None)


def pack(
    parts: Iterable[TaskPart], *, task_bytes: int = 64 * 1024 * 1024, task_files: int = 500
) -> list[list[TaskPart]]:
    """Groups parts into tasks of about ``task_bytes``: many small files make few tasks, a large file many.
    The largest come first, so that no large task starts last."""
    tasks: list[list[TaskPart]] = []
    size = 0
    for part in sorted(parts, key=lambda part: part.weight, reverse=True):
        if not tasks or size + part.weight > task_bytes or len(tasks[-1]) >= task_files:
            tasks.append([])
            size = 0
        tasks[-1].append(part)
        size += part.weight
    return tasks


@dataclass(frozen=True)
class Job:
    """The tasks over files or shards, and the output folder. ``user_records``: whether they are written.
    ``copies``: those that an earlier run of the tasks has found; ``keys``: whether to look at their keys;
    ``versions``: the schema versions that it has found in sound frames."""

    tasks: list[list[TaskPart]]
    shard_map: ShardMap
    output: Location
    copies: Copies = field(default_factory=Copies)
    user_records: bool = True
    keys: bool = False
    versions: frozenset[str] = frozenset()

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        """The user records of a task, as `check` gives them; then its findings and counts are written."""
        captured = (
            batch
            for part in self.tasks[number]
            for batch in (read_shard(part) if isinstance(part, ShardPart) else read_piece(part))
        )
        checked = check(
            captured, self.shard_map, whole=self.user_records, keys=self.keys, versions=self.versions
        )
        work = work_folder(self.output)
        yield from scan_batches(checked, self.shard_map, work, part_name(number), self.copies)

    def run(self, number: int) -> int:
        rows = self.rows(number)
        # SPK-94: "Where the caller wants no user records, the findings, counts, summary and report MUST be
        # the same without them."
        if not self.user_records:
            return sum(batch.num_rows for batch in rows)
        return write_users(rows, self.shard_map, users_folder(self.output), part_name(number))


def part_name(number: int) -> str:
    return f"part-{number:05d}"


def work_folder(output: Location) -> Location:
    """The folder for files that a finished job deletes or moves."""
    return output / "_work"


def users_folder(output: Location) -> Location:
    """The folder for user records: the work folder, or in an object store, where moving means copying, the
    final one."""
    return (work_folder(output) if output.is_local else output) / "user-records"


def make_folders(work: Location) -> None:
    for name in ("findings", "kinesis-records", "copies", "tally"):
        (work / name).make_folder()


def write_users(rows: Iterable[pa.RecordBatch], shard_map: ShardMap, folder: Location, name: str) -> int:
    """Writes ``rows`` (batches of `check`), even if there are none; gives how many there were."""
    count = 0
    with _parquet(
        folder.make_folder() / f"{name}.parquet",
        checked_schema(shard_map, dictionaries=True),
        write_statistics=_FILTERED,
        write_batch_size=_AT_ONCE,
        store_schema=False,  # the columns are plain text to readers
    ) as write:
        for batch in rows:
            write(batch)
            count += batch.num_rows
    return count


def scan_batches(
    checked: Iterable[pa.RecordBatch], shard_map: ShardMap, work: Location, name: str, earlier_copies: Copies
) -> Iterator[pa.RecordBatch]:
    """The user records in ``checked`` (batches of `check`); once they are through, the findings, Kinesis
    records, copies and counts stand under ``work``. ``earlier_copies``: those of an earlier run."""
    scan = Scan(shard_map)
    copies: list[tuple[str, str]] = []
    # SPK-22: "A task that runs twice MUST NOT be counted twice."
    with (
        _parquet(work / f"findings/{name}.parquet", FINDINGS_SCHEMA) as write_findings,
        _parquet(work / f"kinesis-records/{name}.parquet", RECORDS_SCHEMA) as write_records,
    ):
        for batch in earlier_copies.mark(checked):
            # SPK-18: "Everything that is not as it should be MUST be a finding with its file and place, or
            # its shard and sequence number."
            write_findings(scan.process(batch))
            # SPK-17: "Every user record that the input holds MUST be in the output, once, with its verdict."
            # A row that is no user record (sub-sequence number null or -1, or no data) is a finding only.
            users = pc.and_(pc.greater_equal(batch["subSequenceNumber"], 0), pc.is_valid(batch["data"]))
            # Mostly all are user records: then nothing is copied.
            user_rows = batch if users.true_count == len(users) else batch.filter(pc.fill_null(users, False))
            if user_rows.num_rows:
                firsts = pc.and_(
                    pc.equal(user_rows["subSequenceNumber"], 0), pc.is_valid(user_rows["sequenceNumber"])
                )
                write_records(user_rows.select(RECORDS_SCHEMA.names).filter(firsts).cast(RECORDS_SCHEMA))
                copies += copies_in(user_rows)
                yield user_rows
        write_findings(scan.finish())
    if copies:
        (work / f"copies/{name}.json").write(json.dumps(copies).encode())
    (work / f"tally/{name}.json").write(scan.tally.to_bytes())


def discard(output: Location) -> None:
    work_folder(output).delete()
    users_folder(output).delete()


def gather(work: Location) -> Tally:
    """All counts that tasks left, added up by name, so that the sum does not depend on the engine."""
    return Tally.merge_all(Tally.from_bytes(file.read()) for file in (work / "tally").files())


def sound_and_doubtful(work: Location) -> frozenset[str]:
    """The schema versions of sound frames, if one of them was told as doubtful in another task, or before."""
    versions: dict[str, set[str]] = {"schema-version": set(), "schema-frame-doubtful": set()}
    for batch in (work / "findings").rows(["kind", "detail"], pc.field("kind").isin([*versions])):
        for kind, detail in zip(batch["kind"].to_pylist(), batch["detail"].to_pylist(), strict=True):
            versions[kind].update(_VERSION.findall(detail))
    sound = versions["schema-version"]
    return frozenset(sound) if sound & versions["schema-frame-doubtful"] else frozenset()
