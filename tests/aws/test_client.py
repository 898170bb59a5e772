"""GetRecords and GetShardIterator of `kinesis_client` go a short way: it gives what botocore's gives."""

from __future__ import annotations

import base64
import json
from datetime import timezone
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError, create_parser
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.aws import client as clients
from kpl_codec.aws.client import kinesis_client
from kpl_codec.testing import faults
from kpl_codec.testing.faults import FaultProxy
from kpl_codec.testing.local_kinesis import LocalKinesis

from .test_reading import put_numbered

_SHAPE = (
    botocore.session.get_session().get_service_model("kinesis").operation_model("GetRecords").output_shape
)
_KEY = {"access_key_id": "local", "secret_access_key": "local"}


def data_in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


RECORDS = st.fixed_dictionaries(
    {
        "SequenceNumber": st.integers(0, 2**128).map(str),
        "ApproximateArrivalTimestamp": st.integers(0, 10**13).map(lambda ms: ms / 1000)
        | st.integers(0, 10**9),
        "Data": st.binary(max_size=50).map(data_in_base64),
        "PartitionKey": st.text(),
    },
    optional={"EncryptionType": st.sampled_from(["NONE", "KMS"])},
)
ANSWERS = st.fixed_dictionaries(
    {"Records": st.lists(RECORDS, max_size=5)},
    optional={"MillisBehindLatest": st.integers(0), "NextShardIterator": st.text(min_size=1)},
)


@given(ANSWERS)
def test_an_answer_is_parsed_as_botocore_parses_it(answer: dict[str, Any]) -> None:
    body = json.dumps(answer).encode()
    expected = create_parser("json").parse({"status_code": 200, "headers": {}, "body": body}, _SHAPE)
    del expected["ResponseMetadata"]
    assert clients._parsed(body) == expected


def outcome(client: Any, **arguments: Any) -> Any:
    try:
        answer = client.get_records(**arguments)
    except ClientError as error:
        return (
            type(error).__name__,
            error.response["Error"],
            error.response["ResponseMetadata"]["HTTPStatusCode"],
        )
    except (BotoCoreError, ResponseParserError, ValueError) as error:
        return type(error)
    return {name: answer.get(name) for name in ("Records", "MillisBehindLatest")}


def without_records(answer: dict[str, Any]) -> dict[str, Any]:
    return {**answer, "Records": None}


def damaged_data(answer: dict[str, Any]) -> dict[str, Any]:
    return {**answer, "Records": [{**record, "Data": "a"} for record in answer["Records"]]}


def time_as_text(answer: dict[str, Any]) -> dict[str, Any]:
    text = {"ApproximateArrivalTimestamp": "2026-11-21T10:00:00Z"}
    return {**answer, "Records": [{**record, **text} for record in answer["Records"]]}


FAULTS = {
    "none": None,
    "throttled": faults.throttle(),
    "server": faults.server_error(),
    "expired": faults.expired_iterator(),
    "cut before": faults.cut_before(),
    "cut": faults.cut_answer(0.5),
    "lost": faults.lose_answer(),
    "no records": faults.rewrite(without_records),
    "damaged data": faults.rewrite(damaged_data),
    "time as text": faults.rewrite(time_as_text),
}


@pytest.mark.server
@pytest.mark.parametrize("fault", FAULTS)
def test_every_outcome_is_that_of_botocore(
    fault: str, kinesis_local: LocalKinesis, proxy: FaultProxy, stream: str
) -> None:
    theirs = kinesis_local.client(endpoint_url=proxy.endpoint_url)
    ours = kinesis_client(region="us-east-1", endpoint_url=proxy.endpoint_url, **_KEY)
    (shard_id, number), *_ = put_numbered(kinesis_local.client(), stream, 3)
    place = {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": number}
    iterator = ours.get_shard_iterator(StreamName=stream, ShardId=shard_id, **place)["ShardIterator"]
    if FAULTS[fault] is not None:
        proxy.on("GetRecords", FAULTS[fault])
    found = outcome(ours, ShardIterator=iterator)
    assert found == outcome(theirs, ShardIterator=iterator)
    if fault == "none":
        assert found["Records"][0]["ApproximateArrivalTimestamp"].tzinfo is timezone.utc
    proxy.clear()
    assert [type(outcome(one, ShardIterator="no iterator")) for one in (ours, theirs)] == [tuple, tuple]


def test_the_clients_own_signer_signs(kinesis_local: LocalKinesis, stream: str) -> None:
    ours = kinesis_client(region="us-east-1", endpoint_url=kinesis_local.endpoint_url, **_KEY)
    signed: list[str] = []
    ours.meta.events.register(
        "before-sign.kinesis.GetShardIterator", lambda operation_name, **_: signed.append(operation_name)
    )
    shard_id = ours.list_shards(StreamName=stream)["Shards"][0]["ShardId"]
    ours.get_shard_iterator(StreamName=stream, ShardId=shard_id, ShardIteratorType="LATEST")
    assert signed == ["GetShardIterator"]
