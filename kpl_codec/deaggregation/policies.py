"""A stream of Kinesis records -> a stream of user records, under a named policy.

    policy   sound aggregate              defective aggregate or frame
    -------  ---------------------------  ---------------------------------------------------------
    strict   its user records             raises the DecodeError, told which Kinesis record
    kcl      what the KCL delivers        what the KCL delivers; the rest is counted as dropped
    report   its user records             every user record there is, with its defects; a frame that
                                          cannot be opened as one raw record, with its defect

A plain record is its own only user record under every policy. Nothing is dropped uncounted.
Specification: spec/03-deaggregation.md, DAG-1 to DAG-8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, count, repeat
from typing import Literal, NamedTuple

from ..compiled import speedups
from ..errors import DecodeError, HashKeyError, MalformedMessage, NoUserRecords
from ..format import frame, wire
from ..format.codec import decode_message, is_aggregated
from ..format.hash_keys import HashKeyRange, effective_hash_key, hash_key_from_bytes, partition_key_hash
from ..format.message import AggregatedRecord, parse
from ..format.records import DeaggregatedRecord, KinesisRecord
from ..limits import DIGEST_SIZE
from ..shards.placement import Placement, judge
from ..shards.shard_map import ShardMap
from . import kcl

Policy = Literal["strict", "kcl", "report"]


class Drop(NamedTuple):
    """User records of one Kinesis record that the KCL drops, and at which of them, for which reason
    (see `kcl.Outcome`)."""

    sequence_number: str | None
    shard_id: str | None
    user_records: int
    reason: str
    record_index: int | None


class Counts:
    """What has gone through so far. ``dropped`` counts user records by reason (policy ``kcl``),
    ``defects`` counts rows by the code of their first defect (policy ``report``)."""

    __slots__ = ("aggregated_records", "defects", "dropped", "kinesis_records", "user_records")

    def __init__(self, kinesis_records: int = 0, aggregated_records: int = 0, user_records: int = 0) -> None:
        self.kinesis_records = kinesis_records
        self.aggregated_records = aggregated_records
        self.user_records = user_records
        self.dropped: Counter[str] = Counter()
        self.defects: Counter[str] = Counter()

    def _values(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counts) and self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Counts({', '.join(f'{name}={value!r}' for name, value in self._values().items())})"


class Deaggregation(Iterator[DeaggregatedRecord]):
    """The iterator that `deaggregate` gives: user records, lazily; ``counts`` tells how many so far."""

    def __init__(
        self,
        kinesis_records: Iterable[KinesisRecord],
        policy: Policy,
        shard_map: ShardMap | None,
        hash_key_range: HashKeyRange | None,
        on_drop: Callable[[Drop], None] | None,
    ) -> None:
        self.counts = Counts()
        self._policy = policy
        self._shard_map = shard_map
        self._hash_key_range = hash_key_range
        self._on_drop = on_drop
        predicts = shard_map is not None and shard_map.distribution != "AUTO"
        self._predicting = shard_map if predicts else None
        self._homes: dict[str | None, tuple[int, int, Placement | None]] = {}
        self._rows = chain.from_iterable(self._run(kinesis_records))

    def __iter__(self) -> Iterator[DeaggregatedRecord]:
        return self._rows

    def __next__(self) -> DeaggregatedRecord:
        return next(self._rows)

    def _run(self, kinesis_records: Iterable[KinesisRecord]) -> Iterator[Iterable[DeaggregatedRecord]]:
        open_frame = {"strict": self._strict, "kcl": self._kcl, "report": self._report}[self._policy]
        counts = self.counts
        for record, verified in _with_digests(kinesis_records):
            counts.kinesis_records += 1
            # DAG-8: "An aggregate inside the data of a user record MUST be left as it is."
            if frame.looks_aggregated(record.data) and not record.sub_sequence_number:
                yield open_frame(record, verified)
            else:
                counts.user_records += 1
                yield (self._plain(record),)

    def _range(self, record: KinesisRecord) -> HashKeyRange | None:
        """The range of the shard that ``record`` lies on, where it is known."""
        if self._shard_map is not None and record.shard_id is not None and record.shard_id in self._shard_map:
            return self._shard_map[record.shard_id].hash_key_range
        return self._hash_key_range

    def _judge(self, record: KinesisRecord, hash_key: int | None, *, aggregated: bool) -> Placement | None:
        if self._shard_map is None and self._hash_key_range is None:
            return None
        return judge(
            hash_key,
            record.shard_id,
            self._shard_map,
            aggregated=aggregated,
            hash_key_range=self._hash_key_range,
        )

    def _plain(
        self,
        record: KinesisRecord,
        defects: tuple[DecodeError, ...] = (),
        sub: int = 0,
        how: str | None = "delivered",
    ) -> DeaggregatedRecord:
        # DAG-1: "A plain record is delivered as its own only user record, sub-sequence number 0, under
        # every policy and whatever its hash key."
        pk, data, sequence_number, shard_id, arrival, ehk, known_sub = record
        placement = None
        if not defects and (self._shard_map is not None or self._hash_key_range is not None):
            placement = self._plain_placement(record)
        how = how if self._policy == "report" else None
        sub = sub or known_sub or 0
        row = pk, data, ehk, (), sequence_number, sub, False, shard_id, arrival, placement, defects, how
        return _NEW(DeaggregatedRecord, row)

    def _plain_placement(self, record: KinesisRecord) -> Placement | None:
        hash_key = _plain_hash_key(record)
        lowest, highest, like = self._home(record)
        if like is not None and hash_key is not None and lowest <= hash_key <= highest:
            return _NEW(Placement, (like[0], hash_key, *like[2:]))
        return self._judge(record, hash_key, aggregated=record.explicit_hash_key is not None)

    def _home(self, record: KinesisRecord) -> tuple[int, int, Placement | None]:
        """The first and last hash key of the shard ``record`` lies on (0 and -1 if that is not known); and,
        of an open one, the verdict on all of these, which are expected there."""
        found = self._homes.get(record.shard_id)
        if found is None:
            lowest, highest, like = 0, -1, None
            hash_key_range = self._range(record)
            if hash_key_range is not None:
                lowest, highest = hash_key_range
            shard_map, own = self._predicting, record.shard_id
            if shard_map is not None and own is not None and own in shard_map and shard_map[own].open:
                like = self._judge(record, lowest, aggregated=True)
            if len(self._homes) >= _MOST_SHARDS:
                self._homes.clear()
            found = self._homes[record.shard_id] = lowest, highest, like
        return found

    def _strict(self, record: KinesisRecord, verified: bool) -> Iterable[DeaggregatedRecord]:
        # DAG-2: "Under the strict policy the first defect MUST be raised, with the sequence number and
        # shard of its Kinesis record; no user record of that Kinesis record is delivered before."
        if verified and (rows := self._quick(record, None)) is not None:
            return rows
        try:
            parsed = decode_message(_message(record, verified), record.data)
        except DecodeError as error:
            raise error.at(sequence_number=record.sequence_number, shard_id=record.shard_id) from None
        return self._sound(record, parsed, None)

    def _sound(
        self, record: KinesisRecord, parsed: AggregatedRecord, how: str | None
    ) -> Iterable[DeaggregatedRecord]:
        self.counts.aggregated_records += 1
        self.counts.user_records += len(parsed)
        placements = self._placements(record, parsed)
        # DAG-3: "Sub-sequence numbers count the user records of a Kinesis record from 0, in the order of
        # the bytes."
        if speedups is not None and type(parsed.data) is list:
            return speedups.rows(  # type: ignore[no-any-return]
                DeaggregatedRecord, _template(record, how), *parsed.columns(), placements
            )
        explicit_hash_keys = parsed.explicit_hash_keys()
        rows = zip(
            parsed.partition_keys(),
            parsed.data,
            _NONE if explicit_hash_keys is None else explicit_hash_keys,
            _EMPTY if parsed.tags is None else parsed.tags,
            repeat(record.sequence_number),
            count(),
            _TRUE,
            repeat(record.shard_id),
            repeat(record.approximate_arrival_timestamp),
            _NONE if placements is None else placements,
            _EMPTY,
            _NONE if how is None else repeat(how),
        )
        return map(_NEW, _KIND, rows)

    def _quick(self, record: KinesisRecord, how: str | None) -> list[DeaggregatedRecord] | None:
        """The user records of a verified frame, where nothing needs judging; None: not certain."""
        if speedups is None or self._shard_map is not None or self._hash_key_range is not None:
            return None
        rows: list[DeaggregatedRecord] | None = speedups.frame_rows(
            DeaggregatedRecord, _template(record, how), record.data
        )
        if rows is not None:
            self.counts.aggregated_records += 1
            self.counts.user_records += len(rows)
        return rows

    def _placements(self, record: KinesisRecord, parsed: AggregatedRecord) -> list[Placement] | None:
        """One verdict per user record; each entry of the key tables is hashed and judged once."""
        if self._shard_map is None and self._hash_key_range is None:
            return None
        predicting = self._predicting
        lowest, highest, like = self._home(record)
        home = like.expected_shard_id if like is not None else None
        items = _deciding_keys(parsed)
        hash_keys = _hash_keys(parsed, items)
        # What else the verdict depends on is the same for the whole aggregate: judge each kind once.
        kinds: dict[tuple[str | None, bool], Placement] = {}
        judged = []
        for hash_key in hash_keys:
            inside = lowest <= hash_key <= highest
            expected = home if inside else None
            if expected is None and predicting is not None:
                expected = predicting.shard_for(hash_key).shard_id
            kind = expected, inside
            placement = kinds.get(kind)
            if placement is None:
                placement = self._judge(record, hash_key, aggregated=True)
                assert placement is not None
                kinds[kind] = placement
            judged.append(placement)
        used = kinds.values() if len(kinds) == 1 else map(judged.__getitem__, items)
        whole = aggregate_kind(placement.in_range for placement in used)
        # Straight to the tuple: the named one's own __new__ takes as long as all the rest.
        placements = [
            _NEW(Placement, (of[0], hash_key, of[2], of[3], of[4], whole))
            for of, hash_key in zip(judged, hash_keys, strict=True)
        ]
        return list(map(placements.__getitem__, items))

    def _kcl(self, record: KinesisRecord, verified: bool) -> Iterator[DeaggregatedRecord]:
        if verified and (rows := self._quick(record, None)) is not None:
            yield from rows
            return
        hash_key_range = self._range(record)
        sound = verified or is_aggregated(record.data)
        parsed = parse(record.data[4:-DIGEST_SIZE]) if sound else None
        if parsed is not None:
            outcome = kcl.outcome_of_sound(parsed, hash_key_range)
            if outcome.reason is None:
                parsed.tags = None
                yield from self._sound(record, parsed, None)
                return
        else:
            outcome = kcl.outcome(record.data, hash_key_range)
        if outcome.raw:
            self.counts.user_records += 1
            yield self._plain(record)
            return
        self.counts.aggregated_records += 1
        self.counts.user_records += outcome.delivered
        # DAG-4: "Under the kcl policy exactly what the KCL delivers MUST be delivered, and every user
        # record it drops MUST be counted under the reason."
        if outcome.reason is not None:
            lost = outcome.total - outcome.delivered
            self.counts.dropped[outcome.reason] += lost
            if self._on_drop is not None:
                self._on_drop(
                    Drop(record.sequence_number, record.shard_id, lost, outcome.reason, outcome.record_index)
                )
        judged: dict[tuple[str, str | None], Placement | None] = {}

        def users() -> Iterator[tuple[str, bytes, str | None, Placement | None]]:
            for pk, data, ehk in kcl.user_records(record.data, outcome.delivered):
                if (pk, ehk) not in judged:
                    hash_key = effective_hash_key_or_none(pk, ehk)
                    judged[pk, ehk] = self._judge(record, hash_key, aggregated=True)
                yield pk, data, ehk, judged[pk, ehk]

        kind = None
        if self._shard_map is not None or self._hash_key_range is not None:
            kind = aggregate_kind(placement.in_range for *_, placement in users() if placement is not None)
        for sub, (pk, data, ehk, placement) in enumerate(users()):
            yield DeaggregatedRecord(
                pk,
                data,
                ehk,
                (),
                record.sequence_number,
                sub,
                True,
                record.shard_id,
                record.approximate_arrival_timestamp,
                placement._replace(aggregate=kind) if placement is not None else None,
            )

    def _report(self, record: KinesisRecord, verified: bool) -> Iterator[DeaggregatedRecord]:
        if verified and (rows := self._quick(record, "delivered")) is not None:
            yield from rows
            return
        try:
            message = _message(record, verified)
        except DecodeError as error:
            yield self._raw(record, error)
            return
        parsed = parse(message)
        if parsed is None and wire.first_defect(record.data, 4, len(record.data) - DIGEST_SIZE) is None:
            parsed = decode_message(message, record.data)
        if parsed is not None:
            delivered = kcl.outcome_of_sound(parsed, self._range(record)).reason is None
            yield from self._sound(record, parsed, "delivered" if delivered else "dropped")
        else:
            yield from self._defective(record)

    def _raw(self, record: KinesisRecord, error: DecodeError, sub: int = 0) -> DeaggregatedRecord:
        """The frame itself as a row, with what is wrong with it as a whole."""
        error = error.at(sequence_number=record.sequence_number, shard_id=record.shard_id)
        self.counts.user_records += 1
        self.counts.defects[error.code] += 1
        raw = kcl.outcome(record.data, self._range(record)).raw
        return self._plain(record, (error,), sub, None if sub < 0 else "raw" if raw else "altered")

    def _defective(self, record: KinesisRecord) -> Iterator[DeaggregatedRecord]:
        # DAG-5: "Under the report policy every user record that the bytes hold MUST be delivered, with
        # its defects; a partition key that cannot be known is null, data that is missing is empty."
        # DAG-6: "A frame whose digest or message is broken is delivered as one raw record with its
        # defect, sub-sequence number 0."
        # DAG-7: "Defects outside of any user record are delivered as one more row with the raw frame,
        # sub-sequence number -1, before the user records."
        data = record.data
        start, end = 4, len(data) - DIGEST_SIZE
        try:
            tables = wire.scan(data, start, end)
        except MalformedMessage as error:
            yield self._raw(record, error)
            return
        outcome = kcl.outcome(data, self._range(record))
        self.counts.aggregated_records += 1
        whole = tables.defects[0] if tables.defects else None
        if whole is None and not tables.record_count:
            whole = NoUserRecords(offset=start)
        if whole is not None:
            yield self._raw(record, whole, -1)
        seen_by_kcl = iter(() if outcome.raw else kcl.user_records(data, outcome.delivered))

        judged: dict[tuple[int | None, int | None], Placement | None] = {}

        def rows() -> Iterator[DeaggregatedRecord]:
            return (self._row(record, found, tables, judged) for found in wire.records(data, start, end))

        kind = None
        if self._shard_map is not None or self._hash_key_range is not None:
            # Walked twice rather than kept: defects weigh hundreds of times what their bytes do.
            kind = aggregate_kind(row.placement.in_range for row in rows() if row.placement is not None)
        for row in rows():
            if outcome.raw:
                how = "raw"
            elif row.sub_sequence_number >= outcome.delivered:
                how = "dropped"
            else:
                same = next(seen_by_kcl, None) == (row.partition_key, row.data, row.explicit_hash_key)
                how = "delivered" if same else "altered"
            self.counts.user_records += 1
            if row.defects:
                self.counts.defects[row.defects[0].code] += 1
            placement = row.placement._replace(aggregate=kind) if row.placement is not None else None
            yield row._replace(placement=placement, kcl=how)

    def _row(
        self,
        record: KinesisRecord,
        found: wire.WireRecord,
        tables: wire.Scan,
        judged: dict[tuple[int | None, int | None], Placement | None],
    ) -> DeaggregatedRecord:
        defects = tuple(
            defect.at(sequence_number=record.sequence_number, shard_id=record.shard_id)
            for defect in wire.check(found, tables)
        )
        pk = _entry(tables.partition_keys, found.partition_key_index)
        ehk = _entry(tables.explicit_hash_keys, found.explicit_hash_key_index)
        pair = found.partition_key_index, found.explicit_hash_key_index
        if pair not in judged:
            # An explicit hash key that is there but cannot be read decides the shard all the same.
            known = ehk is not None or (pk is not None and found.explicit_hash_key_index is None)
            hash_key = effective_hash_key(pk or "", ehk) if known else None
            judged[pair] = self._judge(record, hash_key, aggregated=True)
        begin, stop = found.data or (0, 0)
        return DeaggregatedRecord(
            pk,
            record.data[begin:stop],
            ehk,
            found.tags,
            record.sequence_number,
            found.record_index,
            True,
            record.shard_id,
            record.approximate_arrival_timestamp,
            judged[pair],
            defects,
        )


def _with_digests(kinesis_records: Iterable[KinesisRecord]) -> Iterator[tuple[KinesisRecord, bool]]:
    """Each record, and whether its frame's digest is known to be right.

    What lies in a list anyway is hashed some records ahead, side by side; from anything else a record
    is taken only when it is its turn.
    """
    if speedups is None or not isinstance(kinesis_records, (list, tuple)):
        yield from zip(kinesis_records, repeat(False), strict=False)
        return
    for start in range(0, len(kinesis_records), _AHEAD):
        records = kinesis_records[start : start + _AHEAD]
        data = [record.data for record in records]
        known = speedups.sound_digests(data) if set(map(type, data)) == {bytes} else repeat(False)
        yield from zip(records, known, strict=False)


_AHEAD = 64
_MOST_SHARDS = 10_000
# What the rows of every aggregate share; endless, so nothing is used up.
_NEW, _KIND = tuple.__new__, repeat(DeaggregatedRecord)
_NONE, _EMPTY, _TRUE = repeat(None), repeat(()), repeat(True)


def _template(record: KinesisRecord, how: str | None) -> tuple[object, ...]:
    """A DeaggregatedRecord of ``record`` before keys, data, number and placement are known."""
    return (
        *(None, b"", None, (), record.sequence_number, 0, True),
        *(record.shard_id, record.approximate_arrival_timestamp, None, (), how),
    )


def _message(record: KinesisRecord, verified: bool) -> bytes:
    return record.data[4:-DIGEST_SIZE] if verified else frame.split_frame(record.data)


def _deciding_keys(parsed: AggregatedRecord) -> Sequence[int]:
    """Per user record where in `_hash_keys` its hash key stands: that of a partition key counted from
    the start, that of an explicit hash key from the end."""
    pks, ehks = parsed.partition_key_indices, parsed.explicit_hash_key_indices
    if ehks is None:
        return pks
    return [pk if ehk < 0 else -1 - ehk for pk, ehk in zip(pks, ehks, strict=True)]


def _hash_keys(parsed: AggregatedRecord, items: Sequence[int]) -> list[int]:
    """The hash keys of both key tables, the second one backwards; nothing of a table nobody uses."""
    found: list[int] = []
    if max(items) >= 0:
        if speedups is not None:
            digests = speedups.md5_many(list(map(str.encode, parsed.partition_key_table)))
            found.extend(map(hash_key_from_bytes, digests))
        else:
            found.extend(map(partition_key_hash, parsed.partition_key_table))
    if min(items) < 0:
        # Of what a decoder lets through (KEY-3), int makes the same number.
        found.extend(map(int, reversed(parsed.explicit_hash_key_table)))
    return found


def aggregate_kind(in_range: Iterable[bool | None]) -> str | None:
    """ "whole", "mixed" or "foreign", of whether each user record is in range; None if unknown."""
    kinds = {inside for inside in in_range if inside is not None}
    # PLC-5: "An aggregate with user records inside and outside its shard's range is mixed and MUST get
    # a finding of its own: the KCL loses all of it."
    return None if not kinds else "mixed" if len(kinds) == 2 else "whole" if kinds == {True} else "foreign"


def effective_hash_key_or_none(partition_key: str, explicit_hash_key: str | None) -> int | None:
    """`effective_hash_key`, or None for keys that have none (as the KCL may still deliver)."""
    try:
        return effective_hash_key(partition_key, explicit_hash_key)
    except HashKeyError:
        return None


def _plain_hash_key(record: KinesisRecord) -> int | None:
    if record.explicit_hash_key is not None:
        return effective_hash_key_or_none("", record.explicit_hash_key)
    return None if record.partition_key is None else partition_key_hash(record.partition_key)


def _entry(table: list[str | None], index: int | None) -> str | None:
    return table[index] if index is not None and index < len(table) else None


def deaggregate(
    kinesis_records: Iterable[KinesisRecord],
    policy: Policy = "strict",
    shard_map: ShardMap | None = None,
    hash_key_range: HashKeyRange | None = None,
    on_drop: Callable[[Drop], None] | None = None,
) -> Deaggregation:
    """The user records in ``kinesis_records``, in order, lazily, under ``policy``.

    ``shard_map``: judge each user record's placement on its Kinesis record's ``shard_id``.
    ``hash_key_range``: the range of the one shard all records come from, as the KCL is given it;
    a shard found in the map goes before it. Without either the KCL's range rule has the whole space.
    ``on_drop``: told of every drop under the ``kcl`` policy; the counts have them either way.

    Raises DecodeError (policy ``strict`` only) while iterating, ValueError for an unknown policy.
    """
    if policy not in ("strict", "kcl", "report"):
        raise ValueError(f"policy {policy!r}: strict, kcl or report")
    return Deaggregation(kinesis_records, policy, shard_map, hash_key_range, on_drop)
