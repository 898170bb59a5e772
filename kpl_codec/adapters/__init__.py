"""Reads every shape of Kinesis records into `KinesisRecord` without loss, and writes it back.

    from kpl_codec.adapters import captured, kinesis_records

    for record in kinesis_records(event): ...              # raises CaptureError at the first bad one
    for item in captured(answers, shard_id="shardId-0"): ... # KinesisRecord or CaptureError, in order

`shapes` lists the shapes and how each is recognised, `writing` writes them, `json_stream` reads JSON.
Specification: spec/06-lambda.md, CAP-1 to CAP-12.
"""

from .reading import (
    captured,
    from_analytics,
    from_firehose,
    from_get_records,
    from_kcl,
    from_lambda,
    from_pipes,
    from_raw,
    from_subscribe_to_shard,
    kinesis_records,
)
from .shapes import Shape, firehose_record, lambda_record
from .writing import (
    to_analytics,
    to_firehose,
    to_get_records,
    to_kcl,
    to_lambda,
    to_pipes,
    to_subscribe_to_shard,
)

__all__ = [
    "Shape",
    "captured",
    "firehose_record",
    "from_analytics",
    "from_firehose",
    "from_get_records",
    "from_kcl",
    "from_lambda",
    "from_pipes",
    "from_raw",
    "from_subscribe_to_shard",
    "kinesis_records",
    "lambda_record",
    "to_analytics",
    "to_firehose",
    "to_get_records",
    "to_kcl",
    "to_lambda",
    "to_pipes",
    "to_subscribe_to_shard",
]
