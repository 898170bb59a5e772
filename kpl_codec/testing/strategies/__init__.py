"""Hypothesis strategies for everything a Kinesis consumer or producer meets.

    >>> import kpl_codec as kpl
    >>> from hypothesis import given, settings
    >>> from kpl_codec.testing import strategies as kst
    >>> quick = settings(max_examples=5, database=None)
    >>> @quick
    ... @given(kst.aggregated_records() | kst.non_canonical_records())
    ... def my_consumer_takes_every_user_record(example: kst.Aggregate) -> None:
    ...     assert list(kpl.decode(example.data)) == list(example.user_records)
    >>> my_consumer_takes_every_user_record()
    >>> @quick
    ... @given(kst.defective_frames())
    ... def my_consumer_reports_what_is_broken(frame: kst.DefectiveFrame) -> None:
    ...     try:
    ...         kpl.decode(frame.data)
    ...     except kpl.DecodeError as error:
    ...         assert error.code == frame.code
    >>> my_consumer_reports_what_is_broken()

| strategy | draws |
|---|---|
| `partition_keys`, `explicit_hash_keys`, `hash_keys`, `tags`, `user_records` | the parts |
| `aggregated_records` | `Aggregate`: user records and the bytes that `encode` makes of them |
| `non_canonical_records` | `Aggregate`: the same user records in other bytes that are as legal |
| `defective_frames` | `DefectiveFrame`: a sound aggregate with one named thing wrong |
| `plain_data` | data that is no aggregate, look-alikes among it |
| `shard_maps` | open shards that tile the hash key space |
| `reshard_histories` | `ReshardHistory`: splits and merges, with sequence numbers as Kinesis writes them |

Everything shrinks towards one small user record, one shard, no reshard. The frames are built here
from protobuf's wire format, not by this library's encoder, so that a mistake there cannot hide.
"""

from ...base.lazy import public_names, require_extras

with require_extras("kpl_codec.testing.strategies"):
    from .aggregates import (
        DEFECTS,
        Aggregate,
        DefectiveFrame,
        aggregated_records,
        defective_frames,
        explicit_hash_keys,
        hash_keys,
        non_canonical_records,
        partition_keys,
        plain_data,
        tags,
        user_records,
    )
    from .shard_maps import ReshardHistory, reshard_histories, shard_maps

__all__ = [
    "DEFECTS", "Aggregate", "DefectiveFrame", "ReshardHistory", "aggregated_records",
    "defective_frames", "explicit_hash_keys", "hash_keys", "non_canonical_records",
    "partition_keys", "plain_data", "reshard_histories", "shard_maps", "tags",
    "user_records",
]  # fmt: skip
__dir__ = public_names(__name__)
