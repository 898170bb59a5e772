"""Reading a stream into Spark: one shard's run of records per task, as Arrow batches of user records.

The driver says which records (`kinesis_plan`), a task reads exactly those and says so if one is missing.
Everything here is picklable: clients and cursors are made where they are used.
Specification: spec/07-spark-source.md, SPK-50 to SPK-63.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ..arrow import FIELDS, Deaggregator, coalesce
from ..aws.cursor import MOST_RECORDS, At, Pace, ShardCursor
from ..aws.shard_map import fetch_lineage, fetch_shard_map
from ..live_shard_map import StreamUnavailable
from ..shards import ShardMap
from .kinesis_options import Options, Position
from .kinesis_plan import GONE, Caps, Planner, Tip
from .offsets import (
    DataLoss,
    Piece,
    ShardOffset,
    StreamOffset,
    batch_pieces,
    pieces,
)

try:  # PySpark 4.2 and newer
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # 4.0 and 4.1 know neither limits nor a source's own end
    ReadAllAvailable = ReadLimit = ReadMaxRows = None  # type: ignore[assignment,misc]

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in where Spark has none."""


_log = logging.getLogger("kpl_codec.spark")

#: A record that the driver has seen and a task does not see yet is waited for so long, in seconds.
_CATCH_UP: Final = 30.0
#: The columns of a Kinesis record, as a task builds them.
KINESIS_FIELDS = tuple(
    field for field in FIELDS if field.name not in ("subSequenceNumber", "aggregated", "explicitHashKey")
)


def arrow_schema(options: Options) -> pa.Schema:
    """The columns of a read, in order."""
    kinesis = pa.schema(KINESIS_FIELDS)
    if options.policy == "none":
        return kinesis
    from ..arrow import output_schema

    return output_schema(kinesis, options.policy, placement=options.placement, tags=options.tags)


