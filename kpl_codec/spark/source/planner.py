"""Plans the batches of a stream on the driver: which shards may be read, and where the next batch ends on
each. `shard_planner` plans one shard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final, TypeVar

from ...aws.cursor import LatestPosition
from ...shards.lineage import Lineage
from ...shards.starting_position import LATEST, TRIM_HORIZON, StartingPosition, at_record, at_time
from .kinesis_reader import KinesisReader
from .offsets import (
    BatchEnd,
    OffsetError,
    ShardRange,
    StreamOffset,
    check_identity,
    contradiction,
    created_later,
    identity_of,
    of_another_life,
    ready,
    with_beginning,
    with_listing,
)
from .positions import OptionError, Position, Start, check_position
from .shard_head import Records, ShardHead, size_of
from .shard_planner import ReadLimits, ShardPlanner

_Result = TypeVar("_Result")
#: The most bytes of records that all partitions of a batch carry together.
_MOST_ATTACHED: Final = 8 * 1024 * 1024
#: Milliseconds after which an offset is written only to renew its times: a quarter of the shortest retention.
_RENEW_AFTER: Final = 6 * 3600 * 1000
#: Seconds before each further listing, if a listing may be older than the records that the query has read.
_LIST_AGAIN_AFTER: Final = (1, 2, 4, 8)


class Planner:
    """Moves offsets of one stream forward. Not thread-safe."""

    def __init__(self, reader: KinesisReader, *, workers: int = 32) -> None:
        self._reader, self._workers = reader, workers
        self._stream = reader.options.stream.name
        self._shards: dict[str, ShardPlanner] = {}
        #: The shards that tasks read in the last batch.
        self._shards_of_tasks: set[str] = set()
        self._attached_bytes = 0  # bytes of the records that this plan has read
        self._size = 0  # about how many bytes a record has on the shard with the largest records
        self._lineage: Lineage | None = None
        self._listing_clock = 0.0
        self._listing_ms = 0
        self._tips: dict[str, LatestPosition] | None = None

    def lineage(self, *, fresh: bool = False) -> Lineage:
        """The shards that hold records, closed ones too. They are listed again after `describe_interval`."""
        reader = self._reader
        age = reader.clock() - self._listing_clock
        if self._lineage is None or fresh or age >= reader.options.describe_interval:
            self._listing_ms = reader.now_ms()
            self._lineage = reader.lineage()
            self._listing_clock = reader.clock()
        return self._lineage

    def shard(self, shard_id: str) -> ShardPlanner:
        if shard_id not in self._shards:
            self._shards[shard_id] = ShardPlanner(shard_id, self._reader)
        return self._shards[shard_id]

    def check(self, option: str, position: Position) -> None:
        """Raise OptionError for a position that names a shard that is not listed, or a time to come."""
        check_position(option, position, self.lineage(), self._reader.now_ms())

    def _go_on(self, offset: StreamOffset) -> StreamOffset:
        """The start of a query that goes on where another one has stopped. Raises OptionError, DataLoss."""
        # SPK-124: "A query that begins at an offset of another one MUST read what that one would have read
        # next, or refuse what that one would have refused."
        try:
            StreamOffset.from_json(offset.to_json(), self._stream)
            self.refuse_unread(offset)
        except OffsetError as error:
            expected = f"an offset of the stream that is read: {error.reason}"
            raise OptionError(option="startingPosition", value=offset.arn, expected=expected) from None
        return replace(offset, shards={key: ends.as_start() for key, ends in offset.shards.items()})

    def begin_at(self, position: Start) -> StreamOffset:
        """The start of every shard. LATEST is now, by this machine's clock. Where ``position`` names shards,
        their ancestors count as drained, and all others begin at TRIM_HORIZON. Raises OptionError; where it
        is an offset, DataLoss."""
        if isinstance(position, StreamOffset):
            return self._go_on(position)
        lineage = self.lineage(fresh=True)
        self.check("startingPosition", position)
        now = self._reader.now_ms()

        def begin(place: StartingPosition) -> BatchEnd:
            place = at_time(now) if place == LATEST else place
            if place.names_record:
                return BatchEnd(place)
            return BatchEnd(place, since=max(now, place.time_ms if place.kind == "AT_TIMESTAMP" else 0))

        named: Mapping[str, StartingPosition] = {} if isinstance(position, StartingPosition) else position
        others = position if isinstance(position, StartingPosition) else TRIM_HORIZON
        above = {shard.shard_id for key in named for shard in lineage.ancestors(key)} - named.keys()
        shards = {
            key: with_beginning(replace(begin(named.get(key, others)), drained=key in above), shard)
            for key, shard in lineage.items()
        }
        offset = StreamOffset(self._stream, shards, self._listing_ms, *identity_of(lineage))
        waiting = [
            shard_id
            for shard_id, ends in shards.items()
            if not ends.drained and not ends.place.names_record and not ready(shard_id, offset, lineage)
        ]
        # A shard may wait long for its parent. Its first record is named, so that its loss is noticed.
        first = self.each(lambda key: self.shard(key).first(shards[key].place), waiting)
        for shard_id, number in first.items():
            if number is not None:
                shards[shard_id] = BatchEnd(at_record(number))
        return offset

    def at_tips(self, position: Start) -> StreamOffset:
        """Every shard at its tip, for a Spark that gives no offset of the query. It fits a query that goes
        on, and a new one, which begins with the records that ``initial`` names. Raises OptionError for an
        offset."""
        # SPK-124: "A query that begins at an offset of another one MUST read what that one would have read
        # next, or refuse what that one would have refused." (The tips do not say what became of the shards
        # of an offset: which were drained, whose children have lost records, which had an earlier life.)
        if isinstance(position, StreamOffset):
            expected = "no offset before Spark 4.2, which gives the first batch no start"
            raise OptionError(option="startingPosition", value="an offset", expected=expected)
        begin = self.begin_at(position)
        lineage = self.lineage()

        def tip_of(shard_id: str) -> BatchEnd:
            shard = self.shard(shard_id)
            initial = begin.shards.get(shard_id, BatchEnd(TRIM_HORIZON))
            *_, end = shard.ends(TRIM_HORIZON, ReadLimits(), shard.tip())
            begins = None if initial.drained else shard.first(initial.place)
            tip = BatchEnd(
                end.place, end.drained, end.since, first=shard.first(TRIM_HORIZON), initial=begins or ""
            )
            return with_beginning(tip, lineage[shard_id])

        tips = self.each(tip_of, lineage)
        return StreamOffset(self._stream, tips, self._listing_ms, *identity_of(lineage))

    def stop_at_tip(self) -> None:
        """Let `advance` stop at the end that the stream has now (Trigger.AvailableNow)."""
        # SPK-58: "Under Trigger.AvailableNow a query MUST read every record that was there when it
        # started and none that came after, and then end."
        shard_ids = [*self.lineage(fresh=True)]
        self._tips = self.each(lambda shard_id: self.shard(shard_id).tip(), shard_ids)
        for shard_id in shard_ids:
            self.shard(shard_id).forget()  # so that shards that were idle a moment ago are read, too

    def refuse_unread(self, start: StreamOffset) -> None:
        """Report the loss of shards of an earlier life of the stream, of shards that were unread for too
        long, and of shards that are no longer listed. Raises DataLoss, OffsetError."""
        self._lineage = None
        lineage = self.lineage_of(start)
        anew = self._begun_anew(start, lineage)
        for shard_id, ends in start.shards.items():
            if shard_id in anew or ends.drained:
                continue
            if shard_id not in lineage:
                self.shard(shard_id).report(ends.place, "shard-gone", "the stream no longer lists it")
            elif not ends.place.names_record:
                self.shard(shard_id).check_unread(ends)

    def lineage_of(self, offset: StreamOffset) -> Lineage:
        """The shards of the stream. Raises OffsetError unless it is the one that ``offset`` is of."""
        lineage, pauses = self.lineage(), iter(_LIST_AGAIN_AFTER)
        check_identity(offset, lineage)
        while (reason := contradiction(offset, lineage)) is not None:
            if (seconds := next(pauses, None)) is None:
                raise OffsetError(reason=f"it is of another stream of this name: {reason}")
            self._reader.sleep(seconds)
            lineage = self.lineage(fresh=True)
            check_identity(offset, lineage)
        return lineage

    def advance(self, start: StreamOffset, limits: ReadLimits) -> StreamOffset:
        """Where the batch after ``start`` ends: the same places if there is nothing to read. Raises DataLoss,
        OffsetError, StreamUnavailable."""
        self._begin(start)
        lineage = self.lineage_of(start)
        anew = self._begun_anew(start, lineage)
        created = None if anew else start.created  # of the earlier life
        before = replace(start, shards={**start.shards, **anew}, created=created)
        listed = with_listing(before, lineage, self._listing_ms)
        if self._tips is not None:
            # A shard that was opened later has no records for this run, and must not prolong it.
            this_run = self._tips.keys() | start.shards.keys()
            shards = {key: ends for key, ends in listed.shards.items() if key in this_run}
            listed = replace(listed, shards=shards)
        starts = {
            key: ends
            for key, ends in listed.shards.items()
            if not ends.drained
            and ready(key, listed, lineage)
            # A shard that is no longer listed is read, too, so that its loss is noticed.
            and (self._tips is None or key in self._tips or key not in lineage)
        }
        moved = self._next_ends(starts, limits)
        if self._was_created_again(listed, moved):
            return self.advance(start, limits)
        for shard_id, ends in moved.items():
            if ends.drained:
                self._lineage = None  # its children are listed now
            if shard_id in anew:
                moved[shard_id] = replace(ends, start_gone=True)
        return replace(listed, shards={**listed.shards, **moved})

    def _begin(self, start: StreamOffset) -> None:
        """Begin to plan the batch after ``start``: the tasks of the batch before it have ended."""
        for shard_id in self._shards_of_tasks:  # when a task made its last call is not known: perhaps now
            self.shard(shard_id).pace.record_call("get_records")
            self.shard(shard_id).pace.record_call("get_shard_iterator")
        self._shards_of_tasks.clear()
        drained = {key for key, ends in start.shards.items() if ends.drained}
        self._shards = {key: shard for key, shard in self._shards.items() if key not in drained}
        for shard in self._shards.values():
            shard.attached = None
        self._attached_bytes = 0

    def take_records(
        self, pieces: Iterable[ShardRange]
    ) -> tuple[Mapping[ShardRange, Records], list[ShardRange]]:
        """The records of the pieces that the planner has read, and the pieces that tasks must read, with the
        time when each may begin."""
        # SPK-85: "Records that the planner gives the tasks MUST NOT change what a batch reads."
        # Only a piece that equals the planned one gets the records; no offset holds them.
        records_of: dict[ShardRange, Records] = {}
        unread: list[ShardRange] = []
        size = 0
        for piece in pieces:
            shard = self.shard(piece.shard_id)
            if shard.attached is not None and shard.attached[0] == piece:
                size += size_of(shard.attached[1])
                if size <= _MOST_ATTACHED:
                    records_of[piece] = shard.attached[1]
                    continue
            wait = max(shard.pace.delay("get_records"), shard.pace.delay("get_shard_iterator"))
            unread.append(piece._replace(not_before=self._reader.now() + wait))
            self._shards_of_tasks.add(piece.shard_id)
        return records_of, unread

    def _next_ends(self, starts: dict[str, BatchEnd], limits: ReadLimits) -> dict[str, BatchEnd]:
        tips = self._tips or {}
        idle = {key: self.shard(key).end_if_idle(start, len(starts)) for key, start in starts.items()}
        due = [key for key, end in idle.items() if end is None]

        def peek(shard_id: str) -> ShardHead:
            shard = self.shard(shard_id)
            head = shard.peek(starts[shard_id], limits.records, self._size)
            self._size = max(self._size, shard.size)
            self._attached_bytes += size_of(head.records)
            if self._attached_bytes > _MOST_ATTACHED:  # all shards' records take too much memory
                head.records = []
            return head

        # Two rounds keep the calls on one shard apart, so that few wait for the shard's limit.
        heads = self.each(peek, due)

        def end(shard_id: str) -> BatchEnd:
            return self.shard(shard_id).plan(starts[shard_id], limits, tips.get(shard_id), heads[shard_id])

        return {key: ends for key, ends in idle.items() if ends is not None} | self.each(end, due)

    def _was_created_again(self, listed: StreamOffset, moved: dict[str, BatchEnd]) -> bool:
        # SPK-93: "Where a batch begins with a record that its start does not name, the stream MUST be listed
        # again after that record was seen: the record may be of a later life of the stream."
        if all(ends.first is None for ends in moved.values()):
            return False
        lineage = self.lineage(fresh=True)
        return created_later(listed, lineage) or any(
            key in lineage and of_another_life(listed.shards[key], lineage[key]) for key in moved
        )

    def _begun_anew(self, start: StreamOffset, lineage: Lineage) -> dict[str, BatchEnd]:
        """The offset's shards of an earlier life of the stream, at the beginning of the present one. Raises
        DataLoss."""
        # SPK-90: "Where the stream was deleted and created again, what the query has not read of its earlier
        # life is lost: this MUST be an error, or be logged and each shard read from its first record with
        # failOnDataLoss false."
        anew: dict[str, BatchEnd] = {}
        every = created_later(start, lineage)
        for shard_id, ends in start.shards.items():
            shard = lineage.get(shard_id)
            if shard is not None and (every or of_another_life(ends, shard)):
                reason = "the stream was deleted and created again"
                self.shard(shard_id).report(ends.place, "another-life", reason)
                self.shard(shard_id).forget()
                anew[shard_id] = BatchEnd(TRIM_HORIZON, since=start.listed)
        return anew

    def each(self, function: Callable[[str], _Result], shard_ids: Iterable[str]) -> dict[str, _Result]:
        """``function`` of each shard, many at a time. The first error is raised, and no further shard is
        begun."""
        keys = list(shard_ids)
        if len(keys) < 2:
            return {key: function(key) for key in keys}
        with ThreadPoolExecutor(min(self._workers, len(keys)), "kpl-codec plan") as pool:
            return dict(zip(keys, pool.map(function, keys), strict=True))


def must_be_written(before: StreamOffset, after: StreamOffset) -> bool:
    """Whether Spark must write the offset ``after``: it is further than ``before``, or the times of
    ``before`` are old."""
    if before.shards.keys() != after.shards.keys():
        return True
    dates = [(before.listed, after.listed)]
    for shard_id, ends in after.shards.items():
        start = before.shards[shard_id]
        if (start.place, start.drained) != (ends.place, ends.drained):
            return True
        if start.began != ends.began and not ends.place.names_record:
            return True
        dates.append((start.since or before.listed, ends.since))
    return any(new is not None and new - (old or 0) > _RENEW_AFTER for old, new in dates)
