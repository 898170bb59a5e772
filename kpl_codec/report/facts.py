"""The report as one JSON value, for machines: ``summary.json``. Its schema is spec/summary.schema.json."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from typing import Any

from ..findings import Finding
from ..pictures.labels import camel_keys
from .counters import finding_row
from .model import Report, ShardFacts
from .summary import outcome, state

#: Raised when a member changes its meaning or is removed, not for new members.
VERSION = 1


def _iso(time: datetime | None) -> str | None:
    return time.isoformat() if time is not None else None


def finding_facts(finding: Finding) -> dict[str, Any]:
    """A finding without what does not apply to it: severity, kind, and the other columns of findings/."""
    return camel_keys({"severity": finding.severity, **finding_row(finding)})


def _shard_facts(shard: ShardFacts) -> dict[str, Any]:
    values = asdict(shard)
    values["state"] = state(shard)
    del values["open"]
    for name in ("start", "end"):
        values[name] = str(values[name]) if values[name] is not None else None
    for name in ("opened", "closed", "first_arrival", "last_arrival"):
        values[name] = _iso(values[name])
    return camel_keys(values)


def report_facts(report: Report) -> dict[str, Any]:
    """Everything in the summary, and every shard shown, without single findings (they are in findings/)."""
    about = report.about
    return {
        "summaryVersion": VERSION,
        "kplCodecVersion": about.version,
        "title": about.title,
        "streamName": about.stream_name,
        "source": about.source,
        "generated": about.generated.isoformat(),
        "complete": about.complete,
        "clean": report.clean,
        "worst": report.worst,
        **dict(zip(("headline", "verdict"), outcome(report), strict=True)),
        "distribution": report.distribution,
        "firstArrival": _iso(report.rate.first_arrival),
        "lastArrival": _iso(report.rate.last_arrival),
        "skew": report.skew,
        "totals": {**camel_keys(asdict(report.totals)), "lostAtKcl": report.totals.lost_at_kcl},
        "kinds": [
            {
                **{name: getattr(count.kind, name) for name in ("name", "severity", "title")},
                "findings": count.findings,
                "userRecords": count.user_records,
            }
            for count in report.kinds
        ],
        "kclLosses": [camel_keys(loss._asdict()) for loss in report.kcl_losses],
        "causes": [camel_keys(count._asdict()) for count in report.causes],
        "shards": [_shard_facts(shard) for shard in report.shards],
        "omitted": dict(report.omitted),
    }


def report_json(report: Report) -> str:
    """`report_facts` as text, ending in a newline. ASCII alone."""
    return json.dumps(report_facts(report), indent=2) + "\n"
