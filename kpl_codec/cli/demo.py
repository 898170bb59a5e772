"""`kpl-codec demo`: validate on real input, with nothing to configure."""

from __future__ import annotations

import argparse
import json
import time
from itertools import count
from typing import TYPE_CHECKING

from ..pictures.terminal import line, note, show, table
from .main import CLEAN
from .options import add, add_aws, at_least
from .source import location_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..captures import Location


def configure(parser: argparse.ArgumentParser) -> None:
    text = "a new or empty folder, also in S3 (default: kpl-codec-demo, or the next free name)"
    add(parser, "--output DIR", text)
    text = "user records of each writer, 100 or more (default: %(default)s)"
    add(parser, "--user-records N", text, type=at_least(100), default=1000)
    add_aws(parser, kinesis=False)


def run(args: argparse.Namespace) -> int:
    from ..audit import Ledger
    from ..report.summary import summary
    from ..testing.local_kinesis import local_kinesis
    from ..validation import LocalEngine, read_shard_map, validate
    from ..validation.results import check_output
    from . import demo_stream
    from .progress import progress

    folder = _folder(args.output)
    check_output(folder)
    started = time.monotonic()

    def say(text: str) -> None:
        note(f"[{time.monotonic() - started:5.1f} s] {text}")

    folder.make_folder()
    say("starting a local Kinesis server (kinesis-local; from npm the first time)")
    with local_kinesis() as server:
        say(f"stream {demo_stream.STREAM} with {demo_stream.SHARDS} shards")
        demo_stream.fill(server, args.user_records, Ledger((folder / "ledger").path), say)
        captured = demo_stream.capture(server.client(), folder)
    say(f"captured {captured} Kinesis records to {folder / 'capture'}; checking")
    engine = LocalEngine()
    shard_map = read_shard_map(str(folder / "shards.json"))
    results = folder / "results"
    with progress(engine.progress, "checking"):
        result = validate([str(folder / "capture")], shard_map, str(results), engine=engine)
    told = [*summary(result.report), *_by_writer(results, args.user_records), *_audit(folder, results)]
    say("done")
    show(*told, *_where_to_look(folder))
    return CLEAN


def _audit(folder: Location, results: Location) -> list[RenderableType]:
    """What the ledgers of all four writers say, against what the KCL delivers, less one: a consumer's bug."""
    from datetime import datetime, timezone

    from pyarrow.dataset import dataset, field

    from ..audit.running import audit
    from .audit import told

    names = ["shardId", "sequenceNumber", "subSequenceNumber"]
    system, inner = (results / "user-records").opened()
    users = dataset(inner, filesystem=system, format="parquet")
    handled = users.to_table(columns=names, filter=field("kcl") == "delivered")
    (folder / "handled.parquet").write_table(handled.slice(1))
    sides = [(folder / "ledger").path], [(folder / "handled.parquet").path]
    return [
        line(""),
        line(("Was everything handled? A KCL consumer that skips one user record, by the ledgers", "bold")),
        *told(audit(*sides, until=datetime.now(timezone.utc))),
    ]


def _where_to_look(folder: Location) -> list[RenderableType]:
    places = [
        ["results/report.html", "the same with pictures: open it in a browser"],
        ["results/findings/", "every finding, Parquet"],
        ["results/user-records/", "every user record with its placement, Parquet"],
        ["ledger/, handled.parquet", "what was put and handled, for kpl-codec audit"],
        ["capture/, shards.json", "what was checked; to check it again:"],
    ]
    return [
        line(""),
        line(f"In the folder {folder}"),
        table(["", ""], places, indent=2),
        line(f"    kpl-codec validate {folder}/capture --shards {folder}/shards.json --output DIR"),
        line(""),
        line("A live stream is checked all the time by: kpl-codec watch --stream NAME"),
    ]


def _folder(wanted: str | None) -> Location:
    """The folder asked for, or the first free one of kpl-codec-demo, kpl-codec-demo-2 ..."""
    from ..captures import Location

    if wanted is not None:
        return location_of(wanted)
    names = ("kpl-codec-demo" + (f"-{number}" if number > 1 else "") for number in count(1))
    return next(folder for folder in map(Location, names) if folder.kind() is None)


def _by_writer(results: Location, put: int) -> list[RenderableType]:
    """What each writer has put, what of it is on the stream, and what a KCL consumer gets, each once."""
    from pyarrow.dataset import dataset

    from .demo_stream import NAIVE, PER_SHARD, WRITERS

    system, inner = (results / "user-records").opened()
    rows = dataset(inner, filesystem=system, format="parquet").to_table(columns=["data", "kcl"])
    there, got = set(), set()
    for row in rows.to_pylist():
        order = json.loads(row["data"])
        there.add((order["writer"], order["n"]))
        if row["kcl"] == "delivered":
            got.add((order["writer"], order["n"]))
    found = {name: [sum(one == name for one, _ in orders) for orders in (there, got)] for name in WRITERS}
    counts = [
        [name, *(f"{count:,}" for count in (put, stored, gets, put - gets))]
        for name, (stored, gets) in found.items()
    ]
    naive, per_shard = (put - found[name][1] for name in (NAIVE, PER_SHARD))
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
