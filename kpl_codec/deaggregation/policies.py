"""`deaggregate`: takes the user records out of Kinesis records, under a policy.

Under every policy a plain record is one user record, and every dropped user record is counted.
Specification: spec/03-deaggregation.md, which has a table of the policies, DAG-1 to DAG-13.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, count, islice
from typing import TYPE_CHECKING, Any

from ..base.arguments import check_arguments
from ..base.compiled import prefer_compiled, speedups
from ..errors import DecodeError, MalformedMessage
from ..format import frame, wire
from ..format.codec import decode, is_aggregated
from ..format.hash_keys import HashKeyRange
from ..format.limits import DIGEST_SIZE
from ..format.message import AggregatedRecord, parse
from ..format.records import (
    KinesisRecord,
    OpenedBefore,
    as_kinesis_record,
    kinesis_record_type_error,
    opening_of,
    with_siblings,
)
from ..shards.placement import (
    AGGREGATE_KINDS,
    CodedShards,
    Placement,
    PlacementChecker,
    ShardPlacementChecker,
    hash_key_or_none,
)
from ..shards.shard_map import ShardMap
from . import deaggregated_record as rows
from . import kcl
from .deaggregated_record import Counts, DeaggregatedRecord, Drop
from .kcl import DropReason, KclResult
from .policy_rules import Policy, PolicyRules, rules_of

if TYPE_CHECKING:
    from ..shards.stream_name import StreamMatcher
    from .payload import PayloadDecoder

#: The most Kinesis records that compiled code reads in one call; how many of an iterator in the first call.
_MAX_TOGETHER, _FIRST_TOGETHER = 1024, 32
#: The two results of compiled code for a run of Kinesis records; with any other Python opens the record.
_OPENED, _DROPPED = 0, 1
#: The most streams of records that are remembered.
_MOST_STREAMS = 1000
_TYPES = (KinesisRecord, DeaggregatedRecord, Placement)
_FrameRows = prefer_compiled("FrameRows", lambda *_, **__: None)


class RecordDeaggregator:
    """Opens Kinesis records under one policy, in order, and counts them. ``checker``: None where neither a
    shard map nor a hash key range is known."""

    def __init__(
        self,
        rules: PolicyRules,
        checker: PlacementChecker | None,
        counts: Counts,
        on_drop: Callable[[Drop], None] | None = None,
    ) -> None:
        self._open = {
            "raise": self._open_or_raise,
            "as-kcl": self._open_as_kcl,
            "report": self._open_with_defects,
        }[rules.on_defect]
        self._checker = checker
        # DAG-9: "A placement MUST be on every user record where a shard map was given, and on none where only
        # a hash key range was."
        self._placed = checker is not None and checker.shard_map is not None
        #: The checker for records of each stream, by what they name: None for those of another stream.
        self._checkers: dict[str | None, PlacementChecker | None] = {None: checker}
        self._streams: StreamMatcher | None = None
        if checker is not None and checker.shard_map is not None:
            from ..shards.stream_name import StreamMatcher  # late: few Lambda functions give a shard map

            self._streams = StreamMatcher(checker.shard_map.stream)
        self._counts = counts
        self._on_drop = on_drop
        self._as_kcl, self._shows_defects = rules.as_kcl, rules.shows_defects
        #: By the index of the aggregate's kind in AGGREGATE_KINDS.
        self._kcl_results: tuple[KclResult | None, ...] = tuple(
            kcl.result_of_sound(kind) if self._shows_defects else None for kind in AGGREGATE_KINDS
        )

    def open(
        self, kinesis_records: Iterable[KinesisRecord], read_ahead: bool | None = None
    ) -> Iterator[Iterable[DeaggregatedRecord]]:
        """The user records of each Kinesis record. Without ``read_ahead`` each is opened before the next is
        asked for; None: only an iterator's. Raises DecodeError, TypeError, and what ``kinesis_records``
        raises, after the user records before it."""
        source = iter(kinesis_records)
        # DAG-13: "A Kinesis record MUST NOT be taken from an iterator before the one in front of it is
        # opened: whoever leaves the loop early and continues with the iterator would miss it."
        if read_ahead is None:
            read_ahead = source is not kinesis_records
        is_list = isinstance(kinesis_records, (list, tuple))
        if not read_ahead:
            yield from map(self.open_alone, with_siblings(source) if is_list else source)
            return
        limit = _MAX_TOGETHER if is_list else _FIRST_TOGETHER
        separate = is_list  # siblings that were opened before do not know of one another yet
        records: list[KinesisRecord] = []
        failure: Exception | None = None
        while True:
            # DAG-12: "An iterator of Kinesis records MUST give the same user records as a list of them, but
            # for siblings that were opened before (PLC-6); if the iterator raises, the user records of the
            # Kinesis records before that come first."
            try:
                records.extend(islice(source, max(0, limit - len(records))))
            except Exception as error:  # noqa: BLE001 - the caller's code: it is raised below
                failure, source = error, iter(())
            if not records:
                break
            try:
                frames = self._read(records)
            except TypeError:  # not all are KinesisRecords with bytes
                frames = None
            # Siblings are joined from the first record on that somebody has opened: mostly there is none.
            if separate and (any(map(_is_opened, records)) if frames is None else frames.opened_before):
                source, separate, records = with_siblings(chain(records, source)), False, []
                continue
            if frames is None:
                for record in records:
                    yield self.open_one(as_kinesis_record(record))
                records.clear()
                continue
            yield from self._runs(records, frames)
            # The next limit: compiled code stops after about half a MiB, so `frames.count` may be below the
            # limit.
            more = 2 * limit if frames.count == len(records) else max(_FIRST_TOGETHER, frames.count)
            limit = min(_MAX_TOGETHER, more)
            del records[: frames.count]
        if failure is not None:
            raise failure

    def open_alone(self, record: KinesisRecord) -> list[DeaggregatedRecord]:
        """The user records of one Kinesis record, which has no siblings."""
        record = as_kinesis_record(record)
        frames = self._read([record]) if frame.looks_aggregated(record.data) else None
        if frames is None:
            return list(self.open_one(record))
        return list(chain.from_iterable(self._runs([record], frames)))

    def _runs(self, records: list[KinesisRecord], frames: Any) -> Iterator[Iterable[DeaggregatedRecord]]:
        """The user records of what compiled code has read of ``records``."""
        counts = self._counts
        for what, first, last, user_records in frames:
            if what == _OPENED:
                counts.kinesis_records += last - first
                counts.aggregated_records += frames.status.count(speedups.State.AGGREGATED, first, last)
                counts.user_records += len(user_records)
                yield user_records
            elif what == _DROPPED:
                counts.kinesis_records += 1
                counts.aggregated_records += 1
                self._drop(records[first], user_records, "out-of-range", frames.first_outside(first))
            else:
                yield self.open_one(records[first])

    def _read(self, records: list[KinesisRecord]) -> Any:
        """The first of ``records``, as many as compiled code reads in one call. Raises TypeError if one has
        another type, or data that is not bytes. None: without compiled code."""
        checker = self._checker
        if self._streams is not None:
            streams = [getattr(record, "stream", None) for record in records]
            checker = self._checker_of(streams[0])
            records = records[: next((n for n, one in enumerate(streams) if one != streams[0]), None)]
        options = {"kcl": self._as_kcl, "hash_keys": checker is not None}
        frames = _FrameRows(records, _TYPES, self._kcl_results, **options)
        if frames is not None and checker is not None:
            shard_ids = [record.shard_id for record in records[: frames.count]]
            numbers = dict(zip(dict.fromkeys(shard_ids), count(), strict=False))
            coded = CodedShards(checker, tuple(numbers))
            frames.check_placement(array("q", map(numbers.__getitem__, shard_ids)), *coded.tables)
            if self._placed:
                frames.facts = {code: coded.facts_of(code) for code in frames.distinct_codes}
        return frames

    def open_one(self, record: KinesisRecord) -> Iterable[DeaggregatedRecord]:
        """The user records of one Kinesis record, opened without compiled code."""
        self._counts.kinesis_records += 1
        # DAG-8: "An aggregate inside the data of a user record MUST be left as it is."
        opening = opening_of(record)
        if opening is not None:
            return self._opened_before(record, opening)
        if frame.looks_aggregated(record.data):
            return self._open(record)
        # DAG-1: "A plain record is delivered as its own only user record, sub-sequence number 0, under every
        # policy and whatever its hash key."
        self._counts.user_records += 1
        return (rows.kinesis_record_row(record, self._place_plain(record), self._kcl_results[0]),)

    def _opened_before(self, record: KinesisRecord, opening: OpenedBefore) -> tuple[DeaggregatedRecord, ...]:
        """The user record that was opened before, unless the policy drops it."""
        checker, aggregate = self._on_shard(record), None
        placement, result = self._place_plain(record, opening.aggregated), self._kcl_results[0]
        if checker is not None:
            aggregate = checker.check_opened(opening)
            if self._as_kcl and aggregate.result == "dropped":
                self._drop(record, 1, "out-of-range", aggregate.outside)
                return ()
            placement = placement and placement.replace(aggregate=aggregate.kind)
            result = aggregate.result if self._shows_defects else None
        self._counts.user_records += 1
        return (rows.kinesis_record_row(record, placement, result, aggregated=opening.aggregated),)

    def _checker_of(self, stream: str | None) -> PlacementChecker | None:
        """What judges records that name ``stream``; None if it is not the map's. Raises SeveralStreams."""
        if self._streams is None:
            return self._checker
        if stream not in self._checkers:
            if len(self._checkers) > _MOST_STREAMS:
                self._checkers = {None: self._checker}
            # SPK-110: "A shard map that says which stream it is of MUST judge the records of that stream
            # only: one that names another stream comes as without a map."
            # LMB-21: "A shard map that names its stream MUST NOT be used for the records of another stream."
            self._checkers[stream] = None if self._streams.mismatches((stream,)) else self._checker
        return self._checkers[stream]

    def _on_shard(self, record: KinesisRecord) -> ShardPlacementChecker | None:
        checker = self._checker_of(record.stream)
        return None if checker is None else checker.on(record.shard_id)

    def _place_plain(self, record: KinesisRecord, certain: bool = False) -> Placement | None:
        checker = self._on_shard(record)
        if checker is None or not self._placed:
            return None
        hash_key = hash_key_or_none(record.partition_key, record.explicit_hash_key)
        return checker.check(hash_key, certain=certain or record.explicit_hash_key is not None)

    def _open_or_raise(self, record: KinesisRecord) -> Iterable[DeaggregatedRecord]:
        # DAG-2: "Under the strict policy the first defect MUST be raised, with the sequence number and
        # shard of its Kinesis record; no user record of that Kinesis record is delivered before."
        try:
            aggregate = decode(record.data)
        except DecodeError as error:
            raise error.at(sequence_number=record.sequence_number, shard_id=record.shard_id) from None
        return self._sound(record, aggregate)

    def _open_as_kcl(self, record: KinesisRecord) -> Iterable[DeaggregatedRecord]:
        aggregate = parse(record.data[4:-DIGEST_SIZE]) if is_aggregated(record.data) else None
        if aggregate is not None:
            return self._sound(record, aggregate)
        outcome = self._outcome(record)
        self._counts.user_records += outcome.delivered
        if outcome.raw:
            return (rows.kinesis_record_row(record, self._place_plain(record), None),)
        self._counts.aggregated_records += 1
        if not outcome.total:
            self._counts.empty_records += 1
        elif outcome.reason is not None:
            self._drop(record, outcome.total - outcome.delivered, outcome.reason, outcome.record_index)
        if not outcome.delivered:
            return ()
        return rows.kcl_rows(record, outcome.delivered, self._on_shard(record) if self._placed else None)

    def _drop(
        self, record: KinesisRecord, user_records: int, reason: DropReason, record_index: int | None
    ) -> None:
        drop = Drop(record.sequence_number, record.shard_id, user_records, reason, record_index)
        self._counts.add_drop(drop, self._on_drop)

    def _open_with_defects(self, record: KinesisRecord) -> Iterable[DeaggregatedRecord]:
        try:
            content = frame.split_frame(record.data)
        except DecodeError as error:
            return (self._raw(record, error, "raw"),)
        aggregate = parse(content)
        if aggregate is None:
            return self._open_defective(record)
        return self._sound(record, aggregate)

    def _sound(self, record: KinesisRecord, aggregate: AggregatedRecord) -> Iterable[DeaggregatedRecord]:
        kind, placements = None, None
        self._counts.aggregated_records += 1
        checker = self._on_shard(record)
        if checker is not None:
            kind, placements = rows.place_sound(aggregate, checker)
            if self._as_kcl and kcl.result_of_sound(kind) == "dropped":
                outside = next(i for i, placement in enumerate(placements) if not placement.in_range)
                self._drop(record, len(aggregate), "out-of-range", outside)
                return ()
            if not self._placed:
                placements = None
        self._counts.user_records += len(aggregate)
        result = kcl.result_of_sound(kind) if self._shows_defects else None
        return rows.sound_rows(record, aggregate, placements, result, tags=not self._as_kcl)

    def _raw(
        self, record: KinesisRecord, defect: DecodeError, result: KclResult | None, sub: int = 0
    ) -> DeaggregatedRecord:
        """The Kinesis record as one user record, unopened, with its defects."""
        defect = defect.at(sequence_number=record.sequence_number, shard_id=record.shard_id)
        row = rows.kinesis_record_row(record, None, result, (defect,), sub)
        self._counts.user_records += row.is_user_record
        self._counts.defects[defect.code] += 1
        return row

    def _open_defective(self, record: KinesisRecord) -> Iterable[DeaggregatedRecord]:
        """The user records of a frame that is not sound."""
        try:
            message = wire.Message(record.data)
        except MalformedMessage as error:
            outcome = self._outcome(record)
            # DAG-6: "Under the report policy a frame whose digest or message is broken is delivered as one
            # raw record with its defect, sub-sequence number 0, and with what the KCL does with it: raw, or
            # dropped where the KCL delivers nothing of it."
            if outcome.raw or not outcome.total:
                return (self._raw(record, error, "raw" if outcome.raw else "dropped"),)
            # DAG-10: "User records that the KCL reads in a message that is malformed here MUST follow the
            # raw frame, each with the defect and with what the KCL does with it; the raw frame then has
            # sub-sequence number -1."
            return self._defective(record, error, wire.Message(record.data, strict=False), error)
        first = message.first_defect()
        whole = message.defects[0] if message.defects else None if message.record_count else first
        return self._defective(record, whole, message)

    def _defective(
        self,
        record: KinesisRecord,
        whole: DecodeError | None,
        message: wire.Message,
        malformed: MalformedMessage | None = None,
    ) -> Iterator[DeaggregatedRecord]:
        # DAG-5: "Under the report policy every user record that the bytes hold MUST be delivered, with
        # its defects; a partition key that cannot be known is null, data that is missing is empty."
        # DAG-7: "Under the report policy defects outside of any user record are delivered as one more row
        # with the raw frame, sub-sequence number -1, before the user records."
        counts = self._counts
        counts.aggregated_records += 1
        if whole is not None:
            yield self._raw(record, whole, None, -1)
        checker = self._on_shard(record) if self._placed else None
        for row in rows.defective_rows(record, message, self._outcome(record), checker, malformed):
            counts.user_records += 1
            if row.defects:
                counts.defects[row.defects[0].code] += 1
            yield row

    def _outcome(self, record: KinesisRecord) -> kcl.KclOutcome:
        # DAG-11: "What the report policy says of the KCL MUST be what the kcl policy does, for every frame
        # and range: as many user records delivered or altered, and as many dropped."
        checker = self._on_shard(record)
        return kcl.outcome(record.data, None if checker is None else checker.hash_key_range)


