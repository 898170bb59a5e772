"""`kpl-codec demo`: the main job on real input, with nothing to configure."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

HELP = "Fill a local Kinesis stream by several encoders, split a shard, capture it, and find what is lost."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output",
        metavar="DIR",
        help="folder for the results (default: kpl-codec-demo, or the next free name)",
    )
    parser.add_argument(
        "--records",
        type=int,
        default=1000,
        metavar="N",
        help="user records of each writer (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    from ..report.summary import summary_text
    from ..spark.session import ensure_java, local_session
    from ..spark.validation.engine import SparkEngine
    from ..testing.local_kinesis import local_kinesis
    from ..validation import read_shard_map, validate
    from ..validation.results import check_output
    from . import demo_stream
    from .progress import progress, spark_errors

    if args.records < 100:
        raise SystemExit("kpl-codec demo: --records must be at least 100")
    folder = _folder(args.output)
    check_output(str(folder))
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:5.1f} s] {text}", file=sys.stderr, flush=True)

    say("starting a local Kinesis server (kinesis-local; the first time it comes from npm)")
    with local_kinesis() as server:
        say(f"stream {demo_stream.STREAM} with {demo_stream.SHARDS} shards")
        demo_stream.fill(server, args.records, say)
        count = demo_stream.capture(server.client(), folder)
    say(f"captured {count} Kinesis records to {folder / 'capture'}")
    say(f"starting Spark (Java: {ensure_java()})")
    log_file = str(folder / "spark.log")
    spark = local_session("kpl-codec demo", log_file=log_file)
    engine = SparkEngine(spark)
    shard_map = read_shard_map(str(folder / "shards.json"))
    results = str((folder / "results").absolute())
    with spark_errors(log_file), progress(engine.progress, "checking"):
        result = validate(
            [str(folder / "capture")], shard_map, results, engine=engine, title="kpl-codec demo"
        )
        rows = by_writer(spark, results)
    say("done")
    print(summary_text(result.report, color=sys.stdout.isatty()))
    print(verdict(rows, args.records))
    print(
        f"""
Where to look
  {folder}/results/report.html     the same with pictures: open it in a browser
  {folder}/results/findings/       every finding, Parquet
  {folder}/results/user-records/   every user record with its placement, Parquet
  {folder}/capture/, shards.json   what was checked; check it again with
      kpl-codec validate --input {folder}/capture --shards {folder}/shards.json --output DIR"""
    )
    return 0


def _folder(wanted: str | None) -> Path:
    """The folder asked for, or the first free one of kpl-codec-demo, kpl-codec-demo-2 ..."""
    if wanted is not None:
        return Path(wanted)
    folder, number = Path("kpl-codec-demo"), 1
    while folder.exists():
        number += 1
        folder = Path(f"kpl-codec-demo-{number}")
    return folder


def by_writer(spark: Any, results: str) -> dict[str, tuple[int, int]]:
    """Of each writer: user records on the stream, and of them those a KCL consumer gets (each once)."""
    rows = spark.read.parquet(f"{results}/user-records").selectExpr(
        "get_json_object(cast(data as string), '$.writer') as writer",
        "get_json_object(cast(data as string), '$.n') as n",
        "kcl = 'delivered' as delivered",
    )
    counted = rows.groupBy("writer").agg(
        *(
            _expr(f"count(distinct {what}) as {name}")
            for what, name in (("n", "there"), ("if(delivered, n, null)", "got"))
        )
    )
    return {row.writer: (row.there, row.got) for row in counted.collect()}


def _expr(text: str) -> Any:
    from pyspark.sql.functions import expr

    return expr(text)


def verdict(rows: dict[str, tuple[int, int]], put: int) -> str:
    """Who loses what, by name."""
    from .demo_stream import NAIVE, PER_SHARD, WRITERS

    lines = ["", "By writer: what a KCL consumer of this stream gets", ""]
    lines.append(f"  {'writer':<24}{'put':>8}{'on the stream':>16}{'KCL delivers':>15}{'lost':>8}")
    for writer in WRITERS:
        there, got = rows.get(writer, (0, 0))
        lines.append(f"  {writer:<24}{put:>8,}{there:>16,}{got:>15,}{put - got:>8,}")
    naive, per_shard = (put - rows.get(writer, (0, 0))[1] for writer in (NAIVE, PER_SHARD))
    lines += [
        "",
        f"{NAIVE} (one RecordAggregator, as its README shows) loses {naive:,} of {put:,} user records at",
        "the KCL: its aggregates hold user records of several shards, and the KCL drops such an aggregate",
        f"whole, without a log line. One aggregator per shard loses {per_shard:,}: what the split caught.",
    ]
    return "\n".join(lines)
