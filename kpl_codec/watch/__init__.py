"""Watches a stream: reports what is wrong with it now. Sans-I/O.

    `watch`      which shards to read, whose call is next, what the answers mean
    `reading`    how one shard is read: sampled, or whole      `budget`     what watching costs
    `last_hour`  findings with estimates, from the records of each look
    `judging`    Kinesis records -> faults, kinds of writers   `uneven`     hot keys and skewed shards
    `findings`   one finding as value, JSON, text              `estimates`  what a sample says of the whole
    `kept`       what is counted and kept between two runs     `measures`   the metrics

Specification: spec/10-watch.md.
"""

from .budget import Cost, Limits
from .estimates import Estimate
from .findings import WatchFinding
from .judging import Look
from .kept import Kept, KeptStateError
from .last_hour import LastHour
from .reading import Call
from .watch import Watch

__all__ = [
    "Call",
    "Cost",
    "Estimate",
    "Kept",
    "KeptStateError",
    "LastHour",
    "Limits",
    "Look",
    "Watch",
    "WatchFinding",
]
