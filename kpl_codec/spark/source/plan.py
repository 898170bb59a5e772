"""Where the next batch ends: found on the driver with few and small reads.

Kinesis does not say where a shard ends, and a batch has to be fixed before it is read. For each shard:

    peek     the first unread records (one call). None: nothing to do. At the tip: the batch ends there.
    jump     far behind: one record at a time near the tip, or near the end of what a batch may cover,
             found by time and taken by its sequence number. Times only guide; no record is in or out
             of a batch because of one.
    walk     full reads from there to the tip, or where the jump found nothing new.

So a busy shard costs three or four calls and about a quarter of a second of its data, whatever a batch
covers. With an exact limit of records the driver walks all the way instead, and all is read twice.
Specification: spec/07-spark-source.md, SPK-56 to SPK-63.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from ...aws.cursor import MOST_RECORDS, Answer, At, ShardCursor
from ...shards.lineage import Lineage
from ...shards.live_shard_map import StreamUnavailable
from .offsets import TRIM_HORIZON, DataLoss, ShardOffset, StreamOffset, ready, with_listed
from .options import Position
from .tip import Tip

_log = logging.getLogger("kpl_codec.spark")

#: How far before the goal a jump aims first, in ms; eight times as far each time it finds nothing.
_FIRST_LAG: Final = 250
_WALK_CALLS: Final = 4
#: Seconds, of the 300 that an iterator lives.
_ITERATOR_LIFE: Final = 240.0
_MOST_MARKS: Final = 63
#: A record that is missing is looked for so often before it is called lost.
_LOOKS: Final = 3
#: Codes of GetShardIterator for a sequence number, or a shard, that is no more.
GONE: Final = {"InvalidArgumentException": "trimmed", "ResourceNotFoundException": "shard-gone"}


class Found(NamedTuple):
    """A record: its sequence number and when it arrived (ms since 1970)."""

    sequence_number: str
    time: int

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Found:
        return cls(record["SequenceNumber"], round(record["ApproximateArrivalTimestamp"].timestamp() * 1000))

    def after(self, other: Found) -> bool:
        return int(self.sequence_number) > int(other.sequence_number)


@dataclass(frozen=True, slots=True)
class Caps:
    """How much of a shard one batch may cover, each None for no limit: Kinesis records (exact, but read
    twice), milliseconds of arrival time; and how long a piece may be, for cutting."""

    records: int | None = None
    span: int | None = None
    piece: int | None = None


def start_of(offset: ShardOffset) -> At:
    """Where to read on from ``offset``."""
    if offset.kind == "at":
        return At("TRIM_HORIZON")
    if offset.kind == "time":
        return At("AT_TIMESTAMP", int(offset.value))
    return At("AFTER_SEQUENCE_NUMBER" if offset.kind == "after" else "AT_SEQUENCE_NUMBER", offset.value)


@dataclass(slots=True)
class _Peek:
    records: list[dict[str, Any]]
    behind: int
    at_tip: bool
    ended: bool
    cursor: ShardCursor
    lost: bool = False


class Planner:
    """Moves offsets of one stream forward. Holds cursors at the tips of idle shards; not thread-safe."""

    def __init__(
        self,
        cursor: Callable[[str, At], ShardCursor],
        fetch_lineage: Callable[[], Lineage],
        stream: str,
        *,
        fail_on_data_loss: bool = True,
        workers: int = 32,
        describe_interval: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cursor, self._fetch_lineage, self._stream = cursor, fetch_lineage, stream
        self._fail_on_data_loss = fail_on_data_loss
        self._workers, self._describe_interval = workers, describe_interval
        self._clock, self._sleep = clock, sleep
        self._idle: dict[str, tuple[ShardOffset, ShardCursor, float]] = {}
        self._lineage: Lineage | None = None
        self._listed_at = 0.0
        self._tips: dict[str, Tip] | None = None

    # -- the stream ---------------------------------------------------------------------------

    def lineage(self, *, fresh: bool = False) -> Lineage:
        """The shards that hold records, closed ones too; asked for once in a while, and when one ended:
        its children are listed by then."""
        if self._lineage is None or fresh or self._clock() - self._listed_at >= self._describe_interval:
            self._lineage = self._fetch_lineage()
            self._listed_at = self._clock()
        return self._lineage

    def begin_at(self, position: Position) -> StreamOffset:
        """Every shard there is now at its start, before the first batch.

        LATEST is now, by this machine's clock. Where ``position`` names shards, their ancestors count as
        drained and all others begin at TRIM_HORIZON.
        """
        now = ShardOffset("time", int(time.time() * 1000))
        lineage = self.lineage(fresh=True)
        if not isinstance(position, Mapping):
            place = now if position == "LATEST" else position
            return StreamOffset(self._stream, {shard.shard_id: place for shard in lineage})
        named = {key: now if place == "LATEST" else place for key, place in position.items()}
        above = {
            shard.shard_id for key in named if key in lineage for shard in lineage.ancestors(key)
        } - named.keys()
        rest = {
            shard.shard_id: replace(TRIM_HORIZON, ended=shard.shard_id in above)
            for shard in lineage
            if shard.shard_id not in named
        }
        return StreamOffset(self._stream, {**rest, **named})

    def whole(self, position: Position) -> StreamOffset:
        """Every shard at its tip, whatever the query has read: for a Spark that does not say where it
        stands. ``initial`` is where a query that begins at ``position`` begins."""
        begin = self.begin_at(position)

        def tip_of(shard_id: str) -> ShardOffset:
            tip, at, initial = self.tip(shard_id), TRIM_HORIZON, begin.shards.get(shard_id, TRIM_HORIZON)
            while True:
                reached = self.advance_shard(shard_id, at, Caps(), tip).settled()
                if reached.ended or reached.same_place(at):
                    break
                at = reached
            begins = None if initial.ended else self.first(shard_id, initial)
            return replace(reached, first=self.first(shard_id, TRIM_HORIZON), initial=begins or "")

        shard_ids = [shard.shard_id for shard in self.lineage()]
        return StreamOffset(self._stream, dict(zip(shard_ids, self.each(tip_of, shard_ids), strict=True)))

    def stop_at_tip(self) -> None:
        """From now on `advance` goes no further than the stream reaches now (Trigger.AvailableNow)."""
        # SPK-58: "Under Trigger.AvailableNow a query MUST read every record that was there when it
        # started and none that came after, and then end."
        shard_ids = [shard.shard_id for shard in self.lineage(fresh=True)]
        self._tips = dict(zip(shard_ids, self.each(self.tip, shard_ids), strict=True))

    def tip(self, shard_id: str) -> Tip:
        """The tip of a shard now."""
        return Tip(self._cursor(shard_id, At("LATEST")))

    def before(self, shard_id: str, when: int) -> Tip:
        """The tip that a shard had at a time (ms since 1970)."""
        return Tip(self._cursor(shard_id, At("AT_TIMESTAMP", when)))

    def first(self, shard_id: str, at: ShardOffset) -> str | None:
        """The sequence number of the first record from ``at`` on."""
        peek = self._peek(shard_id, at)
        return peek.records[0]["SequenceNumber"] if peek.records else None

    def advance(self, start: StreamOffset, caps: Caps) -> StreamOffset:
        """Where the batch after ``start`` ends: the same place if there is nothing to read."""
        lineage = self.lineage()
        listed = with_listed(start, lineage)
        tips = self._tips
        known = [
            shard_id
            for shard_id, offset in listed.shards.items()
            if not offset.ended and ready(shard_id, listed, lineage) and (tips is None or shard_id in tips)
        ]
        if tips is not None:
            # A shard that came later has nothing for this run, and must not keep it going.
            listed = StreamOffset(
                listed.stream,
                {key: value for key, value in listed.shards.items() if key in tips or key in start.shards},
            )

        def move(shard_id: str) -> ShardOffset:
            return self.advance_shard(
                shard_id, listed.shards[shard_id], caps, tips[shard_id] if tips is not None else None
            )

        moved = dict(zip(known, self.each(move, known), strict=True))
        if any(offset.ended for offset in moved.values()):
            self._lineage = None
        return StreamOffset(self._stream, {**listed.shards, **moved})

    def each(self, function: Callable[[str], Any], shard_ids: Iterable[str]) -> list[Any]:
        """``function`` of each shard, many at a time: it waits for answers most of the time."""
        todo = list(shard_ids)
        if len(todo) < 2:
            return [function(shard_id) for shard_id in todo]
        with ThreadPoolExecutor(min(self._workers, len(todo)), "kpl-codec plan") as pool:
            return list(pool.map(function, todo))

    # -- one shard ----------------------------------------------------------------------------

    def advance_shard(
        self, shard_id: str, at: ShardOffset, caps: Caps, tip: Tip | None = None
    ) -> ShardOffset:
        """Where the next batch ends on one shard. Raises DataLoss, StreamUnavailable."""
        peek = self._peek(shard_id, at)
        if not peek.records:
            if peek.ended:
                return replace(at, ended=True)
            return TRIM_HORIZON if peek.lost else at
        first = Found.of(peek.records[0])
        end = self._end(shard_id, peek, caps)
        if tip is not None and (beyond := tip.beyond()) is not None:
            if int(first.sequence_number) >= int(beyond):
                return at
            limit = int(beyond) - (end.kind == "after")
            if int(end.value) > limit:
                end = ShardOffset("before", beyond)
        if at.symbolic or peek.lost:
            end = replace(end, first=first.sequence_number, lost=peek.lost)
        now = Found.of(peek.records[-1]).time + peek.behind
        if caps.piece is not None and now - first.time > caps.piece:
            end = replace(end, marks=self._marks(shard_id, first, end, caps.piece))
        return end

    def _peek(self, shard_id: str, at: ShardOffset) -> _Peek:
        """The first two records from ``at`` on."""
        known = self._idle.pop(shard_id, None)
        # An iterator that is about to expire would be made anew at a record nobody has looked at again.
        fresh = known is not None and self._clock() - known[2] < _ITERATOR_LIFE
        if known is not None and fresh and known[0].same_place(at):
            peek = self._look(known[1], [])
        elif at.symbolic:
            try:
                peek = self._look(self._cursor(shard_id, start_of(at)), [])
            except StreamUnavailable as error:
                if error.code != "ResourceNotFoundException":
                    raise
                peek = self._lost(shard_id, at, "shard-gone", error.fields["reason"])
        else:
            peek = self._peek_at_record(shard_id, at)
        if not peek.records and not peek.ended and not peek.lost:
            self._idle[shard_id] = at, peek.cursor, self._clock()
        return peek

    def _look(self, cursor: ShardCursor, records: list[dict[str, Any]], limit: int = 2) -> _Peek:
        while True:
            answer = cursor.fetch(limit)
            records = records + answer.records
            if records or answer.at_tip(limit):
                return _Peek(records, answer.behind, answer.at_tip(limit), answer.ended, cursor)

    def _peek_at_record(self, shard_id: str, at: ShardOffset) -> _Peek:
        """From a record on that must still be there: only then is nothing missing behind it."""
        # SPK-60: "Where the record that a batch starts after or at is gone, the records behind it may be
        # too: this MUST be an error, or be logged and read on with failOnDataLoss false."
        code, reason = "", ""
        for look in range(_LOOKS):
            if look:
                self._sleep(0.5)
            cursor = self._cursor(shard_id, At("AT_SEQUENCE_NUMBER", at.value))
            try:
                peek = self._look(cursor, [], 3)
                if peek.records and peek.records[0]["SequenceNumber"] == at.value:
                    if at.kind == "before":
                        return peek
                    del peek.records[0]
                    if peek.records or peek.at_tip:
                        return peek
                    return self._look(cursor, [])
                code, reason = "trimmed", "the record is past retention, or of an earlier life of the stream"
            except StreamUnavailable as error:
                if error.code not in GONE:
                    raise
                code, reason = GONE[error.code], f"{error.fields['operation']}: {error.fields['reason']}"
        return self._lost(shard_id, at, code, reason)

    def _lost(self, shard_id: str, at: ShardOffset, code: str, reason: str) -> _Peek:
        """What is left of a shard, if losing records is allowed."""
        loss = DataLoss(shard_id=shard_id, sequence_number=at.value, code=code, reason=reason)
        if self._fail_on_data_loss:
            raise loss
        _log.warning("%s", loss)
        cursor = self._cursor(shard_id, At("TRIM_HORIZON"))
        if code == "shard-gone":
            cursor.ended = True
        peek = self._look(cursor, [])
        if not at.symbolic:
            # Whatever the service says of the record: what lies before it was read.
            low = int(at.value) + (at.kind == "after")
            while peek.records and int(peek.records[-1]["SequenceNumber"]) < low:
                peek = self._look(cursor, [], MOST_RECORDS)
            peek.records = [found for found in peek.records if int(found["SequenceNumber"]) >= low]
        peek.lost = True
        return peek

    def _end(self, shard_id: str, peek: _Peek, caps: Caps) -> ShardOffset:
        """The end of a batch that begins with ``peek``, whatever came since."""
        # SPK-59: "Finding the end of a batch MUST NOT take reading the batch, unless an exact limit of
        # records is asked for."
        first, last = Found.of(peek.records[0]), Found.of(peek.records[-1])
        if caps.records is not None:
            return self._walk_exactly(peek, caps.records)
        now = last.time + peek.behind
        edge = None if caps.span is None else first.time + caps.span
        if peek.at_tip and (edge is None or last.time < edge or last == first):
            return ShardOffset("after", last.sequence_number, peek.ended, behind=0)
        if edge is not None and edge < now:
            found = self._probe(shard_id, edge)
            if found is not None and found.after(first):
                return ShardOffset("before", found.sequence_number, behind=max(0, now - found.time))
        # Nothing at or after the edge: then all there is lies before it.
        return self._to_tip(shard_id, peek, last, now)

    def _to_tip(self, shard_id: str, peek: _Peek, last: Found, now: int) -> ShardOffset:
        cursor, lag = peek.cursor, _FIRST_LAG
        while now - lag > last.time:
            found = self._probe(shard_id, now - lag)
            if found is not None and found.after(last):
                cursor, last = (
                    self._cursor(shard_id, At("AFTER_SEQUENCE_NUMBER", found.sequence_number)),
                    found,
                )
                break
            lag *= 8
        behind = peek.behind
        for _ in range(_WALK_CALLS):
            answer = cursor.fetch(MOST_RECORDS)
            if answer.records:
                last = Found.of(answer.records[-1])
            behind = answer.behind
            if answer.at_tip(MOST_RECORDS):
                break
        return ShardOffset("after", last.sequence_number, cursor.ended, behind=behind)

    def _walk_exactly(self, peek: _Peek, most: int) -> ShardOffset:
        """At most ``most`` records."""
        # SPK-57: "A limit of records per shard and batch MUST hold exactly."
        kept = peek.records[:most]
        last, count = kept[-1], len(kept)
        at_tip, behind = peek.at_tip and len(kept) == len(peek.records), peek.behind
        while count < most and not at_tip:
            limit = min(MOST_RECORDS, most - count)
            answer: Answer = peek.cursor.fetch(limit)
            count += len(answer.records)
            last = answer.records[-1] if answer.records else last
            at_tip, behind = answer.at_tip(limit), answer.behind
        whole = len(kept) == len(peek.records)
        return ShardOffset("after", last["SequenceNumber"], whole and peek.cursor.ended, behind=behind)

    def _probe(self, shard_id: str, when: int) -> Found | None:
        """The first record at or after a time."""
        peek = self._look(self._cursor(shard_id, At("AT_TIMESTAMP", when)), [], 1)
        return Found.of(peek.records[0]) if peek.records else None

    def _marks(self, shard_id: str, first: Found, end: ShardOffset, piece: int) -> tuple[str, ...]:
        """Records that cut a long batch into pieces of about ``piece`` ms of arrival time."""
        cursor = self._cursor(shard_id, At("AT_SEQUENCE_NUMBER", end.value))
        peek = self._look(cursor, [], 1)
        if not peek.records:
            return ()
        span = Found.of(peek.records[0]).time - first.time
        count = min(-(-span // piece), _MOST_MARKS + 1)
        marks: list[str] = []
        at = first
        for number in range(1, count):
            found = self._probe(shard_id, first.time + span * number // count)
            if found is not None and found.after(at) and int(found.sequence_number) < int(end.value):
                marks.append(found.sequence_number)
                at = found
        return tuple(marks)
