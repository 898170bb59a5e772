"""Decompresses the data of user records, and takes off the Schema Registry's frame, under a policy.
Specification: spec/05-producer.md, ZIP; spec/13-schema-registry.md, GSR."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from ..errors import DecodeError
from ..format import compression
from ..schema_registry import PLAIN, ZLIB, SchemaFrameError, Unframe, has_frame, payload_of, version_ids
from .deaggregated_record import Counts, DeaggregatedRecord, Drop
from .policy_rules import PayloadRule, PolicyRules

#: The codes of defects of a user record's data. Its keys are sound, so its placement is known.
DATA_DEFECTS: Final = frozenset((*compression.DecompressionError.codes, *SchemaFrameError.codes))


class PayloadDecoder:
    """Called with a user record: decompresses its data, unless ``max_size`` (bytes) is None, and then takes
    off the frame, if ``unframes`` says so (at most 64 MiB by default). ``counts``: counts data that could not
    be decoded, and user records that were dropped.

    Raises ValueError for a size below 1, and for a text that is no schema version id."""

    def __init__(
        self,
        max_size: int | None,
        unframes: Unframe,
        rules: PolicyRules,
        counts: Counts,
        on_drop: Callable[[Drop], None] | None,
    ) -> None:
        self._counts, self._on_drop = counts, on_drop
        decompresses = max_size is not None
        largest = compression.DEFAULT_MAX_DECOMPRESSED_SIZE if max_size is None else max_size
        self._max_size = compression.check_max_size(largest)
        # GSR-7: "A reader MUST take the frame off a user record's data after deaggregation, once, and only
        # where an option says so."
        framed = unframes is not False
        self._versions = None if isinstance(unframes, bool) else version_ids(unframes, "unframe")
        self._as_kcl = rules.as_kcl
        self._steps: list[tuple[Callable[[DeaggregatedRecord], DeaggregatedRecord], PayloadRule]] = []
        # ZIP-5: "What becomes of such data MUST be what the table of the policies (chapter 3) says: the error
        # is raised, the data is delivered as it is, with the defect, or its user record is dropped and
        # counted."
        if decompresses:
            self._steps.append((self._decompress, rules.on_compression))
        # GSR-4: "What becomes of a broken frame MUST be what the table of the policies (chapter 3) says: it
        # is raised, delivered as it is and counted, with the defect or without, or dropped with its user
        # record."
        if framed:
            self._steps.append((self._unframe, rules.on_schema_frame))
        #: The first bytes of data that may be compressed or framed.
        self.beginnings = compression.STARTS * decompresses + (PLAIN, ZLIB) * framed

    def decode_all(self, records: Iterable[DeaggregatedRecord]) -> Iterator[DeaggregatedRecord]:
        """The user records with their data decoded, without those that the policy drops."""
        return filter(None, map(self, records))

    def __call__(self, record: DeaggregatedRecord) -> DeaggregatedRecord | None:
        """The user record with its data decoded; where that fails, the policy decides: None if it drops the
        user record. Raises DecodeError."""
        for step, rule in self._steps:
            try:
                record = step(record)
            except DecodeError as error:
                number, shard_id, sub = record.sequence_number, record.shard_id, record.sub_sequence_number
                defect = error.at(record_index=sub, sequence_number=number, shard_id=shard_id)
                if rule == "raise":
                    raise defect from None
                if rule == "drop":
                    self._counts.user_records -= 1
                    drop = Drop(number, shard_id, 1, "defect", sub)
                    self._counts.add_drop(drop, self._on_drop)
                    return None
                if not record.defects:
                    self._counts.defects[defect.code] += 1
                if rule == "report":
                    record = record.replace(defects=(*record.defects, defect))
        return record

    def _decompress(self, record: DeaggregatedRecord) -> DeaggregatedRecord:
        if compression.compression_of(record.data) is None:
            return record
        return record.replace(data=compression.decompress(record.data, self._max_size))

    def _unframe(self, record: DeaggregatedRecord) -> DeaggregatedRecord:
        # GSR-5: "A user record that has a schema version id already MUST stay as it is."
        if not has_frame(record.data, self._versions) or record.schema_version_id is not None:
            return record
        version_id, data = payload_of(record.data, self._max_size, self._as_kcl)
        return record.replace(data=data, schema_version_id=version_id)
