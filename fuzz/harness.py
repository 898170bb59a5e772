"""Coverage-guided fuzzing with atheris of what opens bytes from outside.

    python -m fuzz.harness decode --seconds 600 --directory DIR
    python -m fuzz.harness decode DIR/decode-crash-...         these inputs again, nothing else
    python -m fuzz.harness decode --seconds 600 --directory DIR --keep

The names are those of `fuzz.targets`. ``--directory`` keeps the growing corpus and what was found (crash-*,
timeout-*, oom-*) between runs; seeds are cut from spec/vectors. After a run ``--keep`` has libFuzzer merge
the corpus into fuzz/corpora, where tests replay it: as few inputs as reach every edge that all of them reach.
Every input is run under a time limit of 60 s and a memory limit of 1 GB.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

import atheris

with atheris.instrument_imports(include=["kpl_codec"]):
    from .targets import TARGETS

from . import corpus
from .targets.target import Target

LONGEST = 6000
#: libFuzzer runs this again, in a shell, for a merge.
_OURSELVES = (sys.executable, "-m", __spec__.name)


def write(directory: Path, name: str) -> Path:
    """The seeds of a target and what earlier runs kept, a file each."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(dict.fromkeys([*corpus.kept(name), *TARGETS[name].seeds()])):
        if len(data) <= LONGEST:
            (directory / f"{number:05d}").write_bytes(data)
    return directory


def merge(name: str, *folders: Path) -> list[bytes]:
    """Of the inputs in ``folders``, as few as reach every edge that all of them reach. Raises
    CalledProcessError."""
    with tempfile.TemporaryDirectory() as kept:
        # How often an edge is passed does not count: that would keep five times as many.
        options = ["-merge=1", "-use_counters=0", f"-max_len={LONGEST}", kept, *map(str, folders)]
        subprocess.run([*_OURSELVES, name, "--", *options], check=True)
        return [path.read_bytes() for path in Path(kept).iterdir()]


def main() -> None:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("inputs", nargs="*", type=Path)
    # What comes after -- is for libFuzzer.
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:end])
    target = TARGETS[args.target]
    for path in args.inputs:
        target.run(path.read_bytes())
        print(f"{path}: nothing wrong")
    if args.inputs:
        return
    if sys.argv[end:]:
        run(target, args.target, sys.argv[end + 1 :])
    if args.directory is None:
        parser.error("--directory is missing")
    grown = args.directory / args.target
    grown.mkdir(parents=True, exist_ok=True)
    seeds = write(args.directory / "seeds" / args.target, args.target)
    if args.keep and os.fork():  # libFuzzer ends the process
        _, status = os.wait()
        if status == 0:
            corpus.keep(args.target, merge(args.target, grown, seeds))
        sys.exit(os.waitstatus_to_exitcode(status))
    options = [
        "-timeout=60", "-rss_limit_mb=1024", f"-max_len={LONGEST}", "-print_final_stats=1",
        f"-max_total_time={args.seconds}", f"-artifact_prefix={args.directory}/{args.target}-",
        str(grown), str(seeds),
    ]  # fmt: skip
    run(target, args.target, options)


def run(target: Target, name: str, options: list[str]) -> NoReturn:
    """Give ``options`` to libFuzzer, which ends the process."""
    logging.basicConfig(filename=os.devnull)  # made, not shown
    with contextlib.suppress(AssertionError):
        target.run(b"")  # what is imported at the first use is not part of an input's time
    atheris.Setup([shlex.join([*_OURSELVES, name, "--"]), *options], target.run)
    atheris.Fuzz()
    sys.exit()


if __name__ == "__main__":
    main()
