"""Adapter for aws_kinesis_agg (PyPI): decode by its deaggregator, encode by its aggregator."""

from __future__ import annotations

import base64
from importlib.metadata import version
from typing import Any

from aws_kinesis_agg.aggregator import RecordAggregator
from aws_kinesis_agg.deaggregator import deaggregate_records

from .conformance import serve, user_record


def decode(request: dict[str, Any]) -> dict[str, Any]:
    data = bytes.fromhex(request["data"])
    event = {
        "kinesis": {
            "kinesisSchemaVersion": "1.0",
            "partitionKey": "outer",
            "sequenceNumber": "1",
            "data": base64.b64encode(data).decode(),
            "approximateArrivalTimestamp": 1.0,
        },
        "eventSource": "aws:kinesis",
        "eventID": "shardId-000000000000:1",
    }
    records = deaggregate_records([event])
    if len(records) == 1 and not records[0]["kinesis"].get("aggregated"):
        return {"plain": True}
    rows = []
    for record in records:
        row = record["kinesis"]
        rows.append(user_record(row["partitionKey"], base64.b64decode(row["data"]), row["explicitHashKey"]))
    return {"user_records": rows}


def encode(request: dict[str, Any]) -> dict[str, Any]:
    aggregator = RecordAggregator(request.get("max_size", 1024 * 1024))
    for record in request["user_records"]:
        full = aggregator.add_user_record(
            record["partition_key"], bytes.fromhex(record["data"]), record.get("explicit_hash_key")
        )
        if full is not None:
            return {"error": "the aggregate is full"}
    aggregate = aggregator.clear_and_get()
    return {"error": "nothing"} if aggregate is None else {"data": aggregate.get_contents()[2].hex()}


if __name__ == "__main__":
    serve("aws_kinesis_agg", version("aws_kinesis_agg"), {"decode": decode, "encode": encode})
