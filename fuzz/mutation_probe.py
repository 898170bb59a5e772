"""Which mutants the core's tests notice: run inside mutmut's ``mutants`` directory by `fuzz.mutation`.

pytest collects the tests once. Each runs once without a mutant, which says its CPU seconds and which
functions it calls. Then a process is forked for each mutant. It runs the tests that call the mutated
function, to the first failure: those of its module, the quick ones, and those that noticed many mutants
first. Writes one JSON object: mutant -> "noticed" (a test fails), "timeout" (a test takes ten times its CPU
time, or waits), "crash" (the process dies), "survived" or "no test".
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from ctypes import c_uint
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from zlib import crc32

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings
from mutmut.mutation import trampoline

from fuzz.mutation import MODULES, OPEN, found, path_of
from kpl_codec.compiled import speedups

TESTS = (
    "adapters", "deaggregation", "format", "producer", "shards", "spec", "test_errors.py",
    "test_aws_errors.py", "test_schema_registry.py", "test_speedups.py", "fuzz/test_targets.py",
    # Above the core, for `shards.placement`, `starting_position` and `skew`.
    "validate/report/test_scan.py", "aws/test_subscription.py", "cli/test_keys.py",
)  # fmt: skip
#: A test that takes more CPU seconds is left out: every survivor would have to stand it.
LONGEST = 4.0
#: Of address space, for one mutant.
MEMORY = 8 << 30
#: Seconds that a test may wait for something that never comes.
WAITING = 60


class Probe:
    """Takes the place of pytest's loop over the tests."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._results, self._modules, self._every = args.results, args.modules, args.every
        self._budget, self._processes = args.seconds, args.processes

    def pytest_configure(self) -> None:
        # Before the test modules take it as their default. No shrinking: that a test fails is enough.
        settings.register_profile(
            "probe", settings.get_profile("quick"), database=None,
            phases=(Phase.explicit, Phase.generate), report_multiple_bugs=False,
        )  # fmt: skip
        settings.load_profile("probe")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = session.items
        self._noticed = RawArray(c_uint, len(self._items))
        figures = self._results.with_name("tests.compiled.json" if speedups else "tests.json")
        before = json.loads(figures.read_text()) if figures.exists() else {}
        known = {}
        for item in self._items:
            key = f"{item.nodeid} {crc32(item.path.read_bytes())}"
            known[key] = before.get(key) or measured(item)
        figures.write_text(json.dumps(known))
        self._seconds: dict[int, float] = {}
        self._tests = defaultdict(list)
        for number, (item, figure) in enumerate(zip(self._items, known.values(), strict=True)):
            seconds, called, failed = figure
            if failed or seconds > LONGEST:
                print(f"left out, {seconds:.1f} s: {item.nodeid}", flush=True)
                continue
            self._seconds[number] = seconds
            for function in called:
                self._tests[function].append(number)
        print(f"{len(self._seconds)} tests, {sum(self._seconds.values()):.1f} s", flush=True)
        gc.freeze()  # a forked process that looked for garbage in all this would copy it
        self._check()
        return True

    def _check(self) -> None:
        verdicts = found(self._results)
        names = [name for module in self._modules for name in mutants(module)][:: self._every]
        names.reverse()
        if speedups:
            survived = found(self._results.with_name("results.json"))
            names = [name for name in names if survived.get(name) in OPEN]
        names = [name for name in names if name not in verdicts]
        running: dict[int, str] = {}
        written = time.monotonic()
        while names or running:
            while names and len(running) < self._processes:
                name = names.pop()
                running[forked(lambda: self._stand(name))] = name  # noqa: B023 - forked at once
            child, status = os.wait()
            verdicts[running.pop(child)] = verdict(status)
            if not running or time.monotonic() > written + 5:
                new = self._results.with_suffix(".new")
                new.write_text(json.dumps(verdicts))
                new.replace(self._results)
                written = time.monotonic()

    def _stand(self, mutant: str) -> int:
        """Run tests with a mutant, to the first failure."""
        tests = self._tests[mutant.rpartition("__mutmut_")[0]]
        if not tests:
            return NO_TEST
        trampoline.get_mutant_under_test = lambda: mutant
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        spent = 0.0
        package, module = mutant.split(".")[1:3]

        def cost(number: int) -> float:
            """CPU seconds for each mutant noticed so far; tests of the module itself come first."""
            test = self._items[number].nodeid
            far = 1 if f"test_{module}." in test else 4 if f"tests/{package}/" in test else 16
            return far * self._seconds[number] / (1 + self._noticed[number])

        for number in sorted(tests, key=cost):
            spent += self._seconds[number]
            if spent > self._budget:
                break
            signal.setitimer(signal.ITIMER_PROF, 1 + 10 * self._seconds[number])
            signal.alarm(WAITING)
            if failure(self._items[number]):
                self._noticed[number] += 1
                return NOTICED
        return SURVIVED


SURVIVED, NOTICED, NO_TEST, CRASHED = range(4)


def failure(item: pytest.Item) -> bool:
    """Whether a test fails, in this process."""
    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


def measured(item: pytest.Item) -> tuple[float, list[str], bool]:
    """For a test the CPU seconds it takes, the mutated functions it calls, and whether it fails. It runs in a
    process of its own: what it fills must not hide a mutant."""
    called: set[str] = set()
    reading, writing = os.pipe()

    def work() -> None:
        trampoline.get_mutant_under_test = lambda: "stats"
        trampoline.record_trampoline_hit = lambda name, caller=None: called.add(name)
        signal.setitimer(signal.ITIMER_PROF, LONGEST)
        begun = time.process_time()
        failed = failure(item)
        seconds = time.process_time() - begun
        with os.fdopen(writing, "w") as out:
            json.dump((seconds, sorted(called), failed), out)

    child = forked(work)
    os.close(writing)
    with os.fdopen(reading) as found:
        text = found.read()
    os.waitpid(child, 0)
    return tuple(json.loads(text)) if text else (LONGEST, [], True)


def forked(work: Callable[[], object]) -> int:
    """The id of a process that does ``work``, and ends with the number it returns as its status."""
    child = os.fork()
    if child:
        return child
    status = CRASHED  # unless it comes to its end
    try:
        done = work()
        status = done if isinstance(done, int) else SURVIVED
    finally:
        os._exit(status)


def verdict(status: int) -> str:
    """How a process of `forked` ended."""
    if os.WIFSIGNALED(status):
        stopped = os.WTERMSIG(status) in (signal.SIGALRM, signal.SIGPROF)
        return "timeout" if stopped else "crash"
    return {SURVIVED: "survived", NO_TEST: "no test", NOTICED: "noticed"}.get(os.WEXITSTATUS(status), "crash")


def mutants(module: str) -> list[str]:
    return list(json.loads(Path(f"{path_of(module)}.meta").read_text())["exit_code_by_key"])


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("results", type=Path)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--every", type=int, required=True)
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("modules", nargs="*", choices=MODULES)
    args = parser.parse_args()
    options = ["-q", "--tb=no", "--assert=plain", "--capture=sys", "-p", "no:cacheprovider"]
    options += ["-m", "not server and not spark", "-k", "not linear"]
    return pytest.main([*options, *(f"tests/{name}" for name in TESTS)], plugins=[Probe(args)])


if __name__ == "__main__":
    sys.exit(main())
