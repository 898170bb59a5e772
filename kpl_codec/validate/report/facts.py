"""Makes the report from a tally and a shard map: plain values, which are summary.json (its schema is
spec/summary.schema.json). The text for terminals and the page are templates over them. Sorts the counts,
limits their number, and makes the findings that need the counts of the whole input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from math import ceil
from typing import TYPE_CHECKING, Any, get_args

from ... import __version__
from ...findings import SEVERITIES, Finding, camel_keys, kind_of, order_of, order_of_kind, worst
from ...findings.counters import FIRST_SECOND, LAST_SECOND, MAX_EXAMPLES, OTHERS, Tally, least, sample
from ...rendering.labels import plural
from ...shards.lineage import Lineage
from ...shards.placement import ACROSS_SHARDS, Verdict
from ...shards.shard_map import ShardMap
from ...shards.skew import overloaded_shards
from ...shards.stream_name import name_beside, streams_named
from .schema import VERSION, Arrivals, CauseFacts, Facts, KindFacts, ReadFacts, ShardFacts, Totals
from .summary import outcome, worst_first

if TYPE_CHECKING:
    from ...captures.account import AccountFacts

#: How many shards, inputs and findings of a kind are listed at most.
MAX_SHARDS, MAX_INPUTS, MAX_OF_KIND = 200, 50, 25
#: The most cells of `Arrivals`, and the most stretches of time.
_MAX_CELLS, _MAX_COLUMNS = 4000, 96
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: The verdict of records that were checked without a shard map.
NOT_JUDGED = "not-judged"
#: The shard id that stands for records without a shard id.
NO_SHARD = "(no shard)"


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


def _time(seconds: int | None) -> str | None:
    in_range = seconds is not None and FIRST_SECOND <= seconds <= LAST_SECOND
    return (_EPOCH + timedelta(seconds=seconds or 0)).isoformat() if in_range else None


def report_facts(
    tally: Tally,
    shard_map: ShardMap | None,
    findings: Iterable[Finding] = (),
    *,
    generated: datetime,
    stream_name: str | None = None,
    source: str | None = None,
    inputs: Sequence[str] = (),
    read: AccountFacts | None = None,
    rows: Mapping[str, int] | None = None,
    run: str | None = None,
) -> tuple[Facts, list[Finding]]:
    """What ``tally`` counted, and examples of its findings for the page.

    ``findings``: further ones, which neither the scan nor `input_findings` makes (for example duplicates).
    ``source``: where the records came from, one line; ``inputs``: files or shards. ``read``: what became of
    all that was given, where an account was kept. ``rows``: how many rows of results were written, by their
    folder; ``run``: the id of the job that wrote them. The tally is not changed."""
    tally = Tally.merge_all([tally])
    loads = _Loads(tally, shard_map)
    counted = set(tally.kinds)
    of_input = [one for one in input_findings(tally, shard_map) if one.kind not in counted]
    for finding in (*findings, *of_input):
        tally.add_finding(finding)
    kinds, shown = kinds_and_examples(tally)
    shards = _shards(tally, loads, shard_map)
    listed = {shard["shardId"] for shard in worst_first(shards)[:MAX_SHARDS]}
    omitted = {
        "findings": sum(kind["findings"] for kind in kinds) - len(shown),
        "shards": len(shards) - MAX_SHARDS,
        "inputs": len(inputs) - MAX_INPUTS,
    }
    causes = [
        CauseFacts(cause=cause, aggregates=aggregates, userRecords=user_records, dropped=dropped)
        for cause, (aggregates, user_records, dropped) in tally.causes.items()
    ]
    firsts = (first for _, _, first, _ in tally.shards.values() if first is not None)
    lasts = (last for *_, last in tally.shards.values() if last is not None)
    severity = worst(kind["name"] for kind in kinds)
    facts = Facts(
        summaryVersion=VERSION,
        kplCodecVersion=__version__,
        title="Kinesis stream validation",
        streamName=stream_name or (", ".join(streams_named(tally.streams)) or None),
        source=source,
        generated=generated.isoformat(),
        complete=True,
        clean=severity in (None, SEVERITIES[-1]),
        worst=severity,
        headline="",
        verdict="",
        read=None if read is None else ReadFacts(**camel_keys(read._asdict())),  # type: ignore[typeddict-item]
        rows=None if rows is None else dict(rows),
        run=run,
        distribution=shard_map.distribution if shard_map is not None else None,
        firstArrival=_time(min(firsts, default=None)),
        lastArrival=_time(max(lasts, default=None)),
        skew=_skew(loads, shard_map),
        totals=Totals(
            kinesisRecords=tally.records["kinesis"],
            plainRecords=tally.records["plain"],
            aggregatedRecords=tally.records["aggregated"],
            brokenFrames=tally.records["broken"],
            userRecords=loads.user_records.total(),
            bytes=loads.bytes.total(),
            misplaced=loads.misplaced.total(),
            mixedAggregates=tally.records["mixed"],
            foreignAggregates=tally.records["foreign"],
            kcl=dict(loads.kcl),
            verdicts=dict(loads.verdicts),
            lostAtKcl=loads.kcl["dropped"],
        ),
        kinds=kinds,
        causes=sorted(causes, key=lambda count: (-count["userRecords"], count["cause"])),
        shards=[shard for shard in shards if shard["shardId"] in listed],
        arrivals=_arrivals(tally, listed),
        inputs=list(inputs[:MAX_INPUTS]),
        omitted={name: count for name, count in omitted.items() if count > 0},
    )
    facts["headline"], facts["verdict"] = outcome(facts)
    return facts, shown


def kinds_and_examples(tally: Tally) -> tuple[list[KindFacts], list[Finding]]:
    """All kinds with their counts, worst first, and as many findings of each as the page has room for."""
    kinds, shown = list[KindFacts](), list[Finding]()
    for name in sorted(tally.kinds, key=order_of_kind):
        kind, (findings, user_records) = kind_of(name), tally.kinds[name]
        kinds.append(
            KindFacts(
                name=name,
                severity=kind.severity,
                title=kind.title,
                findings=findings,
                userRecords=user_records,
            )
        )
        shown += sorted(sample(tally.examples.get(name, []), min(MAX_OF_KIND, MAX_EXAMPLES)), key=order_of)
    return kinds, shown


def _shards(tally: Tally, loads: _Loads, shard_map: ShardMap | None) -> list[ShardFacts]:
    """Every shard of the map and every other shard id found, parents before children."""
    facts = []
    lineage = shard_map if shard_map is not None else Lineage(())
    belonging = loads.belonging.total()
    unlisted = (shard_id for shard_id in tally.shards if shard_id is None or shard_id not in lineage)
    strangers = sorted(unlisted, key=lambda shard_id: (shard_id is None, shard_id))
    for shard_id in [*lineage, *strangers]:
        kinesis_records, aggregated, first, last = tally.shards.get(shard_id, (0, 0, None, None))
        shard = lineage.get(shard_id) if shard_id is not None else None
        one = ShardFacts(
            shardId=shard_id if shard_id is not None else NO_SHARD,
            start=None,
            end=None,
            parents=[],
            state="unknown",
            opened=None,
            closed=None,
            generation=0,
            kinesisRecords=kinesis_records,
            aggregatedRecords=aggregated,
            userRecords=loads.user_records[shard_id],
            bytes=loads.bytes[shard_id],
            misplaced=loads.misplaced[shard_id],
            dropped=loads.dropped[shard_id],
            belonging=0,
            share=None,
            firstArrival=_time(first),
            lastArrival=_time(last),
        )
        if shard is not None:
            opened, closed = lineage.created(shard.shard_id), lineage.closed_at(shard.shard_id)
            there = loads.belonging[shard.shard_id]
            one["start"] = str(shard.hash_key_range.starting_hash_key)
            one["end"] = str(shard.hash_key_range.ending_hash_key)
            one["parents"] = list(shard.parent_shard_ids)
            one["state"] = "open" if shard.open else "closed"
            one["opened"] = None if opened is None else opened.isoformat()
            one["closed"] = None if closed is None else closed.isoformat()
            one["generation"] = lineage.generation(shard.shard_id)
            one["belonging"] = there
            one["share"] = there / belonging if shard.open and belonging else None
        facts.append(one)
    return facts


def _arrivals(tally: Tally, shards: set[str]) -> Arrivals | None:
    starts = [start for start, _ in tally.cells if _time(start) is not None]
    if not starts:
        return None
    first, bucket = min(starts), tally.bucket_seconds
    columns = max(8, min(_MAX_COLUMNS, _MAX_CELLS // max(1, len(shards))))
    seconds = bucket * ceil(((max(starts) - first) // bucket + 1) / columns)
    cells: dict[tuple[int, str], list[int]] = {}
    for (start, shard_id), (user_records, _, dropped) in tally.cells.items():
        name = shard_id if shard_id is not None else NO_SHARD
        if name in shards and _time(start) is not None:
            cell = cells.setdefault(((start - first) // seconds, name), [0, 0])
            cell[0] += user_records
            cell[1] += dropped
    listed = [(column, name, *counts) for (column, name), counts in sorted(cells.items())]
    return Arrivals(start=_time(first) or "", seconds=seconds, cells=listed)  # type: ignore[typeddict-item]


#: Verdicts about whole shards: each is a kind of finding. Findings about other verdicts are made by record,
#: or for the whole stream.
_SHARD_VERDICTS = {*get_args(Verdict)} - {"expected", "stray", "distribution-auto"}


def input_findings(tally: Tally, shard_map: ShardMap | None = None) -> Iterator[Finding]:
    """A naive aggregator, verdicts on shards, skew, other streams, empty input. `report_facts` adds them;
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
