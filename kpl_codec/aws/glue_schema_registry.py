"""Fetches the definitions of schemas from AWS Glue Schema Registry, each once, and decodes payloads by them.

    registry = SchemaRegistry(boto3.client("glue"))
    for record in kpl.deaggregate(kinesis_records, unframe=True):
        order = registry.decode(record)      # a dict, for Avro and JSON

Specification: spec/13-schema-registry.md, GSR-9, GSR-10.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from ..arguments import check_arguments
from ..aws_errors import what_to_check
from ..deaggregation.deaggregated_record import DeaggregatedRecord
from ..errors import KplError
from ..schema_registry import GlueSchema, decode_payload
from .calls import call_service, call_with_retries, run_sync

#: The most definitions that are kept; the least recently used one is dropped first.
_MOST_KEPT: Final = 1000
#: Seconds for which a version that could not be fetched is not fetched again.
_RETRY_AFTER: Final = 60.0
#: Glue's error codes for a version that it does not have, and for an id that is invalid.
_NOT_FOUND: Final = ("EntityNotFoundException", "InvalidInputException")


class SchemaUnavailable(KplError):
    """The definition of a schema version cannot be fetched. ``code``: schema-refused (no permission or no
    credentials), schema-not-found (no such version in this account and region, or it is not available),
    schema-unreachable (throttled, or no response). ``aws_code``: AWS's code, or the version's status."""

    code: str
    requirement = "GSR-10"
    schema_version_id: str
    aws_code: str
    hint: str
    text = "schema version {schema_version_id}: {aws_code}: {hint}"
    concerns = "Readers of payloads of this schema. The frame comes off without it."
    todo = "The data of the user record is the payload; decode it another way, or read it again later."
    codes = ("schema-refused", "schema-not-found", "schema-unreachable")


class SchemaRegistry:
    """Fetches definitions with ``client``, a boto3 client of Glue whose role may call GetSchemaVersion.
    Threads may share it. ``patience``: seconds for which it retries a call that is throttled or gets no
    response."""

    def __init__(
        self,
        client: Any,
        *,
        patience: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        check_arguments("SchemaRegistry", locals())
        self._client, self._patience = client, patience
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        #: By schema version id, in the order of last use: the definition; or the error of a fetch, and the
        #: time (of ``clock``) until which it is not repeated.
        self._cache: dict[str, GlueSchema | tuple[SchemaUnavailable, float]] = {}

    def schema(self, schema_version_id: str) -> GlueSchema:
        """The definition of a schema version. Raises SchemaUnavailable."""
        # GSR-10: "A definition MUST be fetched once while it is kept, and a version that cannot be had MUST
        # NOT be asked for again before some time has passed; the error MUST name the right or the version
        # that is missing."
        with self._lock:
            entry = self._cache.pop(schema_version_id, None)
            if entry is None or not (isinstance(entry, GlueSchema) or entry[1] > self._clock()):
                try:
                    entry = self._fetch(schema_version_id)
                except SchemaUnavailable as error:
                    entry = error, self._clock() + _RETRY_AFTER
            self._cache[schema_version_id] = entry
            if len(self._cache) > _MOST_KEPT:
                del self._cache[next(iter(self._cache))]
        if isinstance(entry, GlueSchema):
            return entry
        raise SchemaUnavailable(**entry[0].fields)

    def decode(self, record: DeaggregatedRecord) -> Any:
        """The value of an unframed user record's payload: a Python value for Avro and JSON; bytes for
        Protobuf, and for data that had no frame.

        Raises SchemaUnavailable, PayloadError; ModuleNotFoundError for Avro without the extra ``avro``.
        """
        if record.schema_version_id is None:
            return record.data
        return decode_payload(self.schema(record.schema_version_id), record.data)

    def _fetch(self, schema_version_id: str) -> GlueSchema:
        arguments = {"SchemaVersionId": schema_version_id}
        attempt = partial(call_service, self._client, "get_schema_version", arguments, _missing_member)
        unavailable = partial(_error_of_call, schema_version_id)
        response = run_sync(
            call_with_retries(attempt, unavailable, self._patience, self._sleep, self._clock, random.random)
        )
        if (status := response["Status"]) != "AVAILABLE":
            hint = "the version is not available: see its compatibility check in Glue"
            error = {"code": "schema-not-found", "aws_code": status, "hint": hint}
            raise SchemaUnavailable(schema_version_id=schema_version_id, **error)
        return GlueSchema(schema_version_id, response.get("DataFormat", ""), response["SchemaDefinition"])


def _missing_member(response: Mapping[str, Any]) -> str | None:
    """The member that a response lacks, as one that was truncated."""
    wanted = ["Status", "SchemaDefinition"] if response.get("Status", "AVAILABLE") == "AVAILABLE" else []
    return next((name for name in wanted if not response.get(name)), None)


def _error_of_call(schema_version_id: str, *, code: str, permanent: bool, **_: str) -> SchemaUnavailable:
    kind, hint = "schema-refused", what_to_check(code)
    if code in _NOT_FOUND:
        kind, hint = "schema-not-found", "not in the registries of this account and region, or deleted"
    elif not permanent:
        kind, hint = "schema-unreachable", hint or "try again later"
    elif hint is None or "AccessDenied" in code:
        hint = "allow glue:GetSchemaVersion on the registry and the schema, or on *"
    return SchemaUnavailable(code=kind, schema_version_id=schema_version_id, aws_code=code, hint=hint)
