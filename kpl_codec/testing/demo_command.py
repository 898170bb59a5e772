"""`kpl-codec demo`: fills a stream on a local Kinesis emulator, and shows what consumers lose of it.

Four writers put the same kind of user records, each with its own encoder, half of them after a split:

    kpl_codec.producer.Producer   this library's producer: an aggregate holds one shard's user records
    aws_kinesis_agg          awslabs' RecordAggregator, used as its README shows: one for all shards
    aws_kinesis_agg/shard    one RecordAggregator for each shard, by a shard map from before the split
    plain                    the Producer without aggregation
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timezone
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any

from ..captures.command_inputs import location_of
from ..cli.options import add, add_aws, at_least
from ..format.hash_keys import effective_hash_key
from ..format.records import KinesisRecord
from ..rendering.terminal import command, line, note, show, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..audit import Ledger, Writer
    from ..captures import Location

_STREAM, _SHARDS = "demo-orders", 4
_WRITERS = _PRODUCER, _NAIVE, _PER_SHARD, _PLAIN = (
    "kpl_codec.producer.Producer", "aws_kinesis_agg", "aws_kinesis_agg/shard", "plain"
)  # fmt: skip
#: User records in an aggregate of aws_kinesis_agg, and Kinesis records in a line of the capture.
_BATCH, _ENTRIES = 50, 100


def configure(parser: argparse.ArgumentParser) -> None:
    text = "a new or empty folder, also in S3 (default: kpl-codec-demo, or the next free name)"
    add(parser, "--output DIR", text)
    text = "user records of each writer, 100 or more (default: %(default)s)"
    add(parser, "--user-records N", text, type=at_least(100), default=1000)
    add_aws(parser, kinesis=False)


def run(args: argparse.Namespace) -> None:
    import aws_kinesis_agg.aggregator  # noqa: F401 - before anything is begun

    from ..audit import Ledger
    from ..captures.results import check_output, new_results
    from ..cli.progress import waiting
    from ..validate import LocalEngine, read_shard_map, validate
    from ..validate.report.summary import summary
    from .local_kinesis import local_kinesis

    output = _folder(args.output)
    check_output(output)  # before npm is asked for a server
    started = time.monotonic()

    def say(text: str) -> None:
        note(f"[{time.monotonic() - started:5.1f} s] {text}")

    # SPK-42, as in results.py: what was put and captured appears by one rename, and so do its results.
    with new_results(output) as folder:
        say("starting a local Kinesis emulator (kinesis-local; from npm the first time)")
        with local_kinesis() as server:
            say(f"stream {_STREAM} with {_SHARDS} shards")
            _fill(server, args.user_records, Ledger((folder / "ledger").path), say)
            count = _capture(server.client(), folder)
    say(f"captured {count} Kinesis records to {output / 'capture'}; checking")
    try:
        engine, results = LocalEngine(), output / "results"
        shard_map = read_shard_map(str(output / "shards.json"))
        with waiting("checking", engine.progress):
            result = validate([str(output / "capture")], shard_map, str(results), engine=engine)
        parts = [*summary(result.report), *_by_writer(results, args.user_records), *_audit(output, results)]
    except BaseException:
        output.delete()
        raise
    say("done")
    show(*parts, *_where_to_look(output))


def _audit(folder: Location, results: Location) -> list[RenderableType]:
    """An audit of a KCL consumer with a defect: it skips the first user record."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from ..audit.audit_command import audit_lines
    from ..audit.audit_run import audit
    from ..audit.sources import files_of, lines_of

    names = ["shardId", "sequenceNumber", "subSequenceNumber"]
    delivered = pa.Table.from_batches((results / "user-records").rows(names, pc.field("kcl") == "delivered"))
    # (Without the mark of the results that they come from: results are never input.)
    (folder / "handled.parquet").write_table(delivered.slice(1).replace_schema_metadata(None))
    sides = [(folder / "ledger").path], [(folder / "handled.parquet").path]
    audited = audit(*sides, until=datetime.now(timezone.utc))
    items = (item for file in files_of(sides[0]) for item in lines_of(file))
    lines = (bytes(item) for item in items if isinstance(item, bytes))
    row = next(text for text in lines if text.startswith(b'{"kind":"delivered"'))
    return [
        line(""),
        line(("Was everything handled? A KCL consumer that skips one user record, by the ledgers", "bold")),
        *audit_lines(audited),
        line(""),
        line("  A ledger is JSON lines in gzip, one a Kinesis record, without keys and data:"),
        line(f"    {row.decode()}".replace(",", ", ")),
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
        command(f"kpl-codec validate {folder}/capture --shards {folder}/shards.json --output DIR"),
        command(f"zcat {folder}/ledger/*.gz | jq -c ."),
        line(""),
        line("A live stream is checked all the time by: kpl-codec watch --stream NAME"),
    ]


