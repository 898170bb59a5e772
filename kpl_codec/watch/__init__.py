"""Watches a stream: reports what is wrong with it now. The first eight
modules have no clock and no network.

    `watch`      which shards to read, whose call is next, what the answers mean
    `shard_readers`    how one shard is read, sampled or whole, and what that may cost
    `sliding_window`   findings with estimates, from the records of each sample
    `record_checks`    Kinesis records -> faults, kinds of writers    `hot_keys`    hot keys and skewed shards
    `checkpoint`       what is kept between two runs                  `estimates`   what a sample says of the
    whole
    `measures`         the metrics
    `stream_watcher`   the calls, the clock and the threads
    `exporter`         where a watch reports: `terminal_exporter`, `status_page`, `metric_exporters`

Specification: spec/10-watch.md.
"""

from .checkpoint import Checkpoint, KeptStateError
from .record_checks import SampleSlot
from .shard_readers import Limits, ShardCall
from .sliding_window import LastHour, WatchFinding
from .watch import Watch

__all__ = [
    "Checkpoint",
    "KeptStateError",
    "LastHour",
    "Limits",
    "SampleSlot",
    "ShardCall",
    "Watch",
    "WatchFinding",
]
