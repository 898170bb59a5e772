"""Two attempts at one partition at the same time, on a real cluster: both read the same, one counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .cluster import spark_cluster
from .test_kills import Driver, sink_rows

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(300)]


@pytest.mark.slow
@pytest.mark.requirement("SPK-50")
def test_a_speculative_attempt_reads_the_same_and_nothing_is_missing_or_twice(
    make_stream: Any, tmp_path: Path
) -> None:
    stream = make_stream(4)
    stream.put(40, width=20_000)  # too much to be carried: each shard has a task
    notes = tmp_path / "notes"
    notes.mkdir()
    with spark_cluster(tmp_path) as master:
        settings = {
            "spark.master": master,
            "spark.executor.memory": "512m",
            "spark.speculation": "true",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.interval": "100ms",
        }
        with Driver(
            tmp_path, stream.options(), available_now=True, slow=str(notes), spark=settings
        ) as driver:
            assert driver.wait_death(240) == 0, driver.log.read_text()[-4000:]
    stream.check(sink_rows(tmp_path))
    assert int((tmp_path / "sink" / "speculative").read_text()) >= 1
    # The first attempt had read all of its rows when the second read them again.
    attempts = {tuple(note.name.split("-")[:2]): json.loads(note.read_text()) for note in notes.iterdir()}
    batch = min(batch for batch, _ in attempts)
    assert len(attempts[batch, "0"]) > 10
    assert attempts[batch, "1"] == attempts[batch, "0"]
