"""Readers of a stream, batch and streaming: the driver's side. What tasks do is in `tasks`.

The driver decides which records to read (`plan`), as offsets that Spark stores (`offsets`).
Specification: spec/07-spark-source.md, SPK-50 to SPK-63.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from ...aws.calls import CALL_ERRORS, failure_of, stream_argument
from ...aws.cursor import Pace, ShardCursor
from ...aws.shard_map import fetch_lineage
from ...aws.subscription import REFUSED_FOR
from ...aws_errors import is_permanent
from ...backoff import Backoff
from ...shards.place import LATEST, TRIM_HORIZON, Place
from .ends import Caps, ShardPlanner
from .handover import Handover
from .looks import SHORTEST_RETENTION, Access
from .offsets import BatchEnd, Piece, StreamOffset, batch_pieces, pieces
from .options import Options
from .plan import Planner, moves
from .positions import Position, check_order
from .tasks import KinesisPartition, TaskReader

try:  # PySpark 4.2 and newer
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # 4.0 and 4.1 have neither limits nor Trigger.AvailableNow for it
    ReadAllAvailable = ReadMaxRows = None  # type: ignore[assignment,misc]

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A substitute where Spark has none."""


_BACKOFF: Final = Backoff(0.2, 2.0)


class _Reader(TaskReader):
    """On the driver it plans, too."""

    _planner: Planner | None = None
    _consumer: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    def consumer(self) -> str | None:
        """The ARN of the consumer that reads, registered if need be; None to poll."""
        options = self.options
        if self._consumer is None and options.consumer is not None:
            self._consumer = options.consumer.find(options.client(), options.called, options.retry_timeout)
        return self._consumer

    @property
    def planner(self) -> Planner:
        if self._planner is None:
            self._planner = make_planner(self.options, self.options.client())
        return self._planner


