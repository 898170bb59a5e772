"""`kpl-codec generate`: captured data of any size for experiments."""

from __future__ import annotations

import argparse

from ..pictures.terminal import line, show
from .main import CLEAN
from .options import add_aws, at_least
from .source import UsageError, location_of


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", required=True, metavar="DIR", help="a new or empty folder, also in S3")
    for option, default, least, metavar, what in (
        ("--user-records", 1_000_000, 1, "N", "user records in all"),
        ("--shard-count", 4, 1, "N", "shards that they are on"),
        ("--per-aggregate", 500, 1, "N", "user records in each aggregate"),
        ("--data-size", 100, 0, "BYTES", "data of each user record"),
        ("--seed", 0, 0, "N", "another number makes other user records"),
        ("--mixed-every", 0, 0, "N", "every Nth aggregate has user records of several shards; 0: none"),
        ("--broken-every", 0, 0, "N", "every Nth aggregate is broken; 0: none"),
    ):
        text = f"{what} (default: {default:,})"
        parser.add_argument(option, type=at_least(least), default=default, metavar=metavar, help=text)
    add_aws(parser, kinesis=False)


def run(args: argparse.Namespace) -> int:
    from ..captures.generated import Generation, Recipe
    from ..validation import LocalEngine
    from ..validation.results import check_output
    from .progress import progress

    try:
        recipe = Recipe(
            args.user_records,
            shards=args.shard_count,
            per_aggregate=args.per_aggregate,
            data_size=args.data_size,
            seed=args.seed,
            mixed_every=args.mixed_every,
            broken_every=args.broken_every,
        )
    except ValueError as error:
        raise UsageError(reason=str(error)) from None
    folder = location_of(args.output)
    check_output(folder)
    generation = Generation(recipe, (folder / "capture").make_folder())
    engine = LocalEngine()
    with progress(engine.progress, "generating"):
        engine.run_all(generation, generation.tasks)
    (folder / "shards.json").write(recipe.shard_map().to_json().encode())
    counts = f"{recipe.user_records:,} user records in {recipe.kinesis_records:,} Kinesis records"
    check = f"kpl-codec validate {folder}/capture --shards {folder}/shards.json --output DIR"
    show(line(f"{counts}: {folder}/capture"), line(f"To check them: {check}"))
    return CLEAN
