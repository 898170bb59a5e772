"""`kpl-codec generate`: captured data of any size for experiments."""

from __future__ import annotations

import argparse

from ..pictures.terminal import line, show
from .main import CLEAN
from .options import add, add_aws, at_least
from .source import UsageError, location_of


def configure(parser: argparse.ArgumentParser) -> None:
    add(parser, "--output DIR", "a new or empty folder, also in S3", required=True)
    for option, default, least, what in (
        ("--user-records N", 1_000_000, 1, "user records in all"),
        ("--shard-count N", 4, 1, "shards that they are on"),
        ("--per-aggregate N", 500, 1, "user records in each aggregate"),
        ("--data-size BYTES", 100, 0, "data of each user record"),
        ("--seed N", 0, 0, "another number makes other user records"),
        ("--mixed-every N", 0, 0, "every Nth aggregate has user records of several shards; 0: none"),
        ("--broken-every N", 0, 0, "every Nth aggregate is broken; 0: none"),
    ):
        add(parser, option, f"{what} (default: {default:,})", type=at_least(least), default=default)
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
