"""A finding of a watch: also since when, how sure, and what changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Literal

from ..findings import Finding
from ..shards.placement import CAUSES
from .estimates import Estimate
from .judging import WRITERS


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchFinding(Finding):
    """One thing that is wrong, as far as it is known now.

    ``writer``: a key of `WRITERS`. ``state``: "open" when new, "grown" when it has doubled since
    it was last told, "over" when it was not seen again for a while. ``first_seen``, ``last_seen``: seconds
    since 1970. ``kinesis_records``: how many of the kind were seen in all; ``sequence_number``: of one of
    them. ``lost``: user records that the KCL drops, in the last hour.
    """

    stream: str
    state: Literal["open", "grown", "over"]
    first_seen: float
    last_seen: float
    writer: str | None = None
    kinesis_records: int = 0
    lost: Estimate | None = None

    @property
    def text(self) -> str:
        """What is wrong, in a sentence or two."""
        where = f" on {self.shard_id}" if self.shard_id else ""
        parts = []
        if self.writer in WRITERS and self.writer != "unknown":
            because = f"; {CAUSES[self.cause]}" if self.cause is not None else ""
            parts.append(f"written by {WRITERS[self.writer]}{because}")
        if self.lost is not None and self.lost.seen:
            seen = f", {self.lost.seen:,} of them seen" if self.lost.high > self.lost.seen else ""
            parts.append(f"a KCL consumer loses {self.lost} user records{seen}")
        elif self.kinesis_records:
            parts.append(f"{self.kinesis_records:,} Kinesis records seen")
        if self.detail:
            parts.append(self.detail)
        return ": ".join(filter(None, [f"{self.title} ({self.kind}){where}", "; ".join(parts)]))

    def to_json(self) -> dict[str, Any]:
        """As one JSON object; what does not apply is left out. Sequence numbers are strings."""
        row: dict[str, Any] = {
            "time": _iso(self.last_seen),
            "stream": self.stream,
            "state": self.state,
            "severity": self.severity,
            "kind": self.kind,
            "requirement": self.requirement,
            "shardId": self.shard_id,
            "writer": self.writer,
            "cause": self.cause,
            "expectedShardId": self.expected_shard_id,
            "sequenceNumber": self.sequence_number,
            "kinesisRecordsSeen": self.kinesis_records or None,
            "firstSeen": _iso(self.first_seen),
            "detail": self.detail,
            "text": self.text,
            "lostUserRecords": self.lost._asdict() if self.lost is not None else None,
        }
        return {name: value for name, value in row.items() if value is not None}


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")
