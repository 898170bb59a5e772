"""Finds where the next batch ends on one shard, with few and small reads.

    peek     reads the first unread records (one call). Where nothing follows them, the batch ends there.
    jump     far behind the tip: reads records near the tip, or one record near the end of the time that a
             batch may cover. A time only helps to find a record; the batch ends at that record.
    walk     full reads from the jump's record to the tip; or from the start, if the jump found nothing new.

A peek from a record begins *at* that record: if the record comes, nothing behind it is missing. If it is past
retention, nothing is missing where nothing was behind it at a time within retention (`BatchEnd.since`).
Iterators stay in use from batch to batch. With an exact limit of records the planner reads the whole batch.
Specification: spec/07-spark-source.md, SPK-57 to SPK-63, SPK-71.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from typing import Final

from ...aws.cursor import LatestPosition, ShardCursor
from ...aws_errors import Backoff
from ...shards.live_shard_map import StreamUnavailable
from ...shards.shard_reading import MOST_RECORDS, ShardPage
from ...shards.starting_position import (
    LATEST,
    TRIM_HORIZON,
    StartingPosition,
    after_record,
    at_record,
    at_time,
)
from .kinesis_reader import GONE, SHORTEST_RETENTION, KinesisReader, explain_time
from .offsets import BatchEnd, OffsetError, ShardRange, piece_of
from .shard_head import OVERHEAD, Arrival, CachedPosition, Records, ShardHead, size_of

#: The most bytes of records that go into a partition: Spark warns of tasks of more than a megabyte.
MOST_ATTACHED: Final = 512 * 1024
#: How far before the tip a jump starts, in ms; each time it finds nothing, eight times as far.
_FIRST_LAG: Final = 250
_WALK_CALLS: Final = 4
#: A batch that ends with a record younger than this (ms) needs no ``since``.
_FRESH: Final = 3600 * 1000
#: Seconds for which an iterator is used; it lives 300.
_ITERATOR_LIFE: Final = 240.0
#: How often a missing record is asked for before it counts as gone.
_TRIES: Final = 3
#: A peek asks for about so many bytes, and for so many records at most.
_PEEK_BYTES: Final = 64 * 1024
_PEEK_RECORDS: Final = 500
#: Assumed bytes of a record before the first one was read.
_UNKNOWN_SIZE: Final = 8 * 1024
#: Peeks a second at all idle shards together: less than a tenth of a core.
_IDLE_PEEKS_PER_SECOND: Final = 100
_MOST_IDLE_SECONDS: Final = 200.0
#: Milliseconds by which the clocks of two machines may differ.
_CLOCK_SKEW: Final = 5 * 60 * 1000


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits of a batch on one shard, 0 for none: ``records`` exactly, ``span`` in ms of arrival time."""

    records: int = 0
    span: int = 0


