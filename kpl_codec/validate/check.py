"""Checks captured Kinesis records: turns Arrow batches of them into batches of user records with verdicts,
and reports what no column tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
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
from ..findings import Finding
from ..findings.record_findings import (
    USER_RECORD_RULES,
    UserRecordRule,
    hidden_aggregate,
    writer_finding,
)
from ..format.frame import BEGINNINGS, FIRST_TAGS, MAGIC_END
from ..limits import MAGIC
from ..rendering.labels import plural
from ..schema_registry import HEADER_SIZE, PLAIN, ZLIB, SchemaFrameError, unframe, version_id_text
from ..shards.sequence_numbers import sequence_hint
from ..shards.shard_map import ShardMap
from ..shards.stream_name import Stream, StreamMatcher, name_beside
from .report.scan import COLUMNS_READ, AboutRow, findings_about

#: Bytes of a batch of user records. With 4 MiB, a tenth of the time would go into the fixed cost of a batch.
_BATCH_BYTES = 16 * 1024 * 1024
#: Which Kinesis records of a task are examined for their writer: the first 32, then one in 128.
_FIRST_EXAMINED, _ONE_OF = 32, 128
#: The most schema versions that are counted.
_MAX_VERSIONS = 1000
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
    report: Callable[[Iterable[Finding]], None],
    *,
    on_records: Callable[[pa.RecordBatch], None] = lambda batch: None,
    whole: bool = True,
    keys: bool = False,
    versions: frozenset[str] = frozenset(),
) -> Iterator[pa.RecordBatch]:
    """Turn batches of CAPTURE_SCHEMA into batches of `user_record_schema` with dictionaries: every user
    record with its verdict, and a row for each frame that cannot be opened (sub-sequence number -1). What
    else is wrong, such as data that cannot be read, is given to ``report`` on the way. ``on_records`` is
    called with each batch of Kinesis records before it is opened. ``whole``: make all columns, else only
    those that findings and counts need, and with ``keys`` the keys. ``versions``: schema versions that sound
    frames are known to have."""
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
    schemas = _Schemas(versions)

    def rows() -> Iterator[pa.RecordBatch]:
        writers: set[str] = set()
        named: set[tuple[str, str]] = set()
        count = 0
        for batch in captured:
            bad = pc.is_valid(batch["captureError"])
            if pc.any(bad).as_py():
                report(_unread(batch.filter(bad)))
                batch = batch.filter(pc.invert(bad))
            first = range(min(batch.num_rows, _FIRST_EXAMINED - count))
            examined = (*first, *range(-count % _ONE_OF, batch.num_rows, _ONE_OF))
            count += batch.num_rows
            batch = add_shards(batch, shard_map, _IN)
            on_records(batch)
            about = chain(_writers(batch, examined, writers), _contradictory_shards(batch, named))
            report(findings_about(batch, about))
            for users in deaggregator.process(batch):
                report(findings_about(users, chain(_of_user_records(users), schemas.see(users))))
                yield users
        report(schemas.versions())

    return coalesce(rows(), _BATCH_BYTES)


def with_stream_names(batch: pa.RecordBatch, stream: Stream | None) -> pa.RecordBatch:
    """``batch`` with the names of streams where its records name ARNs; but with the ARN of a stream that has
    the name of the map's ``stream`` and is another one."""
    column = batch["streamName"]
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    # CAP-30: "A captured record's stream MUST be a bare name, whether its source gives a name or an ARN; but
    # the ARN of another stream than the map's, if it has the same name."
    names = [text and name_beside(text, stream) for text in texts]
    if names == texts:
        return batch
    new = pa.array(names, pa.string()).take(encoded.indices)
    at = batch.schema.get_field_index("streamName")
    kept = new.dictionary_encode() if pa.types.is_dictionary(column.type) else new
    return batch.set_column(at, batch.schema.field(at), kept.cast(column.type))


def _unread(batch: pa.RecordBatch) -> Iterator[Finding]:
    """A finding for each place of the input that could not be read."""
    about = zip(batch["captureError"].to_pylist(), batch["captureText"].to_pylist(), strict=True)
    kinds = ((row, f"capture-{code}", text) for row, (code, text) in enumerate(about))
    return findings_about(batch, kinds)


def _of_user_records(rows: pa.RecordBatch) -> Iterator[AboutRow]:
    """What the rules about user records find. A row with an error has that as its finding."""
    data, subs, aggregated, errors = (
        rows[name] for name in ("data", "subSequenceNumber", "aggregated", "error")
    )
    for rule in USER_RECORD_RULES:
        candidates = _CANDIDATES.get(rule)
        for row in range(rows.num_rows) if candidates is None else candidates(data, aggregated):
            if errors[row].is_valid:
                continue
            found = rule(data[row].as_py(), subs[row].as_py() if aggregated[row].as_py() else None)
            if found is not None:
                yield row, *found


