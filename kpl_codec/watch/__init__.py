"""Watches a stream: reports what is wrong with it now. Sans-I/O.

    `watch`      which shards to read, whose call is next, what the answers mean
    `reading`    how one shard is read, sampled or whole, and what that may cost
    `last_hour`  findings with estimates, from the records of each look
    `judging`    Kinesis records -> faults, kinds of writers   `uneven`     hot keys and skewed shards
    `kept`       what is counted and kept between two runs     `estimates`  what a sample says of the whole
    `measures`   the metrics

Specification: spec/10-watch.md.
"""

from .checkpoint import Checkpoint, KeptStateError
from .record_checks import SampleSlot
from .shard_readers import Limits, ShardCall
from .sliding_window import LastHour, WatchFinding
from .watch import Watch

__all__ = [
    "ShardCall",
    "Checkpoint",
    "KeptStateError",
    "LastHour",
    "Limits",
    "SampleSlot",
    "Watch",
    "WatchFinding",
]
