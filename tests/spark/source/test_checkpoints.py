"""A checkpoint is replaced as the guide says, with real Spark and a local server: no row is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from .support import Stream, rows_in

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(300)]

GUIDE = Path(__file__).parents[3] / "spec/guides/spark.md"


def function_of_the_guide(spark: Any) -> Callable[[str, str], str]:
    found = re.search(r"^def last_offset\(.*?(?=^\S)", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {"spark": spark, "json": json}
    exec(found[0], names)
    return names["last_offset"]  # type: ignore[no-any-return]


@pytest.mark.requirement("SPK-117", "SPK-124", "SPK-128")
def test_a_query_of_two_streams_gets_a_new_checkpoint(spark: Any, make_stream: Any, tmp_path: Path) -> None:
    first = make_stream(2)
    other = Stream(first.kinesis, f"{first.name}-other", 1)
    last_offset, checkpoint = function_of_the_guide(spark), str(tmp_path / "old" / "checkpoint")

    def run(which: str, starts: Mapping[str, str], meanwhile: Callable[[], Any]) -> None:
        def write(batch: Any, _number: int) -> None:
            batch.write.mode("append").parquet(str(tmp_path / which / "out"))
            meanwhile()

        frames = [
            spark.readStream.format("kpl-kinesis")
            .options(**stream.options(startingPosition=starts.get(stream.name)))
            .load()
            for stream in (first, other)
        ]
        writer = frames[0].unionByName(frames[1]).writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", str(tmp_path / which / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    first.put(5)
    other.put(5)
    run("old", {}, lambda: other.put(3))
    first.put(5)
    other.put(5)
    starts = {stream.name: last_offset(checkpoint, stream.name) for stream in (first, other)}
    arn = json.loads(starts[first.name])["arn"]
    assert last_offset(checkpoint, arn) == starts[first.name]
    for name in (first.name.upper(), "typo", "", f"{arn}x", arn.replace("us-east-1", "eu-west-1")):
        with pytest.raises(LookupError, match="no offset of the stream"):
            last_offset(checkpoint, name)
    run("new", starts, lambda: None)
    rows = spark.read.parquet(*(str(tmp_path / which / "out") for which in ("old", "new")))
    for stream in (first, other):
        stream.check(rows_in(rows.where(rows.streamName == stream.name)))
