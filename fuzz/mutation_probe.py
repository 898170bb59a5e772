"""What each mutant of `fuzz.mutation` has to stand: run inside mutmut's ``mutants`` directory.

Forks for each mutant and runs every vector, some fuzzed inputs and the core's tests in the child: a second
where pytest takes a minute. Writes one JSON object: mutant -> killed, timeout or survived.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import random
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import settings

from fuzz import corpus, invariants
from fuzz.mutation import path_of
from kpl_codec.format import message
from spec.reference import model
from tests.spec import test_vectors
from tests.spec.vectors import Vector, load

#: Of CPU time, for everything; it takes two or three.
SECONDS = 20
TESTS = {
    "decode": (test_vectors.test_decode, test_vectors.test_what_the_kcl_does),
    "encode": (test_vectors.test_encode,),
    "hash-key": (test_vectors.test_hash_key,),
    "hash-key-text": (test_vectors.test_hash_key_text,),
    "hash-key-range": (test_vectors.test_hash_key_range,),
    "shard-map": (test_vectors.test_shard_map,),
    "placement": (test_vectors.test_placement,),
    "deaggregate": (test_vectors.test_deaggregate,),
}
LAWS = (
    "format.test_hash_keys", "shards.test_shard_map", "format.test_codec", "deaggregation.test_kcl",
    "shards.test_placement", "deaggregation.test_explanation", "deaggregation.test_policies",
    "spec.test_refusals",
)  # fmt: skip


def inputs() -> list[bytes]:
    """A few hundred messages near those of the vectors, the same every time."""
    chance = random.Random(1)
    messages = [seed[1:] for seed in sorted(set(corpus.frames())) if seed[:1] == corpus.MESSAGE]
    messages = [message for message in messages if len(message) < 300]
    found = []
    for _ in range(300):
        message = bytearray(chance.choice(messages))
        for _ in range(chance.randint(1, 2)):
            message[chance.randrange(len(message))] = chance.choice(
                [0, 1, 8, 10, 26, 127, 128, 255, chance.randrange(256)]
            )
        found.append(invariants.frame(bytes(message)))
    return found


def expectation(data: bytes) -> invariants.Rows | frozenset[str]:
    """What the executable spec, which is not mutated, says of ``data``."""
    try:
        return invariants.rows(model.parse(data))
    except model.Refused as refused:
        return refused.requirements


def cases(test: Callable[..., None]) -> Iterator[Callable[[], None]]:
    """A test of no fixtures, once for each of its parameters."""
    runs: list[dict[str, Any]] = [{}]
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "parametrize":
            names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
            rows = [values if len(names) > 1 else (values,) for values in mark.args[1]]
            runs = [{**run, **dict(zip(names, row, strict=True))} for run in runs for row in rows]
    if set(inspect.signature(test).parameters) == runs[0].keys():
        yield from (partial(test, **run) for run in runs)


def laws() -> list[Callable[[], None]]:
    """The core's tests, Hypothesis's and plain ones, and those of what must be refused."""
    found: list[Callable[[], None]] = []
    for name in LAWS:
        module = importlib.import_module(f"tests.{name}")
        for test, function in vars(module).items():
            slow = "huge" in test or "linear" in test  # under the trampolines of every mutant
            if test.startswith("test_") and not slow and function.__module__ == module.__name__:
                found += cases(function)
    return found


def check(vectors: list[Vector], frames: dict[bytes, invariants.Rows | frozenset[str]]) -> None:
    """Everything; raises whatever a mutant makes it raise."""
    for vector in vectors:
        for test in TESTS[vector["kind"]]:
            test(vector)
    for data, expected in frames.items():
        found = invariants.check_frame(data, reference=False)
        if isinstance(expected, list) or isinstance(found, list):
            assert found == expected
    for law in laws():
        law()


def begin(mutant: str, run: Callable[[], None]) -> int:
    """A process that runs everything with one mutant; its id."""
    child = os.fork()
    if child:
        return child
    os.environ["MUTANT_UNDER_TEST"] = mutant
    # Filled by the run without a mutant.
    for kept in (
        message._HEADS,
        message._PARTITION_KEY_INDEX,
        message._EXPLICIT_HASH_KEY_INDEX,
        message._LENGTH,
    ):
        kept.clear()
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    signal.alarm(60 * SECONDS)  # one that waits instead
    try:
        with open(os.devnull, "w") as nowhere:
            sys.stdout = sys.stderr = nowhere
            run()
    except BaseException:  # noqa: BLE001 - noticed, however
        os._exit(1)
    os._exit(0)


def verdict(status: int) -> str:
    """How a process of `begin` ended."""
    if os.WIFSIGNALED(status):
        stopped = os.WTERMSIG(status) in (signal.SIGALRM, signal.SIGXCPU, signal.SIGKILL)
        return "timeout" if stopped else "killed"
    return "survived" if os.WEXITSTATUS(status) == 0 else "killed"


def main(results: Path, modules: list[str]) -> None:
    os.environ["MUTANT_UNDER_TEST"] = ""
    settings.register_profile("probe", max_examples=20, deadline=None, derandomize=True, database=None)
    settings.load_profile("probe")
    # The cheapest first: a mutant is noticed at once or has to stand all of them.
    vectors = sorted(load(), key=lambda vector: len(str(vector)))
    vectors = [vector for vector in vectors if len(str(vector)) < 3000]
    run = partial(check, vectors, {data: expectation(data) for data in inputs()})
    run()  # sound without a mutant, or nothing it says means anything
    verdicts = json.loads(results.read_text()) if results.exists() else {}
    names = [name for module in modules for name in mutants(module)]
    left = [name for name in reversed(names) if name not in verdicts]
    running: dict[int, str] = {}
    while left or running:
        while left and len(running) < (os.cpu_count() or 1):
            name = left.pop()
            running[begin(name, run)] = name
        child, status = os.wait()
        verdicts[running.pop(child)] = verdict(status)
        results.write_text(json.dumps({name: verdicts[name] for name in names if name in verdicts}, indent=1))


def mutants(module: str) -> list[str]:
    return list(json.loads(Path(f"{path_of(module)}.meta").read_text())["exit_code_by_key"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
