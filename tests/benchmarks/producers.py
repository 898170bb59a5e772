"""Producers side by side: on one local server, with a stub in place of botocore, and the core alone.

    python -m tests.benchmarks.producers [--records 30000] [--rounds 3] [--only NAME ...] [--stub]

Every contender runs in a process of its own, in turn, round by round, with the same records (100 bytes, 512
partition keys) for four shards. The clock runs from the first put to the last confirmation, the shard map is
there before. Reported: medians, and as ratios to the first contender: user records a second, CPU microseconds
a user record (of the client, all its threads), memory (growth of the peak). On the server also PutRecords
calls and bytes of their HTTP bodies a user record. What was written is read back: user records in a Kinesis
record, how full the aggregates are (of 51200 bytes), and how many user records a KCL consumer gets.

* aiokpl 0.2: its own settings, but no limit of 1000 records and 1 MiB a second for a shard.
* async-kinesis 3.0: its KPL aggregation, which takes no partition keys; aggregates of 51200 bytes, no limits.
* aws_kinesis_agg 1.2: one aggregator of 51200 bytes, full ones are put with boto3, ten a call, one call
  after the other. It has no shard map: its aggregates mix shards.
* boto3 alone: no aggregation, 500 records a call, one call after the other.
* "core": ProducerCore against a service that answers at once; nothing but our own work. "aggregation" is
  the same for the RecordAggregator of aws_kinesis_agg.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from .producer_calls import Calls, Stub
from .producer_contenders import CONTENDERS, NOT_SENDING, SENDING, Job

SIZE, KEYS, SHARDS = 100, 512, 4
AGGREGATE = 51200
NO_SERVER = {
    "endpoint_url": "http://127.0.0.1:9",
    "region_name": "us-east-1",
    "aws_access_key_id": "none",
    "aws_secret_access_key": "none",
}
Figures = dict[str, float]


def records(count: int, seed: int) -> Job:
    rng = random.Random(seed)
    return [(f"key-{rng.randrange(KEYS)}", b"%09d" % n + rng.randbytes(SIZE - 9)) for n in range(count)]


def work(name: str, settings: dict[str, str], stream: str, count: int, seed: int, *, stub: bool) -> Figures:
    """One run of one contender, in this process."""
    job, calls = records(count, seed), Calls()
    Stub(SHARDS, calls).install() if stub else calls.count()
    begun: list[tuple[float, float, int]] = []

    def ready() -> None:
        gc.collect()  # what the imports have left is not the puts'
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begun.append((time.perf_counter(), time.process_time(), peak))

    CONTENDERS[name](settings, stream, job, ready)
    end, cpu = time.perf_counter(), time.process_time()
    (start, cpu_start, peak), *_ = begun
    return {
        "rate": count / (end - start),
        "cpu": (cpu - cpu_start) / count * 1e6,
        "mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 1024,
        "calls": calls.put_records,
        "wire": calls.wire_bytes / count,
        "together": count / calls.kinesis_records if calls.kinesis_records else 0.0,
    }


def run_apart(
    name: str, settings: dict[str, str], stream: str, count: int, seed: int, *, stub: bool = False
) -> Figures:
    command = [sys.executable, "-m", "tests.benchmarks.producers", "--worker", name]
    job = {"settings": settings, "stream": stream, "count": count, "seed": seed, "stub": stub}
    done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}")
    found: Figures = json.loads(done.stdout.splitlines()[-1])
    return found


def read_back(kinesis: Any, stream: str, wanted: set[bytes]) -> Figures:
    """What is in the stream, and how many of the user records a KCL consumer gets."""
    from kpl_codec import deaggregate, is_aggregated
    from kpl_codec.aws import fetch_lineage, read_stream

    client = kinesis.client()
    stored: set[bytes] = set()
    delivered: set[bytes] = set()
    count = aggregates = size = 0
    for shard_id, shard in fetch_lineage(client, stream).items():
        raw = list(read_stream(client, stream, shard_ids=[shard_id]))
        count += len(raw)
        for record in raw:
            if is_aggregated(record.data):
                aggregates, size = aggregates + 1, size + len(record.data)
        stored |= {r.data for r in deaggregate(raw, policy="report")}
        delivered |= {r.data for r in deaggregate(raw, policy="kcl", hash_key_range=shard.hash_key_range)}
    return {
        "together": len(stored) / count,
        "fill": 100 * size / aggregates / AGGREGATE if aggregates else 0.0,
        "stored": len(stored & wanted),
        "delivered": len(delivered & wanted),
    }


#: Figure, heading, digits; whether a ratio is of interest.
COLUMNS = (
    ("rate", "records/s", 0, True),
    ("cpu", "CPU us/rec", 1, True),
    ("mib", "peak MiB", 1, True),
    ("calls", "calls", 0, False),
    ("wire", "wire B/rec", 0, False),
    ("together", "rec/Kinesis rec", 0, False),
    ("fill", "fill %", 0, False),
    ("stored", "stored", 0, False),
    ("delivered", "KCL gets", 0, False),
)


def table(title: str, names: Sequence[str], found: dict[str, list[Figures]]) -> None:
    if not names:
        return
    columns = [column for column in COLUMNS if any(run.get(column[0]) for n in names for run in found[n])]
    median = {
        name: {key: statistics.median(run[key] for run in found[name]) for key, *_ in columns}
        for name in names
    }
    base = median[names[0]]
    heads = "".join(f"{head:>16}" + f"{'ratio':>7}" * ratio for _, head, _, ratio in columns)
    print(f"\n{title:20}{heads}")
    for name in names:
        line = f"{name:20}"
        for key, _, digits, ratio in columns:
            value = median[name][key]
            line += f"{value:16.{digits}f}"
            if ratio:
                line += f"{value / base[key]:7.2f}" if base[key] else f"{'-':>7}"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=sorted(CONTENDERS), nargs="+", help="only these contenders")
    parser.add_argument("--stub", action="store_true", help="no server")
    parser.add_argument("--worker", choices=sorted(CONTENDERS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(work(arguments.worker, **json.load(sys.stdin))))
        return

    def chosen(contenders: Sequence[Callable[..., None]]) -> list[str]:
        names = [contender.__name__ for contender in contenders]
        return [name for name in names if not arguments.only or name in arguments.only]

    count, rounds = arguments.records, range(arguments.rounds)
    if not arguments.stub:
        on_server(chosen(SENDING), count, rounds)
    for title, names, scale in (("with a stub", chosen(SENDING), 1), ("alone", chosen(NOT_SENDING), 4)):
        found: dict[str, list[Figures]] = {name: [] for name in names}
        for number in rounds:
            for name in names:
                found[name].append(run_apart(name, NO_SERVER, "none", count * scale, number, stub=True))
        table(title, names, found)


def on_server(names: list[str], count: int, rounds: range) -> None:
    from kpl_codec.testing.local_kinesis import local_kinesis

    found: dict[str, list[Figures]] = {name: [] for name in names}
    with local_kinesis() as kinesis:
        for number in rounds:
            for name in names:
                stream = f"{name.replace('_', '-')}-{number}"
                kinesis.create_stream(stream, SHARDS)
                figures = run_apart(name, kinesis.client_settings, stream, count, number)
                figures |= read_back(kinesis, stream, {data for _, data in records(count, number)})
                found[name].append(figures)
                kinesis.delete_stream(stream)
    table("on kinesis-local", names, found)


if __name__ == "__main__":
    main()