def make_planner(
    options: Options,
    client: Any,
    *,
    workers: int = 32,
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Planner:
    """A planner that calls Kinesis with ``client``, in so many threads. ``clock`` in seconds, ``now`` in
    seconds since 1970."""
    stream, patience = options.called, options.retry_timeout
    handover = Handover(
        lambda: Pace(options.calls_per_second, options.bytes_per_second, clock=clock, sleep=sleep), now
    )

    def cursor(shard_id: str, place: Place) -> ShardCursor:
        return ShardCursor(
            client,
            stream,
            shard_id,
            place,
            pace=handover.pace(shard_id),
            patience=patience,
            clock=clock,
            now=now,
            sleep=sleep,
        )

    known: list[int] = []
    asking = threading.Lock()

    def retention() -> int:
        with asking:  # once for all shards in doubt
            for failures in range(5):
                if known:
                    break
                try:
                    summary = client.describe_stream_summary(**stream_argument(stream))
                except CALL_ERRORS as error:
                    if is_permanent(failure_of(error).code):
                        break  # the role may lack the permission
                    sleep(_BACKOFF.seconds(failures))
                else:
                    known.append(summary["StreamDescriptionSummary"]["RetentionPeriodHours"] * 3600 * 1000)
            return known[0] if known else SHORTEST_RETENTION

    access = Access(
        cursor,
        retention=retention,
        fail_on_data_loss=options.fail_on_data_loss,
        idle=Backoff(options.idle_time / 8, options.idle_time),
        clock=clock,
        now=now,
        sleep=sleep,
    )
    return Planner(
        access,
        handover,
        lambda: fetch_lineage(client, options.called, timeout=patience, sleep=sleep),
        options.stream_name,
        workers=workers,
        describe_interval=options.describe_interval,
        clock=clock,
        now=now,
    )


class KinesisBatchReader(_Reader, DataSourceReader):
    """A read between two positions, planned when the query runs: LATEST is the stream's end at that time."""

    def partitions(self) -> list[KinesisPartition]:
        # SPK-62: "A batch read MUST give every record from its starting position to its ending position,
        # whatever splits and merges lie between, and none that arrived after it was planned."
        planner, options = self.planner, self.options
        shard_ids = [shard.shard_id for shard in planner.lineage(fresh=True)]
        planner.check("startingPosition", options.starting_position)
        planner.check("endingPosition", options.ending_position)
        starts = _by_shard(options.starting_position, shard_ids)
        ends = {**dict.fromkeys(starts, LATEST), **_by_shard(options.ending_position, shard_ids)}
        for shard_id, start in starts.items():
            check_order(shard_id, start, ends[shard_id])

        def found(shard_id: str) -> list[Piece]:
            return self._pieces(planner.shard(shard_id), starts[shard_id], ends[shard_id])

        found_pieces = [piece for run in planner.each(found, starts).values() for piece in run]
        return self.partitions_of(found_pieces, planner.handover, planner.lineage, self.consumer)

    def _pieces(self, shard: ShardPlanner, start: Place, end: Place) -> list[Piece]:
        shard_id = shard.shard_id
        if start == LATEST:
            return []
        caps = Caps(piece=self.options.max_piece)
        if end.names_record:
            if start.names_record:
                return pieces(shard_id, start, BatchEnd(end))
            first = shard.first(start)
            if first is None or int(first) >= end.lowest:
                return []
            return pieces(shard_id, start, BatchEnd(end, first=first))
        if end == TRIM_HORIZON:
            return []
        tip = shard.tip() if end == LATEST else shard.before(end.time_ms)
        found: list[Piece] = []
        while True:
            reached = shard.plan(BatchEnd(start), caps, tip)
            found += pieces(shard_id, start, reached)
            if reached.drained or reached.place == start:
                return [piece._replace(siblings=len(found)) for piece in found]
            start = reached.place


def _by_shard(position: Position, shard_ids: Iterable[str]) -> Mapping[str, Place]:
    """The position of each shard; of those that it names, where it names some."""
    return dict.fromkeys(shard_ids, position) if isinstance(position, Place) else position


class KinesisStreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read. It is in one Python process per query; copies of it read in the tasks."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._known: dict[str, Any] | None = None  # Spark before 4.2 does not give the query's offset
        self._unjudged: dict[str, Any] | None = None  # planned without knowing the query's offset
        self._looked_at: float | None = None
        self._behind: dict[str, int] = {}
        self._subscribed_at = float("-inf")

    # -- offsets ------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Empty: the start is decided and written with the first batch."""
        # SPK-56: "The starting position MUST be settled in the first offset that is written down, so
        # that no restart begins elsewhere."
        return {}

    def getDefaultReadLimit(self) -> Any:
        """The limit for our options; Spark passes it to `latestOffset`."""
        options = self.options
        if options.max_records is None and options.max_span is None:
            return ReadAllAvailable()
        return ReadMaxRows(options.max_records or 2**31 - 1)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """Where the next batch ends: ``start`` itself if there is nothing to read."""
        self._idle()
        options, planner = self.options, self.planner
        if start is None:
            start = self._known
        if start is None:
            # Before 4.2 Spark asks this first: of a new query, or of one with Trigger.AvailableNow.
            after = planner.whole(options.starting_position)
            self._unjudged = after.to_json()
        elif not start:
            after = planner.begin_at(options.starting_position)  # an empty batch, to write the start
        else:
            before = StreamOffset.from_json(start, options.stream_name)
            after = planner.advance(before, self._caps(limit))
            if not moves(before, after):
                self._looked_at = time.monotonic()
                self._behind = {}
                return start
        self._behind = {key: ends.behind for key, ends in after.shards.items() if ends.behind}
        self._looked_at = None  # there are records, so do not wait
        self._known = after.to_json()
        return self._known

    def _caps(self, limit: Any) -> Caps:
        options = self.options
        if ReadAllAvailable is not None and isinstance(limit, ReadAllAvailable):
            return Caps(piece=options.max_piece)
        return Caps(options.max_records, options.max_span, options.max_piece)

    def _idle(self) -> None:
        """After an empty answer Spark asks again at once; this asks the shards less often."""
        # SPK-63: "A query that finds nothing to read MUST wait between two looks."
        waits = [0.0 if self._looked_at is None else self._looked_at + self.options.idle_time]
        # Tasks that subscribe sooner would only wait themselves.
        waits.append(self._subscribed_at + REFUSED_FOR)
        time.sleep(max(0.0, max(waits) - time.monotonic()))

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
        stream = self.options.stream_name
        before = StreamOffset.from_json(start, stream)
        if end == self._unjudged:
            self.planner.refuse_unread(before)
        self._known = end
        after = StreamOffset.from_json(end, stream)
        planner, found = self.planner, batch_pieces(before, after)
        partitions = self.partitions_of(found, planner.handover, planner.lineage, self.consumer)
        if any(partition.consumer for partition in partitions):
            self._subscribed_at = time.monotonic()
        return partitions

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: Spark has the checkpoint."""

    def stop(self) -> None:
        """The query ends: its consumer is deregistered if the options ask for it."""
        if self.options.consumer is not None and self._consumer is not None:
            self.options.consumer.end(self.options.client(), self._consumer)
