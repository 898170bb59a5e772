"""Makes the plan of a repair from the user records and findings of a validate job: it decides about each lost
user record, and writes the rows to files, each for some shards, sorted by shard and sequence number."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ..arrow.layout import values_of
from ..captures import InputError, Location, readable
from ..captures.results import RESULTS
from ..limits import MAX_PARTITION_KEY_LENGTH
from ..rendering.labels import plural
from ..shards.placement import ACROSS_SHARDS
from . import repair_marks

#: How many rows of a plan are read at a time.
_AT_ONCE: Final = 250
#: The columns of a plan, in order.
PLAN: Final = pa.schema(
    [
        ("shardId", pa.string()),
        ("sequenceNumber", pa.string()),
        ("subSequenceNumber", pa.int64()),
        ("expectedShardId", pa.string()),
        ("partitionKey", pa.string()),
        ("explicitHashKey", pa.string()),
        ("data", pa.large_binary()),
        ("tags", pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))),
        ("decision", pa.string()),
        ("cause", pa.string()),
        ("reason", pa.string()),  # why the user record cannot be put
    ]
)
#: The columns that are needed to put a user record.
_READ: Final = [field for field in PLAN if field.name not in ("expectedShardId", "cause", "reason")]
#: The columns of a plan, and the number of the file that a row goes to.
_BUCKETED = PLAN.append(pa.field("bucket", pa.int32()))
#: The values of ``kcl`` of a lost user record: the KCL drops it, or an audit says that no consumer handled
#: it.
LOST = ds.field("kcl").isin(["dropped", "missing"])
#: How many files the shards of a plan share.
_BUCKETS = 64
#: Partition key, explicit hash key, digest of the data: the same for equal user records.
_Contents = tuple[str | None, str | None, bytes]


_KEYS = ["shardId", "sequenceNumber", "subSequenceNumber", "partitionKey", "explicitHashKey"]


class _Row(NamedTuple):
    shard_id: str | None
    sequence_number: str | None
    sub_sequence_number: int
    partition_key: str | None
    explicit_hash_key: str | None

    def order(self) -> tuple[int, str, int]:
        number = self.sequence_number or ""
        return len(number), number, self.sub_sequence_number


def streams_of(output: Location, which: ds.Expression | None) -> set[str]:
    """The names of the streams of ``which`` user records (None: all), as far as they are known."""
    names = {
        name
        for batch in (output / "user-records").rows(["streamName"], which)
        for name in pc.unique(batch["streamName"]).to_pylist()
    }
    return names - {None}


def write_plan(output: Location, *, with_unread: bool, without_range: frozenset[str]) -> dict[str, int]:
    """Write ``output``/repair/plan. ``without_range``: ids of shards whose range the KCL did not know.
    Returns the number of user records by decision."""
    causes = _causes(output)
    # SPK-120: "A user record of a shard that the consumer never read MUST NOT be put again unless that is
    # asked for."
    unread = set() if with_unread else _unread(output)
    # Only a producer that noticed a reshard may have sent the user records again.
    sent_again = {record for record, cause in causes.items() if cause != ACROSS_SHARDS}
    delivered = _already_delivered(output, sent_again)
    copies = _lost_copies(output)
    plan = output / "repair/plan"
    plan.delete()
    plan.make_folder()
    counts: Counter[str] = Counter()
    run_id = uuid4().hex
    with tempfile.TemporaryDirectory(prefix="kpl-codec-repair-") as scratch:
        decided = _decisions(output, causes, delivered, copies, unread, without_range, counts)
        ds.write_dataset(decided, scratch, schema=_BUCKETED, format="ipc", partitioning=["bucket"])
        for number, bucket in enumerate(sorted(Path(scratch).iterdir())):
            rows = ds.dataset(bucket, format="ipc").to_table()
            keyed = rows.append_column("length", pc.utf8_length(rows["sequenceNumber"]))
            # By shard, then in the order of the stream.
            names = ("expectedShardId", "length", "sequenceNumber", "subSequenceNumber")
            ordered = keyed.sort_by([(name, "ascending") for name in names]).drop_columns("length")
            name = f"part-{number:05d}.parquet"
            (plan / name).write_table(ordered, RESULTS, f"{run_id}/plan/{name}")
    (plan / "_SUCCESS").write(b"%d" % counts.total())
    return dict(counts)


def _causes(output: Location) -> dict[tuple[str | None, str | None], str]:
    """Why the user records of a Kinesis record lie outside their shard, by shard and sequence number."""
    columns = ["shardId", "sequenceNumber", "cause"]
    return {
        (shard_id, number): cause
        for batch in (output / "findings").rows(columns, ds.field("cause").is_valid())
        for shard_id, number, cause in zip(*(values_of(batch[name]) for name in columns), strict=True)
    }


def _unread(output: Location) -> set[tuple[str | None, str | None]]:
    """Shard and sequence number of the Kinesis records of shards of which an audit says that its consumer
    never read them."""
    columns = ["shardId", "sequenceNumber"]
    return {
        place
        for batch in (output / "findings").rows(columns, ds.field("kind") == "audit-unread")
        for place in zip(*(values_of(batch[name]) for name in columns), strict=True)
    }


def _rows(batch: pa.RecordBatch) -> Iterator[_Row]:
    return map(_Row._make, zip(*(values_of(batch[name]) for name in _KEYS), strict=True))


def _contents(row: _Row, data: Any) -> _Contents:
    return row.partition_key, row.explicit_hash_key, sha256(data.as_py()).digest()


def _already_delivered(output: Location, sent_again: set[tuple[str | None, str | None]]) -> set[_Row]:
    """The lost user records of these Kinesis records that were delivered otherwise: as many as there are
    equal delivered user records, the last ones first."""
    if not sent_again:
        return set()
    lost_rows: dict[_Contents, set[_Row]] = defaultdict(set)
    for batch in (output / "user-records").rows([*_KEYS, "data"], LOST):
        for row, data in zip(_rows(batch), batch["data"], strict=True):
            if row[:2] in sent_again:
                lost_rows[_contents(row, data)].add(row)
    keys = pa.array({contents[0] for contents in lost_rows}, pa.string())
    copies: dict[_Contents, set[_Row]] = defaultdict(set)
    for batch in (output / "user-records").rows([*_KEYS, "data", "tags"], ds.field("kcl") == "delivered"):
        batch = batch.filter(pc.is_in(batch["partitionKey"].cast(pa.string()), value_set=keys))
        for row, data, tags in zip(_rows(batch), batch["data"], batch["tags"].to_pylist(), strict=True):
            # A copy from a repair replaces only the user record that its tag names, not an equal one.
            if not any(tag["key"] == repair_marks.TAG for tag in tags or ()):
                contents = _contents(row, data)
                if contents in lost_rows:
                    copies[contents].add(row)
    # SPK-31: "A user record that a producer has sent again after a reshard, and that is delivered, MUST NOT
    # be put once more; one of an aggregate that no reshard explains MUST be put."
    return {
        row
        for contents, rows in lost_rows.items()
        for row in sorted(rows, key=_Row.order, reverse=True)[: len(copies[contents])]
    }


def _lost_copies(output: Location) -> set[str]:
    """The places of lost user records that are copies, by a repair, of other lost ones. Of copies that name
    each other in a circle, as no repair puts them, one is left out."""
    claims: dict[str, list[tuple[str, bytes]]] = defaultdict(list)
    columns = [*_KEYS, "data", "tags", "error"]
    for batch in (output / "user-records").rows(columns, LOST):
        marks = zip(_rows(batch), repair_marks.originals_in(batch), strict=True)
        claiming = [(at, row, names) for at, (row, names) in enumerate(marks) if names]
        contents = repair_marks.contents_in(batch.take(pa.array([at for at, *_ in claiming], pa.int64())))
        for (_, row, names), digest in zip(claiming, contents, strict=True):
            for name in names:
                claims[name].append((repair_marks.tag_value(row[:3]), digest))
    copies_of: dict[str, set[str]] = defaultdict(set)
    for batch in (output / "user-records").rows(columns, LOST) if claims else ():
        rows = zip(_rows(batch), values_of(batch["error"]), strict=True)
        named = [
            (at, place)
            for at, (row, error) in enumerate(rows)
            if (place := repair_marks.tag_value(row[:3])) in claims and _why_not(row, error) is None
        ]
        contents = repair_marks.contents_in(batch.take(pa.array([at for at, _ in named], pa.int64())))
        for (_, place), digest in zip(named, contents, strict=True):
            for copy, of_copy in claims[place]:
                if digest == of_copy and copy != place:
                    copies_of[place].add(copy)
    # SPK-121: "Of a lost user record and its lost copies only one MUST be put."
    copies: set[str] = set()
    firsts = copies_of.keys() - {copy for some in copies_of.values() for copy in some}
    for first in [*sorted(firsts), *sorted(copies_of)]:
        new = set() if first in copies else {first}
        while new:
            new = {copy for one in new for copy in copies_of.pop(one, ())} - copies - {first}
            copies |= new
    return copies


def _decisions(
    output: Location,
    causes: dict[tuple[str | None, str | None], str],
    delivered: set[_Row],
    copies: set[str],
    unread: set[tuple[str | None, str | None]],
    without_range: frozenset[str],
    counts: Counter[str],
) -> Iterator[pa.RecordBatch]:
    """The lost user records with their decisions, each once. ``counts`` is kept up to date."""
    places = repair_marks.RecordPlaces()
    columns = [name for name in _BUCKETED.names if name not in ("decision", "cause", "reason", "bucket")]
    for batch in (output / "user-records").rows([*columns, "error"], LOST):
        rows = list(_rows(batch))
        values = {name: batch[name] for name in columns}
        errors, shards = (values_of(batch[name]) for name in ("error", "expectedShardId"))
        reasons = [_why_not(row, error) for row, error in zip(rows, errors, strict=True)]
        values["decision"] = [
            "already-delivered" if row in delivered
            else "copy" if repair_marks.tag_value(row[:3]) in copies
            else "not-read-yet" if row[:2] in unread
            # SPK-123: "User records on a shard whose range the KCL did not know MUST NOT be put again."
            else "delivered-without-range" if row.shard_id in without_range
            else "cannot" if reason
            else "put"
            for row, reason in zip(rows, reasons, strict=True)
        ]  # fmt: skip
        values["cause"] = [causes.get(row[:2]) for row in rows]
        values["reason"] = [
            reason if decision == "cannot" else None
            for reason, decision in zip(reasons, values["decision"], strict=True)
        ]
        values["bucket"] = [crc32((shard or "").encode()) % _BUCKETS for shard in shards]
        is_new = pa.array([places.add(row[:3]) for row in rows])
        decisions = pa.RecordBatch.from_pydict(values, _BUCKETED).filter(is_new)
        counts.update(decisions["decision"].to_pylist())
        yield decisions


def _why_not(row: _Row, error: str | None) -> str | None:
    """Why a user record cannot be put; None if it can. ``error``: the code of its defect."""
    # SPK-33: "A user record that cannot be put MUST be named with the reason."
    key = row.partition_key
    if error is not None:
        return f"it is broken: {error}"
    if key is None:
        return "it has no partition key"
    if not 1 <= len(key) <= MAX_PARTITION_KEY_LENGTH:
        return f"its partition key has {plural(len(key), 'character')}, not 1 to {MAX_PARTITION_KEY_LENGTH}"
    for value, what in ((row.shard_id, "shard id"), (row.sequence_number, "sequence number")):
        if value is None:
            return f"it has no {what}, so its copy cannot name it"
    if repair_marks.nameable_place(row[:3]) is None:
        return "its shard id or sequence number is one that a copy cannot name"
    return None


def plan_rows(plan: Location) -> Iterator[dict[str, Any]]:
    """The rows of a plan file. A row to put has a place, a key and data. Raises InputError."""
    system, inner = plan.filesystem()
    with (
        readable(plan.path),
        pq.ParquetFile(inner, filesystem=system, page_checksum_verification=True) as file,
    ):
        number = 0
        for batch in file.iter_batches(_AT_ONCE, columns=[field.name for field in _READ]):
            columns = [batch[field.name].cast(field.type) for field in _READ]
            for row in pa.RecordBatch.from_arrays(columns, schema=pa.schema(_READ)).to_pylist():
                if not _sound(row):
                    raise InputError(code="unreadable", path=plan.path, reason=f"row {number} is of no plan")
                yield row
                number += 1
        # ACC-2, as of captures: damage may end a page early without an error.
        if number != (rows := file.metadata.num_rows):
            reason = f"its footer says {plural(rows, 'row')}, and it has {number:,}"
            raise InputError(code="unreadable", path=plan.path, reason=reason)


def _sound(row: dict[str, Any]) -> bool:
    if row["decision"] != "put":
        others = ("already-delivered", "copy", "cannot", "delivered-without-range", "not-read-yet")
        return row["decision"] in others
    return (
        repair_marks.nameable_place([row[name] for name in _KEYS[:3]]) is not None
        and None not in (row["partitionKey"], row["data"])
        and all(tag is not None and tag["key"] is not None for tag in row["tags"] or ())
    )
