"""The shards of a stream, as far as its listings tell. No I/O and no clock.

    Listing                        one listing, while its responses come in
    KnownShards                    what is known of the stream: immutable
    learn(known, listing, now)     what is known after a listing, and why it gives no complete map

A listing is no snapshot: it may have parents together with their children, or be older than the one before. A
stream that is deleted and created again under its name begins a new life, with other shards under the same
ids. Only the shards that a listing changes are examined: a refresh of 10,000 shards takes a few milliseconds
of the thread that also sends records. Specification: spec/08-live-shard-map.md, 8.1.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from ..errors import ShardMapError
from .lineage import Lineage, distinct_shards, merge_shard
from .sequence_numbers import sequence_hint
from .shard import Distribution, Shard, shards_of_pages
from .shard_map import NO_ROUTES, Routes, ShardMap, first_hole, undisputed
from .stream_name import Stream, stream_of_pages

ShardFilterType = Literal["AT_LATEST", "FROM_TRIM_HORIZON"]
Operation = Literal["ListShards", "DescribeStreamSummary"]
#: How many shards a page has.
_MAX_RESULTS: Final = 1000
#: Pages for 1,000,000 shards, more than any stream has, and 100 more.
_MOST_PAGES: Final = 1100
#: A listing that contradicts the known shards is believed when it comes so many times in a row.
_CONTRADICTIONS: Final = 4
#: The least seconds for which a closed shard is remembered.
_CLOSED_TTL: Final = 60.0
#: The longest retention of a stream, in seconds.
_LONGEST_RETENTION: Final = 8760 * 3600.0
_NUMBERED_ID: Final = re.compile(r"shardId-([0-9]{1,20})\Z")


class Listing:
    """One listing of a stream: a call of DescribeStreamSummary if wanted, then each page of ListShards.

    ``begun``: in seconds of the caller's clock; the listing shows every reshard before. ``shards``: those of
    the pages so far. ``has_closed``: with every closed shard that still holds records. What
    DescribeStreamSummary says, each None if it does not: ``created``, when this life of the stream began;
    ``distribution``; ``retention`` in seconds; ``stream``, as the response names it.
    """

    def __init__(
        self, begun: float, stream: Mapping[str, Any], shard_filter: ShardFilterType, *, describe: bool
    ) -> None:
        self.begun = begun
        self.shards: list[Shard] = []
        self.has_closed = shard_filter == "FROM_TRIM_HORIZON"
        self.created: datetime | None = None
        self.distribution: Distribution | None = None
        self.retention: float | None = None
        self.stream: Stream | None = None
        self._argument = stream
        self._filter = shard_filter
        self._describe = describe
        self._next_token: str | None = None
        self._tokens: set[str] = set()

    def next_call(self) -> tuple[Operation, dict[str, Any]]:
        """The call to make, and its arguments."""
        if self._describe:
            return "DescribeStreamSummary", dict(self._argument)
        # MAP-6: "The first page of ListShards names the stream and the filter; a later page MUST carry
        # NextToken and MaxResults only."
        if self._next_token is not None:
            return "ListShards", {"MaxResults": _MAX_RESULTS, "NextToken": self._next_token}
        shard_filter = {"Type": self._filter}
        return "ListShards", {"MaxResults": _MAX_RESULTS, **self._argument, "ShardFilter": shard_filter}

    def add_summary(self, response: Any) -> None:
        """Take the response of DescribeStreamSummary, None of a call that failed. (botocore makes an empty
        response of a truncated one.)"""
        self._describe = False
        summary = response.get("StreamDescriptionSummary") if isinstance(response, Mapping) else None
        if not isinstance(summary, Mapping) or not summary:
            return
        created = summary.get("StreamCreationTimestamp")
        hours = summary.get("RetentionPeriodHours")
        auto = summary.get("RecordDistributionStrategy") == "AUTO"
        self.created = created if isinstance(created, datetime) else None
        self.distribution = "AUTO" if auto else "USER_PARTITION_KEY"
        self.retention = hours * 3600.0 if type(hours) is int and hours > 0 else None
        self.stream = stream_of_pages([summary])

    def add_page(self, response: Any, known: Mapping[str, Shard]) -> bool:
        """Take a page of ListShards; returns whether it was the last one. A shard that equals its entry in
        ``known`` is that same object in ``shards``. Raises ShardMapError(code="malformed")."""
        # MAP-14: "An answer without what was asked for MUST be taken for a call that failed."
        shards, _ = shards_of_pages([response])
        token = response.get("NextToken") or None
        # MAP-19: "A listing that repeats a NextToken, or has pages for more than 1,000,000 shards, MUST be
        # refused: it would never end."
        reason = ""
        if token is not None and not isinstance(token, str):
            reason = "a NextToken is not text"
        elif token in self._tokens:
            reason = "a NextToken came twice"
        elif token and len(self._tokens) > _MOST_PAGES:
            reason = f"more than {_MOST_PAGES} pages"
        if reason:
            raise ShardMapError(code="malformed", reason=reason, shard_ids=())
        for shard in shards:
            before = known.get(shard.shard_id)
            self.shards.append(before if before == shard else shard)
        if token is None:
            return True
        self._next_token = token
        self._tokens.add(token)
        return False


class KnownShards(NamedTuple):
    """What is known of one life of a stream. Immutable.

    ``all``: every shard that is not forgotten, by id. ``listed``: those of the last complete listing, which
    began at ``listed_at`` (seconds of the caller's clock; None before the first). ``routes``: the open shards
    by hash key. ``complete``: the last listing had no gap and no overlap. ``closed``: when each closed shard
    was first known to be closed, by id. ``retention``: seconds. ``generation``: the number of lives before.
    ``contradictions``: refused listings in a row.
    """

    stream: Stream
    distribution: Distribution = "USER_PARTITION_KEY"
    retention: float = _LONGEST_RETENTION
    generation: int = 0
    all: Mapping[str, Shard] = {}
    closed: Mapping[str, float] = {}
    listed: Mapping[str, Shard] = {}
    listed_at: float | None = None
    routes: Routes = NO_ROUTES
    complete: bool = False
    contradictions: int = 0

    @property
    def lineage(self) -> Lineage:
        """The lineage of all known shards. It is made at each call: 50 ms for 10,000 shards."""
        return Lineage(self.all.values(), stream=self.stream)

    @property
    def shard_map(self) -> ShardMap | None:
        """The map of the last complete listing; None before the first. It is made at each call, as
        ``lineage`` is."""
        if not self.listed:
            return None
        return ShardMap(self.listed.values(), distribution=self.distribution, stream=self.stream)

    def shard_of_record(
        self, shard_id: str, sequence_number: str, *, generation: int, answered_at: float
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

        "unknown": also a shard that was never listed. "gone": the life of the stream that has the record is
        over.
        """
        # MAP-18: "An aggregate MUST NOT be judged by a shard of another life of the stream than the one that
        # stored it. A hint in its sequence number may delay the verdict until the stream was listed again,
        # and tell which of two lives stored it. It decides nothing else."
        shard = self.all.get(shard_id)
        of_this_shard = _is_number_of(shard, sequence_number) if shard else None
        if self.generation != generation and not of_this_shard:
            return "gone"
        # Equal times do not count: on a coarse clock the listing may have begun before the answer.
        listed_since = self.listed_at is not None and self.listed_at > answered_at
        if shard is None or (of_this_shard is False and not listed_since):
            return "unknown"
        return shard


def _is_number_of(shard: Shard, sequence_number: str) -> bool | None:
    """Whether this shard gave out the sequence number; None if the numbers have no hint."""
    first, number = sequence_hint(shard.starting_sequence_number), sequence_hint(sequence_number)
    if first is None or number is None or first.shard_id != shard.shard_id:
        return None  # kinesis-local gives the child of a merge the start of its second parent
    return (number.shard_index, number.shard_created) == (first.shard_index, first.shard_created)


def learn(known: KnownShards, listing: Listing, now: float) -> tuple[KnownShards, ShardMapError | None]:
    """What is known after a listing, and why the listing gives no complete map; None if it does. Where it has
    a gap or an overlap, the shards that this does not concern are learnt, with new ``routes``. After another
    error ``routes`` are the same object, and only ``contradictions`` may differ."""
    try:
        by_id = distinct_shards(listing.shards)
        changed = [shard for shard in by_id.values() if known.all.get(shard.shard_id) is not shard]
        if not _begins_life(known, by_id, changed, listing.created):
            return _learn(known, by_id, changed, listing, now)
        stream = known.stream._replace(created=None)
        new_life = KnownShards(stream, known.distribution, generation=known.generation + 1)
        learnt, error = _learn(new_life, by_id, list(by_id.values()), listing, now)
        return (learnt, None) if error is None else (known, error)
    except ShardMapError as error:
        contradictions = known.contradictions + (error.code == "contradiction")
        return known._replace(contradictions=contradictions), error


def _begins_life(
    known: KnownShards, by_id: Mapping[str, Shard], changed: Sequence[Shard], created: datetime | None
) -> bool:
    """Whether a listing is of another life of the stream. Raises ShardMapError(code="contradiction") if it
    fits neither this life at a later time nor another one."""
    # MAP-11: "A stream that is deleted and created again under its name MUST be taken for another one:
    # nothing that was known of the old one is kept."
    if not known.all:
        return False
    has_times = known.stream.created is not None and created is not None
    if has_times and created != known.stream.created:
        return True
    newest = max(_number(shard_id) for shard_id in known.all) if changed else -1
    foreign = [shard.shard_id for shard in changed if _is_foreign(known, shard, newest)]
    # A closed shard is listed as open, and without its children: this listing is older than the last one.
    reopened = [i for i in known.closed if i in by_id and by_id[i].open and i not in foreign]
    if reopened:
        parents = _parents(by_id)
        reopened = [shard_id for shard_id in reopened if shard_id not in parents]
    if not reopened and not (foreign and has_times):
        return bool(foreign)
    # MAP-16: "A listing that contradicts what is known MUST be refused, but one that comes a fourth
    # time running MUST be believed: it is another life of the stream."
    if known.contradictions + 1 >= _CONTRADICTIONS:
        return True
    if reopened:
        reason = f"{reopened[0]} was closed before"
    else:
        reason = f"{foreign[0]} differs from what was listed before"
    raise ShardMapError(code="contradiction", reason=reason, shard_ids=(*reopened, *foreign))


def _is_foreign(known: KnownShards, shard: Shard, newest: int) -> bool:
    """Whether a listed shard cannot be of this life of the stream. ``newest``: the highest number of a known
    shard."""
    before = known.all.get(shard.shard_id)
    if before is not None:
        return before.contradicts(shard)
    # Ids only grow, so a new shard with an old number and no known parent belongs to another stream.
    old_number = shard.open and 0 <= _number(shard.shard_id) <= newest
    return old_number and not any(parent in known.all for parent in shard.parent_shard_ids)


def _parents(by_id: Mapping[str, Shard]) -> set[str]:
    return {parent for shard in by_id.values() for parent in shard.parent_shard_ids}


def _number(shard_id: str) -> int:
    match = _NUMBERED_ID.match(shard_id)
    return int(match[1]) if match else -1


def _learn(
    known: KnownShards, by_id: Mapping[str, Shard], changed: Sequence[Shard], listing: Listing, now: float
) -> tuple[KnownShards, ShardMapError | None]:
    """As `learn`, of a listing of this life. ``changed``: its shards that differ from the known ones. Raises
    ShardMapError for a listing that contradicts itself or the known shards."""
    before, described = known, listing.stream or known.stream
    arn, created = known.stream.arn or described.arn, listing.created or known.stream.created
    known = known._replace(
        stream=Stream(known.stream.name, arn, described.region, created),
        distribution=listing.distribution or known.distribution,
        retention=listing.retention or known.retention,
    )
    if before.complete and not changed and by_id.keys() == before.listed.keys():
        return _complete(known, listing, by_id, now), None
    # MAP-12: "A shard listed as open together with a child of it MUST be taken for closed."
    superseded = {shard_id for shard_id in _parents(by_id) if shard_id in by_id and by_id[shard_id].open}
    open_shards = sorted(
        (shard for shard in by_id.values() if shard.open and shard.shard_id not in superseded),
        key=lambda shard: shard.hash_key_range,
    )
    everything = _all_shards(known, changed)
    hole = first_hole(open_shards)
    if hole is not None:
        predictable, disputed = undisputed(open_shards)
        # Shards that may be wrong are left out.
        sound = [shard for shard in changed if shard.shard_id not in disputed]
        partial = known._replace(
            all=_all_shards(known, sound),
            closed=_closed_shards(known, sound, (), now),
            routes=Routes(predictable),
            complete=False,
        )
        return partial, hole
    open_before = {shard_id for shard_id, shard in known.listed.items() if shard.open}
    no_longer_open = superseded | (open_before - {shard.shard_id for shard in open_shards})
    known = known._replace(
        all=everything,
        closed=_closed_shards(known, changed, no_longer_open, now),
        listed={shard_id: shard for shard_id, shard in by_id.items() if shard_id not in superseded},
        routes=Routes(open_shards),
        complete=True,
    )
    return _complete(known, listing, by_id, now), None


def _complete(known: KnownShards, listing: Listing, by_id: Mapping[str, Shard], now: float) -> KnownShards:
    """What is known after a complete listing: without the closed shards that hold no more records."""
    known = known._replace(listed_at=listing.begun, contradictions=0)
    # MAP-20: "A closed shard MUST be known for 60 seconds, counted from the refresh that noticed, and then be
    # forgotten when it holds no more records: a listing FROM_TRIM_HORIZON no longer has it, or it has been
    # closed for longer than the stream's retention, or than 365 days where that is not known."
    closed_ttl = _CLOSED_TTL if listing.has_closed else known.retention
    expired = {i for i, since in known.closed.items() if i not in by_id and now - since > closed_ttl}
    if not expired:
        return known
    return known._replace(
        all={i: shard for i, shard in known.all.items() if i not in expired},
        closed={i: since for i, since in known.closed.items() if i not in expired},
    )


def _all_shards(known: KnownShards, changed: Sequence[Shard]) -> dict[str, Shard]:
    """All known shards by id, with the changed ones. Raises ShardMapError."""
    everything = dict(known.all)
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
    known: KnownShards, changed: Sequence[Shard], no_longer_open: Collection[str], now: float
) -> dict[str, float]:
    """The closed shards by id, and since when each is known to be closed."""
    closed = dict(known.closed)
    for shard_id in no_longer_open:
        closed.setdefault(shard_id, now)
    for shard in changed:
        if not shard.open:
            # A shard that was closed when it was first listed may have closed long ago.
            closed.setdefault(shard.shard_id, now if shard.shard_id in known.all else float("-inf"))
    return closed
