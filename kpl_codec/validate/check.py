"""Captured Kinesis records in, judged user records out, as Arrow batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial, reduce
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..arrow import Deaggregator, coalesce
from ..arrow.compiled_columns import may_nest
from ..captures import CAPTURE_SCHEMA
from ..captures.capture_rows import with_shards
from ..deaggregation.fingerprints import OTHERS, fingerprint
from ..format.frame import BEGINNINGS, FIRST_TAGS, MAGIC_END, disguise_of
from ..format.nested import describe_nested, layers_around
from ..limits import MAGIC
from ..schema_registry import HEADER_SIZE, PLAIN, ZLIB, SchemaFrameError, unframe, version_id_text
from ..shards.shard_map import ShardMap
from ..shards.stream_name import StreamMatcher
from .report.record_sums import COLUMNS_READ

#: Bytes of a batch of user records. At 4 MiB a tenth of the time goes into the fixed cost of each batch.
_BATCH_BYTES = 16 * 1024 * 1024

#: Which Kinesis records of a task are examined for their writer: the first 32, then one of 128.
_ALL_LOOKED_AT, _ONE_OF = 32, 128
#: Batches of findings that are collected before they go on: a small batch takes as long as a large one.
_FINDING_BATCHES = 32
#: Schema versions that are counted at most.
_MOST_VERSIONS = 1000
#: A row of a batch, the code of a finding about it, and its text.
_About = tuple[int, str, str]

_IN = pa.schema(
    [
        *(field for field in CAPTURE_SCHEMA if not field.name.startswith("capture")),
        pa.field("shardIdFrom", pa.string()),  # given, path, sequence-number, map; null if not known
    ]
)
#: Columns that findings, counts and the marks of repaired user records need; with the keys of copies.
_READ = {*COLUMNS_READ, "tags"}
_READ_WITH_KEYS = {*_READ, "partitionKey", "explicitHashKey"}
_deaggregator = partial(Deaggregator, _IN, "report", tags=True, max_batch_bytes=_BATCH_BYTES)


def checked_schema(shard_map: ShardMap, *, dictionaries: bool = False) -> pa.Schema:
    """The columns of user records: those of `kpl_codec.arrow` under the report policy, and where it was read.
    ``dictionaries``: as `check` gives them, where text that repeats is in dictionary arrays."""
    return _deaggregator(shard_map=shard_map, dictionaries=dictionaries).schema


def check(
    captured: Iterable[pa.RecordBatch],
    shard_map: ShardMap,
    *,
    whole: bool = True,
    keys: bool = False,
    versions: frozenset[str] = frozenset(),
) -> Iterator[pa.RecordBatch]:
    """Batches of CAPTURE_SCHEMA in, batches of `checked_schema` with dictionaries out: every user record with
    its verdict, and for data that cannot be read a row with its error and without sub-sequence number.
    ``whole``: all columns, else those that findings and counts need, and keys if ``keys``.
    ``versions``: schema versions known to stand in sound frames."""
    new_deaggregator = partial(
        _deaggregator,
        shard_map=shard_map,
        dictionaries=True,
        streams=StreamMatcher(shard_map.stream, refuse=False),
    )
    deaggregator = new_deaggregator()
    if not whole:
        read = _READ_WITH_KEYS if keys else _READ
        deaggregator = new_deaggregator(columns=filter(read.__contains__, deaggregator.schema.names))
    schema = deaggregator.schema
    schemas = _Schemas(schema, versions)

    def rows() -> Iterator[pa.RecordBatch]:
        named: set[str] = set()
        count = 0
        about: list[pa.RecordBatch] = []
        for batch in captured:
            bad = pc.is_valid(batch["captureError"])
            if pc.any(bad).as_py():
                unread = batch.filter(bad)
                yield _unreadable(unread, unread["captureError"], unread["captureText"], schema)
                batch = batch.filter(pc.invert(bad))
            first = range(min(batch.num_rows, _ALL_LOOKED_AT - count))
            looked_at = (*first, *range(-count % _ONE_OF, batch.num_rows, _ONE_OF))
            about += rows_about(
                batch, (*_text_encoded_aggregates(batch), *_writers(batch, looked_at, named)), schema
            )
            count += batch.num_rows
            for users in deaggregator.process(with_shards(batch, shard_map, _IN)):
                yield users
                about += chain(rows_about(users, _nested_aggregates(users), schema), schemas.see(users))
            if len(about) >= _FINDING_BATCHES:
                yield from about
                about = []
        yield from (*about, *schemas.versions())

    return coalesce(rows(), _BATCH_BYTES)


def _text_encoded_aggregates(batch: pa.RecordBatch) -> Iterator[_About]:
    """Every Kinesis record whose data is an aggregated record turned into text, or with a foreign magic."""
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


def _nested_aggregates(rows: pa.RecordBatch) -> Iterator[_About]:
    """Every user record with an aggregated record within its data; not one with an error, which is a finding
    already."""
    for row in may_nest(rows["data"]).tolist():
        data = rows["data"][row].as_py()
        layers = None if data is None else layers_around(data)
        if layers is None:
            continue
        sub, aggregated, error = (
            rows[name][row].as_py() for name in ("subSequenceNumber", "aggregated", "error")
        )
        if sub is None or sub < 0 or error is not None or (not aggregated and disguise_of(data) is not None):
            continue
        yield row, "nested-aggregate", describe_nested(layers, sub if aggregated else None)


def _writers(batch: pa.RecordBatch, rows: Iterable[int], named: set[str]) -> Iterator[_About]:
    """The first Kinesis record of each writer that is at least likely, among ``rows``. ``named``: the signs
    already reported. The KPL is not reported."""
    for row in rows:
        data, outer_key = (batch[name][row].as_py() for name in ("data", "partitionKey"))
        sign = fingerprint(data, outer_key, OTHERS) if data and data.startswith(MAGIC) else None
        if sign is not None and sign.name not in named:
            named.add(sign.name)
            # FPR-3: "An aggregate whose likely writer is known to swap keys MUST be a finding,
            # `swapped-keys`."
            yield row, "writer" if sign.swaps is None else "swapped-keys", str(sign)


class _Schemas:
    """The Schema Registry's frames around user records' data: their findings; the frames stay on. ``sound``:
    the schema versions that stand in sound frames elsewhere in this run."""

    def __init__(self, schema: pa.Schema, sound: frozenset[str]) -> None:
        self._schema = schema
        #: By schema version: how many user records, and the first one. Then the versions in sound frames.
        self._counts = Counter[str]()
        self._first: dict[str, pa.RecordBatch] = {}
        self._sound = set(sound)

    def see(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        data = rows["data"]
        # Most data is something else, which its first byte says.
        at = pc.indices_nonzero(pc.fill_null(pc.starts_with(data, PLAIN[:1]), False))
        begun = data.take(at)
        begins = (
            pc.is_in(pc.binary_slice(begun, *where), values) for where, values in _frame_signs(data.type)
        )
        framed = reduce(pc.and_, begins, pc.greater_equal(pc.binary_length(begun), HEADER_SIZE))
        at, begun = at.filter(framed), begun.filter(framed)
        if len(at):
            is_zlib = pc.starts_with(begun, ZLIB)
            none, broken_items = _examine_compressed(pc.indices_nonzero(is_zlib).to_pylist(), begun)
            broken = [(at[item].as_py(), error) for item, error in broken_items]
            ids = pc.binary_slice(begun, 2, HEADER_SIZE)
            if none:
                is_framed = pa.array(np.delete(np.arange(len(at)), none))
                at, ids = at.take(is_framed), ids.take(is_framed)
            damaged = Counter(error.schema_version_id for _, error in broken)
            counted = ids.value_counts().to_pylist()
            for entry in counted:
                version = version_id_text(entry["values"])
                if entry["counts"] > damaged[version] and len(self._sound) < _MOST_VERSIONS:
                    self._sound.add(version)
                if version in self._first or len(self._first) < _MOST_VERSIONS:
                    self._counts[version] += entry["counts"]
                    first = at[pc.index(ids, entry["values"]).as_py()].as_py()
                    self._first.setdefault(version, rows.slice(first, 1))
            about = [(row, *self._of_broken(error)) for row, error in broken]
            yield from rows_about(
                rows, chain(_mixed_versions(rows, at, ids) if len(counted) > 1 else (), about), self._schema
            )

    def _of_broken(self, error: SchemaFrameError) -> tuple[str, str]:
        # GSR-11: "A check MUST leave frames as they are, and report each broken one, each aggregate with
        # several schema versions, and each schema version; a damaged one whose schema version stands in no
        # sound frame of the run may be no frame, and MUST be reported as that."
        is_sound = error.schema_version_id in self._sound
        if is_sound or error.code != "schema-frame-damaged":
            return error.code, error.describe()
        return "schema-frame-doubtful", error.describe()

    def versions(self) -> Iterator[pa.RecordBatch]:
        for version, first in self._first.items():
            if version in self._sound:
                text = f"{self._counts[version]} user records of schema version {version}"
                yield from rows_about(first, [(0, "schema-version", text)], self._schema)


@lru_cache(4)
def _frame_signs(kind: pa.DataType) -> list[tuple[tuple[int, int], pa.Array]]:
    """Which bytes of a frame's header have which values: its first two, and those that make a UUID of version
    4."""
    version, variant = (
        [bytes([high | low]) for high in highs for low in range(16)]
        for highs in ((0x40,), (0x80, 0x90, 0xA0, 0xB0))
    )
    signs = (((0, 2), (PLAIN, ZLIB)), ((8, 9), version), ((10, 11), variant))
    return [(where, pa.array(values, kind)) for where, values in signs]


def _mixed_versions(rows: pa.RecordBatch, at: pa.Array, ids: pa.Array) -> Iterator[_About]:
    """The Kinesis records with frames of several schema versions: the rows ``at`` have those ``ids``."""
    records = pc.cumulative_sum(rows["firstOfRecord"].cast(pa.int64())).take(at)
    by_record = pa.table({"record": records, "id": ids, "row": at}).group_by("record", use_threads=False)
    counted = by_record.aggregate([("id", "count_distinct"), ("row", "min")])
    for record in counted.filter(pc.field("id_count_distinct") > 1).to_pylist():
        text = f"user records of {record['id_count_distinct']} schema versions in one aggregate"
        yield record["row_min"], "mixed-schema-versions", text


def _examine_compressed(
    at: list[int], data: pa.Array
) -> tuple[list[int], list[tuple[int, SchemaFrameError]]]:
    """The items ``at`` of ``data``, all with 03 05: which are no frames, and which are broken ones."""
    none, broken = [], []
    for item in at:
        try:
            if unframe(data[item].as_py()).schema_version_id is None:
                none.append(item)
        except SchemaFrameError as error:
            broken.append((item, error))
    return none, broken


def rows_about(batch: pa.RecordBatch, about: Iterable[_About], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows that become findings about rows of ``batch``: which, the kind, and the text."""
    items = list(about)
    if items:
        rows, codes, texts = (pa.array(column) for column in zip(*items, strict=True))
        yield _unreadable(batch.take(rows), codes, texts, schema)


def _unreadable(batch: pa.RecordBatch, codes: pa.Array, texts: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    count = batch.num_rows
    names = ("shardId", "sequenceNumber", "file", "position", "line", "recordIndex")
    values = {name: batch[name] for name in names if name in batch.schema.names}
    values["error"], values["errorText"] = codes, texts
    values["errorCount"] = pa.repeat(pa.scalar(1, pa.int64()), count)
    arrays = []
    for field in schema:
        array = values.get(field.name, pa.nulls(count, field.type))
        coded = pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(array.type)
        arrays.append(array.dictionary_encode() if coded else array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
