"""The fault proxy does each of its faults to a real server, and nothing else."""

from __future__ import annotations

import time

import pytest
from botocore.config import Config
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    HTTPClientError,
    IncompleteReadError,
    ReadTimeoutError,
)

from kpl_codec.testing.faults import (
    cut_response,
    error,
    fail_records,
    lose_response,
    slow,
    throttle,
)

from .event_stream import cut_before

pytestmark = pytest.mark.server


@pytest.fixture
def client(kinesis_local, proxy):
    return kinesis_local.client(endpoint_url=proxy.endpoint_url)


def stored(server, stream) -> list[bytes]:
    """What the server really holds, asked behind the proxy's back."""
    client = server.client()
    found = []
    for shard in client.list_shards(StreamName=stream)["Shards"]:
        iterator = client.get_shard_iterator(
            StreamName=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )
        found += [r["Data"] for r in client.get_records(ShardIterator=iterator["ShardIterator"])["Records"]]
    return sorted(found)


def put(client, stream, *data):
    entries = [{"Data": d, "PartitionKey": "p", "ExplicitHashKey": "0"} for d in data]
    return client.put_records(StreamName=stream, Records=entries)


def test_without_rules_calls_go_through_and_are_noted(kinesis_local, proxy, client, stream):
    assert put(client, stream, b"a", b"b")["FailedRecordCount"] == 0
    assert stored(kinesis_local, stream) == [b"a", b"b"]
    (call,) = proxy.calls
    assert (call.operation, call.fault, call.status, call.forwarded) == ("PutRecords", None, 200, 1)
    assert call.request["StreamName"] == stream
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.describe_stream(StreamName="no-such-stream")


def test_a_call_that_a_fault_ends_was_executed_or_not(kinesis_local, proxy, client, stream):
    """Only that of a lost response was. Each fault acts once."""
    ends = [  # the fault; the error code and status that the client gets; how often the server got the call
        (throttle(), "ProvisionedThroughputExceededException", 400, 0),
        (error("InternalFailure", status=500), "InternalFailure", 500, 0),
        (error("InternalFailure", status=503), "InternalFailure", 503, 0),
        (error("KMSThrottlingException"), "KMSThrottlingException", 400, 0),
        (cut_before, None, None, 0),
        (lose_response(), None, None, 1),
    ]
    held = []
    for number, (fault, code, status, forwarded) in enumerate(ends):
        proxy.on("PutRecords", fault, times=1)
        with pytest.raises((ClientError, ConnectionClosedError, HTTPClientError)) as caught:
            put(client, stream, b"%d a" % number)
        response = getattr(caught.value, "response", None) or {"Error": {}, "ResponseMetadata": {}}
        answered = response["Error"].get("Code"), response["ResponseMetadata"].get("HTTPStatusCode")
        assert answered == (code, status)
        put(client, stream, b"%d b" % number)
        calls = [(call.fault, call.status, call.forwarded) for call in proxy.calls[-2:]]
        assert calls == [(fault.__name__, status, forwarded), (None, 200, 1)]
        held += [b"%d a" % number] * forwarded + [b"%d b" % number]
    assert stored(kinesis_local, stream) == held
    proxy.on("ListShards", throttle())
    with pytest.raises(client.exceptions.LimitExceededException):
        client.list_shards(StreamName=stream)


def test_slow(kinesis_local, client, proxy, stream):
    proxy.on("PutRecords", slow(0.1), times=1)
    began = time.monotonic()
    put(client, stream, b"a")
    assert time.monotonic() - began >= 0.1
    hasty = kinesis_local.client(
        endpoint_url=proxy.endpoint_url, config=Config(read_timeout=0.1, retries={"total_max_attempts": 1})
    )
    proxy.on("PutRecords", slow(0.5), times=1)
    with pytest.raises(ReadTimeoutError):
        put(hasty, stream, b"b")


def test_half_an_answer(kinesis_local, client, proxy, stream):
    proxy.on("PutRecords", cut_response(0.5), times=1)
    # botocore (1.44) makes an empty success of it, where others raise. Whoever calls it has to look
    # whether what was asked for is in the answer: a GetRecords without Records is not an end of a shard.
    try:
        answer = put(client, stream, *[b"a"] * 20)
    except (HTTPClientError, IncompleteReadError):
        answer = {}
    assert "Records" not in answer
    assert stored(kinesis_local, stream) == [b"a"] * 20


def test_some_records_fail(kinesis_local, client, proxy, stream):
    proxy.on("PutRecords", fail_records([0, 2]), times=1)
    answer = put(client, stream, b"a", b"b", b"c", b"d")
    assert answer["FailedRecordCount"] == 2
    slow = "ProvisionedThroughputExceededException"
    assert [r.get("ErrorCode") for r in answer["Records"]] == [slow, None, slow, None]
    assert [r.get("ShardId") for r in answer["Records"]][1::2] == ["shardId-000000000000"] * 2
    assert stored(kinesis_local, stream) == [b"b", b"d"]
    proxy.on("PutRecords", fail_records(lambda i, entry: True, code="InternalFailure"), times=1)
    answer = put(client, stream, b"a", b"b")
    assert [r["ErrorCode"] for r in answer["Records"]] == ["InternalFailure"] * 2
    assert stored(kinesis_local, stream) == [b"b", b"d"]
    assert proxy.calls[-1].forwarded == 0


def test_after_times_rate_and_the_order_of_rules(client, proxy, stream):
    first = proxy.on("ListShards", throttle(), after=1, times=1)
    second = proxy.on("*", error("InternalFailure", status=500), rate=0.5)
    outcomes = []
    for _ in range(60):
        try:
            client.list_shards(StreamName=stream)
            outcomes.append(200)
        except ClientError as problem:
            outcomes.append(problem.response["ResponseMetadata"]["HTTPStatusCode"])
    assert first.acted == 1
    assert outcomes.count(400) == 1
    assert outcomes.count(500) == second.acted
    assert 10 < second.acted < 50
    proxy.clear()
    client.list_shards(StreamName=stream)
    assert [c.fault for c in proxy.calls] == [None]
