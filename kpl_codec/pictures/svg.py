"""The same pictures as SVG: one file, no script, no fonts or links from elsewhere.

Pure functions of their arguments; each gives the text of a whole SVG document.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape

from ..shards.lineage import Lineage
from ..shards.shard_map import Shard
from ..shards.skew import Skew
from .terminal import extent, share, short_id, spans

_SPACE = 2**128
# Okabe and Ito's colours, lightened: told apart by colour-blind eyes, and black text reads on all.
_FILLS = ("#9ecae9", "#f6c77d", "#8fd3b6", "#e5b8d3", "#f2e88c", "#b9c4e6", "#f0a98c", "#c9c9c9")
_INK, _FAINT = "#222222", "#8a8a8a"
# A shard too small to be seen at its true size is drawn this big, in this colour.
_TINY, _TINY_FILL = 4.0, "#555555"


class _Drawing:
    """SVG elements in the order they are drawn. Lengths are pixels."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
            'font-family="system-ui, sans-serif" font-size="12">',
            f"<title>{escape(title)}</title>",
            '<rect width="100%" height="100%" fill="#ffffff"/>',
        ]
        self.text(16, 24, title, size=15, weight="600")

    def rect(
        self, x: float, y: float, w: float, h: float, fill: str, tip: str, stroke: str = "#ffffff"
    ) -> None:
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(w, 0.5):.1f}" height="{max(h, 0.5):.1f}" '
            f'fill="{fill}" stroke="{stroke}"><title>{escape(tip)}</title></rect>'
        )

    def line(self, x: float, y: float, x2: float, y2: float, color: str = _FAINT, dash: str = "") -> None:
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"{dashes}/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        anchor: str = "start",
        color: str = _INK,
        size: int = 12,
        weight: str = "400",
    ) -> None:
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}" font-size="{size}" '
            f'font-weight="{weight}" paint-order="stroke" stroke="#ffffff" stroke-opacity="0.7" '
            f'stroke-width="2">{escape(text)}</text>'
        )

    def done(self) -> str:
        return "\n".join([*self.parts, "</svg>\n"])


def _room_for(text: str, width: float, size: int = 12) -> bool:
    return len(text) * size * 0.62 + 4 <= width


def key_space_svg(shards: Sequence[Shard], title: str, width: int = 960) -> str:
    """The open shards side by side, each as wide as its share of the hash keys."""
    drawing = _Drawing(width, 136, title)
    left, inner, top, height = 16.0, width - 32.0, 52.0, 46.0
    ordered = sorted((s for s in shards if s.open), key=lambda s: s.hash_key_range)
    tiny: list[tuple[float, str, str]] = []
    for i, shard in enumerate(ordered):
        keys = shard.hash_key_range
        x = left + inner * keys.starting_hash_key / _SPACE
        w = inner * keys.size / _SPACE
        name, part = short_id(shard.shard_id), share(keys)
        tip = f"{shard.shard_id}: {keys.starting_hash_key} to {keys.ending_hash_key} ({part})"
        if w < _TINY and len(ordered) < 100:
            tiny.append((min(x, left + inner - _TINY), name, tip))
            continue
        drawing.rect(x, top, w, height, _FILLS[i % len(_FILLS)], tip)
        if _room_for(name, w):
            drawing.text(x + w / 2, top + 20, name, "middle", weight="600")
        if _room_for(part, w, 11):
            drawing.text(x + w / 2, top + 36, part, "middle", color="#555555", size=11)
    for x, name, tip in tiny:
        drawing.rect(x, top - 4, _TINY, height + 8, _TINY_FILL, tip)
        drawing.text(x + _TINY / 2, top - 7, name, "middle", size=10)
    for fraction, label in ((0.0, "0"), (0.25, "¼"), (0.5, "½ · 2^127"), (0.75, "¾"), (1.0, "2^128 − 1")):
        x = left + inner * fraction
        drawing.line(x, top + height, x, top + height + 6)
        anchor = "start" if fraction == 0 else "end" if fraction == 1 else "middle"
        drawing.text(x, top + height + 21, label, anchor, _FAINT, 11)
    return drawing.done()


