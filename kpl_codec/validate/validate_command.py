"""`kpl-codec validate`: check captured records, or a stream, against a shard map."""

from __future__ import annotations

import argparse
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.without_pandas import show_pandas
from ..cli.command_inputs import (
    check_new_output,
    client_of,
    client_settings,
    load_shard_map,
    location_of,
    paths_or_stream,
)
from ..cli.exit_status import CLEAN, FINDINGS
from ..cli.options import Company, UsageError, add, add_aws, add_shared
from ..cli.progress import waiting
from ..errors import KplError
from ..findings import at_least_as_bad
from ..rendering.terminal import command, line, note, show, show_json

if TYPE_CHECKING:
    from ..shards.shard_map import ShardMap
    from .validate_job import Validation

EPILOG = """\
PATH, which needs --shards: JSON (GetRecords responses, Lambda and Firehose events; also
in gzip), Parquet with a binary column data, and raw frames. A record's shard is the
one that it names, else the one in the name of its file or folder, such as
shardId-000000000000, else that of its sequence number. Names that begin with . or _,
and results of kpl-codec, are left out.

--stream reads to the newest record.

On a cluster, with kpl_codec installed there:
  spark-submit "$(python -m kpl_codec.spark.job)" validate ...

Exit status: 0 nothing found, 1 findings (see --fail-on) or nothing was read, 2 failure.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "paths", "--shards")
    text = "record distribution strategy of the stream of --shards (default: %(default)s)"
    distributions = ["USER_PARTITION_KEY", "AUTO"]
    add(
        parser,
        "--distribution",
        text,
        Company(("--shards",)),
        choices=distributions,
        default=distributions[0],
    )
    add(parser, "--output DIR", "a new or empty folder for the results, also in S3", required=True)
    text = "write findings and report only: takes half of the time, keeps no data"
    add(parser, "--no-user-records", text, dest="user_records", action="store_false")
    add_shared(parser, "--fail-on", "--json", "--quiet")
    stream = parser.add_argument_group("a stream")
    use = "check this stream instead of captures"
    add_shared(stream, "--stream", "--since", "--only", use=use, begin="TRIM_HORIZON")
    add_aws(parser)
    engine = parser.add_argument_group("this machine, or Spark")
    text = "local: processes of this machine, without Java (default: local; under spark-submit spark)"
    add(engine, "--engine", text, choices=["local", "spark"])
    add(engine, "--cores N", "tasks that run at once (default: all cores)")


def run(args: argparse.Namespace) -> int:
    from ..captures import plan
    from ..cli.command_records import with_standard_input
    from . import LocalEngine
    from .validate_job import LOG

    # Errors are reported before Spark starts, which takes seconds.
    _check_usage(args)
    output = location_of(args.output)
    shard_map = load_shard_map(args)
    if args.stream and args.shards:
        client_of(args)  # raises if the server cannot be reached
    with with_standard_input(args.paths) as args.paths:
        if not is_local_job(args.engine):
            with waiting(f"listing {', '.join(args.paths)}"):
                plan(args.paths)
        check_new_output(output, LOG)
        log = (output / LOG).path if output.is_local else None
        with spark_errors(log):
            try:
                if is_local_job(args.engine):
                    engine: Any = LocalEngine(cores=args.cores)
                else:
                    engine = _spark_engine(args, log)
                with waiting("checking", engine.progress, quiet=args.quiet):
                    result = _check(engine, args, shard_map)
                return _print_summary(args, result)
            except KeyboardInterrupt:
                note(f"interrupted: there are no results in {args.output}")
                raise


def _check_usage(args: argparse.Namespace) -> None:
    if args.only and args.since is not None:  # the records of --only are read whatever their times
        raise UsageError(reason="--since does nothing with --only")
    paths_or_stream(args)
    if args.paths and args.shards is None:
        source = "kpl-codec shards list --stream NAME --closed --json > FILE"
        raise UsageError(reason=f"PATH needs --shards FILE; to make it: {source}")
    if args.since is not None and not args.stream:
        raise UsageError(reason="--since goes with --stream")


def is_local_job(engine: str | None) -> bool:
    # SPK-40: "The engine MUST be the local one where none is chosen, and Spark under spark-submit."
    return engine == "local" or (engine is None and "PYSPARK_GATEWAY_PORT" not in os.environ)


def _spark_engine(args: argparse.Namespace, log: str | None) -> Any:
    show_pandas()
    from ..spark.session import local_session
    from ..spark.validate_engine import SparkEngine

    if not args.quiet:
        note("starting Spark ...")
    if log is not None:
        Path(log).parent.mkdir(parents=True, exist_ok=True)
    cores = args.cores or "*"
    return SparkEngine(local_session("kpl-codec validate", cores=cores, quick_start=True, log_file=log))


def _print_summary(args: argparse.Namespace, result: Validation) -> int:
    """Prints the findings, and what to do about them. Returns the exit status."""
    from .report.summary import summary

    facts = result.summary
    if args.json:
        show_json(facts)
    else:
        users = ", user-records/" if args.user_records else ""
        files = f"report.html, summary.txt, summary.json, findings/{users}"
        show(*summary(facts, result.findings), line(""), line(f"Results: {args.output}  ({files})"))
        if facts["kinds"]:
            show(line("To see the findings:"), command(f"kpl-codec findings {args.output}"))
    bad = facts["worst"] is not None and at_least_as_bad(facts["worst"], args.fail_on)
    return FINDINGS if bad or not facts["totals"]["kinesisRecords"] else CLEAN


def _check(engine: Any, args: argparse.Namespace, shard_map: ShardMap) -> Validation:
    from . import validate, validate_stream

    options: dict[str, Any] = {"engine": engine, "user_records": args.user_records}
    if args.stream is None:
        return validate(args.paths, shard_map, output=args.output, **options)
    options |= {"start": args.since or "TRIM_HORIZON", "only": args.only or "all"}
    return validate_stream(
        client_settings(args), args.stream, shard_map=shard_map, output=args.output, **options
    )


class SparkFailed(KplError, RuntimeError):
    """A Spark job failed. ``reason``: its first line; ``log``: the file with more."""

    code = "spark-failed"
    reason: str
    log: str
    text = "Spark failed: {reason} (more in {log})"
    concerns = "Whoever runs the command. Nothing was written."
    todo = (
        "Read the log, whose path the error names: the cause is its last exception. Mend that, and run the "
        "command again."
    )


@contextmanager
def spark_errors(log: str | None) -> Iterator[None]:
    """Failures of Spark become one line that says where to look. Other errors pass."""
    # Ctrl-C ends Java too, and py4j logs that at length to the root logger.
    logging.getLogger().addFilter(lambda line: "py4j" not in line.pathname)
    try:
        yield
    except Exception as error:
        # By name: a job without Spark does not import these modules.
        if type(error).__module__.partition(".")[0] not in ("py4j", "pyspark"):
            raise
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        reason = (_cause(str(error)) or type(error).__name__)[:300]
        if log is not None:
            with open(log, "a") as out:
                out.write(f"\n{error}\n")
        raise SparkFailed(reason=reason, log=log or "the logs of Spark") from error


def _cause(text: str) -> str:
    """The line of a Spark error that says most: kpl_codec's own error from a worker, else the error at the
    end of a worker's traceback, else the first line of Java's error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = re.findall(r"\bkpl_codec(?:\.\w+)+: (.*)", text)
    of_python = re.findall(r"^Traceback .*\n(?:[ \t].*\n|\n)+(\S.*)", text, re.MULTILINE)
    of_java = [line.removeprefix(": ") for line in lines if line.startswith((":", "Caused by:"))]
    return next(iter(ours or of_python[:1] or of_java or lines), "")
