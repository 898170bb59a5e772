"""``kpl-codec cat``: user records, one JSON object a line or their bare data."""

from __future__ import annotations

import argparse
import base64
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from ..deaggregation.policies import deaggregate
from ..deaggregation.records import DeaggregatedRecord
from ..format.compression import DEFAULT_MAX_DECOMPRESSED_SIZE
from ..format.disguises import disguise_of
from ..format.records import KinesisRecord
from ..pictures.labels import safe_lines, utc
from ..pictures.terminal import drop_output, json_line, note, write_on
from .main import CLEAN, FINDINGS
from .source import UsageError, add_only, add_since, add_stream, at_least, client_of, places_of, since

#: Seconds between two calls on a shard with --follow: other readers of the stream need some, too.
_FOLLOW_INTERVAL = 0.5
_EPILOG = """\
PATH: files and folders that kpl-codec validate reads: GetRecords answers, Lambda and Firehose events, JSON
Lines, Parquet of the Spark connectors, raw frames; compressed or not. - is standard input.

A line has these members: streamName, shardId, sequenceNumber (of a queue recordId alone), subSequenceNumber,
partitionKey, explicitHashKey, approximateArrivalTimestamp, aggregated; data if it is UTF-8, else dataBase64;
defects if the record has any. What cannot be read is named on standard error.

Exit status: 0 all sound, 1 something defective or unreadable, 2 failure.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("paths", nargs="*", metavar="PATH", help="captures, events, frames; - for standard input")
    add_stream(parser, "read this stream, from its oldest record to now")
    add(
        "--follow",
        action="store_true",
        help="with --stream: new records from now on, or from --since, until interrupted",
    )
    add_only(parser, "just these records of the stream")
    add(
        "--queue",
        metavar="NAME",
        help="look into this queue, a name or ARN: all counts as delivered once more",
    )
    add("--dead-letters", action="store_true", help="with --queue: its dead letters")
    add(
        "--restore", action="store_true", help="with --dead-letters: give them to the queue's consumers again"
    )
    add("--key", action="append", metavar="KEY", help="only user records with this partition key; repeatable")
    add("--shard-id", action="append", metavar="ID", help="only records of this shard; repeatable")
    add_since(parser, "only records")
    add("--until", metavar="TIME", type=since, help="only what arrived before; as --since")
    add("--limit", type=at_least(1), metavar="N", help="stop after N user records")
    add("--data-only", action="store_true", help="the data alone, a newline after each")
    add("--decompress", action="store_true", help="undo gzip, zlib and zstd, up to 64 MiB each")


def run(args: argparse.Namespace) -> int:
    """0 or 1. Raises UsageError, InputError, StreamUnavailable, BrokenPipeError."""
    if bool(args.paths) + bool(args.stream) + bool(args.queue) != 1:
        raise UsageError(reason="give either paths (- for standard input), --stream NAME or --queue NAME")
    _check_queue(args)
    if args.follow and not args.stream:
        raise UsageError(reason="--follow goes with --stream")
    unreadable: list[str] = []
    if args.queue:
        from .queue import of_queue

        records = of_queue(args)
    else:
        records = _of_stream(args, unreadable) if args.stream else _of_files(args.paths, unreadable)
    shown = defective = 0
    try:
        for stream, record in _user_records(
            records, DEFAULT_MAX_DECOMPRESSED_SIZE if args.decompress else None
        ):
            if not _wanted(args, record):
                continue
            codes = _codes(record)
            defective += bool(codes)
            _write(args, facts(stream, record, codes), record.data)
            shown += 1
            if args.limit is not None and shown >= args.limit:
                break
    except KeyboardInterrupt:
        if not args.follow:
            raise
    except BrokenPipeError:  # the reader closed our output; what was found counts
        drop_output()
    return FINDINGS if defective or unreadable else CLEAN


# -- where records come from ----------------------------------------------------------------------


def _check_queue(args: argparse.Namespace) -> None:
    """Raises UsageError for options that do not go with --queue, or not without."""
    if (args.dead_letters and not args.queue) or (args.restore and not args.dead_letters):
        raise UsageError(reason="--dead-letters goes with --queue, and --restore with --dead-letters")
    if args.only and (not args.stream or args.follow):
        raise UsageError(reason="--only goes with --stream, and not with --follow")
    # QUE-1, as everywhere
    if args.queue and args.shard_id:
        raise UsageError(reason="--shard-id: a record from a queue does not say its shard")


def _of_stream(args: argparse.Namespace, unreadable: list[str]) -> Iterator[tuple[str | None, KinesisRecord]]:
    from ..aws.only import Gone, read_only
    from ..aws.reading import POLL_INTERVAL, read_stream

    if args.only:
        for item in read_only(client_of(args), args.stream, places_of(args.only)):
            if isinstance(item, Gone):
                unreadable.append("gone")
                note(f"kpl-codec: {item.place.sequence_number}: gone: {item.reason}")
            else:
                yield args.stream, item
        return
    records = read_stream(
        client_of(args),
        args.stream,
        start=args.since or ("LATEST" if args.follow else "TRIM_HORIZON"),
        follow=args.follow,
        shard_ids=args.shard_id,
        poll_interval=_FOLLOW_INTERVAL if args.follow else POLL_INTERVAL,
    )
    yield from ((args.stream, record) for record in records)


def _of_files(paths: list[str], unreadable: list[str]) -> Iterator[tuple[str | None, KinesisRecord]]:
    """The records of all files. What cannot be read is named, and kept in ``unreadable``; so are files
    without a record."""
    from .captured import Unreadable, captured

    any_record = False
    for item in captured(paths):
        if isinstance(item, Unreadable):
            unreadable.append(item.code)
            note(f"kpl-codec: {item}")
        else:
            any_record = True
            yield item
    if not any_record and not unreadable:
        unreadable.append("no-records")
        note(f"kpl-codec: there is no Kinesis record in {', '.join(paths)}")


def _user_records(
    records: Iterable[tuple[str | None, KinesisRecord]], max_size: int | None
) -> Iterator[tuple[str | None, DeaggregatedRecord]]:
    # One at a time, so that no record waits for the next; under the report policy, so that all are shown.
    for stream, record in records:
        for user_record in deaggregate([record], "report", max_decompressed_size=max_size):
            yield stream, user_record


# -- what is shown --------------------------------------------------------------------------------


def _wanted(args: argparse.Namespace, record: DeaggregatedRecord) -> bool:
    arrived = record.approximate_arrival_timestamp
    return (
        (args.key is None or record.partition_key in args.key)
        and (args.shard_id is None or record.shard_id in args.shard_id)
        and (args.since is None or (arrived is not None and utc(arrived) >= args.since))
        and (args.until is None or (arrived is not None and utc(arrived) < args.until))
    )


def _codes(record: DeaggregatedRecord) -> list[str]:
    """What is wrong with a user record."""
    found: list[str] = [defect.code for defect in record.defects]
    if not record.aggregated and disguise_of(record.data) is not None:
        found.append("encoded-frame")
    return found


def _write(args: argparse.Namespace, told: dict[str, Any], data: bytes) -> None:
    if args.data_only:
        sys.stdout.flush()
        out = getattr(sys.stdout, "buffer", None)
        if out is None or sys.stdout.isatty():
            write_on(safe_lines(data.decode("utf-8", "backslashreplace")) + "\n")
        else:
            out.write(data + b"\n")
            out.flush()
        return
    write_on(json_line(told))


def facts(stream: str | None, record: DeaggregatedRecord, defects: list[str]) -> dict[str, Any]:
    """One user record as JSON; what is not known is left out."""
    arrived = record.approximate_arrival_timestamp
    values: dict[str, Any] = {
        "streamName": stream,
        "shardId": record.shard_id,
        "sequenceNumber": record.sequence_number,
        "recordId": record.record_id,
        "subSequenceNumber": record.sub_sequence_number if record.aggregated else None,
        "partitionKey": record.partition_key,
        "explicitHashKey": record.explicit_hash_key,
        "approximateArrivalTimestamp": utc(arrived).isoformat() if arrived is not None else None,
        "aggregated": record.aggregated,
        "defects": defects or None,
    }
    try:
        values["data"] = record.data.decode()
    except UnicodeDecodeError:
        values["dataBase64"] = base64.b64encode(record.data).decode()
    return {name: value for name, value in values.items() if value is not None}
