"""Reads events, API responses and dumps of any service into `KinesisRecord`, and writes three of them.

    from kpl_codec.adapters import captured, kinesis_records

    for record in kinesis_records(event): ...              # raises CaptureError at the first bad one
    for item in captured(answers, shard_id="shardId-0"): ... # KinesisRecord or CaptureError, in order

`shapes` lists what is read. Specification: spec/06-lambda.md, CAP.
"""

from .events_in import captured, kinesis_records
from .events_out import to_firehose, to_get_records, to_lambda

__all__ = [
    "captured",
    "kinesis_records",
    "to_firehose",
    "to_get_records",
    "to_lambda",
]
