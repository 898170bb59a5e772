"""One JSON document after the other out of a text, and whether one says something twice."""

from __future__ import annotations

import json
from typing import Any


class Documents:
    """Reads documents. ``repeats``: whether in the last one an object has a member twice, of which Python's
    reader keeps the last and says nothing."""

    def __init__(self) -> None:
        self.repeats = False
        self._decoder = json.JSONDecoder(object_pairs_hook=self._members)

    def read(self, text: str, at: int) -> tuple[Any, int]:
        """The document that begins at ``at``, and where it ends. Raises ValueError, RecursionError."""
        self.repeats = False
        return self._decoder.raw_decode(text, at)

    def _members(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            self.repeats = True
        return found
