"""Text for people: tables, colours where they are welcome, and JSON for machines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

_CODES = {
    "red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36",
    "dim": "2", "bold": "1", "reverse": "7",
}  # fmt: skip


def use_color() -> bool:
    """Colours on a terminal, unless NO_COLOR is set; FORCE_COLOR asks for them anywhere."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


def paint(text: str, *styles: str) -> str:
    """``text`` in the styles, or as it is where colours are not welcome."""
    if not styles or not use_color():
        return text
    return f"\x1b[{';'.join(_CODES[style] for style in styles)}m{text}\x1b[0m"


def width(default: int = 100) -> int:
    """Columns to draw in: 40 to 160."""
    try:
        columns = os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        columns = (
            int(os.environ.get("COLUMNS", default)) if os.environ.get("COLUMNS", "").isdigit() else default
        )
    return max(40, min(columns, 160))


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Columns under their heads; ``right``: the indices of those that are numbers."""
    sizes = [max([len(head), *(len(row[i]) for row in rows)]) for i, head in enumerate(heads)]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(
            cell.rjust(size) if i in right else cell.ljust(size)
            for i, (cell, size) in enumerate(zip(cells, sizes, strict=True))
        ).rstrip()

    return "\n".join([paint(line(heads), "bold"), *map(line, rows)])


def print_json(value: Any) -> None:
    """One JSON value; hash keys and sequence numbers are strings in it (JSON readers lose digits)."""
    print(json.dumps(value, indent=2, ensure_ascii=False))
