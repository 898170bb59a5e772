"""The results of an audit: findings, sums, and a folder like that of `validate`.

out/findings/        Parquet, for `kpl-codec findings`
out/summary.json     the sums
out/report.html      the same with a picture by shard and time
out/user-records/    the missing user records that the stream still holds: `kpl-codec repair` puts them again
out/shards.json      the shard map, where the stream was looked at
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta, timezone
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .. import __version__
from ..captures import Location
from ..captures.rows import Rows
from ..findings import KINDS, Finding
from ..format.records import KinesisRecord
from ..ledger import Row
from ..pictures.labels import camel_keys, plural
from ..report.build import build_report
from ..report.counters import Tally as Counts
from ..report.model import About, AuditCell, Report
from ..report.page import render_page
from ..report.scan import findings_batch
from ..shards.shard_map import ShardMap
from ..validation.check import check
from ..validation.repair_files import read_copies
from ..validation.results import prepare_output
from .judge import Audit
from .names import Name, Names, Run, runs_of
from .tally import Tally, Unclaimed

#: Findings of one kind that are told one by one; the rest of it is one finding.
_MOST: Final = 100_000
#: Columns of the picture.
_COLUMNS: Final = 60
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def findings_of(audit: Audit, names: Names, missing: Iterable[Finding]) -> Iterator[Finding]:
    """All findings; ``missing``: those on missing user records, see `why`."""
    yield from missing
    for run in runs_of(names, audit.unknown):
        yield _about("audit-unknown", run, f"a note may be lost: {audit.handled_holes[0].why}")
    for double in audit.doubles:
        # AUD-13: "User records that were handled oftener than once MUST be told apart by who doubled them: a
        # consumer's retry, a producer's that sent a Kinesis record again, or a repair."
        times = f"{double.times} times" if double.times < 255 else "255 times or oftener"
        yield _about(
            "audit-twice", double.run, f"a consumer's retry: {times}, in {', '.join(double.sources)}"
        )
    for name in audit.repaired_twice:
        yield _about("audit-twice", Run(*name, name[2]), "a repair: it was handled, and its copy, too")
    if audit.copies:
        detail = "a producer's retry: copies that the producer sent again, because the KCL drops them"
        yield Finding(kind="audit-twice", user_records=audit.copies, detail=detail)
    retry = "an attempt without an answer was stored, and its producer sent it again"
    for kind, detail, several in (
        ("audit-twice", f"a producer's retry: {retry}", audit.retries),
        ("audit-unclaimed", f"a foreign writer, or {retry}", audit.perhaps_retries),
        ("audit-unclaimed", "a writer without a ledger", audit.foreign),
    ):
        yield from (_unclaimed(kind, one, detail) for one in several)
    for hole in audit.holes:
        yield Finding(kind="audit-incomplete", file=hole.writer, detail=hole.why)
    if audit.conflicts:
        detail = f"{audit.conflicts} rows of ledgers contradict others of the same name"
        yield Finding(kind="audit-incomplete", detail=detail)
    for (code, count), may in [
        *((one, False) for one in audit.refused.items()),
        *((one, True) for one in audit.left.items()),
    ]:
        detail = f"{code}; it may be stored all the same" if may else code
        yield Finding(kind="audit-refused", user_records=count, detail=detail)
    for shard_id, sums in audit.shards.items():
        if sums.too_early:
            detail = (
                "nothing later of this shard was handled"
                if sums.handled
                else "nothing of this shard was handled"
            )
            yield Finding(kind="audit-not-yet", shard_id=shard_id, user_records=sums.too_early, detail=detail)


def _about(kind: str, run: Run, detail: str) -> Finding:
    return Finding(
        kind=kind,
        shard_id=run.shard_id,
        sequence_number=run.sequence_number,
        sub_sequence_number=run.first,
        user_records=run.user_records,
        detail=detail,
    )


def _unclaimed(kind: str, one: Unclaimed, detail: str) -> Finding:
    return _about(
        kind, Run(one.shard_id, one.sequence_number, one.first, one.first + one.user_records - 1), detail
    )


def facts(audit: Audit, names: Names, tally: Tally, found: Sequence[Finding]) -> dict[str, Any]:
    """The sums, as in summary.json."""
    sums = {name: audit.total(name) for name in ("delivered", "handled", "repaired", "missing", "unknown")}
    kinds = Counter[str]()
    for finding in found:
        kinds[finding.kind] += finding.user_records or 1
    return {
        "complete": audit.complete,
        "userRecords": {**sums, "tooEarly": audit.total("too_early"), "twice": audit.doubled + audit.copies},
        "refused": [{"code": code, "userRecords": count} for code, count in sorted(audit.refused.items())],
        "left": [{"code": code, "userRecords": count} for code, count in sorted(audit.left.items())],
        "kinds": [
            {"kind": kind, "userRecords": kinds[kind]} for kind in sorted(kinds, key=list(KINDS).index)
        ],
        "kinesisRecords": len(names),
        "handledRows": tally.rows,
        "unclaimedRows": tally.unclaimed_rows,
        "unreadableRows": tally.bad,
        "shards": [camel_keys({"shard_id": shard, **asdict(one)}) for shard, one in audit.shards.items()],
        "incomplete": [f"{hole.writer}: {hole.why}" for hole in audit.holes],
        "version": __version__,
    }


def headline(audit: Audit) -> str:
    """One sentence."""
    if audit.complete:
        return f"Everything was handled: {plural(audit.total('delivered'), 'user record')}."
    parts = [
        f"{audit.total(name):,} {text}"
        for name, text in (("missing", "missing"), ("unknown", "unknown"), ("too_early", "too early to say"))
        if audit.total(name)
    ]
    if audit.holes or audit.conflicts:
        parts.append("a ledger is not whole, so nobody can say that this is all")
    return f"Of {plural(audit.total('delivered'), 'delivered user record')}: {'; '.join(parts)}."


def repaired_names(folders: Iterable[str]) -> list[tuple[Name, Name]]:
    """Originals and copies, by the logs of `kpl-codec repair`. Raises InputError."""
    return [
        names
        for folder in folders
        for file in (Location(folder) / "repair/log").files()
        if file.name.endswith(".jsonl")
        for names in read_copies(file)
    ]


def copies_of(repaired: Iterable[tuple[Name, Name]]) -> list[Row]:
    """Rows of the Kinesis records that hold the copies of ``repaired``."""
    counts: dict[tuple[str, str], int] = {}
    for _, (shard_id, number, sub) in repaired:
        counts[shard_id, number] = max(counts.get((shard_id, number), 0), sub + 1)
    # (When they were put is not in the log: --until never judges them.)
    return [Row("repaired", *place, count, 1 << 62) for place, count in counts.items()]


def write(
    output: Location,
    audit: Audit,
    names: Names,
    summary: Mapping[str, Any],
    found: Sequence[Finding],
    records: Iterable[KinesisRecord] = (),
    shard_map: ShardMap | None = None,
    stream: str | None = None,
) -> None:
    """Write the folder. Raises OutputError if it is not empty."""
    prepare_output(output)
    (output / "_work").delete()
    for folder in ("findings", "user-records"):
        (output / folder).make_folder()
    (output / "findings/part-audit.parquet").write_table(pa.table(findings_batch(list(found))))
    (output / "summary.json").write(json.dumps(summary, indent=2).encode())
    (output / "report.html").write(render_page(_report(audit, names, found, shard_map, stream)).encode())
    if shard_map is not None:
        _write_user_records(
            output / "user-records/part-audit.parquet", audit, names, records, shard_map, stream
        )
        (output / "shards.json").write(shard_map.to_json().encode())


def _write_user_records(
    file: Location,
    audit: Audit,
    names: Names,
    records: Iterable[KinesisRecord],
    shard_map: ShardMap,
    stream: str | None,
) -> None:
    missing = {
        (run.shard_id, run.sequence_number, sub)
        for run in runs_of(names, audit.missing)
        for sub in range(run.first, run.last + 1)
    }
    rows = Rows(None)
    for record in records:
        rows.record(record, stream)
    with file.whole_file() as out:
        writer = None
        for batch in check(rows.take(), shard_map):
            columns = [
                batch[name].to_pylist() for name in ("shardId", "sequenceNumber", "subSequenceNumber", "kcl")
            ]
            keep = [name in missing for name in zip(*columns[:3], strict=True)]
            fate = pa.array([kcl if kcl == "dropped" else "missing" for kcl in columns[3]], pa.string())
            batch = batch.set_column(batch.schema.get_field_index("kcl"), "kcl", fate).filter(pa.array(keep))
            writer = writer or pq.ParquetWriter(out, batch.schema)
            writer.write_batch(batch)
        if writer is not None:
            writer.close()
    if writer is None:
        file.delete()


def _report(
    audit: Audit, names: Names, found: Sequence[Finding], shard_map: ShardMap | None, stream: str | None
) -> Report:
    about = About(
        datetime.now(timezone.utc),
        __version__,
        title=f"Audit: {headline(audit)}",
        stream_name=stream,
        source="ledgers of producers, and what consumers have handled",
    )
    report = build_report(Counts(), None, about, found)
    kinds = tuple(count for count in report.kinds if count.kind.name != "no-records")
    shown = tuple(finding for finding in report.findings if finding.kind != "no-records")
    return replace(report, kinds=kinds, findings=shown, audit=tuple(_cells(audit, names)))


def _cells(audit: Audit, names: Names) -> Iterator[AuditCell]:
    """User records by shard and when they were put."""
    known = names.at[(names.at > 0) & (names.at < 1 << 60)]
    if not len(known):
        return
    first, width = int(known.min()), max(-(-(int(known.max()) - int(known.min()) + 1) // _COLUMNS), 1000)
    column = np.clip((names.at - first) // width, 0, _COLUMNS - 1)
    where = names.shard.astype(np.int64) * _COLUMNS + column
    size = len(names.shards) * _COLUMNS
    put = np.bincount(where, names.counts, size)
    parts = [
        np.bincount(where[names.named(part)[0]], minlength=size) for part in (audit.missing, audit.too_early)
    ]
    for at in np.flatnonzero(put):
        start = _EPOCH + timedelta(milliseconds=int(first + at % _COLUMNS * width))
        yield AuditCell(
            start,
            width / 1000,
            names.shards[at // _COLUMNS],
            int(put[at]),
            *(int(part[at]) for part in parts),
        )
