"""A producer in the functions that Spark runs in its Python workers, which nobody closes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kpl_codec as kpl
from kpl_codec.aws import read_stream
from kpl_codec.producer import Producer
from kpl_codec.testing.local_kinesis import LocalKinesis

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow]

#: A module of the user's: one producer for a process. What it holds it sends after minutes, or at a flush. It
#: notes what it has put, and in which process.
MODULE = """
import os
from kpl_codec.producer import Producer, ProducerConfig

CONFIG = ProducerConfig(record_max_buffered_time_ms=60_000, record_ttl_ms=300_000)
producers = {}

def put(stream, settings, data, notes):
    if stream not in producers:
        producers[stream] = Producer(stream, client_settings=settings, config=CONFIG)
    producers[stream].put("k", data)
    with open(notes, "a") as file:
        file.write(f"{os.getpid()} {data.decode()}\\n")
"""


class Workers(NamedTuple):
    """``put``: what a function of the user's calls in a worker. ``folder``: has the user's module."""

    put: Callable[[str, int], None]
    folder: Path
    stream: str
    kinesis: LocalKinesis

    def found(self) -> set[bytes]:
        records = list(read_stream(self.kinesis.client(), self.stream))
        return {user.data for user in kpl.deaggregate(records)}

    def noted(self) -> list[tuple[int, bytes]]:
        notes = self.folder / "notes"
        lines = notes.read_text().splitlines() if notes.exists() else []
        return [(int(pid), data.encode()) for pid, _, data in (line.partition(" ") for line in lines)]

    def lost(self) -> set[bytes]:
        """What was put and is not on the stream, when it is or when the processes that put have ended."""
        while True:
            ended = all(has_ended(pid) for pid, _ in self.noted())
            missing = {data for _, data in self.noted()} - self.found()
            if ended or not missing:
                return missing
            time.sleep(0.1)


def has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture
def workers(tmp_path: Path, stream: str, kinesis_local: LocalKinesis) -> Workers:
    (tmp_path / "of_the_user.py").write_text(MODULE)
    folder, settings = str(tmp_path), dict(kinesis_local.client_settings)

    def put(way: str, number: int) -> None:
        import sys

        sys.path.insert(0, folder)
        import of_the_user  # type: ignore[import-not-found]

        of_the_user.put(stream, settings, f"{way} {number}".encode(), f"{folder}/notes")
        sys.path.remove(folder)

    return Workers(put, tmp_path, stream, kinesis_local)


@pytest.mark.requirement("PRD-77")
def test_what_was_put_is_there_when_the_action_returns(spark: Any, workers: Workers) -> None:
    put = workers.put

    def each(row: Any) -> None:
        put("foreach", row.id)

    def rows(partition: Iterator[Any]) -> None:
        for row in partition:
            put("foreachPartition", row.id)

    def batches(partition: Iterator[Any]) -> Iterator[Any]:
        for batch in partition:
            for number in batch.column(0).to_pylist():
                put("mapInArrow", number)
            yield batch

    frame, expected = spark.range(0, 20, 1, 3), set()
    ways: dict[str, Callable[[], object]] = {
        "foreach": lambda: frame.foreach(each),
        "foreachPartition": lambda: frame.foreachPartition(rows),
        "mapInArrow": lambda: frame.mapInArrow(batches, "id long").collect(),
    }
    for way, action in ways.items():
        action()
        expected |= {f"{way} {number}".encode() for number in range(20)}
        assert workers.found() == expected, way


@pytest.mark.requirement("PRD-77")
def test_a_task_that_fails_delivers_what_it_has_put(spark: Any, workers: Workers) -> None:
    put = workers.put

    def each(row: Any) -> None:
        put("fails", row.id)
        if row.id == 5:
            raise ZeroDivisionError

    with pytest.raises(Exception, match="ZeroDivisionError"):
        spark.range(0, 10, 1, 1).foreach(each)
    assert {data for _, data in workers.noted()} == {b"fails %d" % number for number in range(6)}
    assert workers.lost() == set()


@pytest.mark.requirement("PRD-77")
@pytest.mark.parametrize("how", ["limit of mapInArrow", "take of an RDD"])
def test_a_task_that_spark_ends_early_delivers_what_it_has_put(
    spark: Any, workers: Workers, how: str
) -> None:
    put = workers.put

    def batches(partition: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in partition:
            for number in batch.column(0).to_pylist():
                put("early", number)
            # More than what fits between the worker and Java, so that the worker notices.
            yield pa.record_batch([pa.array([bytes(1 << 20)])], ["data"])

    def rows(partition: Iterator[Any]) -> Iterator[bytes]:
        for row in partition:
            put("early", row.id)
            yield bytes(1 << 20)

    frame, name = spark.range(0, 40, 1, 1), "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "1")
    try:
        if how == "limit of mapInArrow":
            assert len(frame.mapInArrow(batches, "data binary").limit(1).collect()) == 1
        else:
            assert len(frame.rdd.mapPartitions(rows).take(1)) == 1
    finally:
        spark.conf.set(name, before)
    assert workers.lost() == set()
    assert workers.noted()


#: Spark with settings that only a new one takes. Tasks of three kinds: one ends well, one fails.
PROGRAM = """
import json, sys
from kpl_codec.spark import local_session

folder, stream, client, settings = json.loads(sys.argv[1])
session = local_session("workers", cores=2, memory="768m", quick_start=True, settings=settings)

def put(way, number):
    sys.path.insert(0, folder)
    import of_the_user

    of_the_user.put(stream, client, f"{way} {number}".encode(), f"{folder}/notes")

def fails(row):
    put("fails", row.id)
    if row.id % 10 == 9:
        raise ZeroDivisionError

session.range(0, 20, 1, 2).foreach(lambda row: put("well", row.id))
try:
    session.range(0, 20, 1, 2).foreach(fails)
except Exception as error:
    assert "ZeroDivisionError" in str(error)
else:
    raise AssertionError("it did not fail")
session.stop()
"""


@pytest.mark.requirement("PRD-77")
@pytest.mark.parametrize("name", ["spark.python.worker.reuse", "spark.python.use.daemon"])
def test_workers_that_spark_uses_once_deliver(name: str, workers: Workers) -> None:
    arguments = [str(workers.folder), workers.stream, dict(workers.kinesis.client_settings), {name: "false"}]
    program = [sys.executable, "-c", PROGRAM, json.dumps(arguments)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    noted = {data for _, data in workers.noted()}
    assert {b"well %d" % number for number in range(20)} < noted
    assert noted - workers.found() == set()


@pytest.mark.requirement("PRD-79")
def test_a_producer_of_the_driver_is_refused_with_what_to_do(
    spark: Any, stream: str, kinesis_local: LocalKinesis
) -> None:
    producer = Producer(stream, client_settings=dict(kinesis_local.client_settings))
    with pytest.raises(Exception, match="make it in the function that uses it there"):
        spark.range(1).foreach(lambda _: producer.put("k", b"x"))
