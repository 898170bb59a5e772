"""The pictures of README, of the site and of the guide on how records get lost, in `spec/pictures`.

`python -m tests.site.picture` runs `kpl-codec demo`, which takes ten seconds, and makes

    demo.json, demo.svg   its user records by producer: how many were put, how many a KCL consumer gets
    aggregates.svg        where the user records of three aggregates belong; from no run
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kpl_codec as kpl
from kpl_codec.cli.main import main as kpl_codec
from kpl_codec.rendering.svg import Child, Svg, element, join, label, rect

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "spec/pictures"
COUNTS, PICTURE = FOLDER / "demo.json", FOLDER / "demo.svg"
AGGREGATES = FOLDER / "aggregates.svg"

#: The demo's producers from top to bottom: name, what it does.
PRODUCERS = {
    "kpl_codec.producer.Producer": ("kpl_codec", "aggregates per shard, follows the split"),
    "aws_kinesis_agg/shard": ("aws_kinesis_agg", "aggregates per shard, misses the split"),
    "aws_kinesis_agg": ("aws_kinesis_agg", "aggregates across shards"),
}
#: Width and height in the units of all coordinates; a left column of names, ribbons, a right column of texts.
WIDTH, HEIGHT = 720, 255
LEFT, RIGHT, BAR = 290.0, 524.0, 10.0
TOP, UNIT = 54.0, 0.045  # UNIT: height of one user record
GAP = 12.0

#: Colours for a light and a dark page. The picture brings its own ground: a page's scheme may be another.
STYLE = """
svg { font: 15px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif }
.ground { fill: #fff; stroke: #d5d9e0 } text { fill: #1d2433 } .faint { fill: #5a6478; font-size: 13px }
.strong { font-weight: 600 } .number { font-size: 22px; font-weight: 600 }
.kept { fill: #2f6fb5 } .lost { fill: #c8372d } text.lost { fill: #b3261e }
.ribbon { opacity: .3 } .box { fill: none; stroke: #8b93a3 }
.landed { fill: #e8eef7; stroke: #2f6fb5; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
  .ground { fill: #161b24; stroke: #343c4b } text { fill: #e6e9ef } .faint { fill: #a3adbf }
  .kept { fill: #6aa9ee } .lost { fill: #ff7a6e } text.lost { fill: #ff8f85 }
  .landed { fill: #1d2a3d; stroke: #6aa9ee }
}
"""


def count(results: Path) -> dict[str, dict[str, int]]:
    """User records by producer: ``put``, and ``delivered`` by the KCL, each once. ``results``: the demo's."""
    import pyarrow.dataset as ds

    rows = ds.dataset(results / "user-records").to_table(columns=["data", "kcl"]).to_pylist()
    orders = {
        (order["writer"], order["n"], row["kcl"]) for row in rows for order in [json.loads(row["data"])]
    }
    put = Counter(writer for writer, _ in {(writer, number) for writer, number, _ in orders})
    delivered = Counter(writer for writer, _, kcl in orders if kcl == "delivered")
    return {name: {"put": put[name], "delivered": delivered[name]} for name in PRODUCERS}


def _ribbon(y: float, other: float, height: float, css: str) -> Svg:
    """A band from a producer's bar at ``y`` to the consumer's at ``other``."""
    left, right = LEFT + BAR, RIGHT
    middle = (left + right) / 2
    below, landing = y + height, other + height
    path = f"M{left:g} {y:g}C{middle:g} {y:g} {middle:g} {other:g} {right:g} {other:g}V{landing:g}"
    path += f"C{middle:g} {landing:g} {middle:g} {below:g} {left:g} {below:g}Z"
    return element("path", {"d": path, "class": f"{css} ribbon"})


def draw(counts: dict[str, dict[str, int]]) -> Svg:
    """The picture. ``counts``: as `count` gives them."""
    put = sum(one["put"] for one in counts.values())
    delivered = sum(one["delivered"] for one in counts.values())
    lost = put - delivered
    # What is delivered ends at the top right, what is lost below it.
    tops = {"kept": TOP, "lost": TOP + delivered * UNIT + 3 * GAP}
    after = dict(tops)
    drawn: list[Child] = []
    y = TOP
    for name, (title, manner) in PRODUCERS.items():
        whole = counts[name]["put"] * UNIT
        parts = {"kept": counts[name]["delivered"], "lost": counts[name]["put"] - counts[name]["delivered"]}
        at = y
        for css, records in parts.items():
            if records:
                height = records * UNIT
                drawn += [rect(LEFT, at, BAR, height, css), _ribbon(at, after[css], height, css)]
                at += height
                after[css] += height
        middle = y + whole / 2
        drawn += [
            label(LEFT - 10, middle - 2, title, "end", "strong"),
            label(LEFT - 10, middle + 15, manner, "end", "faint"),
        ]
        y += whole + GAP
    for css, records, text in (("kept", delivered, "delivered"), ("lost", lost, "dropped silently")):
        middle = tops[css] + records * UNIT / 2
        drawn += [
            rect(RIGHT, tops[css], BAR, records * UNIT, css),
            label(RIGHT + 22, middle, f"{records:,}", css="number" if css == "kept" else "number lost"),
            label(RIGHT + 22, middle + 19, text, css="faint"),
        ]
    said = f"Three producers put {put:,} user records; a KCL consumer gets {delivered:,} and drops {lost:,}."
    middle = (LEFT + BAR + RIGHT) / 2
    return _card(
        said,
        HEIGHT,
        label(LEFT + BAR, 30, f"{put:,} user records put", "end", "strong"),
        label(RIGHT, 30, "a KCL consumer gets", css="strong"),
        label(middle, HEIGHT - 14, "the stream: four shards, then one is split", "middle", "faint"),
        join(drawn),
    )


def _card(said: str, height: float, *children: Child) -> Svg:
    """A picture of its own with a ground and its style. ``said``: what it shows, for who cannot see it."""
    attributes = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {WIDTH} {height:g}", "role": "img"}
    return element(
        "svg",
        {**attributes, "width": WIDTH, "height": height, "aria-label": said},
        element("title", {}, said),
        element("style", {}, Svg(STYLE)),
        rect(0.5, 0.5, WIDTH - 1, height - 1, "ground"),
        *children,
    )


#: Partition keys of the aggregates that `draw_aggregates` shows.
KEYS = [f"customer-{number}" for number in range(1, 9)]


def draw_aggregates() -> Svg:
    """Three aggregates over the hash keys: across shards, within one, and the same after that one is split.

    Where each user record belongs, and what the KCL does with the aggregate, is what `kpl.deaggregate` says.
    """
    halves = kpl.ALL_HASH_KEYS.split(2)
    own = [key for key in (f"customer-{n}" for n in range(1, 40)) if kpl.effective_hash_key(key) in halves[0]]
    # Kinesis names the two children of shard 0 of two shards 2 and 3.
    split = dict(zip((2, 3, 1), [*halves[0].split(2), halves[1]], strict=True))
    rows = [
        ("One aggregator for all shards", dict(enumerate(halves)), KEYS),
        ("One aggregator for each shard", dict(enumerate(halves)), own[: len(KEYS)]),
        ("The same after shard 0 was split", split, own[: len(KEYS)]),
    ]
    drawn = [_aggregate(20 + 100 * row, *one) for row, one in enumerate(rows)]
    said = "An aggregate whose user records belong to several shards is dropped whole, by a KCL consumer"
    return _card(said, 20 + 100 * len(rows), *drawn)


def _aggregate(top: float, title: str, ranges: Mapping[int, kpl.HashKeyRange], keys: list[str]) -> Svg:
    """One row: the shards as boxes, the user records as dots at their hash keys; what becomes of them.
    ``ranges``: by the number of the shard."""
    shards = [kpl.Shard(f"shardId-{number:012}", one) for number, one in ranges.items()]
    shard_map = kpl.ShardMap(shards)
    # Like every aggregator of this kind: the first user record's key decides on the shard.
    landed = shard_map.shard_for(kpl.effective_hash_key(keys[0]))
    data = kpl.encode([kpl.UserRecord(key, b"") for key in keys])
    record = kpl.KinesisRecord(keys[0], data, "1", landed.shard_id)
    users = list(kpl.deaggregate([record], "report", shard_map=shard_map))
    lost = sum(user.kcl == "dropped" for user in users)
    became = f"the KCL drops all {lost}" if lost else f"the KCL delivers all {len(users)}"
    left, scale = 24.0, (WIDTH - 48) / 2**128
    drawn: list[Child] = [
        label(left, top + 14, title, css="strong"),
        label(WIDTH - left, top + 14, became, "end", "lost" if lost else "faint"),
    ]
    for shard in shards:
        x, wide = left + shard.hash_key_range.starting_hash_key * scale, shard.hash_key_range.size * scale
        drawn.append(rect(x + 1, top + 26, wide - 2, 44, "landed" if shard is landed else "box"))
        drawn.append(label(x + 8, top + 43, f"shard {int(shard.shard_id[-12:])}", css="faint"))
    for user in users:
        x = left + kpl.effective_hash_key(user.partition_key or "") * scale
        drawn.append(
            element("circle", {"cx": x, "cy": top + 58, "r": 5.5, "class": "lost" if lost else "kept"})
        )
    return join(drawn)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="kpl-codec-picture-") as name:
        folder = Path(name) / "demo"
        if status := kpl_codec(["demo", "--output", str(folder)]):
            return status
        counts: dict[str, Any] = count(folder)
    COUNTS.write_text(json.dumps(counts, indent=2) + "\n")
    AGGREGATES.write_text(draw_aggregates() + "\n")
    PICTURE.write_text(draw(counts) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
