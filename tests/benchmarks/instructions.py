"""How many instructions a user record takes: a measure that no load on the machine changes.

    python -m tests.benchmarks.instructions            count every cell, compare with instructions.json
    python -m tests.benchmarks.instructions --write    count, and write instructions.json
    python -m tests.benchmarks.instructions --package FOLDER    an older checkout, its extension built

callgrind counts (`apt-get install valgrind gcc`). A cell is a task of `tasks.py` on a corpus, ``put``
(through the producer's core), what a caller of a Producer does, what a Lambda function does with an event,
or a `validate`. It runs ten times (`validate` twice), then is counted once, so that no start-up is in it. One
that takes over 3 % more than in instructions.json is named, and the status is 1. Another compiler, Python or
pyarrow gives other counts: the file says of which it is. There, write it anew from the commit before the
change, then compare.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BASELINE = Path(__file__).with_name("instructions.json")
#: By how much a cell may grow.
LIMIT = 1.03
MEBIBYTES = 2.0
PUTS = 2000
#: So many that no put waits for the producer's thread.
PUTS_OF_A_CALLER = 900
#: Of the event of a Lambda function: Kinesis records, and user records in each.
EVENT = (200, 5)
VALIDATED = 100_000
#: Runs until Python has specialized its own instructions.
WARM_UP = 10
CELLS = (
    *(f"{task} {corpus}" for task in ("columns", "columns+placement") for corpus in "abcdefg"),
    *(f"{task} {corpus}" for task in ("objects kept", "report") for corpus in "abfg"),
    "encode a", "encode b", "put", "put-of-a-caller", "result-of-a-caller", "result-unread",
    "one by one g", "event", "validate",
)  # fmt: skip
NEEDED = {"valgrind": "valgrind", "cc": "gcc", "/usr/include/valgrind/callgrind.h": "valgrind"}
#: Tells callgrind to begin counting, and to write what it has counted.
CALLS = """
#include <valgrind/callgrind.h>
void begin(void) { CALLGRIND_START_INSTRUMENTATION; }
void end(void) { CALLGRIND_STOP_INSTRUMENTATION; CALLGRIND_DUMP_STATS; }
"""
_NEVER = "0x40000000"  # bytes from which glibc copies by "rep movsb", which counts as one instruction a byte
ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "GLIBC_TUNABLES": ":".join(f"glibc.cpu.x86_rep_{kind}_threshold={_NEVER}" for kind in ("movsb", "stosb")),
    "OMP_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
}


def put() -> None:
    """`PUTS` user records through the producer's core to a stream of 4 shards, which takes everything."""
    from kpl_codec.producer import ProducerConfig, ProducerCore
    from kpl_codec.producer.batch import Call
    from kpl_codec.shards.live_shard_map import LiveShardMap

    from ..shards.model import ModelStream, pages

    live = LiveShardMap("s", describe=False, shard_filter="FROM_TRIM_HORIZON")
    core = ProducerCore(ProducerConfig(), live, random.Random(1).randrange)
    listed = iter(pages(ModelStream(4, now=0).shards, 1000))
    live.refresh(0.0)
    for request in core.requests(0.0):
        core.receive(request, next(listed), 0.0)
    for number in range(PUTS):
        core.accept(core.prepare(f"key-{number % 97}", bytes(100)), 1.0)
    done = 0
    for request in core.requests(2.0):
        assert isinstance(request, Call)
        placed = [live.predict(int(record["ExplicitHashKey"])) for record in request.records]
        core.receive(request, {"Records": [{"ShardId": i, "SequenceNumber": "1"} for i in placed]}, 2.0)
        done += sum(1 for _ in core.results())
    assert done == PUTS


class Callers:
    """What callers of a Producer do whose thread does not run: puts, and reads of results that have come."""

    def __init__(self) -> None:
        from kpl_codec.producer import Attempt, Delivery, Producer

        from ..producer.model_client import ModelClient

        self._new = partial(Producer, "s", client=ModelClient())
        self._delivery = Delivery("shardId-000000000000", "1", 0, (Attempt("delivered", 1.0, 2.0, None),))
        self._batches = [self._put() for _ in range(WARM_UP + 1)]

    def _put(self) -> list[Any]:
        producer = self._new()
        mailbox = producer._mailbox
        mailbox.becomes("start")
        mailbox.awake = True
        for number in range(PUTS_OF_A_CALLER):
            producer.put(f"key-{number % 97}", bytes(100))
        return mailbox.inbox

    def put(self) -> None:
        self._put()

    def unread(self) -> list[Any]:
        """A result comes, and nobody waits for it."""
        from kpl_codec.producer.future import end_all

        batch = self._batches.pop()
        for pending in batch:
            pending.result = self._delivery
        end_all(batch)
        return batch

    def result(self) -> None:
        for pending in self.unread():
            assert pending.token.result() is self._delivery


def event() -> Callable[[], object]:
    """A handler that does nothing, called with each user record of an event."""
    import kpl_codec as kpl
    from kpl_codec.adapters import to_lambda
    from kpl_codec.aws_lambda import process_user_records

    user_records = [kpl.UserRecord(f"key-{number % 3}", bytes(100)) for number in range(EVENT[1])]
    records = [
        kpl.KinesisRecord("a", kpl.encode(user_records), str(10**55 + number), "shardId-000000000000")
        for number in range(EVENT[0])
    ]
    made = to_lambda(records, stream_arn="arn:aws:kinesis:us-east-1:123456789012:stream/orders")
    return lambda: process_user_records(made, lambda record: None)


