"""One contender in a process of its own: `python -m tests.benchmarks.worker DIRECTORY`.

A line of JSON asks, {"corpus": ..., "task": ..., "check": true|false}; a line answers with CPU seconds
and, where asked for, the digest of what was made.
"""

from __future__ import annotations

import gc
import json
import pickle
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .tasks import KplCodec, digest


def main() -> None:
    directory = Path(sys.argv[1])
    loaded: dict[str, Any] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["corpus"] not in loaded:
            loaded.clear()
            corpus = pickle.loads((directory / asked["corpus"]).read_bytes())
            loaded[asked["corpus"]] = corpus, KplCodec(corpus).tasks()
            gc.collect()
            gc.freeze()
        corpus, tasks = loaded[asked["corpus"]]
        start = time.process_time()
        made = tasks[asked["task"]](corpus)
        if isinstance(made, Iterator):
            made = list(made) if asked["check"] else deque(made, maxlen=0)
        seconds = time.process_time() - start
        answer = {"seconds": seconds, "digest": digest(made) if asked["check"] else None}
        del made
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
