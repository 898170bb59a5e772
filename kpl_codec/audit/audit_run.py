"""A whole audit: reads both ledgers, compares them, looks for causes on the stream, and writes a folder:

out/findings/        Parquet, for `kpl-codec findings`
out/summary.json     the sums
out/report.html      the sums, by shard
out/user-records/    the missing user records that the stream still holds; those of unread shards, too
out/shards.json      the shard map, if the audit called Kinesis
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import chain
from typing import Any, ClassVar, Final, Literal
from uuid import uuid4

import numpy as np
import pyarrow as pa

from .. import __version__
from ..captures import Location
from ..captures.capture_rows import CaptureRows
from ..errors import KplError
from ..findings import SEVERITIES, Finding, camel_keys, order_of_kind, worst
from ..findings.counters import Tally as Counts
from ..ledger.ledger_rows import digest_of
from ..rendering.labels import plural
from ..shards.shard_map import ShardMap
from ..shards.stream_name import Stream, stream_of
from ..validate.check import check
from ..validate.report.facts import kinds_and_examples
from ..validate.report.page import Sheet, render_page
from ..validate.report.summary import Count
from ..validate.results import RESULTS, new_results
from ..validate.scan import findings_batch
from .files import InputAccount, ReadProgress, account_of, refused_of
from .handled_rows import Streams, count_handled
from .index import TIMES, Columns, Index, Run, Tally, runs_of
from .judge import OPEN, STATES, Audit, judge
from .lost_parts import LostPart
from .missing_causes import FetchedRecords, fetch, findings_on_missing
from .parquet_reader import HandledRows
from .writers import Origin

#: The most user records of an audit: each takes a byte of memory, more if it was not handled.
_MOST: Final = 1 << 31
#: How many files a note names, and unread ones the headline; and how many refused ones of a kind an error.
_NAMED = 3
_NAMED_REFUSED: Final = 5
#: What a command may hold of a path as it is.
_PLAIN_PATH: Final = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
#: The words in the headline for the states that make an audit incomplete.
_OPEN: Final = {"missing": "missing", "unknown": "unknown", "too_early": "too early to say"}
_SAME_BYTES: Final = "the same bytes were handled: those of this attempt, or of an earlier one"
_RETRY: Final = "an attempt without an answer was stored, and its producer sent it again"
#: Kind and text of the finding on handled user records that no producer's ledger names, by `judge.Putter`.
_UNCLAIMED: Final = {
    "unanswered": ("audit-twice", f"a producer's retry: {_RETRY}"),
    "stored": (
        "audit-unclaimed",
        "an attempt without an answer was stored, and no ledger has the same bytes",
    ),
    "either": ("audit-unclaimed", "a foreign writer, or an attempt without an answer that was stored"),
    "foreign": ("audit-unclaimed", "a writer without a ledger"),
}


class AuditError(KplError, ValueError):
    """``files`` under a given path are neither ledgers nor tables of handled user records; or the producers'
    side has no row, too many ``user_records``, or ledgers of several ``streams``."""

    code: Literal["other-files", "nothing-produced", "several-streams", "too-many"]
    requirement = "AUD-10"
    requirements: ClassVar[Mapping[str, str]] = {"other-files": "AUD-36"}
    files: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    user_records: int = 0
    reason: str = ""
    concerns = "Whoever audits. Nothing was written."
    todo = (
        "Give --produced the ledgers of the producers of one stream, or choose it with --stream. Give "
        "--handled ledgers of its consumers, or Parquet. --leave-out PATTERN leaves other files out."
    )

    def describe(self) -> str:
        if self.code == "other-files":
            are = "file is neither a ledger" if len(self.files) == 1 else "files are neither ledgers"
            what = f"nor Parquet with the columns shardId, sequenceNumber, subSequenceNumber: {self.reason}"
            return f"{len(self.files):,} {are} {what}; --leave-out PATTERN leaves files out"
        if self.code == "several-streams":
            streams = ", ".join(self.streams)
            return f"ledgers of several streams: {streams}; choose one with --stream, or name its files alone"
        if self.code == "too-many":
            user_records = plural(self.user_records, "user record")
            return f"ledgers of {user_records}; an audit takes {_MOST:,}, so audit parts"
        whose = "".join(f" of {stream}" for stream in self.streams)
        return f"--produced holds no ledger of a producer{whose}{self.reason}"


def _refuse(refused: Mapping[str, str]) -> None:
    """Raises AuditError, if there are files that are refused; it names those of one kind together, and writes
    the name of a single one into its command."""
    if not refused:
        return
    by_reason: dict[str, list[str]] = {}
    for file, why in refused.items():
        by_reason.setdefault(why, []).append(file)
    kinds = []
    for why, files in by_reason.items():
        if len(files) == 1 and _PLAIN_PATH.fullmatch(files[0]):
            why = re.sub(r"\bFILE\b", files[0], why)
        more = f" and {len(files) - _NAMED_REFUSED:,} more" if len(files) > _NAMED_REFUSED else ""
        kinds.append(f"{', '.join(files[:_NAMED_REFUSED])}{more} ({why})")
    raise AuditError(code="other-files", files=tuple(refused), reason="; ".join(kinds))


def findings_of(
    audit: Audit, index: Index, missing: Iterable[Finding], unreadable: Iterable[LostPart]
) -> Iterator[Finding]:
    """All findings; ``missing``: those on missing user records."""
    yield from missing
    for run in runs_of(index, audit.of("unknown")):
        yield run.finding("audit-unknown", _why_unknown(audit.lost_of_consumers.naming(*run[:2])))
    for part in unreadable:
        row = "" if part.row is None else f"row {part.row}: "
        repeated = "" if part.times == 1 else f" ({part.times:,} times)"
        detail = f"{row}{part.why}{repeated}"
        yield Finding(kind="audit-unreadable", file=part.source, line=part.row, detail=detail)
    # AUD-27: "A consumer's ledger that is damaged or lacks members MUST be reported even where nothing is
    # missing."
    for part in audit.lost_of_consumers:
        if part.kind != "rows":
            yield Finding(kind="audit-damaged", file=part.source, detail=part.why)
    for run in runs_of(index, audit.of("aside")):
        yield run.finding("audit-aside", "the consumer's poison hook took it")
    # AUD-13: "User records that were handled more than once MUST be distinguished by the cause: a consumer's
    # retry, or a producer's that sent a Kinesis record again."
    for run, times in audit.duplicates:
        handled = f"handled {times} times" if times < TIMES else f"handled {TIMES} times or more"
        yield run.finding("audit-twice", f"a consumer's retry, or a copy of its table: {handled}")
    if audit.copies:
        detail = (
            "a producer's retry: it sent them again, as they lay on the wrong shard, and both were handled"
        )
        yield Finding(kind="audit-twice", user_records=audit.copies, detail=detail)
    for putter, one in audit.unclaimed:
        kind, detail = _UNCLAIMED[putter]
        yield replace(Run(*one[:4]).finding(kind, detail), user_records=one.rows)
    for part in audit.lost_of_producers:
        yield Finding(kind="audit-incomplete", file=part.source, detail=part.why)
    if audit.conflicts:
        rows = plural(audit.conflicts, "row of a ledger contradicts", "rows of ledgers contradict")
        yield Finding(kind="audit-incomplete", detail=f"{rows} others of the same Kinesis record")
    for outcome, codes in audit.undelivered.items():
        stored = "; it may be stored all the same" if outcome == "left" else ""
        for code, count in sorted(codes.items()):
            yield Finding(kind="audit-refused", user_records=count, detail=f"{code}{stored}")
    for shard_id, sums in audit.shards.items():
        if sums["too_early"]:
            detail = f"nothing{' later' if sums['handled'] else ''} of this shard was handled"
            yield Finding("audit-not-yet", shard_id, user_records=sums["too_early"], detail=detail)


def _why_unknown(part: LostPart | None) -> str:
    """Why nobody can know whether a user record was handled. ``part``: what may have named it."""
    if part is None:
        return _SAME_BYTES
    row = "" if part.row is None else f", row {part.row}"
    return f"it may be named by what cannot be read of {part.source}{row}: {part.why}"


@dataclass
class AuditResult:
    """``fetched``: the Kinesis records of missing user records that the stream still holds.
    ``other_streams``: names or ARNs of streams whose rows were left out. ``producers``, ``consumers``: what
    was read of each side."""

    audit: Audit
    index: Index
    tally: Tally
    findings: list[Finding]
    stream: str
    shard_map: ShardMap | None
    fetched: FetchedRecords
    other_streams: list[str]
    producers: InputAccount
    consumers: InputAccount

    @property
    def unreadable(self) -> list[LostPart]:
        """What could not be read of files."""
        return unreadable_of(self.producers, self.consumers)

    @property
    def headline(self) -> str:
        """The result in a sentence, after sentences about inputs that hold nothing that can be read."""
        audit, delivered = self.audit, self.audit.total("delivered")
        unread = self._unread()
        lead = "".join(f"{text}{'' if text[-1] == '?' else '.'} " for text in unread[:_NAMED])
        if (more := len(unread) - _NAMED) > 0:
            lead += f"{more:,} more files cannot be read. "
        if lost := sum(codes.total() for codes in audit.undelivered.values()):
            lead += f"{plural(lost, 'user record')} reported to the producer as not delivered. "
        if audit.complete:
            put_aside = f", {audit.total('aside'):,} of them put aside" if audit.total("aside") else ""
            what = "Everything that was delivered" if lost else "Everything"
            all_handled = f"{what} was handled: {plural(delivered, 'user record')}{put_aside}."
            return (
                f"{lead}{all_handled}"
                if delivered
                else f"{lead}--produced names no user record that was delivered."
            )
        parts = [f"{audit.total(name):,} {_OPEN[name]}" for name in OPEN if audit.total(name)]
        if audit.lost_of_producers or audit.conflicts:
            parts.append("a producer's ledger is not whole, so more may be missing")
        return f"{lead}Of {plural(delivered, 'delivered user record')}: {'; '.join(parts)}."

    @property
    def notes(self) -> list[str]:
        """Sentences about inputs that were left out or are empty, and the like; they are no findings."""
        notes = [f"rows of another stream were skipped: {name}" for name in self.other_streams]
        for account in (self.producers, self.consumers):
            for text, names in {**account.left_out, "there is nothing in": account.empty}.items():
                count = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
                notes += [f"{text} {', '.join(names[:_NAMED])}{count}"] if names else []
        return notes

    def _unread(self) -> list[str]:
        """Sentences about files of which nothing can be read, and about a --handled without rows."""
        tally, texts = self.tally, dict[str, str]()
        for account in (self.producers, self.consumers):
            for part in account.lost:
                if account.rows.get(part.source) == 0:
                    texts.setdefault(part.source, f"{part.source} cannot be read: {part.why}")
        sentences = [*texts.values()]
        if len(self.index) and tally.rows and tally.rows == tally.unclaimed_rows:
            names = "No row of --handled names a user record of --produced"
            sentences.append(f"{names}: are both of one stream, and of one time?")
        if not (tally.rows or tally.bad or tally.handled_shards):
            is_swapped = any(origin.side == "produced" for origin in self.consumers.writers.origins)
            only = ", but a ledger of a producer" if is_swapped else ""
            sentences.insert(0, f"--handled holds no row of a consumer of {self.stream}{only}")
        return sentences

    @property
    def facts(self) -> dict[str, Any]:
        """The sums, as in summary.json."""
        audit, tally, kinds, found = self.audit, self.tally, Counter[str](), Counter[str]()
        for finding in self.findings:
            kinds[finding.kind] += finding.user_records or 0
            found[finding.kind] += 1
        sums = {name: audit.total(name) for name in ("delivered", *STATES)}
        twice = sum(run.last - run.first + 1 for run, _ in audit.duplicates) + audit.copies
        undelivered = {
            outcome: [{"code": code, "userRecords": count} for code, count in sorted(codes.items())]
            for outcome, codes in audit.undelivered.items()
        }
        return {
            "complete": audit.complete,
            "userRecords": {**camel_keys(sums), "twice": twice},
            **undelivered,
            "kinds": [
                {"kind": kind, "findings": found[kind], "userRecords": kinds[kind]}
                for kind in sorted(found, key=order_of_kind)
            ],
            "kinesisRecords": len(self.index),
            "handledRows": tally.rows,
            "unclaimedRows": tally.unclaimed_rows,
            "unreadableRows": tally.bad,
            "unreadable": [
                {"file": part.source, "why": part.why, "times": part.times, "row": part.row}
                for part in self.unreadable
            ],
            "files": [*_files("produced", self.producers), *_files("handled", self.consumers)],
            "notes": self.notes,
            "otherStreams": self.other_streams,
            "shards": [{"shardId": shard, **camel_keys(sums)} for shard, sums in audit.shards.items()],
            "incomplete": [f"{part.source}: {part.why}" for part in audit.lost_of_producers],
            "version": __version__,
        }

    def write(self, output: str | Location) -> None:
        """Write the folder ``output``. Raises OutputError if it is not empty."""
        output = Location(output)
        with new_results(output) as output:
            for folder in ("findings", "user-records"):
                (output / folder).make_folder()
            # (Each file says in its first bytes that it is of results.)
            mark, run_id = {RESULTS.decode(): "kpl-codec audit"}, uuid4().hex
            findings = pa.table(findings_batch(self.findings))
            rows = {"findings": findings.num_rows, "user-records": 0}
            (output / "findings/part-audit.parquet").write_table(findings, RESULTS, f"{run_id}/findings")
            if self.shard_map is not None:
                if batches := list(self._user_records(self.shard_map)):
                    user_records = pa.Table.from_batches(batches)
                    rows["user-records"] = user_records.num_rows
                    part = output / "user-records/part-audit.parquet"
                    part.write_table(user_records, RESULTS, f"{run_id}/user-records")
                shard_map = {**mark, **json.loads(self.shard_map.to_json())}
                (output / "shards.json").write(json.dumps(shard_map, indent=2).encode())
            summary = {**mark, **self.facts, "rows": rows, "run": run_id}
            (output / "summary.json").write(json.dumps(summary, indent=2).encode())
            (output / "report.html").write(self._page().encode())

    def _user_records(self, shard_map: ShardMap) -> Iterator[pa.RecordBatch]:
        """The missing user records in the fetched Kinesis records, in the columns of `validate`."""
        missing = {
            (run.shard_id, run.sequence_number, sub)
            for run in runs_of(self.index, self.audit.of("missing"))
            if run[:2] in self.fetched.records
            for sub in range(run.first, run.last + 1)
        }
        rows, handled = CaptureRows(None), self.tally.handled_shards
        for record in self.fetched.records.values():
            rows.record(record, self.stream)
        for batch in check(rows.take(), shard_map, lambda findings: None):
            names = (batch[name].to_pylist() for name in ("shardId", "sequenceNumber", "subSequenceNumber"))
            is_missing = pa.array([name in missing for name in zip(*names, strict=True)])
            # AUD-15: "A user record that the KCL does not drop MUST be called unread, not missing, in the
            # audit's results where the consumer has handled nothing of its shard."
            states = [
                "dropped" if kcl == "dropped" else "missing" if shard_id in handled else "unread"
                for shard_id, kcl in zip(batch["shardId"].to_pylist(), batch["kcl"].to_pylist(), strict=True)
            ]
            kcl = batch.schema.get_field_index("kcl")
            yield batch.set_column(kcl, "kcl", pa.array(states, pa.string())).filter(is_missing)

    def _page(self) -> str:
        """The page of the audit, by the template of `validate`."""
        headline = "User records are missing" if self.audit.total("missing") else "Not all is known"
        if self.audit.complete and self.audit.total("delivered"):
            headline = "Everything that was delivered was handled"
        tally = Counts()
        for finding in self.findings:
            tally.add_finding(finding)
        kinds, shown = kinds_and_examples(tally)
        severity = worst(kind["name"] for kind in kinds)
        names = ("delivered", *STATES)
        words = {name: name.replace("_", " ").capitalize() for name in names}
        bad = {"missing": "bad", "unknown": "bad rare"}
        facts = {
            "title": "Audit: what was put, and what was handled",
            "streamName": self.stream,
            "source": "ledgers of producers, and what consumers have handled",
            "generated": datetime.now(timezone.utc).isoformat(),
            "kplCodecVersion": __version__,
            "clean": severity in (None, SEVERITIES[-1]),
            "worst": severity,
            "headline": headline,
            "verdict": self.headline,
            "read": None,
            "kinds": kinds,
            "omitted": {},
            "inputs": [],
            "distribution": None,
        }
        rows = [
            (shard, *(sums[name] for name in names))
            for shard, sums in sorted(
                self.audit.shards.items(), key=lambda item: (-item[1]["missing"], item[0])
            )
        ]
        tiles = [Count(words[name], self.audit.total(name), "", bad.get(name, "")) for name in names]
        sheet = Sheet("User records by shard, worst first", ("Shard", *words.values()), rows)
        return render_page(facts, shown, tiles=tiles, shards=sheet if rows else None)


def _files(side: str, account: InputAccount) -> Iterator[dict[str, Any]]:
    # AUD-41: "summary.json MUST say of each input file how many rows of it were read, and which were left
    # out."
    for file, rows in account.rows.items():
        yield {"side": side, "file": file, "rows": rows, "leftOut": False}
    for file in chain.from_iterable(account.left_out.values()):
        yield {"side": side, "file": file, "rows": 0, "leftOut": True}


def audit(
    produced: Sequence[str],
    handled: Sequence[str],
    *,
    put_before: datetime | None = None,
    client: Any = None,
    stream: str | None = None,
    leave_out: Sequence[str] = (),
    progress: ReadProgress | None = None,
) -> AuditResult:
    """Compare what was ``produced`` with what was ``handled``: paths of ledgers and tables.

    ``put_before``: user records that were put before this time must be handled. ``client``, ``stream``: where
    to look for causes. ``leave_out``: patterns of files that are not read. ``progress`` is kept up to date.
    Raises InputError, AuditError, StreamUnavailable."""
    producers = account_of(produced, "produced", leave_out)
    consumers = account_of(handled, "handled", leave_out)
    return audit_files(producers, consumers, put_before, client, stream, progress)


def audit_files(
    producers: InputAccount,
    consumers: InputAccount,
    put_before: datetime | None = None,
    client: Any = None,
    stream: str | None = None,
    progress: ReadProgress | None = None,
) -> AuditResult:
    """As `audit`, of files that are listed, and not read yet."""
    from ..aws.stream_reading import fetch_shard_map

    progress = progress or ReadProgress()
    progress.size = sum(max(file.size, 0) for file in (*producers.files, *consumers.files))
    shard_map = None if client is None or stream is None else fetch_shard_map(client, stream)
    by_origin = _produced(producers, progress)
    if producers.refused:
        _refuse(producers.refused | refused_of(consumers.files))
    columns, target = _of_one_stream(producers, by_origin, stream)
    index = Index(columns)
    del columns, by_origin  # (for many user records they are as large as the index)
    tally, streams = Tally(index), Streams(target)
    for file, item in consumers.read(progress):
        for part in count_handled(tally, streams, file, item):
            consumers.lost.add(part)
    _refuse(consumers.refused)
    if len(streams.arns) <= 1:
        np.maximum(tally.past, tally.past_by_name, out=tally.past)
    elif target.arn is None:
        raise AuditError(code="several-streams", streams=tuple(sorted(streams.arns)))
    for account, side in ((producers, "produced"), (consumers, "handled")):
        for part in account.writers.lost(side, target):
            account.lost.add(part)

    unclaimed = [place for place in tally.unclaimed if index.attempts]
    records = fetch(client, stream, shard_map, unclaimed).records
    digests = {place: digest_of(record.partition_key or "", record.data) for place, record in records.items()}
    # A consumer begins to read a child shard when it has read the parent to its end.
    begun = [shard for shard_id, shard in (shard_map or {}).items() if shard_id in tally.handled_shards]
    finished = [parent for shard in begun for parent in shard.parent_shard_ids]
    result = judge(
        index,
        tally,
        lost_of_producers=producers.lost,
        lost_of_consumers=consumers.lost,
        until=None if put_before is None else int(put_before.timestamp() * 1000),
        finished=finished,
        digests=digests,
    )
    missing = result.of("missing")
    places = map(index.place, np.unique(missing.record).tolist()) if shard_map is not None else ()
    fetched = fetch(client, stream, shard_map, places)
    on_missing = findings_on_missing(index, missing, tally.handled_shards, shard_map, fetched)
    findings = findings_of(result, index, on_missing, unreadable_of(producers, consumers))
    strangers = {str(origin) for origin in producers.writers.origins if not origin.is_of(target)}
    return AuditResult(
        result,
        index,
        tally,
        [*findings],
        target.name,
        shard_map,
        fetched,
        sorted(streams.others | strangers),
        producers,
        consumers,
    )


def unreadable_of(*accounts: InputAccount) -> list[LostPart]:
    return [part for account in accounts for part in account.lost if part.kind == "rows"]


def _produced(account: InputAccount, progress: ReadProgress) -> dict[Origin, Columns]:
    """The rows of all ledgers that producers have written, by their origin; of other ledgers none."""
    by_origin: dict[Origin, Columns] = {}
    shards: dict[str, int] = {}
    for file, member in account.read(progress):
        assert not isinstance(member, HandledRows)  # `files.read` refuses it
        columns = by_origin.setdefault(member.origin, Columns(shards))
        for row in member.rows:
            if member.origin.side == "produced" and not columns.add(row):
                account.lost.add(LostPart(file, "a row without a place on the stream"))
    return by_origin


def _of_one_stream(
    account: InputAccount, by_origin: Mapping[Origin, Columns], stream_name: str | None
) -> tuple[Columns, Stream]:
    """The rows of the stream's producers, and the stream. Raises AuditError."""
    stream = _stream(by_origin, stream_name)
    ours = [origin for origin in by_origin if origin.side == "produced" and origin.is_of(stream)]
    others = [origin for origin in by_origin if origin not in ours]
    whole = Columns(next((columns.shards for columns in by_origin.values()), {}))
    for origin in ours:
        whole.merge(by_origin[origin])
    if not whole.rows and (not by_origin or len(account.lost) or others):
        why = "".join(f"; {part.source}: {part.why}" for part in [*account.lost][:_NAMED])
        why += "".join(f"; a ledger there is of what was {one.side} of {one.stream}" for one in others[:3])
        streams = (stream.name,) if stream.name else ()
        raise AuditError(code="nothing-produced", streams=streams, reason=why)
    if whole.user_records > _MOST:
        raise AuditError(code="too-many", user_records=whole.user_records)
    return whole, stream


def _stream(origins: Iterable[Origin], stream_name: str | None) -> Stream:
    """The stream that is audited, with its ARN where that is known; without a name where no producer's ledger
    names one. Raises AuditError."""
    named = [origin for origin in origins if origin.side == "produced"]
    if stream_name is not None:
        chosen = stream_of(stream_name)
        named = [origin for origin in named if origin.is_of(chosen)]
        named.append(Origin(chosen.name, chosen.arn, "produced"))
    names = sorted({origin.stream for origin in named})
    arns = sorted({origin.stream_arn for origin in named if origin.stream_arn is not None})
    if len(arns) > 1 or len(names) > 1:
        raise AuditError(code="several-streams", streams=tuple(arns if len(arns) > 1 else names))
    return Stream(names[0] if names else "", arns[0] if arns else None)
