"""Hides pandas from commands and their workers. pyarrow imports pandas, if that is installed, when it makes
its first array: half of the time of a small command. Only Spark needs it.
"""

from __future__ import annotations

import sys


class _Hidden:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def hide_pandas() -> None:
    """From now on this process does not find pandas. Only for processes that run a command."""
    sys.meta_path.insert(0, _Hidden)


def show_pandas() -> None:
    """Undo `hide_pandas`."""
    if _Hidden in sys.meta_path:
        sys.meta_path.remove(_Hidden)
