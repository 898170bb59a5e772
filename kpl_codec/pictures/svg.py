"""Shards as SVG documents: one file each, no script, no fonts or links from elsewhere.

Pure functions of their arguments; each gives the text of a whole document.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ..shards.lineage import Lineage
from ..shards.shard import Shard
from ..shards.skew import Skew
from .diagrams import Span, extent, spans
from .drawing import KEY_MARKS, Child, Svg, element, label, line, rect, time_ticks
from .labels import KEY_SPACE, plural, share, short_id

# Okabe and Ito's colours, lightened: told apart by colour-blind eyes, and black text reads on all.
_FILLS = ("#9ecae9", "#f6c77d", "#8fd3b6", "#e5b8d3", "#f2e88c", "#b9c4e6", "#f0a98c", "#c9c9c9")
# A shard too small to be seen at its true size is drawn this big, in this colour.
_TINY, _TINY_FILL = 4.0, "#555555"
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #222222; paint-order: stroke; stroke: #ffffff; stroke-width: 2;
  stroke-opacity: .7 }
.title { font-size: 15px; font-weight: 600 } .name { font-weight: 600 } .small { font-size: 10px }
.axis { fill: #8a8a8a; font-size: 11px } line { stroke: #8a8a8a }
.mean { stroke: #222222; stroke-dasharray: 4 3 }
.box { stroke: #ffffff }
"""


def _document(width: float, height: float, title: str, *drawn: Child) -> str:
    size = {"width": float(width), "height": float(height)}
    made = element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            **size,
            "viewBox": f"0 0 {width:g} {height:g}",
            "role": "img",
        },
        element("title", {}, title),
        element("style", {}, Svg(_STYLE)),
        rect(0, 0, width, height, None, fill="#ffffff"),
        label(16, 24, title, css="title"),
        *drawn,
    )
    return f"{made}\n"


def _box(x: float, y: float, width: float, height: float, fill: str, tip: str) -> Svg:
    return rect(x, y, max(width, 0.5), max(height, 0.5), "box", tip, fill=fill)


def _has_room(text: str, width: float, size: int = 12) -> bool:
    return len(text) * size * 0.62 + 4 <= width


def key_space_svg(shards: Sequence[Shard], title: str, width: int = 960) -> str:
    """The open shards side by side, each as wide as its share of the hash keys."""
    left, inner, top, height = 16.0, width - 32.0, 52.0, 46.0
    ordered = sorted((s for s in shards if s.open), key=lambda s: s.hash_key_range)
    drawn: list[Child] = []
    tiny: list[Child] = []  # drawn last: they lie over their neighbours
    for i, shard in enumerate(ordered):
        keys = shard.hash_key_range
        x = left + inner * keys.starting_hash_key / KEY_SPACE
        wide = inner * keys.size / KEY_SPACE
        name, part = short_id(shard.shard_id), share(keys)
        tip = f"{shard.shard_id}: {keys.starting_hash_key} to {keys.ending_hash_key} ({part})"
        if wide < _TINY and len(ordered) < 100:
            x = min(x, left + inner - _TINY)
            tiny.append(_box(x, top - 4, _TINY, height + 8, _TINY_FILL, tip))
            tiny.append(label(x + _TINY / 2, top - 7, name, "middle", "small"))
            continue
        drawn.append(_box(x, top, wide, height, _FILLS[i % len(_FILLS)], tip))
        if _has_room(name, wide):
            drawn.append(label(x + wide / 2, top + 20, name, "middle", "name"))
        if _has_room(part, wide, 11):
            drawn.append(label(x + wide / 2, top + 36, part, "middle", "axis"))
    marks: list[Child] = []
    for fraction, text in KEY_MARKS:
        x = left + inner * fraction
        anchor = "start" if fraction == 0 else "end" if fraction == 1 else "middle"
        marks += [line(x, top + height, x, top + height + 6, "tick")]
        marks += [label(x, top + height + 21, text, anchor)]
    return _document(width, 136, title, drawn, tiny, marks)


