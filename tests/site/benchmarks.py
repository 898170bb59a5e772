"""The page of the benchmarks: charts of what `python -m tests.benchmarks --results FILE` wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kpl_codec.rendering.svg import Svg, element

#: Written by `COMMAND`.
RESULTS = Path(__file__).parents[2] / "spec/benchmarks.json"
COMMAND = "python -m tests.benchmarks --results spec/benchmarks.json"

#: Tasks of the page: heading, what is measured.
TASKS = {
    "objects": ("Decode into objects", "An object for each user record, all in memory at once."),
    "objects+placement": (
        "Decode, and check the shard of each",
        "The same with the hash key of each user record compared with its shard's range.",
    ),
    "columns": (
        "Decode into Arrow columns",
        "Nine columns; the others make objects, which they can only do.",
    ),
    "encode": ("Encode", "Aggregated records out of user records."),
}
CORPORA = {
    "a": "50 KiB, 100 B each, 512 keys",
    "b": "50 KiB, 100 B each, a key for each",
    "c": "50 KiB, 1 KB each, a key for each",
    "d": "1 MiB, 200 B each, 512 keys",
}
NAMES = {
    "kpl_codec": "kpl_codec, compiled",
    "kpl_codec (pure)": "kpl_codec, pure Python",
    "limit": "only MD5 and one copy",
    "aws_kinesis_agg": "aws_kinesis_agg",
    "aiokpl": "aiokpl",
    "async-kinesis": "async-kinesis",
    "npm": "aws-kinesis-agg (npm)",
    "KCL": "the KCL (Java)",
}
INTRODUCTION = """# Speed beside other implementations

CPU time of each, with that of kpl_codec as 1: a bar twice as long is twice as slow. The contenders are
processes that take turns, the median of their rounds counts, and what they make is compared before
anything is timed. Absolute times depend on the machine, ratios much less. async-kinesis does not check the
MD5, and gives data alone.

Measured on {date}: kpl_codec {version}{commit}, Python {python}, {machine}; {mib:g} MiB of each kind of
aggregated record, {rounds} rounds. To measure it again:

```sh
{command}
```
"""
END = """*Only MD5 and one copy* is the least that a decoder in Python can do, one MD5 at a time. More
tasks, memory, Spark and the KCL in Java are in `tests/benchmarks/README.md` of the source.
"""


def chart(seconds: dict[str, float], title: str) -> Svg:
    """A bar for each implementation: CPU time, with the compiled kpl_codec's as 1. Shorter is faster."""
    ours = seconds["kpl_codec"]
    ratios = {name: taken / ours for name, taken in sorted(seconds.items(), key=lambda item: item[1])}
    longest = max(ratios.values())
    rows = []
    for name, ratio in ratios.items():
        bar = {
            "class": "ours" if name == "kpl_codec" else None,
            "style": f"width: {75 * ratio / longest:.1f}%",
        }
        number = f"{ratio:.2g}" if ratio < 10 else f"{ratio:.0f}"
        rows += [element("dt", {}, NAMES.get(name, name)), element("dd", {}, element("i", bar, " "), number)]
    return element("dl", {"class": "chart", "aria-label": f"{title}: CPU time of each"}, rows)


def page(results: dict[str, Any]) -> str:
    """Markdown with a chart for each task and corpus, and the conditions of the run."""
    commit = f" ({results['commit']})" if "commit" in results else ""
    lines = [INTRODUCTION.format(command=COMMAND, **{**results, "commit": commit})]
    for task, (title, text) in TASKS.items():
        lines += [f"## {title}", "", text, ""]
        for one in results["measured"]:
            if one["task"] == task and one["corpus"] in CORPORA:
                name = CORPORA[one["corpus"]]
                lines += [
                    f"**Aggregated records of {name}**",
                    "",
                    chart(one["seconds"], f"{title}, {name}"),
                    "",
                ]
    lines.append(END)
    return "\n".join(lines)


def benchmark_page() -> str:
    return page(json.loads(RESULTS.read_text()))
