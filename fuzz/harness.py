"""Coverage-guided fuzzing with atheris of everything that takes bytes or text from outside.

    python -m fuzz.harness decode --seconds 600 --directory DIR
    python -m fuzz.harness decode DIR/decode-crash-...         these inputs again, nothing else
    python -m fuzz.harness decode --seconds 600 --directory DIR --keep

The names are those of `fuzz.targets`. ``--directory`` keeps the growing corpus and what was found (crash-*,
timeout-*, oom-*) between runs; seeds are cut from spec/vectors. ``--keep``, after a run: the fewest inputs
that take every step the corpus takes, into fuzz/corpora, where tests replay them. Every input is run under a
time limit of 60 s and a memory limit of 1 GB. JSON is mutated as JSON, nine times out of ten.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["kpl_codec"]):
    from .targets import TARGETS

from . import corpus
from .targets.mutate import changed

LONGEST = 6000


def json_mutator(data: bytes, max_size: int, seed: int) -> bytes:
    """A JSON document with members changed; now and then, and what is none, as libFuzzer changes bytes."""
    found = changed(data, seed) if seed % 10 else None
    if found is None or len(found) > max_size:
        return bytes(atheris.Mutate(data, len(data) or 1))
    return found


def write(directory: Path, name: str) -> Path:
    """The seeds of a target and what earlier runs kept, a file each."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(dict.fromkeys([*corpus.kept(name), *TARGETS[name].seeds()])):
        if len(data) <= LONGEST:
            (directory / f"{number:05d}").write_bytes(data)
    return directory


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("inputs", nargs="*", type=Path)
    args = parser.parse_args()
    target = TARGETS[args.target]
    for path in args.inputs:
        target.run(path.read_bytes())
        print(f"{path}: nothing wrong")
    if args.inputs:
        return
    if args.directory is None:
        parser.error("--directory is missing")
    grown = args.directory / args.target
    grown.mkdir(parents=True, exist_ok=True)
    seeds = write(args.directory / "seeds" / args.target, args.target)
    with contextlib.suppress(AssertionError):
        target.run(b"")  # what is imported at the first use is not part of an input's time
    if args.keep and os.fork():  # libFuzzer ends the process
        _, status = os.wait()
        if status == 0:
            inputs = (path.read_bytes() for folder in (grown, seeds) for path in folder.iterdir())
            corpus.keep(args.target, corpus.least(target.run, inputs))
        sys.exit(os.waitstatus_to_exitcode(status))
    options = [
        sys.argv[0], "-timeout=60", "-rss_limit_mb=1024", f"-max_len={LONGEST}", "-print_final_stats=1",
        f"-max_total_time={args.seconds}", f"-artifact_prefix={args.directory}/{args.target}-",
        str(grown), str(seeds),
    ]  # fmt: skip
    mutator = {"custom_mutator": json_mutator} if target.json else {}
    atheris.Setup(options, target.run, **mutator)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
