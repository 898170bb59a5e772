"""Local Kinesis servers for every test that asks; and how Hypothesis hunts here.

Without a stopwatch (a busy machine is not a defect), by chance on a desk, the same way each time in CI (a
change is judged by what it changed; `fuzz/` does the long hunts).
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["kpl_codec.testing.fixtures"]

settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if "CI" in os.environ else "tests")
