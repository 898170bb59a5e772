"""Reads the answers of ListShards and DescribeStreamSummary.

A listing does not show one moment. It may list parents together with their children, be older than the
listing before it, or show another stream, created under the name of a deleted one.
Specification: spec/08-live-shard-map.md, MAP-12 and MAP-14.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ..errors import ShardMapError
from .shard import Distribution, Shard, listed_shards

_NUMBERED = re.compile(r"shardId-([0-9]{1,20})\Z")


class StreamSummary(NamedTuple):
    """What the map needs of DescribeStreamSummary. ``created``: when this life of the stream began.
    ``retention``: seconds for which records are kept."""

    created: datetime | None
    distribution: Distribution
    retention: float | None


class Listing(NamedTuple):
    """All shards of a refresh that began at ``begun``. ``summary``: None if there is none. ``has_closed``: it
    has every closed shard that still holds records."""

    shards: Sequence[Shard]
    summary: StreamSummary | None
    begun: float
    has_closed: bool


def parse_page(answer: Any) -> tuple[list[Shard], str | None]:
    """The shards of one ListShards answer, and its NextToken. Raises ShardMapError(code="malformed")."""
    # MAP-14: "An answer without what was asked for MUST be taken for a call that failed."
    shards, _ = listed_shards([answer])
    token = answer.get("NextToken")
    if token is not None and not isinstance(token, str):
        raise ShardMapError(code="malformed", reason="a NextToken that is no string", shard_ids=())
    return shards, token or None


def parse_summary(answer: Any) -> StreamSummary | None:
    """The summary of a DescribeStreamSummary answer, None for an empty answer.

    (botocore turns a truncated answer into an empty success.)
    """
    summary = answer.get("StreamDescriptionSummary") if isinstance(answer, Mapping) else None
    if not isinstance(summary, Mapping) or not summary:
        return None
    created = summary.get("StreamCreationTimestamp")
    auto = summary.get("RecordDistributionStrategy") == "AUTO"
    hours = summary.get("RetentionPeriodHours")
    return StreamSummary(
        created if isinstance(created, datetime) else None,
        "AUTO" if auto else "USER_PARTITION_KEY",
        hours * 3600.0 if type(hours) is int and hours > 0 else None,
    )


def shard_number(shard_id: str) -> int | None:
    """The number in the id that AWS gives a shard; None in another id."""
    match = _NUMBERED.match(shard_id)
    return int(match[1]) if match else None


_Intervals = tuple[tuple[int, int], ...]


def superseded_shards(listed: Collection[Shard]) -> frozenset[str]:
    """Shards that are listed as open although their listed open descendants cover their whole range."""
    with_children = {shard.parent_shard_id for shard in listed}
    with_children |= {shard.adjacent_parent_shard_id for shard in listed}
    if not any(shard.shard_id in with_children and shard.open for shard in listed):
        return frozenset()
    # MAP-12: "A shard listed as open together with open descendants that cover its range MUST be taken
    # for closed."
    by_id = {shard.shard_id: shard for shard in listed}
    parents = {
        shard_id: {parent for parent in shard.parent_shard_ids if parent in by_id}
        for shard_id, shard in by_id.items()
    }
    # Children before parents, each once. (A shard that descends from itself is left out: the map refuses such
    # a listing.)
    waiting_for = Counter(parent for of_one in parents.values() for parent in of_one)
    ready = [shard_id for shard_id in by_id if not waiting_for[shard_id]]
    below: dict[str, _Intervals] = {}  # by shard: the ranges of its open descendants, merged
    superseded = set()
    while ready:
        shard_id = ready.pop()
        shard, covered = by_id[shard_id], below.pop(shard_id, ())
        if shard.open:
            first, last = shard.hash_key_range
            if any(start <= first and last <= end for start, end in covered):
                superseded.add(shard_id)
            covered = _merged(covered, ((first, last),))
        for parent in parents[shard_id]:
            below[parent] = _merged(below.get(parent, ()), covered)
            waiting_for[parent] -= 1
            if not waiting_for[parent]:
                ready.append(parent)
    return frozenset(superseded)


def _merged(one: _Intervals, other: _Intervals) -> _Intervals:
    """Merges two lists of ranges (both ends included) in order; neighbours become one range."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted((*one, *other)):
        if merged and start <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return tuple(merged)
