"""A small real stream for the demo: four shards, four writers, a split half-way, captured to files.

The writers put the same kind of user records, each with its own encoder and its name in the data:

    kpl_codec.aws.Producer   this library's producer: an aggregate holds one shard's user records
    aws_kinesis_agg          awslabs' RecordAggregator, used as its README shows: one aggregator, no shards
    aws_kinesis_agg/shard    the same, one aggregator per shard, by a shard map read when it started
    plain                    PutRecords without aggregation
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from ..adapters import to_get_records
from ..audit import Ledger, Writer
from ..aws import Producer, fetch_shard_map, read_stream
from ..captures import Location
from ..format.hash_keys import effective_hash_key
from ..format.records import KinesisRecord
from ..producer import ProducerConfig

STREAM = "demo-orders"
SHARDS = 4
WRITERS = ("kpl_codec.aws.Producer", "aws_kinesis_agg", "aws_kinesis_agg/shard", "plain")
PRODUCER, NAIVE, PER_SHARD, PLAIN = WRITERS
#: User records in an aggregate of aws_kinesis_agg.
_BATCH = 50


def orders(writer: str, start: int, stop: int) -> Iterator[tuple[str, bytes]]:
    """User records ``start`` to ``stop`` of a writer: partition key and data."""
    for number in range(start, stop):
        order = {"writer": writer, "n": number, "item": f"item-{number % 17}", "quantity": number % 5 + 1}
        yield f"customer-{number * 7919 % 500}", json.dumps(order).encode()


def put_aggregated(
    client: Any, records: Iterator[tuple[str, bytes]], notes: Writer, home: Callable[[str], str]
) -> None:
    """One aggregator of aws_kinesis_agg for each ``home`` of partition keys."""
    from aws_kinesis_agg.aggregator import RecordAggregator

    def put(aggregator: Any) -> None:
        key, hash_key, data = aggregator.clear_and_get().get_contents()
        given = {"ExplicitHashKey": hash_key} if hash_key else {}
        answer = client.put_record(StreamName=STREAM, PartitionKey=key, Data=data, **given)
        notes.put(answer["ShardId"], answer["SequenceNumber"], key, data)

    aggregators: defaultdict[str, Any] = defaultdict(RecordAggregator)
    for key, data in records:
        aggregator = aggregators[home(key)]
        aggregator.add_user_record(key, data)
        if aggregator.get_num_user_records() == _BATCH:
            put(aggregator)
    for aggregator in aggregators.values():
        if aggregator.get_num_user_records():
            put(aggregator)


def put_plain(client: Any, records: Iterator[tuple[str, bytes]], notes: Writer) -> None:
    """PutRecords, 100 at a time."""
    put = list(records)
    entries = [{"PartitionKey": key, "Data": data} for key, data in put]
    for start in range(0, len(entries), 100):
        answer = client.put_records(StreamName=STREAM, Records=entries[start : start + 100])
        if answer["FailedRecordCount"]:
            raise RuntimeError(f"{answer['FailedRecordCount']} plain records were refused")
        for stored, (key, data) in zip(answer["Records"], put[start:], strict=False):
            notes.put(stored["ShardId"], stored["SequenceNumber"], key, data)


def fill(server: Any, per_writer: int, ledger: Ledger, say: Callable[[str], None]) -> None:
    """Make the stream and put ``per_writer`` user records of each writer, half of them after a split; all are
    noted in ``ledger``."""
    server.create_stream(STREAM, SHARDS)
    client = server.client()
    half = per_writer // 2
    shard_map = fetch_shard_map(client, STREAM)  # it gets outdated, as in any long-running process

    def shard_of(key: str) -> str:
        return shard_map.shard_for(effective_hash_key(key)).shard_id

    config = ProducerConfig(record_max_buffered_time_ms=200)
    notes = ledger.writer(STREAM)  # of the writers that are not ours
    settings = {"config": config, "client_settings": server.client_settings}
    with closing(notes), Producer(STREAM, ledger=ledger, **settings) as producer:
        for start, stop in ((0, half), (half, per_writer)):
            say(f"writing user records {start} to {stop - 1} of each writer")
            futures = [producer.put(key, data) for key, data in orders(PRODUCER, start, stop)]
            put_aggregated(client, orders(NAIVE, start, stop), notes, lambda key: "")
            put_aggregated(client, orders(PER_SHARD, start, stop), notes, shard_of)
            put_plain(client, orders(PLAIN, start, stop), notes)
            if start == 0:
                shard = split(server, client)
                say(f"split {shard} in two")
            for future in futures:
                future.result(60)


def split(server: Any, client: Any) -> str:
    """Split the first open shard in its middle; gives its id."""
    shard = fetch_shard_map(client, STREAM).open_shards[0]
    middle = (shard.hash_key_range.starting_hash_key + shard.hash_key_range.ending_hash_key) // 2
    client.split_shard(StreamName=STREAM, ShardToSplit=shard.shard_id, NewStartingHashKey=str(middle))
    server.wait_active(STREAM)
    return shard.shard_id


def capture(client: Any, folder: Location) -> int:
    """Read the stream to its end into files: GetRecords answers by shard, and the shard listing. Gives the
    number of Kinesis records."""
    files = (folder / "capture").make_folder()
    (folder / "shards.json").write(fetch_shard_map(client, STREAM, closed=True).to_json().encode())
    by_shard: dict[str, list[KinesisRecord]] = {}
    for record in read_stream(client, STREAM):
        by_shard.setdefault(record.shard_id or "", []).append(record)
    for shard_id, records in by_shard.items():
        answers = [
            to_get_records(records[start : start + 100], dump=True) for start in range(0, len(records), 100)
        ]
        named = [{"StreamName": STREAM, "ShardId": shard_id, **answer} for answer in answers]
        (files / f"{shard_id}.jsonl").write("".join(json.dumps(one) + "\n" for one in named).encode())
    return sum(map(len, by_shard.values()))
