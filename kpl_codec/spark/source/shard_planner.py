"""Finds where the next batch ends on one shard, with few and small reads.

    peek     the first unread records (one call). None: nothing to do. At the tip: the batch ends there.
    jump     far behind: the records near the tip, or one record near the end of what a batch may cover,
             found by time and named by sequence number. A time only guides to a record: no record is in a
             batch or out of it because of one.
    walk     full reads from there to the tip, or where the jump found nothing new.

A quiet shard needs one call, a busy one three: `first_records` keeps iterators from batch to batch. With an
exact limit of records the driver reads all of the batch. Specification: spec/07-spark-source.md, SPK-57 to
SPK-62.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from ...aws.cursor import MOST_RECORDS, Answer, ShardCursor, Tip
from ...shards.live_shard_map import StreamUnavailable
from ...shards.place import LATEST, TRIM_HORIZON, Place, after_record, at_record, at_time
from .access import GONE, Access
from .first_records import Arrival, FirstRecords, Kept, Look, next_arrival
from .offsets import BatchEnd, piece_of
from .task_hints import CARRIED_OF_SHARD, TaskHints

#: How far before its goal a jump starts, in ms; each time it finds nothing, eight times as far.
_FIRST_LAG: Final = 250
_WALK_CALLS: Final = 4
#: For so many milliseconds a batch that ends with a record needs no planning time.
_FRESH: Final = 3600 * 1000


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits, None for no limit: Kinesis records of a shard in a batch (exact, but the driver reads them,
    too), and milliseconds of arrival time in a batch."""

    records: int | None = None
    span: int | None = None


def _beyond(tip: Tip | None) -> str | None:
    """The first record beyond the tip, None if there is none: none comes to a shard that is gone."""
    try:
        return tip.beyond() if tip is not None else None
    except StreamUnavailable as error:
        if GONE.get(error.code) != "shard-gone":
            raise
        return None


class ShardPlanner(FirstRecords):
    """Moves the offset of one shard forward. Different shards may be planned in parallel."""

    def __init__(self, shard_id: str, access: Access, hints: TaskHints) -> None:
        super().__init__(shard_id, access, hints.pace(shard_id))
        self._hints = hints

    def tip(self) -> Tip:
        """The tip now."""
        return Tip(self.cursor(LATEST))

    def before(self, when: int) -> Tip:
        """The tip at a time (ms since 1970)."""
        return Tip(self.cursor(at_time(when)))

    def first(self, place: Place) -> str | None:
        """The sequence number of the first record after ``place``."""
        look = self.look(BatchEnd(place))
        return look.arrivals[0].sequence_number if look.arrivals else None

    def ends(self, start: Place, caps: Caps, tip: Tip) -> Iterator[BatchEnd]:
        """The ends of one batch after another, until there is nothing more before ``tip``."""
        while True:
            end = self.plan(BatchEnd(start), caps, tip)
            yield end
            if end.drained or end.place == start:
                return
            start = end.place

    def plan(self, start: BatchEnd, caps: Caps, tip: Tip | None = None, look: Look | None = None) -> BatchEnd:
        """Where the batch after ``start`` ends, not beyond ``tip``. ``look``: at its first records, if that
        was taken already. Raises DataLoss, StreamUnavailable."""
        try:
            return self._after(start, look or self.look(start, caps.records), caps, tip)
        except StreamUnavailable as error:
            if error.code not in GONE:
                raise
            # What the look knew from the batch before is gone.
            return self._after(start, self.look(start, caps.records), caps, tip)

    def _after(self, start: BatchEnd, look: Look, caps: Caps, tip: Tip | None) -> BatchEnd:
        """The end of the batch after ``start``, which begins with ``look``. Raises StreamUnavailable."""
        if not look.arrivals:
            # A drained shard keeps its place: a shard of its name in a later life of the stream is behind it.
            place = TRIM_HORIZON if look.lost and not look.ended else start.place
            return replace(start, place=place, drained=look.ended, since=look.asked_at)
        first = look.arrivals[0]
        end = self._end(look, caps)
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
        if piece is not None and end.records == len(records):
            self._hints.has_read(piece, records)
        return end

    def _end(self, look: Look, caps: Caps) -> BatchEnd:
        """The end of a batch that begins with ``look``."""
        # SPK-59: "The end of a batch MUST be found without reading the batch, unless an exact limit of
        # records is asked for."
        if caps.records is not None:
            return self._walk_exactly(look, caps.records)
        first, last = look.arrivals[0], look.arrivals[-1]
        edge = None if caps.span is None else first.time + caps.span
        if look.at_tip and (edge is None or last.time < edge or last == first):
            return self._ends_after(look, last, look.cursor, True, records=len(look.arrivals))
        if edge is not None and edge < look.now:
            arrival = next_arrival(self.cursor(at_time(edge)))
            if arrival is not None and arrival.after(first):
                return BatchEnd(at_record(arrival.sequence_number))
        # Nothing at or after the edge: all records are before it.
        return self._to_tip(look)

    def _to_tip(self, look: Look) -> BatchEnd:
        """The last record of the shard, or a late one if records come faster than they are read."""
        cursor, last, lag = look.cursor, look.arrivals[-1], _FIRST_LAG
        answer: Answer | None = None
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

    def _walk_exactly(self, look: Look, most: int) -> BatchEnd:
        """At most ``most`` records."""
        # SPK-57: "A limit of records per shard and batch MUST hold exactly."
        last, count = look.arrivals[-1], len(look.arrivals)
        at_tip = look.at_tip
        while count < most and not at_tip:
            limit = min(MOST_RECORDS, most - count)
            answer = look.cursor.fetch(limit)
            count += len(answer.records)
            if sum(len(record["Data"]) for record in look.records) < CARRIED_OF_SHARD:
                look.records = [*look.records, *answer.records]
            last = Arrival.of(answer.records[-1]) if answer.records else last
            at_tip = answer.at_tip(limit)
        return self._ends_after(look, last, look.cursor, at_tip, records=count)

    def _ends_after(
        self, look: Look, last: Arrival, cursor: ShardCursor, at_tip: bool, *, records: int | None = None
    ) -> BatchEnd:
        """The batch ends after ``last``, at ``cursor``."""
        place = after_record(last.sequence_number)
        self.keep(Kept(place, cursor, last, at_tip=at_tip))
        # A record that arrived now does not leave the stream before later ones.
        dated = at_tip and look.asked_at - last.time > _FRESH
        since = look.asked_at if dated else None
        return BatchEnd(place, drained=cursor.ended, since=since, records=records)
