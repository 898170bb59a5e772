"""A transformation of Firehose: some user records go to a partition, some are dropped."""

from __future__ import annotations

import json
from typing import Any

import kpl_codec as kpl
from kpl_codec.aws_lambda import Transformed, transform_user_records


def transform(record: kpl.DeaggregatedRecord) -> bytes | Transformed | None:
    order: dict[str, str] = json.loads(record.data)
    if "test" in order:
        return None
    if "country" in order:
        return Transformed(record.data, partition_keys={"country": order["country"]})
    return record.data.upper()


def lambda_handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    return transform_user_records(event, transform, delimiter=b"\n", max_decompressed_size=1 << 20)
