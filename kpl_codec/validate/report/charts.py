"""Draws the charts of the page as inline SVG. Colours come from the style sheet; what a colour means is also
said by a pattern, a text or the table beside the chart."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from math import ceil, sqrt

from ...rendering.labels import KEY_SPACE, duration, number, percent, plural, short_id, size
from ...rendering.svg import Child, Svg, element, join, label, line, rect, round_scale, time_ticks
from .model import RateCell, Report, ShardFacts

#: Width of all charts in their own units; they scale to the page.
WIDTH = 960
LEFT, RIGHT = 96.0, 12.0
INNER = WIDTH - LEFT - RIGHT


def picture(height: float, name: str, *children: Child, fit: str = "xMidYMin meet") -> Svg:
    attributes = {"viewBox": f"0 0 {WIDTH} {height:g}", "role": "img", "aria-label": name}
    return element("svg", {**attributes, "preserveAspectRatio": fit}, *children)


def patterns() -> Svg:
    turned = {"patternUnits": "userSpaceOnUse", "patternTransform": "rotate(45)"}
    hatch = element(
        "pattern",
        {"id": "hatch", "width": 6, "height": 6, **turned},
        element("rect", {"width": 6, "height": 6, "class": "hatch-ground"}),
        element("rect", {"width": 2.5, "height": 6, "class": "hatch-line"}),
    )
    hidden = {"class": "hidden", "width": 0, "height": 0, "aria-hidden": "true"}
    return element("svg", hidden, element("defs", {}, hatch))


def swatch(css: str) -> Svg:
    attributes = {"class": "swatch", "viewBox": "0 0 16 16", "aria-hidden": "true"}
    return element("svg", attributes, rect(0.5, 0.5, 15, 15, css))


def bar(part: float, whole: float, lost: float = 0) -> Svg:
    """A small bar for a table cell: ``part`` of ``whole``, of which ``lost`` is hatched."""
    wide = 100 * part / whole if whole else 0
    gone = 100 * lost / whole if whole else 0
    return element(
        "svg",
        {"class": "bar", "viewBox": "0 0 100 10", "preserveAspectRatio": "none", "aria-hidden": "true"},
        rect(0, 0, 100, 10, "track"),
        rect(0, 0, max(wide, 0.6 if part else 0), 10, "fill"),
        rect(0, 0, max(gone, 0.6), 10, "lost") if lost else None,
    )


#: What a KCL consumer does with user records: name, meaning, class of the colour.
KCL_OUTCOMES = (
    ("delivered", "as they are", "fill"),
    ("dropped", "lost to KCL consumers: they are on the stream, but the KCL drops them", "lost"),
    ("altered", "delivered under another key than their own", "altered"),
    ("raw", "not opened: the aggregate is handed on as one record", "raw"),
    ("unknown", "whether the KCL drops them cannot be said", "track"),
)


def kcl_bar(kcl: Mapping[str, int]) -> Svg:
    whole = sum(kcl.values())
    shapes: list[Child] = []
    texts: list[str] = []
    at = 0.0
    for name, _, css in KCL_OUTCOMES:
        if count := kcl.get(name):
            wide = WIDTH * count / whole
            shapes.append(rect(at, 0, max(wide, 2), 34, css, name))
            texts.append(f"{percent(count, whole)} {name}")
            at += wide
    return picture(34, f"User records at a KCL consumer: {'; '.join(texts)}", shapes, fit="none")


class Axis:
    """Time from left to right. ``column``: the seconds that one column of cells covers."""

    def __init__(self, first: datetime, last: datetime, column: int) -> None:
        self.first, self.last, self.column = first, last, column
        self.span = max((last - first).total_seconds(), 1.0)

    def x(self, time: datetime) -> float:
        return LEFT + INNER * min(max((time - self.first).total_seconds() / self.span, 0), 1)

    def begin(self, column: int) -> datetime:
        return self.first + timedelta(seconds=column * self.column)

    def edges(self, column: int) -> tuple[float, float]:
        return self.x(self.begin(column)), self.x(self.begin(column + 1))

    def column_of(self, time: datetime) -> int:
        return int((time - self.first).total_seconds()) // self.column

    def draw(self, top: float, bottom: float) -> Svg:
        shapes: list[Child] = []
        for time, text in time_ticks(self.first, self.last):
            x = self.x(time)
            anchor = "start" if x < LEFT + 30 else "end" if x > WIDTH - RIGHT - 30 else "middle"
            shapes += [line(x, top, x, bottom + 4, "grid"), label(x, bottom + 18, text, anchor)]
        first, last = (f"{time:%Y-%m-%d %H:%M:%S} UTC" for time in (self.first, self.last))
        shapes.append(label(LEFT, bottom + 36, first, css="axis faint"))
        shapes.append(label(WIDTH - RIGHT, bottom + 36, last, "end", "axis faint"))
        return join(shapes)


def time_axis(report: Report, columns: int) -> Axis | None:
    """From the first to the last bucket, in at most ``columns`` columns; None if no time is known."""
    if not report.cells:
        return None
    first, last = report.cells[0].start, report.cells[-1].start
    buckets = int((last - first).total_seconds()) // report.bucket_seconds + 1
    last += timedelta(seconds=report.bucket_seconds)
    return Axis(first, last, report.bucket_seconds * ceil(buckets / columns))


class Cell:
    __slots__ = ("bytes", "dropped", "user_records")

    def __init__(self) -> None:
        self.user_records = self.bytes = self.dropped = 0.0

    def add(self, cell: RateCell, part: float = 1.0) -> None:
        self.user_records += cell.user_records * part
        self.bytes += cell.bytes * part
        self.dropped += cell.dropped * part

    @property
    def lost(self) -> float:
        return self.dropped / max(self.user_records, self.dropped) if self.dropped else 0.0

    def text(self) -> str:
        loss = f", the KCL loses {number(round(self.dropped))}" if self.dropped else ""
        return f"{plural(round(self.user_records), 'user record')}, {size(self.bytes)}{loss}"


def _box(
    x: float, bottom: float, wide: float, tall: float, css: str, lost: float, tip: str, least: float = 0
) -> Svg:
    """A box that stands on ``bottom``. Its lower part, ``lost`` of 1, at least ``least`` high, is hatched."""
    gone = min(max(tall * lost, least), tall)
    hatched = rect(x, bottom - gone, wide, gone, "lost", tip) if lost else None
    return join(rect(x, bottom - tall, wide, tall, css, tip), hatched)


#: The most bars of the rate, and the fewest that are drawn: fewer fill the chart and show nothing.
_MOST_BARS, _FEWEST_BARS = 160, 4


def rate(report: Report) -> tuple[Svg, str] | None:
    """The chart, and what a bar of it is; None if there are too few."""
    axis = time_axis(report, _MOST_BARS)
    if axis is None or axis.span < _FEWEST_BARS * axis.column:
        return None
    columns: dict[int, Cell] = defaultdict(Cell)
    for cell in report.cells:
        columns[axis.column_of(cell.start)].add(cell)
    most = max(cell.user_records for cell in columns.values()) / axis.column
    ceiling, marks = round_scale(most)
    top, height = 8.0, 190.0
    shapes: list[Child] = [axis.draw(top, top + height)]
    for mark in marks:
        y = top + height * (1 - mark / ceiling)
        shapes += [line(LEFT, y, WIDTH - RIGHT, y, "grid"), label(LEFT - 9, y + 4, f"{mark:g}/s", "end")]
    for column, column_cell in sorted(columns.items()):
        x1, x2 = axis.edges(column)
        tall = height * column_cell.user_records / axis.column / ceiling
        tip = f"{axis.begin(column):%Y-%m-%d %H:%M:%S}, {duration(axis.column)}: {column_cell.text()}"
        wide = x2 - x1 - (0.6 if x2 - x1 > 3 else 0)
        shapes.append(_box(x1, top + height, wide, tall, "fill", column_cell.lost, tip))
    description = f"User records a second over time; at most {most:,.1f}"
    return picture(top + height + 44, description, shapes), duration(axis.column)


def key_space(report: Report) -> Svg | None:
    """User records over the hash key space in 256 slots, with the ranges of the open shards below."""
    total = sum(count for count, _ in report.key_space)
    if not total:
        return None
    most = max(count for count, _ in report.key_space)
    top, height = 8.0, 160.0
    slot = INNER / len(report.key_space)
    mean = total / len(report.key_space)
    open_shards = [shard for shard in report.shards if shard.state == "open"]
    below = top + height + 6
    shapes: list[Child] = [_open_shards(open_shards, below)]
    for index, (count, misplaced) in enumerate(report.key_space):
        if not count:
            continue
        tall = max(height * count / most, 2.0 if misplaced else 0)
        tip = f"hash keys {index:02x}...: {plural(count, 'user record')} ({percent(count, total)})"
        tip += f", {number(misplaced)} misplaced" if misplaced else ""
        x = LEFT + slot * index
        shapes.append(_box(x, top + height, slot - 0.4, tall, "fill", misplaced / count, tip, 2))
    y = top + height * (1 - mean / most)
    shapes += [
        line(LEFT, y, WIDTH - RIGHT, y, "mean"),
        label(LEFT - 9, y + 4, f"mean {mean:,.{1 if mean < 1000 else 0}f}", "end"),
    ]
    if y > top + 14:
        shapes.append(label(LEFT - 9, top + 6, f"most {number(most)}", "end"))
    if open_shards:
        shapes.append(label(LEFT - 9, below + 14, "open shards", "end"))
    name = f"{plural(total, 'user record')} over the hash key space; the fullest 1/256 has {number(most)}"
    return picture(below + 28, name, shapes)


def _open_shards(shards: Sequence[ShardFacts], below: float) -> Svg:
    shapes: list[Child] = []
    css = "shard-edge shard" if len(shards) <= 64 else "shard"
    for shard in shards:
        x1 = LEFT + INNER * ((shard.start or 0) / KEY_SPACE)
        x2 = LEFT + INNER * (((shard.end or 0) + 1) / KEY_SPACE)
        shapes.append(rect(x1, below, x2 - x1, 20, css, shard.shard_id))
        name = short_id(shard.shard_id)
        if x2 - x1 > 7.2 * len(name) + 6:
            shapes.append(label((x1 + x2) / 2, below + 14, name, "middle", "name"))
    return join(shapes)


#: How high a part of a row of 20 is at least.
LEAST_HIGH = 2
#: The states of user records in an audit: the field of `AuditCell`, its name, the class of the colour.
AUDIT_OUTCOMES = (
    ("handled", "handled or put aside", "fill"),
    ("missing", "missing", "lost"),
    ("unknown", "unknown", "altered"),
    ("too_early", "too early to say", "track"),
)


def audit(report: Report) -> Svg | None:
    """The result of an audit, with a row for each shard: each stretch of time is divided by the states of its
    user records."""
    cells = report.audit
    if not cells:
        return None
    shard_ids = sorted({cell.shard_id for cell in cells})
    last = max(cell.start + timedelta(seconds=cell.seconds) for cell in cells)
    axis = Axis(min(cell.start for cell in cells), last, max(int(cells[0].seconds), 1))
    height = len(shard_ids) * 26.0
    shapes: list[Child] = []
    for row, shard_id in enumerate(shard_ids):
        shapes.append(label(LEFT - 8, row * 26 + 16, short_id(shard_id), "end"))
        for cell in (cell for cell in cells if cell.shard_id == shard_id):
            x1, x2 = axis.x(cell.start), axis.x(cell.start + timedelta(seconds=cell.seconds))
            at, bottom = row * 26.0 + 2, row * 26.0 + 22
            there = [(getattr(cell, name), *about) for name, *about in AUDIT_OUTCOMES if getattr(cell, name)]
            counts = ", ".join(f"{number(count)} {text}" for count, text, _ in there)
            tip = f"{short_id(shard_id)} {cell.start:%Y-%m-%d %H:%M:%S}: {counts}"
            # One missing user record of thousands must be visible, too; the page says so.
            highs = {css: max(20 * count / cell.user_records, LEAST_HIGH) for count, _, css in there}
            if "fill" in highs:
                highs["fill"] = max(20 - sum(high for css, high in highs.items() if css != "fill"), 0)
            for css, high in highs.items():
                shapes.append(rect(x1, at, x2 - x1, min(high, bottom - at), css, tip))
                at = min(at + high, bottom)
    missing = sum(cell.missing for cell in cells)
    name = f"{plural(missing, 'missing user record')} on {plural(len(shard_ids), 'shard')}"
    return picture(height + 44, name, axis.draw(0, height), shapes)


#: The most shards that are drawn one by one.
MOST_BOXES = 100
#: The most cells of the chart; how many rows the hash key space has if shards are not drawn one by one.
_MAX_CELLS, _ROWS = 4000, 64
_TOP = 8.0

#: A row of the chart: its name, where it begins and ends.
_Place = tuple[str, float, float]


def shard_map(report: Report) -> Svg | None:
    """Hash keys from top to bottom, time from left to right; None where no shard has a range, or no time is
    known. A shard is a box for as long as it was open, filled with what arrived on it. Where boxes would be
    too small to see (more than `MOST_BOXES` shards) the key space is cut into equal rows instead."""
    shards = [shard for shard in report.shards if shard.start is not None and shard.end is not None]
    axis = time_axis(report, max(8, min(96, _MAX_CELLS // max(1, min(len(shards), _ROWS)))))
    if not shards or axis is None:
        return None
    open_count = sum(1 for shard in shards if shard.state == "open") or len(shards)
    height = float(min(620, max(180, 26 * open_count)))
    few = len(shards) <= MOST_BOXES
    if few:
        places = {one.shard_id: [((one.shard_id, *_keys_y(one, height)), 1.0)] for one in shards}
    else:
        places = _rows(shards, height)
    summed: dict[tuple[_Place, int], Cell] = defaultdict(Cell)
    for arrived in report.cells:
        for place, part in places.get(arrived.shard_id or "", ()):
            summed[place, axis.column_of(arrived.start)].add(arrived, part)
    most = max((cell.user_records for cell in summed.values()), default=0)
    cells: list[Child] = []
    for ((name, y1, y2), column), cell in summed.items():
        tip = f"{name}, {axis.begin(column):%Y-%m-%d %H:%M:%S}: {cell.text()}"
        # The class of the colour, q0 (nothing) to q8, by the square root: small numbers stay visible beside
        # large ones.
        level = max(1, ceil(8 * sqrt(cell.user_records / most))) if cell.user_records else 0
        x1, x2 = axis.edges(column)
        cells.append(_box(x1, y2, x2 - x1, y2 - y1, f"q{level}", cell.lost, tip, 3))
    name = f"{plural(len(shards), 'shard')} over time, by hash key range; a table of the shards follows"
    ground = rect(LEFT, _TOP, INNER, height, "shard")
    shapes = _boxes(shards, axis, height, cells) if few else [ground, *cells]
    return picture(_TOP + height + 44, name, axis.draw(_TOP, _TOP + height), shapes, _key_axis(height))


def _rows(shards: Sequence[ShardFacts], height: float) -> dict[str, list[tuple[_Place, float]]]:
    """The key space in equal rows. The counts of a shard are divided evenly among the rows that its range
    covers."""
    parts: dict[str, list[tuple[int, float]]] = {}
    for shard in shards:
        start, end = (edge * _ROWS / KEY_SPACE for edge in (shard.start or 0, (shard.end or 0) + 1))
        rows = range(int(start), min(ceil(end), _ROWS))
        parts[shard.shard_id] = [(row, (min(end, row + 1) - max(start, row)) / (end - start)) for row in rows]
    shards_in_row = Counter(row for weights in parts.values() for row, _ in weights)
    tall = height / _ROWS
    places = [
        (plural(shards_in_row[row], "shard"), _TOP + tall * row, _TOP + tall * (row + 1))
        for row in range(_ROWS)
    ]
    return {shard_id: [(places[row], part) for row, part in weights] for shard_id, weights in parts.items()}


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
    end = axis.last if shard.state == "open" else shard.closed or shard.last_arrival or axis.last
    if shard.first_arrival is not None and shard.last_arrival is not None:
        begin = min(begin, shard.first_arrival)
        end = max(end, shard.last_arrival)
    return axis.x(begin), max(axis.x(end), axis.x(begin) + 2)


def _keys_y(shard: ShardFacts, height: float) -> tuple[float, float]:
    start, end = shard.start or 0, shard.end or 0
    y1, y2 = _TOP + height * (start / KEY_SPACE), _TOP + height * ((end + 1) / KEY_SPACE)
    return y1, max(y2, y1 + 1)


def _key_axis(height: float) -> Svg:
    shapes: list[Child] = []
    marks = ((0, 9, "hash key 0"), (0.25, 4, "1/4"), (0.5, 4, "1/2"), (0.75, 4, "3/4"), (1, 0, "2^128 - 1"))
    for at, below, name in marks:
        y = _TOP + height * at
        shapes += [line(LEFT - 5, y, LEFT, y, "tick"), label(LEFT - 9, y + below, name, "end")]
    return join(shapes)
