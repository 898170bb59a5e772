"""The stream of a record: what it names itself, else what stands around it, in every spelling and shape."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

import kpl_codec as kpl
from kpl_codec.adapters import captured

from ..every import every
from .shapes import KEYS, RECORDS, SHARD

OWN = "arn:aws:kinesis:eu-west-1:111122223333:stream/own"
OTHER = "arn:aws:kinesis:eu-west-1:111122223333:stream/other"
#: Members that name a stream by its ARN, or by that of a consumer.
ARNS = [
    "eventSourceARN",
    "sourceKinesisStreamArn",
    "streamArn",
    "StreamARN",
    "StreamArn",
    "stream_arn",
    "ConsumerARN",
    "consumerArn",
]
NAMES = ["StreamName", "streamName", "stream_name"]
#: A shard of what stands around a record.
AROUND = "shardId-000000000009"


def naming(member: str | None, stream: str) -> dict[str, str]:
    if member is None:
        return {}
    if member in NAMES:
        return {member: stream.rpartition("/")[2]}
    return {member: f"{stream}/consumer/app:1" if member.lower().startswith("consumer") else stream}


def named(member: str | None, stream: str) -> str | None:
    return None if member is None else stream.rpartition("/")[2] if member in NAMES else stream


def place_of(source: Any) -> tuple[str | None, str | None]:
    """The stream and the shard of the one record of ``source``."""
    (record,) = captured(source)
    assert isinstance(record, kpl.KinesisRecord), record
    return record.stream, record.shard_id


@pytest.mark.requirement("CAP-15")
@every("shape", RECORDS)
def test_a_record_is_of_what_it_names_else_of_what_stands_around_it(shape: str) -> None:
    """It is of the shard around it only if that may be one of its stream."""
    key = "records" if shape == "firehose" else "Records"
    assert place_of({"StreamName": "other", key: [{**RECORDS[shape], "shard_id": SHARD}]}) == ("other", SHARD)
    _, shard_id = place_of(RECORDS[shape])
    for own, around in product([None, *ARNS, *NAMES], repeat=2):
        record, beside = {**RECORDS[shape], **naming(own, OWN)}, {**naming(around, OTHER), "shardId": AROUND}
        event = {**beside, key: [record]}
        notice = {"KinesisBatchInfo": beside, "payload": json.dumps({key: [record]})}
        stream = named(own, OWN) or named(around, OTHER)
        of_it = shard_id or (AROUND if own is None or around is None else None)
        for source in (event, json.dumps([event]), {"requestPayload": event}, notice):
            assert place_of(source) == (stream, of_it), (own, around, source)
        if around is not None:
            assert place_of({"streamArn": OWN, "payload": json.dumps(event)})[0] == stream
        for member in ("ShardId", "shardId", "shard_id"):
            assert place_of({**beside, key: [{**record, member: SHARD}]}) == (stream, SHARD)
    assert place_of(RECORDS[shape] | naming("streamArn", OWN)) == (OWN, shard_id)


@pytest.mark.requirement("CAP-15")
def test_a_notice_in_a_notice_hides_no_record() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"KinesisBatchInfo": deep}
    assert place_of({**deep, "Records": [KEYS]}) == (None, None)


@pytest.mark.requirement("CAP-16")
def test_a_message_of_a_queue_is_read_alone_and_in_a_list() -> None:
    event = {"streamArn": OWN, "Records": [KEYS]}
    message = {"messageId": "m", "receiptHandle": "r", "eventSource": "aws:sqs", "body": json.dumps(event)}
    for source in (message, [message], {"Records": [message]}, {**message, "body": json.dumps(message)}):
        assert place_of(source) == (OWN, None)
    assert [getattr(one, "stream", "") for one in captured({**message, "Records": [KEYS]})] == [None, OWN]
