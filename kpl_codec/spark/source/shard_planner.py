"""Finds where the next batch ends on one shard, with few and small reads.

    look     the first unread records (one call), or none. At the tip: the batch ends there.
    jump     far behind: the records near the tip, or one record near the end of what a batch may cover,
             found by time and named by sequence number. A time only guides to a record: no record is in a
             batch or out of it because of one.
    walk     full reads from there to the tip, or where the jump found nothing new.

If a place names a record, the look begins *at* that record. If the record comes, nothing after it is missing.
If it is gone, nothing is missing if there was nothing after it at a time within retention (`BatchEnd.since`).
Iterators are kept from batch to batch: a quiet shard needs one call, a busy one three. With an exact limit of
records the driver reads all of the batch. Specification: spec/07-spark-source.md, SPK-57 to SPK-63, SPK-71.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from typing import Final

from ...aws.cursor import MOST_RECORDS, GetRecordsPage, LatestPosition, ShardCursor
from ...aws_errors import Backoff
from ...shards.live_shard_map import StreamUnavailable
from ...shards.starting_position import (
    LATEST,
    TRIM_HORIZON,
    StartingPosition,
    after_record,
    at_record,
    at_time,
)
from .kinesis_reader import GONE, SHORTEST_RETENTION, KinesisReader, dated
from .offsets import BatchEnd, OffsetError, ShardRange, piece_of
from .probes import OVERHEAD, Arrival, CachedPosition, Probe, Records, size_of

#: Bytes of a shard's records that the partitions of a batch carry.
_CARRIED: Final = 512 * 1024
#: How far before its goal a jump starts, in ms; each time it finds nothing, eight times as far.
_FIRST_LAG: Final = 250
_WALK_CALLS: Final = 4
#: For so many milliseconds a batch that ends with a record needs no planning time.
_FRESH: Final = 3600 * 1000
#: Seconds, of the 300 that an iterator lives.
_ITERATOR_LIFE: Final = 240.0
#: A missing record is looked for so many times before it counts as gone.
_TRIES: Final = 3
#: A look asks for about so many bytes, and for so many records at most.
_LOOK_BYTES: Final = 64 * 1024
_LOOK_RECORDS: Final = 500
_UNKNOWN_SIZE: Final = 8 * 1024
#: Looks per second at idle shards, all together: less than a tenth of a core.
_IDLE_LOOKS_PER_SECOND: Final = 100
_MOST_IDLE_SECONDS: Final = 200.0
#: In ms: clocks may differ by a few minutes.
_CLOCK_SKEW: Final = 5 * 60 * 1000


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits, 0 for none: Kinesis records of a shard in a batch (exact, but the driver reads them, too), and
    milliseconds of arrival time in a batch."""

    records: int = 0
    span: int = 0


def _beyond(tip: LatestPosition | None) -> str | None:
    """The first record beyond the tip, None if there is none: none comes to a shard that is gone."""
    try:
        return tip.first_later_record() if tip is not None else None
    except StreamUnavailable as error:
        if GONE.get(error.code) != "shard-gone":
            raise
        return None


