"""`kpl-codec validate`: check captured records, or a stream, against a shard map."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..findings import at_least_as_bad
from ..pictures.terminal import line, note, show, show_json
from .engine import add_engine, choose_engine, log_in, spark_engine
from .main import CLEAN, FINDINGS
from .progress import progress, spark_errors
from .source import (
    UsageError,
    add_connection,
    add_fail_on,
    add_only,
    add_since,
    connection,
    load_shard_map,
    places_of,
    seconds,
    stream_type,
)

if TYPE_CHECKING:
    from ..shards.shard_map import ShardMap
    from ..validation.results import Validation

_EPILOG = """\
--input: files or folders of JSON (GetRecords answers, Lambda events, Firehose events; also compressed) and
Parquet with a binary column data. The shard of each record is taken from the record, else from a file or
folder named after it (shardId-000000000000), else from the sequence number. --input needs --shards: what
`aws kinesis list-shards --stream-name NAME` prints. Names that begin with . or _ are left out.

--stream: the stream itself, from its oldest record to now. With --follow also new records, until
interrupted; that needs Spark.

On a cluster: spark-submit "$(python -m kpl_codec.spark.job)" validate ...   (kpl_codec installed there)

Exit status: 0 nothing found, 1 findings (see --fail-on), 2 failure.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--input", action="extend", nargs="+", metavar="PATH", help="files, folders or URIs; may be repeated"
    )
    source.add_argument(
        "--stream", type=stream_type, metavar="NAME", help="check this stream; its name or ARN"
    )
    add("--shards", metavar="FILE", help="what aws kinesis list-shards printed; needed with --input")
    add("--output", required=True, metavar="DIR", help="an empty or new folder for the results")
    add(
        "--distribution",
        choices=["USER_PARTITION_KEY", "AUTO"],
        default="USER_PARTITION_KEY",
        help="the stream's record distribution strategy, with --shards (default: %(default)s)",
    )
    add_connection(parser)
    add_since(parser, "of the stream, records")
    add_only(parser, "just these records of the stream")
    add(
        "--follow",
        action="store_true",
        help="keep checking as records arrive; resumes in a folder that an earlier --follow left",
    )
    add("--once", action="store_true", help="with --follow: end when all records of now are read")
    add("--interval", type=seconds, default=30.0, help="with --follow: seconds between batches (%(default)s)")
    add_engine(parser)
    add_fail_on(parser, "for findings of this severity or worse, and if nothing was read")
    add("--json", action="store_true", help="print summary.json instead of the summary")
    add("--quiet", action="store_true", help="no progress display")


def run(args: argparse.Namespace) -> int:
    from ..captures import Location, plan
    from ..validation.results import check_output, read_shard_map

    # Errors are reported before Spark starts, which takes seconds.
    _check_usage(args)
    output = Location(args.output)
    given = None if args.shards is None else read_shard_map(args.shards, args.distribution)
    if args.input is not None:
        pieces = plan(args.input)
    else:
        pieces = []
        now = load_shard_map(args, closed=True)  # also tells whether the stream can be reached
    if not args.follow:
        check_output(output)
    if output.is_local:
        Path(output.path).mkdir(parents=True, exist_ok=True)
    with spark_errors(log_in(output)):
        if args.follow:
            return _follow(spark_engine(args, "kpl-codec validate").spark, args, given)
        try:
            result = _check(choose_engine(args, "kpl-codec validate", pieces), args, given or now)
        except KeyboardInterrupt:
            note(f"interrupted: there are no results in {args.output}")
            raise
    return _told(args, result)


def _check_usage(args: argparse.Namespace) -> None:
    """Raises UsageError for options that do not go together."""
    if args.input is not None and (args.shards is None or args.follow):
        raise UsageError(reason="--input needs --shards, and does not go with --follow")
    if args.once and not args.follow:
        raise UsageError(reason="--once goes with --follow")
    if args.follow and args.engine == "local":
        raise UsageError(reason="--follow needs Spark")
    if args.since is not None and args.stream is None:
        raise UsageError(reason="--since goes with --stream")
    if args.only is not None and (args.stream is None or args.follow):
        raise UsageError(reason="--only goes with --stream, and not with --follow")


def _told(args: argparse.Namespace, result: Validation) -> int:
    """Prints what was found, and what can be done; the exit status."""
    from ..report.facts import report_facts
    from ..report.layout import summary

    report = result.report
    if args.json:
        show_json(report_facts(report))
        return _status(args, result)
    show(*summary(report), line(""))
    show(line(f"Results: {args.output}  (report.html, summary.txt, summary.json, findings/, user-records/)"))
    if report.kinds:
        show(line(f"To see the findings: kpl-codec findings {args.output}"))
    if report.totals.lost_at_kcl:
        show(line(f"To plan a repair (nothing is put): kpl-codec repair {args.output}"))
    return _status(args, result)


def _status(args: argparse.Namespace, result: Validation) -> int:
    """0 or 1, by --fail-on."""
    report = result.report
    bad = report.worst is not None and at_least_as_bad(report.worst, args.fail_on)
    found = bad or not report.totals.kinesis_records
    return FINDINGS if found else CLEAN


def _check(engine: Any, args: argparse.Namespace, shard_map: ShardMap) -> Validation:
    from ..validation import validate, validate_stream

    with progress(engine.progress, "checking", quiet=args.quiet):
        if args.stream is not None:
            return validate_stream(
                connection(args),
                args.stream,
                shard_map,
                args.output,
                engine=engine,
                start=args.since or "TRIM_HORIZON",
                only=places_of(args.only) if args.only else None,
            )
        return validate(args.input, shard_map, args.output, engine=engine)


def _follow(spark: Any, args: argparse.Namespace, shard_map: ShardMap | None) -> int:
    from ..report.facts import report_facts
    from ..report.layout import summary
    from ..spark.validation.stream import follow, in_one_go, state

    batches: list[int] = []

    def told(validation: Validation, number: int) -> None:
        totals = validation.report.totals
        batches.append(number)
        show(
            line(
                f"batch {number}, so far: {totals.kinesis_records:,} Kinesis records, "
                f"{totals.user_records:,} user records, {totals.misplaced:,} misplaced, "
                f"{totals.lost_at_kcl:,} lost at the KCL"
            )
        )

    # Before PySpark 4.2 AvailableNow makes one batch; children of shards read to their end need another
    # run. At most one run per shard, so that a growing stream does not keep us.
    runs = 1 if not args.once or in_one_go() else len(list(load_shard_map(args, closed=True))) + 1
    for _ in range(runs):
        already = len(batches)
        query = follow(
            spark,
            _options(args),
            lambda: shard_map or load_shard_map(args, closed=True),
            args.output,
            once=args.once,
            interval=args.interval,
            on_batch=told,
        )
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            note("stopping; a batch that is not finished is read again next time")
            query.stop()
            break
        if len(batches) == already:
            break
    validation = state(args.output, shard_map or load_shard_map(args, closed=True), args.stream)
    if validation is None:
        show(line("nothing was read yet"))
        return FINDINGS
    if args.json:
        show_json(report_facts(validation.report))
    else:
        show(*summary(validation.report))
    return _status(args, validation)


def _options(args: argparse.Namespace) -> dict[str, str]:
    given = {
        "stream": args.stream,
        "region": args.region,
        "endpointUrl": args.endpoint_url,
        "profile": args.profile,
        "roleArn": args.role_arn,
        "startingPosition": args.since.isoformat() if args.since is not None else None,
    }
    return {name: value for name, value in given.items() if value is not None}
