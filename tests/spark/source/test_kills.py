"""kill -9 of drivers and Python workers, in the middle of batches and around their commits.

After every death the query goes on from its checkpoint into a sink that is idempotent by batch. At the
end every (shard, sequence number, sub-sequence number) is counted: none missing, none twice; and every
batch that was written twice was the same both times.

    pytest -m slow tests/spark/source/test_kills.py                          one life of a driver
    KPL_CODEC_LIVES=32 pytest -m soak -s tests/spark/source/test_kills.py    about a hundred kills, 20 minutes
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kpl_codec.testing.faults import FaultProxy, error, slow, throttle

from .killable import Killable
from .support import Name, Stream

pytestmark = [pytest.mark.spark, pytest.mark.server]


class Driver(Killable):
    """A streaming query in a process of its own (`driver.py`)."""

    def __init__(self, folder: Path, options: dict[str, str], **settings: Any) -> None:
        self.folder = folder
        (folder / "sink").mkdir(exist_ok=True)
        settings = {
            "options": options,
            "checkpoint": str(folder / "checkpoint"),
            "sink": str(folder / "sink"),
            **settings,
        }
        command = [sys.executable, "-m", "tests.spark.source.driver", json.dumps(settings)]
        super().__init__(command, folder / "log")

    @property
    def batch(self) -> int:
        """The batch that is being written, or was last."""
        at = self.folder / "sink" / "at"
        return int(at.read_text() or -1) if at.exists() else -1


def sink_rows(folder: Path) -> Iterator[tuple[Name, str, bytes]]:
    for path in sorted((folder / "sink").glob("*.rows")):
        for line in path.read_text().splitlines():
            shard, number, sub, key, data = json.loads(line)
            yield (shard, number, sub), key, data.encode()


class Feeder(threading.Thread):
    """Puts records all the time, in some turns so many that tasks must read them, and splits and merges now
    and then, until told to stop."""

    def __init__(self, stream: Stream, reshards: int, turns: int, bursts: int = 0) -> None:
        super().__init__(daemon=True)
        self.stream, self.reshards, self.turns, self.bursts = stream, reshards, turns, bursts
        self.stopping = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            chance = random.Random(1)
            turn = 0
            while not self.stopping.wait(0.05):
                if turn >= self.turns:
                    continue
                self.stream.put(chance.randrange(1, 6))
                turn += 1
                if turn % 100 == 0 and self.bursts:
                    self.bursts -= 1
                    self.stream.put(1500)
                if turn % 40 == 0 and self.reshards:
                    self.reshards -= 1
                    self.reshard(chance)
        except BaseException as error:
            self.failure = error
            raise

    def reshard(self, chance: random.Random) -> None:
        shards = self.stream.open_shards
        if len(shards) < 3 or self.reshards % 2:
            self.stream.split(chance.choice(shards).shard_id)
        else:
            self.stream.merge_neighbours(chance)

    def finish(self) -> None:
        self.stopping.set()
        self.join()
        assert self.failure is None


def finish(stream: Stream, folder: Path, what: str) -> list[int]:
    """Read what is left without faults, count everything, and say so; the attempts of each batch."""
    with Driver(folder, stream.options(), available_now=True) as driver:
        assert driver.wait_death() == 0, driver.log.read_text()[-4000:]
    assert not (folder / "sink" / "changed").exists()
    stream.check(sink_rows(folder))
    attempts = [int(line) for line in (folder / "sink" / "attempts").read_text().splitlines()]
    offset = json.loads(_last_offset(folder))
    print(
        f"{what}; {len(stream.sent)} user records of {len(offset['shards'])} shards in {max(attempts) + 1} "
        f"batches and {len(attempts)} attempts: 0 missing, 0 twice"
    )
    return attempts


def _last_offset(folder: Path) -> str:
    offsets = folder / "checkpoint" / "offsets"
    last = max((path for path in offsets.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    return last.read_text().splitlines()[-1]


def kill_workers_until_it_ends(driver: Driver, from_batch: int, most: int) -> int:
    """kill -9 of a reading Python worker now and then; how many."""
    killed = 0
    while driver.process.poll() is None:
        workers = driver.workers() if driver.batch >= from_batch and killed < most else []
        if workers:
            os.kill(workers[-1], signal.SIGKILL)
            killed += 1
            time.sleep(0.5)
        time.sleep(0.02)
    return killed


LIVES = int(os.environ.get("KPL_CODEC_LIVES", "8"))
#: When a driver dies, in turn.
POINTS = ["after-sink", "before-read", "before-sink", "any moment"]
#: How batches are read, four lives each: by tasks, carried by partitions, by enhanced fan-out.
WAYS: list[dict[str, Any]] = [
    {"maxFetchRecordsPerShard": 60},
    {},
    {"consumerType": "efo", "consumerName": "reader"},
]


@pytest.mark.timeout(400 + 200 * LIVES)
@pytest.mark.requirement("SPK-50", "SPK-54", "SPK-85")
@pytest.mark.parametrize(
    "lives", [pytest.param(1, marks=pytest.mark.slow), pytest.param(LIVES, marks=pytest.mark.soak)]
)
def test_drivers_and_workers_are_killed_and_nothing_is_missing_or_twice(
    make_stream: Any, tmp_path: Path, lives: int
) -> None:
    chance, stream, workers, batch = random.Random(11), make_stream(3), 0, 0
    with FaultProxy(stream.kinesis.endpoint_url) as proxy:
        proxy.on("GetRecords", slow(0.1), rate=0.3)  # so that a kill finds somebody reading
        proxy.on("GetRecords", throttle(), rate=0.05)
        proxy.on("GetRecords", error("ExpiredIteratorException"), rate=0.05)
        feeder = Feeder(stream, reshards=3 * lives, turns=400 * lives, bursts=4 * (lives - 1))
        feeder.start()
        for life in range(lives):
            options = stream.options(endpointUrl=proxy.endpoint_url, **WAYS[life // 4 % 3])
            point = POINTS[life % 4]
            batch += chance.randrange(2, 5)
            die = None if point == "any moment" else [point, batch]
            with Driver(tmp_path, options, die=die) as driver:
                if die is None:
                    driver.wait(lambda driver=driver, batch=batch: driver.batch >= batch, 240)
                    time.sleep(chance.random())
                    driver.kill()
                else:
                    workers += kill_workers_until_it_ends(driver, batch - 1, 3)
                    assert driver.wait_death() == -signal.SIGKILL
                batch = driver.batch
        feeder.finish()
    attempts = finish(stream, tmp_path, f"killed: {lives} drivers, {workers} workers")
    assert workers >= lives
    assert len(attempts) > len(set(attempts))
    assert feeder.reshards < 3 * lives
