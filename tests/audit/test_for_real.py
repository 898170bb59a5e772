"""A local server, a planted bug, a faulty writer, a split: the audit names all of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from kpl_codec.audit import Ledger
from kpl_codec.audit.audit_run import audit
from kpl_codec.aws import fetch_shard_map, read_stream
from kpl_codec.deaggregation.policies import deaggregate
from kpl_codec.ledger.ledger_rows import RowKind
from kpl_codec.producer import AsyncProducer, Producer, ProducerConfig
from kpl_codec.testing.faults import FaultProxy, lose_response
from kpl_codec.testing.local_kinesis import LocalKinesis

from ..spark.source.support import Stream
from .model import read_ledgers, table_of
from .test_law import names_with

FAST = ProducerConfig(record_max_buffered_time_ms=50)
Name = tuple[str, str, int]


def name_of(one: Any) -> Name:
    return one.shard_id, one.sequence_number, one.sub_sequence_number


def put_faulty(client: Any, stream: str, ledger: Ledger, records: Iterator[tuple[str, bytes]]) -> None:
    """As the README of aws_kinesis_agg shows; with a row in the ledger by what PutRecord answers."""
    from aws_kinesis_agg.aggregator import RecordAggregator

    writer, aggregator = ledger.writer(stream), RecordAggregator()

    def put() -> None:
        key, hash_key, data = aggregator.clear_and_get().get_contents()
        arguments = {"ExplicitHashKey": hash_key} if hash_key else {}
        response = client.put_record(StreamName=stream, PartitionKey=key, Data=data, **arguments)
        writer.put(response["ShardId"], response["SequenceNumber"], partition_key=key, data=data)

    for count, (key, data) in enumerate(records, 1):
        aggregator.add_user_record(key, data)
        if count % 40 == 0:
            put()
    writer.close()


@pytest.mark.requirement("AUD-1", "AUD-8", "AUD-13", "AUD-16")
def test_the_audit_names_all_of_it(kinesis_local: LocalKinesis, stream_name: str, tmp_path: Path) -> None:
    """What both producers and the faulty writer have put, and each once."""
    stream = Stream(kinesis_local, stream_name, 2)
    client, place = stream.client, tmp_path / "produced"
    settings: dict[str, Any] = {"config": FAST, "client_settings": kinesis_local.client_settings}
    with Producer(stream_name, ledger=Ledger(place, wait=True), **settings) as producer:
        for half in range(2):
            futures = [producer.put(f"key-{n}", b"%d" % n) for n in range(half * 1000, half * 1000 + 1000)]
            deliveries = [future.result(60) for future in futures]
            assert Counter(map(name_of, deliveries)) <= names_of(place, "delivered")  # AUD-8
            put_faulty(client, stream_name, Ledger(place), ((f"key-{n}", b"x%d" % n) for n in range(80)))
            if half == 0:
                stream.split("shardId-000000000000")

    async def put_more() -> None:
        async with AsyncProducer(stream_name, ledger=Ledger(place), **settings) as producer:
            await asyncio.gather(*[await producer.put(f"key-{n}", b"%d" % n) for n in range(200)])

    asyncio.run(put_more())
    # A consumer under the KCL's rule with a bug: it skips every 397th, and loses its checkpoint twice.
    records = list(read_stream(client, stream_name))
    shard_map = fetch_shard_map(client, stream_name)
    gets = [name_of(one) for one in deaggregate(records, "kcl", shard_map=shard_map)]
    skipped = set(gets[396::397])
    handled = [name for name in gets if name not in skipped]
    again = handled[100:150] + handled[1000:1007]
    table = table_of(handled[:150] + handled[100:1007] + handled[1000:])
    (tmp_path / "handled.parquet").write_bytes(table)
    # The consumer is at the end of the stream, so all that was put until now must be handled.
    result = audit(
        [str(place)],
        [str(tmp_path / "handled.parquet")],
        put_before=datetime.now(timezone.utc),
        client=client,
        stream=stream_name,
    )
    by_kind: dict[str, set[Name]] = {}
    for kind in {one.kind for one in result.findings}:
        by_kind[kind] = names_with(result, lambda one, kind=kind: one.kind == kind)  # type: ignore[misc]
    # What our producer has sent again because the split overtook it is no loss.
    every = {name_of(one) for one in deaggregate(records, "report")}
    lost = every - set(gets) - names_of(place, "again").keys()
    assert len(lost) >= 80  # of the faulty writer
    assert by_kind == {"audit-missing": skipped, "audit-dropped": lost, "audit-twice": set(again)}
    causes = {one.cause for one in result.findings if one.kind == "audit-dropped"}
    assert causes <= {"across-shards", "reshard", "wrong-shard"}


def names_of(folder: Path, kind: RowKind) -> Counter[Name]:
    """The user records that the ledgers of producers name, in rows of this kind."""
    rows, _ = read_ledgers(str(folder))
    return Counter(
        (row.shard_id, row.sequence_number, sub)
        for row in rows
        if row.kind == kind
        for sub in range(row.user_records)
    )


def sums_in(folder: Path) -> tuple[Counter[RowKind], list[str]]:
    """How many user records the rows of each kind name, and why rows may be lacking."""
    rows, lost = read_ledgers(str(folder))
    kinds = Counter[RowKind]()
    for row in rows:
        kinds[row.kind] += row.user_records
    return kinds, [part.why for part in lost]


@pytest.mark.requirement("AUD-1", "AUD-14")
def test_an_attempt_without_an_answer_is_noted_and_known_by_its_digest(
    kinesis_faults: FaultProxy, stream_name: str, tmp_path: Path, kinesis_local: LocalKinesis
) -> None:
    kinesis_local.create_stream(stream_name, 1)
    settings = {**kinesis_local.client_settings, "endpoint_url": kinesis_faults.endpoint_url}
    with Producer(stream_name, ledger=Ledger(tmp_path), config=FAST, client_settings=settings) as producer:
        assert producer.wait_ready()
        kinesis_faults.on("PutRecords", lose_response(), times=1)
        assert producer.put("k", b"data").result(60)
    assert sums_in(tmp_path) == (Counter({"delivered": 1, "unanswered": 1}), [])