def _is_opened(record: object) -> bool:
    return isinstance(record, KinesisRecord) and opening_of(record) is not None


#: Iterable types that hold no KinesisRecords.
_NO_SOURCE = (KinesisRecord, Mapping, str, bytes, bytearray, memoryview)


class Deaggregation(Iterator[DeaggregatedRecord]):
    """The iterator over user records that `deaggregate` returns. ``counts``: of the Kinesis records so
    far."""

    __slots__ = ("_user_records", "counts")

    def __init__(self, user_records: Iterator[DeaggregatedRecord], counts: Counts) -> None:
        self._user_records = user_records
        self.counts = counts

    def __iter__(self) -> Iterator[DeaggregatedRecord]:
        return self._user_records  # a `chain`: it steps to the next user record without running Python code

    def __next__(self) -> DeaggregatedRecord:
        return next(self._user_records)


def deaggregate(
    kinesis_records: Iterable[KinesisRecord],
    policy: Policy = "strict",
    *,
    shard_map: ShardMap | None = None,
    hash_key_range: HashKeyRange | None = None,
    on_drop: Callable[[Drop], None] | None = None,
    max_decompressed_size: int | None = None,
) -> Deaggregation:
    """The user records in ``kinesis_records``, in order, lazily.

    ``policy``: what becomes of a defective Kinesis record; spec/03-deaggregation.md has the table.
    ``shard_map``: check each user record's placement on its Kinesis record's ``shard_id``. A record whose
    ``stream`` is not the map's comes as without a map.
    ``hash_key_range``: the range of the one shard that all records come from, as the KCL knows it. It decides
    what the KCL delivers, and makes no placements; for a shard in the map the map counts instead. Without
    both, the KCL's range rule uses the whole space. ``on_drop``: called with every `Drop`, where the policy
    drops; the counts include drops in any case. Of a list, or what else can be iterated again, some hundred
    Kinesis records are opened together, three times as fast (``counts`` may then be ahead); an iterator may
    wait for records, or be read on by others, so its records are opened one by one.
    ``max_decompressed_size``: decompress data (`ProducerConfig.compression`) to at most so many bytes a user
    record; None leaves data as it is. Data that cannot be decompressed stays as it is, with a defect, where
    the policy reports defects; else DecompressionError is raised, after the user records before it.

    Raises DecodeError while iterating, if the policy raises defects; SeveralStreams at a record of a second
    stream, if the map does not say of which stream it is; ValueError for an unknown policy, or a
    size below 1; TypeError for anything but KinesisRecords; its text names the function that converts it.

        >>> import kpl_codec as kpl
        >>> data = kpl.encode([kpl.UserRecord("customer-1", b"one"), kpl.UserRecord("customer-4", b"two")])
        >>> plain = kpl.KinesisRecord("plain", b"three", "2")
        >>> records = [kpl.KinesisRecord("a", data, "1", "shardId-0"), plain]
        >>> users = kpl.deaggregate(records)
        >>> for user in users:
        ...     print(user.partition_key, user.data, user.sequence_number, user.sub_sequence_number)
        customer-1 b'one' 1 0
        customer-4 b'two' 1 1
        plain b'three' 2 0
        >>> users.counts.kinesis_records, users.counts.aggregated_records, users.counts.user_records
        (2, 1, 3)

    With a shard map, the policy "report" says of each user record where it belongs and what the KCL does; the
    policy "kcl" does as the KCL does:

        >>> low, high = kpl.ALL_HASH_KEYS.split(2)
        >>> shard_map = kpl.ShardMap([kpl.Shard("shardId-0", low), kpl.Shard("shardId-1", high)])
        >>> for user in kpl.deaggregate(records[:1], "report", shard_map=shard_map):
        ...     print(user.partition_key, user.placement.verdict, user.placement.expected_shard_id, user.kcl)
        customer-1 stray shardId-1 dropped
        customer-4 expected shardId-0 dropped
        >>> drops: list[kpl.Drop] = []
        >>> list(kpl.deaggregate(records[:1], "kcl", shard_map=shard_map, on_drop=drops.append))
        []
        >>> drops[0].user_records, drops[0].reason
        (2, 'out-of-range')
    """
    given: Any = {**locals()}
    check_arguments("deaggregate", given)
    return opened(**given)


