"""Watches a stream, and reports what is wrong with it now. Modules above the line have no clock and network.

    `watch`            decides which shards to read and which call is next, and reads the responses
    `shard_readers`    how one shard is read, sampled or whole, and how many calls and bytes that may take
    `record_checks`    finds the faults and the kinds of writers of Kinesis records
    `estimates`        estimates all lost user records from a sample; finds hot keys and skewed shards
    `sliding_window`   the last hour: findings with estimates, from the records of each poll
    `watch_metrics`    the metrics
    ---
    `stream_watcher`   makes the calls, and has the clock and the threads
    `exporters`        where a watch reports: terminal, JSON, metrics

Specification: spec/10-watch.md.
"""

from .record_checks import SampleSlot
from .shard_readers import Limits, ShardCall
from .sliding_window import LastHour, WatchFinding
from .watch import Watch

__all__ = ["LastHour", "Limits", "SampleSlot", "ShardCall", "Watch", "WatchFinding"]
