"""Offsets: a query's place on every shard of its stream, as JSON in Spark's checkpoint.

    {"stream": "orders", "arn": "arn:aws:kinesis:eu-west-1:123456789012:stream/orders",
     "created": 1763000000000, "version": 1, "listed": 1763719200000, "shards": {
        "shardId-000000000000": {"after": "4957...", "drained": true},
        "shardId-000000000001": {"before": "4958...", "first": "4957..."},
        "shardId-000000000002": {"at": "TRIM_HORIZON", "since": 1763719200000, "began": "4959..."}}}

The first shard is drained (read to its end), so its children may start; the last waits for its parent.
Specification: spec/07-spark-source.md, SPK-50 to SPK-55, SPK-71, SPK-112, SPK-124.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple

from ...errors import KplError
from ...shards.lineage import Lineage
from ...shards.shard import Shard
from ...shards.starting_position import TRIM_HORIZON, StartingPosition, StartingPositionType, at_record

_VERSION = 1
#: The member of a shard that holds its place, by the place's kind.
_KINDS: Final[dict[str, StartingPositionType]] = {
    "at": "TRIM_HORIZON",
    "time": "AT_TIMESTAMP",
    "before": "AT_SEQUENCE_NUMBER",
    "after": "AFTER_SEQUENCE_NUMBER",
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


class OffsetError(KplError, ValueError):
    """The checkpoint is of another stream, or holds no offset. ``reason``: what shows that."""

    code = "offset"
    requirement = "SPK-50"
    reason: str
    # SPK-117: "A text that tells users to give a query a new checkpoint MUST say what its sink needs
    # besides, and where the query then begins."
    text = (
        "the checkpoint does not fit the query: {reason}. Give the query a checkpoint of its own, and its"
        " sink an output folder (or Delta's txnAppId) of its own: it passes over batch numbers that it"
        " has had. The query then begins at startingPosition: TRIM_HORIZON gives all that the stream"
        " holds, at LATEST it passes over what was put before it starts"
    )
    concerns = "The Spark query, which did not start."
    todo = (
        "Give the query the stream that its checkpoint is of, or the version of kpl_codec that has written"
        " it. Otherwise give it a checkpoint of its own, and its sink an output folder, or Delta's txnAppId,"
        " of its own, and let it begin at TRIM_HORIZON (startingPosition): rows of this stream that the sink"
        " has come twice; at LATEST it passes over what was put before it starts."
    )


class DataLoss(KplError):
    """Records that a query has not read are gone, or may be. ``sequence_number``: of the record at or after
    which they lie, None where the offset names none; ``code``: one of `codes`."""

    code: str
    requirement = "SPK-60"
    shard_id: str
    sequence_number: str | int | None
    reason: str
    text = (
        "data loss on {shard_id}: {code}: {reason} (sequence number {sequence_number}). "
        "Set failOnDataLoss to false to read on with what is left"
    )
    concerns = "Whoever reads the query's output: it lacks the records between two places."
    todo = (
        "Read within the stream's retention; raising the retention brings nothing back. To go on without"
        " what is gone, set failOnDataLoss=false for one run: left in, it makes every later loss a line "
        "of the log."
    )
    codes = ("trimmed", "shard-gone", "record-missing", "unread-too-long", "another-life")


class ShardRange(NamedTuple):
    """Consecutive records of one shard, for one task: a piece. ``start``: if it names a record, this must
    still exist. ``end`` names a record, which is in the piece with AFTER_SEQUENCE_NUMBER, and not with
    AT_SEQUENCE_NUMBER. ``records``: how many Kinesis records there are, if known. ``not_before``: when the
    task may make its first call (seconds since 1970)."""

    shard_id: str
    start: StartingPosition
    end: StartingPosition
    records: int | None = None
    not_before: float = 0.0


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """The end of a batch on one shard.

    For the next batch: ``place``: where it begins. ``drained``: the shard is closed and nothing follows the
    place. ``since``: every record after the place arrived then or later (ms since 1970). ``began``: the
    shard's starting sequence number, where the place names no record or the shard is drained: it tells
    streams, and the lives of a stream, apart.

    For the batch that ends here: ``first``: its first record, if its start names none. ``start_gone``: the
    record of its start is past retention, so ``first`` counts. ``initial``: counts instead of ``first`` in
    the first batch of a query; "" is none. ``records``: how many it has, if known. ``behind``: milliseconds
    from its first record to the shard's tip, when it was planned.
    """

    place: StartingPosition
    drained: bool = False
    since: int | None = None
    began: str | None = None
    first: str | None = None
    start_gone: bool = False
    initial: str | None = None
    records: int | None = None
    behind: int | None = None

    def to_json(self) -> dict[str, Any]:
        kind, value = self.place
        notes = {field.name: getattr(self, field.name) for field in fields(self)[1:]}
        members = {name: note for name, note in notes.items() if note is not None and note is not False}
        return {_NAMES[kind]: kind if value is None else value, **members}

    def as_start(self) -> BatchEnd:
        """What the next batch needs of it."""
        return BatchEnd(self.place, drained=self.drained, since=self.since, began=self.began)

    @classmethod
    def from_json(cls, text: Mapping[str, Any]) -> BatchEnd:
        names = [name for name in _KINDS if name in text]
        if len(names) != 1:
            raise OffsetError(reason=f"a shard at {sorted(text)}")
        for name, value in text.items():
            if not _is_valid(name, value):
                raise OffsetError(reason=f"a shard's {name} is {value!r}")
        place = TRIM_HORIZON if names[0] == "at" else StartingPosition(_KINDS[names[0]], text[names[0]])
        return cls(place, **{name: value for name, value in text.items() if name not in _KINDS})


def _is_valid(name: str, value: Any) -> bool:
    """Whether a shard's member may have this value."""
    match name:
        case "at":
            return bool(value == TRIM_HORIZON.kind)
        case "drained" | "start_gone":
            return value is True  # false is not written
        case "time" | "since" | "records" | "behind":
            return type(value) is int and value >= 0
        case "before" | "after" | "began" | "first" | "initial":
            return is_sequence_number(value) or (name == "initial" and value == "")
    return False


