"""Draws shards with characters, without colours: the hash key space, the lineage in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from ..shards.lineage import Lineage
from ..shards.shard import Shard
from .labels import KEY_SPACE, share, short_id, utc


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


def timeline(lineage: Lineage, width: int = 100, now: datetime | None = None) -> str:
    """A line for each shard, from its making to its closing; ``>`` for one that is open.

    2018-12-16 05:27:07                                   05:49:04
    0  100.0%  ██████████████████████████████████████████
    1   50.0%                                            ███████>  ◀ 0
    2   50.0%                                            ███████>  ◀ 0
    """
    shards = lineage.values()
    # A bar begins when the shard was created and ends when its children were, by the hints in sequence
    # numbers.
    lives = [(lineage.created(shard_id), lineage.closed_at(shard_id)) for shard_id in lineage]
    names = [short_id(shard.shard_id) for shard in shards]
    shares = [share(shard.hash_key_range) for shard in shards]
    name_width, share_width = (max(map(len, texts), default=1) for texts in (names, shares))
    heads = [f"{n:>{name_width}}  {part:>{share_width}}  " for n, part in zip(names, shares, strict=True)]
    indent = name_width + share_width + 4
    parents = (" + ".join(map(short_id, shard.parent_shard_ids)) for shard in shards)
    notes = [f"◀ {those}" if those else "" for those in parents]
    times = [moment for life in lives for moment in life if moment is not None]
    if not times:
        rows = zip(heads, shards, notes, strict=True)
        lines = [f"{head}{'open' if shard.open else 'closed'}  {note}" for head, shard, note in rows]
        return "\n".join(["(no times in the sequence numbers)", *map(str.rstrip, lines)])
    first, last = min(times), max(times)
    last = last + (last - first) / 10 if now is None else max(last, utc(now))
    last = max(last, first + timedelta(seconds=1))
    inner = max(width - indent - 3 - max(map(len, notes), default=0), 20)
    scale = (inner - 1) / (last - first).total_seconds()

    def column(moment: datetime | None, otherwise: int) -> int:
        return round((moment - first).total_seconds() * scale) if moment is not None else otherwise

    ends = f"{last:%Y-%m-%d %H:%M:%S}"
    if 2 * len(ends) + 2 > inner:
        ends = f"{last:%H:%M:%S}" if last.date() == first.date() else f"{last:%m-%d}"
    lines = [" " * indent + f"{first:%Y-%m-%d %H:%M:%S}" + f"  {ends}".rjust(inner - 19) + " UTC"]
    for head, shard, (created, closed), note in zip(heads, shards, lives, notes, strict=True):
        begin = column(created, 0)
        end = inner if shard.open else max(column(closed, inner), begin + 1)
        bar = " " * begin + "█" * (end - begin) + (">" if shard.open else "")
        lines.append(f"{head}{bar.ljust(inner + 1)}  {note}".rstrip())
    return "\n".join(lines)
