"""Plans the batches of a stream on the driver: which shards may be read, and where the next batch ends. Each
shard is asked (`shard_planner`), many at the same time.
"""

from __future__ import annotations

from collections import deque
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
    created_again,
    identity_of,
    impossible,
    of_another_life,
    ready,
    with_beginning,
    with_listed,
)
from .positions import Position, check_position
from .probes import Probe, Records, size_of
from .shard_planner import ReadLimits, ShardPlanner

_Result = TypeVar("_Result")
#: Bytes of records that the partitions of a batch carry together.
_MOST_CARRIED: Final = 8 * 1024 * 1024
#: Milliseconds after which an offset is written only to renew its times: six hours, a quarter of the shortest
#: retention.
_RENEW_AFTER: Final = 6 * 3600 * 1000
#: Seconds before each further listing, where one may be older than what the query has read.
_LISTED_AGAIN: Final = (1, 2, 4, 8)


class Planner:
    """Moves offsets of one stream forward. Not thread-safe."""

    def __init__(self, access: KinesisReader, *, workers: int = 32) -> None:
        self._access, self._workers = access, workers
        self._stream = access.options.stream.name
        self._shards: dict[str, ShardPlanner] = {}
        self._tasks_read: set[str] = set()
        self._carried_bytes = 0  # bytes of the records that the probes of this plan hold
        self._size = 0  # bytes of a record, about, on the shard with the largest
        self._lineage: Lineage | None = None
        self._listed_at = 0.0
        self._listed = 0
        self._tips: dict[str, LatestPosition] | None = None

    def lineage(self, *, fresh: bool = False) -> Lineage:
        """The shards that hold records, closed ones too. Listed again after the interval that the options
        give, and after a shard ended: then its children are listed."""
        access = self._access
        age = access.clock() - self._listed_at
        if self._lineage is None or fresh or age >= access.options.describe_interval:
            self._listed = access.now_ms()
            self._lineage = access.lineage()
            self._listed_at = access.clock()
        return self._lineage

    def shard(self, shard_id: str) -> ShardPlanner:
        if shard_id not in self._shards:
            self._shards[shard_id] = ShardPlanner(shard_id, self._access)
        return self._shards[shard_id]

    def check(self, option: str, position: Position) -> None:
        """Raise OptionError for a position that names a shard that is not listed, or a time to come."""
        check_position(option, position, self.lineage(), self._access.now_ms())

    def begin_at(self, position: Position) -> StreamOffset:
        """The start of every present shard. LATEST is now, by this machine's clock. Where ``position`` names
        shards, their ancestors count as drained and all others begin at TRIM_HORIZON. Raises OptionError."""
        lineage = self.lineage(fresh=True)
        self.check("startingPosition", position)
        now = self._access.now_ms()

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
        offset = StreamOffset(self._stream, shards, self._listed, *identity_of(lineage))
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

    def at_tips(self, position: Position) -> StreamOffset:
        """Every shard at its tip, whatever the query has read, for a Spark that does not give the query's
        offset. ``initial`` is where a query that begins at ``position`` begins."""
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
        return StreamOffset(self._stream, tips, self._listed, *identity_of(lineage))

    def stop_at_tip(self) -> None:
        """From now on `advance` stops at the present end of the stream (Trigger.AvailableNow)."""
        # SPK-58: "Under Trigger.AvailableNow a query MUST read every record that was there when it
        # started and none that came after, and then end."
        shard_ids = [*self.lineage(fresh=True)]
        self._tips = self.each(lambda shard_id: self.shard(shard_id).tip(), shard_ids)
        for shard_id in shard_ids:
            self.shard(shard_id).forget()  # recently idle shards are asked, too

    def refuse_unread(self, start: StreamOffset) -> None:
        """Raise DataLoss, unless loss is allowed, for shards of an earlier life of the stream, and for those
        that were unread for too long. Raises OffsetError as `lineage_of` does."""
        self._lineage = None
        anew = self._begun_anew(start, self.lineage_of(start))
        for shard_id, ends in start.shards.items():
            if shard_id not in anew and not ends.place.names_record and not ends.drained:
                self.shard(shard_id).judge_unread(ends)

    def lineage_of(self, offset: StreamOffset) -> Lineage:
        """The shards of the stream. Raises OffsetError unless it is the one that ``offset`` is of."""
        lineage = self.lineage()
        check_identity(offset, lineage)
        for seconds in _LISTED_AGAIN:
            if impossible(offset, lineage) is None:
                return lineage
            self._access.sleep(seconds)
            lineage = self.lineage(fresh=True)
            check_identity(offset, lineage)
        if (reason := impossible(offset, lineage)) is not None:
            raise OffsetError(reason=f"it is of another stream of this name: {reason}")
        return lineage

    def advance(self, start: StreamOffset, caps: ReadLimits) -> StreamOffset:
        """Where the batch after ``start`` ends: the same places if there is nothing to read. Raises DataLoss,
        OffsetError, StreamUnavailable."""
        self._begin(start)
        lineage = self.lineage_of(start)
        anew = self._begun_anew(start, lineage)
        created = None if anew else start.created  # of the earlier life
        before = replace(start, shards={**start.shards, **anew}, created=created)
        listed = with_listed(before, lineage, self._listed)
        if self._tips is not None:
            # A later shard has nothing for this run, and must not prolong it.
            mine = self._tips.keys() | start.shards.keys()
            listed = replace(listed, shards={key: ends for key, ends in listed.shards.items() if key in mine})
        starts = {
            key: ends
            for key, ends in listed.shards.items()
            if not ends.drained
            and ready(key, listed, lineage)
            # A shard that is no longer listed is read, too: then it is noticed that it is gone.
            and (self._tips is None or key in self._tips or key not in lineage)
        }
        moved = self._next_ends(starts, caps)
        if self._was_created_again(listed, moved):
            return self.advance(start, caps)
        for shard_id, ends in moved.items():
            if ends.drained:
                self._lineage = None  # its children are listed now
            if shard_id in anew:
                moved[shard_id] = replace(ends, start_gone=True)
        return replace(listed, shards={**listed.shards, **moved})

    def _begin(self, start: StreamOffset) -> None:
        """The tasks of the batch before ``start`` have ended."""
        for shard_id in self._tasks_read:  # when a task made its last call is not known: it may be now
            self.shard(shard_id).pace.record_call("get_records")
            self.shard(shard_id).pace.record_call("get_shard_iterator")
        self._tasks_read.clear()
        drained = {key for key, ends in start.shards.items() if ends.drained}
        self._shards = {key: shard for key, shard in self._shards.items() if key not in drained}
        for shard in self._shards.values():
            shard.carried = None
        self._carried_bytes = 0

    def carried(self, pieces: Iterable[ShardRange]) -> tuple[Mapping[ShardRange, Records], list[ShardRange]]:
        """Pieces with their records, and pieces that a task must read, with the time when it may begin."""
        # SPK-85: "Records that the planner gives the tasks MUST NOT change what a batch reads."
        # Only a piece that is equal to the planned one gets them. Nothing of this is written down.
        inline: dict[ShardRange, Records] = {}
        unread: list[ShardRange] = []
        size = 0
        for piece in pieces:
            shard = self.shard(piece.shard_id)
            if shard.carried is not None and shard.carried[0] == piece:
                size += size_of(shard.carried[1])
                if size <= _MOST_CARRIED:
                    inline[piece] = shard.carried[1]
                    continue
            wait = max(shard.pace.delay("get_records"), shard.pace.delay("get_shard_iterator"))
            unread.append(piece._replace(not_before=self._access.now() + wait))
            self._tasks_read.add(piece.shard_id)
        return inline, unread

    def _next_ends(self, starts: dict[str, BatchEnd], caps: ReadLimits) -> dict[str, BatchEnd]:
        tips = self._tips or {}
        idle = {key: self.shard(key).not_due(start, len(starts)) for key, start in starts.items()}
        due = [key for key, end in idle.items() if end is None]

        def look(shard_id: str) -> Probe:
            shard = self.shard(shard_id)
            first = shard.look(starts[shard_id], caps.records, self._size)
            self._size = max(self._size, shard.size)
            self._carried_bytes += size_of(first.records)
            if self._carried_bytes > _MOST_CARRIED:  # together the shards may hold too many bytes
                first.records = []
            return first

        # Two rounds: this separates the calls on one shard, so few wait for the shard's budget.
        looks = self.each(look, due)

        def end(shard_id: str) -> BatchEnd:
            return self.shard(shard_id).plan(starts[shard_id], caps, tips.get(shard_id), looks[shard_id])

        return {key: ends for key, ends in idle.items() if ends is not None} | self.each(end, due)

    def _was_created_again(self, listed: StreamOffset, moved: dict[str, BatchEnd]) -> bool:
        # SPK-93: "Where a batch begins with a record that its start does not name, the stream MUST be listed
        # again after that record was seen: the record may be of a later life of the stream."
        if all(ends.first is None for ends in moved.values()):
            return False
        lineage = self.lineage(fresh=True)
        return created_again(listed, lineage) or any(
            key in lineage and of_another_life(listed.shards[key], lineage[key]) for key in moved
        )

    def _begun_anew(self, start: StreamOffset, lineage: Lineage) -> dict[str, BatchEnd]:
        """The shards of an earlier life of the stream, at the beginning of the present one. Raises DataLoss,
        unless loss is allowed."""
        # SPK-90: "Where the stream was deleted and created again, what the query has not read of its earlier
        # life is lost: this MUST be an error, or be logged and each shard read from its first record with
        # failOnDataLoss false."
        anew: dict[str, BatchEnd] = {}
        every = created_again(start, lineage)
        for shard_id, ends in start.shards.items():
            shard = lineage.get(shard_id)
            if shard is not None and (every or of_another_life(ends, shard)):
                reason = "the stream was deleted and created again"
                self.shard(shard_id).report(ends.place, "another-life", reason)
                self.shard(shard_id).forget()
                anew[shard_id] = BatchEnd(TRIM_HORIZON, since=start.listed)
        return anew

    def each(self, function: Callable[[str], _Result], shard_ids: Iterable[str]) -> dict[str, _Result]:
        """``function`` of each shard, many in parallel, because it mostly waits for answers."""
        todo = list(shard_ids)
        if len(todo) < 2:
            return {shard_id: function(shard_id) for shard_id in todo}
        queue, results = deque(todo), dict[str, _Result]()

        def work(_: int) -> None:
            while True:
                try:
                    shard_id = queue.popleft()
                except IndexError:  # the queue is empty
                    return
                try:
                    results[shard_id] = function(shard_id)
                except BaseException:
                    queue.clear()
                    raise

        # A thread takes one shard after the other: a future for each would take longer than planning it.
        threads = min(self._workers, len(todo))
        with ThreadPoolExecutor(threads, "kpl-codec plan") as pool:
            try:
                for _ in pool.map(work, range(threads)):
                    pass
            finally:
                queue.clear()  # after Ctrl-C, too
        return {shard_id: results[shard_id] for shard_id in todo}


def must_be_written(before: StreamOffset, after: StreamOffset) -> bool:
    """Whether ``after`` must be written: it is further, or the times in ``before`` are old."""
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
