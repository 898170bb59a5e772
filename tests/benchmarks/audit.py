"""The audit at size, and what a ledger costs: `python -m tests.benchmarks.audit [--quick]`.

First 25, 50 and 100 million user records (ledger rows of 500 user records, handled as a Parquet table with a
row each, of which every 997th is missing): seconds, CPU seconds, and the peak of memory of the whole command.
Then 1,000 million as runs, the table that `kpl_codec.spark.handled_runs` makes: a row a Kinesis record.
Then a producer with boto3, whose requests are answered at once instead of sent, with and without a ledger, in
turns: CPU seconds, bytes of the ledger.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import botocore.endpoint
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from botocore.awsrequest import AWSResponse

import kpl_codec as kpl
from kpl_codec.audit import Ledger, Row
from kpl_codec.producer import Producer, ProducerConfig

from ..shards.model import ModelStream
from .child import Child, run

EACH, SHARDS, GROUP = 500, 8, 2000
NO_SERVER = {
    "endpoint_url": "http://127.0.0.1:9",
    "region": "us-east-1",
    "access_key_id": "none",
    "secret_access_key": "none",
}
SHARD_IDS = [f"shardId-{number:012d}" for number in range(SHARDS)]


def sequence_number(shard: int, index: int, ms: int, noise: int) -> str:
    """As the service makes them: see `kpl_codec.shards.sequence_numbers`."""
    created = 1_700_000_000 << 148 | (shard & 15) << 144
    return str(2 << 184 | created | index << 80 | noise << 72 | ms // 1000 << 36 | shard << 4 | 2)


def make(folder: Path, kinesis_records: int, *, runs: bool = False) -> None:
    """A ledger, and a table of what was handled; with ``runs`` a row a Kinesis record, and every 997th lacks
    its last user record."""
    rng, index, now = np.random.default_rng(1), [0] * SHARDS, 1_700_000_000_000
    names, rows = [], []
    writer = Ledger(folder / "produced").writer("orders")
    for number in range(kinesis_records):
        shard = number % SHARDS
        index[shard] += int(rng.integers(1, 4))
        now += 2
        names.append((shard, sequence_number(shard, index[shard], now, int(rng.integers(256)))))
        rows.append(Row("delivered", SHARD_IDS[shard], names[-1][1], EACH, now, os.urandom(8)))
        if len(rows) == GROUP:
            writer.note(rows)
            writer.flush()
            rows = []
    writer.note(rows)
    writer.close()
    if runs:
        last = np.full(len(names), EACH - 1, np.int32)
        last[996::997] -= 1
        columns = {
            "shardId": [SHARD_IDS[shard] for shard, _ in names],
            "sequenceNumber": [number for _, number in names],
            "subSequenceNumber": np.zeros(len(names), np.int32),
            "lastSubSequenceNumber": last,
        }
        pq.write_table(pa.table(columns), folder / "handled.parquet")
        return
    coded = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([("shardId", coded), ("sequenceNumber", coded), ("subSequenceNumber", pa.int32())])
    with pq.ParquetWriter(folder / "handled.parquet", schema) as table:
        for start in range(0, kinesis_records, GROUP):
            part = names[start : start + GROUP]
            codes = np.repeat(np.arange(len(part), dtype=np.int32), EACH)
            keep = np.ones(len(codes), bool)
            keep[996::997] = False
            arrays = [
                pa.DictionaryArray.from_arrays(
                    np.array([shard for shard, _ in part], np.int32)[codes][keep], SHARD_IDS
                ),
                pa.DictionaryArray.from_arrays(codes[keep], [number for _, number in part]),
                pa.array(np.tile(np.arange(EACH, dtype=np.int32), len(part))[keep]),
            ]
            table.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))


def command(folder: Path) -> tuple[Child, int]:
    """The whole command, and how many user records it calls missing."""
    sides = ["--produced", str(folder / "produced"), "--handled", str(folder / "handled.parquet")]
    child = run([sys.executable, "-m", "kpl_codec.cli.main", "audit", *sides, "--json", "--quiet"])
    assert child.status == 1
    return child, json.loads(child.output)["userRecords"]["missing"]


def answer_requests() -> None:
    """From now on boto3 makes and reads its HTTP messages, but nothing is sent: an active stream of 32 shards
    takes everything."""
    shards, numbers = ModelStream(32, now=0).shards, itertools.count(10**20)
    shard_map = kpl.ShardMap(shards)

    def stored(entry: dict[str, Any]) -> dict[str, str]:
        hash_key = kpl.effective_hash_key(entry["PartitionKey"], entry.get("ExplicitHashKey"))
        return {"ShardId": shard_map.shard_for(hash_key).shard_id, "SequenceNumber": str(next(numbers))}

    def send(endpoint: Any, request: Any) -> AWSResponse:
        operation = request.headers["X-Amz-Target"].decode().rpartition(".")[2]
        answer: dict[str, Any] = {"StreamDescriptionSummary": {"StreamStatus": "ACTIVE"}}
        if operation == "PutRecords":
            entries = json.loads(request.body)["Records"]
            answer = {"FailedRecordCount": 0, "Records": list(map(stored, entries))}
        elif operation == "ListShards":
            answer = {"Shards": [shard.to_aws() for shard in shards]}
        response = AWSResponse(request.url, 200, {}, None)
        response._content = json.dumps(answer).encode()
        return response

    botocore.endpoint.Endpoint._send = send


def produce(user_records: int, ledger: Ledger | None, size: int, **settings: Any) -> float:
    """CPU seconds of a producer."""
    data = [os.urandom(size) for _ in range(100)]
    before = time.process_time()
    config = ProducerConfig(when_full="block", **settings)
    with Producer("orders", client_settings=NO_SERVER, config=config, ledger=ledger) as producer:
        producer.wait_ready()
        for number in range(user_records):
            producer.put(f"key-{number % 1000}", data[number % 100])
    return time.process_time() - before


def cost(rounds: int, user_records: int, **settings: Any) -> float:
    """How many times the CPU time a producer takes with a ledger: with and without one, in turns."""
    with tempfile.TemporaryDirectory() as scratch:
        plain, noted = [], []
        for number in range(rounds):
            plain.append(produce(user_records, None, 200, **settings))
            noted.append(produce(user_records, Ledger(f"{scratch}/{number}"), 200, **settings))
        ratio = median(b / a for a, b in zip(plain, noted, strict=True))
        size = sum(file.stat().st_size for file in Path(scratch).rglob("*.ledger.jsonl.gz"))
    print(
        f"producer {settings or ''}: {median(plain):.2f} s CPU for {user_records:,} user records, "
        f"with a ledger {100 * (ratio - 1):+.1f} %; {size // rounds:,} bytes of ledger"
    )
    return ratio


def main(quick: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"sizes": []}
    sizes = (5_000, 10_000, 20_000) if quick else (50_000, 100_000, 200_000, 2_000_000)
    for kinesis_records in sizes:
        runs = kinesis_records == sizes[-1]
        form = " as runs" if runs else ""
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            make(folder, kinesis_records, runs=runs)
            size = sum(file.stat().st_size for file in folder.rglob("*.ledger.jsonl.gz"))
            child, missing = command(folder)
        found["sizes"].append(
            {
                "user records": kinesis_records * EACH,
                "as runs": runs,
                "seconds": round(child.seconds, 2),
                "cpu": round(child.cpu, 2),
                "mebibytes": child.mebibytes,
            }
        )
        print(
            f"{kinesis_records * EACH:>11,} user records{form}: {child.seconds:.1f} s, "
            f"{child.cpu:.1f} s CPU, {child.mebibytes:,} MiB, {missing:,} missing; "
            f"{size / kinesis_records:.1f} bytes a row"
        )
    answer_requests()
    found["ledger"] = round(cost(3 if quick else 9, 30_000 if quick else 300_000), 3)
    plain = cost(3 if quick else 5, 10_000 if quick else 100_000, aggregation_enabled=False)
    return {**found, "ledger without aggregation": round(plain, 3)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    parser.add_argument("--quick", action="store_true")
    main(parser.parse_args().quick)
