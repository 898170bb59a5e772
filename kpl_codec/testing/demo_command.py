"""`kpl-codec demo`: three writers put user records on a local Kinesis server, half of them after a split.
It shows what a KCL consumer gets of each."""

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

_STREAM, _SHARDS, _OUTPUT = "demo-orders", 4, "kpl-codec-demo"
_WRITERS = _PRODUCER, _NAIVE, _PER_SHARD = (
    "kpl_codec.producer.Producer", "aws_kinesis_agg", "aws_kinesis_agg/shard"
)  # fmt: skip
#: User records in an aggregate of aws_kinesis_agg, and those that each writer puts.
_BATCH, _PUT = 50, 1000


def configure(parser: argparse.ArgumentParser) -> None:
    add(parser, "--output DIR", "a new or empty folder, also in S3 (default: %(default)s)", default=_OUTPUT)


def run(args: argparse.Namespace) -> None:
    import aws_kinesis_agg.aggregator  # noqa: F401 - before anything is begun

    from ..aws import fetch_shard_map
    from ..cli.progress import waiting
    from ..validate import LocalEngine, validate_stream
    from .local_kinesis import local_kinesis

    output = location_of(args.output)
    check_new_output(output)  # before npm is asked for a server
    started, engine = time.monotonic(), LocalEngine()

    def say(text: str) -> None:
        note(f"[{time.monotonic() - started:5.1f} s] {text}")

    say("starting a local Kinesis server (kinesis-local; from npm the first time)")
    with local_kinesis() as server:
        say(f"stream {_STREAM} with {_SHARDS} shards")
        _fill(server, say)
        say("checking the stream")
        shard_map = fetch_shard_map(server.client(), _STREAM)
        with waiting("checking", engine.progress):
            validate_stream(
                server.client_settings, _STREAM, shard_map=shard_map, output=str(output), engine=engine
            )
    show(
        *_by_writer(output),
        line(""),
        line("What was found, worst first; `kpl-codec explain NAME` says what to do:"),
        command(f"kpl-codec findings {output}"),
        line(f"The shards and their losses, in a browser: {output}/report.html"),
        line("The same for a stream of yours: kpl-codec watch --stream NAME"),
    )


def _by_writer(results: Location) -> list[RenderableType]:
    """What a KCL consumer gets of each writer's user records, each of which counts once."""
    delivered, rows = set(), Counter[str]()
    for batch in (results / "user-records").rows(["data", "kcl"]):
        for row in batch.to_pylist():
            rows[row["kcl"]] += 1
            if row["kcl"] == "delivered":
                order = json.loads(row["data"])
                delivered.add((order["writer"], order["n"]))
    gets, put = Counter(writer for writer, _ in delivered), len(_WRITERS) * _PUT
    numbers = [[name, *(f"{n:,}" for n in (_PUT, gets[name], _PUT - gets[name]))] for name in _WRITERS]
    texts = (
        f"{put - len(delivered):,} of {put:,} user records never arrive. The KCL logs nothing about them.",
        f"{_NAIVE} is one RecordAggregator, as its README shows. Its aggregates hold user records of several "
        "shards. The KCL drops each of them whole.",
        f"{_PER_SHARD} is one RecordAggregator for each shard, by a list of shards from before the split. "
        "After the split it put user records of both new shards into one aggregate.",
        f"The Producer put {rows.total() - put:,} user records again, as the split would have lost them. The "
        f"report counts their first copies, too: {rows['dropped']:,} of {rows.total():,} are lost.",
    )
    title = line(("What a KCL consumer of this stream gets, by writer", "bold"))
    heads = ["writer", "put", "KCL delivers", "lost"]
    return [
        title,
        table(heads, numbers, (1, 2, 3), indent=2),
        *(line(text) for one in texts for text in ("", one)),
    ]


def _orders(writer: str, start: int, stop: int) -> Iterator[tuple[str, bytes]]:
    for number in range(start, stop):
        order = {"writer": writer, "n": number, "item": f"item-{number % 17}", "quantity": number % 5 + 1}
        yield f"customer-{number * 7919 % 500}", json.dumps(order).encode()


def _put_aggregated(client: Any, records: Iterator[tuple[str, bytes]], home: Callable[[str], str]) -> None:
    """Put user records in aggregates of aws_kinesis_agg, each of one value of ``home(partition key)``."""
    from aws_kinesis_agg.aggregator import RecordAggregator

    groups = defaultdict(list)
    for key, data in records:
        groups[home(key)].append((key, data))
    for group in groups.values():
        for start in range(0, len(group), _BATCH):
            aggregator = RecordAggregator()
            for key, data in group[start : start + _BATCH]:
                aggregator.add_user_record(key, data)
            key, hash_key, data = aggregator.clear_and_get().get_contents()
            explicit = {"ExplicitHashKey": hash_key} if hash_key else {}
            client.put_record(StreamName=_STREAM, PartitionKey=key, Data=data, **explicit)


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
            say(f"putting user records {start} to {stop - 1} of each writer")
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
