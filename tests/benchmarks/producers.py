"""Producers side by side on one local server, and the core alone.

    python -m tests.benchmarks.producers [--records 30000] [--rounds 3]

Every contender runs in a process of its own, in turn, round by round, against the same kinesis-local and
the same stream of four shards, with the same records (100 bytes, 512 partition keys). The clock runs from
the first put to the last confirmation, the shard map is there before. Reported: medians, and as ratios
to kpl_codec with threads: user records a second, CPU microseconds a record (of the client), memory
(growth of the peak). What was written is read back: how many user records are there, and how many a KCL
consumer gets.

* aiokpl 0.2: its own settings, but no limit of 1000 records and 1 MiB a second for a shard.
* aws_kinesis_agg 1.2: one aggregator of 51200 bytes, full ones are put with boto3, ten a call, one call
  after the other. It has no shard map: its aggregates mix shards.
* "core": ProducerCore against a service that answers at once; nothing but our own work. "aggregation" is
  the same for the RecordAggregator of aws_kinesis_agg.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

SIZE, KEYS, SHARDS = 100, 512, 4


def records(count: int, seed: int) -> list[tuple[str, bytes]]:
    rng = random.Random(seed)
    return [(f"key-{rng.randrange(KEYS)}", b"%09d" % n + rng.randbytes(SIZE - 9)) for n in range(count)]


Job = list[tuple[str, bytes]]
Ready = Callable[[], None]


def kpl_codec_threads(settings: dict[str, str], stream: str, job: Job, ready: Ready) -> None:
    from kpl_codec.aws import Producer

    with Producer(stream, client_settings=settings) as producer:
        assert producer.wait_ready(30)
        ready()
        futures = [producer.put(key, data) for key, data in job]
        producer.flush()
        assert all(future.result(0) for future in futures)


def kpl_codec_asyncio(settings: dict[str, str], stream: str, job: Job, ready: Ready) -> None:
    from kpl_codec.aws import AsyncProducer

    async def main() -> None:
        async with AsyncProducer(stream, client_settings=settings) as producer:
            assert await producer.wait_ready(30)
            ready()
            futures = [await producer.put(key, data) for key, data in job]
            await producer.flush()
            assert all(future.result() for future in futures)

    asyncio.run(main())


def aiokpl(settings: dict[str, str], stream: str, job: Job, ready: Ready) -> None:
    from aiokpl import Config, Producer

    config = Config(
        region=settings["region_name"],
        endpoint_url=settings["endpoint_url"],
        aws_access_key_id=settings["aws_access_key_id"],
        aws_secret_access_key=settings["aws_secret_access_key"],
        rate_limit_records_per_sec_per_shard=1e9,
        rate_limit_bytes_per_sec_per_shard=1e12,
    )

    async def main() -> None:
        async with Producer(config) as producer:
            await (await producer.put_record(stream=stream, partition_key="warm", data=b"up")).wait()
            ready()
            outcomes = [
                await producer.put_record(stream=stream, partition_key=key, data=data) for key, data in job
            ]
            await producer.flush()
            for outcome in outcomes:
                assert (await outcome.wait()).success

    asyncio.run(main())


def aws_kinesis_agg(settings: dict[str, str], stream: str, job: Job, ready: Ready) -> None:
    import boto3
    from aws_kinesis_agg.aggregator import RecordAggregator

    client = boto3.client("kinesis", **settings)
    client.list_shards(StreamName=stream)
    waiting: list[dict[str, Any]] = []

    def full(aggregate: Any, least: int = 10) -> None:
        if aggregate is not None:
            key, hash_key, data = aggregate.get_contents()
            outer = {"PartitionKey": key, "Data": data}
            waiting.append(outer if hash_key is None else {**outer, "ExplicitHashKey": hash_key})
        if len(waiting) >= least:
            answer = client.put_records(StreamName=stream, Records=waiting)
            assert answer["FailedRecordCount"] == 0
            waiting.clear()

    ready()
    aggregator = RecordAggregator(51200)
    for key, data in job:
        full(aggregator.add_user_record(key, data))
    full(aggregator.clear_and_get(), 1)


def core(settings: dict[str, str], stream: str, job: Job, ready: Ready) -> None:
    from kpl_codec import ShardMap
    from kpl_codec.producer import Delivery, ProducerConfig, ProducerCore
    from kpl_codec.producer.collector import PutRecordsRequest
    from kpl_codec.shards.live_shard_map import LiveShardMap
    from tests.producer.model import ModelStream

    service = ModelStream.of(SHARDS)
    live = LiveShardMap(stream)
    producer = ProducerCore(
        ProducerConfig(max_outstanding_records=10**9, max_outstanding_bytes=2**40, rate_limit=2**60),
        live,
        random.Random(1).randrange,
    )
    producer.start(0.0)
    where = ShardMap(service.shards)

    def run(now: float) -> None:
        for call in producer.requests(now):
            if isinstance(call, PutRecordsRequest):
                placed = [where.shard_for(int(r["ExplicitHashKey"])).shard_id for r in call.records]
                answer = {"Records": [{"ShardId": shard, "SequenceNumber": "1"} for shard in placed]}
                producer.receive(call, answer, now)
            else:
                producer.receive(call, service.answer(call), now)

    run(0.0)
    run(0.0)
    ready()
    delivered = 0
    for number, (key, data) in enumerate(job):
        now = number * 1e-5
        producer.accept(producer.prepare(key, data), now)
        if number % 500 == 499:
            run(now)
            delivered += sum(isinstance(result, Delivery) for _, result in producer.results())
    producer.close()
    run(number * 1e-5)
    delivered += sum(isinstance(result, Delivery) for _, result in producer.results())
    assert delivered == len(job)


def aggregation(settings: dict[str, str], stream: str, job: Job, ready: Ready) -> None:
    from aws_kinesis_agg.aggregator import RecordAggregator

    ready()
    aggregator = RecordAggregator(51200)
    for key, data in job:
        aggregate = aggregator.add_user_record(key, data)
        if aggregate is not None:
            aggregate.get_contents()
    aggregator.clear_and_get().get_contents()


ON_A_SERVER = (kpl_codec_threads, kpl_codec_asyncio, aiokpl, aws_kinesis_agg)
ALONE = (core, aggregation)
CONTENDERS = {contender.__name__: contender for contender in (*ON_A_SERVER, *ALONE)}


def work(name: str, settings: dict[str, str], stream: str, count: int, seed: int) -> dict[str, float]:
    """One run of one contender, in this process."""
    job = records(count, seed)
    begun: list[tuple[float, float, int]] = []

    def ready() -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begun.append((time.perf_counter(), time.process_time(), peak))

    CONTENDERS[name](settings, stream, job, ready)
    end, cpu = time.perf_counter(), time.process_time()
    (start, cpu_start, peak), *_ = begun
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    return {"rate": count / (end - start), "cpu": (cpu - cpu_start) / count * 1e6, "mib": grown / 1024}


def run_apart(name: str, settings: dict[str, str], stream: str, count: int, seed: int) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.benchmarks.producers", "--worker", name]
    job = json.dumps({"settings": settings, "stream": stream, "count": count, "seed": seed})
    done = subprocess.run(command, input=job, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def read_back(kinesis: Any, stream: str, wanted: set[bytes]) -> tuple[int, int]:
    """How many of the user records are in the stream, and how many a KCL consumer gets."""
    from kpl_codec import deaggregate
    from kpl_codec.aws import fetch_lineage, read_shard

    client = kinesis.client()
    stored: set[bytes] = set()
    delivered: set[bytes] = set()
    for shard in fetch_lineage(client, stream):
        raw = list(read_shard(client, stream, shard.shard_id))
        stored |= {r.data for r in deaggregate(raw, policy="report")}
        delivered |= {r.data for r in deaggregate(raw, policy="kcl", hash_key_range=shard.hash_key_range)}
    return len(stored & wanted), len(delivered & wanted)


def compare(title: str, names: Sequence[str], found: dict[str, list[dict[str, float]]]) -> None:
    median = {
        name: {key: statistics.median(run[key] for run in found[name]) for key in ("rate", "cpu", "mib")}
        for name in names
    }
    base = median[names[0]]
    print(
        f"\n{title:22}{'records/s':>11}{'ratio':>8}{'CPU us/rec':>12}{'ratio':>8}{'peak MiB':>10}{'ratio':>8}"
    )
    for name in names:
        line = f"{name:22}"
        for key, width, digits in (("rate", 11, 0), ("cpu", 12, 1), ("mib", 10, 1)):
            value = median[name][key]
            ratio = f"{value / base[key]:8.2f}" if base[key] else f"{'-':>8}"
            line += f"{value:{width}.{digits}f}{ratio}"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", choices=sorted(CONTENDERS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        job = json.load(sys.stdin)
        print(json.dumps(work(arguments.worker, job["settings"], job["stream"], job["count"], job["seed"])))
        return

    from kpl_codec.testing.local_kinesis import local_kinesis

    count = arguments.records
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    there: dict[str, tuple[int, int]] = {}
    with local_kinesis() as kinesis:
        for number in range(arguments.rounds):
            for contender in ON_A_SERVER:
                name = contender.__name__
                stream = f"{name.replace('_', '-')}-{number}"
                kinesis.create_stream(stream, SHARDS)
                found[name].append(run_apart(name, kinesis.client_settings, stream, count, number))
                there[name] = read_back(kinesis, stream, {data for _, data in records(count, number)})
                kinesis.delete_stream(stream)
    for number in range(arguments.rounds):
        for contender in ALONE:
            name = contender.__name__
            found[name].append(run_apart(name, {}, "none", count * 4, number))
    compare("on kinesis-local", [contender.__name__ for contender in ON_A_SERVER], found)
    print(f"\n{'read back':22}{'in the stream':>15}{'a KCL consumer gets':>22}   of {count}")
    for name, (stored, delivered) in there.items():
        print(f"{name:22}{stored:15}{delivered:22}")
    compare("without a server", [contender.__name__ for contender in ALONE], found)


if __name__ == "__main__":
    main()
