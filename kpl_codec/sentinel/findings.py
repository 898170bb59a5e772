"""What a sentinel finds: the kinds it knows, and one finding as a value, a JSON object and a sentence.

Kinds that validation finds too have the names and severities of `kpl_codec.report.kinds`; a test checks it.
Findings hold no record data, and partition keys only where names were asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final, Literal, get_args

from .estimates import Estimate
from .writers import described

Severity = Literal["critical", "error", "warning", "info"]
#: Worst first.
SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)

#: Kind -> severity and title. A kind that is not here is a defect of a frame: `BROKEN`.
KINDS: Final[dict[str, tuple[Severity, str]]] = {
    "naive-aggregator": ("critical", "Aggregates put together without looking at shards"),
    "mixed-aggregate": ("critical", "Aggregates with user records of other shards"),
    "foreign-aggregate": ("critical", "Aggregates on a shard that none of their user records belongs to"),
    "distribution-auto": ("warning", "Aggregates on a stream that distributes records itself"),
    "duplicate": ("warning", "The same Kinesis record more than once"),
    "skewed-shard": ("warning", "A shard that gets far more than its share"),
    "hot-key": ("warning", "A partition key that gets far more than its share"),
    "lag": ("warning", "Records are read late"),
    "capture-encoded-frame": ("error", "An aggregated record that no consumer can know"),
    "unused-hash-key": ("warning", "Aggregates with an entry that is no hash key, and that nobody uses"),
    "not-watched": ("error", "A shard that could not be looked at"),
    "throttled": ("info", "The service refuses reads: other consumers use them up"),
    "stream-recreated": ("warning", "The stream was deleted and created again"),
}
BROKEN: Final[tuple[Severity, str]] = ("error", "Broken aggregated records")

#: Why user records lie outside their shard, where the shards can tell (`shards.misplacement_causes`).
_CAUSES: Final[dict[str, str]] = {
    "across-shards": "it does not look at shards",
    "reshard": "it did not notice a split or merge",
    "wrong-shard": "it put them under a key of another shard",
}


def severity_of(kind: str) -> Severity:
    """How bad findings of a kind are."""
    return KINDS.get(kind, BROKEN)[0]


def at_least_as_bad(severity: Severity, than: Severity) -> bool:
    """Whether ``severity`` is as bad as ``than``, or worse."""
    return SEVERITIES.index(severity) <= SEVERITIES.index(than)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, as far as it is known now.

    ``writer``: a kind of writer, see `writers`. ``cause``: why, as far as the shards tell.
    ``state``: "open" when new, "grown" when it has doubled since it was last told, "over" when it was not
    seen again for a while. ``first_seen``, ``last_seen``: seconds since 1970. ``lost``: user records that
    the KCL drops, in the last hour. ``kinesis_records``: how many of the kind were seen in all.
    ``sequence_number``: of one example. ``detail``: a number with its unit, or an error's name.
    """

    kind: str
    stream: str
    shard_id: str | None
    writer: str | None
    cause: str | None
    state: Literal["open", "grown", "over"]
    first_seen: float
    last_seen: float
    kinesis_records: int = 0
    lost: Estimate | None = None
    expected_shard_id: str | None = None
    sequence_number: str | None = None
    detail: str | None = None

    @property
    def severity(self) -> Severity:
        """That of its kind."""
        return severity_of(self.kind)

    @property
    def title(self) -> str:
        """That of its kind."""
        return KINDS.get(self.kind, BROKEN)[1]

    @property
    def text(self) -> str:
        """What is wrong, in a sentence or two."""
        where = f" on {self.shard_id}" if self.shard_id else ""
        parts = [f"{self.title} ({self.kind}){where}"]
        if self.writer is not None and (writer := described(self.writer)) is not None:
            because = f"; {_CAUSES[self.cause]}" if self.cause in _CAUSES else ""
            parts.append(f"written by {writer}{because}")
        if self.lost is not None and self.lost.seen:
            seen = f", {self.lost.seen:,} of them seen" if self.lost.high > self.lost.seen else ""
            parts.append(f"a KCL consumer loses {self.lost} user records{seen}")
        elif self.kinesis_records:
            parts.append(f"{self.kinesis_records:,} Kinesis records seen")
        if self.detail:
            parts.append(self.detail)
        return ": ".join([parts[0], "; ".join(parts[1:])]) if parts[1:] else parts[0]

    def to_json(self) -> dict[str, Any]:
        """As one JSON object; what does not apply is left out. Sequence numbers are strings."""
        row: dict[str, Any] = {
            "time": _iso(self.last_seen),
            "stream": self.stream,
            "state": self.state,
            "severity": self.severity,
            "kind": self.kind,
            "shardId": self.shard_id,
            "writer": self.writer,
            "cause": self.cause,
            "expectedShardId": self.expected_shard_id,
            "sequenceNumber": self.sequence_number,
            "kinesisRecordsSeen": self.kinesis_records or None,
            "firstSeen": _iso(self.first_seen),
            "detail": self.detail,
            "text": self.text,
        }
        if self.lost is not None:
            lost = self.lost
            row["lostUserRecords"] = {
                "seen": lost.seen,
                "estimate": lost.estimate,
                "low": lost.low,
                "high": lost.high,
                "confidence": lost.confidence,
            }
        return {name: value for name, value in row.items() if value is not None}


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")
