"""The queue service of our tests is what botocore says: each operation, field and limit, both ways."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.model import ServiceModel

from .queue_model import client_of, model_of, refusal
from .queue_service import STREAM, QueueServer, QueueService, ServiceError, VirtualClock


@pytest.fixture
def model(newest_boto3: Path) -> ServiceModel:
    return model_of(newest_boto3)


def operations(model: ServiceModel) -> list[str]:
    return [name for name in model.operation_names if "Queue" in name]


def least(shape: Any) -> Any:
    """A value of ``shape`` with every member, as small as it may be."""
    kind, low = shape.type_name, shape.metadata.get("min", 0)
    if kind == "structure":
        return {name: least(member) for name, member in shape.members.items()}
    if kind == "list":
        return [least(shape.member)] * max(low, 1)
    if kind == "map":
        return {least(shape.key): least(shape.value)}
    if kind == "timestamp":
        return datetime(2026, 1, 1, tzinfo=timezone.utc)
    if kind in ("integer", "long"):
        return low
    if getattr(shape, "enum", None):
        return shape.enum[0]
    return {
        "QueueARN": "arn:aws:kinesis:us-east-1:123456789012:queue/q",
        "StreamARN": STREAM,
    }.get(shape.name, "a" * max(low, 1))


def beyond(shape: Any, value: Any) -> Iterator[tuple[str, Any]]:
    """``value`` with one thing that the model forbids, for every such thing."""
    kind = shape.type_name
    yield "type", object()
    low, high = shape.metadata.get("min"), shape.metadata.get("max")
    if kind in ("integer", "long"):
        yield "type", True
        if low is not None:
            yield "min", low - 1
        if high is not None:
            yield "max", high + 1
    if kind == "structure":
        yield "unknown", {**value, "Unknown": 1}
        for name in shape.required_members:
            yield f"without {name}", {key: item for key, item in value.items() if key != name}
        for name, item in value.items():
            for what, bad in beyond(shape.members[name], item):
                yield f"{name} {what}", {**value, name: bad}
    elif kind == "list":
        if low:
            yield "min", []
        if high is not None:
            yield "max", value[:1] * (high + 1)
        for what, bad in beyond(shape.member, value[0]):
            yield what, [bad]
    elif kind == "string":
        if low:
            yield "min", value[: low - 1]
        if high is not None:
            yield "max", value + "a" * high
        if shape.metadata.get("pattern"):
            yield "pattern", "\n"
        if getattr(shape, "enum", None):
            yield "enum", "NONE OF THEM"


def test_every_limit_of_every_input_is_the_models(model: ServiceModel) -> None:
    tried = set()
    for operation in operations(model):
        shape = model.operation_model(operation).input_shape
        value = least(shape)
        assert refusal(shape, value) is None
        for what, bad in beyond(shape, value):
            service = QueueService(model, VirtualClock())
            with pytest.raises(ServiceError) as refused:
                service.call(operation, bad)
            assert refused.value.code == "InvalidArgumentException", (operation, what)
            tried.add((operation, what))
        # and what the model allows is not refused as a wrong argument's form
        try:
            QueueService(model, VirtualClock()).call(operation, value)
        except ServiceError as error:
            assert error.code in (
                "ResourceNotFoundException",
                "ValidationException",
                "InvalidArgumentException",
            )
    assert len(tried) > 150


def test_every_field_of_every_output_is_given_and_allowed(model: ServiceModel) -> None:
    """`QueueService.call` holds each answer against the model; here each field occurs."""
    clock = VirtualClock()
    service = QueueService(model, clock)
    arn = service.create("one", DeadLetterConfiguration={"TargetType": "BUILT_IN", "MaxReceiveCount": 3})
    when = datetime.fromtimestamp(clock.now(), timezone.utc)
    position = {"Type": "AT_TIMESTAMP", "Timestamp": when}
    streams = [{"StreamARN": STREAM, "StartingPosition": position}]
    two = service.call("CreateQueue", {"QueueName": "two", "StreamConfigurationList": streams})
    two_arn = two["QueueDescription"]["QueueARN"]
    service.call("DescribeQueue", {"QueueARN": two_arn})
    service.call("ListQueues", {"MaxResults": 1, "StreamFilter": [{"StreamARN": STREAM}]})
    service.call("UpdateQueue", {"QueueARN": two_arn, "QueueAttributes": {"VisibilityTimeoutSeconds": 0}})

    def settle(operation: str, word: str = "") -> None:
        """With a record that the queue gives now, and one that it does not know."""
        found = service.call(f"Receive{word}QueueRecords", {"QueueARN": arn})["QueueRecords"]
        more = {"VisibilityTimeoutSeconds": 0} if "Visibility" in operation else {}
        entries = [{"ReceiptHandle": handle, **more} for handle in (found[0]["ReceiptHandle"], "none")]
        answer = service.call(operation, {"QueueARN": arn, "Entries": entries})
        assert [len(answer[name]) for name in ("Successful", "Failed")] == [1, 1]

    service.put("a", b"data")
    settle("UpdateQueueRecordsVisibility")
    settle("AcknowledgeQueueRecords")
    service.put("a", b"data")
    for operation in ("RestoreDeadLetterQueueRecords", "AcknowledgeDeadLetterQueueRecords"):
        for _ in range(3):  # then it is a dead letter
            settle("UpdateQueueRecordsVisibility")
        settle("UpdateDeadLetterQueueRecordsVisibility", "DeadLetter")
        settle(operation, "DeadLetter")
    service.call("DeleteQueue", {"QueueARN": two_arn})

    def members(shape: Any, at: str) -> Iterator[str]:
        if shape.type_name == "structure":
            for name, member in shape.members.items():
                yield f"{at}.{name}"
                yield from members(member, f"{at}.{name}")
        elif shape.type_name == "list":
            yield from members(shape.member, at)

    assert set(operations(model)) == set(service.calls)
    for operation in operations(model):
        shape = model.operation_model(operation).output_shape
        if shape is not None:
            assert set(members(shape, "")) - service.seen[operation] == set(), operation


def test_over_http_it_is_the_same(model: ServiceModel, newest_boto3: Path) -> None:
    """boto3 writes the requests and reads the answers."""
    service = QueueService(model, VirtualClock())
    with QueueServer(service) as url:
        client = client_of(newest_boto3, url)
        streams = [{"StreamARN": STREAM, "StartingPosition": {"Type": "TRIM_HORIZON"}}]
        created = client.create_queue(QueueName="q", StreamConfigurationList=streams, Tags={"a": "b"})
        arn = created["QueueDescription"]["QueueARN"]
        with pytest.raises(ClientError, match="not active"):
            client.receive_queue_records(QueueARN=arn)
        service.queues[arn].description["QueueStatus"] = "ACTIVE"
        service.put(None, b"\x00\xff")
        (record,) = client.receive_queue_records(QueueARN=arn)["QueueRecords"]
        arrived = datetime.fromtimestamp(service.records[0].arrived, timezone.utc)
        assert (record["Data"], record["ApproximateArrivalTimestamp"]) == (b"\x00\xff", arrived)
        assert "PartitionKey" not in record
        with pytest.raises(ClientError) as refused:
            client.receive_queue_records(QueueARN=arn, Limit=11)
        assert refused.value.response["Error"]["Code"] == "InvalidArgumentException"
        client.delete_queue(QueueARN=arn)
        with pytest.raises(ClientError, match="ResourceNotFoundException"):
            client.describe_queue(QueueARN=arn)
