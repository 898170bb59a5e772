"""Which partition keys have most user records, from the results of `kpl-codec validate`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ..captures import readable
from ..format.hash_keys import partition_key_hash
from .source import UsageError, location_of

#: Into how many parts the hash key space is cut, and in how many of them, the fullest, each key is counted.
#: Other keys are not held in memory.
_PARTS, _LOOKED_AT = 1 << 16, 1 << 12
_COLUMNS = {"hashKey", "partitionKey"}


def hot_keys(results: str, top: int) -> tuple[list[tuple[str, int, int]], int]:
    """The ``top`` partition keys: key, hash key, user records; and the user records of all keys.

    Counts are exact. A key left out has no more user records than the fullest part that was not counted by
    key, so no hot key is left out. Raises UsageError for a folder without user records, InputError.
    """
    folder = location_of(results) / "user-records"
    if folder.kind() is None:
        raise UsageError(reason=f"{results} holds no results of kpl-codec validate (no user-records/)")
    system, inner = folder.opened()
    with readable(folder.path):
        rows = ds.dataset(inner, filesystem=system, format="parquet")
        if not _COLUMNS.issubset(rows.schema.names):
            raise UsageError(reason=f"{folder} has no columns partitionKey and hashKey")
        known = ds.field("partitionKey").is_valid() & ds.field("hashKey").is_valid()
        parts = np.zeros(_PARTS, np.int64)
        for batch in rows.to_batches(columns=["hashKey"], filter=known):
            parts += np.bincount(_parts(batch["hashKey"]), minlength=_PARTS)
        fullest = np.zeros(_PARTS, bool)
        fullest[np.argsort(parts, kind="stable")[-_LOOKED_AT:]] = True
        counts: Counter[str] = Counter()
        for batch in rows.to_batches(columns=["hashKey", "partitionKey"], filter=known):
            hot = pa.array(fullest[_parts(batch["hashKey"])])
            wanted = batch["partitionKey"].cast(pa.string()).filter(hot)
            for pair in pc.value_counts(wanted).to_pylist():
                counts[pair["values"]] += pair["counts"]
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:top]
    return [(key, partition_key_hash(key), count) for key, count in ranked], int(parts.sum())


def _parts(hash_keys: pa.Array) -> Any:
    """The part of the key space of each hash key: its first two bytes."""
    data = b"".join(hash_keys.cast(pa.binary(16)).to_pylist())
    return np.frombuffer(data, ">u2")[::8].astype(np.int64)
