"""`kpl-codec generate`: captured data of any size for experiments."""

from __future__ import annotations

import argparse

from ..pictures.terminal import line, show
from .main import CLEAN
from .source import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", required=True, metavar="DIR", help="a new or empty folder")
    for option, default, metavar, what in (
        ("--user-records", 1_000_000, "N", "how many"),
        ("--shard-count", 4, "N", "on how many shards"),
        ("--per-aggregate", 500, "N", "user records in each aggregate"),
        ("--data-size", 100, "BYTES", "data of each user record"),
        ("--seed", 0, "N", "the records depend on it"),
        ("--mixed-every", 0, "N", "make every Nth aggregate a mixed one; 0: none"),
        ("--broken-every", 0, "N", "break every Nth frame; 0: none"),
    ):
        parser.add_argument(
            option, type=int, default=default, metavar=metavar, help=f"{what} (default: {default})"
        )


def run(args: argparse.Namespace) -> int:
    from ..captures import Location
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
    folder = Location(args.output)
    check_output(folder)
    generation = Generation(recipe, (folder / "capture").make_folder())
    engine = LocalEngine()
    with progress(engine.progress, "generating"):
        engine.run_all(generation, generation.tasks)
    (folder / "shards.json").write(recipe.shard_map().to_json().encode())
    counts = f"{recipe.user_records:,} user records in {recipe.kinesis_records:,} Kinesis records"
    check = f"kpl-codec validate --input {folder}/capture --shards {folder}/shards.json --output DIR"
    show(line(f"{counts}: {folder}/capture"), line(f"To check them: {check}"))
    return CLEAN
