"""Draws the shard map over time as inline SVG: hash keys from top to bottom, time from left to right. Colours
come from the style sheet; what a colour means is also said by a pattern and by the table of shards."""

from __future__ import annotations

from datetime import datetime, timedelta
from math import ceil, sqrt

from ...rendering.labels import KEY_SPACE, number, plural, short_id
from ...rendering.svg import Child, Svg, element, label, line, rect, time_ticks
from .schema import Facts, ShardFacts

#: The chart's sizes in its own units: it scales to the page.
_WIDTH, _LEFT, _RIGHT, _TOP = 960, 96.0, 12.0, 8.0
_INNER = _WIDTH - _LEFT - _RIGHT
#: How high and how wide a loss is drawn at least.
_LEAST_HIGH, _LEAST_WIDE = 3.0, 2.0


class _Axis:
    """Time from left to right."""

    def __init__(self, first: datetime, last: datetime) -> None:
        self.first, self.last = first, last
        self._span = max((last - first).total_seconds(), 1.0)

    def x(self, time: datetime) -> float:
        return _LEFT + _INNER * min(max((time - self.first).total_seconds() / self._span, 0), 1)

    def draw(self, bottom: float) -> list[Svg]:
        shapes: list[Svg] = []
        for time, text in time_ticks(self.first, self.last):
            x = self.x(time)
            anchor = "start" if x < _LEFT + 30 else "end" if x > _WIDTH - _RIGHT - 30 else "middle"
            shapes += [line(x, _TOP, x, bottom + 4, "grid"), label(x, bottom + 18, text, anchor)]
        first, last = (f"{time:%Y-%m-%d %H:%M:%S} UTC" for time in (self.first, self.last))
        shapes.append(label(_LEFT, bottom + 36, first, css="axis faint"))
        shapes.append(label(_WIDTH - _RIGHT, bottom + 36, last, "end", "axis faint"))
        return shapes


def shard_chart(facts: Facts) -> Svg | None:
    """A shard is a box for as long as it was open, filled with what arrived on it; what the KCL loses is
    hatched. None where no shard has a range, or no time is known."""
    shards = {shard["shardId"]: shard for shard in facts["shards"] if shard["start"] is not None}
    arrivals = facts["arrivals"]
    if not shards or arrivals is None:
        return None
    first, seconds = datetime.fromisoformat(arrivals["start"]), arrivals["seconds"]
    last = first + timedelta(seconds=seconds * (1 + max((cell[0] for cell in arrivals["cells"]), default=0)))
    axis = _Axis(first, last)
    open_count = sum(shard["state"] == "open" for shard in shards.values()) or len(shards)
    height = float(min(620, max(180, 26 * open_count)))
    spans = {name: (*_life(shard, axis), *_keys(shard, height)) for name, shard in shards.items()}
    grounds: list[Child] = [rect(x1, y1, x2 - x1, y2 - y1, "shard") for x1, x2, y1, y2 in spans.values()]
    cells: list[Child] = []
    losses: list[Child] = []
    most = max((cell[2] for cell in arrivals["cells"]), default=0)
    for column, name, user_records, dropped in arrivals["cells"]:
        if name not in spans:
            continue
        begin = first + timedelta(seconds=column * seconds)
        left, right, y1, y2 = spans[name]
        # A stretch of time is wider than the part of it in which the shard was open.
        x1 = min(max(axis.x(begin), left), right - _LEAST_WIDE)
        x2 = max(min(axis.x(begin + timedelta(seconds=seconds)), right), x1 + _LEAST_WIDE)
        loss = f", the KCL loses {number(dropped)}" if dropped else ""
        tip = f"{name}, {begin:%Y-%m-%d %H:%M:%S}: {plural(user_records, 'user record')}{loss}"
        # The class of the colour, q0 (nothing) to q8, by the square root: small numbers stay visible beside
        # large ones.
        level = max(1, ceil(8 * sqrt(user_records / most))) if user_records else 0
        cells.append(rect(x1, y1, x2 - x1, y2 - y1, f"q{level}", tip))
        if dropped:
            part = (y2 - y1) * dropped / max(user_records, dropped)
            high = min(max(part, _LEAST_HIGH), max(y2 - y1, _LEAST_HIGH))
            losses.append(rect(x1, y2 - high, x2 - x1, high, "lost", tip))
    edges: list[Child] = []
    for shard_id, (x1, x2, y1, y2) in spans.items():
        edges.append(rect(x1, y1, x2 - x1, y2 - y1, "shard-edge"))
        name = short_id(shard_id)
        if y2 - y1 >= 15 and x2 - x1 >= 8 * len(name) + 8:  # there is room for it
            edges.append(rect(x1 + 2, y1 + 2, 7.2 * len(name) + 7, 15, "plate"))
            edges.append(label(x1 + 5, y1 + 13.5, name, css="name"))
    marks = ((0, 9, "hash key 0"), (0.25, 4, "1/4"), (0.5, 4, "1/2"), (0.75, 4, "3/4"), (1, 0, "2^128 - 1"))
    keys = [label(_LEFT - 9, _TOP + height * at + below, text, "end") for at, below, text in marks]
    name = f"{plural(len(shards), 'shard')} over time, by hash key range; a table of the shards follows"
    attributes = {"viewBox": f"0 0 {_WIDTH} {_TOP + height + 44:g}", "role": "img", "aria-label": name}
    shapes: list[Child] = [axis.draw(_TOP + height), grounds, cells, edges, losses, keys]
    return element("svg", {**attributes, "preserveAspectRatio": "xMidYMin meet"}, *shapes)


def _life(shard: ShardFacts, axis: _Axis) -> tuple[float, float]:
    """Where the box of a shard begins and ends: when it was open, widened to what arrived on it."""
    opened, closed, first, last = (
        datetime.fromisoformat(time) if time is not None else None
        for time in (shard["opened"], shard["closed"], shard["firstArrival"], shard["lastArrival"])
    )
    begin = opened or (axis.first if shard["generation"] == 0 else first or axis.first)
    end = axis.last if shard["state"] == "open" else closed or last or axis.last
    if first is not None and last is not None:
        begin, end = min(begin, first), max(end, last + timedelta(seconds=1))  # in whole seconds
    x = axis.x(begin)
    return min(x, _WIDTH - _RIGHT - _LEAST_WIDE), max(axis.x(end), x + _LEAST_WIDE)


def _keys(shard: ShardFacts, height: float) -> tuple[float, float]:
    y1, y2 = (
        _TOP + height * (key / KEY_SPACE) for key in (int(shard["start"] or 0), int(shard["end"] or 0) + 1)
    )
    return y1, max(y2, y1 + 1)
