"""Hash keys by the thousand, and the verdicts on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import HashKeyError
from ..format.hash_keys import (
    effective_hash_key,
    explicit_hash_key_value,
    hash_key_from_bytes,
    hash_key_to_bytes,
    partition_key_hash,
)
from ..shards.placement import Judge, Placement
from ..shards.shard_map import ShardMap


class Placer:
    """Judges many hash keys at once; what the verdict is stays `placement.Judge`'s to say.

    The verdict depends on the shard it lies on, on the expected shard, on whether the key is in range
    and on whether it is known for certain. One key of each such combination is judged.
    """

    def __init__(self, shard_map: ShardMap) -> None:
        self.shard_map = shard_map
        self._judge = Judge(shard_map)
        self._endings = np.array(
            [hash_key_to_bytes(shard.hash_key_range.ending_hash_key) for shard in shard_map.open_shards],
            "S16",
        )
        #: The last hash key of each open shard, 16 bytes each, ascending.
        self.endings = self._endings.view(np.uint8)

    def ranges(self, shard_ids: list[str | None]) -> tuple[np.ndarray[Any, Any], ...]:
        """For each shard id its first and last hash key (16 bytes each) and 1 if they are known, else 0."""
        ranges = [
            self.shard_map[shard_id].hash_key_range
            if shard_id is not None and shard_id in self.shard_map
            else None
            for shard_id in shard_ids
        ]
        starts = np.array([hash_key_to_bytes(r.starting_hash_key) if r else b"" for r in ranges], "S16")
        ends = np.array([hash_key_to_bytes(r.ending_hash_key) if r else b"" for r in ranges], "S16")
        known = np.array([r is not None for r in ranges], np.uint8)
        return starts.view(np.uint8), ends.view(np.uint8), known

    def judge(self, hash_key: int | None, shard_id: str | None, *, certain: bool) -> Placement:
        """The verdict on one hash key; ``certain``: it is known that there is no other."""
        return self._judge.on(shard_id).place(hash_key, certain=certain)

    def __call__(
        self,
        keys: bytes,
        known: np.ndarray[Any, Any],
        shard_ids: list[str | None],
        codes: np.ndarray[Any, Any],
        certain: np.ndarray[Any, Any],
    ) -> tuple[pa.Array, pa.Array, np.ndarray[Any, Any]]:
        """For each hash key (16 bytes of ``keys``; no key where not ``known``) that lies on the shard of
        its code: the expected shard id, the verdict, and 1, 0 or -1 for in range, outside, unknown."""
        numbers = np.frombuffer(keys, "S16")
        starts, ends, has_range = self.ranges(shard_ids)
        starts, ends = starts.view("S16"), ends.view("S16")
        ranged = has_range.astype(bool)[codes] & known
        # Fixed-width bytes compare as unsigned numbers of the same width do.
        inside = (numbers >= starts[codes]) & (numbers <= ends[codes])
        in_range = np.where(ranged, inside.astype(np.int8), np.int8(-1))
        expected = np.where(known, np.searchsorted(self._endings, numbers), len(self._endings))
        combined = ((codes * (len(self._endings) + 1) + expected) * 3 + in_range + 1) * 2 + certain
        _, first, inverse = np.unique(combined, return_index=True, return_inverse=True)
        judged = [
            self.judge(
                hash_key_from_bytes(keys[16 * i : 16 * i + 16]) if known[i] else None,
                shard_ids[codes[i]],
                certain=bool(certain[i]),
            )
            for i in first.tolist()
        ]
        expected_ids = pa.array([placement.expected_shard_id for placement in judged], pa.string())
        verdicts = pa.array([placement.verdict.value for placement in judged], pa.string())
        return expected_ids.take(pa.array(inverse)), verdicts.take(pa.array(inverse)), in_range


def partition_key_bytes(partition_key: str) -> bytes:
    return hash_key_to_bytes(partition_key_hash(partition_key))


def explicit_hash_key_bytes(explicit_hash_key: str) -> bytes:
    return hash_key_to_bytes(explicit_hash_key_value(explicit_hash_key))


def hash_key_bytes(partition_key: str | None, explicit_hash_key: str | None) -> bytes | None:
    if partition_key is None and explicit_hash_key is None:
        return None
    try:
        return hash_key_to_bytes(effective_hash_key(partition_key or "", explicit_hash_key))
    except HashKeyError:
        return None
