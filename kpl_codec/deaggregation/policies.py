"""Kinesis records -> user records, under a policy.

    policy   sound aggregate              defective aggregate or frame
    -------  ---------------------------  ---------------------------------------------------------
    strict   its user records             raises the DecodeError, with the place of the Kinesis record
    kcl      what the KCL delivers        what the KCL delivers; the rest is counted as dropped
    report   its user records             every user record there is, with its defects; a frame that
                                          cannot be opened as one raw record, with its defect

Under every policy a plain record is one user record. Everything that is dropped is counted.
Specification: spec/03-deaggregation.md, DAG-1 to DAG-13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain

from ..format.hash_keys import HashKeyRange
from ..format.records import KinesisRecord
from ..shards.placement import Judge
from ..shards.shard_map import ShardMap
from .counts import Counts, Drop
from .opener import POLICIES, Opener, Policy, check_policy, no_kinesis_record
from .records import DeaggregatedRecord

#: Iterable types that hold no KinesisRecords.
_NO_SOURCE = (KinesisRecord, Mapping, str, bytes, bytearray, memoryview)


class Deaggregation(Iterator[DeaggregatedRecord]):
    """The iterator that `deaggregate` returns: user records, lazily; ``counts``: what was opened so far."""

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
    unframe: bool = False,
    read_ahead: bool | None = None,
) -> Deaggregation:
    """The user records in ``kinesis_records``, in order, lazily, under ``policy``.

    ``shard_map``: judge each user record's placement on its Kinesis record's ``shard_id``.
    ``hash_key_range``: the range of the one shard that all records come from, as the KCL knows it: it decides
    what the KCL delivers, and makes no placements. A shard in the map is judged by the map instead. Without
    both, the KCL's range rule uses the whole space.
    ``on_drop``: called with every drop under the ``kcl`` policy; the counts include drops in any case.
    ``read_ahead``: some hundred Kinesis records are taken and opened together, three times as fast; so
    ``counts`` may be ahead. None: from whatever can be iterated again, such as a list. From an iterator each
    record is opened before the next is asked for: it may wait for records, and who stops here may go on with
    it there. True: from an iterator, too, that nobody else reads; what was taken from it and not opened is
    gone when this stops early or raises.
    ``max_decompressed_size``: undo the compression of data (`ProducerConfig.compression`), and make at most
    so many bytes of each; None leaves data as it is. What cannot be decompressed is a defect under the
    ``report`` policy, and stays as it is; under the others DecompressionError is raised, after the user
    records before it.
    ``unframe``: take off the frame of AWS Glue Schema Registry, after that, and set ``schema_version_id``; of
    a payload in zlib ``max_decompressed_size`` bytes are made at most, or 64 MiB. A broken frame stays, as a
    defect under the ``report`` policy, as with the KCL (counted) under ``kcl``; ``strict`` raises
    SchemaFrameError.

    Raises DecodeError (policy ``strict`` only) while iterating; ValueError for an unknown policy, or a size
    below 1; TypeError for anything but KinesisRecords; its text names the function that reads it.
    """
    check_policy(policy)
    if isinstance(kinesis_records, _NO_SOURCE) or not hasattr(kinesis_records, "__iter__"):
        raise no_kinesis_record(kinesis_records)
    judge = None if shard_map is None and hash_key_range is None else Judge(shard_map, hash_key_range)
    counts = Counts()
    opened: Iterable[Iterable[DeaggregatedRecord]]
    opened = Opener(policy, judge, counts, on_drop).open(kinesis_records, read_ahead)
    if max_decompressed_size is not None or unframe:
        from .undoing import (  # few need it: the import of a Lambda function stays short
            Decompressor,
            Unframer,
        )

        if max_decompressed_size is not None:
            undo = Decompressor(max_decompressed_size, policy, counts.defects)
            opened = map(partial(map, undo), opened)
        # GSR-7: "A reader MUST take the frame off a user record's data after deaggregation, once, and only if
        # it is told to."
        if unframe:
            opened = map(partial(map, Unframer(max_decompressed_size, policy, counts.defects)), opened)
    return Deaggregation(chain.from_iterable(opened), counts)


__all__ = ["POLICIES", "Deaggregation", "Opener", "Policy", "check_policy", "deaggregate"]
