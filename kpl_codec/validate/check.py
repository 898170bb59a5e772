"""Checks captured Kinesis records: turns Arrow batches of them into batches of user records with verdicts,
and findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial, reduce
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..arrow import Deaggregator, coalesce
from ..arrow.nested_candidates import may_nest
from ..captures import CAPTURE_SCHEMA
from ..captures.capture_rows import CONTRADICTORY, add_shards, shard_of
from ..deaggregation.fingerprints import OTHERS, fingerprint
from ..format.frame import BEGINNINGS, FIRST_TAGS, MAGIC_END, disguise_of
from ..format.nested import describe_nested, layers_around
from ..limits import MAGIC
from ..rendering.labels import plural
from ..schema_registry import HEADER_SIZE, PLAIN, ZLIB, SchemaFrameError, unframe, version_id_text
from ..shards.sequence_numbers import sequence_hint
from ..shards.shard_map import ShardMap
from ..shards.stream_name import StreamMatcher
from .report.scan import COLUMNS_READ

#: Bytes of a batch of user records. With 4 MiB, a tenth of the time would go into the fixed cost of a batch.
_BATCH_BYTES = 16 * 1024 * 1024
#: Which Kinesis records of a task are examined for their writer: the first 32, then one in 128.
_FIRST_EXAMINED, _ONE_OF = 32, 128
#: How many batches of findings are joined before they are written: a small batch takes as long as a large
#: one.
_FINDING_BATCHES = 32
#: The most schema versions that are counted.
_MAX_VERSIONS = 1000
#: A row's number in a batch, the code of a finding about the row, and the finding's text.
_About = tuple[int, str, str]
_IN = pa.schema(
    [
        *(field for field in CAPTURE_SCHEMA if not field.name.startswith("capture")),
        # given, path, sequence-number, map, contradictory; null if not known
        pa.field("shardIdFrom", pa.string()),
    ]
)
_deaggregator = partial(Deaggregator, _IN, "report", tags=True, max_batch_bytes=_BATCH_BYTES)


def user_record_schema(shard_map: ShardMap, *, dictionaries: bool = False) -> pa.Schema:
    """The columns of user records: those of `kpl_codec.arrow` under the report policy, and where each was
    read. ``dictionaries``: as `check` gives them, with text that repeats in dictionary arrays."""
    return _deaggregator(shard_map=shard_map, dictionaries=dictionaries).schema


def check(
    captured: Iterable[pa.RecordBatch],
    shard_map: ShardMap,
    *,
    whole: bool = True,
    keys: bool = False,
    versions: frozenset[str] = frozenset(),
) -> Iterator[pa.RecordBatch]:
    """Turn batches of CAPTURE_SCHEMA into batches of `user_record_schema` with dictionaries: every user
    record with its verdict, and for data that cannot be read a row with the error and without a sub-sequence
    number. ``whole``: make all columns, else only those that findings and counts need, and with ``keys`` the
    keys. ``versions``: schema versions that sound frames are known to have."""
    new_deaggregator = partial(
        _deaggregator,
        shard_map=shard_map,
        dictionaries=True,
        streams=StreamMatcher(shard_map.stream, refuse=False),
    )
    deaggregator = new_deaggregator()
    if not whole:
        read = {*COLUMNS_READ, "tags", *(("partitionKey", "explicitHashKey") if keys else ())}
        deaggregator = new_deaggregator(columns=filter(read.__contains__, deaggregator.schema.names))
    schema = deaggregator.schema
    schemas = _Schemas(schema, versions)

    def rows() -> Iterator[pa.RecordBatch]:
        writers: set[str] = set()
        named: set[tuple[str, str]] = set()
        count = 0
        about: list[pa.RecordBatch] = []
        for batch in captured:
            bad = pc.is_valid(batch["captureError"])
            if pc.any(bad).as_py():
                unread = batch.filter(bad)
                yield _unreadable(unread, unread["captureError"], unread["captureText"], schema)
                batch = batch.filter(pc.invert(bad))
            first = range(min(batch.num_rows, _FIRST_EXAMINED - count))
            examined = (*first, *range(-count % _ONE_OF, batch.num_rows, _ONE_OF))
            about += rows_about(
                batch, (*_text_encoded_aggregates(batch), *_writers(batch, examined, writers)), schema
            )
            count += batch.num_rows
            batch = add_shards(batch, shard_map, _IN)
            about += rows_about(batch, _contradictory_shards(batch, named), schema)
            for users in deaggregator.process(batch):
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
    foreign = pc.or_(
        pc.equal(pc.binary_slice(data, 1, 4), pa.scalar(MAGIC_END, data.type)),
        pc.is_in(pc.binary_slice(data, 4, 5), value_set=pa.array(FIRST_TAGS, data.type)),
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
    """Every user record with an aggregated record in its data, unless it has an error, which is a finding."""
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


def _writers(batch: pa.RecordBatch, rows: Iterable[int], reported: set[str]) -> Iterator[_About]:
    """Among ``rows`` the first Kinesis record of each likely writer, without the KPL and the ``reported``
    ones."""
    for row in rows:
        data, outer_key = (batch[name][row].as_py() for name in ("data", "partitionKey"))
        sign = fingerprint(data, outer_key, OTHERS) if data and data.startswith(MAGIC) else None
        if sign is not None and sign.name not in reported:
            reported.add(sign.name)
            # FPR-3: "An aggregate whose likely writer is known to swap keys MUST be a finding,
            # `swapped-keys`."
            yield row, "writer" if sign.swaps is None else "swapped-keys", str(sign)


def _contradictory_shards(batch: pa.RecordBatch, reported: set[tuple[str, str]]) -> Iterator[_About]:
    """The first Kinesis record of each file and shard whose sequence number hints at another shard than the
    file's path names, without the ``reported`` ones."""
    for row in pc.indices_nonzero(pc.fill_null(pc.equal(batch["shardIdFrom"], CONTRADICTORY), False)):
        file, number = (batch[name][row.as_py()].as_py() for name in ("file", "sequenceNumber"))
        hint = sequence_hint(number)
        if hint is not None and (file, hint.shard_id) not in reported:
            reported.add((file, hint.shard_id))
            # SPK-122, as in capture_rows.py
            text = f"its path names {shard_of(file, None)[0]}, its sequence numbers hint at {hint.shard_id}"
            yield row.as_py(), "shard-of-file", text


