"""What `python -m tests.benchmarks` measures beside the codec: each part prints and gives its figures."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from statistics import median
from typing import Any

from kpl_codec.captures import Location

from .captures import Recipe, write_generated
from .child import run


def of_producers(quick: bool) -> dict[str, float]:
    from . import producers  # here and below: what is imported takes a second

    found = producers.measure(2_000 if quick else 20_000, 1 if quick else 5)
    for name, taken in found.items():
        print(f"{name:28} {taken:8.1f} µs of CPU a user record")
    return found


def of_spark(quick: bool) -> dict[str, dict[str, float]]:
    from . import spark_functions

    java = shutil.which("javac") is not None
    if not java:
        print("without the KCL in Java: apt-get install openjdk-17-jdk-headless")
    return spark_functions.main("g" if quick else "abg", 2 if quick else 256, 1 if quick else 5, java)


def of_validate(quick: bool) -> dict[str, float]:
    """The whole command."""
    user_records, program = 20_000 if quick else 1_000_000, [sys.executable, "-m", "kpl_codec.cli.main"]
    with tempfile.TemporaryDirectory() as folder:
        write_generated(Recipe(user_records), Location(f"{folder}/made").make_folder())
        sides = [f"{folder}/made/capture", "--shards", f"{folder}/made/shards.json"]
        children = [
            run([*program, "validate", *sides, "--output", f"{folder}/{number}"])
            for number in range(1 if quick else 5)
        ]
    assert {child.status for child in children} <= {0, 1}
    seconds, cpu = (median(figures) for figures in zip(*((c.seconds, c.cpu) for c in children), strict=True))
    print(f"validate {user_records:,} user records: {seconds:.2f} s, {cpu:.2f} s of CPU")
    return {"user records": user_records, "seconds": round(seconds, 2), "cpu": round(cpu, 2)}


PARTS: dict[str, Callable[[bool], Any]] = {
    "producers": of_producers,
    "spark": of_spark,
    "validate": of_validate,
}
