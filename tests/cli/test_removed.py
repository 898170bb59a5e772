"""Commands and options that were removed say what to use instead (kpl_codec/cli/removed.py)."""

from __future__ import annotations

import re
from pathlib import Path

from kpl_codec import __version__
from kpl_codec.cli.removed import REMOVED
from tests.guides.test_todo import problem_of

from ..every import every
from .commands import run

ROOT = Path(__file__).parents[2]


@every("words", REMOVED)
def test_each_row_is_said_where_the_word_is_typed(words: str) -> None:
    """And what it names is there. (A word that is known, again, is not refused so.)"""
    instead = REMOVED[words]
    *before, name = words.split()
    what = "option" if name.startswith("-") else "action" if before else "command"
    ended = run(words)
    assert ended.status == 2
    assert f"{what} {name} was removed: {instead} (see " in ended.err
    assert problem_of(instead) is None
    assert all((ROOT / page).exists() for page in re.findall(r"spec/\S+\.md", instead))


def test_the_table_goes_with_1_0() -> None:
    assert re.match(r"0\.|1\.0\.0(a|b|rc)\d", __version__), (
        "kpl_codec/cli/removed.py and its use in main.py go"
    )
