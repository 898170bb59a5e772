"""The tasks of a validate job. Each reads captured files or shards, and writes user records, findings and
counts.

A task writes its own files, named after its number, so that a task that runs twice writes the same files:

    WORK/user-records/part-00007.parquet    the columns of `user_record_schema`
    WORK/findings/part-00007.parquet        one row per finding (scan.py)
    WORK/kinesis-records/part-00007.parquet one row per Kinesis record, for the search for duplicates
    WORK/tally/part-00007.json              counts (findings/counters.py)
    WORK/account/part-00007.json            what became of all that there was to read (captures/account.py)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ..captures import FileRange, Location, read_piece
from ..captures.account import Account
from ..captures.capture_rows import CaptureRows
from ..findings import Finding
from ..findings.counters import Tally
from ..format.records import record_from_response
from ..rendering.labels import plural
from ..shards.shard_map import ShardMap
from ..shards.stream_name import stream_of, streams_named
from .check import captured_by_itself, check, user_record_schema, with_stream_names
from .results import RESULTS
from .scan import FINDINGS_SCHEMA, Scan

if TYPE_CHECKING:
    from ..aws.fetch_by_sequence_number import RecordLocation, UnreadableEntry
    from ..aws.stream_reading import Start

#: The columns that readers filter user records by: only for these Parquet keeps the least and largest value.
_FILTERED = ["shardId", "sequenceNumber", "approximateArrivalTimestamp", "placement", "kcl", "error"]
#: How many values of a column are encoded at a time: with pyarrow's default, 1,024, writing takes a tenth
#: longer.
_AT_ONCE = 32 * 1024
#: The compression of Parquet: text such as JSON takes fewer bytes with zstd than with snappy.
_CODEC = "zstd" if pa.Codec.is_available("zstd") else "snappy"
#: Bytes of a row group, which a task keeps in memory before it writes it.
_GROUP_BYTES = 32 * 1024 * 1024
#: The columns that tell Kinesis records apart; all columns of the files in `kinesis-records`.
_KEYS = ["streamName", "shardId", "sequenceNumber", "subSequenceNumber"]
RECORDS_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in _KEYS[:3]),
        ("subSequenceNumber", pa.int64()),  # 0, or of a user record that was captured by itself
        ("file", pa.string()),
        ("line", pa.int64()),
        # What tells records of one name apart that are no copies: see `format.records.same_content`.
        ("partitionKey", pa.string()),
        ("explicitHashKey", pa.string()),
        ("opened", pa.bool_()),  # a user record that was captured by itself
        ("checksum", pa.int64()),  # of the data; null without data
    ]
)
#: Columns of which copies have one value, where they have any.
_CONTENT = ("checksum", "partitionKey", "explicitHashKey")
#: The kinds of findings about several records of one name, and their details.
_COPIES, _DIFFER = "duplicate", "capture-other-content"
_TEXTS = {
    _COPIES: ("captured {} times", "captured more than once"),
    _DIFFER: ("{} records, whose keys or data differ", "with records whose keys or data differ"),
}
#: How many names of several records get a finding each.
MAX_LISTED = 1000
#: How many rows are grouped at a time, of about 200 bytes each.
MAX_GROUPED = 1_000_000


@dataclass(frozen=True, slots=True)
class ShardPart:
    """The records of a shard of ``stream`` (a name or an ARN) from ``start`` to those that arrived at
    ``until``, so that the reading ends where records come faster than they are read. ``client_settings``:
    arguments of `kpl_codec.aws.kinesis_client`."""

    client_settings: Mapping[str, Any]
    stream: str
    shard_id: str
    start: Start
    until: datetime
    #: If not None, only these records of the shard are read.
    only: tuple[RecordLocation | UnreadableEntry, ...] | None = None
    #: The assumed bytes of a shard, which nobody knows: one shard is read in this process, several in
    #: workers.
    weight: ClassVar[int] = 5 * 1024 * 1024

    @property
    def name(self) -> str:
        """Of what it reads, for the account."""
        return self.shard_id


#: A part of the input: a piece of a file, or a shard. A task reads several.
TaskPart = FileRange | ShardPart


@dataclass(frozen=True)
class Job:
    """The tasks over files or shards, and the output folder. ``user_records``: whether they are written."""

    tasks: list[list[TaskPart]]
    shard_map: ShardMap
    output: Location
    user_records: bool = True
    #: What tells the parts of its results from those of another job's.
    run_id: str = field(default_factory=lambda: uuid4().hex)

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        """The user records of a task, as `check` gives them; then its findings and counts are written."""
        account = Account()
        captured = (
            batch
            for part in self.tasks[number]
            for batch in (
                read_shard(part, account)
                if isinstance(part, ShardPart)
                else read_piece(part, account=account)
            )
        )
        yield from check_task(
            captured,
            self.shard_map,
            work_folder(self.output),
            part_name(number),
            account,
            whole=self.user_records,
            run_id=self.run_id,
        )

    @property
    def given(self) -> set[str]:
        """The files, or shards, that there were to read."""
        parts = (part for task in self.tasks for part in task)
        return {part.name if isinstance(part, ShardPart) else part.path for part in parts}

    def run(self, number: int) -> int:
        rows = self.rows(number)
        # SPK-94: "Where the caller wants no user records, the findings, counts, summary and report MUST be
        # the same without them."
        if not self.user_records:
            return sum(batch.num_rows for batch in rows)
        return write_users(
            rows, self.shard_map, _users_folder(self.output), part_name(number), run_id=self.run_id
        )


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


# -- shards ---------------------------------------------------------------------------------------


def shard_parts(client_settings: Mapping[str, Any], stream: str, start: Start) -> list[ShardPart]:
    """Every shard that the stream has now. Raises StreamUnavailable."""
    from ..aws.client import kinesis_client
    from ..aws.stream_reading import fetch_lineage

    client = kinesis_client(**client_settings)
    times: list[datetime] = []
    # The service's own clock: this machine's may be behind, and the latest records would not be read.
    client.meta.events.register("after-call.kinesis", lambda parsed, **_: times.append(_date_of(parsed)))
    lineage = fetch_lineage(client, stream)
    return [ShardPart(client_settings, stream, shard_id, start, max(times)) for shard_id in lineage]


def only_parts(of: ShardPart, places: Iterable[RecordLocation | UnreadableEntry]) -> list[ShardPart]:
    """For each shard a part that reads only the records at ``only``. ``of``: any part of the stream."""
    by_shard: defaultdict[str, list[RecordLocation | UnreadableEntry]] = defaultdict(list)
    for place in places:
        by_shard[getattr(place, "shard_id", None) or ""].append(place)
    return [replace(of, shard_id=shard_id, only=tuple(places)) for shard_id, places in by_shard.items()]


def _date_of(response: Mapping[str, Any]) -> datetime:
    """When the service sent ``response``: whole seconds, rounded up."""
    date = response["ResponseMetadata"]["HTTPHeaders"].get("date")
    now = parsedate_to_datetime(date) if date else datetime.now(timezone.utc)
    return now.replace(microsecond=0) + timedelta(seconds=1)


def read_shard(part: ShardPart, account: Account) -> Iterator[pa.RecordBatch]:
    """The Kinesis records of a shard, in batches as those of a captured file."""
    source = account.of(part.name, 1, unit="shard")
    for batch in _batches_of(part):
        source.count(batch)
        yield batch
    source.cover(0, 1)


def _batches_of(part: ShardPart) -> Iterator[pa.RecordBatch]:
    from ..aws.calls import run_sync
    from ..aws.client import kinesis_client
    from ..aws.cursor import Pace, ShardCursor
    from ..aws.fetch_by_sequence_number import GoneRecord, UnreadableEntry, fetch_records
    from ..aws.stream_reading import PATIENCE, POLL_INTERVAL, position_of

    rows, name = CaptureRows(None), stream_of(part.stream).name
    client, pace = kinesis_client(**part.client_settings), Pace(1 / POLL_INTERVAL, None)
    if part.only is not None:
        for index, item in enumerate(fetch_records(client, part.stream, part.only)):
            if isinstance(item, GoneRecord):
                where = f"{item.location.shard_id or 'no shard'}, sequence number {item.location}"
                rows.unreadable("gone", f"{where}: {item.reason}", index)
            elif isinstance(item, UnreadableEntry):
                rows.unreadable("only", f"--only: {item.reason}", index, item.line)
            else:
                rows.record(item, name)
        yield from rows.take()
        return
    cursor = ShardCursor(
        client, part.stream, part.shard_id, position_of(part.start), pace=pace, patience=PATIENCE
    )
    while not cursor.at_tip:
        records = run_sync(cursor.read_whole()).records
        # Arrival times are only nearly in order: the first record after `until` is not the end.
        in_time = [
            fields
            for fields in records
            if (when := fields.get("ApproximateArrivalTimestamp")) is None or when <= part.until
        ]
        for fields in in_time:
            rows.record(record_from_response(fields, part.shard_id), name)
        if rows.full():
            yield from rows.take()
        if records and not in_time:
            break
    yield from rows.take()


# -- what a task writes ---------------------------------------------------------------------------


def part_name(number: int) -> str:
    return f"part-{number:05d}"


def work_folder(output: Location) -> Location:
    """The folder for files that a finished job deletes or moves."""
    return output / "_work"


def _users_folder(output: Location) -> Location:
    """The folder for user records: in an object store, where moving means copying, the final one."""
    return (work_folder(output) if output.is_local else output) / "user-records"


def make_folders(work: Location) -> None:
    for name in ("findings", "kinesis-records", "tally", "account"):
        (work / name).make_folder()


@contextmanager
def _parquet(
    file: Location, schema: pa.Schema, run_id: str, **options: Any
) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Writes batches as row groups of about `_GROUP_BYTES`: one for each batch would take longer."""
    batches: list[pa.RecordBatch] = []
    size = 0
    with (
        file.whole_file() as out,
        pq.ParquetWriter(out, schema, compression=_CODEC, write_page_checksum=True, **options) as writer,
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
        folder, part = file.path.split("/")[-2:]
        writer.add_key_value_metadata({RESULTS: f"{run_id}/{folder}/{part}" if run_id else ""})


def write_users(
    rows: Iterable[pa.RecordBatch], shard_map: ShardMap, folder: Location, name: str, *, run_id: str = ""
) -> int:
    """Writes ``rows`` (batches of `check`), even if there are none. Returns how many there were."""
    count = 0
    with _parquet(
        folder.make_folder() / f"{name}.parquet",
        user_record_schema(shard_map, dictionaries=True),
        run_id,
        write_statistics=_FILTERED,
        write_batch_size=_AT_ONCE,
        store_schema=False,  # readers see the columns as plain text
    ) as write:
        for batch in rows:
            write(batch)
            count += batch.num_rows
    return count


def check_task(
    captured: Iterable[pa.RecordBatch],
    shard_map: ShardMap,
    work: Location,
    name: str,
    account: Account,
    run_id: str = "",
    **options: Any,
) -> Iterator[pa.RecordBatch]:
    """The user records in ``captured`` (batches of CAPTURE_SCHEMA), as `check` gives them with ``options``.
    After the last one the findings, Kinesis records, counts and ``account`` are written below ``work``. It
    ends where it has seen records of several streams that the map cannot tell apart."""
    # SPK-22: "A task that runs twice MUST NOT be counted twice."
    with (
        _parquet(work / f"findings/{name}.parquet", FINDINGS_SCHEMA, run_id) as write_findings,
        _parquet(work / f"kinesis-records/{name}.parquet", RECORDS_SCHEMA, run_id) as write_records,
    ):
        # SPK-18: "Everything that is not as it should be MUST be a finding with its file and place, or its
        # shard and sequence number."
        def write_counted(rows: pa.RecordBatch) -> None:
            account.rows["findings"] += rows.num_rows
            write_findings(rows)

        scan = Scan(shard_map, write_counted)

        def note_records(batch: pa.RecordBatch) -> None:
            write_records(with_stream_names(_captured_records(batch), shard_map.stream))

        for batch in check(captured, shard_map, scan.report, on_records=note_records, **options):
            account.checked += captured_by_itself(batch).true_count
            scan.process(batch)
            # SPK-17: "Every user record that the input holds MUST be in the output, once, with its verdict."
            # A row that is no user record (sub-sequence number -1, or no data) is a finding only.
            users = pc.and_(pc.greater_equal(batch["subSequenceNumber"], 0), pc.is_valid(batch["data"]))
            # Mostly all rows are user records, and no row is copied.
            user_rows = batch if users.true_count == len(users) else batch.filter(pc.fill_null(users, False))
            if user_rows.num_rows:
                account.rows["user-records"] += user_rows.num_rows
                yield with_stream_names(user_rows, shard_map.stream)
            # SPK-111: nothing more is read of an input that is refused.
            if len(streams_named(scan.tally.streams, shard_map.stream)) > 1:
                break
        scan.finish()
    (work / f"tally/{name}.json").write(scan.tally.to_bytes())
    (work / f"account/{name}.json").write(account.to_bytes())


def _captured_records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """What was captured, in the columns RECORDS_SCHEMA: each Kinesis record, and each user record that was
    captured by itself, with its sub-sequence number."""
    batch = batch.filter(pc.is_valid(batch["sequenceNumber"]))
    sub = batch["subSequenceNumber"]
    made = {
        "subSequenceNumber": pc.fill_null(sub, 0),
        "opened": pc.is_valid(sub),
        "checksum": _checksums(batch["data"]),
    }
    columns = [made[name] if name in made else batch[name] for name in RECORDS_SCHEMA.names]
    return pa.record_batch(
        [array.cast(type_) for array, type_ in zip(columns, RECORDS_SCHEMA.types, strict=True)],
        RECORDS_SCHEMA,
    )


def _checksums(column: pa.BinaryArray) -> pa.Array:
    """The checksum of each value, null of a null; no value is copied, nor made an object."""
    if not len(column):
        return pa.array([], pa.int64())  # of no rows there may be no buffer
    _, offsets, values = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset :][: len(column) + 1].tolist()
    data = memoryview(values or b"")
    checksums = np.fromiter((crc32(data[start:end]) for start, end in pairwise(ends)), np.int64, len(column))
    return pa.array(checksums, mask=np.asarray(column.is_null()))


