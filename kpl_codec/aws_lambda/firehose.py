"""Firehose transformations, and Kinesis Analytics preprocessing: one result per record id.

An aggregate becomes one result: the transformed data of its user records, in order. If one fails, Firehose
writes the whole record unchanged to its error output; so it does with each record that does not fit into the
response of 6 MB.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..adapters.shapes import encode_base64, firehose_record
from ..base.arguments import check_arguments
from ..base.values import Value
from ..deaggregation.deaggregated_record import DeaggregatedRecord
from ..deaggregation.policies import opened
from ..errors import CaptureError, DecodeError, place_of, safe
from ..format.records import KinesisRecord, same_content, short_fields
from ..ledger.ledger_rows import Row, digest_of, runs
from .batch import LOG, CallersTypeError, Poison, check_has_run, handle_poison
from .events import event_records, one_name

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger

__all__ = ["Transformed", "transform_user_records"]

#: The most bytes of a response, the same as in Firehose's own examples.
MAX_RESPONSE_SIZE = 6_000_000
#: Bytes of a response around its results, with a reserve.
_ENVELOPE = 64
_NO_PLACE = (
    "ledger of transform_user_records: the event does not name the stream, shard and sequence number of each "
    "record, so no row can name its user records: Firehose does that where its source is a Kinesis stream"
)


class Transformed(Value):
    """A handler's result: the new data, and the partition keys for Firehose's dynamic partitioning."""

    data: bytes
    partition_keys: Mapping[str, str] | None = None

    def __repr__(self) -> str:
        return short_fields(self)


def transform_user_records(
    event: Mapping[str, Any],
    handler: Callable[[DeaggregatedRecord], bytes | Transformed | None],
    *,
    delimiter: bytes = b"",
    on_poison: Callable[[Poison], object] | None = None,
    max_decompressed_size: int | None = None,
    ledger: Ledger | None = None,
) -> dict[str, Any]:
    """Call ``handler`` with each user record of a Firehose transformation event. Returns the response.

    * ``handler`` returns the new data, a `Transformed`, or None to drop the user record;
    * ``delimiter``: what follows each user record's data, ``b"\\n"`` for lines;
    * ``on_poison``: called for records that cannot be decoded. Their result is always ProcessingFailed, so
      Firehose keeps them unchanged in its error output;
    * ``max_decompressed_size``: as in `kpl_codec.deaggregate`;
    * ``ledger``: a `kpl_codec.audit.Ledger`, which notes the user records of every record whose result is Ok
      or Dropped.

    Raises CaptureError for an event without records, or with a record without id; with a ledger ValueError
    for one without a Kinesis stream as its source; and what the ledger raises.
    """
    check_arguments("transform_user_records", locals())
    records = event_records(event, "records")
    source = event.get("sourceKinesisStreamArn") or ""
    arn = source or event.get("deliveryStreamArn") or ""
    # LMB-5: "A transformation MUST return exactly one result for every record id, in order."
    results: list[dict[str, Any]] = []
    for index, raw in enumerate(records):
        record_id = raw.get("recordId") if isinstance(raw, Mapping) else None
        if not isinstance(record_id, str):
            raise CaptureError(code="missing-field", field=f"records[{index}].recordId", requirement="CAP-4")
        # LMB-38: "A transformation with a ledger MUST be refused before its handler runs where a record of
        # the event does not name its stream, shard and sequence number."
        if ledger is not None and not (source and _has_place(raw.get("kinesisRecordMetadata"))):
            raise ValueError(_NO_PLACE)
        results.append({"recordId": record_id, "result": "ProcessingFailed"})
    free = MAX_RESPONSE_SIZE - _ENVELOPE - sum(map(_size, results))
    rows: list[Row] = []
    named: dict[tuple[str | int | None, ...], KinesisRecord] = {}
    for index, (raw, result) in enumerate(zip(records, results, strict=True)):
        record = None
        try:
            record = firehose_record(raw)
            name = record.shard_id, record.sequence_number, record.sub_sequence_number
            # LIN-12, as in format/records.py
            if (
                ledger is not None
                and all(name[:2])
                and not same_content(named.setdefault(name, record), record)
            ):
                raise one_name(f"records[{index}].kinesisRecordMetadata.sequenceNumber", record)
            unpacked = opened([record], max_decompressed_size=max_decompressed_size)
            user_records = list(unpacked)
        except (CaptureError, DecodeError) as error:
            handle_poison(Poison(error, record, raw, arn), on_poison)
            continue
        try:
            # (Not by `map`, which would end at a StopIteration of the handler, as if no more had come.)
            outputs = [check_has_run(handler(user_record)) for user_record in user_records]
            transformation = _transformation(outputs, delimiter)
            more = _size({**result, **transformation}) - _size(result)
        except Exception as error:  # noqa: BLE001 - the caller's code: whatever it raises, the record failed
            # LMB-6: "A record of which any user record failed MUST have the result ProcessingFailed, with
            # none of its user records delivered."
            LOG.error("transformation failed: record id %s: %s", safe(result["recordId"]), place_of(error))
            continue
        # LMB-7: "A record that does not fit into the response MUST have the result ProcessingFailed."
        if more <= free:
            free -= more
            result.update(transformation)
            rows += _rows(record, user_records) if ledger is not None else ()
    if ledger is not None:
        # AUD-7: "A consumer's rows MUST be stored before the records count as handled."
        ledger.note(source, rows)
    return {"records": results}


def _has_place(metadata: Any) -> bool:
    return isinstance(metadata, Mapping) and all(map(metadata.get, ("shardId", "sequenceNumber")))


def _rows(record: KinesisRecord, user_records: list[DeaggregatedRecord]) -> list[Row]:
    place = record.shard_id or "", record.sequence_number or ""
    digest = digest_of(record.partition_key or "", record.data)
    names = [(*place, user.sub_sequence_number) for user in user_records]
    return runs(
        names,
        Row("handled", "", sequence_number="", user_records=1, at=int(time.time() * 1000), digest=digest),
    )


def _transformation(outputs: Iterable[bytes | Transformed | None], delimiter: bytes) -> dict[str, Any]:
    parts: list[bytes] = []
    partition_keys: Mapping[str, str] | None = None
    for output in outputs:
        if output is None:
            continue
        result = output if isinstance(output, Transformed) else Transformed(output)
        if not isinstance(result.data, bytes):
            kind = type(result.data).__name__
            raise CallersTypeError(f"a transformation returns bytes, Transformed or None, not {kind}")
        if parts and result.partition_keys != partition_keys:
            raise ValueError("user records of one record ask for different partition keys")
        partition_keys = result.partition_keys
        parts += (result.data, delimiter)
    if not parts:
        return {"result": "Dropped"}
    ok = {"result": "Ok", "data": encode_base64(b"".join(parts))}
    return ok if partition_keys is None else {**ok, "metadata": {"partitionKeys": dict(partition_keys)}}


def _size(result: Mapping[str, Any]) -> int:
    return len(json.dumps(result)) + 2
