"""Lambda functions on streams written by the KPL: user records, partial batch failure, windows.

    from kpl_codec.aws_lambda import process_user_records

    def lambda_handler(event, context):
        return process_user_records(event, handle)      # handle(record: DeaggregatedRecord)

The event source mapping must have ``FunctionResponseTypes: [ReportBatchItemFailures]``: without it Lambda
ignores the answer, and failed records are lost.

`events` user_records, process_user_records, process_window    `aio` async handlers
`firehose` transformations    `shard_map_cache` a shard map kept across invocations
`powertools` BatchProcessor, data class, idempotency    `parser` pydantic models
Specification: spec/06-lambda.md, LMB-1 to LMB-15; of queues chapter 14.
"""

from .batch import Poison, UserRecordFailed, idempotency_key
from .events import process_user_records, process_window, user_records

__all__ = [
    "Poison",
    "UserRecordFailed",
    "idempotency_key",
    "process_user_records",
    "process_window",
    "user_records",
]
