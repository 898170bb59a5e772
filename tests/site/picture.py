"""README's picture: what four producers put, and how much of it a KCL consumer gets.

`python -m tests.site.picture` runs `kpl-codec demo`, counts its results by producer into
`spec/pictures/demo.json`, and draws `spec/pictures/demo.svg` from that. It takes ten seconds.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from kpl_codec.cli.main import main as kpl_codec
from kpl_codec.rendering.svg import Child, Svg, element, join, label, rect

ROOT = Path(__file__).parents[2]
COUNTS = ROOT / "spec/pictures/demo.json"
PICTURE = ROOT / "spec/pictures/demo.svg"

#: The demo's producers from top to bottom: name, what it does.
PRODUCERS = {
    "plain": ("PutRecords", "no aggregates"),
    "kpl_codec.producer.Producer": ("kpl_codec", "aggregates per shard, follows the split"),
    "aws_kinesis_agg/shard": ("aws_kinesis_agg", "aggregates per shard, misses the split"),
    "aws_kinesis_agg": ("aws_kinesis_agg", "aggregates across shards"),
}
#: Width and height in the units of all coordinates; a left column of names, ribbons, a right column of texts.
WIDTH, HEIGHT = 720, 312
LEFT, RIGHT, BAR = 290.0, 524.0, 10.0
TOP, UNIT = 54.0, 0.045  # UNIT: height of one user record
GAP = 12.0

#: Colours for a light and a dark page. The picture brings its own ground: a page's scheme may be another.
STYLE = """
svg { font: 15px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif }
.ground { fill: #fff; stroke: #d5d9e0 } text { fill: #1d2433 } .faint { fill: #5a6478; font-size: 13px }
.strong { font-weight: 600 } .number { font-size: 22px; font-weight: 600 }
.kept { fill: #2f6fb5 } .lost { fill: #c8372d } text.lost { fill: #b3261e }
.ribbon { opacity: .3 }
@media (prefers-color-scheme: dark) {
  .ground { fill: #161b24; stroke: #343c4b } text { fill: #e6e9ef } .faint { fill: #a3adbf }
  .kept { fill: #6aa9ee } .lost { fill: #ff7a6e } text.lost { fill: #ff8f85 }
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
    said = f"Four producers put {put:,} user records; a KCL consumer gets {delivered:,} and drops {lost:,}."
    attributes = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "img"}
    return element(
        "svg",
        {**attributes, "width": WIDTH, "height": HEIGHT, "aria-label": said},
        element("title", {}, said),
        element("style", {}, Svg(STYLE)),
        rect(0.5, 0.5, WIDTH - 1, HEIGHT - 1, "ground"),
        label(LEFT + BAR, 30, f"{put:,} user records put", "end", "strong"),
        label(RIGHT, 30, "a KCL consumer gets", css="strong"),
        label(
            (LEFT + BAR + RIGHT) / 2,
            HEIGHT - 14,
            "the stream: four shards, then one is split",
            "middle",
            "faint",
        ),
        join(drawn),
    )


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="kpl-codec-picture-") as name:
        folder = Path(name) / "demo"
        if status := kpl_codec(["demo", "--output", str(folder)]):
            return status
        counts: dict[str, Any] = count(folder / "results")
    COUNTS.parent.mkdir(exist_ok=True)
    COUNTS.write_text(json.dumps(counts, indent=2) + "\n")
    PICTURE.write_text(draw(counts) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
