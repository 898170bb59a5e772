"""Reads events, API responses and dumps of AWS services into `KinesisRecord`s, and writes `KinesisRecord`s as
events of Lambda, events of Firehose and responses of GetRecords.

    from kpl_codec.adapters import captured, kinesis_records

    for record in kinesis_records(event): ...              # raises CaptureError at the first bad one
    for item in captured(responses, shard_id="shardId-0"): ...  # KinesisRecord or CaptureError, in order

`kpl_codec.adapters.shapes` lists the shapes of records that are read. Specification: spec/06-lambda.md, CAP.
"""

from ..base.lazy import public_names
from ..format.records import OpenedBefore
from .events_in import captured, kinesis_records
from .events_out import to_firehose, to_get_records, to_lambda

__all__ = [
    "OpenedBefore",
    "captured",
    "kinesis_records",
    "to_firehose",
    "to_get_records",
    "to_lambda",
]
__dir__ = public_names(__name__)
