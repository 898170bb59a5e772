"""What taking off the Schema Registry's frames adds to columns: `python -m tests.benchmarks.unframing`.

User records as those of corpora a, b, c and g, each with a frame, of one schema version or of two in turns;
columns of the same batch with and without `unframe`, in turns; the least CPU time of each in one process,
compiled and (KPL_CODEC_PURE=1) pure.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from time import process_time
from typing import Any

import kpl_codec as kpl
from kpl_codec.schema_registry import frame

from . import corpora
from .tasks import KplCodec, user_records

VERSIONS = ("b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63", "00000000-0000-4000-8000-000000000001")


def batch_of(name: str, mib: float, versions: int) -> Any:
    """The batch of that corpus with frames."""
    corpus = corpora.corpus(name, mib)
    framed = [
        kpl.encode([u._replace(data=frame(u.data, VERSIONS[n % versions])) for n, u in enumerate(users)])
        for users in user_records(corpus)
    ]
    return KplCodec(corpora.Corpus(name, framed, corpus.user_records)).batch()


def added(batch: Any, rounds: int, **options: Any) -> float:
    """How much longer `unframe` takes, in percent."""
    from kpl_codec.arrow import Deaggregator

    best = {False: math.inf, True: math.inf}
    for turn in range(2 * rounds):
        unframe = bool(turn % 2)
        for number in range(6):
            began = process_time()
            for made in Deaggregator(batch.schema, unframe=unframe, **options).process(batch):
                made.num_rows  # noqa: B018 - let go
            if number:  # the first makes the allocator's room for its kind
                best[unframe] = min(best[unframe], process_time() - began)
    return 100 * (best[True] / best[False] - 1)


def show(mib: float = 16, rounds: int = 10) -> None:
    """A line for each way."""
    for pure, name in (("", "compiled"), ("1", "pure Python")):
        size, turns = (mib / 8, max(1, rounds // 3)) if pure else (mib, rounds)
        command = [sys.executable, "-m", "tests.benchmarks.unframing", str(size), str(turns)]
        environment = {**os.environ, "KPL_CODEC_PURE": pure}
        told = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True).stdout
        print(f"unframing adds to columns, {name}: {told.strip()}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        size, turns = float(sys.argv[1]), int(sys.argv[2])
        cells = [(name, n, added(batch_of(name, size, n), turns)) for name in "abcg" for n in (1, 2)]
        print(", ".join(f"{name} with {n} schema{'s' * (n > 1)} {more:+.1f} %" for name, n, more in cells))
    else:
        show()
