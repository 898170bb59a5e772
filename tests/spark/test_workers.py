"""A producer in the functions that Spark runs in its Python workers, which nobody closes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kpl_codec as kpl
from kpl_codec.aws import read_stream
from kpl_codec.producer import Producer
from kpl_codec.testing.local_kinesis import LocalKinesis

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow]

#: A module of the user's: one producer for a process. What it holds it sends after minutes, or at a flush.
MODULE = """
from kpl_codec.producer import Producer, ProducerConfig

CONFIG = ProducerConfig(record_max_buffered_time_ms=60_000, record_ttl_ms=300_000)
producers = {}

def put(stream, settings, data):
    if stream not in producers:
        producers[stream] = Producer(stream, client_settings=settings, config=CONFIG)
    producers[stream].put("k", data)
"""


@pytest.fixture
def put(spark: Any, tmp_path: Path, stream: str, kinesis_local: LocalKinesis) -> Callable[[str, int], None]:
    (tmp_path / "of_the_user.py").write_text(MODULE)
    folder, settings = str(tmp_path), dict(kinesis_local.client_settings)

    def put(way: str, number: int) -> None:
        import sys

        sys.path.insert(0, folder)
        import of_the_user  # type: ignore[import-not-found]

        of_the_user.put(stream, settings, f"{way} {number}".encode())
        sys.path.remove(folder)

    return put


@pytest.mark.requirement("PRD-77")
def test_what_was_put_is_there_when_the_action_returns(
    spark: Any, kinesis_local: LocalKinesis, stream: str, put: Callable[[str, int], None]
) -> None:
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
        found = {user.data for user in kpl.deaggregate(list(read_stream(kinesis_local.client(), stream)))}
        assert found == expected, way


@pytest.mark.requirement("PRD-79")
def test_a_producer_of_the_driver_is_refused_with_what_to_do(
    spark: Any, stream: str, kinesis_local: LocalKinesis
) -> None:
    producer = Producer(stream, client_settings=dict(kinesis_local.client_settings))
    with pytest.raises(Exception, match="make it in the function that uses it there"):
        spark.range(1).foreach(lambda _: producer.put("k", b"x"))