def lineage_svg(lineage: Lineage, title: str, now: datetime | None = None, width: int = 960) -> str:
    """Time to the right, the key space upwards: each shard a box, from its making to its closing.

    Where sequence numbers carry no time, shards follow each other at equal distances, one for each reshard.
    """
    lives = spans(lineage)
    height = 480
    left, right, top, bottom = 64.0, width - 24.0, 44.0, height - 40.0
    tall = bottom - top
    across = _Across(lineage, lives, left, right, now)
    drawn: list[Child] = []
    # Tiny ones last: they lie over their neighbours.
    for i, life in sorted(enumerate(lives), key=lambda item: -item[1].shard.hash_key_range.size):
        shard, keys = life.shard, life.shard.hash_key_range
        x, end = across.of(life)
        y = bottom - tall * ((keys.ending_hash_key + 1) / KEY_SPACE)
        h, fill = tall * keys.size / KEY_SPACE, _FILLS[i % len(_FILLS)]
        if h < _TINY and len(lives) < 200:
            h, y, fill = _TINY, min(y, bottom - _TINY), _TINY_FILL
        parents = " + ".join(shard.parent_shard_ids)
        tip = f"{shard.shard_id}, {share(keys)} of the hash keys, {'open' if shard.open else 'closed'}" + (
            f", out of {parents}" if parents else ""
        )
        drawn.append(_box(x, y, end - x, h, fill, tip))
        name = short_id(shard.shard_id) + (" ▸" if shard.open else "")
        if h >= 14 and _has_room(name, end - x):
            drawn.append(label(x + 6, y + min(h / 2 + 4, 18), name, css="name"))
        elif h < 14 and _has_room(name, end - x, 10):
            drawn.append(label(end - 4, y - 2 if y - 12 > top else y + h + 10, name, "end", "small"))
    for fraction, text in KEY_MARKS:
        y = bottom - tall * fraction
        drawn += [line(left - 5, y, left, y, "tick"), label(left - 9, y + 4, text, "end")]
    drawn += [line(left, top, left, bottom, "tick"), line(left, bottom, right, bottom, "tick")]
    if across.times is None:
        drawn.append(label((left + right) / 2, height - 12, "no times in the sequence numbers", "middle"))
    else:
        for time, text in time_ticks(*across.times):
            x = across.at(time)
            drawn += [line(x, bottom, x, bottom + 5, "tick"), label(x, bottom + 19, text, "middle")]
        first, last = (f"{time:%Y-%m-%d %H:%M:%S} UTC" for time in across.times)
        drawn += [label(left, height - 6, first), label(right, height - 6, last, "end")]
    return _document(width, height, title, drawn)


class _Across:
    """From left to right: time where times are known, else the generation."""

    def __init__(
        self, lineage: Lineage, lives: Sequence[Span], left: float, right: float, now: datetime | None
    ) -> None:
        self._left, self._right = left, right
        self._generations = {shard.shard_id: lineage.generation(shard.shard_id) for shard in lineage}
        self._step = (right - left) / (max(self._generations.values(), default=0) + 1)
        self.times = extent(lives, now)

    def at(self, moment: datetime) -> float:
        assert self.times is not None
        first, last = self.times
        return self._left + (self._right - self._left) * ((moment - first) / (last - first))

    def of(self, life: Span) -> tuple[float, float]:
        """Where the box of a shard begins and ends."""
        if self.times is None:
            begin = self._left + self._step * self._generations[life.shard.shard_id]
            return begin, self._right if life.shard.open else begin + self._step
        begin = self.at(life.begin) if life.begin is not None else self._left
        return begin, self.at(life.end) if life.end is not None and not life.shard.open else self._right


def skew_svg(skew: Skew, names: Sequence[str], title: str, width: int = 960) -> str:
    """A bar for each shard and a line at the mean."""
    step = 26.0 if len(names) <= 40 else 14.0
    top, left = 58.0, 40.0 + 7.5 * max(map(len, names), default=1)
    height = top + step * len(names) + 34
    most = max([*skew.counts, 1])
    inner = width - left - 130
    bars: list[Child] = []
    texts: list[Child] = []  # over the line at the mean
    for i, (name, count) in enumerate(zip(names, skew.counts, strict=True)):
        y = top + step * i
        text = f"{count:,} · {100 * count / skew.total if skew.total else 0:.1f}%"
        fill = "#f0a98c" if count > 1.5 * skew.mean else "#9ecae9"
        bars.append(_box(left, y, inner * count / most, step - 5, fill, f"{name}: {text}"))
        texts.append(label(left - 8, y + step / 2 + 2, name, "end", None))
        texts.append(label(left + inner * count / most + 7, y + step / 2 + 2, text))
    x = left + inner * skew.mean / most
    mean = [
        line(x, top - 8, x, top + step * len(names), "mean"),
        label(x, top - 13, f"mean {skew.mean:,.1f}", "middle"),
    ]
    foot = label(
        left, height - 12, f"fullest / mean = {skew.ratio:.2f}, {plural(skew.total, 'hash key')}", css="axis"
    )
    return _document(width, height, title, bars, mean, texts, foot)
