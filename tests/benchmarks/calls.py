"""CPU time of GetRecords by a client of boto3, and by `kpl_codec.aws.kinesis_client`, in turns.

    python -m tests.benchmarks.calls [--rounds 5] [--bytes 100]

Eight threads; Kinesis is a model over HTTP in a process of its own. Milliseconds a call, medians.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

import boto3

from kpl_codec.aws import kinesis_client

from .spark_source import CLIENT, Server

_SHARDS, _RECORDS, _CALLS = 100, (1, 20, 100, 400), 400


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bytes", type=int, default=100, help="of each record")
    args = parser.parse_args()
    server = Server(_SHARDS, args.bytes, 0.0, False)
    keys = {"region": "us-east-1", "access_key_id": "local", "secret_access_key": "local"}
    clients = {
        "boto3": boto3.client("kinesis", **CLIENT, endpoint_url=server.url),
        "ours": kinesis_client(**keys, endpoint_url=server.url),
    }

    def iterator(number: int) -> str:
        place = {"ShardId": f"shardId-{number:012d}", "ShardIteratorType": "TRIM_HORIZON"}
        return str(clients["boto3"].get_shard_iterator(StreamName="s", **place)["ShardIterator"])

    iterators = [iterator(number) for number in range(_SHARDS)]
    server.feed(each=0.01)
    while len(clients["boto3"].get_records(ShardIterator=iterators[-1])["Records"]) < max(_RECORDS):
        time.sleep(0.5)
    server.feed()
    print(f"{'records':>8} {'boto3':>8} {'ours':>8} {'ratio':>6}")
    with ThreadPoolExecutor(8) as pool:
        for records in _RECORDS:
            took: dict[str, list[float]] = {name: [] for name in clients}
            for _ in range(args.rounds):
                for name, client in clients.items():

                    def read(iterator: str, client: Any = client, records: int = records) -> None:
                        client.get_records(ShardIterator=iterator, Limit=records)

                    begun = time.process_time()
                    list(pool.map(read, iterators * (_CALLS // _SHARDS)))
                    took[name].append((time.process_time() - begun) / _CALLS * 1000)
            theirs, ours = (median(took[name]) for name in clients)
            print(f"{records:8} {theirs:8.2f} {ours:8.2f} {theirs / ours:6.1f}")
    server.close()


if __name__ == "__main__":
    main()
