"""Undoes what was done to user records' data, under a policy: compression, the Schema Registry's frame.

Specification: spec/05-producer.md, ZIP-3 to ZIP-5; spec/13-schema-registry.md, GSR-3 to GSR-5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from ..errors import DecodeError
from ..format.compression import DEFAULT_MAX_DECOMPRESSED_SIZE, check_max_size, compression_of, decompress
from ..schema_registry import is_framed, unframe
from .records import DeaggregatedRecord


class Undo:
    """Call it with each user record. ``undone``: gives it with its data as it was; the DecodeError where it
    cannot be had is raised under the policies ``raising``. ``max_size``: the largest data to make, None:
    64 MiB. ``defects``: counts what could not be undone, by code. Raises ValueError for a size below 1."""

    def __init__(
        self,
        undone: Callable[[DeaggregatedRecord, int, str], DeaggregatedRecord],
        raising: tuple[str, ...],
        max_size: int | None,
        policy: str,
        defects: Counter[str],
    ) -> None:
        self._undone, self._raising, self._policy, self._defects = undone, raising, policy, defects
        self._max_size = DEFAULT_MAX_DECOMPRESSED_SIZE if max_size is None else check_max_size(max_size)

    def __call__(self, record: DeaggregatedRecord) -> DeaggregatedRecord:
        """The user record with its data as it was; where it cannot be had, what the policy says."""
        try:
            return self._undone(record, self._max_size, self._policy)
        except DecodeError as error:
            place = {"sequence_number": record.sequence_number, "shard_id": record.shard_id}
            defect = error.at(record_index=record.sub_sequence_number, **place)
            # ZIP-5: "Under the report policy such data MUST be delivered as it is, with the defect; under the
            # others the error is raised."
            # GSR-4: "A broken frame MUST be raised under the strict policy, delivered as it is with the
            # defect under the report policy, and delivered as it is, and counted, under the kcl policy."
            if self._policy in self._raising:
                raise defect from None
            if not record.defects:
                self._defects[defect.code] += 1
            return record._replace(defects=(*record.defects, defect)) if self._policy == "report" else record


def _decompressed(record: DeaggregatedRecord, max_size: int, policy: str) -> DeaggregatedRecord:
    if compression_of(record.data) is None:
        return record
    return record._replace(data=decompress(record.data, max_size))


def _unframed(record: DeaggregatedRecord, max_size: int, policy: str) -> DeaggregatedRecord:
    # GSR-5: "A user record that has a schema version id already MUST stay as it is."
    if not is_framed(record.data) or record.schema_version_id is not None:
        return record
    version_id, data = unframe(record.data, max_size, as_kcl=policy == "kcl")
    return record._replace(data=data, schema_version_id=version_id)


Decompressor = partial(Undo, _decompressed, ("strict", "kcl"))
#: Takes the Schema Registry's frame off.
Unframer = partial(Undo, _unframed, ("strict",))
