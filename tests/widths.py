"""How wide the lines of a text may be."""

from __future__ import annotations

import json
import re

#: The columns of a page, of output in a pipe, and of a terminal in tests.
COLUMNS = 100


def too_wide(text: str) -> list[str]:
    """The lines of more than 100 columns that could be folded: a word, such as a path, stays whole, as do a
    command to copy and JSON."""
    return [row for row in text.splitlines() if len(row) > COLUMNS and not _is_whole(row)]


def _is_whole(row: str) -> bool:
    return len(row.split()) == 1 or re.match(" {4}(kpl-codec|zcat) ", row) is not None or _is_json(row)


def _is_json(row: str) -> bool:
    try:
        return isinstance(json.loads(row), dict)
    except ValueError:
        return False
