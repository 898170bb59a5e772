"""What is known of a stream, and what a listing adds to it. Pure functions.

    learn(known, listing, now)   ->  Known         the map of this listing
                                     Refused       why there is none, and what is known nevertheless

A stream that is deleted and created again under its name begins a new life, with other shards under the same
ids. Only shards that have changed are looked at more closely, so a refresh of 10,000 shards takes a few
milliseconds of the thread that also sends the records.
Specification: spec/08-live-shard-map.md, MAP-11, MAP-16, MAP-18, MAP-20 and MAP-21.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Final, Literal, NamedTuple

from ..errors import ShardMapError
from .lineage import Lineage, agreed, distinct_shards
from .refresh import Listing, StreamSummary
from .sequence_numbers import sequence_hint
from .shard import Distribution, Shard
from .shard_map import NO_ROUTES, Routes, ShardMap, first_hole, undisputed
from .stream_name import Stream

#: After so many contradicting listings in a row, they are believed.
_CONTRADICTIONS: Final = 4
#: Seconds for which a closed shard is known at least.
_CLOSED_TTL: Final = 60.0
#: The longest retention of a stream, in seconds.
_LONGEST_RETENTION: Final = 8760 * 3600.0
_NUMBERED: Final = re.compile(r"shardId-([0-9]{1,20})\Z")


class KnownShards:
    """The shards known after a listing. Never changes. ``all``: every shard of this life that is not
    forgotten, by id. ``listed``: those of the last sound listing. ``stream``: whose they are. What takes long
    (50 ms for 10,000 shards) is made when it is first read: the producer never does."""

    def __init__(
        self,
        all: Mapping[str, Shard],
        listed: Mapping[str, Shard],
        distribution: Distribution,
        stream: Stream | None = None,
    ) -> None:
        self.all = all
        self.listed = listed
        self.distribution: Distribution = distribution
        self.stream = stream
        # Threads share it, and cached_property asks for its __dict__. On CPython 3.11 two threads that are
        # the first to do so can get two, which corrupts memory.
        vars(self)

    @cached_property
    def open_ids(self) -> frozenset[str]:
        """The ids of the open shards of the last sound listing."""
        return frozenset(shard_id for shard_id, shard in self.listed.items() if shard.open)

    @cached_property
    def lineage(self) -> Lineage:
        """Every known shard."""
        return Lineage(self.all.values(), stream=self.stream)

    @cached_property
    def shard_map(self) -> ShardMap | None:
        """Of the last sound listing; None before the first."""
        if not self.listed:
            return None
        return ShardMap(self.listed.values(), self.distribution, stream=self.stream)


class MapChanged(NamedTuple):
    """A refresh has given a map, perhaps the same again. ``recreated``: it is another stream of that name."""

    recreated: bool


class StreamState(NamedTuple):
    """What is known of one life of a stream.

    ``shards``: those seen. ``routes``: the prediction table. ``generation``: how many lives came before.
    ``listed_at``: when the refresh that gave the map began; None before the first map. ``closed``: by id of a
    closed shard when this was noticed.

    For the next listing: ``whole``: the last one had neither gap nor overlap; ``created`` and ``retention``:
    of the stream, in seconds; ``contradictions``: refused listings in a row.
    """

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
    """A listing that gives no map. ``known``: what is known nevertheless. ``disputed``: of a listing with a
    gap or an overlap, the shards that cannot be predicted because of it; None for another listing."""

    error: ShardMapError
    known: StreamState
    disputed: frozenset[str] | None = None


def learn(known: StreamState, listing: Listing, now: float) -> StreamState | RefusedListing:
    """What is known after a listing."""
    try:
        listed = distinct_shards(listing.shards)
        changed = [shard for shard in listed.values() if known.shards.all.get(shard.shard_id) is not shard]
        if not _begins_life(known, listed, changed, listing.summary):
            return _learn(known, listed, changed, listing, now)
        stream = known.shards.stream and known.shards.stream._replace(created=None)
        none = KnownShards({}, {}, known.shards.distribution, stream)
        new_life = StreamState(none, generation=known.generation + 1)
        outcome = _learn(new_life, listed, list(listed.values()), listing, now)
        return outcome if isinstance(outcome, StreamState) else RefusedListing(outcome.error, known)
    except ShardMapError as error:
        contradictions = known.contradictions + (error.code == "contradiction")
        return RefusedListing(error, known._replace(contradictions=contradictions))


def _begins_life(
    known: StreamState, listed: Mapping[str, Shard], changed: Sequence[Shard], summary: StreamSummary | None
) -> bool:
    """Whether a listing is of another life of the stream. Raises ShardMapError(code="contradiction") if it
    fits neither this life at a later time nor another one."""
    # MAP-11: "A stream that is deleted and created again under its name MUST be taken for another one:
    # nothing that was known of the old one is kept."
    created = summary.created if summary is not None else None
    dated = known.created is not None and created is not None
    if not known.shards.all:
        return False
    if dated and created != known.created:
        return True
    newest = max(_number(shard_id) for shard_id in known.shards.all) if changed else -1
    strangers = [shard.shard_id for shard in changed if _is_strange(known, shard, newest)]
    # A closed shard is listed as open, and without its children: this listing is older than the last one.
    reopened = [i for i in known.closed if i in listed and listed[i].open and i not in strangers]
    if reopened:
        with_children = _parents(listed)
        reopened = [shard_id for shard_id in reopened if shard_id not in with_children]
    if not reopened and not (strangers and dated):
        return bool(strangers)
    # MAP-16: "A listing that contradicts what is known MUST be refused, but one that comes a fourth
    # time running MUST be believed: it is another life of the stream."
    if known.contradictions + 1 >= _CONTRADICTIONS:
        return True
    reason = (
        f"{reopened[0]} was closed before"
        if reopened
        else f"{strangers[0]} differs from what was listed before"
    )
    raise ShardMapError(code="contradiction", reason=reason, shard_ids=(*reopened, *strangers))


def _parents(listed: Mapping[str, Shard]) -> set[str]:
    parents = {shard.parent_shard_id for shard in listed.values()}
    parents |= {shard.adjacent_parent_shard_id for shard in listed.values()}
    return {parent for parent in parents if parent is not None}


def _number(shard_id: str) -> int:
    """The number in the id that AWS gives a shard; -1 in another id."""
    match = _NUMBERED.match(shard_id)
    return int(match[1]) if match else -1


def _is_strange(known: StreamState, shard: Shard, newest: int) -> bool:
    """Whether a listed shard is none of this life. ``newest``: the highest number of a known shard."""
    before = known.shards.all.get(shard.shard_id)
    if before is not None:
        return before.contradicts(shard)
    # Ids only grow, so a new shard with an old number and no known parent belongs to another stream.
    old_number = shard.open and 0 <= _number(shard.shard_id) <= newest
    return old_number and not any(parent in known.shards.all for parent in shard.parent_shard_ids)


def _learn(
    life: StreamState, listed: Mapping[str, Shard], changed: Sequence[Shard], listing: Listing, now: float
) -> StreamState | RefusedListing:
    """Learn from a listing of this life. ``changed``: its shards that are not as they are known. Raises
    ShardMapError for a listing that contradicts itself or what is known."""
    last, summary = life.shards, listing.summary
    distribution = summary.distribution if summary else last.distribution
    stream = last.stream
    if stream is not None and summary is not None:
        named = summary.stream or stream
        stream = Stream(stream.name, stream.arn or named.arn, named.region, summary.created or stream.created)
    dated = life._replace(listed_at=listing.begun, contradictions=0)
    if summary is not None:
        dated = dated._replace(
            created=summary.created or life.created, retention=summary.retention or life.retention
        )
    same_shards = not changed and listed.keys() == last.listed.keys()
    keep = _CLOSED_TTL if listing.has_closed else dated.retention
    if same_shards and life.whole and (distribution, stream) == (last.distribution, last.stream):
        return _without_expired(dated, listed, now, keep)
    # MAP-12: "A shard listed as open together with a child of it MUST be taken for closed."
    superseded = {shard_id for shard_id in _parents(listed) if shard_id in listed and listed[shard_id].open}
    opened = sorted(
        (shard for shard in listed.values() if shard.open and shard.shard_id not in superseded),
        key=lambda shard: shard.hash_key_range,
    )
    everything = _everything(life, changed)
    hole = first_hole(opened)
    if hole is not None:
        predicted, disputed = undisputed(opened)
        # Nothing is learnt of shards that may be wrong.
        sound = [shard for shard in changed if shard.shard_id not in disputed]
        shards = KnownShards(_everything(life, sound), last.listed, distribution, stream)
        partly = _noted(life, sound, (), now)
        return RefusedListing(
            hole, partly._replace(shards=shards, routes=Routes(predicted), whole=False), disputed
        )
    no_longer_open = superseded | (last.open_ids - {shard.shard_id for shard in opened})
    shown = {shard_id: shard for shard_id, shard in listed.items() if shard_id not in superseded}
    whole = _noted(dated, changed, no_longer_open, now)._replace(
        shards=KnownShards(everything, shown, distribution, stream),
        routes=Routes(opened),
        whole=True,
    )
    return _without_expired(whole, listed, now, keep)


def _without_expired(known: StreamState, listed: Mapping[str, Shard], now: float, keep: float) -> StreamState:
    """Without the closed shards of which the stream holds nothing more. ``keep``: in seconds."""
    # MAP-20: "A closed shard MUST be known for 60 seconds, counted from the refresh that noticed, and then be
    # forgotten when it holds no more records: a listing FROM_TRIM_HORIZON no longer has it, or it has been
    # closed for longer than the stream's retention, or than 365 days where that is not known."
    expired = {i for i, noticed in known.closed.items() if i not in listed and now - noticed > keep}
    if not expired:
        return known
    everything = {i: shard for i, shard in known.shards.all.items() if i not in expired}
    last = known.shards
    return known._replace(
        shards=KnownShards(everything, last.listed, last.distribution, last.stream),
        closed={i: noticed for i, noticed in known.closed.items() if i not in expired},
    )


def _everything(life: StreamState, changed: Sequence[Shard]) -> dict[str, Shard]:
    """All known shards by id, with the changed ones. Raises ShardMapError: a contradiction, a cycle."""
    everything = dict(life.shards.all)
    for shard in changed:
        before = everything.get(shard.shard_id)
        if before is None:
            everything[shard.shard_id] = shard
        elif before.open or not shard.open:  # (what is known to be closed may be listed as open: MAP-12)
            everything[shard.shard_id] = agreed(before, shard)
    if any(
        max(shard.parent_shard_id or "", shard.adjacent_parent_shard_id or "") >= shard.shard_id
        for shard in everything.values()
    ):
        Lineage(everything.values())  # refuses a cycle, in which a parent has a higher id than its child
    return everything


def _noted(
    life: StreamState, changed: Sequence[Shard], no_longer_open: Collection[str], now: float
) -> StreamState:
    """With the shards that have closed."""
    closed = dict(life.closed)
    for shard_id in no_longer_open:
        closed.setdefault(shard_id, now)
    for shard in changed:
        if not shard.open:
            # One that was closed when it was first listed has closed long ago.
            closed.setdefault(shard.shard_id, now if shard.shard_id in life.shards.all else float("-inf"))
    return life._replace(closed=closed)


def shard_of_record(
    known: StreamState, shard_id: str, sequence_number: str, generation: int, answered_at: float
) -> Shard | Literal["unknown", "gone"]:
    """The shard on which a record was stored; ``answered_at`` is when its put was answered.

    ``generation``: of the map when the record was put. The stream may have been deleted and made again since
    the map was listed; a shard of another life has the same id and another range.

        generation | the number is of this shard | listed since the answer | gives
        -----------+-----------------------------+-------------------------+------------------------
        the same   |                             | yes                     | the shard
        the same   | yes, or unknown             | no                      | the shard
        the same   | no                          | no                      | unknown
        another    | yes                         |                         | the shard
        another    | no, or unknown              |                         | gone

    Also unknown for a shard that was never listed. "gone": the record is in a life of the stream that is
    over.
    """
    # MAP-18: "An aggregate MUST NOT be judged by a shard of another life of the stream than the one that
    # stored it. A hint in its sequence number may delay the verdict until the stream was listed again,
    # and tell which of two lives stored it. It decides nothing else."
    shard = known.shards.all.get(shard_id)
    of_this_shard = _made_on(shard, sequence_number) if shard else None
    if known.generation != generation and not of_this_shard:
        return "gone"
    # Equal times do not count: on a coarse clock the listing may have begun before the answer.
    listed_since = known.listed_at is not None and known.listed_at > answered_at
    if shard is None or (of_this_shard is False and not listed_since):
        return "unknown"
    return shard


def _made_on(shard: Shard, sequence_number: str) -> bool | None:
    """Whether this shard gave out the number; None where the numbers give no hint."""
    first, number = sequence_hint(shard.starting_sequence_number), sequence_hint(sequence_number)
    if first is None or number is None or first.shard_id != shard.shard_id:
        return None  # kinesis-local gives the child of a merge the start of its second parent
    return (number.shard_index, number.shard_created) == (first.shard_index, first.shard_created)
