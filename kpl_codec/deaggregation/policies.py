"""Kinesis records -> user records, under a policy.

    policy   sound aggregate              defective aggregate or frame
    -------  ---------------------------  ---------------------------------------------------------
    strict   its user records             raises the DecodeError, with the place of the Kinesis record
    kcl      what the KCL delivers        what the KCL delivers; the rest is counted as dropped
    report   its user records             every user record there is, with its defects; a frame that
                                          cannot be opened as one raw record, with its defect

Under every policy a plain record is one user record. Everything that is dropped is counted.
Specification: spec/03-deaggregation.md, DAG-1 to DAG-11.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..compiled import speedups
from ..errors import DecodeError, MalformedMessage, NoUserRecords
from ..format import frame, wire
from ..format.codec import decode_message, is_aggregated
from ..format.compression import max_decompressed_size
from ..format.hash_keys import HashKeyRange
from ..format.message import AggregatedRecord, parse
from ..format.records import KinesisRecord
from ..limits import DIGEST_SIZE, MAGIC
from ..shards.placement import AGGREGATE_KINDS, Judge, Placement, ShardJudge
from ..shards.shard_map import ShardMap
from . import kcl, rows
from .counts import Counts, Drop
from .decompression import Decompressor
from .kcl import DropReason, Fate
from .records import DeaggregatedRecord

Policy = Literal["strict", "kcl", "report"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

#: Iterable types that hold no KinesisRecords.
_NO_SOURCE = (KinesisRecord, Mapping, str, bytes, bytearray, memoryview)
#: How many Kinesis records of a list are read together, at most.
_AT_ONCE = 1024
# The status of a record in compiled code: a sound aggregate; undecided, but with the right digest.
_SOUND, _DIGEST_RIGHT = 2, 3


def check_policy(policy: str) -> None:
    """Raises ValueError for an unknown policy; its text lists the policies."""
    if policy not in POLICIES:
        raise ValueError(f"policy {policy!r}: {', '.join(POLICIES[:-1])} or {POLICIES[-1]}")


class Opener:
    """Opens Kinesis records under one policy, in order, and counts them.

    ``judge``: None where neither a shard map nor a hash key range is known. ``sound_rows``: makes the user
    records of sound aggregates that compiled code does not open; it is called as `rows.sound_rows`.
    """

    def __init__(
        self,
        policy: Policy,
        judge: Judge | None,
        counts: Counts,
        on_drop: Callable[[Drop], None] | None = None,
        sound_rows: Callable[..., Any] = rows.sound_rows,
    ) -> None:
        self._open = {"strict": self._strict, "kcl": self._kcl, "report": self._report}[policy]
        self._judge = judge
        # DAG-9: "A placement MUST be on every user record where a shard map was given, and on none where only
        # a hash key range was."
        self._placed = judge is not None and judge.shard_map is not None
        self._counts = counts
        self._on_drop = on_drop
        self._sound_rows = sound_rows
        self._policy = policy
        self._tags = policy != "kcl"
        #: By the number of the kind of aggregate.
        self._fates: tuple[Fate | None, ...] = tuple(
            kcl.fate_of_sound(kind) if policy == "report" else None for kind in AGGREGATE_KINDS
        )

    def open(self, kinesis_records: Iterable[KinesisRecord]) -> Iterator[Iterable[DeaggregatedRecord]]:
        """The user records of each Kinesis record. The compiled extension reads some hundred records of a
        list at a time; from any other iterable records are taken one by one.

        Raises DecodeError under the strict policy, TypeError for anything but a KinesisRecord.
        """
        if speedups is None or not isinstance(kinesis_records, (list, tuple)):
            open_one = self.open_one
            for record in kinesis_records:
                if type(record) is not KinesisRecord or type(record[1]) is not bytes:
                    record = _checked(record)
                yield open_one(record)
            return
        start = 0
        while start < len(kinesis_records):
            some = list(kinesis_records[start : start + _AT_ONCE])
            try:
                frames = self._read(some)
            except TypeError:  # not all are KinesisRecords with bytes
                some = list(map(_checked, some))
                frames = self._read(some)
            yield from self._certain_and_others(some, frames)
            start += frames.count

    def _read(self, records: list[KinesisRecord]) -> Any:
        """Some of the records, read by compiled code. Raises TypeError if one has another type, or data that
        is not bytes."""
        frames = speedups.FrameRows(
            records,
            KinesisRecord,
            DeaggregatedRecord,
            Placement,
            self._fates,
            tags=self._tags,
            judged=self._judge is not None,
            placed=self._placed,
            drops=self._policy == "kcl",
        )
        if self._judge is not None:
            shard_ids = [record[3] for record in records[: frames.count]]
            numbers = dict(zip(dict.fromkeys(shard_ids), count(), strict=False))
            self._coded = self._judge.coded(tuple(numbers))
            frames.judge(array("q", map(numbers.__getitem__, shard_ids)), *self._coded.tables)
        return frames

    def _certain_and_others(
        self, records: list[KinesisRecord], frames: Any
    ) -> Iterator[Iterable[DeaggregatedRecord]]:
        """Runs of records that compiled code can open, and between them all others, one by one."""
        counts, status, number = self._counts, frames.status, 0
        words = self._coded.words if self._judge is not None else None
        ids = self._judge.expected_ids if self._judge is not None else None
        while number < frames.count:
            found, after, aggregates, stuck = frames.take(number, words, ids)
            counts.kinesis_records += after - number
            counts.aggregated_records += aggregates
            counts.user_records += len(found)
            if found:
                yield found
            number = after
            if stuck:
                if status[number] == _SOUND:  # the KCL drops it
                    counts.kinesis_records += 1
                    user_records = frames.start(number + 1) - frames.start(number)
                    self._dropped(records[number], user_records, frames.first_outside(number))
                else:
                    yield self.open_one(records[number], verified=status[number] == _DIGEST_RIGHT)
                number += 1

    def open_one(
        self, record: KinesisRecord, parsed: AggregatedRecord | None = None, *, verified: bool = False
    ) -> Iterable[DeaggregatedRecord]:
        """The user records of one Kinesis record. ``parsed``: what is in it, if it is known to be sound;
        ``verified``: the digest was checked and is right."""
        self._counts.kinesis_records += 1
        if parsed is not None:
            return self._sound(record, parsed)
        # DAG-8: "An aggregate inside the data of a user record MUST be left as it is."
        data = record[1]
        if data[:4] == MAGIC and frame.looks_aggregated(data) and not record.sub_sequence_number:
            return self._open(record, verified)
        # DAG-1: "A plain record is delivered as its own only user record, sub-sequence number 0, under every
        # policy and whatever its hash key."
        self._counts.user_records += 1
        placement = self._place_plain(record) if self._placed else None
        return (rows.unopened(record, placement, self._fates[0]),)

    def _on(self, record: KinesisRecord) -> ShardJudge | None:
        return None if self._judge is None else self._judge.on(record.shard_id)

    def _placing(self, record: KinesisRecord) -> ShardJudge | None:
        """The judge for placements; None where none are made."""
        return self._on(record) if self._placed else None

    def _place_plain(self, record: KinesisRecord) -> Placement | None:
        if self._judge is None or not self._placed:
            return None
        hash_key = rows.hash_key_or_none(record.partition_key, record.explicit_hash_key)
        return self._judge.on(record.shard_id).place(hash_key, certain=record.explicit_hash_key is not None)

    def _strict(self, record: KinesisRecord, verified: bool) -> Iterable[DeaggregatedRecord]:
        # DAG-2: "Under the strict policy the first defect MUST be raised, with the sequence number and
        # shard of its Kinesis record; no user record of that Kinesis record is delivered before."
        try:
            data = record.data
            parsed = decode_message(data[4:-DIGEST_SIZE] if verified else frame.split_frame(data), data)
        except DecodeError as error:
            raise error.at(sequence_number=record.sequence_number, shard_id=record.shard_id) from None
        return self._sound(record, parsed)

    def _kcl(self, record: KinesisRecord, verified: bool) -> Iterable[DeaggregatedRecord]:
        sound = verified or is_aggregated(record.data)
        parsed = parse(record.data[4:-DIGEST_SIZE]) if sound else None
        if parsed is not None:
            return self._sound(record, parsed)
        outcome = self._outcome(record)
        if outcome.raw:
            self._counts.user_records += 1
            return (rows.unopened(record, self._place_plain(record), None),)
        self._counts.aggregated_records += 1
        self._counts.user_records += outcome.delivered
        if not outcome.total:
            self._counts.empty_records += 1
        elif outcome.reason is not None:
            self._drop(record, outcome.total - outcome.delivered, outcome.reason, outcome.record_index)
        return rows.kcl_rows(record, outcome.delivered, self._placing(record)) if outcome.delivered else ()

    def _dropped(self, record: KinesisRecord, user_records: int, outside: int) -> None:
        """A sound aggregate whose user record number ``outside`` is out of range."""
        self._counts.aggregated_records += 1
        self._drop(record, user_records, "out-of-range", outside)

    def _drop(
        self, record: KinesisRecord, user_records: int, reason: DropReason, record_index: int | None
    ) -> None:
        # DAG-4: "Under the kcl policy exactly what the KCL delivers MUST be delivered, and every user
        # record it drops MUST be counted under the reason; an aggregate in which it finds no user record
        # drops none, and is counted by itself."
        self._counts.dropped[reason] += user_records
        if self._on_drop is not None:
            place = record.sequence_number, record.shard_id
            self._on_drop(Drop(*place, user_records, reason, record_index))

    def _report(self, record: KinesisRecord, verified: bool) -> Iterable[DeaggregatedRecord]:
        try:
            message = record.data[4:-DIGEST_SIZE] if verified else frame.split_frame(record.data)
        except DecodeError as error:
            return (self._raw(record, error, "raw"),)
        parsed = parse(message)
        return self._walked(record) if parsed is None else self._sound(record, parsed)

    def _sound(self, record: KinesisRecord, parsed: AggregatedRecord) -> Iterable[DeaggregatedRecord]:
        counts, placed, fate = self._counts, None, self._fates[0]
        if self._judge is not None:
            placed = rows.place_sound(parsed, self._judge.on(record.shard_id))
            fate = kcl.fate_of_sound(placed.kind)
            if fate != "delivered" and self._policy == "kcl":
                inside = [in_range for _, _, in_range, _ in placed.judged]
                outside = next(i for i, key in enumerate(placed.used) if not inside[key])
                self._dropped(record, len(parsed), outside)
                return ()
            if self._policy != "report":
                fate = None
            if not self._placed:
                placed = None
        counts.aggregated_records += 1
        counts.user_records += len(parsed)
        return self._sound_rows(record, parsed, placed, fate, tags=self._tags)  # type: ignore[no-any-return]

    def _raw(
        self, record: KinesisRecord, error: DecodeError, fate: Fate | None, sub: int = 0
    ) -> DeaggregatedRecord:
        """The unopened frame as one row, with its defect."""
        error = error.at(sequence_number=record.sequence_number, shard_id=record.shard_id)
        self._counts.user_records += 1
        self._counts.defects[error.code] += 1
        return rows.unopened(record, None, fate, (error,), sub)

    def _walked(self, record: KinesisRecord) -> Iterable[DeaggregatedRecord]:
        """The user records of a frame that the fast decoders cannot decide."""
        start, end = 4, len(record.data) - DIGEST_SIZE
        try:
            tables = wire.scan(record.data, start, end)
        except MalformedMessage as error:
            return self._unreadable(record, error)
        whole: DecodeError | None = tables.defects[0] if tables.defects else None
        if whole is None and not tables.record_count:
            whole = NoUserRecords(offset=start)
        if whole is None and tables.unused is None and wire.first_defect(record.data, start, end) is None:
            return self._sound(record, decode_message(record.data[start:end], record.data))
        return self._defective(record, whole or tables.unused, tables)

    def _defective(
        self,
        record: KinesisRecord,
        whole: DecodeError | None,
        tables: wire.Scan,
        unreadable: MalformedMessage | None = None,
    ) -> Iterator[DeaggregatedRecord]:
        # DAG-5: "Under the report policy every user record that the bytes hold MUST be delivered, with
        # its defects; a partition key that cannot be known is null, data that is missing is empty."
        # DAG-7: "Defects outside of any user record are delivered as one more row with the raw frame,
        # sub-sequence number -1, before the user records."
        counts = self._counts
        counts.aggregated_records += 1
        if whole is not None:
            yield self._raw(record, whole, None, -1)
        outcome = self._outcome(record)
        for row in rows.defective_rows(record, tables, outcome, self._placing(record), unreadable):
            counts.user_records += 1
            if row.defects:
                counts.defects[row.defects[0].code] += 1
            yield row

    def _outcome(self, record: KinesisRecord) -> kcl.Outcome:
        # DAG-11: "What the report policy says of the KCL MUST be what the kcl policy does, for every frame
        # and range: as many user records delivered or altered, and as many dropped."
        judge = self._on(record)
        return kcl.outcome(record.data, None if judge is None else judge.hash_key_range)

    def _unreadable(self, record: KinesisRecord, error: MalformedMessage) -> Iterable[DeaggregatedRecord]:
        """The rows of a frame whose message is malformed."""
        outcome = self._outcome(record)
        # DAG-6: "A frame whose digest or message is broken is delivered as one raw record with its
        # defect, sub-sequence number 0, and with what the KCL does with it: raw, or dropped where the KCL
        # delivers nothing of it."
        if outcome.raw or not outcome.total:
            return (self._raw(record, error, "raw" if outcome.raw else "dropped"),)
        # DAG-10: "Where the KCL reads user records in a message that is malformed here, these MUST follow
        # the raw frame, which then has sub-sequence number -1, each with the defect and its fate."
        start, end = 4, len(record.data) - DIGEST_SIZE
        tables = wire.scan(record.data, start, end, dialect=kcl.JAVA)
        return self._defective(record, error, tables, error)


def _checked(record: KinesisRecord) -> KinesisRecord:
    if type(record) is not KinesisRecord and not isinstance(record, KinesisRecord):
        raise _mistakes().wrong_record(record)
    if type(record.data) is bytes:
        return record
    if isinstance(record.data, (bytes, bytearray, memoryview)):
        return record._replace(data=bytes(record.data))
    raise _mistakes().wrong_record(record)


def _mistakes() -> Any:
    from . import mistakes  # loaded only after a mistake

    return mistakes


if TYPE_CHECKING:
    _Chain = chain[DeaggregatedRecord]
else:
    _Chain = chain


class Deaggregation(_Chain):
    """The iterator that `deaggregate` returns: user records, lazily; ``counts``: what was opened so far.

    It is a `chain`, because that steps from one user record to the next without running Python code.
    """

    counts: Counts

    def __new__(
        cls,
        kinesis_records: Iterable[KinesisRecord],
        policy: Policy,
        judge: Judge | None,
        on_drop: Callable[[Drop], None] | None,
        max_size: int | None,
    ) -> Deaggregation:
        """Use `deaggregate`."""
        counts = Counts()
        opened: Iterable[Iterable[DeaggregatedRecord]]
        opened = Opener(policy, judge, counts, on_drop).open(kinesis_records)
        if max_size is not None:
            undo = Decompressor(max_size, counts.defects if policy == "report" else None)
            opened = map(partial(map, undo), opened)
        self: Deaggregation = cls.from_iterable(opened)  # type: ignore[assignment]
        self.counts = counts
        return self


def deaggregate(
    kinesis_records: Iterable[KinesisRecord],
    policy: Policy = "strict",
    *,
    shard_map: ShardMap | None = None,
    hash_key_range: HashKeyRange | None = None,
    on_drop: Callable[[Drop], None] | None = None,
    decompress: bool | int = False,
) -> Deaggregation:
    """The user records in ``kinesis_records``, in order, lazily, under ``policy``.

    ``shard_map``: judge each user record's placement on its Kinesis record's ``shard_id``.
    ``hash_key_range``: the range of the one shard that all records come from, as the KCL knows it: it decides
    what the KCL delivers, and makes no placements. A shard in the map is judged by the map instead. Without
    both, the KCL's range rule uses the whole space.
    ``on_drop``: called with every drop under the ``kcl`` policy; the counts include drops in any case. User
    records of a list are made some hundred at a time, so ``counts`` may be ahead.
    ``decompress``: undo the compression of data (`ProducerConfig.compression`); True, or the largest data to
    make, in bytes (True: 64 MiB). What cannot be decompressed is a defect under the ``report`` policy, and
    stays as it is; under the others DecompressionError is raised, after the user records before it.

    Raises DecodeError (policy ``strict`` only) while iterating; ValueError for an unknown policy;
    TypeError for anything but KinesisRecords; its text names the function that reads it.
    """
    check_policy(policy)
    if isinstance(kinesis_records, _NO_SOURCE) or not hasattr(kinesis_records, "__iter__"):
        raise _mistakes().wrong_source(kinesis_records)
    judge = None if shard_map is None and hash_key_range is None else Judge(shard_map, hash_key_range)
    return Deaggregation(kinesis_records, policy, judge, on_drop, max_decompressed_size(decompress))
