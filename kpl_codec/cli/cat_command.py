"""``kpl-codec cat``: prints user records, one JSON object a line."""

from __future__ import annotations

import argparse
import base64
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ..deaggregation.deaggregated_record import DeaggregatedRecord
from ..deaggregation.policies import opened
from ..findings import DAMAGE_KINDS, Finding, camel, order_of_kind
from ..findings.record_findings import findings_in
from ..format.compression import DEFAULT_MAX_DECOMPRESSED_SIZE
from ..format.records import KinesisRecord
from ..rendering.labels import plural, utc
from ..rendering.terminal import drop_output, json_line, note, write_on
from .command_inputs import CapturedRecord, Unreadable, client_of, paths_or_stream
from .exit_status import CLEAN, FINDINGS, INTERRUPTED
from .options import UsageError, add, add_aws, add_shared, note_nothing
from .progress import waiting

if TYPE_CHECKING:
    from ..aws.fetch_by_sequence_number import GoneRecord, UnreadableEntry

NESTED: Final = "nested-aggregate"
#: Seconds between two calls on a shard with --follow: other readers of the stream need some, too.
_FOLLOW_INTERVAL = 0.5
EPILOG = """\
Captures are what validate reads: GetRecords responses, Lambda and Firehose events, JSON
Lines, Parquet of the Spark connectors, raw frames; in gzip or not.

Prints a JSON object for each user record: streamName, shardId, sequenceNumber (from a
queue: recordId), subSequenceNumber, partitionKey, explicitHashKey,
approximateArrivalTimestamp, aggregated; data if it is UTF-8, else dataBase64; defects
if it has any, with file, line or position in it (byte, or row of Parquet), and offset
in the Kinesis record's data. A member whose value is not known is left out. --since and
--until let records without a time through, and count them. What cannot be read is
reported on standard error.

Exit status: 0 all valid, 1 something defective or unreadable, 2 failure, 130 Ctrl-C.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "paths", "--stream", "--until", "--only", use="read this stream instead")
    add_shared(parser, "--since", begin="TRIM_HORIZON; with --follow: LATEST")
    add_shared(parser, "--limit", what="user records (default: all)")
    add(parser, "--follow", "continue with new records of the stream until Ctrl-C")
    add(parser, "--key KEY", "only user records with this partition key; repeatable", action="append")
    add(parser, "--shard-id ID", "only records of this shard; repeatable", action="append")
    add(parser, "--decompress", "decompress gzip, zlib and zstd, up to 64 MiB each")
    add_aws(parser)


def run(args: argparse.Namespace) -> int:
    paths_or_stream(args)
    begin = args.since if isinstance(args.since, datetime) else None
    if args.follow and args.since in (None, "LATEST"):
        begin = datetime.now(timezone.utc)
    if begin and args.until and args.until <= begin:
        raise UsageError(reason="--until is not after --since: no record lies between them")
    items = _items(args)
    counts: Counter[str] = Counter()
    defects: Counter[str] = Counter()
    first_place = ""
    nested_by_kcl = interrupted = False

    read = args.stream or ", ".join("standard input" if p == "-" else p for p in args.paths)
    what = f"following {read}" if args.follow else f"reading {read}"
    with waiting(f"{what}, nothing to show yet") as output_begins:
        try:
            for row in islice(_user_records(args, items, counts), args.limit):
                output_begins()
                codes = row.get("defects", ())
                counts["user records"] += 1
                counts["defective"] += bool(codes)
                if codes and not defects:
                    first_place = _place_of(row)
                defects.update(set(codes))
                nested_by_kcl |= NESTED in codes and not row["aggregated"] and "subSequenceNumber" in row
                write_on(json_line(row))
        except KeyboardInterrupt:
            interrupted = True
        except BrokenPipeError:  # the output was closed; the records until then count
            drop_output()
    if not (interrupted or counts["user records"] or counts["unreadable"]):
        counts["unreadable"] = bool(args.paths) and not counts["records"]
        what = "user record" if counts["records"] else "Kinesis record"
        note_nothing(args, what, counts["read"], read, "--key", "--shard-id", "--since", "--until")
    if defects:
        kinds = ", ".join(f"{code} ({count})" for code, count in sorted(defects.items()))
        first = f"; the first: {first_place}" if first_place else ""
        if defects.keys() & DAMAGE_KINDS:
            first += "; a Kinesis record that cannot be opened counts as one user record"
        which = f"{counts['defective']:,} of {plural(counts['user records'], 'user record')}"
        are = "is" if counts["defective"] == 1 else "are"
        explain = f"kpl-codec explain {min(defects, key=order_of_kind)} says more"
        note(f"{which} {are} defective: {kinds}{first}; {explain}")
    if nested_by_kcl:
        note(
            f"{NESTED}: the KCL or its MultiLangDaemon has deaggregated the records with a sub-sequence "
            "number; cat does not deaggregate them again"
        )
    for name, text in _UNDECIDED.items():
        if counts[name]:
            note(f"{plural(counts[name], 'record')} left out: each {text}")
    if counts["of no time"]:
        # ACC-5, as below
        text = "has no time, and is printed whatever --since and --until say"
        note(f"{plural(counts['of no time'], 'user record')}: each {text}")
    if interrupted:
        return INTERRUPTED
    unknown = sum(counts[name] for name in ("defective", "unreadable", *_UNDECIDED))
    return FINDINGS if unknown else CLEAN


def _user_records(
    args: argparse.Namespace,
    items: Iterator[CapturedRecord | Unreadable],
    counts: Counter[str],
) -> Iterator[dict[str, Any]]:
    """The user records that the options let through, each as JSON."""
    max_size = DEFAULT_MAX_DECOMPRESSED_SIZE if args.decompress else None
    for item in items:
        if isinstance(item, Unreadable):
            counts["unreadable"] += item.code != "hidden"
            note(f"{item}")
            continue
        counts["records"] += 1
        # One by one, so that none waits for the next; under the report policy, so that all are printed.
        for record in opened([item.record], "report", max_decompressed_size=max_size):
            counts["read"] += 1
            decision = _lets_through(args, record)
            if decision in _UNDECIDED:
                counts[decision] += 1
            elif decision is not None:
                counts["of no time"] += decision == "of no time"
                yield _facts(item, record, _codes(record))


def _items(args: argparse.Namespace) -> Iterator[CapturedRecord | Unreadable]:
    """The records that the arguments name, read lazily; a stream that does not exist is an error at once."""
    if not args.stream:
        from .command_records import read_captures

        return read_captures(args.paths)
    from ..aws.fetch_by_sequence_number import fetch_records
    from ..aws.stream_reading import POLL_INTERVAL, read_stream

    client = client_of(args)
    if args.only:
        return (_item_of(args.stream, item) for item in fetch_records(client, args.stream, args.only))
    records = read_stream(
        client,
        args.stream,
        start=args.since or ("LATEST" if args.follow else "TRIM_HORIZON"),
        follow=args.follow,
        shard_ids=args.shard_id or "all",
        poll_interval=_FOLLOW_INTERVAL if args.follow else POLL_INTERVAL,
    )
    return (CapturedRecord(args.stream, record) for record in records)


def _item_of(stream: str, item: KinesisRecord | GoneRecord | UnreadableEntry) -> CapturedRecord | Unreadable:
    if isinstance(item, KinesisRecord):
        return CapturedRecord(stream, item)
    location = getattr(item, "location", None)
    if location is not None:
        return Unreadable("gone", str(location), item.reason)
    line = getattr(item, "line", None)
    return Unreadable("only", "--only" if line is None else f"--only, line {line}", item.reason)


# -- output ---------------------------------------------------------------------------------------


#: What a filter cannot decide, and what is said of it: it may hide what was asked for.
_UNDECIDED: Final = {
    "of no shard": "does not say its shard, and may be of these (without --shard-id it is printed)",
    "not opened": "cannot be opened, and may hold user records of these keys (without --key it is printed)",
    "of no key": "does not say its partition key, and may have one of these (without --key it is printed)",
}


def _lets_through(args: argparse.Namespace, record: DeaggregatedRecord) -> str | None:
    """What the filters say of ``record``: "yes"; "of no time", which is let through as well; None: it was not
    asked for; or a key of `_UNDECIDED`, if no filter can say that it was not."""
    # ACC-5: "What a filter cannot decide about MUST be counted aloud, with exit status 1 where it may hide
    # what was asked for."
    arrived = record.approximate_arrival_timestamp
    since = None if isinstance(args.since, str) else args.since
    begins_late = since is not None and arrived is not None and utc(arrived) < since
    ends_early = args.until is not None and arrived is not None and utc(arrived) >= args.until
    if begins_late or ends_early or not (args.shard_id is None or record.shard_id in (*args.shard_id, None)):
        return None
    decision = "of no time" if (since or args.until) and arrived is None else "yes"
    if args.key is not None and record.partition_key not in args.key:
        # The key of a record that cannot be opened, or holds another aggregate, is not that of the user
        # records in it.
        codes = _codes(record)
        if record.sub_sequence_number < 0 or NESTED in codes or (codes and not record.aggregated):
            decision = "not opened"
        elif record.partition_key is None:
            decision = "of no key"
        else:
            return None
    return "of no shard" if args.shard_id is not None and record.shard_id is None else decision


def _codes(record: DeaggregatedRecord) -> list[str]:
    found = (one.kind.removeprefix("capture-") for one in findings_in([record]))
    return [*(defect.code for defect in record.defects), *found]


def _place_of(row: dict[str, Any]) -> str:
    """The place of a printed user record: the members of its line that say where it is."""
    names = ("shard_id", "sequence_number", "file", "line", "position", "item", "offset")
    return Finding("capture", **{name: row.get(camel(name)) for name in names}).place


def _facts(source: CapturedRecord, record: DeaggregatedRecord, defects: list[str]) -> dict[str, Any]:
    """One user record of a Kinesis record as JSON, without members that are not known."""
    deaggregated = record.aggregated or source.record.sub_sequence_number is not None
    arrived = record.approximate_arrival_timestamp
    values: dict[str, Any] = {
        "streamName": source.stream,
        "shardId": record.shard_id,
        "sequenceNumber": record.sequence_number,
        "recordId": record.record_id,
        "subSequenceNumber": record.sub_sequence_number if deaggregated else None,
        "partitionKey": record.partition_key,
        "explicitHashKey": record.explicit_hash_key,
        "approximateArrivalTimestamp": utc(arrived).isoformat() if arrived is not None else None,
        "aggregated": record.aggregated,
        "defects": defects or None,
    }
    if defects:
        offsets = [defect.offset for defect in record.defects]
        values |= {"file": source.file, "line": source.line, "position": source.position}
        values["item"] = source.item
        values["offset"] = next(iter(offsets), None)
    try:
        values["data"] = record.data.decode()
    except UnicodeDecodeError:
        values["dataBase64"] = base64.b64encode(record.data).decode()
    return {name: value for name, value in values.items() if value is not None}
