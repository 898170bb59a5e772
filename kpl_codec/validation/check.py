"""Captured Kinesis records in, judged user records out, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from ..arrow import Deaggregator, coalesce
from ..captures import CAPTURE_SCHEMA
from ..captures.shards import shards_found
from ..deaggregation.fingerprints import OTHERS, fingerprint
from ..format.disguises import BEGINNINGS, FIRST_TAGS, MAGIC_END, disguise_of
from ..limits import MAGIC
from ..shards.shard_map import ShardMap

#: Of a batch of user records: what is done once for each batch takes a tenth of the time at 4 MiB.
_BATCH_BYTES = 16 * 1024 * 1024

#: So many Kinesis records of a task are all looked at for their writer, then one of so many.
_ALL_LOOKED_AT, _ONE_OF = 32, 128
#: A row of a batch, the code of a finding about it, and its text.
_About = tuple[int, str, str]

_IN = pa.schema(
    [
        *(field for field in CAPTURE_SCHEMA if not field.name.startswith("capture")),
        pa.field("shardIdFrom", pa.string()),  # given, path, sequence-number, map; null if not known
    ]
)


#: Columns that findings and counts do not need.
_UNREAD = (
    *("partitionKey", "explicitHashKey", "aggregatePlacement"),
    *("errorCount", "shardIdFrom", "recordIndex"),
)


def checked_schema(shard_map: ShardMap, *, dictionaries: bool = False) -> pa.Schema:
    """The columns of user records: those of `kpl_codec.arrow` under the report policy, and where it was read.
    ``dictionaries``: as `check` gives them, where text that repeats is in dictionary arrays."""
    return _deaggregator(shard_map, dictionaries).schema


def _deaggregator(
    shard_map: ShardMap, dictionaries: bool, columns: Iterable[str] | None = None
) -> Deaggregator:
    return Deaggregator(
        _IN,
        "report",
        shard_map=shard_map,
        tags=True,
        columns=columns,
        max_batch_bytes=_BATCH_BYTES,
        dictionaries=dictionaries,
    )


def check(
    captured: Iterable[pa.RecordBatch], shard_map: ShardMap, *, whole: bool = True
) -> Iterator[pa.RecordBatch]:
    """Batches of CAPTURE_SCHEMA in, batches of `checked_schema` with dictionaries out: every user record with
    its verdict, and for data that cannot be read a row with its error and without sub-sequence number.
    ``whole``: all columns, else those that findings and counts need."""
    deaggregator = _deaggregator(shard_map, dictionaries=True)
    if not whole:
        needed = [name for name in deaggregator.schema.names if name not in _UNREAD]
        deaggregator = _deaggregator(shard_map, True, needed)
    named: set[str] = set()
    count = 0

    def rows() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for batch in captured:
            bad = pc.is_valid(batch["captureError"])
            if pc.any(bad).as_py():
                yield _unreadable(batch.filter(bad), deaggregator.schema)
                batch = batch.filter(pc.invert(bad))
            yield from _told(batch, _disguised(batch), deaggregator.schema)
            step = 1 if count < _ALL_LOOKED_AT else _ONE_OF
            yield from _told(
                batch, _written(batch, range(0, batch.num_rows, step), named), deaggregator.schema
            )
            count += batch.num_rows
            yield from deaggregator.process(_prepared(batch, only_shard(shard_map)))

    return coalesce(rows(), _BATCH_BYTES)


def _prepared(batch: pa.RecordBatch, only: str | None) -> pa.RecordBatch:
    """The batch with shard ids found where they are missing."""
    columns = shards_found(batch, only)
    return pa.RecordBatch.from_arrays(
        [columns.get(f.name, batch[f.name] if f.name in batch.schema.names else None) for f in _IN],
        schema=_IN,
    )


def only_shard(shard_map: ShardMap) -> str | None:
    """The id of the map's shard, if it has only one."""
    return next(iter(shard_map)) if len(shard_map) == 1 else None


def _disguised(batch: pa.RecordBatch) -> Iterator[_About]:
    """Every Kinesis record whose data is an aggregated record turned into text, or with a foreign magic; the
    records themselves stay plain records."""
    data = batch["data"]
    begins = [pc.starts_with(data, pattern) for pattern in BEGINNINGS]
    tags = pa.array(FIRST_TAGS, data.type)
    foreign = pc.or_(
        pc.equal(pc.binary_slice(data, 1, 4), pa.scalar(MAGIC_END, data.type)),
        pc.is_in(pc.binary_slice(data, 4, 5), value_set=tags),
    )
    begins.append(pc.and_not(foreign, pc.starts_with(data, MAGIC)))
    rows = pc.indices_nonzero(pc.fill_null(reduce(pc.or_, begins), False))
    for row in rows.to_pylist():
        data = batch["data"][row].as_py()
        name = disguise_of(data)
        if name is not None:
            # SPK-45: "Data that is an aggregated record turned into text (base64 of base64, hexadecimal
            # digits, text with lost bytes), or a frame with another magic, MUST be a finding."
            sign = fingerprint(data)
            writer = f", written by {' or '.join(sign.writers)}" if sign is not None else ""
            yield row, "encoded-frame", f"an aggregated record as {name}{writer}: no consumer opens it"


def _written(batch: pa.RecordBatch, rows: Iterable[int], named: set[str]) -> Iterator[_About]:
    """The first Kinesis record of each writer that is at least likely, among ``rows``. ``named``: the signs
    told before. The KPL is not told."""
    for row in rows:
        data, outer_key = (batch[name][row].as_py() for name in ("data", "partitionKey"))
        sign = fingerprint(data, outer_key, OTHERS) if data and data.startswith(MAGIC) else None
        if sign is None or sign.name in named:
            continue
        named.add(sign.name)
        # FPR-3: "An aggregate whose likely writer is known to swap keys MUST be a finding, `swapped-keys`."
        yield row, "writer" if sign.swaps is None else "swapped-keys", str(sign)


def _told(batch: pa.RecordBatch, about: Iterable[_About], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """One row for each."""
    found = list(about)
    if found:
        rows, codes, texts = (pa.array(column) for column in zip(*found, strict=True))
        taken = batch.take(rows)
        for name, column in (("captureError", codes), ("captureText", texts)):
            taken = taken.set_column(taken.schema.get_field_index(name), name, column)
        yield _unreadable(taken, schema)


def _unreadable(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows about the capture: no sub-sequence number, ``captureError`` as error."""
    count = batch.num_rows
    names = ("shardId", "sequenceNumber", "file", "position", "line", "recordIndex")
    values = {name: batch[name] for name in names}
    values["error"] = batch["captureError"]
    values["errorText"] = batch["captureText"]
    values["errorCount"] = pa.repeat(pa.scalar(1, pa.int64()), count)
    arrays = [values.get(field.name, pa.nulls(count, field.type)) for field in schema]
    coded = [pa.types.is_dictionary(field.type) for field in schema]
    arrays = [array.dictionary_encode() if of else array for array, of in zip(arrays, coded, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
