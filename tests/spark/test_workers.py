"""A producer in the functions that Spark runs in its Python workers, in a with block of each task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kpl_codec as kpl
from kpl_codec.aws import read_stream
from kpl_codec.producer import Producer, ProducerConfig
from kpl_codec.testing.local_kinesis import LocalKinesis

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow]


@pytest.mark.requirement("PRD-61", "PRD-92")
def test_what_a_task_has_put_in_a_block_is_there_however_it_ends(
    spark: Any, stream: str, kinesis_local: LocalKinesis, tmp_path: Path
) -> None:
    settings, notes = dict(kinesis_local.client_settings), tmp_path / "notes"
    # What it holds it sends after minutes, or when its block ends.
    config = ProducerConfig(record_max_buffered_time_ms=60_000, record_ttl_ms=300_000)

    def putting(way: str, numbers: Iterator[int], fails: int | None = None) -> Iterator[int]:
        with Producer(stream, client_settings=settings, config=config) as producer:
            for number in numbers:
                data = f"{way} {number}"
                producer.put("k", data.encode())
                with notes.open("a") as file:
                    file.write(data + "\n")
                if number == fails:
                    raise ZeroDivisionError
                yield number

    def of_rows(way: str, partition: Iterator[Any], fails: int | None = None) -> Iterator[int]:
        yield from putting(way, (row.id for row in partition), fails)

    def batches(partition: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        numbers = (number for batch in partition for number in batch.column(0).to_pylist())
        for _ in putting("batches", numbers):
            # More than what fits between the worker and Java, so that the worker notices an early end.
            yield pa.record_batch([pa.array([bytes(1 << 20)])], ["data"])

    def check() -> None:
        """Something was put, and all that was put is on the stream."""
        noted = set(notes.read_bytes().splitlines())
        records = list(read_stream(kinesis_local.client(), stream))
        assert noted
        assert noted - {user.data for user in kpl.deaggregate(records)} == set()
        notes.unlink()

    frame = spark.range(0, 20, 1, 2)
    frame.foreachPartition(lambda partition: list(of_rows("well", partition)))
    check()
    with pytest.raises(Exception, match="ZeroDivisionError"):
        frame.foreachPartition(lambda partition: list(of_rows("fails", partition, 5)))
    check()
    assert len(frame.rdd.mapPartitions(lambda partition: of_rows("take", partition)).take(1)) == 1
    check()
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "1")
    try:
        assert len(frame.mapInArrow(batches, "data binary").limit(1).collect()) == 1
    finally:
        spark.conf.set(name, before)
    check()


@pytest.mark.requirement("PRD-78", "PRD-79", "PRD-92")
def test_a_producer_that_would_not_end_with_its_task_is_refused(
    spark: Any, stream: str, kinesis_local: LocalKinesis
) -> None:
    settings, one = dict(kinesis_local.client_settings), spark.range(1)
    with pytest.raises(Exception, match=r"NotStarted.* use a with block"):
        one.foreach(lambda _: Producer(stream, client_settings=settings).put("k", b"x"))
    with pytest.raises(Exception, match="a task of PySpark ends without exit handlers: use a with block"):
        one.foreach(lambda _: Producer(stream, client_settings=settings).start())
    of_the_driver = Producer(stream, client_settings=settings)
    with pytest.raises(Exception, match="make it in the function that uses it there"):
        one.foreach(lambda _: of_the_driver.put("k", b"x"))
