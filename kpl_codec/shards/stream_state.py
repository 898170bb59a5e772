"""What is known of a stream, and what a listing of its shards adds to that. Pure functions.

    learn(state, listing, now)   ->  StreamState       the map of this listing
                                     RefusedListing    why there is no map, and the state without it

A stream that is deleted and created again under its name begins a new life, with other shards under the same
ids. Only the shards that a listing changes are examined: a refresh of 10,000 shards takes a few milliseconds
of the thread that also sends records. Specification: spec/08-live-shard-map.md, 8.1.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final, Literal, NamedTuple

from ..errors import ShardMapError
from .lineage import Lineage, distinct_shards, merge_shard
from .refresh import Listing, StreamSummary
from .sequence_numbers import sequence_hint
from .shard import Distribution, Shard
from .shard_map import NO_ROUTES, Routes, ShardMap, first_hole, undisputed
from .stream_name import Stream

#: A listing that contradicts the known shards is believed when it comes so many times in a row.
_CONTRADICTIONS: Final = 4
#: The least seconds for which a closed shard is remembered.
_CLOSED_TTL: Final = 60.0
#: The longest retention of a stream, in seconds.
_LONGEST_RETENTION: Final = 8760 * 3600.0
_NUMBERED_ID: Final = re.compile(r"shardId-([0-9]{1,20})\Z")


@dataclass(frozen=True, eq=False)
class KnownShards:
    """The shards known after a listing, by id. Immutable. ``all``: every shard of this life of the stream
    that is not forgotten; ``listed``: those of the last sound listing. The producer never reads the
    properties, which take long (50 ms for 10,000 shards)."""

    all: Mapping[str, Shard]
    listed: Mapping[str, Shard]
    distribution: Distribution
    stream: Stream | None = None

    def __post_init__(self) -> None:
        # Threads share it, and cached_property asks for its __dict__. On CPython 3.11 two threads that are
        # the first to do so can get two, which corrupts memory.
        vars(self)

    @cached_property
    def open_ids(self) -> frozenset[str]:
        """The ids of the open shards of the last sound listing."""
        return frozenset(shard_id for shard_id, shard in self.listed.items() if shard.open)

    @cached_property
    def lineage(self) -> Lineage:
        return Lineage(self.all.values(), stream=self.stream)

    @cached_property
    def shard_map(self) -> ShardMap | None:
        """The map of the last sound listing; None before the first."""
        if not self.listed:
            return None
        return ShardMap(self.listed.values(), self.distribution, stream=self.stream)


class MapChanged(NamedTuple):
    """A refresh has given a map, perhaps the same as before. ``recreated``: since the map before, the stream
    was deleted and created again."""

    recreated: bool


class StreamState(NamedTuple):
    """What is known of one life of a stream. ``generation``: the number of lives before. ``listed_at``: when
    the refresh that gave the map began, in seconds of the caller's clock; None before the first map.
    ``closed``: when each closed shard was first known to be closed, by id. ``whole``: the last listing had no
    gap and no overlap. ``retention``: seconds. ``contradictions``: refused listings in a row."""

    shards: KnownShards = KnownShards({}, {}, "USER_PARTITION_KEY")
    routes: Routes = NO_ROUTES
    generation: int = 0
    listed_at: float | None = None
    closed: Mapping[str, float] = {}
    whole: bool = False
    created: datetime | None = None
    retention: float = _LONGEST_RETENTION
    contradictions: int = 0

    def is_open(self, shard_id: str) -> bool:
        """Whether the shard is known, and not known to be closed."""
        shard = self.shards.all.get(shard_id)
        return shard is not None and shard.open and shard_id not in self.closed


class RefusedListing(NamedTuple):
    """A listing that gives no map. ``state``: the state with what may be learnt from it. ``disputed``: the
    shards that a gap or an overlap concerns; None for another error."""

    error: ShardMapError
    state: StreamState
    disputed: frozenset[str] | None = None


def learn(state: StreamState, listing: Listing, now: float) -> StreamState | RefusedListing:
    try:
        by_id = distinct_shards(listing.shards)
        changed = [shard for shard in by_id.values() if state.shards.all.get(shard.shard_id) is not shard]
        if not _begins_life(state, by_id, changed, listing.summary):
            return _learn(state, by_id, changed, listing, now)
        stream = state.shards.stream and state.shards.stream._replace(created=None)
        nothing = KnownShards({}, {}, state.shards.distribution, stream)
        new_life = StreamState(nothing, generation=state.generation + 1)
        outcome = _learn(new_life, by_id, list(by_id.values()), listing, now)
        return outcome if isinstance(outcome, StreamState) else RefusedListing(outcome.error, state)
    except ShardMapError as error:
        contradictions = state.contradictions + (error.code == "contradiction")
        return RefusedListing(error, state._replace(contradictions=contradictions))


def _begins_life(
    state: StreamState, by_id: Mapping[str, Shard], changed: Sequence[Shard], summary: StreamSummary | None
) -> bool:
    """Whether a listing is of another life of the stream. Raises ShardMapError(code="contradiction") if it
    fits neither this life at a later time nor another one."""
    # MAP-11: "A stream that is deleted and created again under its name MUST be taken for another one:
    # nothing that was known of the old one is kept."
    created = summary.created if summary is not None else None
    has_times = state.created is not None and created is not None
    if not state.shards.all:
        return False
    if has_times and created != state.created:
        return True
    newest = max(_number(shard_id) for shard_id in state.shards.all) if changed else -1
    strange = [shard.shard_id for shard in changed if _is_strange(state, shard, newest)]
    # A closed shard is listed as open, and without its children: this listing is older than the last one.
    reopened = [i for i in state.closed if i in by_id and by_id[i].open and i not in strange]
    if reopened:
        parents = _parents(by_id)
        reopened = [shard_id for shard_id in reopened if shard_id not in parents]
    if not reopened and not (strange and has_times):
        return bool(strange)
    # MAP-16: "A listing that contradicts what is known MUST be refused, but one that comes a fourth
    # time running MUST be believed: it is another life of the stream."
    if state.contradictions + 1 >= _CONTRADICTIONS:
        return True
    if reopened:
        reason = f"{reopened[0]} was closed before"
    else:
        reason = f"{strange[0]} differs from what was listed before"
    raise ShardMapError(code="contradiction", reason=reason, shard_ids=(*reopened, *strange))


def _parents(by_id: Mapping[str, Shard]) -> set[str]:
    return {parent for shard in by_id.values() for parent in shard.parent_shard_ids}


def _number(shard_id: str) -> int:
    match = _NUMBERED_ID.match(shard_id)
    return int(match[1]) if match else -1


def _is_strange(state: StreamState, shard: Shard, newest: int) -> bool:
    """Whether a listed shard is of another life of the stream. ``newest``: the highest number of a known
    shard."""
    before = state.shards.all.get(shard.shard_id)
    if before is not None:
        return before.contradicts(shard)
    # Ids only grow, so a new shard with an old number and no known parent belongs to another stream.
    old_number = shard.open and 0 <= _number(shard.shard_id) <= newest
    return old_number and not any(parent in state.shards.all for parent in shard.parent_shard_ids)


def _learn(
    life: StreamState, by_id: Mapping[str, Shard], changed: Sequence[Shard], listing: Listing, now: float
) -> StreamState | RefusedListing:
    """The state after a listing of this life. ``changed``: its shards that differ from the known ones. Raises
    ShardMapError for a listing that contradicts itself or the known shards."""
    last, summary = life.shards, listing.summary
    distribution, stream = last.distribution, last.stream
    state = life._replace(listed_at=listing.begun, contradictions=0)
    if summary is not None:
        distribution = summary.distribution
        created, retention = summary.created or life.created, summary.retention or life.retention
        state = state._replace(created=created, retention=retention)
        if stream is not None:
            described = summary.stream or stream
            arn, created = stream.arn or described.arn, summary.created or stream.created
            stream = Stream(stream.name, arn, described.region, created)
    closed_ttl = _CLOSED_TTL if listing.has_closed else state.retention
    same_shards = not changed and by_id.keys() == last.listed.keys()
    if same_shards and life.whole and (distribution, stream) == (last.distribution, last.stream):
        return _without_expired(state, by_id, now, closed_ttl)
    # MAP-12: "A shard listed as open together with a child of it MUST be taken for closed."
    superseded = {shard_id for shard_id in _parents(by_id) if shard_id in by_id and by_id[shard_id].open}
    open_shards = sorted(
        (shard for shard in by_id.values() if shard.open and shard.shard_id not in superseded),
        key=lambda shard: shard.hash_key_range,
    )
    everything = _all_shards(life, changed)
    hole = first_hole(open_shards)
    if hole is not None:
        predictable, disputed = undisputed(open_shards)
        # Shards that may be wrong are left out.
        sound = [shard for shard in changed if shard.shard_id not in disputed]
        shards = KnownShards(_all_shards(life, sound), last.listed, distribution, stream)
        partial = life._replace(
            shards=shards,
            routes=Routes(predictable),
            closed=_closed_shards(life, sound, (), now),
            whole=False,
        )
        return RefusedListing(hole, partial, disputed)
    no_longer_open = superseded | (last.open_ids - {shard.shard_id for shard in open_shards})
    listed = {shard_id: shard for shard_id, shard in by_id.items() if shard_id not in superseded}
    state = state._replace(
        shards=KnownShards(everything, listed, distribution, stream),
        routes=Routes(open_shards),
        closed=_closed_shards(life, changed, no_longer_open, now),
        whole=True,
    )
    return _without_expired(state, by_id, now, closed_ttl)


def _without_expired(state: StreamState, by_id: Mapping[str, Shard], now: float, ttl: float) -> StreamState:
    # MAP-20: "A closed shard MUST be known for 60 seconds, counted from the refresh that noticed, and then be
    # forgotten when it holds no more records: a listing FROM_TRIM_HORIZON no longer has it, or it has been
    # closed for longer than the stream's retention, or than 365 days where that is not known."
    expired = {i for i, since in state.closed.items() if i not in by_id and now - since > ttl}
    if not expired:
        return state
    everything = {i: shard for i, shard in state.shards.all.items() if i not in expired}
    last = state.shards
    return state._replace(
        shards=KnownShards(everything, last.listed, last.distribution, last.stream),
        closed={i: since for i, since in state.closed.items() if i not in expired},
    )


def _all_shards(life: StreamState, changed: Sequence[Shard]) -> dict[str, Shard]:
    """All known shards by id, with the changed ones. Raises ShardMapError."""
    everything = dict(life.shards.all)
    for shard in changed:
        before = everything.get(shard.shard_id)
        if before is None:
            everything[shard.shard_id] = shard
        elif before.open or not shard.open:  # (a closed shard may be listed as open: MAP-12)
            everything[shard.shard_id] = merge_shard(before, shard)
    if any(
        max(shard.parent_shard_id or "", shard.adjacent_parent_shard_id or "") >= shard.shard_id
        for shard in everything.values()
    ):
        Lineage(everything.values())  # refuses a cycle, in which a parent has a higher id than its child
    return everything


def _closed_shards(
    life: StreamState, changed: Sequence[Shard], no_longer_open: Collection[str], now: float
) -> dict[str, float]:
    """The closed shards by id, and since when each is known to be closed."""
    closed = dict(life.closed)
    for shard_id in no_longer_open:
        closed.setdefault(shard_id, now)
    for shard in changed:
        if not shard.open:
            # A shard that was closed when it was first listed may have closed long ago.
            closed.setdefault(shard.shard_id, now if shard.shard_id in life.shards.all else float("-inf"))
    return closed


def shard_of_record(
    state: StreamState, shard_id: str, sequence_number: str, generation: int, answered_at: float
) -> Shard | Literal["unknown", "gone"]:
    """The shard on which a record was stored. ``answered_at``: when the response of its PutRecords
    call came.

    ``generation``: that of the map when the record was put. The stream may have been deleted and created
    again since the map was listed; a shard of another life has the same id and another range.

        generation | the number is of this shard | listed since the answer | returns
        -----------+-----------------------------+-------------------------+------------------------
        the same   |                             | yes                     | the shard
        the same   | yes, or unknown             | no                      | the shard
        the same   | no                          | no                      | unknown
        another    | yes                         |                         | the shard
        another    | no, or unknown              |                         | gone

    "unknown": also a shard that was never listed. "gone": the life of the stream that has the record is over.
    """
    # MAP-18: "An aggregate MUST NOT be judged by a shard of another life of the stream than the one that
    # stored it. A hint in its sequence number may delay the verdict until the stream was listed again,
    # and tell which of two lives stored it. It decides nothing else."
    shard = state.shards.all.get(shard_id)
    of_this_shard = _is_number_of(shard, sequence_number) if shard else None
    if state.generation != generation and not of_this_shard:
        return "gone"
    # Equal times do not count: on a coarse clock the listing may have begun before the answer.
    listed_since = state.listed_at is not None and state.listed_at > answered_at
    if shard is None or (of_this_shard is False and not listed_since):
        return "unknown"
    return shard


def _is_number_of(shard: Shard, sequence_number: str) -> bool | None:
    """Whether this shard gave out the sequence number; None if the numbers have no hint."""
    first, number = sequence_hint(shard.starting_sequence_number), sequence_hint(sequence_number)
    if first is None or number is None or first.shard_id != shard.shard_id:
        return None  # kinesis-local gives the child of a merge the start of its second parent
    return (number.shard_index, number.shard_created) == (first.shard_index, first.shard_created)
