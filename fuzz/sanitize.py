"""The compiled twin under AddressSanitizer and UndefinedBehaviorSanitizer.

    python -m fuzz.sanitize --seconds 60

Copies the package aside, builds `_speedups` there with both sanitizers (GCC or Clang), and feeds it the
vectors and mutations of them for so long: every reader and writer, frames in Arrow buffers that end
where they must, buffers that lie, the threads and objects of `fuzz.hostile`. What is read must be what the
byte walker says; a bad access ends it.
The seed of every run is printed; `--seed` repeats one.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
FLAGS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g"]
FLAGS += ["-DKPL_NO_SPARES"]  # no table is used again: what still reads it after it was freed is seen


def build(directory: Path) -> dict[str, str]:
    """The package with a sanitized `_speedups` in ``directory``; the environment to run it in."""
    for part in ("kpl_codec", "fuzz", "spec"):
        ignore = shutil.ignore_patterns("*.so", "*.c", "__pycache__")
        shutil.copytree(REPOSITORY / part, directory / part, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, directory)
    command = ["-c", "from setuptools import setup; setup()", "-q", "build_ext", "--inplace"]
    flags = {"CFLAGS": " ".join(FLAGS), "LDFLAGS": " ".join(FLAGS), "KPL_CODEC_REQUIRE_SPEEDUPS": "1"}
    subprocess.run([sys.executable, *command], cwd=directory, env={**os.environ, **flags}, check=True)
    compiler = (os.environ.get("CC") or "gcc").split()
    runtimes = [
        subprocess.run(
            [*compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    return {
        **os.environ,
        "LD_PRELOAD": " ".join(runtimes),
        # The interpreter keeps what it needs until it ends; that is no leak of ours.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",  # an arena would hide where an object ends
        "PYTHONPATH": str(directory),
    }


def fuzz(seconds: float, seed: int) -> None:
    """Runs inside the sanitized process."""
    import kpl_codec as kpl
    from fuzz import corpus, hostile, invariants
    from kpl_codec import _speedups

    rng = random.Random(seed)
    seeds = [data[4:-16] for data in corpus.datas() if len(data) > 20]
    seeds += [
        kpl.encode(
            [
                kpl.UserRecord(f"é{i % 200}", rng.randbytes(i % 300), str(i) if i % 3 else None)
                for i in range(n)
            ]
        )[4:-16]
        for n in (1, 2, 130, 400)
    ]
    runs = read = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        frames = [invariants.frame(corpus.damaged(seeds, rng)) for _ in range(rng.choice([1, 3, 20]))]
        for frame in frames:
            runs += 1
            found = invariants.decode(frame)
            invariants.check_quick_decoders(frame, found)
            if isinstance(found, list):
                read += 1
                with contextlib.suppress(kpl.EncodeError):
                    invariants.check_user_records(list(kpl.decode(frame)), reference=False)
        columns(_speedups, rng, frames)
        objects(rng, frames)
        if rng.random() < 0.1:
            hostile.CASES[rng.choice(list(hostile.CASES))]()
    print(f"seed {seed}: {runs} messages, {read} of them read, no bad access")


def objects(rng: random.Random, frames: list[bytes]) -> None:
    """Compiled code and the Python alone give the same objects, however many records there are."""
    import kpl_codec as kpl
    from kpl_codec.format.records import with_siblings

    keys = [None, "", "é", "\ud800", "key"]
    records = [
        kpl.KinesisRecord(
            rng.choice(keys), frame if rng.random() < 0.8 else frame[: rng.randrange(len(frame) + 1)],
            "1", rng.choice([None, "shardId-0"]), None, rng.choice([None, None, "7", "x"]),
            rng.choice([None, None, 0, 2]),
        )
        for frame in frames
    ]  # fmt: skip
    records = list(with_siblings(records))  # which a list is asked for, and an iterator is not
    hash_key_range = rng.choice([None, kpl.HashKeyRange(0, 2**127)])
    for policy in ("kcl", "report"):
        with contextlib.suppress(kpl.HashKeyError):  # a key that is no UTF-8 text
            one_by_one = list(kpl.deaggregate(iter(records), policy, hash_key_range=hash_key_range))
            assert list(kpl.deaggregate(records, policy, hash_key_range=hash_key_range)) == one_by_one


def columns(speedups: Any, rng: random.Random, frames: list[bytes]) -> None:
    """Frames and plain data in buffers without a byte to spare, and every column of them."""
    cells = [frame if rng.random() < 0.8 else frame[: rng.randrange(len(frame) + 1)] for frame in frames]
    offsets = [0]
    for cell in cells:
        offsets.append(offsets[-1] + len(cell))
    lies = rng.random() < 0.1
    if lies:
        offsets[rng.randrange(len(offsets))] = rng.choice([-1, 2**31 - 1, offsets[-1] + 1])
    keys = [f"key-{i}".encode() for i in range(len(cells))]
    key_offsets = [sum(map(len, keys[:i])) for i in range(len(keys) + 1)]
    try:
        data = speedups.Column(
            None, array.array("i", offsets), array.array("B", b"".join(cells)), 0, len(cells), False
        )
        key = speedups.Column(
            array.array("B", rng.randbytes((len(keys) + 7) // 8)),
            array.array("i", key_offsets), array.array("B", b"".join(keys)), 0, len(keys), False,
        )  # fmt: skip
        none = speedups.Column(
            array.array("B", bytes((len(cells) + 7) // 8)), array.array("i", [0] * (len(cells) + 1)), None, 0,
            len(cells), False,
        )  # fmt: skip
    except ValueError:
        assert lies
        return
    found = speedups.FrameColumns(
        data, key, none, bytearray, hash_keys=rng.random() < 0.5,
        closed=rng.choice([None, bytes(rng.randrange(2) for _ in cells)]),
    )  # fmt: skip
    if rng.random() < 0.5:
        found.drop(bytes(rng.randrange(2) for _ in cells))
    widths = array.array("q", [8] * len(cells))
    start, rows = 0, int.from_bytes(found.first_rows[-8:], sys.byteorder)
    while start < rows:
        stop = found.cut(start, rows, rng.choice([0, 100, 10_000]), widths)
        found.tags(start, stop)
        for what in range(3):
            found.values(what, start, stop)
        found.spread(key, start, stop)
        start = stop
    with contextlib.suppress(ValueError):  # no hash keys were asked for
        shards = array.array("q", [rng.randrange(2) for _ in cells])
        found.check_placement(
            shards, bytes(32), b"\xff" * 16 + b"\x7f" * 16, b"\x01" + bytes([rng.randrange(2)]),
            b"\x7f" * 16 + b"\xff" * 16,
        )  # fmt: skip
        found.kinds()
        found.hash_keys(0, rows)


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False, prog="python -m fuzz.sanitize", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        fuzz(options.seconds, options.seed)
        return
    with tempfile.TemporaryDirectory() as scratch:
        environment = build(Path(scratch))
        command = [sys.executable, "-m", "fuzz.sanitize", "--inside"]
        command += ["--seconds", str(options.seconds), "--seed", str(options.seed)]
        done = subprocess.run(command, cwd=scratch, env=environment)
        sys.exit(1 if done.returncode else 0)


if __name__ == "__main__":
    main()