def validate() -> Callable[[], object]:
    """The whole work of `kpl-codec validate`, in this process."""
    from kpl_codec.captures import Location
    from kpl_codec.validate import LocalEngine
    from kpl_codec.validate import validate as check

    from .captures import SHARD_MAP, write_generated

    folder = tempfile.TemporaryDirectory()
    write_generated(VALIDATED, Location(f"{folder.name}/made").make_folder())

    def run() -> None:
        with tempfile.TemporaryDirectory(dir=folder.name) as output:
            check([f"{folder.name}/made/capture"], SHARD_MAP, output=output, engine=LocalEngine(cores=1))

    return run


def runs(cells: Sequence[str]) -> Iterator[tuple[Callable[[], object], int]]:
    """What a cell does, and how many user records it takes."""
    from . import corpora, tasks

    name = ""
    for cell in cells:
        if cell == "put":
            yield put, PUTS
            continue
        if cell in ("put-of-a-caller", "result-of-a-caller", "result-unread"):
            callers = Callers()
            steps = {"put-of-a-caller": callers.put, "result-of-a-caller": callers.result}
            yield steps.get(cell, callers.unread), PUTS_OF_A_CALLER
            continue
        if cell in ("event", "validate"):
            yield (event(), EVENT[0] * EVENT[1]) if cell == "event" else (validate(), VALIDATED)
            continue
        task, _, wanted = cell.rpartition(" ")
        if wanted != name:
            name, corpus = wanted, corpora.corpus(wanted, MEBIBYTES)
            ours = tasks.KplCodec(corpus).tasks()
        yield partial(ours[task], corpus), corpus.user_records


def child(cells: Sequence[str], library: str) -> None:
    """Counts each cell, within callgrind, and prints how many user records it took."""
    calls = ctypes.CDLL(library)

    def once(run: Callable[[], object]) -> None:
        made = run()
        if isinstance(made, Iterator):
            deque(made, maxlen=0)

    for cell, (run, user_records) in zip(cells, runs(cells), strict=True):
        for _ in range(2 if cell == "validate" else WARM_UP):
            once(run)
        gc.collect()
        calls.begin()
        once(run)
        calls.end()
        print(user_records, flush=True)


def missing() -> list[str]:
    """The Debian packages that are not there."""
    return sorted(
        {package for what, package in NEEDED.items() if not (shutil.which(what) or Path(what).exists())}
    )


def count(cells: Sequence[str], package: Path = ROOT) -> dict[str, float]:
    """Instructions a user record, by cell. ``package``: the checkout with the kpl_codec to count."""
    with tempfile.TemporaryDirectory() as scratch:
        source, library, out = (Path(scratch, name) for name in ("calls.c", "calls.so", "out"))
        source.write_text(CALLS)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        code = (
            f"import sys; sys.path.insert(0, {str(package)!r}); import kpl_codec\n"
            f"sys.path[0] = {str(ROOT)!r}\n"
            f"from {__spec__.name} import child; child({list(cells)}, {str(library)!r})"
        )
        command = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"]
        done = subprocess.run(
            [*command, sys.executable, "-c", code],
            stdout=subprocess.PIPE, text=True, cwd=scratch, env={**os.environ, **ENVIRONMENT}, check=True,
        )  # fmt: skip
        counted = {}
        for number, (cell, user_records) in enumerate(zip(cells, done.stdout.split(), strict=True), 1):
            file = Path(f"{out}.{number}")
            total = next(row for row in file.read_text().splitlines() if row.startswith("totals:"))
            counted[cell] = round(int(total.split()[1]) / int(user_records), 1)
        return counted


def conditions() -> dict[str, str]:
    """What the counts depend on, beside the code."""
    compiler = subprocess.run(["cc", "-dumpfullversion"], capture_output=True, text=True, check=True)
    packages = {name: version(name) for name in ("pyarrow", "numpy", "cython")}
    vectors = "avx2" if " avx2" in Path("/proc/cpuinfo").read_text() else "sse2"
    return {
        "machine": f"{platform.machine()}, {vectors}, {'.'.join(platform.libc_ver())}",
        "gcc": compiler.stdout.strip(),
        "python": platform.python_version(),
        **packages,
    }


def grown(counted: dict[str, float], before: dict[str, float]) -> list[str]:
    """The cells that take too many more."""
    return [
        f"{cell}: {counted[cell]:.1f} instructions a user record, {before[cell]:.1f} before"
        for cell in counted
        if cell in before and counted[cell] > LIMIT * before[cell]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--package", type=Path, default=ROOT, metavar="FOLDER")
    parser.add_argument("--cells", default=",".join(CELLS))
    options = parser.parse_args()
    if missing():
        print(f"apt-get install {' '.join(missing())}", file=sys.stderr)
        return 2
    counted = count(options.cells.split(","), options.package.resolve())
    before = json.loads(BASELINE.read_text()) if BASELINE.exists() else {"cells": {}}
    for cell, number in counted.items():
        old = before["cells"].get(cell)
        print(f"{cell:20} {number:9.1f}  " + (f"{number / old:.3f} of instructions.json" if old else ""))
    if options.write:
        BASELINE.write_text(json.dumps({"of": conditions(), "cells": counted}, indent=1) + "\n")
        return 0
    if before["of"] != conditions():
        print(f"instructions.json is of {before['of']}, this is {conditions()}", file=sys.stderr)
    found = grown(counted, before["cells"])
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
