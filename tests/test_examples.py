"""The test command tries the same examples each time, whatever ran before in the same process."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .examples import QUICK, WHOLE


def drawn(profile: str) -> str:
    """What Hypothesis draws of numbers, texts and bytes with that profile."""
    seen: list[object] = []

    @settings(settings.get_profile(profile), max_examples=500)
    @given(st.integers() | st.floats() | st.text() | st.binary())
    def draw(value: object) -> None:
        seen.append(value)

    draw()
    return repr(seen)


@pytest.mark.parametrize("profile", [QUICK, WHOLE])
def test_examples_do_not_depend_on_the_modules_that_are_loaded(profile: str) -> None:
    """(pytest-xdist gives a process other tests each time, and they load other modules.)"""
    results = []
    for modules in ("json", "kpl_codec.format, kpl_codec.audit.tables, kpl_codec.shards"):
        program = (
            f"import {modules}\n"
            "from hypothesis import settings\n"
            "from tests import examples\n"
            "from tests.test_examples import drawn\n"
            "examples.load()\n"
            f"settings.load_profile({profile!r})\n"
            f"print(drawn({profile!r}))\n"
        )
        ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
        results.append(ran.stdout)
    assert len(results[0]) > 1000
    assert results[0] == results[1]
