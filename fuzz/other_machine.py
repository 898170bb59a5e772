"""The native code on another machine, by cross compiler and emulator.

    python -m fuzz.other_machine                                      aarch64 (NEON lanes)
    python -m fuzz.other_machine gcc ""                               this machine

Debian: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static. `_speedups` is compiled
for it, which needs this Python's headers and no more; MD5 side by side is run, at every optimisation level,
and must give hashlib's digests.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
NATIVE = REPOSITORY / "kpl_codec" / "_native"


def messages(rng: random.Random) -> list[bytes]:
    sizes = [*range(300), *(rng.choice([36, 1200, 51200]) + rng.randrange(100) for _ in range(200)), 1 << 20]
    rng.shuffle(sizes)
    return [rng.randbytes(size) for size in sizes]


def main() -> None:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m fuzz.other_machine", description=__doc__
    )
    parser.add_argument("compiler", nargs="?", default="aarch64-linux-gnu-gcc")
    parser.add_argument("emulator", nargs="?", default="qemu-aarch64-static")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    texts = messages(random.Random(options.seed))
    asked = len(texts).to_bytes(8, "little") + b"".join(len(t).to_bytes(8, "little") + t for t in texts)
    expected = b"".join(hashlib.md5(text).digest() for text in texts)
    with tempfile.TemporaryDirectory() as scratch:
        program = str(Path(scratch) / "md5_check")
        source = str(Path(__file__).with_name("md5_check.c"))
        for flags in (["-O3"], ["-O2"], ["-O0"]):
            command = [
                options.compiler,
                "-static",
                "-Wall",
                "-Werror",
                *flags,
                f"-I{NATIVE}",
                source,
                "-o",
                program,
            ]
            subprocess.run(command, check=True)
            run = [*options.emulator.split(), program]
            made = subprocess.run(run, input=asked, capture_output=True, check=True).stdout
            if made != expected:
                sys.exit(f"{' '.join(flags)}: other digests than hashlib's")
            print(f"{' '.join(flags)}: {len(texts)} digests as hashlib's")
        generated = str(Path(scratch) / "_speedups.c")
        pyx = str(REPOSITORY / "kpl_codec" / "_speedups.pyx")
        subprocess.run([sys.executable, "-m", "cython", "-3", pyx, "-o", generated], check=True)
        include = [f"-I{sysconfig.get_path('include')}", f"-I{REPOSITORY / 'kpl_codec'}"]
        subprocess.run(
            [options.compiler, "-c", "-O3", "-fPIC", *include, generated, "-o", program], check=True
        )
        print("_speedups compiles")


if __name__ == "__main__":
    main()
