"""Takes the Schema Registry's frame off user records' data, under a policy.

Specification: spec/13-schema-registry.md, GSR-3 to GSR-5.
"""

from __future__ import annotations

from collections import Counter

from ..format.compression import DEFAULT_MAX_DECOMPRESSED_SIZE, check_max_size
from ..schema_registry import SchemaFrameError, is_framed, unframe
from .opener import Policy
from .records import DeaggregatedRecord


class Unframer:
    """Call it with each user record. ``max_size``: the largest payload to make of zlib, in bytes; None: 64
    MiB. ``defects``: counts frames that stay, by code. Raises ValueError for a size below 1."""

    def __init__(self, max_size: int | None, policy: Policy, defects: Counter[str]) -> None:
        self._max_size = DEFAULT_MAX_DECOMPRESSED_SIZE if max_size is None else check_max_size(max_size)
        self._policy = policy
        self._defects = defects

    def __call__(self, record: DeaggregatedRecord) -> DeaggregatedRecord:
        """The user record without its frame. Raises SchemaFrameError under the strict policy."""
        # GSR-5: "A user record that has a schema version id already MUST stay as it is."
        if not is_framed(record.data) or record.schema_version_id is not None:
            return record
        try:
            version_id, data = unframe(record.data, self._max_size, as_kcl=self._policy == "kcl")
            return record._replace(data=data, schema_version_id=version_id)
        except SchemaFrameError as error:
            # GSR-4: "A broken frame MUST be raised under the strict policy, delivered as it is with the
            # defect under the report policy, and delivered as it is, and counted, under the kcl policy."
            fields = {**error.fields, "record_index": record.sub_sequence_number}
            found = SchemaFrameError(**fields).at(
                sequence_number=record.sequence_number, shard_id=record.shard_id
            )
            if self._policy == "strict":
                raise found from None
            if not record.defects:
                self._defects[found.code] += 1
            return record._replace(defects=(*record.defects, found)) if self._policy == "report" else record
