"""A streaming query as a process of its own, to be killed: what the kill tests run.

    python -m tests.spark.source.driver '{"options": {...}, "checkpoint": ..., "sink": ..., ...}'

The sink is idempotent by batch: a batch's rows are one file, written whole or not at all, and written
again when the batch is. A batch that is not the same the second time is written to ``changed``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any


def rows_of(frame: Any) -> list[str]:
    return sorted(
        json.dumps(
            [row.shardId, row.sequenceNumber, row.subSequenceNumber, row.partitionKey, row.data.decode()]
        )
        for row in frame.collect()
    )


def main(settings: dict[str, Any]) -> None:
    from kpl_codec.spark.session import local_session
    from kpl_codec.spark.source.datasource import KinesisDataSource

    sink = Path(settings["sink"])
    # A task fails with each of its workers that is killed, and may fail more often than workers are killed.
    more = {"spark.master": "local[2,6]"}
    spark = local_session("kpl-codec kill test", cores=2, memory="768m", settings=more)
    spark.dataSource.register(KinesisDataSource)

    def die(point: str, batch: int) -> None:
        if settings.get("die") == [point, batch]:
            os.killpg(os.getpgrp(), signal.SIGKILL)

    def write(frame: Any, batch: int) -> None:
        (sink / "at").write_text(str(batch))
        with (sink / "attempts").open("a") as attempts:
            attempts.write(f"{batch}\n")
        die("before-read", batch)
        rows = rows_of(frame)
        die("before-sink", batch)
        target = sink / f"{batch}.rows"
        text = "".join(f"{row}\n" for row in rows)
        if target.exists() and target.read_text() != text:
            (sink / "changed").write_text(str(batch))
        part = sink / f"{batch}.part"
        part.write_text(text)
        part.rename(target)
        die("after-sink", batch)

    frame = spark.readStream.format("kpl-kinesis").options(**settings["options"]).load()
    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", settings["checkpoint"])
    if settings.get("available_now"):
        writer = writer.trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