def spark_arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects of a data source: the names of its arguments have changed."""
    from inspect import signature

    from pyspark.sql.pandas.types import to_arrow_schema

    named: Any = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    found: pa.Schema = to_arrow_schema(schema, **named)
    return found


@dataclass
class KinesisPartition(InputPartition):
    """What one task reads. ``shards``: the shard map as JSON, where placement is judged."""

    piece: Piece | None
    shards: str | None = None
    distribution: str = "USER_PARTITION_KEY"


class PieceReader:
    """Reads pieces: in a task, with a client of its own."""

    def __init__(self, client: Any, options: Options) -> None:
        self._client, self._options = client, options

    def records(self, piece: Piece) -> Iterator[list[dict[str, Any]]]:
        """The Kinesis records of a piece, answer by answer. Raises DataLoss, StreamUnavailable."""
        options = self._options
        # SPK-61: "The readers of a shard together MUST keep to 5 GetRecords calls and 2 MiB a second,
        # and leave one call for planning."
        share = 1 / piece.siblings
        pace = Pace(options.calls_per_second * share, options.bytes_per_second * share)
        named = piece.start_kind in ("after", "before")
        at = At("AT_SEQUENCE_NUMBER", piece.start) if named else _symbolic(piece)
        cursor = ShardCursor(
            self._client, options.stream_name, piece.shard_id, at, pace=pace, patience=options.retry_timeout
        )
        must_see = str(piece.start) if named else None
        end, waited_since = int(piece.end), None
        while True:
            try:
                answer = cursor.fetch(MOST_RECORDS)
            except StreamUnavailable as error:
                if error.code not in GONE:
                    raise
                self._lost(piece, str(piece.start), GONE[error.code], error.fields["reason"])
                if must_see is None or error.code == "ResourceNotFoundException":
                    return
                must_see, at = None, At("TRIM_HORIZON")
                cursor = ShardCursor(self._client, options.stream_name, piece.shard_id, at, pace=pace)
                continue
            records = answer.records
            if records and must_see is not None:
                if records[0]["SequenceNumber"] != must_see:
                    self._lost(piece, must_see, "trimmed", "the record is past retention")
                elif piece.start_kind == "after":
                    records = records[1:]
                must_see = None
            reached = bool(answer.records) and int(answer.records[-1]["SequenceNumber"]) >= end
            if reached:
                kept = [r for r in records if int(r["SequenceNumber"]) < end + (piece.end_kind == "after")]
                if kept:
                    yield kept
                if not any(r["SequenceNumber"] == piece.end for r in answer.records):
                    self._lost(piece, piece.end, "record-missing", "the batch should end there")
                return
            if records:
                yield records
                waited_since = None
            if answer.at_tip(MOST_RECORDS):
                # The driver has seen the end of this piece: a reader may be behind it for a moment.
                waited_since = waited_since or time.monotonic()
                if answer.ended or time.monotonic() - waited_since > _CATCH_UP:
                    self._lost(piece, piece.end, "record-missing", "the shard has ended before it")
                    return
                time.sleep(0.2)

    def _lost(self, piece: Piece, sequence_number: str, code: str, reason: str) -> None:
        loss = DataLoss(shard_id=piece.shard_id, sequence_number=sequence_number, code=code, reason=reason)
        if self._options.fail_on_data_loss:
            raise loss
        _log.warning("%s", loss)

    def batches(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """The Kinesis records of a piece as Arrow batches of `KINESIS_FIELDS`."""
        for records in self.records(piece):
            yield kinesis_batch(self._options.stream_name, piece.shard_id, records)


def _symbolic(piece: Piece) -> At:
    return At("TRIM_HORIZON") if piece.start_kind == "at" else At("AT_TIMESTAMP", int(piece.start))


def kinesis_batch(stream: str, shard_id: str, records: list[dict[str, Any]]) -> pa.RecordBatch:
    """Records as GetRecords gives them -> columns."""
    count = len(records)
    columns: Mapping[str, list[Any]] = {
        "streamName": [stream] * count,
        "shardId": [shard_id] * count,
        "sequenceNumber": [record["SequenceNumber"] for record in records],
        "partitionKey": [record.get("PartitionKey") for record in records],
        "data": [record["Data"] for record in records],
        "approximateArrivalTimestamp": [record.get("ApproximateArrivalTimestamp") for record in records],
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], field.type) for field in KINESIS_FIELDS],
        schema=pa.schema(KINESIS_FIELDS),
    )


class _Reader:
    """What batch and stream readers share: the options, the schema, and how a partition is read."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self._planner: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    @property
    def planner(self) -> Planner:
        if self._planner is None:
            self._planner = make_planner(self.options, self.options.client())
        return self._planner

    def partitions_of(self, found: list[Piece]) -> list[KinesisPartition]:
        options = self.options
        if not found or not (options.placement or options.policy == "kcl"):
            return [KinesisPartition(piece) for piece in found]
        shard_map = fetch_shard_map(options.client(), options.stream_name, closed=True)
        text = shard_map.to_json()
        return [KinesisPartition(piece, text, shard_map.distribution) for piece in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition. Raises DecodeError (policy strict), DataLoss, StreamUnavailable."""
        if not isinstance(partition, KinesisPartition) or partition.piece is None:
            return  # Spark makes one of its own where there are none
        options = self.options
        out = spark_arrow_schema(self.schema)
        source = PieceReader(options.client(), options).batches(partition.piece)
        if options.policy != "none":
            source = self._deaggregated(source, partition)
        for batch in coalesce(source, options.max_batch_bytes):
            columns = [batch.column(field.name).cast(field.type) for field in out]
            yield pa.RecordBatch.from_arrays(columns, schema=out)

    def _deaggregated(
        self, source: Iterator[pa.RecordBatch], partition: KinesisPartition
    ) -> Iterator[pa.RecordBatch]:
        options = self.options
        assert options.policy != "none"
        shard_map = None
        if partition.shards is not None:
            shard_map = ShardMap.from_json(partition.shards, partition.distribution)  # type: ignore[arg-type]
        deaggregator = Deaggregator(
            pa.schema(KINESIS_FIELDS),
            options.policy,
            shard_map,
            tags=options.tags,
            max_batch_bytes=options.max_batch_bytes,
        )
        for batch in source:
            yield from deaggregator.process(batch)
        if deaggregator.counts.dropped:
            assert partition.piece is not None
            _log.warning(
                "%s: as the KCL does, %s user records were dropped: %s",
                partition.piece.shard_id,
                deaggregator.counts.dropped.total(),
                dict(deaggregator.counts.dropped),
            )


def make_planner(options: Options, client: Any) -> Planner:
    """A planner that calls Kinesis."""
    stream, patience = options.stream_name, options.retry_timeout

    def cursor(shard_id: str, at: At) -> ShardCursor:
        return ShardCursor(client, stream, shard_id, at, patience=patience)

    return Planner(
        cursor,
        lambda: fetch_lineage(client, stream, timeout=patience),
        stream,
        fail_on_data_loss=options.fail_on_data_loss,
        describe_interval=options.describe_interval,
    )


class KinesisBatchReader(_Reader, DataSourceReader):
    """A read between two positions, planned when the query runs: LATEST is where the stream ends then."""

    def partitions(self) -> list[KinesisPartition]:
        # SPK-62: "A batch read MUST give every record from its starting position to its ending position,
        # whatever splits and merges lie between, and none that arrived after it was planned."
        planner, options = self.planner, self.options
        starts = positions(options.starting_position, planner)
        ends = options.ending_position
        found: list[Piece] = []
        for shard in planner.lineage():
            start = starts.get(shard.shard_id)
            if start is None or start == "LATEST":
                continue
            end = ends.get(shard.shard_id, "LATEST") if isinstance(ends, Mapping) else ends
            found += self._pieces(shard.shard_id, start, end)
        return self.partitions_of(found)

    def _pieces(self, shard_id: str, start: ShardOffset, end: Any) -> list[Piece]:
        planner = self.planner
        caps = Caps(piece=self.options.max_piece)
        if isinstance(end, ShardOffset) and not end.symbolic:
            peek = planner.first(shard_id, start) if start.symbolic else None
            if start.symbolic and peek is None:
                return []
            return pieces(shard_id, start, ShardOffset(end.kind, end.value, first=peek))
        if isinstance(end, ShardOffset) and end.kind == "at":
            return []
        tip: Tip = planner.before(shard_id, int(end.value)) if end != "LATEST" else planner.tip(shard_id)
        found: list[Piece] = []
        while True:
            reached = planner.advance_shard(shard_id, start, caps, tip)
            found += pieces(shard_id, start, reached)
            if reached.ended or reached.same_place(start):
                siblings = len(found)
                return [piece._replace(siblings=siblings) for piece in found]
            start = reached.settled()


def positions(position: Position, planner: Planner) -> dict[str, Any]:
    """The position of every listed shard; of those named, where shards are named."""
    if isinstance(position, Mapping):
        return dict(position)
    return {shard.shard_id: position for shard in planner.lineage(fresh=True)}


class KinesisStreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read. Lives in one Python process per query; copies of it read in the tasks."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._known: dict[str, Any] | None = None  # Spark before 4.2 does not say where it stands
        self._looked_at: float | None = None
        self._behind: dict[str, int] = {}

    # -- offsets ------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Nothing yet: the start is decided with the first batch and written down with it."""
        # SPK-56: "The starting position MUST be settled in the first offset that is written down, so
        # that no restart begins elsewhere."
        self._known = {}
        return {}

    def getDefaultReadLimit(self) -> Any:
        """The limit that stands for our options; Spark hands it back to `latestOffset`."""
        options = self.options
        if options.max_records is None and options.max_span is None:
            return ReadAllAvailable()
        return ReadMaxRows(options.max_records or 2**31 - 1)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """Where the next batch ends: ``start`` itself if there is nothing to read."""
        if start is None:
            if self._known is None:
                raise RuntimeError("Spark asked for the latest offset before it said where the query stands")
            start = self._known
        self._idle()
        options, planner = self.options, self.planner
        before = StreamOffset.from_json(start, options.stream_name)
        if not before.shards:
            first = planner.begin_at(options.starting_position)
            after = planner.advance(first, self._caps(limit))
        else:
            after = planner.advance(before, self._caps(limit))
        self._looked_at = time.monotonic()
        self._behind = {key: offset.behind for key, offset in after.shards.items() if offset.behind}
        if _same(before, after):
            return start
        self._looked_at = None  # there is more to do than to wait
        self._known = after.to_json()
        return self._known

    def _caps(self, limit: Any) -> Caps:
        options = self.options
        if ReadAllAvailable is not None and isinstance(limit, ReadAllAvailable):
            return Caps(piece=options.max_piece)
        return Caps(options.max_records, options.max_span, options.max_piece)

    def _idle(self) -> None:
        """Spark asks again at once where there was nothing: the shards are asked less often."""
        # SPK-63: "A query that finds nothing to read MUST wait between two looks."
        if self._looked_at is not None:
            time.sleep(max(0.0, self._looked_at + self.options.idle_time - time.monotonic()))

    def reportLatestOffset(self) -> dict[str, Any]:
        """Shown with the progress of the query as the source's latest offset: how far behind it is."""
        return {
            "behind": dict(sorted(self._behind.items())),
            "millisBehindLatest": max(self._behind.values(), default=0),
        }

    def prepareForTriggerAvailableNow(self) -> None:
        self.planner.stop_at_tip()

    # -- batches ------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[KinesisPartition]:
        self._known = end
        stream = self.options.stream_name
        return self.partitions_of(
            batch_pieces(StreamOffset.from_json(start, stream), StreamOffset.from_json(end, stream))
        )

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the checkpoint is Spark's."""

    def stop(self) -> None:
        """Nothing is held that outlives the process."""


def _same(before: StreamOffset, after: StreamOffset) -> bool:
    return before.shards.keys() == after.shards.keys() and all(
        before.shards[key].same_place(offset) and before.shards[key].ended == offset.ended
        for key, offset in after.shards.items()
    )