def _folder(output: str | None) -> Location:
    """The folder of --output, else the first free one of kpl-codec-demo, kpl-codec-demo-2 ..."""
    from ..captures import Location

    if output is not None:
        return location_of(output)
    names = ("kpl-codec-demo" + (f"-{number}" if number > 1 else "") for number in count(1))
    return next(folder for folder in map(Location, names) if folder.kind() is None)


def _by_writer(results: Location, put: int) -> list[RenderableType]:
    """A table of user records by writer: put, on the stream, delivered by the KCL. Duplicates count once."""
    stored, delivered = set(), set()
    rows: Counter[str] = Counter()
    for batch in (results / "user-records").rows(["data", "kcl"]):
        for row in batch.to_pylist():
            order = json.loads(row["data"])
            rows[row["kcl"]] += 1
            stored.add((order["writer"], order["n"]))
            if row["kcl"] == "delivered":
                delivered.add((order["writer"], order["n"]))
    counts = {
        name: [sum(one == name for one, _ in orders) for orders in (stored, delivered)] for name in _WRITERS
    }
    table_rows = [
        [name, *(f"{count:,}" for count in (put, on_stream, gets, put - gets))]
        for name, (on_stream, gets) in counts.items()
    ]
    naive, per_shard = (put - counts[name][1] for name in (_NAIVE, _PER_SHARD))
    copies, losses = rows.total() - len(stored), len(_WRITERS) * put - len(delivered)
    return [
        line(""),
        line(("What a KCL consumer of this stream gets, by writer", "bold")),
        table(["writer", "put", "on the stream", "KCL delivers", "lost"], table_rows, (1, 2, 3, 4), indent=2),
        line(""),
        line(
            f"The report counts {rows.total():,} user records on the stream, {rows['dropped']:,} of them "
            f"lost. {copies:,} are there twice: the split would have lost them, so the Producer put them "
            f"again, and their first copies count as lost. {losses:,} user records never arrive."
        ),
        line(""),
        line(
            f"{_NAIVE} (one RecordAggregator, as its README shows) loses {naive:,} of {put:,} user records "
            "at the KCL: its aggregates hold user records of several shards, and the KCL drops such an "
            f"aggregate whole, without a log line. One aggregator for each shard loses {per_shard:,}: it "
            "knew the shards from before the split, and after it put user records of both new shards into "
            "one aggregate."
        ),
    ]


# -- the stream -----------------------------------------------------------------------------------


def _orders(writer: str, start: int, stop: int) -> Iterator[tuple[str, bytes]]:
    for number in range(start, stop):
        order = {"writer": writer, "n": number, "item": f"item-{number % 17}", "quantity": number % 5 + 1}
        yield f"customer-{number * 7919 % 500}", json.dumps(order).encode()


