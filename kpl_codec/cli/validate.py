"""`kpl-codec validate`: check captured records against a shard map, on Spark."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .main import CLEAN, FINDINGS

HELP = "Check captured Kinesis records: broken aggregates, misplaced user records, what the KCL would drop."

_EPILOG = """\
Input: files or folders of JSON (GetRecords answers, Lambda events, Firehose events; also .gz) and Parquet
with a binary column data. The shard of each record is taken from the record, else from a file or folder
named after it (shardId-000000000000), else from the sequence number.

Shards: the output of `aws kinesis list-shards --stream-name NAME`.

Exit status: 0 nothing found, 1 findings, 2 failure.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--input", action="append", required=True, metavar="PATH", help="file, folder or URI; may be repeated"
    )
    parser.add_argument(
        "--shards", required=True, metavar="FILE", help="what aws kinesis list-shards printed"
    )
    parser.add_argument(
        "--output", required=True, metavar="DIR", help="an empty or new folder for the results"
    )
    parser.add_argument(
        "--distribution",
        choices=["USER_PARTITION_KEY", "AUTO"],
        default="USER_PARTITION_KEY",
        help="the stream's record distribution strategy (default: %(default)s)",
    )
    parser.add_argument(
        "--format",
        default="parquet",
        help="format of the user records, as Spark names it (default: %(default)s)",
    )
    parser.add_argument("--title", help="headline of the report")
    parser.add_argument("--cores", default="*", help="worker threads of the local Spark (default: all)")
    parser.add_argument(
        "--memory", default="2g", help="memory of the local Spark's JVM (default: %(default)s)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress display")


def run(args: argparse.Namespace) -> int:
    from ..report.summary import summary_text
    from ..spark.captures import is_local, plan
    from ..spark.session import local_session
    from ..spark.validate import LOG, check_output, read_shard_map, validate
    from .progress import progress, spark_errors

    # Everything that can be known to be wrong is told before Spark takes its seconds to start.
    shard_map = read_shard_map(args.shards, args.distribution)
    plan(args.input)
    check_output(args.output)
    if not args.quiet:
        print("starting Spark ...", file=sys.stderr, flush=True)
    log_file = None
    if is_local(args.output):
        Path(args.output).mkdir(parents=True, exist_ok=True)
        log_file = str(Path(args.output) / LOG)
    spark = local_session("kpl-codec validate", cores=args.cores, memory=args.memory, log_file=log_file)
    with spark_errors(log_file), progress(spark, "checking", quiet=args.quiet):
        result = validate(
            spark, args.input, shard_map, args.output, output_format=args.format, title=args.title
        )
    print(summary_text(result.report, color=sys.stdout.isatty()))
    print(f"\nResults: {args.output}  (report.html, summary.txt, findings/, user-records/)")
    return CLEAN if result.clean else FINDINGS
