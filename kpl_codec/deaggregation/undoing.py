"""Undoes what was done to user records' data, under a policy: compression, the Schema Registry's frame.

Specification: spec/05-producer.md, ZIP-3 to ZIP-5; spec/13-schema-registry.md, GSR-3 to GSR-5.
"""

from __future__ import annotations

from collections import Counter

from ..errors import DecodeError
from ..format.compression import DEFAULT_MAX_DECOMPRESSED_SIZE, check_max_size, compression_of, decompress
from ..schema_registry import is_framed, unframe
from .records import DeaggregatedRecord


class Undo:
    """Call it with each user record: it undoes compression, or (``frame``) takes the frame off. ``max_size``:
    the largest data to make, None: 64 MiB. ``defects``: counts what could not be undone, by code. Raises
    ValueError for a size below 1."""

    def __init__(self, frame: bool, max_size: int | None, policy: str, defects: Counter[str]) -> None:
        self.frame, self._policy, self._defects = frame, policy, defects
        self._max_size = DEFAULT_MAX_DECOMPRESSED_SIZE if max_size is None else check_max_size(max_size)

    def __call__(self, record: DeaggregatedRecord) -> DeaggregatedRecord:
        """The user record with its data as it was; where it cannot be had, what the policy says. Raises
        DecodeError."""
        try:
            return self._unframed(record) if self.frame else self._decompressed(record)
        except DecodeError as error:
            place = {"sequence_number": record.sequence_number, "shard_id": record.shard_id}
            defect = error.at(record_index=record.sub_sequence_number, **place)
            # ZIP-5: "Under the report policy such data MUST be delivered as it is, with the defect; under the
            # others the error is raised."
            # GSR-4: "A broken frame MUST be raised under the strict policy, delivered as it is with the
            # defect under the report policy, and delivered as it is, and counted, under the kcl policy."
            if self._policy == "strict" or (self._policy == "kcl" and not self.frame):
                raise defect from None
            if not record.defects:
                self._defects[defect.code] += 1
            return record._replace(defects=(*record.defects, defect)) if self._policy == "report" else record

    def _decompressed(self, record: DeaggregatedRecord) -> DeaggregatedRecord:
        if compression_of(record.data) is None:
            return record
        return record._replace(data=decompress(record.data, self._max_size))

    def _unframed(self, record: DeaggregatedRecord) -> DeaggregatedRecord:
        # GSR-5: "A user record that has a schema version id already MUST stay as it is."
        if not is_framed(record.data) or record.schema_version_id is not None:
            return record
        version_id, data = unframe(record.data, self._max_size, as_kcl=self._policy == "kcl")
        return record._replace(data=data, schema_version_id=version_id)


def undoing(
    max_decompressed_size: int | None, unframe: bool, policy: str, defects: Counter[str]
) -> list[Undo]:
    """What to call with each user record, one after the other, if told to."""
    # GSR-7: "A reader MUST take the frame off a user record's data after deaggregation, once, and only if it
    # is told to."
    told = (False, max_decompressed_size is not None), (True, unframe)
    return [Undo(frame, max_decompressed_size, policy, defects) for frame, is_told in told if is_told]