def lineage_svg(lineage: Lineage, title: str, now: datetime | None = None, width: int = 960) -> str:
    """Time to the right, the key space upwards: each shard a box, from its making to its closing.

    Where sequence numbers carry no time, shards follow each other at equal distances.
    """
    lives = spans(lineage)
    height = 480
    drawing = _Drawing(width, height, title)
    left, right, top, bottom = 64.0, width - 24.0, 44.0, height - 40.0
    times = extent(lives, now)
    depth: dict[str, int] = {}
    for shard in lineage:
        depth[shard.shard_id] = 1 + max(
            (depth[p.shard_id] for p in lineage.parents(shard.shard_id)), default=-1
        )
    deepest = max(depth.values(), default=0) + 1

    def at(moment: datetime | None, step: float) -> float:
        if times is None:
            return left + (right - left) * step / deepest
        first, last = times
        if moment is None:
            return right if step > 0 else left
        return left + (right - left) * ((moment - first) / (last - first))

    # Tiny ones last: they lie over their neighbours.
    for i, life in sorted(enumerate(lives), key=lambda item: -item[1].shard.hash_key_range.size):
        shard, keys = life.shard, life.shard.hash_key_range
        level = depth[shard.shard_id]
        x = at(life.begin, level if times is None else 0)
        end = right if shard.open else at(life.end, level + 1)
        y = bottom - (bottom - top) * ((keys.ending_hash_key + 1) / _SPACE)
        h, fill = (bottom - top) * keys.size / _SPACE, _FILLS[i % len(_FILLS)]
        if h < _TINY and len(lives) < 200:
            h, y, fill = _TINY, min(y, bottom - _TINY), _TINY_FILL
        parents = " + ".join(shard.parent_shard_ids)
        tip = f"{shard.shard_id}, {share(keys)} of the hash keys, {'open' if shard.open else 'closed'}" + (
            f", out of {parents}" if parents else ""
        )
        drawing.rect(x, y, end - x, h, fill, tip)
        name = short_id(shard.shard_id) + (" ▸" if shard.open else "")
        if h >= 14 and _room_for(name, end - x):
            drawing.text(x + 6, y + min(h / 2 + 4, 18), name, weight="600")
        elif h < 14 and _room_for(name, end - x, 10):
            drawing.text(end - 4, y - 2 if y - 12 > top else y + h + 10, name, "end", size=10)
    for fraction, label in ((0.0, "0"), (0.25, "¼"), (0.5, "½"), (0.75, "¾"), (1.0, "2^128")):
        y = bottom - (bottom - top) * fraction
        drawing.line(left - 5, y, left, y)
        drawing.text(left - 9, y + 4, label, "end", _FAINT, 11)
    drawing.line(left, top, left, bottom)
    drawing.line(left, bottom, right, bottom)
    if times is None:
        drawing.text(
            (left + right) / 2, height - 12, "no times in the sequence numbers", "middle", _FAINT, 11
        )
    else:
        first, last = times
        for i in range(5):
            x = left + (right - left) * i / 4
            moment = first + (last - first) * i / 4
            anchor = "start" if i == 0 else "end" if i == 4 else "middle"
            drawing.line(x, bottom, x, bottom + 5)
            drawing.text(x, bottom + 20, f"{moment:%Y-%m-%d %H:%M:%S}", anchor, _FAINT, 11)
        drawing.text(right, height - 6, "UTC, from the hints in sequence numbers", "end", _FAINT, 10)
    return drawing.done()


def skew_svg(skew: Skew, names: Sequence[str], title: str, width: int = 960) -> str:
    """A bar per shard and a line at the mean, which all would have if keys were even."""
    step = 26.0 if len(names) <= 40 else 14.0
    top, left = 58.0, 40.0 + 7.5 * max(map(len, names), default=1)
    height = top + step * len(names) + 34
    drawing = _Drawing(width, height, title)
    most = max([*skew.counts, 1])
    inner = width - left - 130
    rows = [
        (top + step * i, name, count, f"{count:,} · {100 * count / skew.total if skew.total else 0:.1f}%")
        for i, (name, count) in enumerate(zip(names, skew.counts, strict=True))
    ]
    for y, name, count, text in rows:
        fill = "#f0a98c" if count > 1.5 * skew.mean else "#9ecae9"
        drawing.rect(left, y, inner * count / most, step - 5, fill, f"{name}: {text}")
    x = left + inner * skew.mean / most
    drawing.line(x, top - 8, x, top + step * len(names), _INK, "4 3")
    drawing.text(x, top - 13, f"mean {skew.mean:,.1f}", "middle", size=11)
    for y, name, count, text in rows:  # over the line at the mean
        drawing.text(left - 8, y + step / 2 + 2, name, "end")
        drawing.text(left + inner * count / most + 7, y + step / 2 + 2, text, size=11)
    foot = f"fullest / mean = {skew.ratio:.2f}, {skew.total:,} hash keys"
    drawing.text(left, height - 12, foot, color=_FAINT, size=11)
    return drawing.done()
