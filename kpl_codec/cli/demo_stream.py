"""A small real stream for the demo: four shards, four writers, a split half-way, captured to files.

The writers put the same kind of user records, each with its own encoder and its name in the data:

    kpl_codec.aws.Producer   this library's producer: an aggregate holds one shard's user records
    aws_kinesis_agg          awslabs' RecordAggregator, used as its README shows: one aggregator, no shards
    aws_kinesis_agg/shard    the same, one aggregator per shard, by a shard map read when it started
    plain                    PutRecords without aggregation
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from ..adapters import to_get_records
from ..audit import Ledger, Writer
from ..aws import Producer, read_stream
from ..captures import Location
from ..format.hash_keys import effective_hash_key
from ..format.records import KinesisRecord
from ..producer import ProducerConfig
from ..shards.shard_map import ShardMap

STREAM = "demo-orders"
SHARDS = 4
PRODUCER, NAIVE, PER_SHARD, PLAIN = (
    "kpl_codec.aws.Producer",
    "aws_kinesis_agg",
    "aws_kinesis_agg/shard",
    "plain",
)
WRITERS = (PRODUCER, NAIVE, PER_SHARD, PLAIN)
#: User records in an aggregate of aws_kinesis_agg.
_BATCH = 50


def orders(writer: str, start: int, stop: int) -> Iterator[tuple[str, bytes]]:
    """User records ``start`` to ``stop`` of a writer: partition key and data."""
    for number in range(start, stop):
        order = {"writer": writer, "n": number, "item": f"item-{number % 17}", "quantity": number % 5 + 1}
        yield f"customer-{number * 7919 % 500}", json.dumps(order).encode()


def _aggregator() -> Any:
    from aws_kinesis_agg.aggregator import RecordAggregator

    return RecordAggregator()


def put_naive(client: Any, records: Iterator[tuple[str, bytes]], notes: Writer) -> None:
    """As the README of aws_kinesis_agg shows: add user records, take the aggregate, put it."""
    aggregator = _aggregator()
    for count, (key, data) in enumerate(records, 1):
        aggregator.add_user_record(key, data)
        if count % _BATCH == 0:
            _put(client, aggregator.clear_and_get(), notes)
    _put(client, aggregator.clear_and_get(), notes)


def put_per_shard(
    client: Any, records: Iterator[tuple[str, bytes]], shard_map: ShardMap, notes: Writer
) -> None:
    """One aggregator per shard of the map; the map gets outdated, as in any long-running process."""
    aggregators: dict[str, tuple[Any, int]] = {}
    for key, data in records:
        shard_id = shard_map.shard_for(effective_hash_key(key)).shard_id
        aggregator, count = aggregators.get(shard_id) or (_aggregator(), 0)
        aggregator.add_user_record(key, data)
        if count + 1 == _BATCH:
            _put(client, aggregator.clear_and_get(), notes)
        aggregators[shard_id] = aggregator, (count + 1) % _BATCH
    for aggregator, _ in aggregators.values():
        _put(client, aggregator.clear_and_get(), notes)


def _put(client: Any, aggregate: Any, notes: Writer) -> None:
    if aggregate is None or not aggregate.get_num_user_records():
        return
    key, hash_key, data = aggregate.get_contents()
    given = {"ExplicitHashKey": hash_key} if hash_key else {}
    answer = client.put_record(StreamName=STREAM, PartitionKey=key, Data=data, **given)
    notes.put(answer["ShardId"], answer["SequenceNumber"], key, data)


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
    shard_map = ShardMap.from_list_shards(client.list_shards(StreamName=STREAM))
    config = ProducerConfig(record_max_buffered_time_ms=200)
    notes = ledger.writer(STREAM)  # of the writers that are not ours
    settings = {"config": config, "client_settings": server.client_settings}
    with closing(notes), Producer(STREAM, ledger=ledger, **settings) as producer:
        for start, stop in ((0, half), (half, per_writer)):
            say(f"writing user records {start} to {stop - 1} of each writer")
            futures = [producer.put(key, data) for key, data in orders(PRODUCER, start, stop)]
            put_naive(client, orders(NAIVE, start, stop), notes)
            put_per_shard(client, orders(PER_SHARD, start, stop), shard_map, notes)
            put_plain(client, orders(PLAIN, start, stop), notes)
            if start == 0:
                shard = split(server, client)
                say(f"split {shard} in two")
            for future in futures:
                future.result(60)


def split(server: Any, client: Any) -> str:
    """Split the first open shard in its middle; gives its id."""
    shard = ShardMap.from_list_shards(client.list_shards(StreamName=STREAM)).open_shards[0]
    middle = (shard.hash_key_range.starting_hash_key + shard.hash_key_range.ending_hash_key) // 2
    client.split_shard(StreamName=STREAM, ShardToSplit=shard.shard_id, NewStartingHashKey=str(middle))
    server.wait_active(STREAM)
    return shard.shard_id


def capture(client: Any, folder: Location) -> int:
    """Read the stream to its end into files: GetRecords answers by shard, and the shard listing. Gives the
    number of Kinesis records."""
    files = (folder / "capture").make_folder()
    pages = [client.list_shards(StreamName=STREAM)]
    while pages[-1].get("NextToken"):
        pages.append(client.list_shards(NextToken=pages[-1]["NextToken"]))
    shards = [shard for page in pages for shard in page["Shards"]]
    (folder / "shards.json").write(json.dumps({"Shards": shards}, indent=2, default=str).encode())
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
