"""The sentinel: reports what is wrong with a live stream. Sans-I/O.

    `sentinel`    findings with estimates, from the records of each look
    `watch`       which shards to read, and what the answers mean
    `watched_shards`  where reading begins on each shard, and which slot comes next
    `call_queue`  whose call is next, within the budgets
    `kept`        what a watch knows, to be kept between two runs
    `judging`     Kinesis records -> faults       `findings`   kinds, and one finding as value, JSON, text
    `sampling`    which time is looked at         `estimates`  what a sample says of the whole
    `writers`     kinds of writers                `uneven`     hot keys and skewed shards
    `budget`      units per second                `heavy_hitters`  the most frequent keys

Specification: spec/10-sentinel.md.
"""

from .costs import Cost, Limits
from .estimates import Estimate, seconds_to_find
from .findings import KINDS, SEVERITIES, Finding
from .kept import Kept, KeptStateError
from .sentinel import Look, Sentinel
from .shard_watch import Call
from .watch import Watch

__all__ = [
    "KINDS",
    "SEVERITIES",
    "Call",
    "Cost",
    "Estimate",
    "Finding",
    "Kept",
    "KeptStateError",
    "Limits",
    "Look",
    "Sentinel",
    "Watch",
    "seconds_to_find",
]
