"""Findings that only the whole input can show: a naive aggregator, verdicts on shards, skew, empty input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, get_args

from ..findings import Finding, order_of
from ..pictures.labels import plural
from ..shards.placement import ACROSS_SHARDS, Verdict
from ..shards.shard_map import ShardMap
from ..shards.skew import skewed
from .counters import Loads, Tally

#: Verdicts of whole shards: every one is a kind of finding of its own. The others are told by record, or of
#: the whole stream.
_SHARD_VERDICTS = {*get_args(Verdict)} - {"expected", "stray", "distribution-auto"}


def findings_of_the_whole(tally: Tally, shard_map: ShardMap | None = None) -> list[Finding]:
    """All of them. `build_report` adds them; call this only to write findings elsewhere, too."""
    loads = Loads(tally)
    found = list(_of_the_whole(tally, loads, shard_map))
    if shard_map is not None:
        found += _of_the_shards(shard_map)
        found += _of_skew(loads, shard_map)
    return found


def _of_the_whole(tally: Tally, loads: Loads, shard_map: ShardMap | None) -> Iterable[Finding]:
    if not tally.records["kinesis"]:
        yield Finding("no-records", detail="there is not one Kinesis record in the input")
    aggregates, user_records, _ = tally.causes.get(ACROSS_SHARDS, (0, 0, 0))
    if aggregates:
        many = plural(aggregates, "aggregate holds", "aggregates hold")
        misplaced = ("mixed-aggregate", "foreign-aggregate")
        examples = [one for kind in misplaced for one in sorted(tally.examples.get(kind, []), key=order_of)]
        example = next((one for one in examples if one.cause == ACROSS_SHARDS), Finding("naive-aggregator"))
        yield Finding(
            "naive-aggregator",
            example.shard_id,
            example.sequence_number,
            user_records=user_records,
            aggregates=aggregates,
            detail=f"{many} {plural(user_records, 'user record')} of several shards; the KCL drops them all",
        )
    for (shard_id, verdict), (count, number) in sorted(
        loads.judged.items(), key=lambda item: (item[0][0] or "", item[0][1])
    ):
        if verdict == "unknown-shard" and shard_map is not None and shard_id in shard_map:
            continue  # the shard is known, the hash key is not: a finding of its own says why
        if verdict in _SHARD_VERDICTS:
            detail = None if shard_id is not None else "the capture does not say which shard"
            yield Finding(verdict, shard_id, number, user_records=count, detail=detail)
    if shard_map is not None and shard_map.distribution == "AUTO":
        dropped = sum(loads.dropped.values())
        yield Finding(
            kind="distribution-auto",
            user_records=sum(loads.user_records.values()),
            dropped=dropped,
            detail=f"a KCL consumer drops {dropped} user records",
        )


def _of_the_shards(shard_map: ShardMap) -> Iterable[Finding]:
    for shard_id, parents in sorted(shard_map.unknown_parents.items()):
        yield Finding("unknown-parent", shard_id, detail=f"parent {', '.join(parents)} is not listed")


def skew(loads: Loads, shard_map: ShardMap | None) -> float | None:
    """How many times the mean lies on the fullest open shard. The mean is over the open shards with records
    on them: one that was not captured cannot be told from an idle one. None for fewer than two."""
    counts = _on_open_shards(loads.user_records, shard_map)
    return max(counts.values()) * len(counts) / sum(counts.values()) if len(counts) > 1 else None


def _on_open_shards(counts: Counter[Any], shard_map: ShardMap | None) -> dict[str, int]:
    """The counts of the open shards that have one. None at all where keys do not decide the shard."""
    if shard_map is None or shard_map.distribution == "AUTO":
        return {}
    return {s.shard_id: counts[s.shard_id] for s in shard_map.open_shards if counts[s.shard_id]}


def _of_skew(loads: Loads, shard_map: ShardMap) -> Iterable[Finding]:
    """By the shards that hash keys belong to now: a shard that was split lately has little on it yet."""
    counts = _on_open_shards(loads.belonging, shard_map)
    for shard_id, times in skewed(counts, sum(counts.values())):
        detail = f"{times:.1f} times the mean of {len(counts)} open shards"
        yield Finding("skewed-shard", shard_id, user_records=counts[shard_id], detail=detail)
