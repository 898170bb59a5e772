"""The pictures of the page, as inline SVG: colours come from the style sheet (classes), so that they
follow light and dark; whatever colour says is also said by a pattern, a text or the table beside it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from math import ceil, log10, sqrt

from .markup import Child, Markup, join, tag
from .model import RateCell, Report, ShardFacts
from .summary import number, percent, plural, size

#: Width of all pictures in their own units; they scale to the page.
WIDTH = 960
_LEFT, _RIGHT = 96.0, 12.0
_INNER = WIDTH - _LEFT - _RIGHT
#: Levels of the colour scale, and cells of the time picture at most.
_LEVELS = 8
_MAX_CELLS = 4000
_KEYS = 2**128


def picture(height: float, label: str, *children: Child, fit: str = "xMidYMin meet") -> Markup:
    """An SVG with a name for those who do not see it."""
    return tag(
        "svg",
        {
            "viewBox": f"0 0 {WIDTH} {height:g}",
            "role": "img",
            "aria-label": label,
            "preserveAspectRatio": fit,
        },
        *children,
    )


def _f(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def rect(x: float, y: float, width: float, height: float, css: str, *children: Child) -> Markup:
    where = {"x": _f(x), "y": _f(y), "width": _f(max(width, 0)), "height": _f(max(height, 0)), "class": css}
    return tag("rect", where, *children)


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> Markup:
    return tag("line", {"x1": _f(x1), "y1": _f(y1), "x2": _f(x2), "y2": _f(y2), "class": css})


def label(x: float, y: float, value: str, anchor: str = "start", css: str = "axis") -> Markup:
    return tag("text", {"x": _f(x), "y": _f(y), "text-anchor": anchor, "class": css}, value)


def bar(part: float, whole: float, lost: float = 0) -> Markup:
    """A small bar for a table cell: ``part`` of ``whole``, of which ``lost`` is hatched."""
    wide = 100 * part / whole if whole else 0
    gone = 100 * lost / whole if whole else 0
    return tag(
        "svg",
        {"class": "bar", "viewBox": "0 0 100 10", "preserveAspectRatio": "none", "aria-hidden": "true"},
        rect(0, 0, 100, 10, "track"),
        rect(0, 0, max(wide, 0.6 if part else 0), 10, "fill"),
        rect(0, 0, max(gone, 0.6), 10, "lost") if lost else None,
    )


def patterns() -> Markup:
    """Definitions that all pictures of the page use."""
    hatch = tag(
        "pattern",
        {"id": "hatch", "width": "6", "height": "6", "patternUnits": "userSpaceOnUse",
         "patternTransform": "rotate(45)"},
        tag("rect", {"width": "6", "height": "6", "class": "hatch-ground"}),
        tag("rect", {"width": "2.5", "height": "6", "class": "hatch-line"}),
    )  # fmt: skip
    return tag(
        "svg", {"class": "hidden", "width": "0", "height": "0", "aria-hidden": "true"}, tag("defs", {}, hatch)
    )


# -- time ------------------------------------------------------------------------------------------

_STEPS = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
)  # fmt: skip


def _ticks(first: datetime, last: datetime, count: int = 6) -> tuple[list[datetime], str]:
    """About ``count`` round times in a span, and how to write them."""
    span = max((last - first).total_seconds(), 1)
    step = next((s for s in _STEPS if span / s <= count), 604800 * ceil(span / 604800 / count))
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 43200 else "%m-%d"
    start = first.timestamp()
    at = ceil(start / step) * step
    times: list[datetime] = []
    while at <= last.timestamp() and len(times) < 2 * count:
        times.append(datetime.fromtimestamp(at, timezone.utc))
        at += step
    return times, form


def seconds_text(seconds: float) -> str:
    """A span for people: 90 -> 1.5 min."""
    for unit, name in ((604800, "weeks"), (86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit or seconds == unit:
            return (
                f"{seconds / unit:g} {name}" if (seconds / unit) % 1 == 0 else f"{seconds / unit:.1f} {name}"
            )
    return f"{seconds:g} s"


class Axis:
    """Time from left to right. ``column`` seconds is what one column of cells covers."""

    def __init__(self, first: datetime, last: datetime, column: int) -> None:
        self.first, self.last, self.column = first, last, column
        self.span = max((last - first).total_seconds(), 1.0)

    def x(self, time: datetime) -> float:
        return _LEFT + _INNER * min(max((time - self.first).total_seconds() / self.span, 0), 1)

    def draw(self, top: float, bottom: float) -> Markup:
        times, form = _ticks(self.first, self.last)
        return join(
            [line(self.x(time), top, self.x(time), bottom + 4, "grid") for time in times],
            [
                label(self.x(time), bottom + 18, time.strftime(form), _anchor(self.x(time)), "axis")
                for time in times
            ],
            label(_LEFT, bottom + 36, f"{self.first:%Y-%m-%d %H:%M:%S} UTC", "start", "axis faint"),
            label(WIDTH - _RIGHT, bottom + 36, f"{self.last:%Y-%m-%d %H:%M:%S} UTC", "end", "axis faint"),
        )


def _anchor(x: float) -> str:
    return "start" if x < _LEFT + 30 else "end" if x > WIDTH - _RIGHT - 30 else "middle"


def time_axis(report: Report, columns: int) -> Axis | None:
    """From the first to the last bucket, in at most ``columns`` columns; None if no time is known."""
    if not report.rate:
        return None
    first, last = report.rate[0].start, report.rate[-1].start
    column = report.bucket_seconds
    buckets = int((last - first).total_seconds()) // column + 1
    column *= ceil(buckets / columns)
    with suppress(OverflowError):
        last += timedelta(seconds=report.bucket_seconds)
    return Axis(first, last, column)


def _columns(cells: Sequence[RateCell], axis: Axis) -> dict[tuple[str | None, int], list[int]]:
    """User records, bytes, dropped by shard and column."""
    summed: dict[tuple[str | None, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for cell in cells:
        into = summed[cell.shard_id, int((cell.start - axis.first).total_seconds()) // axis.column]
        into[0] += cell.user_records
        into[1] += cell.bytes
        into[2] += cell.dropped
    return summed


def _level(value: float, most: float) -> int:
    """1 to _LEVELS by square root: small things stay visible beside large ones."""
    return max(1, ceil(_LEVELS * sqrt(value / most))) if value and most else 0


# -- the shard map over time -----------------------------------------------------------------------


def shard_map(report: Report) -> Markup | None:
    """Hash keys from top to bottom, time from left to right: every shard as a box for as long as it was
    open, filled with what arrived on it."""
    shards = [shard for shard in report.shards if shard.start is not None and shard.end is not None]
    if not shards:
        return None
    leaves = [shard for shard in shards if shard.open] or shards
    height = min(620, max(180, 26 * len(leaves)))
    top, bottom = 8, 8 + height
    axis = time_axis(report, max(8, min(96, _MAX_CELLS // len(shards))))
    if axis is None:
        return _by_generation(shards, top, height)
    spans = {shard.shard_id: _span(shard, axis) for shard in shards}
    summed = _columns(report.rate, axis)
    most = max((cell[0] for cell in summed.values()), default=0)
    drawn: list[Child] = [axis.draw(top, bottom)]
    cells: list[Child] = []
    for shard in shards:
        x1, x2 = spans[shard.shard_id]
        y1, y2 = _keys_y(shard, top, height)
        drawn.append(rect(x1, y1, x2 - x1, y2 - y1, "shard"))
        for column in range(int(axis.span // axis.column) + 1):
            found = summed.get((shard.shard_id, column))
            if found is None:
                continue
            left = axis.x(axis.first + timedelta(seconds=column * axis.column))
            right = axis.x(_after(axis, column))
            what = (
                f"{shard.shard_id}, {axis.first + timedelta(seconds=column * axis.column):%H:%M:%S}: "
                f"{plural(found[0], 'user record')}, {size(found[1])}"
                + (f", the KCL loses {number(found[2])}" if found[2] else "")
            )
            cells.append(
                rect(left, y1, right - left, y2 - y1, f"q{_level(found[0], most)}", tag("title", {}, what))
            )
            if found[2]:
                gone = (y2 - y1) * found[2] / found[0]
                cells.append(rect(left, y2 - gone, right - left, gone, "lost", tag("title", {}, what)))
    boxes: list[Child] = []
    for shard in shards:
        x1, x2 = spans[shard.shard_id]
        y1, y2 = _keys_y(shard, top, height)
        boxes.append(rect(x1, y1, x2 - x1, y2 - y1, "shard-edge"))
        name = _short(shard.shard_id)
        if y2 - y1 >= 15 and x2 - x1 >= 8 * len(name) + 8:
            boxes.append(rect(x1 + 2, y1 + 2, 7.2 * len(name) + 7, 15, "plate"))
            boxes.append(label(x1 + 5, y1 + 13.5, name, css="name"))
    said = f"{plural(len(shards), 'shard')} over time, by hash key range; a table of the shards follows"
    return picture(bottom + 44, said, drawn, cells, boxes, _key_axis(top, height))


def _after(axis: Axis, column: int) -> datetime:
    try:
        return axis.first + timedelta(seconds=(column + 1) * axis.column)
    except OverflowError:
        return axis.last


def _span(shard: ShardFacts, axis: Axis) -> tuple[float, float]:
    """Where the box of a shard begins and ends: when it was open, widened to what arrived on it."""
    begin = shard.opened or (axis.first if shard.generation == 0 else shard.first_arrival or axis.first)
    end = axis.last if shard.open else shard.closed or shard.last_arrival or axis.last
    if shard.first_arrival is not None and shard.last_arrival is not None:
        begin = min(begin, shard.first_arrival)
        end = max(end, shard.last_arrival)
    return axis.x(begin), max(axis.x(end), axis.x(begin) + 2)


def _keys_y(shard: ShardFacts, top: float, height: float) -> tuple[float, float]:
    start, end = shard.start or 0, shard.end or 0
    y1, y2 = top + height * (start / _KEYS), top + height * ((end + 1) / _KEYS)
    return y1, max(y2, y1 + 1)


def _key_axis(top: float, height: float) -> Markup:
    marks = ((0, "hash key 0"), (0.25, "1/4"), (0.5, "1/2"), (0.75, "3/4"), (1, "2^128 - 1"))
    return join(
        [
            (
                line(_LEFT - 5, top + height * at, _LEFT, top + height * at, "tick"),
                label(_LEFT - 9, top + height * at + (9 if at == 0 else 0 if at == 1 else 4), name, "end"),
            )
            for at, name in marks
        ]
    )


def _by_generation(shards: Sequence[ShardFacts], top: float, height: float) -> Markup:
    """Without times: one column for each reshard."""
    generations = max(shard.generation for shard in shards) + 1
    wide = _INNER / generations
    drawn: list[Child] = []
    most = max((shard.user_records for shard in shards), default=0)
    for shard in shards:
        y1, y2 = _keys_y(shard, top, height)
        x1 = _LEFT + wide * shard.generation
        x2 = WIDTH - _RIGHT if shard.open else x1 + wide
        what = f"{shard.shard_id}: {plural(shard.user_records, 'user record')}"
        drawn.append(rect(x1, y1, x2 - x1, y2 - y1, "shard"))
        level = _level(shard.user_records, most)
        drawn.append(rect(x1, y1, x2 - x1, y2 - y1, f"shard-edge q{level}", tag("title", {}, what)))
        if y2 - y1 >= 15 and x2 - x1 > 100:
            name = _short(shard.shard_id)
            drawn.append(rect(x1 + 2, y1 + 2, 7.2 * len(name) + 7, 15, "plate"))
            drawn.append(label(x1 + 5, y1 + 13.5, name, css="name"))
    said = f"{plural(len(shards), 'shard')} by reshard and hash key range; no times are known"
    return picture(top + height + 12, said, drawn, _key_axis(top, height))


def _short(shard_id: str) -> str:
    """shardId-000000000012 -> shard 12; other names as they are, cut short."""
    head, _, digits = shard_id.partition("-")
    if head == "shardId" and digits.isascii() and digits.isdigit():
        return f"shard {int(digits)}" if len(digits) < 15 else shard_id[:16]
    return shard_id[:16]


# -- rate ------------------------------------------------------------------------------------------


def rate(report: Report) -> Markup | None:
    """User records a second over time, and how many of them the KCL loses."""
    axis = time_axis(report, 160)
    if axis is None:
        return None
    columns: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for (_, column), cell in _columns(report.rate, axis).items():
        for index, value in enumerate(cell):
            columns[column][index] += value
    most = max(cell[0] for cell in columns.values()) / axis.column
    ceiling, marks = _scale(most)
    top, height = 8.0, 190.0
    drawn: list[Child] = [axis.draw(top, top + height)]
    for mark in marks:
        y = top + height * (1 - mark / ceiling)
        drawn += [line(_LEFT, y, WIDTH - _RIGHT, y, "grid"), label(_LEFT - 9, y + 4, f"{mark:g}/s", "end")]
    for column, (count, weight, lost) in sorted(columns.items()):
        left = axis.x(axis.first + timedelta(seconds=column * axis.column))
        right = axis.x(_after(axis, column))
        tall = height * count / axis.column / ceiling
        what = tag(
            "title",
            {},
            f"{axis.first + timedelta(seconds=column * axis.column):%Y-%m-%d %H:%M:%S}: "
            f"{plural(count, 'user record')} in {seconds_text(axis.column)}, {size(weight)}"
            + (f", the KCL loses {number(lost)}" if lost else ""),
        )
        gap = 0.6 if right - left > 3 else 0
        drawn.append(rect(left, top + height - tall, right - left - gap, tall, "fill", what))
        if lost:
            gone = tall * lost / count
            drawn.append(rect(left, top + height - gone, right - left - gap, gone, "lost", what))
    said = f"User records a second over time; at most {most:,.1f}"
    return picture(top + height + 44, said, drawn)


def _scale(most: float) -> tuple[float, list[float]]:
    """A round ceiling at or above ``most``, and the values to mark."""
    if most <= 0:
        return 1.0, [0, 1]
    step = 10 ** ceil(log10(most / 4) - 1e-9)
    for finer in (step / 5, step / 2, step):
        if most / finer <= 5:
            step = finer
            break
    count = ceil(most / step - 1e-9)
    return step * count, [step * index for index in range(count + 1)]


# -- the key space ---------------------------------------------------------------------------------


def key_space(report: Report) -> Markup | None:
    """User records over the hash key space in 256 slots, with the ranges of the open shards below."""
    total = sum(count for count, _ in report.key_space)
    if not total:
        return None
    most = max(count for count, _ in report.key_space)
    top, height = 8.0, 160.0
    slot = _INNER / len(report.key_space)
    mean = total / len(report.key_space)
    drawn: list[Child] = []
    for index, (count, misplaced) in enumerate(report.key_space):
        if not count:
            continue
        tall = height * count / most
        what = tag(
            "title",
            {},
            f"hash keys {index:02x}...: {plural(count, 'user record')} ({percent(count, total)})"
            + (f", {number(misplaced)} misplaced" if misplaced else ""),
        )
        x = _LEFT + slot * index
        drawn.append(rect(x, top + height - tall, slot - 0.4, tall, "fill", what))
        if misplaced:
            gone = tall * misplaced / count
            drawn.append(rect(x, top + height - gone, slot - 0.4, gone, "lost", what))
    y = top + height * (1 - mean / most)
    drawn += [line(_LEFT, y, WIDTH - _RIGHT, y, "mean"), label(_LEFT - 9, y + 4, f"mean {mean:,.1f}", "end")]
    if y > top + 14:
        drawn.append(label(_LEFT - 9, top + 6, f"most {number(most)}", "end"))
    below = top + height + 6
    opened = [shard for shard in report.shards if shard.open]
    for shard in opened:
        x1 = _LEFT + _INNER * ((shard.start or 0) / _KEYS)
        x2 = _LEFT + _INNER * (((shard.end or 0) + 1) / _KEYS)
        drawn.append(line(x2, top, x2, below + 20, "grid"))
        drawn.append(rect(x1, below, x2 - x1, 20, "shard-edge shard", tag("title", {}, shard.shard_id)))
        if x2 - x1 > 64:
            drawn.append(label((x1 + x2) / 2, below + 14, _short(shard.shard_id), "middle", "name"))
    if opened:
        drawn.append(label(_LEFT - 9, below + 14, "open shards", "end"))
    said = f"{plural(total, 'user record')} over the hash key space; the fullest 1/256 has {number(most)}"
    return picture(below + 28, said, drawn)