def opened(
    kinesis_records: Iterable[KinesisRecord],
    policy: Policy = "strict",
    *,
    shard_map: ShardMap | None = None,
    hash_key_range: HashKeyRange | None = None,
    on_drop: Callable[[Drop], None] | None = None,
    max_decompressed_size: int | None = None,
    read_ahead: bool | None = None,
) -> Deaggregation:
    """`deaggregate` with arguments that were checked before: Lambda functions call it for each
    Kinesis record. ``read_ahead``: as for `RecordDeaggregator.open`."""
    if isinstance(kinesis_records, _NO_SOURCE) or not hasattr(kinesis_records, "__iter__"):
        raise kinesis_record_type_error(kinesis_records)
    counts = Counts()
    deaggregator, decoder = _deaggregator(
        counts, policy, shard_map, hash_key_range, on_drop, max_decompressed_size
    )
    user_records: Iterator[DeaggregatedRecord]
    user_records = chain.from_iterable(deaggregator.open(kinesis_records, read_ahead))
    if decoder is not None:
        user_records = map(decoder, user_records)
    return Deaggregation(user_records, counts)


def opener(policy: Policy = "strict", **options: Any) -> Callable[[KinesisRecord], list[DeaggregatedRecord]]:
    """What opens Kinesis records one by one, each as `deaggregate` a list of one, with ``options`` that were
    checked before. Records of several streams may come, also with a map that names none."""
    deaggregator, decoder = _deaggregator(Counts(), policy, **options)
    if decoder is None:
        return deaggregator.open_alone
    return lambda record: list(map(decoder, deaggregator.open_alone(record)))


def _deaggregator(
    counts: Counts,
    policy: Policy,
    shard_map: ShardMap | None = None,
    hash_key_range: HashKeyRange | None = None,
    on_drop: Callable[[Drop], None] | None = None,
    max_decompressed_size: int | None = None,
) -> tuple[RecordDeaggregator, PayloadDecoder | None]:
    rules, checker, decoder = rules_of(policy), None, None
    if shard_map is not None or hash_key_range is not None:
        checker = PlacementChecker(shard_map, hash_key_range)
    if max_decompressed_size is not None:
        from .payload import PayloadDecoder  # late: an import costs a Lambda function time

        decoder = PayloadDecoder(max_decompressed_size, rules, counts)
    return RecordDeaggregator(rules, checker, counts, on_drop), decoder