def _put_aggregated(
    client: Any, records: Iterator[tuple[str, bytes]], notes: Writer, home: Callable[[str], str]
) -> None:
    """Put user records with one aggregator of aws_kinesis_agg for each value of ``home(partition key)``."""
    from aws_kinesis_agg.aggregator import RecordAggregator

    def put(aggregator: Any) -> None:
        key, hash_key, data = aggregator.clear_and_get().get_contents()
        explicit = {"ExplicitHashKey": hash_key} if hash_key else {}
        stored = client.put_record(StreamName=_STREAM, PartitionKey=key, Data=data, **explicit)
        notes.put(stored["ShardId"], stored["SequenceNumber"], key, data)

    aggregators: defaultdict[str, Any] = defaultdict(RecordAggregator)
    for key, data in records:
        aggregator = aggregators[home(key)]
        aggregator.add_user_record(key, data)
        if aggregator.get_num_user_records() == _BATCH:
            put(aggregator)
    for aggregator in aggregators.values():
        if aggregator.get_num_user_records():
            put(aggregator)


def _fill(server: Any, per_writer: int, ledger: Ledger, say: Callable[[str], None]) -> None:
    """Make the stream and put ``per_writer`` user records of each writer, half of them after a split."""
    from ..aws import fetch_shard_map
    from ..producer import Producer, ProducerConfig

    server.create_stream(_STREAM, _SHARDS)
    client = server.client()
    steps = 0, per_writer // 4, per_writer // 2, per_writer
    shard_map = fetch_shard_map(client, _STREAM)  # outdated after the split, as in any long-running process

    def shard_of(key: str) -> str:
        return shard_map.shard_for(effective_hash_key(key)).shard_id

    def producer_of(**settings: Any) -> Producer:
        config = ProducerConfig(record_max_buffered_time_ms=200, **settings)
        return Producer(_STREAM, ledger=ledger, config=config, client_settings=server.client_settings)

    notes = ledger.writer(_STREAM)  # of the writers other than this library's Producer
    with closing(notes), producer_of() as producer, producer_of(aggregation_enabled=False) as plain:
        for start, stop in pairwise(steps):
            say(f"writing user records {start} to {stop - 1} of each writer")
            futures = [producer.put(key, data) for key, data in _orders(_PRODUCER, start, stop)]
            futures += [plain.put(key, data) for key, data in _orders(_PLAIN, start, stop)]
            _put_aggregated(client, _orders(_NAIVE, start, stop), notes, lambda key: "")
            _put_aggregated(client, _orders(_PER_SHARD, start, stop), notes, shard_of)
            if start == 0:
                time.sleep(1)  # the report's chart has a column a second: one from before the split
            elif stop < per_writer:
                shard = shard_map.open_shards[0]
                middle = str(shard.hash_key_range.split(2)[1].starting_hash_key)
                client.split_shard(StreamName=_STREAM, ShardToSplit=shard.shard_id, NewStartingHashKey=middle)
                server.wait_active(_STREAM)
                say(f"split {shard.shard_id} in two")
            for future in futures:
                future.result(60)


def _capture(client: Any, folder: Location) -> int:
    """Read the stream to its end into files; returns the number of Kinesis records."""
    from ..adapters import to_get_records
    from ..aws import fetch_shard_map, read_stream

    files = (folder / "capture").make_folder()
    (folder / "shards.json").write(fetch_shard_map(client, _STREAM).to_json().encode())
    by_shard: defaultdict[str, list[KinesisRecord]] = defaultdict(list)
    for record in read_stream(client, _STREAM):
        by_shard[record.shard_id or ""].append(record)
    for shard_id, records in by_shard.items():
        lines = []
        for start in range(0, len(records), _ENTRIES):
            response = to_get_records(records[start : start + _ENTRIES], dump=True)
            lines.append(json.dumps({"StreamName": _STREAM, "ShardId": shard_id, **response}) + "\n")
        (files / f"{shard_id}.jsonl").write("".join(lines).encode())
    return sum(map(len, by_shard.values()))