# -- what all tasks have written ------------------------------------------------------------------


def gather(work: Location) -> Tally:
    """The sum of the tallies that tasks wrote, added in the order of their names, so that the sum does not
    depend on the engine."""
    return Tally.merge_all(Tally.from_bytes(file.read()) for file in (work / "tally").files())


def gather_account(work: Location) -> Account:
    """The accounts that tasks wrote, of all that they read."""
    account = Account()
    for file in (work / "account").files():
        account.add(Account.from_bytes(file.read()))
    return account


def find_duplicates(work: Location) -> list[Finding]:
    """A finding for each of MAX_LISTED names that several captured records have, copies or not, and one of a
    kind for all others. Memory: at most MAX_GROUPED rows at a time, of records whose numbers have the same
    hash."""
    system, inner = (work / "kinesis-records").filesystem()
    dataset = ds.dataset(inner, RECORDS_SCHEMA, "parquet", system)
    parts = -(-dataset.count_rows() // MAX_GROUPED)
    listed: list[pa.Table] = []
    totals = {kind: np.zeros(2, int) for kind in _TEXTS}  # names, and records
    known = pc.CountOptions(mode="only_valid")
    for part in range(parts):
        rows = pa.Table.from_batches(_rows_of_part(dataset, part, parts), RECORDS_SCHEMA)
        # The last place is reported, a place with a line before one without: nulls come at the end.
        rows = rows.sort_by([("file", "descending"), ("line", "descending")])
        whole = pc.ScalarAggregateOptions(skip_nulls=False)  # so that file and line are of the same row
        counted: list[Any] = [([], "count_all"), ("file", "first", whole), ("line", "first", whole)]
        counted += [(name, "count_distinct", known) for name in _CONTENT]
        groups = rows.group_by([*_KEYS, "opened"], use_threads=False).aggregate(counted)
        # LIN-12, as in format/records.py. (A whole record and a user record of it are of other content.)
        differ = reduce(pc.or_, (pc.greater(groups[f"{name}_count_distinct"], 1) for name in _CONTENT))
        groups = (
            groups.append_column("differ", differ)
            .group_by(_KEYS, use_threads=False)
            .aggregate(
                [
                    ("count_all", "sum"),
                    ("file_first", "first", whole),
                    ("line_first", "first", whole),
                    ("differ", "any"),
                ]
            )
        )
        groups = groups.filter(pc.greater(groups["count_all_sum"], 1))
        for kind in totals:
            of_kind = groups.filter(pc.equal(groups["differ_any"], kind == _DIFFER))
            totals[kind] += of_kind.num_rows, pc.sum(of_kind["count_all_sum"]).as_py() or 0
        first = pa.concat_tables([*listed, groups]).sort_by([(name, "ascending") for name in _KEYS])
        listed = [first.slice(0, MAX_LISTED)]
    findings = [
        Finding(
            kind=(kind := _DIFFER if group["differ_any"] else _COPIES),
            shard_id=group["shardId"],
            sequence_number=group["sequenceNumber"],
            sub_sequence_number=group["subSequenceNumber"] or None,
            file=group["file_first_first"],
            line=group["line_first_first"],
            user_records=group["count_all_sum"],
            detail=_TEXTS[kind][0].format(group["count_all_sum"]),
        )
        for table in listed
        for group in table.to_pylist()
    ]
    for kind, (names, records) in totals.items():
        of_kind = [finding.user_records or 0 for finding in findings if finding.kind == kind]
        if names > len(of_kind):
            more = plural(int(names) - len(of_kind), "more Kinesis record")
            detail = f"{more} {_TEXTS[kind][1]}, not listed"
            findings.append(Finding(kind=kind, user_records=int(records) - sum(of_kind), detail=detail))
    return findings


def _rows_of_part(dataset: ds.Dataset, part: int, parts: int) -> Iterator[pa.RecordBatch]:
    for batch in dataset.to_batches():
        numbers = batch["sequenceNumber"].to_pylist() if parts > 1 else ()
        in_part = [crc32(text.encode()) % parts == part for text in numbers]
        yield batch.filter(pa.array(in_part, pa.bool_())) if parts > 1 else batch
