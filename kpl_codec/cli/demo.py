"""`kpl-codec demo`: validate on real input, with nothing to configure."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from rich.console import RenderableType

from ..pictures.terminal import line, note, show, table
from .main import CLEAN
from .source import UsageError, at_least


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output",
        metavar="DIR",
        help="folder for the results (default: kpl-codec-demo, or the next free name)",
    )
    parser.add_argument(
        "--user-records",
        type=at_least(1),
        default=1000,
        metavar="N",
        help="user records of each writer (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    from ..audit import Ledger
    from ..captures import Location
    from ..report.layout import summary
    from ..testing.local_kinesis import local_kinesis
    from ..validation import LocalEngine, read_shard_map, validate
    from ..validation.results import check_output
    from . import demo_stream
    from .progress import progress

    if args.user_records < 100:
        raise UsageError(reason="--user-records must be at least 100")
    folder = _folder(args.output)
    check_output(Location(folder))
    started = time.monotonic()

    def say(text: str) -> None:
        note(f"[{time.monotonic() - started:5.1f} s] {text}")

    folder.mkdir(parents=True, exist_ok=True)
    say("starting a local Kinesis server (kinesis-local; from npm the first time)")
    with local_kinesis() as server:
        say(f"stream {demo_stream.STREAM} with {demo_stream.SHARDS} shards")
        demo_stream.fill(server, args.user_records, Ledger(folder / "ledger"), say)
        count = demo_stream.capture(server.client(), folder)
    say(f"captured {count} Kinesis records to {folder / 'capture'}; checking")
    engine = LocalEngine()
    shard_map = read_shard_map(str(folder / "shards.json"))
    results = str((folder / "results").absolute())
    with progress(engine.progress, "checking"):
        result = validate(
            [str(folder / "capture")], shard_map, results, engine=engine, title="kpl-codec demo"
        )
    rows = by_writer(results)
    audited = _audit(folder, results)
    say("done")
    show(*summary(result.report), *verdict(rows, args.user_records), *audited, *_where_to_look(folder))
    return CLEAN


def _audit(folder: Path, results: str) -> list[RenderableType]:
    """What the ledgers of all four writers say, against what the KCL delivers, less one: a consumer's bug."""
    from datetime import datetime, timezone

    from pyarrow.dataset import dataset, field
    from pyarrow.parquet import write_table

    from ..audit.running import audit
    from .audit import told

    names = ["shardId", "sequenceNumber", "subSequenceNumber"]
    users = dataset(f"{results}/user-records", format="parquet")
    handled = users.to_table(columns=names, filter=field("kcl") == "delivered")
    write_table(handled.slice(1), folder / "handled.parquet")
    sides = [str(folder / "ledger")], [str(folder / "handled.parquet")]
    return [
        line(""),
        line(("Was everything handled? A KCL consumer that skips one user record, by the ledgers", "bold")),
        *told(audit(*sides, until=datetime.now(timezone.utc))),
    ]


def _where_to_look(folder: Path) -> list[RenderableType]:
    places = [
        ["results/report.html", "the same with pictures: open it in a browser"],
        ["results/findings/", "every finding, Parquet"],
        ["results/user-records/", "every user record with its placement, Parquet"],
        [
            "ledger/, handled.parquet",
            "what was put, and what a KCL consumer has handled, for kpl-codec audit",
        ],
        ["capture/, shards.json", "what was checked; to check it again:"],
    ]
    again = f"kpl-codec validate --input {folder}/capture --shards {folder}/shards.json --output DIR"
    return [
        line(""),
        line(f"In the folder {folder}"),
        table(["", ""], places, indent=2),
        line(f"    {again}"),
        line(""),
        line("A live stream is checked all the time by: kpl-codec watch --stream NAME"),
    ]


def _folder(wanted: str | None) -> Path:
    """The folder asked for, or the first free one of kpl-codec-demo, kpl-codec-demo-2 ..."""
    if wanted is not None:
        return Path(wanted)
    folder, number = Path("kpl-codec-demo"), 1
    while folder.exists():
        number += 1
        folder = Path(f"kpl-codec-demo-{number}")
    return folder


def by_writer(results: str) -> dict[str, tuple[int, int]]:
    """By writer: user records on the stream, and how many of them a KCL consumer gets (each once)."""
    from pyarrow.dataset import dataset

    users = dataset(f"{results}/user-records", format="parquet").to_table(columns=["data", "kcl"]).to_pylist()
    there: dict[str, set[int]] = {}
    got: dict[str, set[int]] = {}
    for user in users:
        order = json.loads(user["data"])
        there.setdefault(order["writer"], set()).add(order["n"])
        if user["kcl"] == "delivered":
            got.setdefault(order["writer"], set()).add(order["n"])
    return {writer: (len(numbers), len(got.get(writer, ()))) for writer, numbers in there.items()}


def verdict(rows: dict[str, tuple[int, int]], put: int) -> list[RenderableType]:
    """Who loses what, by name."""
    from .demo_stream import NAIVE, PER_SHARD, WRITERS

    counts = []
    for writer in WRITERS:
        there, got = rows.get(writer, (0, 0))
        counts.append([writer, *(f"{count:,}" for count in (put, there, got, put - got))])
    naive, per_shard = (put - rows.get(writer, (0, 0))[1] for writer in (NAIVE, PER_SHARD))
    return [
        line(""),
        line(("What a KCL consumer of this stream gets, by writer", "bold")),
        table(["writer", "put", "on the stream", "KCL delivers", "lost"], counts, (1, 2, 3, 4), indent=2),
        line(""),
        line(
            f"{NAIVE} (one RecordAggregator, as its README shows) loses {naive:,} of {put:,} user records at "
            "the KCL: its aggregates hold user records of several shards, and the KCL drops such an "
            f"aggregate whole, without a log line. One aggregator for each shard loses {per_shard:,}: it "
            "knew the shards from before the split, and after it put user records of both new shards into "
            "one aggregate."
        ),
    ]