class ShardPlanner:
    """Moves the offset of one shard forward. Shards may be planned in parallel. ``attached``: the piece that
    was planned last, with its records, if the planner has read them all."""

    def __init__(self, shard_id: str, reader: KinesisReader) -> None:
        self.shard_id, self._reader = shard_id, reader
        self.pace = reader.pace()
        self.attached: tuple[ShardRange, Records] | None = None
        self.cursor = partial(reader.cursor, shard_id, pace=self.pace)
        self.report = partial(reader.report_loss, shard_id)
        self._cached: CachedPosition | None = None
        self.size = 0  # about how many bytes a record has; 0: no record was read
        #: Seconds between two peeks at an idle shard.
        self._idle = Backoff(reader.options.idle_time / 8, reader.options.idle_time)

    def tip(self, place: StartingPosition = LATEST) -> LatestPosition:
        return LatestPosition(self.cursor(place))

    def first(self, place: StartingPosition) -> str | None:
        """The sequence number of the first record behind ``place``; None if there is none."""
        head = self.peek(BatchEnd(place), 1)
        return head.arrivals[0].sequence_number if head.arrivals else None

    def ends(self, start: StartingPosition, limits: ReadLimits, tip: LatestPosition) -> Iterator[BatchEnd]:
        """The ends of one batch after another, until there is nothing more before ``tip``."""
        while True:
            end = self.plan(BatchEnd(start), limits, tip)
            yield end
            if end.drained or end.place == start:
                return
            start = end.place

    def plan(
        self,
        start: BatchEnd,
        limits: ReadLimits,
        tip: LatestPosition | None = None,
        head: ShardHead | None = None,
    ) -> BatchEnd:
        """Where the batch after ``start`` ends, not beyond ``tip``. ``head``: its first records, if read
        already. Raises DataLoss, StreamUnavailable."""
        try:
            return self._end_after(start, head or self.peek(start, limits.records), limits, tip)
        except StreamUnavailable as error:
            if error.code not in GONE:
                raise
        # The cached records of the batch before are gone.
        return self._end_after(start, self.peek(start, limits.records), limits, tip)

    def _end_after(
        self, start: BatchEnd, head: ShardHead, limits: ReadLimits, tip: LatestPosition | None
    ) -> BatchEnd:
        if not head.arrivals:
            # A drained shard keeps its place: a shard of its name in a later life of the stream is behind it.
            drained = head.cursor.ended
            place = TRIM_HORIZON if head.records_lost and not drained else start.place
            return replace(start, place=place, drained=drained, since=head.request_time)
        first, end = head.arrivals[0], self._find_end(head, limits)
        records, head.records = head.records, []
        try:
            beyond = tip.first_later_record() if tip is not None else None
        except StreamUnavailable as error:
            if GONE.get(error.code) != "shard-gone":
                raise
            beyond = None  # a shard that is gone gets no more records
        if beyond is not None:
            if int(first.sequence_number) >= int(beyond):
                return start
            if end.place.lowest > int(beyond):
                end = BatchEnd(at_record(beyond))
                self.forget()
        if not start.place.names_record or head.start_gone:
            end = replace(end, first=first.sequence_number, start_gone=head.start_gone)
        end = replace(end, behind=max(0, head.now - first.time, self._reader.now_ms() - first.time))
        piece = piece_of(self.shard_id, start.place, end)
        if piece is not None and end.records == len(records) and size_of(records) <= MOST_ATTACHED:
            self.attached = piece, records
        return end

    def _find_end(self, head: ShardHead, limits: ReadLimits) -> BatchEnd:
        # SPK-59: "The end of a batch MUST be found without reading the batch, unless an exact limit of
        # records is asked for."
        if limits.records:
            return self._walk_to_limit(head, limits.records)
        first, last = head.arrivals[0], head.arrivals[-1]
        edge = first.time + limits.span if limits.span else None
        if head.at_tip and (edge is None or last.time < edge or last == first):
            return self._end_with(head, last, head.cursor, True, records=head.count)
        if edge is not None and edge < head.now:
            arrivals = self._read(self.cursor(at_time(edge)), 1).arrivals
            if arrivals and arrivals[0].after(first):
                return BatchEnd(at_record(arrivals[0].sequence_number))
        # No record at or after the edge: all are before it.
        return self._walk_to_tip(head)

    def _walk_to_tip(self, head: ShardHead) -> BatchEnd:
        """The last record of the shard, or a late one if records come faster than they are read."""
        cursor, last, lag = head.cursor, head.arrivals[-1], _FIRST_LAG
        page: ShardPage | None = None
        while page is None and head.now - lag > last.time:
            near = self.cursor(at_time(head.now - lag))
            jump = near.fetch(MOST_RECORDS)
            if jump.records and Arrival.of(jump.records[-1]).after(last):
                cursor, page = near, jump
            lag *= 8
        for _ in range(_WALK_CALLS):
            page = page or cursor.fetch(MOST_RECORDS)
            if page.records:
                last = Arrival.of(page.records[-1])
            at_tip = page.near_tip
            if at_tip:
                break
            page = None
        return self._end_with(head, last, cursor, at_tip)

    def _walk_to_limit(self, head: ShardHead, most: int) -> BatchEnd:
        # SPK-57: "A limit of records per shard and batch MUST hold exactly."
        last, count = head.arrivals[-1], head.count
        at_tip = head.at_tip
        while count < most and not at_tip:
            limit = min(MOST_RECORDS, most - count)
            page = head.cursor.fetch(limit)
            count += len(page.records)
            if size_of(head.records) < MOST_ATTACHED:
                head.records = [*head.records, *page.records]
            last = Arrival.of(page.records[-1]) if page.records else last
            at_tip = page.near_tip
        return self._end_with(head, last, head.cursor, at_tip, records=count)

    def _end_with(
        self, head: ShardHead, last: Arrival, cursor: ShardCursor, at_tip: bool, *, records: int | None = None
    ) -> BatchEnd:
        """The end of a batch with the record ``last``; ``cursor`` stands behind it."""
        place = after_record(last.sequence_number)
        now, clock = self._reader.now_ms(), self._reader.clock()
        self._cached = CachedPosition(place, cursor, last, at_tip, now, clock)
        # A record leaves the stream before the records that arrived later.
        old = at_tip and head.request_time - last.time > _FRESH
        since = head.request_time if old else None
        return BatchEnd(place, drained=cursor.ended, since=since, records=records)

    def forget(self) -> None:
        self._cached = None

    def end_if_idle(self, start: BatchEnd, shards: int) -> BatchEnd | None:
        """The end of the batch on an idle shard that need not be read yet; None for another shard. All idle
        ``shards`` share a rate of calls."""
        cached = self._cached
        if cached is None or not cached.empty_polls or cached.place != start.place:
            return None
        most = min(max(self._idle.most, shards / _IDLE_PEEKS_PER_SECOND), _MOST_IDLE_SECONDS)
        pause = self._idle._replace(most=most).seconds(cached.empty_polls)
        due = self._reader.clock() - cached.clock >= pause
        return None if due else replace(start, since=cached.read_at)

    def peek(self, start: BatchEnd, most: int = 0, size: int = 0) -> ShardHead:
        """The first records behind ``start``, at most ``most``. ``size``: of a record on other shards, in
        bytes. Raises DataLoss, StreamUnavailable."""
        cached, self._cached = self._cached, None
        if cached is not None and cached.place != start.place:
            cached = None
        limit = self._limit(most, size)
        head = None
        if cached is not None and self._reader.clock() - cached.clock < _ITERATOR_LIFE:
            head = self._peek_from_cache(cached, limit)
        if head is None:
            # An iterator near its end would be made again at a record that was not checked again.
            since = max(start.since or 0, cached.read_at if cached is not None and cached.at_tip else 0)
            start = BatchEnd(start.place, since=since or None)
            named = start.place.names_record
            head = self._peek_from_record(start, limit) if named else self._peek_from_place(start, limit)
        if not head.arrivals and not head.cursor.ended and not head.records_lost:
            last, empty_polls = (cached.last, cached.empty_polls + 1) if cached else (None, 1)
            clock = self._reader.clock()
            self._cached = CachedPosition(
                start.place, head.cursor, last, True, head.request_time, clock, empty_polls
            )
        more = self._limit(most) - head.count
        if more > head.count and not head.at_tip:  # records are smaller than expected
            with suppress(StreamUnavailable):  # `plan` reads on
                head.extend(self._read(head.cursor, more))
        return head

    def _limit(self, most: int, size: int = 0) -> int:
        limit = max(2, min(_PEEK_RECORDS, _PEEK_BYTES // (self.size or size or _UNKNOWN_SIZE)))
        return min(limit, most or limit)

    def _read(self, cursor: ShardCursor, limit: int) -> ShardHead:
        while True:
            request_time = self._reader.now_ms()
            page = cursor.fetch(limit)
            now = request_time
            if page.records:
                self.size = max(1, size_of(page.records) // len(page.records) - OVERHEAD)
                now = Arrival.of(page.records[-1]).time + page.behind
            if page.records or page.near_tip:
                return ShardHead(page.records, now, request_time, page.near_tip, cursor)

    def _peek_from_cache(self, cached: CachedPosition, limit: int) -> ShardHead | None:
        """As `peek`, with the cached iterator; None if its shard or stream is gone."""
        try:
            head = self._read(cached.cursor, limit)
        except StreamUnavailable as error:
            if error.code not in GONE:
                raise
            return None
        if head.arrivals and cached.at_tip and cached.place.names_record:
            # Nothing followed the place a moment ago, so nothing is missing. The record before the place may
            # be too old for a task to find.
            last = cached.last
            head.start_gone = last is None or self._reader.now_ms() - last.time > SHORTEST_RETENTION // 2
        return head

    def _peek_from_place(self, start: BatchEnd, limit: int) -> ShardHead:
        try:
            self.check_unread(start)
            return self._read(self.cursor(start.place), limit)
        except StreamUnavailable as error:
            if error.code != "ResourceNotFoundException":
                raise explain_time(error, start.place) from None
            return self._peek_from_oldest(start.place, error.reason, limit)

    def check_unread(self, start: BatchEnd) -> None:
        """Raise or log DataLoss if records after a place that names no record may be past retention."""
        # SPK-71: "An offset MUST say since when the records that it does not name can have arrived; where
        # they may be past retention when the shard is read, this MUST be treated as data loss."
        if start.since is not None and not self._within_retention(start.since):
            since = datetime.fromtimestamp(start.since / 1000, timezone.utc)
            reason = f"nobody has read it since {since:%Y-%m-%dT%H:%M:%SZ}"
            self.report(start.place, "unread-too-long", reason)

    def _within_retention(self, since: int) -> bool:
        age = self._reader.now_ms() - since + _CLOCK_SKEW
        return age < SHORTEST_RETENTION or age < self._reader.retention()

    def _peek_from_record(self, start: BatchEnd, limit: int) -> ShardHead:
        """As `peek`, from a record that must still exist: only then no record after it is missing."""
        # SPK-60: "Where the record that a batch starts after or at is gone, the records behind it may be
        # too: this MUST be an error, or be logged and read on with failOnDataLoss false."
        place, code, reason = start.place, "", ""
        skipped = int(place.kind == "AFTER_SEQUENCE_NUMBER")
        for attempt in range(_TRIES):
            if attempt:
                self._reader.sleep(0.5)
            cursor = self.cursor(at_record(place.sequence_number))
            try:
                head = self._read(cursor, limit + skipped)
                if head.arrivals and head.arrivals[0].sequence_number == place.sequence_number:
                    head.skip(skipped)
                    return head if head.arrivals or head.at_tip else self._read(cursor, limit)
                code, reason = "trimmed", "the record is past retention, or of an earlier life of the stream"
            except StreamUnavailable as error:
                if error.code not in GONE:
                    raise
                code, reason = GONE[error.code], f"{error.operation}: {error.reason}"
        if code != "trimmed":
            return self._peek_from_oldest(place, reason, limit)
        head = self._peek_after_gap(place, limit)
        # If nothing followed the record at a time since which all records still exist, none is lost.
        if start.since is None or not self._within_retention(start.since):
            self.report(place, code, reason)
            head.records_lost = True
        return head

    def _peek_from_oldest(self, place: StartingPosition, reason: str, limit: int) -> ShardHead:
        """As `peek`, from the oldest record of a shard that is no longer listed."""
        self.report(place, "shard-gone", reason)
        cursor = self.cursor(TRIM_HORIZON)
        cursor.reading.ended = True
        head = self._read(cursor, limit)
        head.start_gone = head.records_lost = True
        return head

    def _peek_after_gap(self, place: StartingPosition, limit: int) -> ShardHead:
        """As `peek`, with the records that are left after a record that is gone. Raises OffsetError if a
        record that is older than the gone one is still there."""
        cursor = self.cursor(TRIM_HORIZON)
        place_number = int(place.sequence_number)
        last = place_number  # the records up to the place
        while True:
            head = self._read(cursor, limit)
            numbers = [int(record["SequenceNumber"]) for record in head.records]
            last = max((number for number in numbers if number <= place_number), default=last)
            head.skip(sum(number < place.lowest for number in numbers))
            if head.arrivals or head.at_tip:
                break
        # SPK-112: records leave a stream in their order, so this one is another.
        if last != place_number:
            raise OffsetError(
                reason=f"{self.shard_id} has older records than {place_number}, which is not there"
            )
        head.start_gone = True
        return head
