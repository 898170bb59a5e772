"""What ListShards and DescribeStreamSummary answer, checked, and whether it can be what it seems.

A listing is not taken at one moment: it may name parents together with their children, be older than one
that came before it, or be of another stream, made under the name of a deleted one.
Specification: spec/08-live-shard-map.md, MAP-11, MAP-12 and MAP-14.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ..errors import ShardMapError
from .lineage import Lineage
from .shard import Distribution, Shard, listed_shards

_NUMBERED = re.compile(r"shardId-([0-9]{1,20})\Z")


class StreamSummary(NamedTuple):
    """What DescribeStreamSummary tells the map. ``created``: when this life of the stream began."""

    created: datetime | None
    distribution: Distribution


def parse_page(answer: Any) -> tuple[list[Shard], str | None]:
    """The shards of one ListShards answer, and its NextToken. Raises ShardMapError(code="malformed")."""
    # MAP-14: "An answer without what was asked for MUST be taken for a call that failed."
    shards, _ = listed_shards([answer])
    token = answer.get("NextToken")
    if token is not None and not isinstance(token, str):
        raise ShardMapError(code="malformed", reason="a NextToken that is no string", shard_ids=())
    return shards, token or None


def parse_summary(answer: Any) -> StreamSummary | None:
    """What a DescribeStreamSummary answer tells, None for one that tells nothing.

    (botocore makes an empty success of an answer that was cut short.)
    """
    summary = answer.get("StreamDescriptionSummary") if isinstance(answer, Mapping) else None
    if not isinstance(summary, Mapping) or not summary:
        return None
    created = summary.get("StreamCreationTimestamp")
    auto = summary.get("RecordDistributionStrategy") == "AUTO"
    return StreamSummary(
        created if isinstance(created, datetime) else None, "AUTO" if auto else "USER_PARTITION_KEY"
    )


def _number(shard_id: str) -> int | None:
    match = _NUMBERED.match(shard_id)
    return int(match[1]) if match else None


def another_life(
    listed: Sequence[Shard], lineage: Lineage, gone: Collection[str], same_creation: bool | None
) -> bool:
    """Whether ``listed`` cannot be the stream that ``lineage`` is of, but one made again under its name.

    ``gone``: ids of shards known to have closed. ``same_creation``: whether the stream's creation time is
    the one known, None where that was not told. Raises ShardMapError(code="contradiction") where the
    listing can be neither the same stream, later, nor another.
    """
    if not lineage:
        return False
    if same_creation is False:
        return True
    newest = max((n for shard in lineage if (n := _number(shard.shard_id)) is not None), default=-1)
    with_heirs = {parent for shard in listed for parent in shard.parent_shard_ids}
    evidence: list[str] = []
    older: list[str] = []
    for shard in listed:
        known = lineage.get(shard.shard_id)
        number = _number(shard.shard_id)
        if known is not None:
            if known.contradicts(shard):
                evidence.append(shard.shard_id)
            elif shard.open and shard.shard_id in gone and shard.shard_id not in with_heirs:
                # The same shard as before, open again: a listing from before the one we have.
                older.append(shard.shard_id)
        elif (
            shard.open
            and number is not None
            and number <= newest
            and not any(parent in lineage for parent in shard.parent_shard_ids)
        ):
            # Ids grow: a new shard with an old number and no parent we know is not this stream's.
            evidence.append(shard.shard_id)
    if older or (evidence and same_creation):
        reason = f"{older[0]} was closed" if older else f"{evidence[0]} is not what it was"
        raise ShardMapError(code="contradiction", reason=reason, shard_ids=(*older, *evidence))
    return bool(evidence)


def not_known_closed(listed: Iterable[Shard], lineage: Lineage) -> list[Shard]:
    """``listed`` without shards that are listed as open and are known to have ended."""
    return [
        shard
        for shard in listed
        if not (shard.open and shard.shard_id in lineage and not lineage[shard.shard_id].open)
    ]


_Intervals = tuple[tuple[int, int], ...]


def superseded_shards(listed: Sequence[Shard]) -> frozenset[str]:
    """Shards listed as open although open descendants that are listed too cover their whole range."""
    # MAP-12: "A shard listed as open together with open descendants that cover its range MUST be taken
    # for closed."
    by_id = {shard.shard_id: shard for shard in listed}
    parents = {
        shard_id: {parent for parent in shard.parent_shard_ids if parent in by_id}
        for shard_id, shard in by_id.items()
    }
    # Children before parents, each once. (A shard that descends from itself is never ready: the map
    # refuses such a listing.)
    waiting_for = Counter(parent for of_one in parents.values() for parent in of_one)
    ready = [shard_id for shard_id in by_id if not waiting_for[shard_id]]
    below: dict[str, _Intervals] = {}  # of a shard: the ranges of its open descendants, merged
    found = set()
    while ready:
        shard_id = ready.pop()
        shard, covered = by_id[shard_id], below.pop(shard_id, ())
        if shard.open:
            first, last = shard.hash_key_range
            if any(start <= first and last <= end for start, end in covered):
                found.add(shard_id)
            covered = _merged(covered, ((first, last),))
        for parent in parents[shard_id]:
            below[parent] = _merged(below.get(parent, ()), covered)
            waiting_for[parent] -= 1
            if not waiting_for[parent]:
                ready.append(parent)
    return frozenset(found)


def _merged(one: _Intervals, other: _Intervals) -> _Intervals:
    """Two lists of ranges (both ends included) as one, in order; what touches becomes one range."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted((*one, *other)):
        if merged and start <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return tuple(merged)
