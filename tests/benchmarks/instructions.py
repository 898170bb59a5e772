"""How many instructions a user record takes, which no load on the machine changes.

    python -m tests.benchmarks.instructions            count every cell, and compare with instructions.json
    python -m tests.benchmarks.instructions --write    count, and write instructions.json anew
    python -m tests.benchmarks.instructions --package FOLDER --cells "columns a,put"    an older checkout

It needs `valgrind` (Debian: `apt-get install valgrind`), whose callgrind counts, and a C compiler. A cell is a task of
`tasks.py` on a corpus, done once to warm up and counted once. A cell that takes over 3 % more than in
instructions.json is named, and the exit status is 1. The counts depend on the compiler, Python and pyarrow, which
the file names: with others write it anew from the commit before the change, then compare.
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
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BASELINE = Path(__file__).with_name("instructions.json")
#: By how much a cell may grow.
LIMIT = 1.03
MEBIBYTES = 2.0
PUTS = 2000
CELLS = (
    *(f"columns {corpus}" for corpus in "abcdefg"),
    *(f"columns+placement {corpus}" for corpus in "abcdefg"),
    *(f"objects {corpus}" for corpus in "abfg"),
    *(f"report {corpus}" for corpus in "abfg"),
    *(f"encode {corpus}" for corpus in "ab"),
    "put",
)
#: Tells callgrind to count from here on, and to stop and write what was counted.
CALLS = """
#include <valgrind/callgrind.h>
void count(void) { CALLGRIND_START_INSTRUMENTATION; }
void stop(const char *name) { CALLGRIND_STOP_INSTRUMENTATION; CALLGRIND_DUMP_STATS_AT(name); }
"""


def put() -> Callable[[], object]:
    """`PUTS` user records through the producer's core, on a stream of 4 shards that takes everything."""
    from kpl_codec.producer import ProducerConfig, ProducerCore
    from kpl_codec.producer.record_builder import PutRecordsRequest
    from kpl_codec.shards.live_shard_map import LiveShardMap
    from tests.shards.model import ModelStream, pages

    live = LiveShardMap("s", describe=False, shard_filter="FROM_TRIM_HORIZON")
    core = ProducerCore(ProducerConfig(), live, random.Random(1).randrange)
    listed = iter(pages(ModelStream(4, now=0).shards, 1000))
    live.refresh(0.0)
    for request in core.requests(0.0):
        core.receive(request, next(listed), 0.0)
    keys, now = [f"key-{number}" for number in range(97)], [0.0]

    def run() -> None:
        for number in range(PUTS):
            core.accept(core.prepare(keys[number % 97], bytes(100)), now[0])
        now[0] += 1.0
        for request in core.requests(now[0]):
            assert isinstance(request, PutRecordsRequest)
            placed = (live.predict(int(record["ExplicitHashKey"])) for record in request.records)
            answer = [{"ShardId": shard, "SequenceNumber": "1"} for shard in placed]
            core.receive(request, {"Records": answer}, now[0])
        assert sum(len(found) for found in core.results()) == PUTS if False else core.results() is not None

    return run


def child(cells: Sequence[str], library: str) -> None:
    """Runs under callgrind: counts each cell, and prints its name and the number of its user records."""
    from . import corpora, tasks

    calls = ctypes.CDLL(library)
    corpus = owner = None
    for cell in cells:
        task, _, name = cell.partition(" ")
        run, user_records = None, PUTS
        if name:
            if corpus is None or corpus.name != name:
                corpus = corpora.corpus(name, MEBIBYTES)
                owner = tasks.KplCodec(corpus).tasks()
            of_corpus, user_records = owner[task], corpus.user_records

            def run(task: tasks.Task = of_corpus, corpus: corpora.Corpus = corpus) -> Any:
                made = task(corpus)
                return deque(made, maxlen=0) if isinstance(made, Iterator) else made
        else:
            run = put()
        run()
        run()
        gc.collect()
        gc.freeze()
        calls.count()
        run()
        calls.stop(cell.encode())
        print(json.dumps([cell, user_records]), flush=True)


def count(cells: Sequence[str], package: Path = ROOT) -> dict[str, float]:
    """Instructions a user record, by cell. Raises SystemExit without valgrind or a compiler."""
    compiler, valgrind = shutil.which("cc"), shutil.which("valgrind")
    if compiler is None or valgrind is None:
        raise SystemExit("apt-get install valgrind gcc")
    with tempfile.TemporaryDirectory() as scratch:
        source, library, out = Path(scratch, "calls.c"), Path(scratch, "calls.so"), Path(scratch, "out")
        source.write_text(CALLS)
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
        code = (
            f"import sys; sys.path.insert(0, {str(package)!r}); import kpl_codec; sys.path[0] = {str(ROOT)!r}\n"
            f"from tests.benchmarks.instructions import child; child({list(cells)!r}, {str(library)!r})"
        )
        command = [valgrind, "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}", "-q"]
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        environment |= {"GLIBC_TUNABLES": "glibc.cpu.x86_rep_movsb_threshold=0x40000000:glibc.cpu.x86_rep_stosb_threshold=0x40000000"}
        environment |= {"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [*command, sys.executable, "-c", code],
            stdout=subprocess.PIPE, cwd=scratch, env=environment, check=True,
        )  # fmt: skip
        counted = {}
        for number, line in enumerate(done.stdout.splitlines(), 1):
            cell, user_records = json.loads(line)
            text = Path(f"{out}.{number}").read_text()
            if os.environ.get("KEEP"):
                shutil.copy(f"{out}.{number}", f"{os.environ['KEEP']}/{cell.replace(' ', '-')}.out")
            total = next(row for row in text.splitlines() if row.startswith("totals:"))
            counted[cell] = int(total.split()[1]) / user_records
        return counted


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells")
    parser.add_argument("--package", type=Path, default=ROOT)
    o = parser.parse_args()
    for cell, n in count(o.cells.split(",") if o.cells else CELLS, o.package).items():
        print(f"{cell:22} {n:9.1f}", flush=True)
