"""Makes the report from a tally and a shard map: sorts the counts and limits their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from ..findings import Finding, kind_of, order_of
from ..shards.lineage import Lineage
from ..shards.shard_map import ShardMap
from .counters import MAX_EXAMPLES, Loads, Tally, drawn
from .model import (
    NO_SHARD,
    About,
    CauseCount,
    KclLoss,
    KindCount,
    Landing,
    Rate,
    RateCell,
    Report,
    ShardFacts,
    Totals,
)
from .whole import findings_of_the_whole, skew

#: Limits that keep the page usable.
MAX_SHOWN_SHARDS = 1000
MAX_SHOWN_FINDINGS = 3000
MAX_SHOWN_LANDINGS = 500
MAX_SHOWN_INPUTS = 50

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _time(seconds: int | None) -> datetime | None:
    if seconds is None:
        return None
    try:
        return _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return None


def build_report(
    tally: Tally, shard_map: ShardMap | None, about: About, findings: Iterable[Finding] = ()
) -> Report:
    """The report on what ``tally`` counted.

    ``findings``: further ones, which neither the scan nor `findings_of_the_whole` makes (for example
    duplicates). The tally is not changed.
    """
    tally = Tally.merged([tally])
    per_shard = Loads(tally)
    for finding in (*findings, *findings_of_the_whole(tally, shard_map)):
        tally.add_finding(finding)
    omitted: Counter[str] = Counter()
    shards = _shard_facts(tally, per_shard, shard_map)
    landings = sorted(per_shard.landings, key=_landing_order)
    kinds, shown = _shown_findings(tally, omitted)
    omitted["shards"] = max(0, len(shards) - MAX_SHOWN_SHARDS)
    omitted["landings"] = max(0, len(landings) - MAX_SHOWN_LANDINGS)
    omitted["inputs"] = max(0, len(about.inputs) - MAX_SHOWN_INPUTS)
    return Report(
        about=replace(
            about,
            stream_name=about.stream_name or (", ".join(sorted(tally.streams)) or None),
            inputs=tuple(about.inputs[:MAX_SHOWN_INPUTS]),
        ),
        totals=_totals(tally, per_shard),
        distribution=shard_map.distribution if shard_map is not None else None,
        kinds=kinds,
        findings=shown,
        kcl_losses=tuple(
            sorted(
                (KclLoss(reason, *counts) for reason, counts in tally.losses.items()),
                key=lambda loss: (-loss.user_records, loss.reason),
            )
        ),
        causes=tuple(
            sorted(
                (CauseCount(cause, *counts) for cause, counts in tally.causes.items()),
                key=lambda count: (-count.user_records, count.cause),
            )
        ),
        shards=_most_telling(shards),
        landings=tuple(landings[:MAX_SHOWN_LANDINGS]),
        rate=_rate(tally),
        key_space=tuple((count, misplaced) for count, misplaced in tally.slots),
        skew=skew(per_shard, shard_map),
        omitted={name: count for name, count in omitted.items() if count},
    )


def _totals(tally: Tally, loads: Loads) -> Totals:
    return Totals(
        kinesis_records=tally.kinesis_records,
        plain_records=tally.plain_records,
        aggregated_records=tally.aggregates[""],
        broken_frames=tally.broken_frames,
        user_records=sum(loads.user_records.values()),
        bytes=sum(loads.bytes.values()),
        misplaced=sum(loads.misplaced.values()),
        mixed_aggregates=tally.aggregates["mixed"],
        foreign_aggregates=tally.aggregates["foreign"],
        kcl=dict(loads.kcl),
        verdicts=dict(loads.verdicts),
    )


def _shard_facts(tally: Tally, loads: Loads, shard_map: ShardMap | None) -> list[ShardFacts]:
    """Every shard of the map and every other shard id found, parents before children."""
    facts = []
    lineage = shard_map if shard_map is not None else Lineage(())
    belonging = sum(loads.belonging.values())
    strangers = sorted(
        (s for s in tally.shards if s is None or s not in lineage), key=lambda s: (s is None, s)
    )
    for shard_id in [*lineage, *strangers]:
        counted = tally.shards.get(shard_id, (0, 0, None, None))
        found = ShardFacts(
            shard_id=shard_id if shard_id is not None else NO_SHARD,
            kinesis_records=counted[0],
            aggregated_records=counted[1],
            user_records=loads.user_records[shard_id],
            bytes=loads.bytes[shard_id],
            misplaced=loads.misplaced[shard_id],
            dropped=loads.dropped[shard_id],
            first_arrival=_time(counted[2]),
            last_arrival=_time(counted[3]),
        )
        known = lineage.get(shard_id) if shard_id is not None else None
        if known is not None:
            found = replace(
                found,
                start=known.hash_key_range.starting_hash_key,
                end=known.hash_key_range.ending_hash_key,
                parents=known.parent_shard_ids,
                open=known.open,
                opened=lineage.created(known.shard_id),
                closed=lineage.closed_at(known.shard_id),
                generation=lineage.generation(known.shard_id),
                belonging=loads.belonging[known.shard_id],
                share=loads.belonging[known.shard_id] / belonging if known.open and belonging else None,
            )
        facts.append(found)
    return facts


def _most_telling(shards: list[ShardFacts]) -> tuple[ShardFacts, ...]:
    """At most MAX_SHOWN_SHARDS: those with losses first, then those with most on them; in their order."""
    if len(shards) <= MAX_SHOWN_SHARDS:
        return tuple(shards)
    ranked = sorted(
        range(len(shards)),
        key=lambda i: (-shards[i].dropped, -shards[i].misplaced, -shards[i].user_records, i),
    )
    return tuple(shards[i] for i in sorted(ranked[:MAX_SHOWN_SHARDS]))


def _rate(tally: Tally) -> Rate:
    cells = []
    for (start, shard_id), counts in sorted(
        tally.cells.items(), key=lambda item: (item[0][0], item[0][1] is None, item[0][1])
    ):
        time = _time(start)
        if time is not None:
            cells.append(RateCell(time, shard_id, *counts))
    arrivals = [shard for shard in tally.shards.values() if shard[2] is not None]
    first = _time(min((shard[2] for shard in arrivals), default=None))
    last = _time(max((shard[3] for shard in arrivals), default=None))
    return Rate(tally.bucket_seconds, tuple(cells), first, last)


def _landing_order(pair: Landing) -> tuple[object, ...]:
    return (
        pair.verdict == "expected",
        -pair.user_records,
        pair.shard_id or "",
        pair.expected_shard_id or "",
        pair.verdict,
    )


def _shown_findings(tally: Tally, omitted: Counter[str]) -> tuple[tuple[KindCount, ...], tuple[Finding, ...]]:
    """All kinds with their counts, worst first, and as many findings of each as there is room for."""
    kinds = sorted(
        (KindCount(kind_of(name), *counts) for name, counts in tally.kinds.items()),
        key=lambda count: order_of(Finding(count.kind.name)),
    )
    each = max(1, MAX_SHOWN_FINDINGS // max(1, len(kinds)))
    shown: list[Finding] = []
    for count in kinds:
        kept = drawn(tally.examples.get(count.kind.name, []), min(each, MAX_EXAMPLES))
        omitted["findings"] += count.findings - len(kept)
        shown += sorted(kept, key=order_of)
    return tuple(kinds), tuple(shown)
