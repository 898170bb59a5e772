"""Reads events, API responses and dumps of AWS services into `KinesisRecord`s, and writes `KinesisRecord`s as
events of Lambda, events of Firehose and responses of GetRecords.

    >>> import kpl_codec as kpl
    >>> from kpl_codec.adapters import captured, kinesis_records, to_firehose, to_get_records, to_lambda
    >>> record = kpl.KinesisRecord("customer-1", b"one", "5", "shardId-000000000000")
    >>> event = to_lambda([record], stream_arn="arn:aws:kinesis:eu-west-1:123456789012:stream/orders")
    >>> name = "arn:aws:firehose:eu-west-1:123456789012:deliverystream/orders"
    >>> transformation = to_firehose([record], delivery_stream_arn=name)
    >>> for source in (event, transformation, to_get_records([record])):
    ...     for found in kinesis_records(source, shard_id="shardId-000000000000"):
    ...         print(found.partition_key, found.data, found.shard_id)
    customer-1 b'one' shardId-000000000000
    customer-1 b'one' shardId-000000000000
    customer-1 b'one' shardId-000000000000

`kinesis_records` raises CaptureError at the first record that cannot be read; `captured` gives the error in
the record's place:

    >>> event["Records"].append({"kinesis": {"data": "no base64!"}})
    >>> [type(item).__name__ for item in captured(event)]
    ['KinesisRecord', 'CaptureError']

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
