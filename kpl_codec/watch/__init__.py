"""Watches a stream, and reports what is wrong with it now. Modules above the line have no clock and network.

    `watch`            which shards to read, which call is next, what the responses mean
    `shard_readers`    how one shard is read, sampled or whole, and how many calls and bytes that may take
    `record_checks`    Kinesis records -> faults, kinds of writers
    `estimates`        how much was lost in all, from a sample; hot keys and skewed shards
    `sliding_window`   the last hour: findings with estimates, from the records of each poll
    `watch_metrics`    the metrics
    ---
    `stream_watcher`   the calls, the clock and the threads
    `exporters`        where a watch reports: terminal, webhook, metrics; also `status_page`

Specification: spec/10-watch.md.
"""

from .record_checks import SampleSlot
from .shard_readers import Limits, ShardCall
from .sliding_window import LastHour, WatchFinding
from .watch import Watch

__all__ = ["LastHour", "Limits", "SampleSlot", "ShardCall", "Watch", "WatchFinding"]
