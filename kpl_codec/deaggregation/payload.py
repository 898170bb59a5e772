"""Decompresses the data of user records under a policy. Specification: spec/05-producer.md, ZIP."""

from __future__ import annotations

from typing import Final

from ..errors import DecodeError
from ..format import compression
from .deaggregated_record import Counts, DeaggregatedRecord
from .policy_rules import PolicyRules

#: The codes of defects of a user record's data. Its keys are sound, so its placement is known.
DATA_DEFECTS: Final = frozenset(compression.DecompressionError.codes)


class PayloadDecoder:
    """Called with a user record: decompresses its data, unless ``max_size`` (bytes) is None. ``counts``:
    counts data that could not be decompressed.

    Raises ValueError for a size below 1."""

    def __init__(self, max_size: int | None, rules: PolicyRules, counts: Counts) -> None:
        self._counts, self._rule = counts, rules.on_compression
        self._max_size = None if max_size is None else compression.check_max_size(max_size)
        #: The first bytes of data that may be compressed; none where no data is decompressed.
        self.beginnings = () if max_size is None else compression.STARTS

    def __call__(self, record: DeaggregatedRecord) -> DeaggregatedRecord:
        """The user record with its data decompressed; where that fails, the policy decides. Raises
        DecodeError."""
        if self._max_size is None or compression.compression_of(record.data) is None:
            return record
        try:
            return record.replace(data=compression.decompress(record.data, self._max_size))
        except DecodeError as error:
            number, shard_id, sub = record.sequence_number, record.shard_id, record.sub_sequence_number
            defect = error.at(record_index=sub, sequence_number=number, shard_id=shard_id)
        # ZIP-5: "What becomes of such data MUST be what the table of the policies (chapter 3) says: the error
        # is raised, or the data is delivered as it is, with the defect."
        if self._rule == "raise":
            raise defect
        if not record.defects:
            self._counts.defects[defect.code] += 1
        return record.replace(defects=(*record.defects, defect))
