"""The metrics of a watch, with the same names in every monitoring system: spec/10-watch.md, 10.4.

Counters count from the start of the process. Gauges are present values; gauges of losses are of the last
hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

from ..findings import SEVERITIES
from .sliding_window import LastHour
from .watch import Watch


class Metric(NamedTuple):
    kind: Literal["counter", "gauge"]
    meaning: str


METRICS: Final[dict[str, Metric]] = {
    "lost_user_records": Metric("gauge", "User records lost at the KCL in the last hour: estimate."),
    "lost_user_records_low": Metric("gauge", "So many are lost at least, with 95% confidence."),
    "lost_user_records_seen": Metric("counter", "Lost user records that were seen."),
    "open_findings": Metric("gauge", "Findings that are open, by severity."),
    "shard_lost_user_records": Metric("gauge", "The same by shard, kind and writer: estimate."),
    "open_shards": Metric("gauge", "Open shards that are watched."),
    "oldest_poll_seconds": Metric("gauge", "The longest time since a shard was last polled."),
    "kinesis_records_read": Metric("counter", "Kinesis records checked."),
    "kinesis_records_by_writer": Metric("counter", "Kinesis records checked, by kind of writer."),
    "user_records_read": Metric("counter", "User records checked."),
    "bytes_read": Metric("counter", "Bytes of data checked."),
    "lag_seconds": Metric("gauge", "The longest lag where everything is read."),
    "polls": Metric("counter", "Polls of a shard."),
    "skipped_polls": Metric("counter", "Periods of a shard whose slot was not read."),
    "calls": Metric("counter", "Calls to Kinesis, by operation."),
    "failed_calls": Metric("counter", "Calls to Kinesis that failed, by code."),
}

#: How many findings have their own loss metric.
_MOST_FINDINGS: Final = 100


class MetricValue(NamedTuple):
    """The value of a metric now. ``name``: a key of `METRICS`."""

    name: str
    value: float
    attributes: Mapping[str, str] = {}


def watch_metrics(watch: Watch, now: float) -> list[MetricValue]:
    """All metrics of ``watch``."""
    counts = watch.call_counts
    oldest = max((now - shard.polled_at for shard in watch.shards.values()), default=0.0)
    return [
        *record_metrics(watch.last_hour),
        MetricValue("open_shards", watch.open_shards),
        MetricValue("oldest_poll_seconds", round(oldest, 3)),
        MetricValue("polls", counts.polls),
        MetricValue("skipped_polls", counts.skipped),
        *(MetricValue("calls", count, {"operation": name}) for name, count in counts.calls.items()),
        *(MetricValue("failed_calls", count, {"code": code}) for code, count in counts.failed.items()),
    ]


def record_metrics(last_hour: LastHour) -> list[MetricValue]:
    """The metrics of ``last_hour``, for any source of records."""
    loss = last_hour.lost()
    findings = last_hour.findings()
    # WCH-24: "Every metric MUST have its name from the one table and the stream's name, and be 0 where there
    # is nothing: a metric that is missing does not say that a stream is clean."
    plain = {
        "lost_user_records": loss.estimate,
        "lost_user_records_low": loss.low,
        "lost_user_records_seen": last_hour.totals["lost"],
        "kinesis_records_read": last_hour.totals["kinesis_records"],
        "user_records_read": last_hour.totals["user_records"],
        "bytes_read": last_hour.totals["bytes"],
        "lag_seconds": round(max(last_hour.lags.values(), default=0.0), 3),
    }
    values = [MetricValue(*item) for item in plain.items()]
    for writer, kinesis_records in last_hour.writers.items():
        values.append(MetricValue("kinesis_records_by_writer", kinesis_records, {"writer": writer}))
    for severity in SEVERITIES:
        count = sum(finding.severity == severity for finding in findings)
        values.append(MetricValue("open_findings", count, {"severity": severity}))
    for finding in findings[:_MOST_FINDINGS]:
        if finding.lost is not None:
            place = {"shard_id": finding.shard_id or "", "kind": finding.kind, "writer": finding.writer or ""}
            values.append(MetricValue("shard_lost_user_records", finding.lost.estimate, place))
    return values


class Every:
    """A timer of ``seconds`` that fires at once if the clock was set back."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last = float("-inf")

    def due(self, now: float) -> bool:
        """Whether ``seconds`` have passed since this was last True."""
        if 0 <= now - self._last < self._seconds:
            return False
        self._last = now
        return True


def metrics_to_json(metrics: Iterable[MetricValue]) -> dict[str, Any]:
    """The metrics as a JSON object: a value, or where a metric has attributes an object by their values."""
    found: dict[str, Any] = {}
    for name, value, attributes in metrics:
        *path, last = name, *attributes.values()
        inner = found
        for key in path:
            inner = inner.setdefault(key, {})
        inner[last] = value
    return found
