"""A tally and a shard map -> the report: what was counted, put in order, and the findings that only the
whole can show (a naive aggregator, skew, shards that the map does not have)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from ..errors import KplError
from ..pictures.diagrams import generations
from ..shards.lineage import Lineage
from ..shards.misplacement_causes import ACROSS_SHARDS
from ..shards.shard_map import Shard, ShardMap
from ..shards.skew import Skew, skew_of
from .counters import MAX_EXAMPLES, OTHERS, Tally, drawn, example
from .kinds import KINDS, SEVERITIES, kind_of
from .model import (
    NO_SHARD,
    NOT_JUDGED,
    CauseCount,
    Finding,
    KclLoss,
    KindCount,
    Landing,
    RateCell,
    Report,
    ShardFacts,
    Totals,
)

#: An open shard that gets more than this times the mean is skewed, if there is enough to tell.
SKEWED = 2.0
_ENOUGH = 100  # user records a shard, on the mean
#: What the page can show without becoming unusable.
MAX_SHOWN_SHARDS = 1000
MAX_SHOWN_FINDINGS = 3000
MAX_SHOWN_LANDINGS = 500
MAX_SHOWN_INPUTS = 50

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: Verdicts of whole shards: every one is a kind of finding of its own.
_SHARD_VERDICTS = ("on-child", "on-parent", "unknown-shard", "explicit-hash-key-implied")


def _time(seconds: int | None) -> datetime | None:
    if seconds is None:
        return None
    try:
        return _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return None


def build_report(
    tally: Tally,
    shard_map: ShardMap | None = None,
    *,
    generated: datetime,
    version: str,
    title: str = "Kinesis stream validation",
    stream_name: str | None = None,
    source: str | None = None,
    inputs: Sequence[str] = (),
    complete: bool = True,
    findings: Iterable[Finding] = (),
) -> Report:
    """The report on what ``tally`` counted.

    ``findings`` are those that neither the scan nor `findings_of_the_whole` makes (duplicates, say).
    ``source``: one line on where the records came from; ``inputs``: files or shards read. ``generated``
    is shown, with its time zone; ``version`` is kpl_codec's. The tally is not changed.
    """
    tally = Tally.merged([tally])
    per_shard = _Loads(tally)
    skew = _skew(per_shard, shard_map)
    for finding in (*findings, *findings_of_the_whole(tally, shard_map)):
        tally.add_finding(finding)
    omitted: Counter[str] = Counter()
    shards = _shard_facts(tally, per_shard, shard_map)
    landings = sorted(per_shard.landings, key=_landing_order)
    kinds, shown = _shown_findings(tally, omitted)
    omitted["shards"] = max(0, len(shards) - MAX_SHOWN_SHARDS)
    omitted["landings"] = max(0, len(landings) - MAX_SHOWN_LANDINGS)
    omitted["inputs"] = max(0, len(inputs) - MAX_SHOWN_INPUTS)
    arrivals = [shard for shard in tally.shards.values() if shard[2] is not None]
    return Report(
        title=title,
        generated=generated,
        version=version,
        totals=_totals(tally, per_shard),
        stream_name=stream_name or (", ".join(sorted(tally.streams)) or None),
        source=source,
        inputs=tuple(inputs[:MAX_SHOWN_INPUTS]),
        distribution=shard_map.distribution if shard_map is not None else None,
        complete=complete,
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
        bucket_seconds=tally.bucket_seconds,
        rate=_rate(tally),
        key_space=tuple((count, misplaced) for count, misplaced in tally.slots),
        skew=skew.ratio if skew is not None and skew.total else None,
        first_arrival=_time(min((shard[2] for shard in arrivals), default=None)),
        last_arrival=_time(max((shard[3] for shard in arrivals), default=None)),
        omitted={name: count for name, count in omitted.items() if count},
    )


def findings_of_the_whole(tally: Tally, shard_map: ShardMap | None = None) -> list[Finding]:
    """What only the whole can show: causes, verdicts on whole shards, skew, odd lineage, nothing at all.

    `build_report` adds them by itself; they are here for those who also write findings elsewhere.
    """
    loads = _Loads(tally)
    found = list(_of_the_whole(tally, loads, shard_map))
    if shard_map is not None:
        found += _of_the_shards(shard_map)
        found += _of_skew(_skew(loads, shard_map), shard_map)
    return found


class _Loads:
    """The groups of a tally, summed up by shard."""

    def __init__(self, tally: Tally) -> None:
        self.user_records: Counter[str | None] = Counter()
        self.bytes: Counter[str | None] = Counter()
        self.misplaced: Counter[str | None] = Counter()
        self.dropped: Counter[str | None] = Counter()
        self.belonging: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.kcl: Counter[str] = Counter()
        #: (shard, verdict) -> [user records, a sequence number]
        self.judged: dict[tuple[str | None, str], list[Any]] = {}
        pairs: Counter[tuple[str | None, str | None, str]] = Counter()
        for (shard_id, expected, verdict, kcl), (count, size, number) in tally.groups.items():
            verdict = verdict or NOT_JUDGED
            self.user_records[shard_id] += count
            self.bytes[shard_id] += size
            self.verdicts[verdict] += count
            if verdict == "stray":
                self.misplaced[shard_id] += count
            if kcl is not None:
                self.kcl[kcl] += count
            if kcl == "dropped":
                self.dropped[shard_id] += count
            if expected is not None and expected != OTHERS:
                self.belonging[expected] += count
            pairs[shard_id, expected, verdict] += count
            judged = self.judged.setdefault((shard_id, verdict), [0, None])
            judged[0] += count
            judged[1] = example(judged[1], number)
        self.landings = [
            Landing(shard_id, expected, verdict, count)
            for (shard_id, expected, verdict), count in pairs.items()
            if verdict != NOT_JUDGED
        ]


def _totals(tally: Tally, loads: _Loads) -> Totals:
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


def _of_the_whole(tally: Tally, loads: _Loads, shard_map: ShardMap | None) -> Iterable[Finding]:
    if not tally.kinesis_records:
        yield Finding(
            kind="no-records",
            requirement=KINDS["no-records"].requirement,
            detail="there is not one Kinesis record in the input",
        )
    aggregates, user_records = tally.causes.get(ACROSS_SHARDS, (0, 0))
    if aggregates:
        example = next(
            (
                finding
                for kind in ("mixed-aggregate", "foreign-aggregate")
                for finding in sorted(tally.examples.get(kind, []), key=_order)
                if finding.cause == ACROSS_SHARDS
            ),
            None,
        )
        yield Finding(
            kind="naive-aggregator",
            shard_id=example.shard_id if example else None,
            sequence_number=example.sequence_number if example else None,
            user_records=user_records,
            aggregates=aggregates,
            requirement=KINDS["naive-aggregator"].requirement,
            detail=f"{aggregates} aggregates hold {user_records} user records of several shards; the KCL "
            "drops every one of them",
        )
    for (shard_id, verdict), (count, number) in sorted(
        loads.judged.items(), key=lambda item: (item[0][0] or "", item[0][1])
    ):
        if verdict == "unknown-shard" and shard_map is not None and shard_id in shard_map:
            continue  # the shard is known, the hash key is not: a finding of its own says why
        if verdict in _SHARD_VERDICTS:
            yield Finding(
                kind=verdict,
                shard_id=shard_id,
                sequence_number=number,
                user_records=count,
                requirement=KINDS[verdict].requirement,
                detail=None if shard_id is not None else "the capture does not say which shard",
            )
    if shard_map is not None and shard_map.distribution == "AUTO":
        dropped = sum(loads.dropped.values())
        yield Finding(
            kind="distribution-auto",
            user_records=sum(loads.user_records.values()),
            dropped=dropped,
            requirement=KINDS["distribution-auto"].requirement,
            detail=f"a KCL consumer drops {dropped} user records",
        )


def _of_the_shards(shard_map: ShardMap) -> Iterable[Finding]:
    for shard_id, parents in sorted(shard_map.unknown_parents.items()):
        yield Finding(
            kind="unknown-parent",
            shard_id=shard_id,
            requirement=KINDS["unknown-parent"].requirement,
            detail=f"parent {', '.join(parents)} is not listed",
        )
    try:
        defects = shard_map.lineage.defects()
    except KplError as error:
        yield Finding(kind="lineage", requirement=error.requirement, detail=error.describe())
        return
    for defect in defects:
        yield Finding(
            kind="lineage",
            shard_id=defect.shard_ids[0],
            requirement=KINDS["lineage"].requirement,
            detail=f"{defect.code}: {', '.join(defect.shard_ids)}",
        )


def _skew(loads: _Loads, shard_map: ShardMap | None) -> Skew | None:
    """User records by the open shard that their hash keys belong to now, in the order of the ranges."""
    if shard_map is None or shard_map.distribution == "AUTO":
        return None
    opened = shard_map.open_shards
    weights = [(s.hash_key_range.starting_hash_key, loads.belonging[s.shard_id]) for s in opened]
    return skew_of(weights, [s.hash_key_range for s in opened])


def _of_skew(skew: Skew | None, shard_map: ShardMap | None) -> Iterable[Finding]:
    if skew is None or shard_map is None or skew.mean < _ENOUGH:
        return
    for shard, count in zip(shard_map.open_shards, skew.counts, strict=True):
        if count > SKEWED * skew.mean:
            yield Finding(
                kind="skewed-shard",
                shard_id=shard.shard_id,
                user_records=count,
                requirement=KINDS["skewed-shard"].requirement,
                detail=f"{count / skew.mean:.1f} times the mean of {len(skew.counts)} open shards",
            )


def _shard_facts(tally: Tally, loads: _Loads, shard_map: ShardMap | None) -> list[ShardFacts]:
    """Every shard of the map and every other shard id found, parents before children."""
    facts = []
    lineage = shard_map.lineage if shard_map is not None else Lineage(())
    belonging = sum(loads.belonging.values())
    reshards = generations(lineage)
    strangers = sorted(
        (s for s in tally.shards if s is None or s not in lineage), key=lambda s: (s is None, s)
    )
    for shard_id in [*(shard.shard_id for shard in lineage), *strangers]:
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
                closed=_closed(lineage, known),
                generation=reshards[known.shard_id],
                belonging=loads.belonging[known.shard_id],
                share=loads.belonging[known.shard_id] / belonging if known.open and belonging else None,
            )
        facts.append(found)
    return facts


def _closed(lineage: Lineage, shard: Shard) -> datetime | None:
    """When a shard was closed: when its first child was made, as far as hints tell."""
    if shard.open:
        return None
    made = (lineage.created(child.shard_id) for child in lineage.children(shard.shard_id))
    return min((time for time in made if time is not None), default=None)


def _most_telling(shards: list[ShardFacts]) -> tuple[ShardFacts, ...]:
    """At most MAX_SHOWN_SHARDS: those with losses first, then those with most on them; in their order."""
    if len(shards) <= MAX_SHOWN_SHARDS:
        return tuple(shards)
    ranked = sorted(
        range(len(shards)),
        key=lambda i: (-shards[i].dropped, -shards[i].misplaced, -shards[i].user_records, i),
    )
    return tuple(shards[i] for i in sorted(ranked[:MAX_SHOWN_SHARDS]))


def _rate(tally: Tally) -> tuple[RateCell, ...]:
    cells = []
    for (start, shard_id), counts in sorted(
        tally.cells.items(), key=lambda item: (item[0][0], item[0][1] is None, item[0][1])
    ):
        time = _time(start)
        if time is not None:
            cells.append(RateCell(time, shard_id, *counts))
    return tuple(cells)


def _landing_order(pair: Landing) -> tuple[object, ...]:
    return (
        pair.verdict == "expected",
        -pair.user_records,
        pair.shard_id or "",
        pair.expected_shard_id or "",
        pair.verdict,
    )


def _order(finding: Finding) -> tuple[object, ...]:
    number = finding.sequence_number or ""
    return (
        SEVERITIES.index(finding.severity),
        list(KINDS).index(finding.kind) if finding.kind in KINDS else len(KINDS),
        finding.kind,
        finding.shard_id or "",
        len(number),
        number,
        -1 if finding.sub_sequence_number is None else finding.sub_sequence_number,
        finding.file or "",
        finding.position or 0,
        finding.offset or 0,
        finding.detail or "",
    )


def _shown_findings(tally: Tally, omitted: Counter[str]) -> tuple[tuple[KindCount, ...], tuple[Finding, ...]]:
    """All kinds with their counts, worst first, and as many findings of each as there is room for."""
    kinds = sorted(
        (KindCount(kind_of(name), *counts) for name, counts in tally.kinds.items()),
        key=lambda count: _order(Finding(count.kind.name)),
    )
    each = max(1, MAX_SHOWN_FINDINGS // max(1, len(kinds)))
    shown: list[Finding] = []
    for count in kinds:
        kept = drawn(tally.examples.get(count.kind.name, []), min(each, MAX_EXAMPLES))
        omitted["findings"] += count.findings - len(kept)
        shown += sorted(kept, key=_order)
    return tuple(kinds), tuple(shown)
