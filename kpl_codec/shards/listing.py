"""Reads the answers of ListShards and DescribeStreamSummary.

A listing does not show one moment. It may list parents together with their children, be older than the
listing before it, or show another stream, created under the name of a deleted one.
Specification: spec/08-live-shard-map.md, MAP-12 and MAP-14.
"""

from __future__ import annotations

import re
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


def superseded_shards(listed: Collection[Shard]) -> frozenset[str]:
    """Shards that are listed as open, and so is a child of theirs."""
    # MAP-12: "A shard listed as open together with a child of it MUST be taken for closed."
    parents = {shard.parent_shard_id for shard in listed}
    parents |= {shard.adjacent_parent_shard_id for shard in listed}
    return frozenset(shard.shard_id for shard in listed if shard.open and shard.shard_id in parents)
