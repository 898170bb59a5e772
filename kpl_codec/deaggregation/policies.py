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

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from ..format.compression import max_decompressed_size
from ..format.hash_keys import HashKeyRange
from ..format.records import KinesisRecord
from ..shards.placement import Judge
from ..shards.shard_map import ShardMap
from .counts import Counts, Drop
from .decompression import Decompressor
from .opener import POLICIES, Opener, Policy, check_policy
from .records import DeaggregatedRecord

#: Iterable types that hold no KinesisRecords.
_NO_SOURCE = (KinesisRecord, Mapping, str, bytes, bytearray, memoryview)

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
        read_ahead: bool | None,
    ) -> Deaggregation:
        """Use `deaggregate`."""
        counts = Counts()
        opened: Iterable[Iterable[DeaggregatedRecord]]
        opened = Opener(policy, judge, counts, on_drop).open(kinesis_records, read_ahead)
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
    ``decompress``: undo the compression of data (`ProducerConfig.compression`); True, or the largest data to
    make, in bytes (True: 64 MiB). What cannot be decompressed is a defect under the ``report`` policy, and
    stays as it is; under the others DecompressionError is raised, after the user records before it.

    Raises DecodeError (policy ``strict`` only) while iterating; ValueError for an unknown policy;
    TypeError for anything but KinesisRecords; its text names the function that reads it.
    """
    check_policy(policy)
    if isinstance(kinesis_records, _NO_SOURCE) or not hasattr(kinesis_records, "__iter__"):
        from .mistakes import wrong_source  # loaded only after a mistake

        raise wrong_source(kinesis_records)
    judge = None if shard_map is None and hash_key_range is None else Judge(shard_map, hash_key_range)
    max_size = max_decompressed_size(decompress)
    return Deaggregation(kinesis_records, policy, judge, on_drop, max_size, read_ahead)


__all__ = ["POLICIES", "Deaggregation", "Opener", "Policy", "check_policy", "deaggregate"]
