"""How many examples Hypothesis tries: a quarter on a desk, all of them in CI.

    python -m pytest                                     the same examples each time, a quarter of them
    CI=true python -m pytest -m ''                       all of them, the same each time, with the slow tests
    python -m pytest --hypothesis-profile=search         others each time: it may find something

Without a stopwatch: a busy machine is not a defect.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from pkgutil import walk_packages

from hypothesis import HealthCheck, settings

import kpl_codec

QUICK, WHOLE, SEARCH = "quick", "whole", "search"
#: What `quick` tries of them.
SHARE = 4

settings.register_profile(
    WHOLE, deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(QUICK, settings.get_profile(WHOLE), max_examples=100 // SHARE)
settings.register_profile(SEARCH, settings.get_profile(WHOLE), derandomize=False)


def load() -> None:
    """The profile that this run has, unless the command line names one."""
    settings.load_profile(WHOLE if "CI" in os.environ else QUICK)


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
    """Of so many cases one is tried: of all in CI and where they are searched for, of four elsewhere."""
    return SHARE if settings.get_current_profile_name() == QUICK else 1


def examples(count: int) -> int:
    """``count`` examples in CI and where they are searched for, a quarter of them elsewhere."""
    return max(min(count, 5), count // share())
