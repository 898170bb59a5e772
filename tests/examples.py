"""How many examples Hypothesis tries: a quarter on a desk, all of them in CI.

    python -m pytest                                     the same examples each time, a quarter of them
    CI=true python -m pytest -m ''                       all of them, the same each time, with the slow tests
    python -m pytest --hypothesis-profile=search         others each time: it may find something

Without a stopwatch: a busy machine is not a defect.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

QUICK, WHOLE, SEARCH = "quick", "whole", "search"
#: What `quick` tries of them.
SHARE = 4

settings.register_profile(
    WHOLE, deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(QUICK, settings.get_profile(WHOLE), max_examples=100 // SHARE)
settings.register_profile(SEARCH, settings.get_profile(WHOLE), derandomize=False)


#: Hypothesis's own function: gives the constants of our own modules that are loaded.
_local_constants = providers._get_local_constants


def _constants() -> Constants:
    """The constants of our own modules, where other examples are searched for each time; else none."""
    return _local_constants() if settings.get_current_profile_name() == SEARCH else Constants()


def load() -> None:
    """The profile that this run has, unless the command line names one."""
    # Hypothesis also draws the constants of our own modules that are loaded. With pytest-xdist these differ
    # from run to run, and so would the examples. Hypothesis has no setting for it.
    providers._get_local_constants = _constants
    settings.load_profile(WHOLE if "CI" in os.environ else QUICK)


def share() -> int:
    """Of so many cases one is tried: of all in CI and where they are searched for, of four elsewhere."""
    return SHARE if settings.get_current_profile_name() == QUICK else 1


def examples(count: int) -> int:
    """``count`` examples in CI and where they are searched for, a quarter of them elsewhere."""
    return max(min(count, 5), count // share())
