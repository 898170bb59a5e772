"""A Lambda handler with Powertools: each user record once."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, IdempotencyConfig
from aws_lambda_powertools.utilities.typing import LambdaContext

import kpl_codec as kpl
from kpl_codec.aws_lambda import process_user_records
from kpl_codec.aws_lambda.powertools import KinesisUserRecord, UserRecordBatchProcessor, once

store = DynamoDBPersistenceLayer(table_name="orders-seen")
config = IdempotencyConfig(expires_after_seconds=86400)
processor = UserRecordBatchProcessor(policy="strict")


def handle(record: kpl.DeaggregatedRecord) -> None:
    print(record.sequence_number, record.sub_sequence_number)


def handle_one(record: KinesisUserRecord) -> int:
    return len(record.kinesis.data_as_bytes())


def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    seen_before = once(persistence_store=store, config=config, context=context)
    return process_user_records(event, handle, once=seen_before, context=context)