def _may_hide_aggregate(data: pa.Array, aggregated: pa.Array) -> Iterable[int]:
    chosen: list[int] = may_nest(data).tolist()
    if not aggregated.false_count:
        return chosen
    plain = pc.indices_nonzero(pc.invert(aggregated))
    of_plain = data if len(plain) == len(data) else data.take(plain)
    begins = [pc.starts_with(of_plain, pattern) for pattern in BEGINNINGS]
    foreign = pc.or_(
        pc.equal(pc.binary_slice(of_plain, 1, 4), pa.scalar(MAGIC_END, data.type)),
        pc.is_in(pc.binary_slice(of_plain, 4, 5), value_set=pa.array(FIRST_TAGS, data.type)),
    )
    begins.append(pc.and_not(foreign, pc.starts_with(of_plain, MAGIC)))
    disguised = plain.filter(pc.fill_null(reduce(pc.or_, begins), False))
    return sorted({*chosen, *disguised.to_pylist()})


#: The rows about which a rule may have something to say, by the columns ``data`` and ``aggregated``. A rule
#: that is not here is asked about every row, which takes long.
_CANDIDATES: dict[UserRecordRule, Callable[[pa.Array, pa.Array], Iterable[int]]] = {
    hidden_aggregate: _may_hide_aggregate
}


def _writers(batch: pa.RecordBatch, rows: Iterable[int], reported: set[str]) -> Iterator[AboutRow]:
    """Among ``rows`` the first Kinesis record of each likely writer, without the KPL and the ``reported``
    ones."""
    for row in rows:
        data, outer_key = (batch[name][row].as_py() for name in ("data", "partitionKey"))
        sign = fingerprint(data, outer_key, OTHERS) if data and data.startswith(MAGIC) else None
        if sign is not None and sign.name not in reported:
            reported.add(sign.name)
            yield row, *writer_finding(sign)


def _contradictory_shards(batch: pa.RecordBatch, reported: set[tuple[str, str]]) -> Iterator[AboutRow]:
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

    def __init__(self, sound: frozenset[str]) -> None:
        #: How many user records each schema version has, and the finding about the first of them.
        self._counts = Counter[str]()
        self._first: dict[str, Finding] = {}
        self._sound = set(sound)

    def see(self, rows: pa.RecordBatch) -> Iterator[AboutRow]:
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
                if version not in self._first:
                    first = at[pc.index(ids, entry["values"]).as_py()].as_py()
                    (self._first[version],) = findings_about(rows, [(first, "schema-version", "")])
        if len(counted) > 1:
            yield from _mixed_versions(rows, at, ids)
        yield from ((row, *self._of_broken(error)) for row, error in broken)

    def _of_broken(self, error: SchemaFrameError) -> tuple[str, str]:
        # GSR-11: "A check MUST leave frames as they are, and report each broken one, each aggregate with
        # several schema versions, and each schema version; a damaged one whose schema version stands in no
        # sound frame of the run may be no frame, and MUST be reported as that."
        is_sound = error.schema_version_id in self._sound
        if is_sound or error.code != "schema-frame-damaged":
            return error.code, error.describe()
        return "schema-frame-doubtful", error.describe()

    def versions(self) -> Iterator[Finding]:
        for version, finding in self._first.items():
            if version in self._sound:
                detail = f"{plural(self._counts[version], 'user record')} of schema version {version}"
                yield replace(finding, detail=detail)


@lru_cache(4)
def _frame_signs(kind: pa.DataType) -> list[tuple[tuple[int, int], pa.Array]]:
    """Which bytes of a frame's header have which values: the first two, and those of a UUID of version 4."""
    version, variant = (
        [bytes([high | low]) for high in highs for low in range(16)]
        for highs in ((0x40,), (0x80, 0x90, 0xA0, 0xB0))
    )
    signs = (((0, 2), (PLAIN, ZLIB)), ((8, 9), version), ((10, 11), variant))
    return [(where, pa.array(values, kind)) for where, values in signs]


def _mixed_versions(rows: pa.RecordBatch, at: pa.Array, ids: pa.Array) -> Iterator[AboutRow]:
    """The Kinesis records with frames of several schema versions: the rows ``at`` have those ``ids``."""
    records = pc.cumulative_sum(rows["firstOfRecord"].cast(pa.int64())).take(at)
    by_record = pa.table({"record": records, "id": ids, "row": at}).group_by("record", use_threads=False)
    counted = by_record.aggregate([("id", "count_distinct"), ("row", "min")])
    for record in counted.filter(pc.field("id_count_distinct") > 1).to_pylist():
        text = f"user records of {record['id_count_distinct']} schema versions in one aggregate"
        yield record["row_min"], "mixed-schema-versions", text