class ShardPlanner:
    """Moves the offset of one shard forward. Different shards may be planned in parallel. ``carried``: the
    piece that was planned last, with its records, if they were read for that."""

    def __init__(self, shard_id: str, access: KinesisReader) -> None:
        self.shard_id, self._access = shard_id, access
        self.pace = access.pace()
        self.carried: tuple[ShardRange, Records] | None = None
        #: A new cursor at a place.
        self.cursor = partial(access.cursor, shard_id, pace=self.pace)
        #: Raises or logs DataLoss.
        self.report = partial(access.report_loss, shard_id)
        self._cached: CachedPosition | None = None
        self.size = 0  # bytes of a record, about; 0: no record was read
        #: Seconds for which an idle shard is not asked.
        self._idle = Backoff(access.options.idle_time / 8, access.options.idle_time)

    def tip(self, place: StartingPosition = LATEST) -> LatestPosition:
        return LatestPosition(self.cursor(place))

    def first(self, place: StartingPosition) -> str | None:
        look = self.look(BatchEnd(place), 1)
        return look.arrivals[0].sequence_number if look.arrivals else None

    def ends(self, start: StartingPosition, caps: ReadLimits, tip: LatestPosition) -> Iterator[BatchEnd]:
        """The ends of one batch after another, until there is nothing more before ``tip``."""
        while True:
            end = self.plan(BatchEnd(start), caps, tip)
            yield end
            if end.drained or end.place == start:
                return
            start = end.place

    def plan(
        self, start: BatchEnd, caps: ReadLimits, tip: LatestPosition | None = None, look: Probe | None = None
    ) -> BatchEnd:
        """Where the batch after ``start`` ends, not beyond ``tip``. ``look``: at its first records, if that
        was taken already. Raises DataLoss, StreamUnavailable."""
        try:
            return self._after(start, look or self.look(start, caps.records), caps, tip)
        except StreamUnavailable as error:
            if error.code not in GONE:
                raise
            # What the look knew from the batch before is gone.
            return self._after(start, self.look(start, caps.records), caps, tip)

    def _after(self, start: BatchEnd, look: Probe, caps: ReadLimits, tip: LatestPosition | None) -> BatchEnd:
        if not look.arrivals:
            # A drained shard keeps its place: a shard of its name in a later life of the stream is behind it.
            drained = look.cursor.ended
            place = TRIM_HORIZON if look.lost and not drained else start.place
            return replace(start, place=place, drained=drained, since=look.asked_at)
        first, end = look.arrivals[0], self._end(look, caps)
        records, look.records = look.records, []
        if (beyond := _beyond(tip)) is not None:
            if int(first.sequence_number) >= int(beyond):
                return start
            if end.place.lowest > int(beyond):
                end = BatchEnd(at_record(beyond))
                self.forget()
        if not start.place.names_record or look.start_gone:
            end = replace(end, first=first.sequence_number, start_gone=look.start_gone)
        end = replace(end, behind=max(0, look.now - first.time, self._access.now_ms() - first.time))
        piece = piece_of(self.shard_id, start.place, end)
        if piece is not None and end.records == len(records) and size_of(records) <= _CARRIED:
            self.carried = piece, records
        return end

    def _end(self, look: Probe, caps: ReadLimits) -> BatchEnd:
        # SPK-59: "The end of a batch MUST be found without reading the batch, unless an exact limit of
        # records is asked for."
        if caps.records:
            return self._walk_exactly(look, caps.records)
        first, last = look.arrivals[0], look.arrivals[-1]
        edge = first.time + caps.span if caps.span else None
        if look.at_tip and (edge is None or last.time < edge or last == first):
            return self._ends_after(look, last, look.cursor, True, records=look.count)
        if edge is not None and edge < look.now:
            arrivals = self._read(self.cursor(at_time(edge)), 1).arrivals
            if arrivals and arrivals[0].after(first):
                return BatchEnd(at_record(arrivals[0].sequence_number))
        # Nothing at or after the edge: all records are before it.
        return self._to_tip(look)

    def _to_tip(self, look: Probe) -> BatchEnd:
        """The last record of the shard, or a late one if records come faster than they are read."""
        cursor, last, lag = look.cursor, look.arrivals[-1], _FIRST_LAG
        answer: GetRecordsPage | None = None
        while answer is None and look.now - lag > last.time:
            near = self.cursor(at_time(look.now - lag))
            jump = near.fetch(MOST_RECORDS)
            if jump.records and Arrival.of(jump.records[-1]).after(last):
                cursor, answer = near, jump
            lag *= 8
        for _ in range(_WALK_CALLS):
            answer = answer or cursor.fetch(MOST_RECORDS)
            if answer.records:
                last = Arrival.of(answer.records[-1])
            at_tip = answer.at_tip(MOST_RECORDS)
            if at_tip:
                break
            answer = None
        return self._ends_after(look, last, cursor, at_tip)

    def _walk_exactly(self, look: Probe, most: int) -> BatchEnd:
        # SPK-57: "A limit of records per shard and batch MUST hold exactly."
        last, count = look.arrivals[-1], look.count
        at_tip = look.at_tip
        while count < most and not at_tip:
            limit = min(MOST_RECORDS, most - count)
            response = look.cursor.fetch(limit)
            count += len(response.records)
            if size_of(look.records) < _CARRIED:
                look.records = [*look.records, *response.records]
            last = Arrival.of(response.records[-1]) if response.records else last
            at_tip = response.at_tip(limit)
        return self._ends_after(look, last, look.cursor, at_tip, records=count)

    def _ends_after(
        self, look: Probe, last: Arrival, cursor: ShardCursor, at_tip: bool, *, records: int | None = None
    ) -> BatchEnd:
        place = after_record(last.sequence_number)
        self._cached = CachedPosition(
            place, cursor, last, at_tip, self._access.now_ms(), self._access.clock()
        )
        # A record that arrived now does not leave the stream before later ones.
        dated = at_tip and look.asked_at - last.time > _FRESH
        since = look.asked_at if dated else None
        return BatchEnd(place, drained=cursor.ended, since=since, records=records)

    def forget(self) -> None:
        self._cached = None

    def not_due(self, start: BatchEnd, shards: int) -> BatchEnd | None:
        """The end of an idle shard that is not to be asked yet; None for others. The more ``shards`` there
        are, the longer the pause of each."""
        cached = self._cached
        if cached is None or not cached.empty or cached.place != start.place:
            return None
        most = min(max(self._idle.most, shards / _IDLE_LOOKS_PER_SECOND), _MOST_IDLE_SECONDS)
        if self._access.clock() - cached.used >= self._idle._replace(most=most).seconds(cached.empty):
            return None
        return replace(start, since=cached.seen)

    def look(self, start: BatchEnd, most: int = 0, size: int = 0) -> Probe:
        """The first records behind ``start``, at most ``most``. ``size``: of a record, on the stream's other
        shards. Raises DataLoss, StreamUnavailable."""
        cached, self._cached = self._cached, None
        if cached is not None and cached.place != start.place:
            cached = None
        limit = self._limit(most, size)
        look = None
        if cached is not None and self._access.clock() - cached.used < _ITERATOR_LIFE:
            look = self._look_on(cached, limit)
        if look is None:
            # An iterator near its end would be made again at a record that was not checked again.
            since = max(start.since or 0, cached.seen if cached is not None and cached.at_tip else 0)
            start = BatchEnd(start.place, since=since or None)
            named = start.place.names_record
            look = self._look_at_record(start, limit) if named else self._look_at_first(start, limit)
        if not look.arrivals and not look.cursor.ended and not look.lost:
            last, empty = (cached.last, cached.empty + 1) if cached else (None, 1)
            used = self._access.clock()
            self._cached = CachedPosition(start.place, look.cursor, last, True, look.asked_at, used, empty)
        more = self._limit(most) - look.count
        if more > look.count and not look.at_tip:  # records are smaller than was expected
            with suppress(StreamUnavailable):  # `plan` asks again
                look.extend(self._read(look.cursor, more))
        return look

    def _limit(self, most: int, size: int = 0) -> int:
        limit = max(2, min(_LOOK_RECORDS, _LOOK_BYTES // (self.size or size or _UNKNOWN_SIZE)))
        return min(limit, most or limit)

    def _look_on(self, cached: CachedPosition, limit: int) -> Probe | None:
        """A probe from a cached cursor; None if its iterator is of a shard or stream that is gone."""
        try:
            look = self._read(cached.cursor, limit)
        except StreamUnavailable as error:
            if error.code not in GONE:
                raise
            return None
        if look.arrivals and cached.at_tip and cached.place.names_record:
            # Nothing is missing before the first record, because nothing followed the place a moment ago. The
            # record before the place may be too old for a task to find.
            last = cached.last
            look.start_gone = last is None or self._access.now_ms() - last.time > SHORTEST_RETENTION // 2
        return look

    def _read(self, cursor: ShardCursor, limit: int) -> Probe:
        while True:
            asked_at = self._access.now_ms()
            response = cursor.fetch(limit)
            if response.records:
                self.size = max(1, size_of(response.records) // len(response.records) - OVERHEAD)
            if response.records or response.at_tip(limit):
                now = (
                    Arrival.of(response.records[-1]).time + response.behind if response.records else asked_at
                )
                return Probe(response.records, now, asked_at, response.at_tip(limit), cursor)

    def _look_at_first(self, start: BatchEnd, limit: int) -> Probe:
        try:
            self.judge_unread(start)
            return self._read(self.cursor(start.place), limit)
        except StreamUnavailable as error:
            if error.code != "ResourceNotFoundException":
                raise dated(error, start.place) from None
            return self._probe_from_start(start.place, error.reason, limit)

    def judge_unread(self, start: BatchEnd) -> None:
        """Raise or log DataLoss if records after a place that names no record may be past retention."""
        # SPK-71: "An offset MUST say since when the records that it does not name can have arrived; where
        # they may be past retention when the shard is read, this MUST be treated as data loss."
        if start.since is not None and not self._within_retention(start.since):
            since = datetime.fromtimestamp(start.since / 1000, timezone.utc)
            reason = f"nobody has read it since {since:%Y-%m-%dT%H:%M:%SZ}"
            self.report(start.place, "unread-too-long", reason)

    def _within_retention(self, since: int) -> bool:
        age = self._access.now_ms() - since + _CLOCK_SKEW
        return age < SHORTEST_RETENTION or age < self._access.retention()

    def _look_at_record(self, start: BatchEnd, limit: int) -> Probe:
        """A look from a record that must still exist: only then nothing after it is missing."""
        # SPK-60: "Where the record that a batch starts after or at is gone, the records behind it may be
        # too: this MUST be an error, or be logged and read on with failOnDataLoss false."
        place, code, reason = start.place, "", ""
        skipped = int(place.kind == "AFTER_SEQUENCE_NUMBER")
        for attempt in range(_TRIES):
            if attempt:
                self._access.sleep(0.5)
            cursor = self.cursor(at_record(place.sequence_number))
            try:
                look = self._read(cursor, limit + skipped)
                if look.arrivals and look.arrivals[0].sequence_number == place.sequence_number:
                    look.skip(skipped)
                    return look if look.arrivals or look.at_tip else self._read(cursor, limit)
                code, reason = "trimmed", "the record is past retention, or of an earlier life of the stream"
            except StreamUnavailable as error:
                if error.code not in GONE:
                    raise
                code, reason = GONE[error.code], f"{error.operation}: {error.reason}"
        if code != "trimmed":
            return self._probe_from_start(place, reason, limit)
        probe = self._probe_after_gap(place, limit)
        # Where nothing followed the record at a time whose records all exist, none is lost.
        if start.since is None or not self._within_retention(start.since):
            self.report(place, code, reason)
            probe.lost = True
        return probe

    def _probe_from_start(self, place: StartingPosition, reason: str, limit: int) -> Probe:
        self.report(place, "shard-gone", reason)
        cursor = self.cursor(TRIM_HORIZON)
        cursor.ended = True
        look = self._read(cursor, limit)
        look.start_gone = look.lost = True
        return look

    def _probe_after_gap(self, place: StartingPosition, limit: int) -> Probe:
        """What is left after a record that is gone, at most ``limit`` records, never records before it.
        Raises OffsetError where an older record is there."""
        cursor = self.cursor(TRIM_HORIZON)
        place_number = int(place.sequence_number)
        last = place_number  # of the records up to the place
        while True:
            look = self._read(cursor, limit)
            numbers = [int(record["SequenceNumber"]) for record in look.records]
            last = max((number for number in numbers if number <= place_number), default=last)
            look.skip(sum(number < place.lowest for number in numbers))
            if look.arrivals or look.at_tip:
                break
        # SPK-112: records leave a stream in their order, so this one is another.
        if last != place_number:
            raise OffsetError(
                reason=f"{self.shard_id} has older records than {place_number}, which is not there"
            )
        look.start_gone = True
        return look
