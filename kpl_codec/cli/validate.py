"""`kpl-codec validate`: check captured records, or a stream, against a shard map."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..pictures.terminal import line, note, show, show_json
from ..report.kind import SEVERITIES
from .engine import add_engine, choose_engine, log_in
from .main import CLEAN, FINDINGS
from .progress import progress, spark_errors
from .source import UsageError, add_connection, seconds, stream_type

if TYPE_CHECKING:
    from ..shards.shard_map import ShardMap
    from ..validation.results import Validation

_EPILOG = """\
--input: files or folders of JSON (GetRecords answers, Lambda events, Firehose events; also compressed) and
Parquet with a binary column data. The shard of each record is taken from the record, else from a file or
folder named after it (shardId-000000000000), else from the sequence number. --input needs --shards: what
`aws kinesis list-shards --stream-name NAME` prints. Names that begin with . or _ are left out.

--stream: the stream itself, from its oldest record to now. With --follow also new records, until
interrupted.

On a cluster: spark-submit "$(python -m kpl_codec.spark.job)" validate ...   (kpl_codec installed there)
--output-format delta needs Delta Lake in the Spark session: spark-submit --packages and Delta's own settings.

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
    add(
        "--output-format",
        metavar="FORMAT",
        default="parquet",
        help="format of the user records, as Spark names it (default: %(default)s)",
    )
    add("--title", help="headline of the report")
    add_connection(parser)
    add(
        "--starting-position",
        default="TRIM_HORIZON",
        metavar="PLACE",
        help="where in the stream to begin (%(default)s)",
    )
    add(
        "--follow",
        action="store_true",
        help="keep checking as records arrive; resumes in a folder that an earlier --follow left",
    )
    add("--once", action="store_true", help="with --follow: end when all records of now are read")
    add("--interval", type=seconds, default=30.0, help="with --follow: seconds between batches (%(default)s)")
    add(
        "--repaired",
        action="append",
        default=[],
        metavar="DIR",
        help="results that were repaired after the capture; may be repeated. Copies in the capture are "
        "recognised anyway",
    )
    add("--repair", action="store_true", help="also plan a repair; nothing is put (see kpl-codec repair)")
    add_engine(parser)
    add(
        "--fail-on",
        choices=SEVERITIES,
        default="warning",
        help="exit with 1 for findings of this severity or worse, and if nothing was read (default: "
        "%(default)s)",
    )
    add("--json", action="store_true", help="print summary.json instead of the summary")
    add("--quiet", action="store_true", help="no progress display")


def run(args: argparse.Namespace) -> int:
    from ..captures import Location, plan
    from ..report.facts import report_facts
    from ..report.printed import summary
    from ..validation.results import check_output, read_shard_map

    # Errors are reported before Spark starts, which takes seconds.
    if args.input is not None and (args.shards is None or args.follow):
        raise UsageError(reason="--input needs --shards, and does not go with --follow")
    if args.repaired and args.follow:
        raise UsageError(reason="--repaired does not go with --follow, which reads on where it stopped")
    if args.once and not args.follow:
        raise UsageError(reason="--once goes with --follow")
    if args.repair and (args.follow or args.output_format != "parquet"):
        raise UsageError(reason="--repair goes with neither --follow nor --output-format")
    if args.stream is not None and args.output_format != "parquet":
        raise UsageError(reason="--output-format goes with --input")
    shard_map = read_shard_map(args.shards, args.distribution) if args.shards is not None else None
    pieces = plan(args.input) if args.input is not None else None
    if pieces is None and shard_map is None:
        shard_map_now = _shard_map(args)  # also tells whether the stream can be reached
        shard_map = None if args.follow else shard_map_now
    output = Location(args.output)
    if not args.follow:
        check_output(output)
    if output.is_local:
        Path(output.path).mkdir(parents=True, exist_ok=True)
    engine = choose_engine(args, "kpl-codec validate", pieces)
    with spark_errors(log_in(output)):
        if args.follow:
            return _follow(engine.spark, args, shard_map)
        assert shard_map is not None
        try:
            result = _check(engine, args, shard_map)
        except KeyboardInterrupt:
            note(f"interrupted: there are no results in {args.output}")
            raise
        plan_counts = None
        if args.repair:
            from ..validation.repair import plan_repair

            plan_counts = plan_repair(output)
    if args.json:
        show_json(report_facts(result.report))
        return _status(args, result)
    show(*summary(result.report), line(""))
    show(line(f"Results: {args.output}  (report.html, summary.txt, summary.json, findings/, user-records/)"))
    if result.report.kinds:
        show(line(f"To see the findings: kpl-codec findings {args.output}"))
    if plan_counts is not None:
        told = ", ".join(f"{count:,} {decision}" for decision, count in sorted(plan_counts.items()))
        how = f". To do it: kpl-codec repair {args.output} --apply --stream NAME" if told else ""
        show(line(f"Repair planned: {told or 'nothing to do'}{how}"))
    return _status(args, result)


def _status(args: argparse.Namespace, result: Validation) -> int:
    """0 or 1, by --fail-on."""
    report = result.report
    worst = SEVERITIES.index(report.worst) if report.worst is not None else len(SEVERITIES)
    found = worst <= SEVERITIES.index(args.fail_on) or not report.totals.kinesis_records
    return FINDINGS if found else CLEAN


def _check(engine: Any, args: argparse.Namespace, shard_map: ShardMap) -> Validation:
    from ..validation import validate

    with progress(engine.progress, "checking", quiet=args.quiet):
        if args.stream is not None:
            from ..spark.validation.stream import validate_stream

            return validate_stream(
                engine.spark,
                _options(args),
                shard_map,
                args.output,
                title=args.title,
                repairs=args.repaired,
            )
        return validate(
            args.input,
            shard_map,
            args.output,
            engine=engine,
            output_format=args.output_format,
            title=args.title,
            repairs=args.repaired,
        )


def _follow(spark: Any, args: argparse.Namespace, shard_map: ShardMap | None) -> int:
    from ..report.facts import report_facts
    from ..report.printed import summary
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
    runs = 1 if not args.once or in_one_go() else len(list(_shard_map(args))) + 1
    for _ in range(runs):
        already = len(batches)
        query = follow(
            spark,
            _options(args),
            lambda: shard_map or _shard_map(args),
            args.output,
            once=args.once,
            interval=args.interval,
            title=args.title,
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
    validation = state(args.output, shard_map or _shard_map(args), args.stream, args.title)
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
        "streamName": args.stream,
        "region": args.region,
        "endpointUrl": args.endpoint_url,
        "profile": args.profile,
        "roleArn": args.role_arn,
        "startingPosition": args.starting_position,
    }
    return {name: value for name, value in given.items() if value is not None}


def _shard_map(args: argparse.Namespace) -> ShardMap:
    """The stream's shards now, closed ones too. Raises StreamUnavailable, ShardMapError."""
    from ..aws import fetch_shard_map
    from .source import client_of

    found: ShardMap = fetch_shard_map(client_of(args), args.stream, closed=True)
    return found