def is_sequence_number(value: object) -> bool:
    """Whether ``value`` is a text of up to 129 digits, as Kinesis' API allows; real ones have 56."""
    return isinstance(value, str) and re.fullmatch("[0-9]{1,129}", value) is not None


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A query's place on every shard, drained ones as long as they are listed. ``listed``: the time of the
    listing (ms since 1970); all records of a shard that is not in it arrived later. ``arn``, ``created`` (ms
    since 1970): of the stream, None where the service did not tell."""

    stream: str
    shards: Mapping[str, BatchEnd]
    listed: int | None = None
    arn: str | None = None
    created: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The same text for the same offset: Spark compares offsets as text."""
        # SPK-51: "Equal offsets MUST be the same text: keys sorted, numbers of 128 bits and more as
        # strings."
        shards = {shard_id: self.shards[shard_id].to_json() for shard_id in sorted(self.shards)}
        about = {"arn": self.arn, "created": self.created, "listed": self.listed}
        header = {name: value for name, value in about.items() if value is not None}
        return {**header, "shards": shards, "stream": self.stream, "version": _VERSION}

    @classmethod
    def from_json(cls, members: Mapping[str, Any], stream: str) -> StreamOffset:
        """Raises OffsetError for the checkpoint of another stream or a newer version, or another JSON."""
        # SPK-52: "A checkpoint of another stream, of a version not known, or that is no offset MUST be
        # refused."
        if members == {}:
            return cls(stream, {})
        if not isinstance(members, Mapping):
            raise OffsetError(reason=f"not an object but a {type(members).__name__}")
        if members.get("version") != _VERSION:
            raise OffsetError(reason=f"version {members.get('version')!r}, known is {_VERSION}")
        if members.get("stream") != stream:
            raise OffsetError(reason=f"it is of stream {members.get('stream')!r}, the query reads {stream!r}")
        shards, about = members.get("shards"), {"listed": int, "arn": str, "created": int}
        if not isinstance(shards, Mapping) or not all(isinstance(one, Mapping) for one in shards.values()):
            raise OffsetError(reason="its shards are not objects")
        for name, kind in about.items():
            if type(members.get(name)) not in (kind, type(None)):
                raise OffsetError(reason=f"{name} is {members[name]!r}")
        places = {key: BatchEnd.from_json(value) for key, value in shards.items()}
        return cls(stream, places, *map(members.get, about))


def piece_of(shard_id: str, start: StartingPosition | None, end: BatchEnd) -> ShardRange | None:
    """What a batch reads of a shard; None for nothing. ``start``: None for a new shard, which is read from
    ``end.first`` on."""
    if not end.place.names_record or start == end.place:
        return None
    # SPK-50: "What a micro-batch reads MUST be fixed before it is read, by sequence numbers of records,
    # so that every attempt at it, whenever and by whomever, reads the same records."
    # SPK-53: "A batch MUST be read between records named in its offsets; where its start names none,
    # the end offset names the first record."
    if end.first is not None and (start is None or end.start_gone or not start.names_record):
        start = at_record(end.first)
    # A new shard without a first record is not read yet.
    return None if start is None else ShardRange(shard_id, start, end.place, end.records)


