"""Draws shards with characters, without colours: the hash key space."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..shards.shard import Shard
from .labels import KEY_SPACE, short_id


def key_space(shards: Sequence[Shard], width: int = 100) -> str:
    """The open shards side by side, each as wide as its share of the hash keys, at least one column.

    0                                                 2^128-1
    ├──── 2 ────┼──── 3 ────┼────────── 1 ────────────┤

    If there are more shards than columns (``width``), a digit says how many shards begin in each column, +
    for more than nine.
    """
    ordered = sorted((s for s in shards if s.open), key=lambda s: s.hash_key_range)
    inner = width - 1
    bar = _ruler(ordered, inner) if 2 * len(ordered) <= inner else _counts(ordered, width)
    return f"0{'2^128-1'.rjust(len(bar) - 1)}\n{bar}"


def _ruler(ordered: Sequence[Shard], inner: int) -> str:
    edges = [round(s.hash_key_range.starting_hash_key * inner / KEY_SPACE) for s in ordered] + [inner]
    for i in range(1, len(edges)):  # leave each shard a column: from the left
        edges[i] = max(edges[i], edges[i - 1] + 2)
    edges[-1] = inner
    for i in range(len(edges) - 2, 0, -1):  # and from the right
        edges[i] = min(edges[i], edges[i + 1] - 2)
    cells = ["├"]
    for i, shard in enumerate(ordered):
        room = edges[i + 1] - edges[i] - 1
        name = short_id(shard.shard_id)
        label = f" {name} " if len(name) + 2 <= room else name if len(name) <= room else ""
        cells.append(label.center(room, "─"))
        cells.append("┼" if i + 1 < len(ordered) else "┤")
    return "".join(cells)


def _counts(ordered: Sequence[Shard], width: int) -> str:
    begin = Counter(s.hash_key_range.starting_hash_key * width // KEY_SPACE for s in ordered)
    return "".join("─" if not begin[i] else str(begin[i]) if begin[i] < 10 else "+" for i in range(width))
