"""`kpl-codec demo`: fills a stream on a local Kinesis emulator, and shows what consumers lose of it.

Three writers put the same kind of user records, each with its own encoder, half of them after a split:

    kpl_codec.producer.Producer   this library's producer: an aggregate holds one shard's user records
    aws_kinesis_agg               awslabs' RecordAggregator, used as its README shows: one for all shards
    aws_kinesis_agg/shard         one RecordAggregator for each shard, by a shard map from before the split
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ..cli.command_inputs import check_new_output, location_of
from ..cli.options import add
from ..format.hash_keys import effective_hash_key
from ..rendering.terminal import command, line, note, show, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..captures import Location

_STREAM, _SHARDS = "demo-orders", 4
_WRITERS = _PRODUCER, _NAIVE, _PER_SHARD = (
    "kpl_codec.producer.Producer", "aws_kinesis_agg", "aws_kinesis_agg/shard"
)  # fmt: skip
#: User records in an aggregate of aws_kinesis_agg, and those that each writer puts.
_BATCH, _PUT = 50, 1000


def configure(parser: argparse.ArgumentParser) -> None:
    text = "a new or empty folder, also in S3 (default: %(default)s)"
    add(parser, "--output DIR", text, default="kpl-codec-demo")


def run(args: argparse.Namespace) -> None:
    import aws_kinesis_agg.aggregator  # noqa: F401 - before anything is begun

    from ..aws import fetch_shard_map
    from ..cli.progress import waiting
    from ..validate import LocalEngine, validate_stream
    from ..validate.report.summary import summary
    from .local_kinesis import local_kinesis

    output = location_of(args.output)
    check_new_output(output)  # before npm is asked for a server
    started, engine = time.monotonic(), LocalEngine()

    def say(text: str) -> None:
        note(f"[{time.monotonic() - started:5.1f} s] {text}")

    say("starting a local Kinesis emulator (kinesis-local; from npm the first time)")
    with local_kinesis() as server:
        say(f"stream {_STREAM} with {_SHARDS} shards")
        _fill(server, say)
        say("checking the stream")
        shard_map = fetch_shard_map(server.client(), _STREAM)
        with waiting("checking", engine.progress):
            result = validate_stream(server.client_settings, _STREAM, shard_map, str(output), engine=engine)
    say("done")
    show(
        *summary(result.summary, result.findings),
        *_by_writer(output),
        line(""),
        line("The same with pictures, in a browser:", f" {output}/report.html"),
        line("What was found, one by one:"),
        command(f"kpl-codec findings {output}"),
        line("A live stream is checked all the time by: kpl-codec watch --stream NAME"),
    )


def _by_writer(results: Location) -> list[RenderableType]:
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
        [name, *(f"{count:,}" for count in (_PUT, on_stream, gets, _PUT - gets))]
        for name, (on_stream, gets) in counts.items()
    ]
    naive, per_shard = (_PUT - counts[name][1] for name in (_NAIVE, _PER_SHARD))
    copies, losses = rows.total() - len(stored), len(_WRITERS) * _PUT - len(delivered)
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
            f"{_NAIVE} (one RecordAggregator, as its README shows) loses {naive:,} of {_PUT:,} user records "
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


def _put_aggregated(client: Any, records: Iterator[tuple[str, bytes]], home: Callable[[str], str]) -> None:
    """Put user records with one aggregator of aws_kinesis_agg for each value of ``home(partition key)``."""
    from aws_kinesis_agg.aggregator import RecordAggregator

    def put(aggregator: Any) -> None:
        key, hash_key, data = aggregator.clear_and_get().get_contents()
        explicit = {"ExplicitHashKey": hash_key} if hash_key else {}
        client.put_record(StreamName=_STREAM, PartitionKey=key, Data=data, **explicit)

    aggregators: defaultdict[str, Any] = defaultdict(RecordAggregator)
    for key, data in records:
        aggregator = aggregators[home(key)]
        aggregator.add_user_record(key, data)
        if aggregator.get_num_user_records() == _BATCH:
            put(aggregator)
    for aggregator in aggregators.values():
        if aggregator.get_num_user_records():
            put(aggregator)


def _fill(server: Any, say: Callable[[str], None]) -> None:
    """Make the stream and put the user records of each writer, half of them after a split."""
    from ..aws import fetch_shard_map
    from ..producer import Producer, ProducerConfig

    server.create_stream(_STREAM, _SHARDS)
    client = server.client()
    steps = 0, _PUT // 4, _PUT // 2, _PUT
    shard_map = fetch_shard_map(client, _STREAM)  # outdated after the split, as in any long-running process

    def shard_of(key: str) -> str:
        return shard_map.shard_for(effective_hash_key(key)).shard_id

    config = ProducerConfig(record_max_buffered_time_ms=200)
    with Producer(_STREAM, config=config, client_settings=server.client_settings) as producer:
        for start, stop in pairwise(steps):
            say(f"writing user records {start} to {stop - 1} of each writer")
            futures = [producer.put(key, data) for key, data in _orders(_PRODUCER, start, stop)]
            _put_aggregated(client, _orders(_NAIVE, start, stop), lambda key: "")
            _put_aggregated(client, _orders(_PER_SHARD, start, stop), shard_of)
            if start == 0:
                time.sleep(1)  # the report's chart has a column a second: one from before the split
            elif stop < _PUT:
                shard = shard_map.open_shards[0]
                middle = str(shard.hash_key_range.split(2)[1].starting_hash_key)
                client.split_shard(StreamName=_STREAM, ShardToSplit=shard.shard_id, NewStartingHashKey=middle)
                server.wait_active(_STREAM)
                say(f"split {shard.shard_id} in two")
            for future in futures:
                future.result(60)
