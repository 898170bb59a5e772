"""A checkpoint is replaced as the guide says, with real Spark and a local server: no row is lost."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from .support import Stream
from .test_datasource import named

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(300)]

GUIDE = Path(__file__).parents[3] / "spec/guides/spark.md"


def last_offset(spark: Any, checkpoint: Path, stream: str) -> str:
    """By the guide's own function."""
    found = re.search(r"^def last_offset\(.*?(?=^\S)", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {"spark": spark, "json": json}
    exec(found[0], names)
    return str(names["last_offset"](str(checkpoint), stream))


class Queries:
    """The old query and the new one, each with a checkpoint and a folder of its own."""

    def __init__(self, spark: Any, folder: Path, *streams: Stream) -> None:
        self.spark, self.folder, self.streams = spark, folder, streams

    def start(self, which: str, each: Any = None, trigger: Any = None, **options: Any) -> Any:
        def frame_of(stream: Stream) -> Any:
            place = options.get("startingPosition")
            if callable(place):
                place = place(stream)
            settings = stream.options(**{**options, "startingPosition": place})
            return self.spark.readStream.format("kpl-kinesis").options(**settings).load()

        def write(batch: Any, number: int) -> None:
            batch.write.mode("append").parquet(str(self.folder / which / "out"))
            if each is not None:
                each(number)

        first, *others = map(frame_of, self.streams)
        for other in others:
            first = first.unionByName(other)
        writer = first.writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", str(self.folder / which / "checkpoint"))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def go_on(self) -> None:
        checkpoint = self.folder / "old" / "checkpoint"
        query = self.start(
            "new", startingPosition=lambda stream: last_offset(self.spark, checkpoint, stream.name)
        )
        query.awaitTermination()

    def rows(self, *which: str, stream: Stream | None = None) -> list[Any]:
        folders = [
            str(self.folder / one / "out") for one in which if [*(self.folder / one).glob("out/*.parquet")]
        ]
        if not folders:
            return []
        frame = self.spark.read.parquet(*folders)
        return named(frame if stream is None else frame.where(frame.streamName == stream.name))

    def check(self) -> None:
        """Each user record of each stream once, in both folders together."""
        for stream in self.streams:
            stream.check(self.rows("old", "new", stream=stream))


@pytest.fixture
def queries(spark: Any, make_stream: Any, tmp_path: Path) -> Queries:
    return Queries(spark, tmp_path, make_stream(2))


@pytest.mark.requirement("SPK-117", "SPK-124")
def test_a_query_that_is_behind(queries: Queries) -> None:
    (stream,) = queries.streams
    stream.put(30)
    stream.merge("shardId-000000000000", "shardId-000000000001")
    stream.put(30)
    query = queries.start("old", trigger={"processingTime": "0 seconds"}, maxFetchRecordsPerShard=5)
    while len(queries.rows("old")) < 20:
        assert query.isActive
    query.stop()
    assert len(queries.rows("old")) < len(stream.sent)
    queries.go_on()
    # A batch that was broken off may have written its rows.
    stream.check({row[0]: row for row in queries.rows("old", "new")}.values())


@pytest.mark.requirement("SPK-117", "SPK-124")
def test_a_query_of_two_streams(queries: Queries) -> None:
    (first,) = queries.streams
    other = Stream(first.kinesis, f"{first.name}-other", 1)
    queries.streams = (first, other)
    for stream in queries.streams:
        stream.put(5)
    queries.start("old", lambda number: other.put(3)).awaitTermination()
    for stream in queries.streams:
        stream.put(5)
    queries.go_on()
    queries.check()
