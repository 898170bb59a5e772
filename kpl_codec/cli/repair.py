"""`kpl-codec repair`: put again what `kpl-codec validate` found lost at the KCL."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .main import CLEAN, FINDINGS

HELP = "Put again, aggregated per shard, the user records that validate found lost at the KCL."

_EPILOG = """\
First without --apply: a dry run, which writes the plan to DIR/repair/plan and puts nothing. Look at it.
Then with --apply --stream NAME: puts what the plan says. Each delivery is written to DIR/repair/log; run
again after a failure it puts the rest.

Exit status: 0 done, 1 some user records cannot be put, 2 failure.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("results", metavar="DIR", help="the folder that validate wrote")
    parser.add_argument("--apply", action="store_true", help="put what the plan says")
    parser.add_argument("--stream", metavar="NAME", help="with --apply: the stream to put to")
    parser.add_argument("--region", help="AWS region (default: as for the AWS CLI)")
    parser.add_argument("--endpoint-url", help="another Kinesis server, for instance a local one")
    parser.add_argument("--quiet", action="store_true", help="no progress display")


def run(args: argparse.Namespace) -> int:
    from ..captures import is_local
    from ..spark.repair import apply_repair, check_results, plan_repair
    from ..spark.session import local_session
    from ..spark.validation.engine import SparkEngine
    from ..validation.results import LOG
    from .progress import progress, spark_errors
    from .source import UsageError

    if args.apply != (args.stream is not None):
        raise UsageError(reason="--apply and --stream go together")
    check_results(args.results, planned=args.apply)
    log_file = str(Path(args.results) / LOG) if is_local(args.results) else None
    spark = local_session("kpl-codec repair", log_file=log_file)
    with spark_errors(log_file), progress(SparkEngine(spark).progress, "repairing", quiet=args.quiet):
        if args.apply:
            given = {"region_name": args.region, "endpoint_url": args.endpoint_url}
            settings = {name: value for name, value in given.items() if value is not None}
            counts = apply_repair(spark, args.results, settings, args.stream)
        else:
            counts = plan_repair(spark, args.results)
    for outcome in sorted(counts):
        print(f"{counts[outcome]:>12,}  {outcome}")
    if args.apply:
        print(
            f"Written down in {args.results}/repair/log. Check: kpl-codec validate --stream {args.stream} ..."
        )
    else:
        print(f"Nothing was put. The plan: {args.results}/repair/plan. To do it: --apply --stream NAME")
    if counts.get("failed") or counts.get("cannot"):
        print("Some user records cannot be put; the log and the plan name them.", file=sys.stderr)
        return FINDINGS
    return CLEAN
