"""Undoes the compression of user records' data, under a policy.

Specification: spec/05-producer.md, ZIP-3 to ZIP-5.
"""

from __future__ import annotations

from collections import Counter

from ..format.compression import DecompressionError, check_max_size, compression_of, decompress
from .records import DeaggregatedRecord


class Decompressor:
    """Call it with each user record. ``max_size``: the largest data to make, in bytes. ``defects``: counts
    what could not be decompressed, by code; None to raise it. Raises ValueError for a size below 1."""

    def __init__(self, max_size: int, defects: Counter[str] | None) -> None:
        self._max_size = check_max_size(max_size)
        self._defects = defects

    def __call__(self, record: DeaggregatedRecord) -> DeaggregatedRecord:
        """The user record with decompressed data. Raises DecompressionError."""
        if compression_of(record.data) is None:
            return record
        try:
            return record._replace(data=decompress(record.data, self._max_size))
        except DecompressionError as error:
            # ZIP-5: "Under the report policy such data MUST be delivered as it is, with the defect; under the
            # others the error is raised."
            fields = {**error.fields, "record_index": record.sub_sequence_number}
            found = DecompressionError(**fields).at(
                sequence_number=record.sequence_number, shard_id=record.shard_id
            )
            if self._defects is None:
                raise found from None
            if not record.defects:
                self._defects[found.code] += 1
            return record._replace(defects=(*record.defects, found))
