"""For Lambda functions that read streams written by the KPL: user records, partial batch failure.

    from kpl_codec.aws_lambda import process_user_records

    def lambda_handler(event, context):
        return process_user_records(event, handle)      # handle(record: DeaggregatedRecord)

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
