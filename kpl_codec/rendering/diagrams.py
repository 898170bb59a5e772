"""Pictures of shards made of characters, without colours: the key space, the lineage in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from ..shards.lineage import Lineage
from ..shards.shard import Shard
from .labels import KEY_SPACE, share, short_id, utc


def key_space(shards: Sequence[Shard], width: int = 100) -> str:
    """The open shards side by side, each as wide as its share of the hash keys, at least one column.

    0                                                 2^128-1
    ├──── 2 ────┼──── 3 ────┼────────── 1 ────────────┤

    Where there are too many for ``width``, a digit says how many of them begin in each column, + for more
    than nine.
    """
    ordered = sorted((s for s in shards if s.open), key=lambda s: s.hash_key_range)
    inner = width - 1
    bar = _ruler(ordered, inner) if 2 * len(ordered) <= inner else _counts(ordered, width)
    return f"0{'2^128-1'.rjust(len(bar) - 1)}\n{bar}"


def _ruler(ordered: Sequence[Shard], inner: int) -> str:
    edges = [round(s.hash_key_range.starting_hash_key * inner / KEY_SPACE) for s in ordered] + [inner]
    for i in range(1, len(edges)):  # room for one column each, from the left
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


class Span(NamedTuple):
    """A shard's life: from when it was made until its children were, as far as hints tell."""

    shard: Shard
    begin: datetime | None
    end: datetime | None


def spans(lineage: Lineage) -> list[Span]:
    """The life of each shard, parents before children; ``end`` is None for an open one."""
    return [Span(s, lineage.created(i), lineage.closed_at(i)) for i, s in lineage.items()]


def extent(lives: Sequence[Span], now: datetime | None = None) -> tuple[datetime, datetime] | None:
    """From the first beginning to ``now``, or to a little after the last event."""
    times = [moment for life in lives for moment in (life.begin, life.end) if moment is not None]
    if not times:
        return None
    first, last = min(times), max(times)
    if now is not None:
        last = max(last, utc(now))
    else:
        last += (last - first) / 10
    return first, max(last, first + timedelta(seconds=1))


def timeline(lineage: Lineage, width: int = 100, now: datetime | None = None) -> str:
    """A line for each shard, from its making to its closing; ``>`` for one that is open.

    2018-12-16 05:27:07                                   05:49:04
    0  100.0%  ██████████████████████████████████████████
    1   50.0%                                            ███████>  ◀ 0
    2   50.0%                                            ███████>  ◀ 0
    """
    lives = spans(lineage)
    times = extent(lives, now)
    names = _align_right(short_id(life.shard.shard_id) for life in lives)
    shares = _align_right(share(life.shard.hash_key_range) for life in lives)
    heads = [f"{name}  {part}  " for name, part in zip(names, shares, strict=True)]
    indent = max(map(len, heads), default=6)
    parents = (" + ".join(map(short_id, life.shard.parent_shard_ids)) for life in lives)
    notes = [f"◀ {those}" if those else "" for those in parents]
    if times is None:
        rows = zip(heads, lives, notes, strict=True)
        lines = [f"{head}{'open' if life.shard.open else 'closed'}  {note}" for head, life, note in rows]
        return "\n".join(["(no times in the sequence numbers)", *map(str.rstrip, lines)])
    first, last = times
    inner = max(width - indent - 3 - max(map(len, notes), default=0), 20)
    scale = (inner - 1) / (last - first).total_seconds()

    def column(moment: datetime | None, otherwise: int) -> int:
        return round((moment - first).total_seconds() * scale) if moment is not None else otherwise

    ends = f"{last:%Y-%m-%d %H:%M:%S}"
    if 2 * len(ends) + 2 > inner:
        ends = f"{last:%H:%M:%S}" if last.date() == first.date() else f"{last:%m-%d}"
    lines = [" " * indent + f"{first:%Y-%m-%d %H:%M:%S}" + f"  {ends}".rjust(inner - 19) + " UTC"]
    for head, life, note in zip(heads, lives, notes, strict=True):
        begin = column(life.begin, 0)
        end = inner if life.shard.open else max(column(life.end, inner), begin + 1)
        bar = " " * begin + "█" * (end - begin) + (">" if life.shard.open else "")
        lines.append(f"{head}{bar.ljust(inner + 1)}  {note}".rstrip())
    return "\n".join(lines)


def _align_right(texts: Iterable[str]) -> list[str]:
    several = list(texts)
    wide = max(map(len, several), default=0)
    return [text.rjust(wide) for text in several]
