"""The models at length: producer, its signal handlers, live shard map, allocation of hash keys, readers by
subscription, the Spark source.

    python -m fuzz.models --seconds 3600
    python -m fuzz.models --seed 4711 --only ProducerMachine        one round again

Faults, lost and hostile answers, splits, merges, a stream made again under its name, and time: whatever the
state machines and simulations of tests/ do, for as long as asked. Every round has a seed of its own, which
decides all of it, ``--examples`` runs of each model and ``--steps`` steps a run at most; a round begun is
finished. A find is printed with the steps that lead to it and the command that finds it again. Exit code 1
after a find.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from inspect import Parameter, signature
from unittest.mock import patch

import hypothesis.core
from hypothesis import HealthCheck, Phase, is_hypothesis_test, settings
from hypothesis.internal.conjecture import providers
from hypothesis.stateful import run_state_machine_as_test

#: Module, and the names of its state machines, or of a list of them; else its tests that Hypothesis runs.
MACHINES = {
    "tests.producer.machines": "MACHINES",
    "tests.shards.test_live_shard_map_machine": "LiveShardMapMachine",
    "tests.shards.test_allocation": "AllocatorMachine",
}
SIMULATIONS = ("tests.spark.source.test_model", "tests.aws.test_subscription", "tests.aws.test_signals")


def models(examples: int, steps: int) -> dict[str, Callable[[], None]]:
    """Every model by name: a function that runs it once, or raises what it found."""
    how = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, database=None, print_blob=False,
        derandomize=False,  # in CI, too: else every seed is the same
        phases=(Phase.generate, Phase.shrink),  # what explains a find differs from run to run
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    settings.register_profile("models", how)
    settings.load_profile("models")
    found: dict[str, Callable[[], None]] = {}
    for name, machines in MACHINES.items():
        listed = getattr(import_module(name), machines)
        for machine in listed if isinstance(listed, list) else [listed]:
            found[machine.__name__] = partial(run_state_machine_as_test, machine, settings=how)
    for name in SIMULATIONS:
        for test in vars(import_module(name)).values():
            if is_hypothesis_test(test) and not _fixtures(test):
                found[test.__name__] = test
    return found


def _fixtures(test: Callable[..., None]) -> list[str]:
    """The arguments that Hypothesis does not give."""
    parameters = signature(test).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is not Parameter.VAR_KEYWORD]


@cache
def _constants() -> providers.Constants:
    """The constants of the code that is loaded now, from which Hypothesis draws. Those of modules that a run
    loads would make the same seed draw something else afterwards."""
    return providers._get_local_constants()


def find(run: Callable[[], None], seed: int) -> str | None:
    """What a model finds with a seed, the steps that lead to it included; None if nothing."""
    constants = _constants()
    hypothesis.core.global_force_seed = seed  # type: ignore[assignment]
    try:
        with patch.object(providers, "_get_local_constants", lambda: constants):
            run()
    except Exception:  # noqa: BLE001 - whatever it is, it is the find
        return traceback.format_exc()
    finally:
        hypothesis.core.global_force_seed = None
    return None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, help="only this round")
    parser.add_argument("--only", nargs="*", metavar="MODEL", help="only these models")
    args = parser.parse_args()
    every = models(args.examples, args.steps)
    unknown = set(args.only or ()) - every.keys()
    if unknown:
        parser.error(f"no such model: {', '.join(sorted(unknown))}; there are {', '.join(every)}")
    end = time.monotonic() + args.seconds
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(2**32)
    runs = 0
    while True:
        for name in args.only or every:
            found = find(every[name], seed)
            if found is not None:
                print(found, file=sys.stderr)
                more = f" --examples {args.examples} --steps {args.steps}"
                print(f"again: python -m fuzz.models --seed {seed} --only {name}{more}")
                return 1
            runs += args.examples
        print(f"seed {seed}: clean, {runs:,} runs so far", flush=True)
        if args.seed is not None or time.monotonic() > end:
            return 0
        seed += 1


if __name__ == "__main__":
    sys.exit(main())
