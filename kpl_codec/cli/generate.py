"""`kpl-codec generate`: captured data of any size, to try things on."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HELP = "Make captured Kinesis records of any size, the same every time, as Parquet with their shard map."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", required=True, metavar="DIR", help="a new or empty folder")
    parser.add_argument("--user-records", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--shards", type=int, default=4, metavar="N")
    parser.add_argument("--per-aggregate", type=int, default=500, metavar="N")
    parser.add_argument("--data-size", type=int, default=100, metavar="BYTES")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mixed-every", type=int, default=0, metavar="N", help="a mixed aggregate every N")
    parser.add_argument("--broken-every", type=int, default=0, metavar="N", help="a broken frame every N")


def run(args: argparse.Namespace) -> int:
    from ..spark.generate import Recipe, generated
    from ..spark.session import local_session
    from ..spark.validate import LOG, check_output
    from .progress import progress, spark_errors

    try:
        recipe = Recipe(
            args.user_records,
            args.shards,
            args.per_aggregate,
            args.data_size,
            args.seed,
            args.mixed_every,
            args.broken_every,
        )
    except ValueError as error:
        print(f"kpl-codec: {error}", file=sys.stderr)
        return 2
    check_output(args.output)
    folder = Path(args.output).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shards.json").write_text(recipe.shard_map().to_json())
    log_file = str(folder / LOG)
    spark = local_session("kpl-codec generate", log_file=log_file)
    with spark_errors(log_file), progress(spark, "generating"):
        generated(spark, recipe).write.parquet(str(folder / "capture"))
    counts = f"{recipe.user_records:,} user records in {recipe.kinesis_records:,} Kinesis records"
    print(f"{counts}: {folder}/capture")
    print(f"kpl-codec validate --input {folder}/capture --shards {folder}/shards.json --output DIR")
    return 0