def batch_pieces(start: StreamOffset, end: StreamOffset) -> list[ShardRange]:
    # EFO-9: "A batch MUST have at most one piece of each shard."
    pieces = []
    for shard_id, ends in end.shards.items():
        if not start.shards and ends.initial is not None:
            ends = replace(ends, first=ends.initial or None)
        before = start.shards.get(shard_id)
        pieces.append(piece_of(shard_id, before.place if before is not None else None, ends))
    return [piece for piece in pieces if piece is not None]


def ready(shard_id: str, offset: StreamOffset, lineage: Lineage) -> bool:
    """Whether every parent of a shard has been read to its end in the batches before."""
    # SPK-54: "A shard MUST NOT be read before each of its parents was drained in an earlier batch; a
    # parent that is no longer listed counts as drained."
    return shard_id not in lineage or all(
        offset.shards[parent.shard_id].drained
        for parent in lineage.parents(shard_id)
        if parent.shard_id in offset.shards
    )


def with_listing(offset: StreamOffset, lineage: Lineage, listed: int | None = None) -> StreamOffset:
    """The offset with the new shards of a listing, its ARN and creation time, without the drained shards that
    the listing lacks (none of them can be mistaken for a new one), and without the values that are only for
    the batch before. ``listed``: when the listing was requested (ms since 1970)."""
    shards = {
        key: ends.as_start() for key, ends in offset.shards.items() if key in lineage or not ends.drained
    }
    for shard_id, shard in lineage.items():
        # SPK-55: "A shard seen for the first time after the query began MUST be read from its first
        # record."
        ends = shards.get(shard_id, BatchEnd(TRIM_HORIZON, since=offset.listed))
        shards[shard_id] = with_beginning(ends, shard)
    arn, created = identity_of(lineage)
    return StreamOffset(offset.stream, shards, listed, arn or offset.arn, created or offset.created)


def identity_of(lineage: Lineage) -> tuple[str | None, int | None]:
    """The ARN of a listed stream, and when it was created (ms since 1970)."""
    arn, created = (None, None) if lineage.stream is None else (lineage.stream.arn, lineage.stream.created)
    return arn, None if created is None else round(created.timestamp() * 1000)


def created_later(offset: StreamOffset, lineage: Lineage) -> bool:
    """Whether the service says that the stream was created later than the offset's."""
    created = identity_of(lineage)[1]
    return None not in (offset.created, created) and (created or 0) > (offset.created or 0)


def check_identity(offset: StreamOffset, lineage: Lineage) -> None:
    """Raise OffsetError where the service says that a listing is not of the offset's stream."""
    # SPK-112: "An offset MUST say which stream it is of, by its ARN and when it was created, where the
    # service says it; another stream, and one whose shards the offset's stream cannot have, MUST be refused,
    # whatever failOnDataLoss says."
    arn, created = identity_of(lineage)
    if None not in (offset.arn, arn) and offset.arn != arn:
        raise OffsetError(reason=f"it is of {offset.arn}, the query reads {arn}")
    if None not in (offset.created, created) and (created or 0) < (offset.created or 0):
        raise OffsetError(reason="the query reads a stream that is older than the checkpoint's of that name")


def contradiction(offset: StreamOffset, lineage: Lineage) -> str | None:
    """Why the offset's stream cannot have the shards of a listing, which is of another stream, or older than
    what the query has read; None if it can."""
    if created_later(offset, lineage):
        return None
    for shard_id, ends in offset.shards.items():
        shard = lineage.get(shard_id)
        if shard is None or of_another_life(ends, shard):
            continue
        if ends.drained and shard.open and not lineage.children(shard_id):
            return f"{shard_id} was read to its end, and the stream lists it as open"
        start = shard.starting_sequence_number
        if ends.began is not None and is_sequence_number(start) and int(start or 0) < int(ends.began):
            return f"{shard_id} began at {ends.began}, and the stream lists it with {start}"
    return None


def with_beginning(ends: BatchEnd, shard: Shard) -> BatchEnd:
    """``ends`` with the shard's starting sequence number, where it names no record, or is drained."""
    start, unnamed = shard.starting_sequence_number, ends.drained or not ends.place.names_record
    return replace(ends, began=start) if unnamed and not ends.began and is_sequence_number(start) else ends


def of_another_life(ends: BatchEnd, shard: Shard) -> bool:
    """Whether a shard began after the query's place on it: the stream was deleted and created again."""
    number = ends.place.sequence_number if ends.place.names_record else ends.began
    start = shard.starting_sequence_number
    return number is not None and is_sequence_number(start) and int(number) < int(start or 0)
