"""``deaggregate_records`` and ``iter_deaggregate_records``: dicts in Lambda's shape, one per user record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from ...adapters.shapes import decode_base64, encode_base64, shape_of
from ...errors import CaptureError, DecodeError
from ...format.codec import decode
from ...format.frame import looks_aggregated
from ...format.records import UserRecord

Errors = Literal["raise", "raw"]
_Record = Mapping[str, Any]


def deaggregate_records(
    records: Iterable[_Record] | _Record, data_format: str | None = None, *, errors: Errors = "raise"
) -> list[dict[str, Any]]:
    """`iter_deaggregate_records` as a list: all of it, or an error."""
    return list(iter_deaggregate_records(records, data_format, errors=errors))


def iter_deaggregate_records(
    records: Iterable[_Record] | _Record, data_format: str | None = None, *, errors: Errors = "raise"
) -> Iterator[dict[str, Any]]:
    """The user records of ``records`` (or of one record), each as a Lambda record.

    ``records``: Lambda, Kinesis Analytics, Firehose or boto3's records, recognised one by one; or a whole
    event. ``data_format``: not needed. ``kinesis.data`` is base64 text in every case. A plain Lambda record
    comes out as it went in.

    An aggregated record that is not sound raises DecodeError, text that is not base64 CaptureError; with
    ``errors="raw"`` the Kinesis record comes out whole instead, unopened, as a plain one does.
    """
    if errors not in ("raise", "raw"):
        raise ValueError(f'errors={errors!r}: give "raise" or "raw"')
    if isinstance(records, Mapping):
        records = next((records[key] for key in ("Records", "records") if key in records), [records])
    for record in records:
        shaped, data = _lambda_shape(record)
        # CMP-3: "An aggregated record that is not sound MUST raise, or come out whole where the caller
        # asks for that; no user record of it may be left out."
        if looks_aggregated(data):
            kinesis = shaped["kinesis"]
            try:
                user_records = decode(data)
            except DecodeError as error:
                if errors == "raise":
                    raise error.at(
                        sequence_number=kinesis.get("sequenceNumber"), shard_id=kinesis.get("shardId")
                    ) from None
            else:
                for index, user_record in enumerate(user_records):
                    yield _user_record(shaped, user_record, index)
                continue
        yield shaped


def _user_record(record: dict[str, Any], user_record: UserRecord, index: int) -> dict[str, Any]:
    outer = record["kinesis"]
    kinesis = {
        "kinesisSchemaVersion": outer.get("kinesisSchemaVersion", "1.0"),
        "sequenceNumber": outer.get("sequenceNumber"),
        "approximateArrivalTimestamp": outer.get("approximateArrivalTimestamp"),
        # CMP-6: "Metadata that is absent MUST NOT cost user records."
        # CMP-2: "A user record without an explicit hash key MUST have none."
        "explicitHashKey": user_record.explicit_hash_key,
        "partitionKey": user_record.partition_key,
        "subSequenceNumber": index,
        "aggregated": True,
        # CMP-1: "kinesis.data MUST be base64 text, whatever the record came in and whether it was
        # aggregated."
        "data": encode_base64(user_record.data),
    }
    # CMP-7: "Where a record says its shard, its user records MUST say it too."
    for key in ("recordId", "shardId"):
        if key in outer:
            kinesis[key] = outer[key]
    return {
        "kinesis": kinesis,
        **{key: value for key, value in record.items() if key not in ("kinesis", "data")},
    }


def _lambda_shape(record: _Record) -> tuple[dict[str, Any], bytes]:
    """``record`` in Lambda's shape, and its data."""
    # CMP-5: "boto3's records MUST be recognised without an option."
    shape = shape_of(record)
    if shape == "lambda":
        text = record["kinesis"]["data"]
        # CMP-4: "Text that is not base64 MUST be refused."
        # In the records that aws_kinesis_agg returns, it is bytes.
        text = text.decode("ascii", "replace") if isinstance(text, bytes) else text
        return record, decode_base64(text, "kinesis.data")  # type: ignore[return-value]
    if shape == "boto3":
        data = record["Data"]
        data = decode_base64(data, "Data") if isinstance(data, str) else bytes(data)
        kinesis = {
            "sequenceNumber": record["SequenceNumber"],
            "partitionKey": record.get("PartitionKey"),
            "approximateArrivalTimestamp": record.get("ApproximateArrivalTimestamp"),
            "data": encode_base64(data),
        }
    elif shape == "firehose":
        meta = record.get("kinesisStreamRecordMetadata") or record.get("kinesisRecordMetadata") or {}
        data = decode_base64(record["data"], "data")
        kinesis = {
            "sequenceNumber": meta.get("sequenceNumber"),
            "partitionKey": meta.get("partitionKey"),
            "approximateArrivalTimestamp": {**record, **meta}.get("approximateArrivalTimestamp"),
            "shardId": meta.get("shardId"),
            "data": record["data"],
            "recordId": record["recordId"],
        }
    else:
        raise CaptureError(code="unknown-shape", field="", requirement="CAP-1")
    return {"kinesis": {"kinesisSchemaVersion": "1.0", **kinesis}}, data
