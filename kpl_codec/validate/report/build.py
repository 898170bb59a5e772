"""Makes the report from a tally and a shard map: sorts the counts, limits their number, and makes the
findings that need the counts of the whole input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any, get_args

from ...findings import Finding, kind_of, order_of, order_of_kind
from ...findings.counters import FIRST_SECOND, LAST_SECOND, MAX_EXAMPLES, OTHERS, SLOTS, Tally, least, sample
from ...rendering.labels import plural
from ...shards.lineage import Lineage
from ...shards.placement import ACROSS_SHARDS, Verdict
from ...shards.shard_map import ShardMap
from ...shards.skew import overloaded_shards
from ...shards.stream_name import name_beside, streams_named
from .model import NO_SHARD, About, CauseCount, KindCount, RateCell, Report, ShardFacts, Totals
from .summary import worst_first

#: How many items of each kind the page shows at most, so that it stays usable.
MAX_SHOWN_SHARDS = 1000
MAX_SHOWN_FINDINGS = 3000
MAX_SHOWN_INPUTS = 50

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: The verdict of records that were checked without a shard map.
NOT_JUDGED = "not-judged"


class _Loads:
    """Sums of the groups of a tally, by shard, by verdict, and by what the KCL does."""

    def __init__(self, tally: Tally, shard_map: ShardMap | None) -> None:
        self.user_records: Counter[str | None] = Counter()
        self.bytes: Counter[str | None] = Counter()
        self.misplaced: Counter[str | None] = Counter()
        self.dropped: Counter[str | None] = Counter()
        self.belonging: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.kcl: Counter[str] = Counter()
        #: (shard, verdict) -> number of user records, the sequence number of one of them
        self.by_verdict: dict[tuple[str | None, str], tuple[int, str | None]] = {}
        for (shard_id, expected, verdict, kcl), (count, size, number) in tally.groups.items():
            verdict = verdict or NOT_JUDGED
            self.user_records[shard_id] += count
            self.bytes[shard_id] += size
            self.verdicts[verdict] += count
            self.misplaced[shard_id] += count * (verdict == "stray")
            self.dropped[shard_id] += count * (kcl == "dropped")
            expired = verdict == "unknown-shard" and (shard_map is None or shard_id not in shard_map)
            if kcl is None or (kcl in ("delivered", "altered") and (expired or verdict == NOT_JUDGED)):
                self.kcl["unknown"] += count
            else:
                self.kcl[kcl] += count
            if expected is not None and expected != OTHERS:
                self.belonging[expected] += count
            before = self.by_verdict.get((shard_id, verdict), (0, None))
            self.by_verdict[shard_id, verdict] = before[0] + count, least(before[1], number)


def _time(seconds: int | None) -> datetime | None:
    in_range = seconds is not None and FIRST_SECOND <= seconds <= LAST_SECOND
    return _EPOCH + timedelta(seconds=seconds or 0) if in_range else None


def build_report(
    tally: Tally, shard_map: ShardMap | None, about: About, findings: Iterable[Finding] = ()
) -> Report:
    """The report on what ``tally`` counted.

    ``findings``: further ones, which neither the scan nor `input_findings` makes (for example
    duplicates). The tally is not changed.
    """
    tally = Tally.merge_all([tally])
    loads = _Loads(tally, shard_map)
    counted = set(tally.kinds)  # a watch reports some of the kinds of `input_findings` by itself
    of_input = [one for one in input_findings(tally, shard_map) if one.kind not in counted]
    for finding in (*findings, *of_input):
        tally.add_finding(finding)
    shards = _shard_facts(tally, loads, shard_map)
    most_telling = {shard.shard_id for shard in worst_first(shards)[:MAX_SHOWN_SHARDS]}
    kinds, listed_findings = _shown_findings(tally)
    omitted = {
        "findings": sum(count.findings for count in kinds) - len(listed_findings),
        "shards": len(shards) - MAX_SHOWN_SHARDS,
        "inputs": len(about.inputs) - MAX_SHOWN_INPUTS,
    }
    causes = [CauseCount(cause, *counts) for cause, counts in tally.causes.items()]
    arrivals = tally.shards.values()
    return Report(
        about=replace(
            about,
            stream_name=about.stream_name or (", ".join(streams_named(tally.streams)) or None),
            inputs=tuple(about.inputs[:MAX_SHOWN_INPUTS]),
        ),
        totals=Totals(
            kinesis_records=tally.records["kinesis"],
            plain_records=tally.records["plain"],
            aggregated_records=tally.records["aggregated"],
            broken_frames=tally.records["broken"],
            user_records=loads.user_records.total(),
            bytes=loads.bytes.total(),
            misplaced=loads.misplaced.total(),
            mixed_aggregates=tally.records["mixed"],
            foreign_aggregates=tally.records["foreign"],
            kcl=dict(loads.kcl),
            verdicts=dict(loads.verdicts),
        ),
        distribution=shard_map.distribution if shard_map is not None else None,
        kinds=kinds,
        findings=listed_findings,
        causes=tuple(sorted(causes, key=lambda count: (-count.user_records, count.cause))),
        shards=tuple(shard for shard in shards if shard.shard_id in most_telling),
        bucket_seconds=tally.bucket_seconds,
        cells=tuple(_cells(tally)),
        first_arrival=_time(min((first for _, _, first, _ in arrivals if first is not None), default=None)),
        last_arrival=_time(max((last for *_, last in arrivals if last is not None), default=None)),
        key_space=tuple((*tally.slots.get(slot, (0, 0)),) for slot in range(SLOTS)),
        skew=_skew(loads, shard_map),
        omitted={name: count for name, count in omitted.items() if count > 0},
    )


def _shard_facts(tally: Tally, loads: _Loads, shard_map: ShardMap | None) -> list[ShardFacts]:
    """Every shard of the map and every other shard id found, parents before children."""
    facts = []
    lineage = shard_map if shard_map is not None else Lineage(())
    belonging = loads.belonging.total()
    unlisted = (shard_id for shard_id in tally.shards if shard_id is None or shard_id not in lineage)
    strangers = sorted(unlisted, key=lambda shard_id: (shard_id is None, shard_id))
    for shard_id in [*lineage, *strangers]:
        kinesis_records, aggregated, first, last = tally.shards.get(shard_id, (0, 0, None, None))
        shard_facts = ShardFacts(
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
        shard = lineage.get(shard_id) if shard_id is not None else None
        if shard is not None:
            there = loads.belonging[shard.shard_id]
            shard_facts = replace(
                shard_facts,
                start=shard.hash_key_range.starting_hash_key,
                end=shard.hash_key_range.ending_hash_key,
                parents=shard.parent_shard_ids,
                state="open" if shard.open else "closed",
                opened=lineage.created(shard.shard_id),
                closed=lineage.closed_at(shard.shard_id),
                generation=lineage.generation(shard.shard_id),
                belonging=there,
                share=there / belonging if shard.open and belonging else None,
            )
        facts.append(shard_facts)
    return facts


def _cells(tally: Tally) -> Iterator[RateCell]:
    for seconds, shard_id in sorted(tally.cells, key=lambda key: (key[0], key[1] is None, key[1])):
        start = _time(seconds)
        if start is not None:
            yield RateCell(start, shard_id, *tally.cells[seconds, shard_id])


def _shown_findings(tally: Tally) -> tuple[tuple[KindCount, ...], tuple[Finding, ...]]:
    """All kinds with their counts, worst first, and as many findings of each as there is room for."""
    kinds = sorted(
        (KindCount(kind_of(name), *counts) for name, counts in tally.kinds.items()),
        key=lambda count: order_of_kind(count.kind.name),
    )
    each = min(MAX_SHOWN_FINDINGS // max(1, len(kinds)), MAX_EXAMPLES)
    examples = (sample(tally.examples.get(count.kind.name, []), each) for count in kinds)
    return tuple(kinds), tuple(finding for some in examples for finding in sorted(some, key=order_of))


#: Verdicts about whole shards: each is a kind of finding. Findings about other verdicts are made by record,
#: or for the whole stream.
_SHARD_VERDICTS = {*get_args(Verdict)} - {"expected", "stray", "distribution-auto"}


def input_findings(tally: Tally, shard_map: ShardMap | None = None) -> Iterator[Finding]:
    """A naive aggregator, verdicts on shards, skew, other streams, empty input. `build_report` adds them;
    call this only to write findings elsewhere, too."""
    loads = _Loads(tally, shard_map)
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
    by_verdict = sorted(loads.by_verdict.items(), key=lambda item: (item[0][0] or "", item[0][1]))
    for (shard_id, verdict), (count, number) in by_verdict:
        if verdict == "unknown-shard" and shard_map is not None and shard_id in shard_map:
            continue  # the shard is known, the hash key is not: another finding says why
        if verdict in _SHARD_VERDICTS:
            detail = None if shard_id is not None else "the capture does not say which shard"
            yield Finding(verdict, shard_id, number, user_records=count, detail=detail)
    if shard_map is None:
        return
    source = shard_map.stream
    if source is not None:
        for name in sorted({name_beside(text, source) for text in tally.streams if not source.has(text)}):
            whose = source.name if ":" not in name else source.arn
            detail = f"records of {name}; the shard map is of {whose}"
            yield Finding("other-stream", detail=detail)
    if shard_map.distribution == "AUTO":
        dropped = loads.dropped.total()
        detail = f"a KCL consumer drops {plural(dropped, 'user record')}"
        user_records = loads.user_records.total()
        yield Finding("distribution-auto", user_records=user_records, dropped=dropped, detail=detail)
    for shard_id, parents in sorted(shard_map.unknown_parents.items()):
        yield Finding("unknown-parent", shard_id, detail=f"parent {', '.join(parents)} is not listed")
    # By the shards that hash keys belong to now: the children of a recent split hold few records yet.
    counts = _on_open_shards(loads.belonging, shard_map)
    for shard_id, times in overloaded_shards(counts, sum(counts.values())):
        detail = f"{times:.1f} times the mean of {plural(len(counts), 'open shard')}"
        yield Finding("skewed-shard", shard_id, user_records=counts[shard_id], detail=detail)


def _skew(loads: _Loads, shard_map: ShardMap | None) -> float | None:
    """The load of the fullest open shard divided by the mean. The mean is over the open shards with records,
    because a shard that was not captured cannot be told from an idle one. None for fewer than two such
    shards."""
    counts = _on_open_shards(loads.user_records, shard_map)
    return max(counts.values()) * len(counts) / sum(counts.values()) if len(counts) > 1 else None


def _on_open_shards(counts: Counter[Any], shard_map: ShardMap | None) -> dict[str, int]:
    """The counts of the open shards that have a count; empty if keys do not decide the shard (AUTO)."""
    if shard_map is None or shard_map.distribution == "AUTO":
        return {}
    return {s.shard_id: counts[s.shard_id] for s in shard_map.open_shards if counts[s.shard_id]}
