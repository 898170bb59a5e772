"""What Jupyter shows of a shard map, an explanation and an aggregated record: HTML with its own style.

Nothing in it loads or runs anything, and data is not shown.
"""

from __future__ import annotations

from html import escape
from typing import Any

from ..deaggregation.explanation import Explanation
from ..format.message import AggregatedRecord
from ..format.records import short
from ..shards.lineage import Lineage
from ..shards.shard_map import ShardMap
from .diagrams import key_space, timeline
from .drawing import Svg, element
from .labels import plural, safe_lines

#: How many shards, bytes' meanings and user records are shown one by one.
_MOST_SHARDS, _MOST_NODES, _MOST_RECORDS = 40, 100, 20
_WIDTH = 96
_PRE = "line-height:1.25;overflow-x:auto;background:none;color:inherit"


def html(value: Any) -> str:
    """HTML of ``value``: a shard map or lineage, an explanation, or an aggregated record."""
    if isinstance(value, Lineage):
        title, lines = _lineage(value)
    else:
        title, lines = _explanation(value) if isinstance(value, Explanation) else _aggregate(value)
    texts = (line if isinstance(line, Svg) else Svg(escape(safe_lines(line))) for line in lines)
    pre = element("pre", {"style": _PRE}, Svg("\n".join(texts)))
    return element("div", {}, element("strong", {}, title), pre)


def _lineage(lineage: Lineage) -> tuple[str, list[str]]:
    shards = list(lineage.values())
    opened = sum(shard.open for shard in shards)
    title = f"{type(lineage).__name__}: {plural(len(shards), 'shard')}, {opened} open"
    if lineage.distribution == "AUTO":
        title += "; the stream distributes records AUTO: keys do not decide the shard"
    pictures = [key_space(shards, _WIDTH)] if isinstance(lineage, ShardMap) else []
    if opened < len(shards) <= _MOST_SHARDS:
        pictures += ["", timeline(lineage, _WIDTH)]
    return title, pictures


def _explanation(explanation: Explanation) -> tuple[str, list[str | Svg]]:
    count = explanation.user_records
    title = f"{explanation.size:,} bytes: {explanation.kind}"
    title += f", {plural(count, 'user record')}" if count is not None else ""
    nodes = list(explanation.root.walk())
    lines: list[str | Svg] = [
        f"{node.start:>8} {node.end - node.start:>8}  {'  ' * depth}{node.name}  {node.value}".rstrip()
        for depth, node in nodes[:_MOST_NODES]
    ]
    rest = len(nodes) - len(lines) + explanation.omitted
    if rest:
        lines.append(f"... and {rest:,} more")
    for text, color in (("defect", "#d03030"), ("warning", "#b07000")):
        found = explanation.defects if text == "defect" else explanation.warnings
        style = {"style": f"color:{color}"}
        lines += [element("span", style, f"{text}: {one}") for one in found[:_MOST_NODES]]
    kcl = explanation.kcl
    fate = "hands it on unopened" if kcl.raw else f"delivers {kcl.delivered} of {kcl.total} user records"
    lines.append(f"the KCL {fate}" + (f" ({kcl.reason})" if kcl.reason else ""))
    return title, [*lines, f"writer: {explanation.writer}"]


def _aggregate(aggregate: AggregatedRecord) -> tuple[str, list[str]]:
    keys_of_all = plural(len(aggregate.partition_key_table), "partition key")
    title = f"AggregatedRecord: {plural(len(aggregate), 'user record')}, {keys_of_all}"
    row = "{:>6}  {:<34} {:<34} {:>7} {:>4}"
    lines = [row.format("number", "partition key", "explicit hash key", "bytes", "tags")]
    for number, record in enumerate(aggregate[:_MOST_RECORDS]):
        keys = short(record.partition_key), short(record.explicit_hash_key or "")
        lines.append(row.format(number, *keys, len(record.data), len(record.tags)))
    rest = len(aggregate) - _MOST_RECORDS
    return title, lines + ([f"... and {rest:,} more"] if rest > 0 else [])
