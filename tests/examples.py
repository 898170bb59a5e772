"""How many examples Hypothesis tries: a quarter on a desk, half in CI, all where they are searched for.

    python -m pytest                                     the same examples each time, a quarter of them
    CI=true python -m pytest -m ''                       the same each time, half of them, with the slow tests
    python -m pytest --hypothesis-profile=search         all, others each time: it may find something

Without a stopwatch: a busy machine is not a defect.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from pkgutil import walk_packages

from hypothesis import HealthCheck, settings

import kpl_codec

QUICK, HALF, SEARCH = "quick", "half", "search"
#: Of so many examples one is tried.
OF = {QUICK: 4, HALF: 2, SEARCH: 1}

for name, of in OF.items():
    settings.register_profile(
        name, deadline=None, derandomize=name != SEARCH, print_blob=True, max_examples=100 // of,
        suppress_health_check=[HealthCheck.too_slow],
    )  # fmt: skip


# The profile that this run has, unless the command line names one. Each process that imports a test has one,
# also one of Spark that runs a task which a test defines.
settings.load_profile(HALF if "CI" in os.environ else QUICK)


def load_modules() -> None:
    """All of the package, but what needs an extra that is not installed. Hypothesis also draws the constants
    of our modules that are loaded: in CI these are the same before the first test of each process, so that
    the examples are, too."""
    for module in walk_packages(kpl_codec.__path__, "kpl_codec."):
        # (One is the build's, the others run when they are imported.)
        if not module.name.endswith(("._build", ".__main__", "spark.job", "._speedups")):
            with suppress(ModuleNotFoundError):
                import_module(module.name)


def share() -> int:
    """Of so many cases of a table one is tried: of four on a desk; elsewhere all are."""
    return 4 if settings.get_current_profile_name() == QUICK else 1


def examples(count: int) -> int:
    """``count`` examples where they are searched for, half of them in CI, a quarter on a desk."""
    # (--hypothesis-verbosity makes a profile of another name: all.)
    return max(min(count, 5), count // OF.get(settings.get_current_profile_name(), 1))
