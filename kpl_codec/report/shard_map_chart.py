"""The shard map over time: hash keys from top to bottom, time from left to right.

With few shards every shard is a box for as long as it was open, filled with what arrived on it. Where boxes
would be too small to see (more than `MOST_BOXES` shards) the key space is cut into equal rows instead.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from math import ceil, sqrt

from ..pictures.drawing import Child, Svg, join, label, line, rect
from ..pictures.labels import KEY_SPACE, plural, short_id
from .charts import INNER, LEFT, Axis, Cell, picture, time_axis
from .model import Report, ShardFacts

#: Levels of the colour scale.
_LEVELS = 8
#: Shards that are drawn one by one.
MOST_BOXES = 100
#: Cells of the chart at most, and rows of the key space where shards are not drawn one by one.
_MAX_CELLS, _ROWS = 4000, 64
_TOP = 8.0

#: What is drawn as one: its name, where it begins and ends.
_Place = tuple[str, float, float]


def shard_map(report: Report) -> Svg | None:
    """The chart, None where no shard has a range, or no time is known."""
    shards = [shard for shard in report.shards if shard.start is not None and shard.end is not None]
    axis = time_axis(report, max(8, min(96, _MAX_CELLS // max(1, min(len(shards), _ROWS)))))
    if not shards or axis is None:
        return None
    opened = sum(1 for shard in shards if shard.open) or len(shards)
    height = float(min(620, max(180, 26 * opened)))
    few = len(shards) <= MOST_BOXES
    places = _shards(shards, height) if few else _rows(shards, height)
    summed: dict[tuple[_Place, int], Cell] = defaultdict(Cell)
    for arrived in report.rate.cells:
        for place, part in places.get(arrived.shard_id or "", ()):
            summed[place, axis.column_of(arrived.start)].add(arrived, part)
    most = max((cell.user_records for cell in summed.values()), default=0)
    cells: list[Child] = []
    for ((name, y1, y2), column), cell in summed.items():
        tip = f"{name}, {axis.begin(column):%Y-%m-%d %H:%M:%S}: {cell.text()}"
        cells.append(_filled(*axis.edges(column), y1, y2, cell, most, tip))
    said = f"{plural(len(shards), 'shard')} over time, by hash key range; a table of the shards follows"
    drawn = _boxes(shards, axis, height, cells) if few else [rect(LEFT, _TOP, INNER, height, "shard"), *cells]
    return picture(_TOP + height + 44, said, axis.draw(_TOP, _TOP + height), drawn, _key_axis(height))


def _level(value: float, most: float) -> str:
    """The class q0 (nothing) to q8, by square root: small things stay visible beside large ones."""
    return f"q{max(1, ceil(_LEVELS * sqrt(value / most))) if value and most else 0}"


def _filled(x1: float, x2: float, y1: float, y2: float, cell: Cell, most: float, tip: str) -> Svg:
    """One cell in its colour; the lower part, as large as the share that the KCL loses, is hatched."""
    drawn: list[Child] = [rect(x1, y1, x2 - x1, y2 - y1, _level(cell.user_records, most), tip)]
    if cell.dropped:
        gone = min(max((y2 - y1) * cell.lost, 3.0), y2 - y1)
        drawn.append(rect(x1, y2 - gone, x2 - x1, gone, "lost", tip))
    return join(drawn)


def _shards(shards: Sequence[ShardFacts], height: float) -> dict[str, list[tuple[_Place, float]]]:
    return {shard.shard_id: [((shard.shard_id, *_keys_y(shard, height)), 1.0)] for shard in shards}


def _rows(shards: Sequence[ShardFacts], height: float) -> dict[str, list[tuple[_Place, float]]]:
    """The key space in equal rows. What lies on a shard counts for the rows that its range covers, evenly."""
    parts = {shard.shard_id: _row_parts(shard) for shard in shards}
    held = Counter(row for found in parts.values() for row, _ in found)
    tall = height / _ROWS
    places = [
        (plural(held[row], "shard"), _TOP + tall * row, _TOP + tall * (row + 1)) for row in range(_ROWS)
    ]
    return {shard_id: [(places[row], part) for row, part in found] for shard_id, found in parts.items()}


def _row_parts(shard: ShardFacts) -> list[tuple[int, float]]:
    start, end = (shard.start or 0) * _ROWS / KEY_SPACE, ((shard.end or 0) + 1) * _ROWS / KEY_SPACE
    rows = range(int(start), min(ceil(end), _ROWS))
    return [(row, (min(end, row + 1) - max(start, row)) / (end - start)) for row in rows]


def _boxes(shards: Sequence[ShardFacts], axis: Axis, height: float, cells: list[Child]) -> list[Child]:
    grounds: list[Child] = []
    edges: list[Child] = []
    for shard in shards:
        (x1, x2), (y1, y2) = _span(shard, axis), _keys_y(shard, height)
        grounds.append(rect(x1, y1, x2 - x1, y2 - y1, "shard"))
        edges.append(rect(x1, y1, x2 - x1, y2 - y1, "shard-edge"))
        name = short_id(shard.shard_id)
        if y2 - y1 >= 15 and x2 - x1 >= 8 * len(name) + 8:  # there is room for it
            edges.append(rect(x1 + 2, y1 + 2, 7.2 * len(name) + 7, 15, "plate"))
            edges.append(label(x1 + 5, y1 + 13.5, name, css="name"))
    return [*grounds, *cells, *edges]


def _span(shard: ShardFacts, axis: Axis) -> tuple[float, float]:
    """Where the box of a shard begins and ends: when it was open, widened to what arrived on it."""
    begin = shard.opened or (axis.first if shard.generation == 0 else shard.first_arrival or axis.first)
    end = axis.last if shard.open else shard.closed or shard.last_arrival or axis.last
    if shard.first_arrival is not None and shard.last_arrival is not None:
        begin = min(begin, shard.first_arrival)
        end = max(end, shard.last_arrival)
    return axis.x(begin), max(axis.x(end), axis.x(begin) + 2)


def _keys_y(shard: ShardFacts, height: float) -> tuple[float, float]:
    start, end = shard.start or 0, shard.end or 0
    y1, y2 = _TOP + height * (start / KEY_SPACE), _TOP + height * ((end + 1) / KEY_SPACE)
    return y1, max(y2, y1 + 1)


def _key_axis(height: float) -> Svg:
    drawn: list[Child] = []
    marks = ((0, 9, "hash key 0"), (0.25, 4, "1/4"), (0.5, 4, "1/2"), (0.75, 4, "3/4"), (1, 0, "2^128 - 1"))
    for at, below, name in marks:
        y = _TOP + height * at
        drawn += [line(LEFT - 5, y, LEFT, y, "tick"), label(LEFT - 9, y + below, name, "end")]
    return join(drawn)
