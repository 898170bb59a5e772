"""A producer in the functions that Spark runs in its Python workers, in a with block of each task."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kpl_codec as kpl
from kpl_codec.aws import read_stream
from kpl_codec.producer import Producer
from kpl_codec.testing.local_kinesis import LocalKinesis

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow]

#: A module of the user's. What a producer holds it sends after minutes, or when its block ends. `putting`
#: notes what it has put.
MODULE = """
from kpl_codec.producer import Producer, ProducerConfig

CONFIG = ProducerConfig(record_max_buffered_time_ms=60_000, record_ttl_ms=300_000)

def new(stream, settings):
    return Producer(stream, client_settings=settings, config=CONFIG)

def putting(stream, settings, way, partition, notes, fails=None):
    with new(stream, settings) as producer:
        for number in partition:
            data = f"{way} {number}"
            producer.put("k", data.encode())
            with open(notes, "a") as file:
                file.write(data + "\\n")
            if number == fails:
                raise ZeroDivisionError
            yield number
"""


class Workers(NamedTuple):
    """``module``: the user's, in a worker. ``arguments``: of its functions."""

    module: Callable[[], Any]
    arguments: tuple[str, dict[str, str]]
    notes: Path
    kinesis: LocalKinesis

    def check(self) -> None:
        """Something was put, and all that was put is on the stream."""
        noted = set(self.notes.read_bytes().splitlines())
        records = list(read_stream(self.kinesis.client(), self.arguments[0]))
        assert noted
        assert noted - {user.data for user in kpl.deaggregate(records)} == set()
        self.notes.unlink()


@pytest.fixture
def workers(tmp_path: Path, stream: str, kinesis_local: LocalKinesis) -> Workers:
    (tmp_path / "of_the_user.py").write_text(MODULE)
    folder = str(tmp_path)

    def module() -> Any:
        sys.path.insert(0, folder)
        import of_the_user  # type: ignore[import-not-found]

        sys.path.remove(folder)
        return of_the_user

    return Workers(module, (stream, dict(kinesis_local.client_settings)), tmp_path / "notes", kinesis_local)


@pytest.mark.requirement("PRD-61", "PRD-92")
def test_what_a_task_has_put_in_a_block_is_there_however_it_ends(spark: Any, workers: Workers) -> None:
    module, arguments, notes = workers.module, workers.arguments, str(workers.notes)

    def of_rows(way: str, partition: Iterator[Any], fails: int | None = None) -> Iterator[int]:
        numbers = (row.id for row in partition)
        yield from module().putting(*arguments, way, numbers, notes, fails)

    def batches(partition: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        numbers = (number for batch in partition for number in batch.column(0).to_pylist())
        for _ in module().putting(*arguments, "batches", numbers, notes):
            # More than what fits between the worker and Java, so that the worker notices an early end.
            yield pa.record_batch([pa.array([bytes(1 << 20)])], ["data"])

    frame = spark.range(0, 20, 1, 2)
    frame.foreachPartition(lambda partition: list(of_rows("well", partition)))
    workers.check()
    with pytest.raises(Exception, match="ZeroDivisionError"):
        frame.foreachPartition(lambda partition: list(of_rows("fails", partition, 5)))
    workers.check()
    assert len(frame.rdd.mapPartitions(lambda partition: of_rows("take", partition)).take(1)) == 1
    workers.check()
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "1")
    try:
        assert len(frame.mapInArrow(batches, "data binary").limit(1).collect()) == 1
    finally:
        spark.conf.set(name, before)
    workers.check()


@pytest.mark.requirement("PRD-78", "PRD-79", "PRD-92")
def test_a_producer_that_would_not_end_with_its_task_is_refused(spark: Any, workers: Workers) -> None:
    module, (stream, settings), one = workers.module, workers.arguments, spark.range(1)
    with pytest.raises(Exception, match=r"NotStarted.* use a with block"):
        one.foreach(lambda _: module().new(stream, settings).put("k", b"x"))
    with pytest.raises(Exception, match="a task of PySpark ends without exit handlers: use a with block"):
        one.foreach(lambda _: module().new(stream, settings).start())
    of_the_driver = Producer(stream, client_settings=settings)
    with pytest.raises(Exception, match="make it in the function that uses it there"):
        one.foreach(lambda _: of_the_driver.put("k", b"x"))
