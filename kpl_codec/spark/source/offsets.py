"""Offsets of the stream source: where every shard of a stream stands, as JSON that Spark writes down.

    {"stream": "orders", "shards": {
        "shardId-000000000000": {"after": "4957...", "end": true},      drained: its children may start
        "shardId-000000000001": {"before": "4958...", "first": "4958...", "marks": ["4958..."]},
        "shardId-000000000002": {"at": "TRIM_HORIZON"}}}                not begun: waits for its parent

An offset is where one micro-batch ends and the next begins. It names records, not times or counts, so a
batch that is run again reads the same records: they cannot change, and their order in a shard cannot.
A batch that began at no record (TRIM_HORIZON, a time) says in ``first`` where it turned out to begin.
Specification: spec/07-spark-source.md, SPK-50 to SPK-55.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from ...errors import KplError
from ...shards.lineage import Lineage

PlaceKind = Literal["at", "time", "after", "before"]
_VERSION = 1


class OffsetError(KplError, ValueError):
    """A checkpoint or position that is not ours, or of another stream. ``reason`` says why."""

    code = "offset"
    requirement = "SPK-50"
    reason: str
    text = "offset refused: {reason}"


class DataLoss(KplError):
    """Records that a query has still to read are gone, or may be. ``shard_id``, ``sequence_number``: the
    place that is no more; ``code``: trimmed, shard-gone or record-missing; ``reason``."""

    code: str
    requirement = "SPK-60"
    shard_id: str
    sequence_number: str | int
    reason: str
    text = (
        "data loss on {shard_id}: {code}: {reason} (sequence number {sequence_number}). "
        "Set failOnDataLoss to false to go on with what is left"
    )


class Piece(NamedTuple):
    """A run of records of one shard, to be read by one task.

    ``start``: "after" or "before" a record (which must be there), or "at" TRIM_HORIZON, or a "time".
    ``end``: "after" (that record is the last) or "before" (that record is not in it).
    ``siblings``: how many pieces of this shard are read at the same time.
    """

    shard_id: str
    start_kind: PlaceKind
    start: str | int
    end_kind: Literal["after", "before"]
    end: str
    siblings: int = 1


@dataclass(frozen=True, slots=True)
class ShardOffset:
    """Where one shard stands.

    ``kind`` and ``value``: at TRIM_HORIZON, from a time (ms since 1970) on, after or before a record.
    ``ended``: drained to its end. Of the batch that ends here: ``first``, its first record where the
    start named none; ``lost``: that goes before the start, which is gone; ``marks``, records at which it
    is cut into pieces; ``behind``, ms to the tip. ``initial`` goes before ``first`` where the query is new:
    its first record, "" for none.
    """

    kind: PlaceKind
    value: str | int
    ended: bool = False
    first: str | None = None
    marks: tuple[str, ...] = ()
    behind: int | None = None
    lost: bool = False
    initial: str | None = None

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {self.kind: self.value}
        if self.ended:
            found["end"] = True
        if self.first is not None:
            found["first"] = self.first
        if self.marks:
            found["marks"] = list(self.marks)
        if self.behind is not None:
            found["behind"] = self.behind
        if self.lost:
            found["lost"] = True
        if self.initial is not None:
            found["initial"] = self.initial
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> ShardOffset:
        kinds: tuple[PlaceKind, ...] = ("at", "time", "after", "before")
        kind = [kind for kind in kinds if kind in found]
        if len(kind) != 1:
            raise OffsetError(reason=f"a shard at {sorted(found)}")
        return cls(
            kind[0],
            found[kind[0]],
            bool(found.get("end", False)),
            found.get("first"),
            tuple(found.get("marks", ())),
            found.get("behind"),
            bool(found.get("lost", False)),
            found.get("initial"),
        )

    @property
    def symbolic(self) -> bool:
        """No record is named: what lies there depends on when it is asked."""
        return self.kind in ("at", "time")

    def same_place(self, other: ShardOffset) -> bool:
        return (self.kind, self.value) == (other.kind, other.value)

    def settled(self) -> ShardOffset:
        """The place alone, as the start of the next batch."""
        return replace(self, first=None, marks=(), behind=None, lost=False, initial=None)


TRIM_HORIZON = ShardOffset("at", "TRIM_HORIZON")


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """Where every shard stands. ``shards`` holds drained ones too, for as long as they are listed."""

    stream: str
    shards: Mapping[str, ShardOffset]

    def to_json(self) -> dict[str, Any]:
        """Always the same text for the same offset: Spark compares offsets as text."""
        # SPK-51: "Equal offsets MUST be the same text: keys sorted, numbers of 128 bits and more as
        # strings."
        shards = {shard_id: self.shards[shard_id].to_json() for shard_id in sorted(self.shards)}
        return {"shards": shards, "stream": self.stream, "version": _VERSION}

    @classmethod
    def from_json(cls, found: Mapping[str, Any], stream: str) -> StreamOffset:
        """Raises OffsetError for the checkpoint of another stream or a newer version."""
        # SPK-52: "A checkpoint of another stream, or of a version not known, MUST be refused."
        if not found:
            return cls(stream, {})
        if found.get("version") != _VERSION:
            raise OffsetError(reason=f"version {found.get('version')!r}, known is {_VERSION}")
        if found.get("stream") != stream:
            raise OffsetError(reason=f"it is of stream {found.get('stream')!r}, the query reads {stream!r}")
        return cls(stream, {key: ShardOffset.from_json(value) for key, value in found["shards"].items()})


def pieces(shard_id: str, start: ShardOffset | None, end: ShardOffset) -> list[Piece]:
    """What a batch from ``start`` to ``end`` reads of a shard, cut at the marks."""
    if end.symbolic:
        return []
    if start is not None and start.same_place(end):
        return []
    # SPK-50: "What a micro-batch reads MUST be fixed before it is read, by sequence numbers of records,
    # so that every attempt at it, whenever and by whomever, reads the same records."
    # SPK-53: "A batch MUST be read between records named in its offsets; where its start names none,
    # the end offset names the first record."
    kind: PlaceKind
    value: str | int
    if start is not None and not start.symbolic and not end.lost:
        kind, value = start.kind, start.value
    elif end.first is not None:
        kind, value = "before", end.first
    elif start is not None:
        kind, value = start.kind, start.value
    else:
        return []  # a shard that is new, and nothing of it to be read yet
    assert end.kind in ("after", "before")
    last: Literal["after", "before"] = "after" if end.kind == "after" else "before"
    cut = []
    for mark in end.marks:
        cut.append(Piece(shard_id, kind, value, "before", mark))
        kind, value = "before", mark
    cut.append(Piece(shard_id, kind, value, last, str(end.value)))
    return [piece._replace(siblings=len(cut)) for piece in cut]


def batch_pieces(start: StreamOffset, end: StreamOffset) -> list[Piece]:
    """What a batch reads, shard by shard."""
    shards = end.shards
    if not start.shards:
        shards = {
            key: offset if offset.initial is None else replace(offset, first=offset.initial or None)
            for key, offset in shards.items()
        }
    return [
        piece
        for shard_id, offset in shards.items()
        for piece in pieces(shard_id, start.shards.get(shard_id), offset)
    ]


def ready(shard_id: str, offset: StreamOffset, lineage: Lineage) -> bool:
    """Whether every parent of a shard has been read to its end in the batches before."""
    # SPK-54: "A shard MUST NOT be read before each of its parents was drained in an earlier batch; a
    # parent that is no longer listed counts as drained."
    return shard_id not in lineage or all(
        offset.shards[parent.shard_id].ended
        for parent in lineage.parents(shard_id)
        if parent.shard_id in offset.shards
    )


def with_listed(offset: StreamOffset, lineage: Lineage) -> StreamOffset:
    """The offset with the shards that are new in the listing, without drained ones it no longer has."""
    shards = {key: value.settled() for key, value in offset.shards.items()}
    for shard in lineage:
        # SPK-55: "A shard seen for the first time after the query began MUST be read from its first
        # record."
        shards.setdefault(shard.shard_id, TRIM_HORIZON)
    for key, value in list(shards.items()):
        # A drained shard is forgotten when it can no longer be taken for a new one.
        if value.ended and key not in lineage:
            del shards[key]
    return StreamOffset(offset.stream, shards)
