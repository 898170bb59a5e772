"""The data source `kpl-kinesis`: a stream's user records as a DataFrame, batch or streaming, and back.

    spark.dataSource.register(KinesisDataSource)
    df = spark.readStream.format("kpl-kinesis").options(stream="orders", region="eu-west-1").load()

It needs PySpark 4.0 or newer; limits per batch and Trigger.AvailableNow need 4.2. The workers need kpl_codec,
pyarrow and boto3. Specification: spec/07-spark-source.md.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from . import NoDataSource

try:
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
except ImportError as error:  # pragma: no cover - PySpark 3.5 and older
    raise NoDataSource from error

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ...arrow import FIELDS, coalesce, schema_of
from ...aws.stream_reading import fetch_lineage, fetch_shard_map
from ...aws.subscription import REFUSED_FOR, StreamConsumers
from ...deaggregation.policy_rules import rules_of
from ...shards.lineage import Lineage
from ...shards.shard_map import ShardMap
from ...shards.starting_position import LATEST, TRIM_HORIZON, StartingPosition
from ..functions import arrow_schema_of, deaggregate_in_task, plain_errors
from .kinesis_reader import KinesisReader, read_in_parallel, read_piece
from .offsets import BatchEnd, ShardRange, StreamOffset, batch_pieces, piece_of
from .planner import Planner, must_be_written
from .positions import OptionError, Position, check_order
from .shard_planner import MOST_ATTACHED, ReadLimits, ShardPlanner
from .source_options import SourceOptions, parse_options

if TYPE_CHECKING:  # imported late, because tasks that read need no producer
    from .write import KinesisStreamWriter, KinesisWriter

try:  # PySpark 4.2 and newer
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # PySpark 4.0 and 4.1: no limits, no Trigger.AvailableNow
    ReadAllAvailable = ReadMaxRows = None  # type: ignore[assignment,misc]
    SupportsTriggerAvailableNow = object  # type: ignore[assignment,misc]

_FEW_RECORDS: Final = 1000
_SHARED_TASKS: Final = 16
_SHARDS_PER_TASK: Final = 5
_KINESIS_SCHEMA: Final = pa.schema(
    field for field in FIELDS if field.name not in ("subSequenceNumber", "aggregated", "explicitHashKey")
)


def arrow_schema(options: SourceOptions) -> pa.Schema:
    if options.policy == "none":
        return _KINESIS_SCHEMA
    kinds: Any = {"placement": options.placement, "tags": options.tags}
    return schema_of(_KINESIS_SCHEMA, options.policy, **kinds)


@dataclass
class KinesisPartition(InputPartition):
    """What one task returns: the records of ``pieces``, or ``records`` that the planner has read.
    ``listing``: names the listing of shards by which placement is judged; ``consumer``: as for
    `KinesisReader.cursor`."""

    pieces: tuple[ShardRange, ...]
    listing: str | None = None
    records: pa.RecordBatch | None = None
    consumer: str | None = None


def assign_pieces(pieces: list[ShardRange], most: int = 0) -> list[tuple[ShardRange, ...]]:
    """The pieces of each task. ``most``: the most tasks; 0: pieces of few records share 16 tasks, because the
    start of a task takes longer than reading them, and at most five larger pieces share a task."""
    if most:
        count = min(most, len(pieces))
        return [tuple(pieces[number::count]) for number in range(count)]
    few = [piece for piece in pieces if piece.records is not None and piece.records <= _FEW_RECORDS]
    many = [piece for piece in pieces if piece.records is None or piece.records > _FEW_RECORDS]
    runs: list[tuple[ShardRange, ...]] = []
    for shared, together in ((few, len(few)), (many, _SHARDS_PER_TASK)):
        size = max(1, min(together, -(-len(shared) // _SHARED_TASKS)))
        runs += [tuple(shared[at : at + size]) for at in range(0, len(shared), size)]
    return runs


def name_of(lineage: Lineage) -> str:
    """A name for a listing, equal for equal listings alone: another life of the stream may have shards of the
    same ids, with other ranges."""
    text = repr((lineage.distribution, *lineage.values()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(maxsize=2)
def _shard_map(client: Any, stream: str, _listing: str) -> ShardMap:
    # SPK-74: "A shard map MUST NOT be part of a partition: each worker process asks for it once per
    # listing."
    return fetch_shard_map(client, stream)


def _kinesis_batch(stream: str, shard_id: str, records: list[dict[str, Any]]) -> pa.RecordBatch:
    count = len(records)
    columns: Mapping[str, list[Any]] = {
        "streamName": [stream] * count,
        "shardId": [shard_id] * count,
        "sequenceNumber": [record["SequenceNumber"] for record in records],
        "partitionKey": [record.get("PartitionKey") for record in records],
        "data": [record["Data"] for record in records],
        "approximateArrivalTimestamp": [record.get("ApproximateArrivalTimestamp") for record in records],
    }
    return pa.RecordBatch.from_pydict(columns, schema=_KINESIS_SCHEMA)


class _Reader:
    """Plans batches on the driver. Spark sends copies of the object to the tasks, which read."""

    _planner: Planner | None = None
    _consumer: str | None = None

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options, self.schema = options, schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition. Raises DecodeError (policy strict), DataLoss, StreamUnavailable."""
        with plain_errors():
            yield from self._batches(partition)

    def _batches(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, KinesisPartition):
            return  # Spark gives one of its own where a batch has none
        options = self.options
        out = arrow_schema_of(self.schema)
        source: Iterator[pa.RecordBatch] = iter(())
        if partition.records is not None:
            source = iter((partition.records,))
        elif partition.pieces:
            read = partial(read_piece, KinesisReader(options.client(), options), partition.consumer)
            source = (
                _kinesis_batch(options.stream.name, piece.shard_id, records)
                for piece, records in read_in_parallel(read, partition.pieces)
            )
        if options.policy != "none":
            listing, shard_map = partition.listing, None
            if listing is not None:
                shard_map = _shard_map(options.client(), options.name_or_arn, listing)
            source = deaggregate_in_task(
                source,
                options.policy,
                shard_map=shard_map,
                tags=options.tags,
                max_decompressed_size=options.max_decompressed_size,
                max_batch_bytes=options.max_batch_bytes,
            )
        for batch in coalesce(source, options.max_batch_bytes):
            by_name = {name.lower(): batch.column(name) for name in batch.schema.names}
            columns = [by_name[field.name.lower()].cast(field.type) for field in out]
            yield pa.RecordBatch.from_arrays(columns, schema=out)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    def consumer(self) -> str | None:
        """The ARN of the enhanced fan-out consumer, registered if need be; None for GetRecords."""
        options = self.options
        if self._consumer is None and options.consumer is not None:
            consumers = StreamConsumers(options.client(), patience=options.retry_timeout)
            self._consumer = consumers.require_active(options.name_or_arn, options.consumer)
        return self._consumer

    @property
    def planner(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(KinesisReader(self.options.client(), self.options))
        return self._planner

    def partitions_of(self, pieces: list[ShardRange]) -> list[KinesisPartition]:
        """The partitions of a batch. A shard map and a consumer are only asked for if they are needed."""
        options = self.options
        as_kcl = options.policy != "none" and rules_of(options.policy).as_kcl
        judged = bool(pieces) and (options.placement or as_kcl)
        listing = name_of(self.planner.lineage()) if judged else None
        records_of, unread = self.planner.take_records(pieces)
        name = options.stream.name
        batches = [_kinesis_batch(name, piece.shard_id, records_of[piece]) for piece in records_of]
        arn = self.consumer() if pieces else None
        partitions = [KinesisPartition((), listing, batch) for batch in coalesce(batches, MOST_ATTACHED)]
        # EFO-10: "Offsets MUST NOT depend on the consumer type: a query may go on with another one."
        for task_pieces in assign_pieces(unread, options.max_partitions):
            partitions.append(KinesisPartition(task_pieces, listing, consumer=arn))
        return partitions


class KinesisBatchReader(_Reader, DataSourceReader):
    """Reads the records between two positions. Reading is planned when the first query of a DataFrame or its
    view runs: LATEST is the stream's end at that time. Spark keeps the plan, so later queries read the same
    records; a new ``load()`` is planned anew. Raises OptionError for a start that is an offset."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        if isinstance(start := options.starting_position, StreamOffset):
            expected = (
                "no offset, which is for readStream: a batch read begins at a place, or at JSON by shard"
            )
            raise OptionError(option="startingPosition", value=start.arn, expected=expected)
        self._start: Position = start

    @plain_errors()
    def partitions(self) -> list[KinesisPartition]:
        # SPK-62: "A batch read MUST give every record from its starting position to its ending position,
        # whatever splits and merges lie between, and none that arrived after it was planned."
        planner, options = self.planner, self.options
        shard_ids = [*planner.lineage(fresh=True)]
        planner.check("startingPosition", self._start)
        planner.check("endingPosition", options.ending_position)
        starts = _by_shard(self._start, shard_ids)
        ends = {**dict.fromkeys(starts, LATEST), **_by_shard(options.ending_position, starts)}
        check_order(starts, ends)

        def piece(shard_id: str) -> ShardRange | None:
            return _between(planner.shard(shard_id), starts[shard_id], ends[shard_id])

        batch = planner.each(piece, starts).values()
        return self.partitions_of([piece for piece in batch if piece is not None])


def _between(shard: ShardPlanner, start: StartingPosition, end: StartingPosition) -> ShardRange | None:
    """The piece between two places of a shard; None if there is nothing between them."""
    if start == LATEST or end == TRIM_HORIZON:
        return None
    if end.names_record:
        first = None if start.names_record else shard.first(start)
        if not start.names_record and (first is None or int(first) >= end.lowest):
            return None
        return piece_of(shard.shard_id, start, BatchEnd(end, first=first))
    begin, *rest = shard.ends(start, ReadLimits(), shard.tip(end))
    last = rest[-1].place if rest else begin.place
    records = begin.records if last == begin.place else None
    return piece_of(shard.shard_id, start, replace(begin, place=last, records=records))


def _by_shard(position: Position, shard_ids: Iterable[str]) -> Mapping[str, StartingPosition]:
    """The place of each shard, or of the shards that ``position`` names."""
    return dict.fromkeys(shard_ids, position) if isinstance(position, StartingPosition) else position


class KinesisStreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads the batches of a streaming query. Each query has a Python process with one such
    object."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        # Spark before 4.2 does not give `latestOffset` the query's offset: the end of the last
        # batch stands for it, and the first batch of a process is planned without it.
        self._last_end: dict[str, Any] | None = None
        self._first_end: dict[str, Any] | None = None
        self._next_poll = float("-inf")
        self._behind: dict[str, int] = {}

    def initialOffset(self) -> dict[str, Any]:
        """Empty: the start is decided and written with the first batch."""
        # SPK-56: "The starting position MUST be settled in the first offset that is written down, so
        # that no restart begins elsewhere."
        return {}

    def getDefaultReadLimit(self) -> Any:
        """The options' limit, which Spark passes to `latestOffset`."""
        options = self.options
        if not options.max_records and not options.max_span:
            return ReadAllAvailable()
        return ReadMaxRows(options.max_records or 2**31 - 1)

    @plain_errors()
    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        # SPK-63: "A query that finds nothing to read MUST wait between two looks."
        time.sleep(max(0.0, self._next_poll - time.monotonic()))
        options, planner = self.options, self.planner
        if start is None:
            start = self._last_end
        if start is None:
            # Before 4.2 Spark asks this first: of a new query, or of one with Trigger.AvailableNow.
            after = planner.at_tips(options.starting_position)
            self._first_end = after.to_json()
        elif not start:
            after = planner.begin_at(options.starting_position)  # an empty batch, to write the start
        else:
            before = StreamOffset.from_json(start, options.stream.name)
            whole = ReadAllAvailable is not None and isinstance(limit, ReadAllAvailable)
            span = ceil(options.max_span * 1000)
            after = planner.advance(before, ReadLimits() if whole else ReadLimits(options.max_records, span))
            if not must_be_written(before, after):
                self._wait(options.idle_time)
                self._behind = {}
                return start
        self._behind = {key: ends.behind for key, ends in after.shards.items() if ends.behind}
        self._last_end = after.to_json()
        return self._last_end

    def _wait(self, seconds: float) -> None:
        self._next_poll = max(self._next_poll, time.monotonic() + seconds)

    def reportLatestOffset(self) -> dict[str, Any]:
        """How far the query is behind, which Spark shows as ``latestOffset`` in the query's progress."""
        return {
            "behind": dict(sorted(self._behind.items())),
            "millisBehindLatest": max(self._behind.values(), default=0),
        }

    @plain_errors()
    def prepareForTriggerAvailableNow(self) -> None:
        self.planner.stop_at_tip()

    @plain_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[KinesisPartition]:
        stream = self.options.stream.name
        before = StreamOffset.from_json(start, stream)
        if self._last_end is None:  # an earlier process has planned this batch
            self.planner.lineage_of(before)
        if end == self._first_end:
            self.planner.refuse_unread(before)
        self._last_end = end
        after = StreamOffset.from_json(end, stream)
        partitions = self.partitions_of(batch_pieces(before, after))
        if any(partition.consumer for partition in partitions):
            self._wait(REFUSED_FOR)  # AWS refuses a second subscription for so long
        return partitions


class KinesisDataSource(DataSource):
    """The data source `kpl-kinesis`, to be registered with a session. Spark makes one for each ``load()`` and
    ``save()``, which raise OptionError for a wrong option."""

    @plain_errors()
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._checked = parse_options(dict(options.items()))

    @classmethod
    def name(cls) -> str:
        return "kpl-kinesis"

    @classmethod
    def check(cls, options: Mapping[str, str]) -> None:
        """Check the options of a read or write, and that the stream is there, before Spark starts anything.
        Raises OptionError, StreamUnavailable, and botocore's error without a region."""
        checked = parse_options(options)
        fetch_lineage(checked.client(), checked.name_or_arn)

    def schema(self) -> StructType:
        """The nine columns of a user record, and those that the options add."""
        return from_arrow_schema(arrow_schema(self._checked))

    def _check_schema(self, schema: StructType) -> StructType:
        """A user's schema has some of our columns, each once in any case; none is NOT NULL, as a null would
        end in an error of Java that names no column. Raises OptionError."""
        columns = self.schema().fields
        types = {field.name.lower(): field.dataType for field in columns}
        for field in schema.fields:
            if types.pop(field.name.lower(), None) != field.dataType or not field.nullable:
                ours = ", ".join(f"{column.name} {column.dataType.simpleString()}" for column in columns)
                kind = field.dataType.simpleString() + ("" if field.nullable else " NOT NULL")
                raise OptionError(
                    option="schema",
                    value=f"{field.name} {kind}",
                    expected=f"columns of {ours}, each once in any case, none NOT NULL",
                )
        return schema

    @plain_errors()
    def reader(self, schema: StructType) -> KinesisBatchReader:
        return KinesisBatchReader(self._checked, self._check_schema(schema))

    @plain_errors()
    def streamReader(self, schema: StructType) -> KinesisStreamReader:
        if (end := self._checked.ending_position) != LATEST:
            expected = "no end, as it is for batch reads; a query ends by its trigger (availableNow)"
            raise OptionError(option="endingPosition", value=end, expected=expected)
        return KinesisStreamReader(self._checked, self._check_schema(schema))

    @plain_errors()
    def writer(self, schema: StructType, overwrite: bool) -> KinesisWriter:
        from .write import KinesisWriter, check_write

        check_write(schema, overwrite)
        return KinesisWriter(self._checked)

    @plain_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> KinesisStreamWriter:
        from .write import KinesisStreamWriter, check_write

        check_write(schema, overwrite)
        return KinesisStreamWriter(self._checked)
