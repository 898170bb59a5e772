"""Makes the HTML that Jupyter shows for shard maps, explanations and records, with its own style.

The HTML loads and runs nothing, and shows no record data.
"""

from __future__ import annotations

from html import escape
from typing import Any

from ..deaggregation.deaggregated_record import DeaggregatedRecord
from ..deaggregation.explanation import Explanation
from ..format.message import AggregatedRecord
from ..format.records import KinesisRecord, short, shown_fields
from ..shards.lineage import Lineage
from ..shards.shard_map import ShardMap
from .diagrams import key_space, timeline
from .labels import plural, safe_lines
from .svg import Svg, element

#: The most shards for which a timeline is drawn; how many lines are shown of the beginning and of the end.
_MOST_SHARDS, _MOST_LINES = 40, 100
_WIDTH = 96
_PRE = "line-height:1.25;overflow-x:auto;background:none;color:inherit"


def html(value: Any) -> str:
    """HTML of ``value``: a shard map or lineage, an explanation, an aggregated record, a Kinesis record, or a
    user record of one."""
    text = _lineage(value) if isinstance(value, Lineage) else str(value)
    if isinstance(value, AggregatedRecord):
        text = _aggregate(value)
    if isinstance(value, (KinesisRecord, DeaggregatedRecord)):
        fields = shown_fields(value).items()
        text = "\n".join([type(value).__name__, *(f"{name:<30} {field}" for name, field in fields)])
    title, *lines = text.split("\n")
    if isinstance(value, Explanation):
        lines.insert(0, f"{'at':>8} {'bytes':>8}  field")
    if len(lines) > 2 * _MOST_LINES:
        lines[_MOST_LINES:-_MOST_LINES] = [f"... {len(lines) - 2 * _MOST_LINES:,} more, then ..."]
    pre = element("pre", {"style": _PRE}, Svg(escape(safe_lines("\n".join(lines)))))
    return element("div", {}, element("strong", {}, title), pre)


def _lineage(lineage: Lineage) -> str:
    shards = list(lineage.values())
    open_count = sum(shard.open for shard in shards)
    title = f"{type(lineage).__name__}: {plural(len(shards), 'shard')}, {open_count} open"
    if lineage.distribution == "AUTO":
        title += "; the stream distributes records AUTO: keys do not decide the shard"
    pictures = [key_space(shards, _WIDTH)] if isinstance(lineage, ShardMap) else []
    if open_count < len(shards) <= _MOST_SHARDS:
        pictures += ["", timeline(lineage, _WIDTH)]
    return "\n".join([title, *pictures])


def _aggregate(aggregate: AggregatedRecord) -> str:
    keys_of_all = plural(len(aggregate.partition_key_table), "partition key")
    row = "{:>6}  {:<34} {:<34} {:>7} {:>4}"
    lines = [f"AggregatedRecord: {plural(len(aggregate), 'user record')}, {keys_of_all}"]
    lines.append(row.format("number", "partition key", "explicit hash key", "bytes", "tags"))
    for number, record in enumerate(aggregate):
        explicit = "none" if record.explicit_hash_key is None else short(record.explicit_hash_key)
        keys = short(record.partition_key), explicit
        lines.append(row.format(number, *keys, len(record.data), len(record.tags)))
    return "\n".join(lines)
