"""Checks captured Kinesis records: turns Arrow batches of them into batches of user records with verdicts,
and reports what no column tells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial, reduce
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from ..arrow import coalesce, new_deaggregator, with_siblings_together
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
from ..format.frame import DISGUISE_STARTS, FIRST_TAGS, MAGIC_END
from ..format.limits import MAGIC
from ..shards.sequence_numbers import sequence_hint
from ..shards.shard_map import ShardMap
from ..shards.stream_name import Stream, StreamMatcher, name_beside
from .scan import COLUMNS_READ, AboutRow, findings_about

#: Bytes of a batch of user records. With 4 MiB, a tenth of the time would go into the fixed cost of a batch.
_BATCH_BYTES = 16 * 1024 * 1024
#: Which Kinesis records of a task are examined for their writer: the first 32, then one in 128.
_FIRST_EXAMINED, _ONE_OF = 32, 128
_IN = pa.schema(
    [
        *(field for field in CAPTURE_SCHEMA if not field.name.startswith("capture")),
        # given, path, sequence-number, map, contradictory; null if not known
        pa.field("shardIdFrom", pa.string()),
    ]
)
_deaggregator = partial(new_deaggregator, _IN, "report", tags=True, max_batch_bytes=_BATCH_BYTES)


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
) -> Iterator[pa.RecordBatch]:
    """Turn batches of CAPTURE_SCHEMA into batches of `user_record_schema` with dictionaries: every user
    record with its verdict, and a row for each frame that cannot be opened (sub-sequence number -1). What
    else is wrong, such as data that cannot be read, is given to ``report`` on the way. ``on_records`` is
    called with each batch of Kinesis records before it is opened. ``whole``: make all columns, else only
    those that findings and counts need."""
    new = partial(
        _deaggregator,
        shard_map=shard_map,
        dictionaries=True,
        streams=StreamMatcher(shard_map.stream, refuse=False),
    )
    deaggregator = new()
    if not whole:
        read = {*COLUMNS_READ, "openedBy"}
        deaggregator = new(columns=filter(read.__contains__, deaggregator.schema.names))

    def rows() -> Iterator[pa.RecordBatch]:
        writers: set[str] = set()
        named: set[tuple[str, str]] = set()
        count = 0
        for batch in with_siblings_together(captured):
            bad = pc.is_valid(batch["captureError"])
            if pc.any(bad).as_py():
                report(_unread(batch.filter(bad)))
                batch = batch.filter(pc.invert(bad))
            first = range(min(batch.num_rows, _FIRST_EXAMINED - count))
            examined = (*first, *range(-count % _ONE_OF, batch.num_rows, _ONE_OF))
            count += batch.num_rows
            batch = add_shards(_with_opener(batch), shard_map, _IN)
            on_records(batch)
            about = chain(_writers(batch, examined, writers), _contradictory_shards(batch, named))
            report(findings_about(batch, about))
            for users in deaggregator.process(batch):
                report(findings_about(users, chain(_of_user_records(users), _without_data(users))))
                yield users

    return coalesce(rows(), _BATCH_BYTES)


def _with_opener(batch: pa.RecordBatch) -> pa.RecordBatch:
    """``batch`` with ``openedBy`` in each row that was opened before: those of Parquet do not say by whom."""
    opened = pc.or_(pc.is_valid(batch["subSequenceNumber"]), pc.fill_null(batch["aggregated"], False))
    at = batch.schema.get_field_index("openedBy")
    by = pc.if_else(opened, pc.fill_null(batch["openedBy"], "other"), None)
    return batch.set_column(at, batch.schema.field(at), by)


def captured_by_itself(users: pa.RecordBatch) -> pa.Array:
    """Which rows of `check` are of what was captured by itself: the first one of each Kinesis record, and
    each user record that was opened before."""
    return pc.or_(pc.fill_null(users["firstOfRecord"], False), pc.is_valid(users["openedBy"]))


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


def _without_data(rows: pa.RecordBatch) -> Iterator[AboutRow]:
    """The rows that somebody opened before and that lost their data since. (SPK-1: of all others the column
    error says it.)"""
    if rows["data"].null_count:
        lost = pc.and_(pc.is_null(rows["data"]), pc.is_null(rows["error"]))
        for row in pc.indices_nonzero(lost).to_pylist():
            yield row, "no-data", "the row has no data"


#: How many of the first bytes of plain data are looked at, and those with which data may be a disguise.
_FIRST = 3
_STARTS = sorted({start[:_FIRST] for start in DISGUISE_STARTS if len(start) >= _FIRST})


def _may_hide_aggregate(data: pa.Array, aggregated: pa.Array) -> Iterable[int]:
    chosen: list[int] = may_nest(data).tolist()
    if not aggregated.false_count:
        return chosen
    plain = pc.indices_nonzero(pc.invert(aggregated))
    of_plain = data if len(plain) == len(data) else data.take(plain)
    begins = [pc.starts_with(of_plain, start) for start in DISGUISE_STARTS if len(start) < _FIRST]
    begins.append(pc.is_in(pc.binary_slice(of_plain, 0, _FIRST), value_set=pa.array(_STARTS, data.type)))
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
