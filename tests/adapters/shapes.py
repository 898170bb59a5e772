"""One record of each shape, its members, and values that they may have; Kinesis records in shapes that the
library only reads, made of those that it writes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from kpl_codec import KinesisRecord
from kpl_codec.adapters import to_firehose, to_get_records, to_lambda

STREAM = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
NUMBER = "49545115243490985018280067714973144582180062593244200961"
SHARD = "shardId-000000000003"
KEYS: dict[str, Any] = {"partitionKey": "k", "sequenceNumber": NUMBER, "data": "aGk="}
#: One record of each shape in JSON, that names no stream and no time.
RECORDS: dict[str, dict[str, Any]] = {
    "lambda": {"kinesis": KEYS, "eventID": f"{SHARD}:{NUMBER}"},
    "pipes": {**KEYS, "eventSource": "aws:kinesis", "eventID": f"{SHARD}:{NUMBER}"},
    "firehose": {"recordId": "1", "data": "aGk=", "kinesisRecordMetadata": {**KEYS, "shardId": SHARD}},
    "failed": {"rawData": "aGk=", "errorCode": "x", "sequenceNumber": NUMBER},
    "daemon": {"action": "record", **KEYS},
    "boto3": {"PartitionKey": "k", "SequenceNumber": NUMBER, "Data": "aGk="},
    "named": KEYS,
    "queue": {"RecordId": "r", "PartitionKey": "k", "Data": "aGk="},
}
_OF_A_USER_RECORD = ["partitionKey", "sequenceNumber", "data", "subSequenceNumber", "explicitHashKey"]
#: What a record of each shape may have, its time last; and the member that has it, None for the record.
MEMBERS: dict[str, tuple[str | None, list[str]]] = {
    "lambda": ("kinesis", [*_OF_A_USER_RECORD, "approximateArrivalTimestamp"]),
    "pipes": (None, [*_OF_A_USER_RECORD, "eventID", "approximateArrivalTimestamp"]),
    "firehose": ("kinesisRecordMetadata", ["partitionKey", "sequenceNumber", "shardId", "subsequenceNumber",
                                           "approximateArrivalTimestamp"]),
    "failed": (None, ["rawData", "sequenceNumber", "subSequenceNumber", "arrivalTimestamp"]),
    "daemon": (None, [*_OF_A_USER_RECORD, "approximateArrivalTimestamp"]),
    "boto3": (None, ["PartitionKey", "SequenceNumber", "Data", "ApproximateArrivalTimestamp"]),
    "named": (None, [*_OF_A_USER_RECORD, "shardId", "approximateArrivalTimestamp"]),
    "queue": (None, ["Data", "RecordId", "PartitionKey", "ApproximateArrivalTimestamp"]),
}  # fmt: skip
#: Values that some column cannot hold, or that no such member has.
EXTREMES: list[Any] = [
    0, -1, -2, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**40, 10**400, 1.5, 1e300,
    "-1", -1e300, "", "0", "9" * 19, "9" * 5000, "x" * 70_000, "\ud800", "\x00", "s\xe9cret", None, True, [],
    {}, [1], [1, 2], {"type": "Buffer"}, {"type": "Buffer", "data": [256]}, {"type": "Buffer", "data": [1.0]},
    {"type": "Buffer", "data": "x"}, {"0": "x"}, {"0": 1, "2": 3}, {"1": 1}, "NaN", "yesterday",
]  # fmt: skip


def with_member(shape: str, name: str, value: Any) -> Any:
    """A record of a shape with another value of one member; of kcl it is an object."""
    if shape == "kcl":
        return SimpleNamespace(**{"binary_data": b"hi", "sequence_number": NUMBER, name: value})
    record = copy.deepcopy(RECORDS[shape])
    level, _ = MEMBERS[shape]
    (record if level is None else record[level])[name] = value
    return record


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
