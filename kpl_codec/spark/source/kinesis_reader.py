"""Makes a query's calls to Kinesis, on the driver and in tasks, and reads the pieces of a batch."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timezone
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

from ...aws.calls import run_sync
from ...aws.cursor import Pace, ShardCursor
from ...aws.stream_reading import async_fetch_lineage
from ...aws.subscription import StreamConsumers, SubscriptionCursor
from ...shards.lineage import Lineage
from ...shards.live_shard_map import StreamUnavailable
from ...shards.shard_reading import MOST_RECORDS
from ...shards.starting_position import TRIM_HORIZON, StartingPosition, at_record
from .offsets import DataLoss, ShardRange
from .source_options import SourceOptions

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_log = logging.getLogger("kpl_codec.spark")

#: The shortest retention of a stream, in ms.
SHORTEST_RETENTION: Final = 24 * 3600 * 1000
#: Codes of GetShardIterator for a sequence number or shard that no longer exists.
GONE: Final = {"InvalidArgumentException": "trimmed", "ResourceNotFoundException": "shard-gone"}
#: Seconds that a task waits for a record that the driver has seen.
_CATCH_UP: Final = 30.0
#: Seconds by which the clocks of two machines may differ.
_CLOCK_SKEW: Final = 5.0


@dataclass(eq=False)
class KinesisReader:
    """Reads one stream with a boto3 client. ``clock``: seconds; ``now``: seconds since 1970. Thread-safe."""

    client: Any
    options: SourceOptions
    _: KW_ONLY
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    _retention: int | None = None
    _retention_lock: threading.Lock = field(default_factory=threading.Lock)

    def now_ms(self) -> int:
        return int(self.now() * 1000)

    def pace(self) -> Pace:
        options = self.options
        return Pace(options.calls_per_second, options.bytes_per_second, clock=self.clock)

    def cursor(
        self, shard_id: str, place: StartingPosition, pace: Pace, consumer: str | None = None
    ) -> ShardCursor:
        """A cursor at a place. ``consumer``: the ARN of an enhanced fan-out consumer; None: GetRecords."""
        settings: dict[str, Any] = {"clock": self.clock, "now": self.now, "sleep": self.sleep}
        settings["patience"] = self.options.retry_timeout
        if consumer is not None:
            return SubscriptionCursor(self.client, consumer, shard_id, place, **settings)
        return ShardCursor(self.client, self.options.name_or_arn, shard_id, place, pace=pace, **settings)

    def lineage(self) -> Lineage:
        """The shards that hold records, closed ones too. Raises StreamUnavailable."""
        name, patience = self.options.name_or_arn, self.options.retry_timeout
        return run_sync(async_fetch_lineage(self.sleep, self.client, name, patience=patience))

    def retention(self) -> int:
        """The stream's retention in ms; 24 hours where the role may not call DescribeStreamSummary."""
        with self._retention_lock:  # one call for all shards
            if self._retention is None:
                consumers = StreamConsumers(self.client, patience=10.0, sleep=self.sleep, clock=self.clock)
                try:
                    hours = consumers.describe_stream(self.options.name_or_arn)["RetentionPeriodHours"]
                except StreamUnavailable:
                    return SHORTEST_RETENTION
                self._retention = hours * 3600 * 1000
            return self._retention

    def report_loss(self, shard_id: str, place: StartingPosition, code: str, reason: str) -> None:
        """Raise DataLoss, or log it where failOnDataLoss is false."""
        number = place.sequence_number if place.names_record else None
        loss = DataLoss(shard_id=shard_id, sequence_number=number, code=code, reason=reason)
        if self.options.fail_on_data_loss:
            raise loss
        _log.warning("%s", loss)


def explain_time(error: StreamUnavailable, place: StartingPosition) -> StreamUnavailable:
    """``error`` of a call that reads from ``place``, with the time that the call names."""
    if place.kind != "AT_TIMESTAMP" or error.code != "InvalidArgumentException":
        return error
    when = datetime.fromtimestamp(place.time_ms / 1000, timezone.utc)
    ahead = f"it reads from {when:%Y-%m-%dT%H:%M:%SZ}: is this machine's clock ahead of that of Kinesis?"
    reason = f"{error.reason} ({ahead})"
    return StreamUnavailable(**{**error.fields, "reason": reason})


