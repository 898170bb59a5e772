"""Definitions from a real registry (moto's Glue), fetched once; what its refusals come to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import fastavro
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError
from moto import mock_aws

import kpl_codec as kpl
from kpl_codec.aws import SchemaRegistry
from kpl_codec.aws.glue_schema_registry import SchemaUnavailable
from kpl_codec.schema_registry import frame
from tests.test_schema_registry import ORDER

MISSING = "00000000-0000-4000-8000-000000000001"


@pytest.fixture
def glue() -> Iterator[Any]:
    with mock_aws():
        client = boto3.client("glue", region_name="eu-west-1")
        client.create_registry(RegistryName="orders")
        yield client


def register(glue: Any, name: str, data_format: str, definition: str) -> str:
    response = glue.create_schema(
        RegistryId={"RegistryName": "orders"},
        SchemaName=name,
        DataFormat=data_format,
        Compatibility="NONE",
        SchemaDefinition=definition,
    )
    return str(response["SchemaVersionId"])


class Counting:
    """A client that counts; ``failures`` are raised first."""

    def __init__(self, client: Any, *failures: Exception) -> None:
        self.client, self.failures, self.requests = client, list(failures), list[str]()

    def get_schema_version(self, SchemaVersionId: str) -> Any:
        self.requests.append(SchemaVersionId)
        if self.failures:
            raise self.failures.pop(0)
        return self.client.get_schema_version(SchemaVersionId=SchemaVersionId)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": ""}}, "GetSchemaVersion")


@pytest.mark.requirement("GSR-9", "GSR-10")
def test_payloads_are_decoded_and_definitions_fetched_once(glue: Any) -> None:
    from io import BytesIO

    avro, as_json = register(glue, "a", "AVRO", json.dumps(ORDER)), register(glue, "j", "JSON", "{}")
    order, buffer = {"order": 17, "items": ["a"]}, BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(ORDER), order)
    users = [
        kpl.UserRecord("k", frame(buffer.getvalue(), avro, compress=True)),
        kpl.UserRecord("k", frame(json.dumps(order).encode(), as_json)),
        kpl.UserRecord("k", b"bare"),
    ]
    client = Counting(glue)
    registry = SchemaRegistry(client)
    for _ in range(3):
        stream = [kpl.KinesisRecord("a", kpl.encode(users), "1")]
        assert [registry.decode(record) for record in kpl.deaggregate(stream, unframe=True)] == [
            order, order, b"bare",
        ]  # fmt: skip
    assert client.requests == [avro, as_json]


@pytest.mark.requirement("GSR-10")
def test_few_are_kept(glue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kpl_codec.aws.glue_schema_registry._MOST_KEPT", 2)
    ids = [register(glue, name, "JSON", json.dumps({"title": name})) for name in "abc"]
    client = Counting(glue)
    registry = SchemaRegistry(client)
    for version in (ids[0], ids[1], ids[0], ids[2], ids[0], ids[1]):
        assert registry.schema(version).schema_version_id == version
    assert client.requests == [ids[0], ids[1], ids[2], ids[1]]


@pytest.mark.requirement("GSR-10")
def test_a_version_that_is_not_there_is_not_asked_for_at_once_again(glue: Any) -> None:
    client, clock = Counting(glue), Clock()
    registry = SchemaRegistry(client, clock=clock, sleep=clock.sleep)
    for at, requests in ((0, 1), (59, 1), (60, 2)):
        clock.now = at
        with pytest.raises(SchemaUnavailable, match=f"{MISSING}: EntityNotFoundException") as caught:
            registry.schema(MISSING)
        assert caught.value.code == "schema-not-found"
        assert len(client.requests) == requests


@pytest.mark.requirement("GSR-10")
def test_a_refusal_names_the_right(glue: Any) -> None:
    version = register(glue, "a", "JSON", "{}")
    registry = SchemaRegistry(Counting(glue, error("AccessDeniedException")))
    with pytest.raises(
        SchemaUnavailable, match="AccessDeniedException: allow glue:GetSchemaVersion"
    ) as caught:
        registry.schema(version)
    assert (caught.value.code, caught.value.schema_version_id) == ("schema-refused", version)
    registry = SchemaRegistry(Counting(glue, error("UnrecognizedClientException")))
    with pytest.raises(SchemaUnavailable, match="check the credentials"):
        registry.schema(version)


@pytest.mark.requirement("GSR-10")
def test_throttling_is_waited_out_and_silence_is_not_for_ever(glue: Any) -> None:
    version, clock = register(glue, "a", "JSON", "{}"), Clock()
    gone = EndpointConnectionError(endpoint_url="https://glue")
    client = Counting(glue, error("ThrottlingException"), gone, error("InternalServiceException"))
    registry = SchemaRegistry(client, clock=clock, sleep=clock.sleep)
    assert registry.schema(version).data_format == "JSON"
    assert 0.3 < clock.now < 1.5
    clock.now = 0.0
    client = Counting(glue, *[error("ThrottlingException")] * 1000)
    registry = SchemaRegistry(client, patience=30, clock=clock, sleep=clock.sleep)
    with pytest.raises(SchemaUnavailable) as caught:
        registry.schema(version)
    assert (caught.value.code, caught.value.aws_code) == ("schema-unreachable", "ThrottlingException")
    assert 20 < clock.now <= 30
    assert len(client.requests) < 20


@pytest.mark.requirement("GSR-10")
def test_a_call_that_outlasts_the_patience_is_made_again(glue: Any) -> None:
    clock = Clock()

    class Slow(Counting):
        def get_schema_version(self, SchemaVersionId: str) -> Any:
            clock.now += 60.0 if self.failures else 0.0
            return super().get_schema_version(SchemaVersionId)

    client = Slow(glue, ReadTimeoutError(endpoint_url="https://glue"))
    version = register(glue, "a", "JSON", "{}")
    registry = SchemaRegistry(client, patience=30, clock=clock, sleep=clock.sleep)
    assert registry.schema(version).data_format == "JSON"


@pytest.mark.requirement("GSR-10")
@pytest.mark.parametrize("status", ["PENDING", "FAILURE", "DELETING"])
def test_a_version_that_is_not_available_is_no_schema(status: str) -> None:
    class Answers:
        def get_schema_version(self, SchemaVersionId: str) -> Any:
            return {"Status": status, "SchemaDefinition": "{}", "DataFormat": "JSON"}

    with pytest.raises(SchemaUnavailable, match=f"{status}: the version is not available"):
        SchemaRegistry(Answers()).schema(MISSING)
