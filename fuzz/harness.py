"""Coverage-guided fuzzing with atheris of what opens bytes from outside.

    python -m fuzz.harness decode -max_total_time=600
    python -m fuzz.harness decode crash-...          this input again, nothing else
    mkdir KEPT && python -m fuzz.harness decode -merge=1 -use_counters=0 KEPT &&
        python -m fuzz.corpus decode KEPT

The names are those of `fuzz.targets`, the options libFuzzer's (`-help=1`). It begins with seeds from
spec/vectors and with what earlier runs kept, and keeps what reaches new code in `build/fuzz`. The last
command puts as few of these inputs as reach every edge that all of them reach into fuzz/corpora, where tests
replay them; if it counted how often an edge is passed, five times as many would be kept.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["kpl_codec"]):
    from .targets import TARGETS

from . import corpus

#: Seconds and MB that an input may take, and its bytes.
LIMITS = ["-timeout=60", "-rss_limit_mb=1024", "-max_len=6000"]


def main() -> None:
    name, *arguments = sys.argv[1:]
    target = TARGETS[name]
    folder = Path(__file__).parents[1] / "build" / "fuzz" / name
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate([*corpus.kept(name), *target.seeds()]):
        (folder / f"{number:05d}").write_bytes(data)
    if not any(map(os.path.isfile, arguments)):
        arguments.append(str(folder))
    logging.basicConfig(filename=os.devnull)  # made, not shown
    with contextlib.suppress(AssertionError):
        target.run(b"")  # what is imported at the first use is not part of an input's time
    # libFuzzer runs the first word again, in a shell, for a merge.
    again = shlex.join([sys.executable, "-m", __spec__.name, name])
    atheris.Setup([again, *LIMITS, *arguments], target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