def read_piece(
    reader: KinesisReader, consumer: str | None, piece: ShardRange
) -> Iterator[list[dict[str, Any]]]:
    """The Kinesis records of a piece, call by call. Raises DataLoss, StreamUnavailable."""
    # SPK-61: "The readers of a shard together MUST keep to the GetRecords and GetShardIterator calls and the
    # bytes a second that the options allow."
    pace = reader.pace()
    wait = max(0.0, piece.not_before - reader.now())
    pace.pause(min(wait, pace.interval + _CLOCK_SKEW))
    begin, count = piece.start, piece.records
    if begin.names_record:
        # To read after a record, reading begins at that record: if it comes, no record after it is missing.
        # SPK-72: "A task MUST NOT ask for more records than its piece has, where the offset says how many."
        count = count and count + (begin.kind == "AFTER_SEQUENCE_NUMBER")
        begin = at_record(begin.sequence_number)
    cursor = partial(reader.cursor, piece.shard_id, pace=pace, consumer=consumer)
    if (yield from _to_end(reader, piece, cursor(begin), count)):
        yield from _to_end(reader, piece, cursor(TRIM_HORIZON))
    # The planner counts one call more than it made, but not the bytes that the call gave.
    reader.sleep(max(0.0, pace.delay("get_records") - pace.interval))


def _to_end(
    reader: KinesisReader,
    piece: ShardRange,
    cursor: ShardCursor,
    remaining: int | None = None,
) -> Generator[list[dict[str, Any]], None, bool]:
    """The records of a piece from ``cursor`` on; returns whether its place is gone. ``remaining``: how
    many the piece still has, None if unknown."""
    end, waits_since = piece.end.sequence_number, None
    report = partial(reader.report_loss, piece.shard_id)
    with closing(cursor):
        while True:
            limit = MOST_RECORDS if remaining is None else min(max(remaining, 1), MOST_RECORDS)
            try:
                response = cursor.fetch(limit)
            except StreamUnavailable as error:
                if error.code not in GONE:
                    raise
                report(piece.start, GONE[error.code], error.reason)
                return True
            numbers = [record["SequenceNumber"] for record in response.records]
            if numbers:
                if response.trimmed is not None:
                    report(piece.start, "trimmed", "the record is past retention")
                waits_since = None
                remaining = remaining and remaining - len(numbers)
                # If the record at the start is gone, older records than the piece's may come, too.
                low, high = piece.start.lowest, piece.end.lowest
                if records := [r for r in response.records if low <= int(r["SequenceNumber"]) < high]:
                    yield records
            if numbers and int(numbers[-1]) >= int(end):
                if end not in numbers:
                    report(piece.end, "record-missing", "the batch should end there")
                return False
            if response.near_tip:
                # The driver has read the end of this piece, but Kinesis may not give it to this call yet.
                waits_since = waits_since or reader.clock()
                if response.ended or reader.clock() - waits_since > _CATCH_UP:
                    report(piece.end, "record-missing", "the shard has ended before it")
                    return False
                reader.sleep(0.2)


def read_in_parallel(
    read: Callable[[_Item], Iterator[_Result]], items: Sequence[_Item], threads: int = 8
) -> Iterator[tuple[_Item, _Result]]:
    """Pairs of an item and a result of ``read(item)``, an iterator; the results of one item are in order.
    ``threads`` read one result ahead; the first error of a thread is raised here."""
    if len(items) == 1:
        yield from ((items[0], result) for result in read(items[0]))
        return
    queue = iter(items)
    running: dict[Future[_Result | None], tuple[_Item, Iterator[_Result]]] = {}
    with ThreadPoolExecutor(threads, "kpl-codec read") as pool:

        def submit(item: _Item, results: Iterator[_Result]) -> None:
            running[pool.submit(next, results, None)] = item, results

        for item in islice(queue, threads):
            submit(item, read(item))
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                item, results = running.pop(future)
                result = future.result()
                if result is not None:
                    submit(item, results)
                    yield item, result
                elif (following := next(queue, None)) is not None:
                    submit(following, read(following))
