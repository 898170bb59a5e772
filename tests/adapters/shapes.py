"""Kinesis records in shapes that the library only reads: made of those that it writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kpl_codec import KinesisRecord
from kpl_codec.adapters import to_firehose, to_get_records, to_lambda

STREAM = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"


def to_pipes(records: Sequence[KinesisRecord], stream_arn: str = STREAM) -> list[dict[str, Any]]:
    """The EventBridge Pipes event."""
    event = to_lambda(records, stream_arn=stream_arn)
    return [{**record.pop("kinesis"), **record} for record in event["Records"]]


def to_subscribe_to_shard(records: Sequence[KinesisRecord], *, dump: bool = False) -> dict[str, Any]:
    """A SubscribeToShard answer whose stream is one event."""
    return {"EventStream": [{"SubscribeToShardEvent": to_get_records(records, dump=dump)}]}


def to_analytics(records: Sequence[KinesisRecord], stream_arn: str = STREAM) -> dict[str, Any]:
    """The preprocessing event of Managed Flink / Kinesis Analytics."""
    rows = []
    for record in to_firehose(records, delivery_stream_arn=STREAM)["records"]:
        name, arrival = "approximateArrivalTimestamp", record.pop("approximateArrivalTimestamp", None)
        times = {} if arrival is None else {name: arrival}
        stream = record.pop("kinesisRecordMetadata", None)
        if stream is None:
            rows.append({**record, "kinesisFirehoseRecordMetadata": times})
            continue
        if "subsequenceNumber" in stream:
            stream["subSequenceNumber"] = stream.pop("subsequenceNumber")
        rows.append({**record, "kinesisStreamRecordMetadata": {**stream, **times}})
    return {"invocationId": "1", "applicationArn": STREAM, "streamArn": stream_arn, "records": rows}