class _Schemas:
    """Findings about the Schema Registry's frames around user records' data; the frames stay on. ``sound``:
    the schema versions of sound frames elsewhere in this run."""

    def __init__(self, schema: pa.Schema, sound: frozenset[str]) -> None:
        self._schema = schema
        #: How many user records each schema version has, and the first of them.
        self._counts = Counter[str]()
        self._first: dict[str, pa.RecordBatch] = {}
        self._sound = set(sound)

    def see(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        data = rows["data"]
        # Most data has no frame, as its first byte shows.
        at = pc.indices_nonzero(pc.fill_null(pc.starts_with(data, PLAIN[:1]), False))
        begun = data.take(at)
        begins = (
            pc.is_in(pc.binary_slice(begun, *where), values) for where, values in _frame_signs(data.type)
        )
        framed = reduce(pc.and_, begins, pc.greater_equal(pc.binary_length(begun), HEADER_SIZE))
        at, begun = at.filter(framed), begun.filter(framed)
        if not len(at):
            return
        unframed: list[int] = []
        broken: list[tuple[int, SchemaFrameError]] = []
        for item in pc.indices_nonzero(pc.starts_with(begun, ZLIB)).to_pylist():
            try:
                if unframe(begun[item].as_py()).schema_version_id is None:
                    unframed.append(item)
            except SchemaFrameError as error:
                broken.append((at[item].as_py(), error))
        ids = pc.binary_slice(begun, 2, HEADER_SIZE)
        if unframed:
            is_framed = pa.array(np.delete(np.arange(len(at)), unframed))
            at, ids = at.take(is_framed), ids.take(is_framed)
        damaged = Counter(error.schema_version_id for _, error in broken)
        counted = ids.value_counts().to_pylist()
        for entry in counted:
            version = version_id_text(entry["values"])
            if entry["counts"] > damaged[version] and len(self._sound) < _MAX_VERSIONS:
                self._sound.add(version)
            if version in self._first or len(self._first) < _MAX_VERSIONS:
                self._counts[version] += entry["counts"]
                first = at[pc.index(ids, entry["values"]).as_py()].as_py()
                self._first.setdefault(version, rows.slice(first, 1))
        about = [(row, *self._of_broken(error)) for row, error in broken]
        mixed = _mixed_versions(rows, at, ids) if len(counted) > 1 else ()
        yield from rows_about(rows, chain(mixed, about), self._schema)

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
                text = f"{plural(self._counts[version], 'user record')} of schema version {version}"
                yield from rows_about(first, [(0, "schema-version", text)], self._schema)


@lru_cache(4)
def _frame_signs(kind: pa.DataType) -> list[tuple[tuple[int, int], pa.Array]]:
    """Which bytes of a frame's header have which values: the first two, and those of a UUID of version 4."""
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


def rows_about(batch: pa.RecordBatch, about: Iterable[_About], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows for the findings ``about`` rows of ``batch``."""
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
