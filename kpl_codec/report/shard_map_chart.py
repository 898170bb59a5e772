"""The shard map over time: hash keys from top to bottom, time from left to right.

With few shards every shard is a box for as long as it was open, filled with what arrived on it. Where boxes
would be too small to see (more than `MOST_BOXES` shards) the key space is cut into equal rows instead.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from math import ceil, sqrt

from ..pictures.drawing import KEY_MARKS, Child, Svg, join, label, line, rect
from ..pictures.labels import KEY_SPACE, number, plural, short_id
from .charts import INNER, LEFT, RIGHT, WIDTH, Axis, Cell, picture, time_axis
from .model import Report, ShardFacts

#: Levels of the colour scale.
_LEVELS = 8
#: Shards that are drawn one by one.
MOST_BOXES = 100
#: Cells of the chart at most, and rows of the key space where shards are not drawn one by one.
_MAX_CELLS, _ROWS = 4000, 64
_TOP = 8.0


def shard_map(report: Report) -> Svg | None:
    """The chart, None where no shard has a range."""
    shards = [shard for shard in report.shards if shard.start is not None and shard.end is not None]
    if not shards:
        return None
    opened = sum(1 for shard in shards if shard.open) or len(shards)
    height = float(min(620, max(180, 26 * opened)))
    axis = time_axis(report, max(8, min(96, _MAX_CELLS // min(len(shards), _ROWS))))
    if axis is None:
        return _by_generation(shards, height)
    drawn = (
        _boxes(report, shards, axis, height)
        if len(shards) <= MOST_BOXES
        else _rows(report, shards, axis, height)
    )
    said = f"{plural(len(shards), 'shard')} over time, by hash key range; a table of the shards follows"
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


# -- each shard a box ------------------------------------------------------------------------------


def _boxes(report: Report, shards: Sequence[ShardFacts], axis: Axis, height: float) -> Svg:
    summed: dict[tuple[str | None, int], Cell] = defaultdict(Cell)
    for cell in report.rate.cells:
        summed[cell.shard_id, axis.column_of(cell.start)].add(cell)
    most = max((cell.user_records for cell in summed.values()), default=0)
    grounds: list[Child] = []
    cells: list[Child] = []
    edges: list[Child] = []
    places = {shard.shard_id: (*_span(shard, axis), *_keys_y(shard, height)) for shard in shards}
    for shard_id, (x1, x2, y1, y2) in places.items():
        grounds.append(rect(x1, y1, x2 - x1, y2 - y1, "shard"))
        edges.append(rect(x1, y1, x2 - x1, y2 - y1, "shard-edge"))
        edges.append(_name(x1, x2, y1, y2, shard_id))
    for (arrived_on, column), found in summed.items():
        if arrived_on in places:
            _, _, y1, y2 = places[arrived_on]
            tip = f"{arrived_on}, {axis.begin(column):%Y-%m-%d %H:%M:%S}: {found.text()}"
            cells.append(_filled(*axis.edges(column), y1, y2, found, most, tip))
    return join(grounds, cells, edges)


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


def _name(x1: float, x2: float, y1: float, y2: float, shard_id: str) -> Svg | None:
    """The short id in the corner of its box, if there is room for it."""
    name = short_id(shard_id)
    if y2 - y1 < 15 or x2 - x1 < 8 * len(name) + 8:
        return None
    plate = rect(x1 + 2, y1 + 2, 7.2 * len(name) + 7, 15, "plate")
    return join(plate, label(x1 + 5, y1 + 13.5, name, css="name"))


# -- many shards -----------------------------------------------------------------------------------


def _rows(report: Report, shards: Sequence[ShardFacts], axis: Axis, height: float) -> Svg:
    """The key space in equal rows. What lies on a shard counts for the rows that its range covers, evenly."""
    parts = {shard.shard_id: _row_parts(shard) for shard in shards}
    summed: dict[tuple[int, int], Cell] = defaultdict(Cell)
    losing: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    for cell in report.rate.cells:
        column = axis.column_of(cell.start)
        for row, part in parts.get(cell.shard_id or "", ()):
            summed[row, column].add(cell, part)
            if cell.dropped:
                losing[row, column][cell.shard_id or ""] += cell.dropped
    most = max((cell.user_records for cell in summed.values()), default=0)
    held = Counter(row for found in parts.values() for row, _ in found)
    drawn: list[Child] = [rect(LEFT, _TOP, INNER, height, "shard")]
    tall = height / _ROWS
    for (row, column), found in summed.items():
        worst = ", ".join(f"{short_id(s)} loses {number(n)}" for s, n in losing[row, column].most_common(3))
        tip = f"{plural(held[row], 'shard')}, {axis.begin(column):%Y-%m-%d %H:%M:%S}: {found.text()}" + (
            f" (shard {worst})" if worst else ""
        )
        y = _TOP + tall * row
        drawn.append(_filled(*axis.edges(column), y, y + tall, found, most, tip))
    return join(drawn)


def _row_parts(shard: ShardFacts) -> list[tuple[int, float]]:
    """The rows that a shard's range covers, and the part of the range in each."""
    start, end = (shard.start or 0) * _ROWS / KEY_SPACE, ((shard.end or 0) + 1) * _ROWS / KEY_SPACE
    rows = range(int(start), min(ceil(end), _ROWS))
    return [(row, (min(end, row + 1) - max(start, row)) / (end - start)) for row in rows]


# -- no times --------------------------------------------------------------------------------------


def _by_generation(shards: Sequence[ShardFacts], height: float) -> Svg:
    """Without times: one column for each reshard."""
    wide = INNER / (max(shard.generation for shard in shards) + 1)
    drawn: list[Child] = []
    most = max((shard.user_records for shard in shards), default=0)
    for shard in shards:
        y1, y2 = _keys_y(shard, height)
        x1 = LEFT + wide * shard.generation
        x2 = WIDTH - RIGHT if shard.open else x1 + wide
        tip = f"{shard.shard_id}: {plural(shard.user_records, 'user record')}"
        drawn.append(rect(x1, y1, x2 - x1, y2 - y1, "shard"))
        edge = "shard-edge " if len(shards) <= MOST_BOXES else ""
        drawn.append(rect(x1, y1, x2 - x1, y2 - y1, edge + _level(shard.user_records, most), tip))
        drawn.append(_name(x1, x2, y1, y2, shard.shard_id))
    said = f"{plural(len(shards), 'shard')} by reshard and hash key range; no times are known"
    return picture(_TOP + height + 12, said, drawn, _key_axis(height))


def _key_axis(height: float) -> Svg:
    drawn: list[Child] = []
    for at, name in KEY_MARKS:
        y = _TOP + height * at
        drawn.append(line(LEFT - 5, y, LEFT, y, "tick"))
        below = 9 if at == 0 else 0 if at == 1 else 4
        drawn.append(label(LEFT - 9, y + below, "hash key 0" if at == 0 else name, "end"))
    return join(drawn)
