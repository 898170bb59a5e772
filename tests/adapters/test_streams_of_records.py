"""The stream of a record: what it names itself, else what stands around it, in every spelling and shape."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import kpl_codec as kpl
from kpl_codec.adapters import captured

from ..every import every

NUMBER = "49545115243490985018280067714973144582180062593244200961"
SHARD = "shardId-000000000003"
OWN = "arn:aws:kinesis:eu-west-1:111122223333:stream/own"
OTHER = "arn:aws:kinesis:eu-west-1:111122223333:stream/other"
#: Members that name a stream by its ARN, or by that of a consumer.
ARNS = [
    *("eventSourceARN", "sourceKinesisStreamArn", "streamArn", "StreamARN", "StreamArn", "stream_arn"),
    *("ConsumerARN", "consumerArn"),
]
NAMES = ["StreamName", "streamName", "stream_name"]
KEYS: dict[str, Any] = {"partitionKey": "k", "sequenceNumber": NUMBER, "data": "aGk="}
#: One record of each shape in JSON, that names no stream.
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


def naming(member: str, stream: str = OWN) -> dict[str, str]:
    if member in NAMES:
        return {member: stream.rpartition("/")[2]}
    return {member: f"{stream}/consumer/app:1" if member.lower().startswith("consumer") else stream}


def streams_of(source: Any) -> list[str | None]:
    found = [*captured(source)]
    assert all(isinstance(each, kpl.KinesisRecord) for each in found), found
    return [each.stream for each in found if isinstance(each, kpl.KinesisRecord)]


#: What may stand around records: an event of another stream, within which each record names its own.
AROUND: dict[str, Callable[[Any], Any]] = {
    "alone": lambda record: record,
    "in a list": lambda record: [record],
    "in an answer of another stream": lambda record: {**naming("StreamName", OTHER), "Records": [record]},
    "in an event of another stream": lambda record: {**naming("streamArn", OTHER), "records": [record]},
    "in the payload of a notice of another stream": lambda record: {
        "KinesisBatchInfo": {"streamArn": OTHER, "shardId": SHARD},
        "payload": json.dumps({"Records": [record]}),
    },
}


@pytest.mark.requirement("CAP-15")
@every("around", AROUND)
@every("member", [*ARNS, *NAMES])
@every("shape", RECORDS)
def test_a_record_is_of_the_stream_that_it_names(shape: str, member: str, around: str) -> None:
    record = {**RECORDS[shape], **naming(member)}
    source = AROUND[around](record)
    assert streams_of(source) == ["own" if member in NAMES else OWN]
    assert streams_of(json.dumps(source)) == streams_of(source)


@pytest.mark.requirement("CAP-15")
@every("member", [*ARNS, *NAMES])
@every("shape", RECORDS)
def test_a_record_that_names_none_is_of_the_stream_around_it(shape: str, member: str) -> None:
    key = "records" if shape == "firehose" else "Records"
    source = {**naming(member), key: [RECORDS[shape]]}
    assert streams_of(source) == ["own" if member in NAMES else OWN]
    within = {**naming("StreamName", OTHER), "requestPayload": [source, json.dumps(source)]}
    assert streams_of(within) == streams_of(source) * 2


@pytest.mark.requirement("CAP-15")
def test_a_notice_names_the_stream_and_the_shard_of_its_payload() -> None:
    batch = {"streamArn": OWN, "shardId": SHARD}
    notice = {"KinesisBatchInfo": batch, "payload": json.dumps({"Records": [KEYS]})}
    (record,) = captured(notice)
    assert isinstance(record, kpl.KinesisRecord)
    assert (record.stream, record.shard_id) == (OWN, SHARD)
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"KinesisBatchInfo": deep}
    assert [type(each) for each in captured({**deep, "Records": [KEYS]})] == [kpl.KinesisRecord]


@pytest.mark.requirement("CAP-15")
@every("member", [*ARNS, *NAMES])
@every("shape", RECORDS)
def test_a_record_of_another_stream_has_no_shard_of_the_stream_around_it(shape: str, member: str) -> None:
    named, own = {**RECORDS[shape], **naming(member)}, {"streamArn": OTHER, "shardId": "shardId-000000000009"}
    key = "records" if shape == "firehose" else "Records"
    (alone,) = captured(named)
    assert isinstance(alone, kpl.KinesisRecord)
    within = {**own, key: [named]}
    answer = {"KinesisBatchInfo": own, "payload": json.dumps({**naming(member), key: [RECORDS[shape]]})}
    for source in (within, json.dumps(within), {"requestPayload": within}, answer):
        (record,) = captured(source)
        assert isinstance(record, kpl.KinesisRecord)
        assert (record.stream, record.shard_id) == (alone.stream, alone.shard_id)


@pytest.mark.requirement("CAP-15")
@every("member", ["ShardId", "shardId", "shard_id"])
@every("shape", RECORDS)
def test_a_record_is_of_the_shard_that_it_names_at_each_depth(shape: str, member: str) -> None:
    own = {**RECORDS[shape], member: SHARD}
    key = "records" if shape == "firehose" else "Records"
    for source in (own, [own], {key: [own]}, {"ShardId": "shardId-000000000009", key: [own]}):
        (record,) = captured(source)
        assert isinstance(record, kpl.KinesisRecord)
        assert record.shard_id == SHARD


@pytest.mark.requirement("CAP-16")
def test_a_message_of_a_queue_is_read_alone_and_in_a_list() -> None:
    event = {**naming("streamArn"), "Records": [KEYS]}
    message = {"messageId": "m", "receiptHandle": "r", "eventSource": "aws:sqs", "body": json.dumps(event)}
    for source in (message, [message], {"Records": [message]}, {**message, "body": json.dumps(message)}):
        assert streams_of(source) == [OWN]
    assert streams_of({**message, "Records": [KEYS]}) == [None, OWN]
    (blank,) = captured({**message, "body": " "})
    assert isinstance(blank, kpl.errors.CaptureError)
