"""Makes the report from a tally and a shard map: sorts the counts and limits their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from ..findings import Finding, kind_of, order_of
from ..shards.lineage import Lineage
from ..shards.shard_map import ShardMap
from .counters import FIRST_SECOND, LAST_SECOND, MAX_EXAMPLES, SLOTS, Loads, Tally, drawn
from .model import (
    NO_SHARD,
    About,
    CauseCount,
    KclLoss,
    KindCount,
    Rate,
    RateCell,
    Report,
    ShardFacts,
    Totals,
)
from .summary import worst_first
from .whole import findings_of_the_whole, skew

#: Limits that keep the page usable.
MAX_SHOWN_SHARDS = 1000
MAX_SHOWN_FINDINGS = 3000
MAX_SHOWN_INPUTS = 50

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _time(seconds: int | None) -> datetime | None:
    known = seconds is not None and FIRST_SECOND <= seconds <= LAST_SECOND
    return _EPOCH + timedelta(seconds=seconds or 0) if known else None


def build_report(
    tally: Tally, shard_map: ShardMap | None, about: About, findings: Iterable[Finding] = ()
) -> Report:
    """The report on what ``tally`` counted.

    ``findings``: further ones, which neither the scan nor `findings_of_the_whole` makes (for example
    duplicates). The tally is not changed.
    """
    tally = Tally.merged([tally])
    loads = Loads(tally)
    for finding in (*findings, *findings_of_the_whole(tally, shard_map)):
        tally.add_finding(finding)
    shards = _shard_facts(tally, loads, shard_map)
    most_telling = {shard.shard_id for shard in worst_first(shards)[:MAX_SHOWN_SHARDS]}
    kinds, shown = _shown_findings(tally)
    omitted = {
        "findings": sum(count.findings for count in kinds) - len(shown),
        "shards": len(shards) - MAX_SHOWN_SHARDS,
        "inputs": len(about.inputs) - MAX_SHOWN_INPUTS,
    }
    losses = [KclLoss(reason, *counts) for reason, counts in tally.losses.items()]
    causes = [CauseCount(cause, *counts) for cause, counts in tally.causes.items()]
    return Report(
        about=replace(
            about,
            stream_name=about.stream_name or (", ".join(sorted(tally.streams)) or None),
            inputs=tuple(about.inputs[:MAX_SHOWN_INPUTS]),
        ),
        totals=_totals(tally.records, loads),
        distribution=shard_map.distribution if shard_map is not None else None,
        kinds=kinds,
        findings=shown,
        kcl_losses=tuple(sorted(losses, key=lambda loss: (-loss.user_records, loss.reason))),
        causes=tuple(sorted(causes, key=lambda count: (-count.user_records, count.cause))),
        shards=tuple(shard for shard in shards if shard.shard_id in most_telling),
        rate=_rate(tally),
        key_space=tuple((*tally.slots.get(slot, (0, 0)),) for slot in range(SLOTS)),
        skew=skew(loads, shard_map),
        omitted={name: count for name, count in omitted.items() if count > 0},
    )


def _totals(records: Counter[str], loads: Loads) -> Totals:
    return Totals(
        kinesis_records=records["kinesis"],
        plain_records=records["plain"],
        aggregated_records=records["aggregated"],
        broken_frames=records["broken"],
        user_records=loads.user_records.total(),
        bytes=loads.bytes.total(),
        misplaced=loads.misplaced.total(),
        mixed_aggregates=records["mixed"],
        foreign_aggregates=records["foreign"],
        kcl=dict(loads.kcl),
        verdicts=dict(loads.verdicts),
    )


def _shard_facts(tally: Tally, loads: Loads, shard_map: ShardMap | None) -> list[ShardFacts]:
    """Every shard of the map and every other shard id found, parents before children."""
    facts = []
    lineage = shard_map if shard_map is not None else Lineage(())
    belonging = loads.belonging.total()
    strangers = sorted(
        (s for s in tally.shards if s is None or s not in lineage), key=lambda s: (s is None, s)
    )
    for shard_id in [*lineage, *strangers]:
        kinesis_records, aggregated, first, last = tally.shards.get(shard_id, (0, 0, None, None))
        found = ShardFacts(
            shard_id=shard_id if shard_id is not None else NO_SHARD,
            kinesis_records=kinesis_records,
            aggregated_records=aggregated,
            user_records=loads.user_records[shard_id],
            bytes=loads.bytes[shard_id],
            misplaced=loads.misplaced[shard_id],
            dropped=loads.dropped[shard_id],
            first_arrival=_time(first),
            last_arrival=_time(last),
        )
        known = lineage.get(shard_id) if shard_id is not None else None
        if known is not None:
            there = loads.belonging[known.shard_id]
            found = replace(
                found,
                start=known.hash_key_range.starting_hash_key,
                end=known.hash_key_range.ending_hash_key,
                parents=known.parent_shard_ids,
                open=known.open,
                opened=lineage.created(known.shard_id),
                closed=lineage.closed_at(known.shard_id),
                generation=lineage.generation(known.shard_id),
                belonging=there,
                share=there / belonging if known.open and belonging else None,
            )
        facts.append(found)
    return facts


def _rate(tally: Tally) -> Rate:
    in_order = sorted(tally.cells, key=lambda key: (key[0], key[1] is None, key[1]))
    cells = [
        RateCell(start, key[1], *tally.cells[key]) for key in in_order if (start := _time(key[0])) is not None
    ]
    arrivals = [shard for shard in tally.shards.values() if shard[2] is not None]
    first = _time(min((shard[2] for shard in arrivals), default=None))
    last = _time(max((shard[3] for shard in arrivals), default=None))
    return Rate(tally.bucket_seconds, tuple(cells), first, last)


def _shown_findings(tally: Tally) -> tuple[tuple[KindCount, ...], tuple[Finding, ...]]:
    """All kinds with their counts, worst first, and as many findings of each as there is room for."""
    kinds = sorted(
        (KindCount(kind_of(name), *counts) for name, counts in tally.kinds.items()),
        key=lambda count: order_of(Finding(count.kind.name)),
    )
    each = min(max(1, MAX_SHOWN_FINDINGS // max(1, len(kinds))), MAX_EXAMPLES)
    examples = (drawn(tally.examples.get(count.kind.name, []), each) for count in kinds)
    return tuple(kinds), tuple(finding for some in examples for finding in sorted(some, key=order_of))
