"""For Lambda functions that read streams written by the KPL: user records, partial batch failure.

    >>> import kpl_codec as kpl
    >>> from kpl_codec.adapters import to_lambda
    >>> stream = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
    >>> data = kpl.encode([kpl.UserRecord("customer-1", b"one"), kpl.UserRecord("customer-2", b"two")])
    >>> record = kpl.KinesisRecord("a", data, "5", "shardId-000000000000")
    >>> event = to_lambda([record], stream_arn=stream)
    >>> from kpl_codec.aws_lambda import Poison, idempotency_key, process_user_records, user_records
    >>> process_user_records(event, lambda record: print(record.partition_key, record.data))
    customer-1 b'one'
    customer-2 b'two'
    {'batchItemFailures': []}
    >>> [idempotency_key(record, stream) for record in user_records(event)]
    ['...stream/orders/shardId-000000000000/5/0', '...stream/orders/shardId-000000000000/5/1']
    >>> def keep(poison: Poison) -> None:
    ...     print("kept:", poison.error.code)
    >>> broken = to_lambda([record.replace(data=data[:-1] + b"?")], stream_arn=stream)
    >>> process_user_records(broken, print, on_poison=keep)
    kept: checksum-mismatch
    {'batchItemFailures': []}

A transformation of Firehose, and a shard map that stays between invocations:

    >>> from kpl_codec.adapters import to_firehose
    >>> from kpl_codec.aws_lambda import ShardMapCache, Transformed, transform_user_records
    >>> def upper(record: kpl.DeaggregatedRecord) -> Transformed:
    ...     return Transformed(record.data.upper(), {"customer": record.partition_key})
    >>> plain = kpl.KinesisRecord("customer-1", b"one", "5", "shardId-000000000000")
    >>> name = "arn:aws:firehose:us-east-1:123456789012:deliverystream/orders"
    >>> (answer,) = transform_user_records(to_firehose([plain], delivery_stream_arn=name), upper)["records"]
    >>> answer["result"], answer["data"], answer["metadata"]
    ('Ok', 'T05F', {'partitionKeys': {'customer': 'customer-1'}})
    >>> import boto3
    >>> maps = ShardMapCache(boto3.client("kinesis"), max_age=60.0)
    >>> list(maps.shard_map("arn:aws:kinesis:us-east-1:000000000000:stream/orders"))
    ['shardId-000000000000', 'shardId-000000000001']

The event source mapping must have ``FunctionResponseTypes: [ReportBatchItemFailures]``: without it Lambda
ignores the response, and failed records are lost.

Modules: `events` user_records, process_user_records    `aio` async handlers
`firehose` transformations    `shard_map_cache` a shard map kept across invocations
`parser` pydantic models    `powertools` BatchProcessor, data class, idempotency
Specification: spec/06-lambda.md.
"""

from typing import TYPE_CHECKING

from ..base.lazy import lazy_names
from .batch import Poison, idempotency_key
from .events import process_user_records, user_records

if TYPE_CHECKING:  # what `lazy_names` gives, for type checkers
    from .firehose import Transformed as Transformed
    from .firehose import transform_user_records as transform_user_records
    from .shard_map_cache import ShardMapCache as ShardMapCache
else:  # imported on first use: few Lambda functions need these
    _HOMES = {
        "ShardMapCache": "shard_map_cache",
        "Transformed": "firehose",
        "transform_user_records": "firehose",
    }
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)

__all__ = [
    "Poison",
    "ShardMapCache",
    "Transformed",
    "idempotency_key",
    "process_user_records",
    "transform_user_records",
    "user_records",
]
