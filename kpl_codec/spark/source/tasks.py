"""What a task does: read its run of records, exactly those, and give user records as Arrow batches.

A record of the run that is missing is said so. Everything here is picklable: clients and cursors are
made where they are used.
Specification: spec/07-spark-source.md, SPK-53, SPK-60, SPK-61.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from ...arrow import FIELDS, Deaggregator, coalesce, output_schema
from ...aws.cursor import MOST_RECORDS, At, Pace, ShardCursor
from ...aws.shard_map import fetch_shard_map
from ...shards.live_shard_map import StreamUnavailable
from ...shards.shard_map import Distribution, ShardMap
from .offsets import DataLoss, Piece
from .options import Options
from .plan import GONE

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
    """What one task reads. ``shards``: the shard map, where placement is judged: JSON, deflated."""

    piece: Piece | None
    shards: bytes | None = None
    distribution: Distribution = "USER_PARTITION_KEY"


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
        # A lost start must not bring back what lies before it.
        low = int(piece.start) + (piece.start_kind == "after") if named else 0
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
                must_see = None
            if records and int(records[0]["SequenceNumber"]) < low:
                records = [record for record in records if int(record["SequenceNumber"]) >= low]
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


class TaskReader:
    """What batch and stream readers share: the options, the schema, and how a partition is read."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.schema = schema

    def partitions_of(self, found: list[Piece]) -> list[KinesisPartition]:
        options = self.options
        if not found or not (options.placement or options.policy == "kcl"):
            return [KinesisPartition(piece) for piece in found]
        shard_map = fetch_shard_map(options.client(), options.stream_name, closed=True)
        packed = zlib.compress(shard_map.to_json().encode())  # it goes to every task
        return [KinesisPartition(piece, packed, shard_map.distribution) for piece in found]

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
            shard_map = ShardMap.from_json(zlib.decompress(partition.shards), partition.distribution)
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
