"""Every command that takes a stream: by name, and by ARN."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import boto3
import botocore.httpsession
import pytest

import kpl_codec.cli.progress
from kpl_codec import UserRecord, encode
from kpl_codec.aws.calls import stream_for
from kpl_codec.shards.stream_name import Stream, StreamNameError, stream_of
from kpl_codec.testing.local_kinesis import LocalKinesis

from ..every import every
from .commands import STREAM_LINES, run


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "local")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)


@pytest.fixture(scope="module")
def held(kinesis_local: LocalKinesis) -> Iterator[dict[str, str]]:
    """A stream with one aggregate: its name, ARN, sequence number and server."""
    name, client = "by-name-or-arn", kinesis_local.client()
    kinesis_local.create_stream(name, shards=1)
    data = encode([UserRecord("a", b"one"), UserRecord("a", b"two")])
    number = client.put_record(StreamName=name, Data=data, PartitionKey="a")["SequenceNumber"]
    arn = client.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]["StreamARN"]
    yield {"name": name, "arn": arn, "number": number, "url": kinesis_local.endpoint_url}
    kinesis_local.delete_stream(name)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """The region of each call's signature, and what it asks for. All calls are really made."""
    calls: list[tuple[str, dict[str, Any]]] = []
    real = botocore.httpsession.URLLib3Session.send

    def send(self: Any, request: Any) -> Any:
        signed = request.headers["Authorization"]
        region = re.search(r"Credential=[^/]+/\d+/([^/]+)/kinesis", str(signed))
        assert region is not None
        calls.append((region[1], json.loads(request.body)))
        return real(self, request)

    monkeypatch.setattr(botocore.httpsession.URLLib3Session, "send", send)
    return calls


@pytest.mark.server
@pytest.mark.requirement("MAP-22")
@pytest.mark.parametrize(
    "line",
    [pytest.param(line.words, marks=[pytest.mark.slow] * ("watch" in line.words)) for line in STREAM_LINES],
)
def test_a_command_takes_a_name_and_an_arn_whose_region_counts(
    line: str, held: dict[str, str], sent: list[tuple[str, dict[str, Any]]]
) -> None:
    region = str(stream_of(held["arn"]).region)
    command = [*line.replace("NUMBER", held["number"]).split(), "--endpoint-url", held["url"], "--stream"]
    said = []
    for stream, more in ((held["arn"], []), (held["name"], ["--region", region])):
        sent.clear()
        ended = run([*command, stream, *more])
        assert ended.status == 0, ended.err
        said.append(re.sub(r"arn:[^:]*:[^/]*/|\d\d:\d\d:\d\d", "", ended.out))
        assert {where for where, _ in sent} == {region}
        for _, body in sent:
            named = {body[name] for name in ("StreamARN", "StreamName") if name in body}
            iterator = "ShardIterator" in body or "NextToken" in body
            assert named == ({stream} if stream == held["arn"] or not iterator else set())
            assert ("StreamARN" in body) == (stream == held["arn"])
    assert said[0] == said[1]


@pytest.mark.requirement("MAP-22")
@every("text", ["", "a b", "arn:aws:s3:::bucket", "arn:aws:kinesis:x:1:table/orders", "x" * 129])
def test_what_is_no_stream_is_refused(text: str) -> None:
    for line in ("cat --stream", "shards list --stream", "watch --once --stream"):
        ended = run([*line.split(), text])
        (said,) = ended.err.splitlines()
        assert ended.status == 2
        assert said.startswith("kpl-codec: argument --stream: ")
        assert "its ARN" in said


def test_a_region_beside_an_arn_of_another_is_refused() -> None:
    arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
    ended = run(["cat", "--stream", arn, "--region", "us-east-1"])
    assert ended.status == 2
    assert "--region is us-east-1, but the stream is in eu-west-1" in ended.err
    with pytest.raises(StreamNameError, match="make one for eu-west-1"):
        stream_for(boto3.client("kinesis", region_name="us-east-1"), arn)
    there = boto3.client("kinesis", region_name="eu-west-1")
    assert stream_for(there, arn) == Stream("orders", arn, "eu-west-1")


@pytest.mark.server
@pytest.mark.requirement("SPK-97")
def test_a_stream_with_nothing_to_show_is_said_to_be_read(
    held: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once here; `test_what_never_answers_is_given_up` waits."""
    given = ["--stream", held["name"], "--endpoint-url", held["url"], "--region", "us-east-1"]
    monkeypatch.setattr(kpl_codec.cli.progress, "_SOON", 0.0)
    ended = run(["cat", *given, "--key", "nobody's"])
    assert (ended.status, ended.out) == (0, "")
    assert f"kpl-codec: reading {held['name']}, nothing to show yet ...\n" in ended.err
    monkeypatch.setattr(kpl_codec.cli.progress, "_SOON", 600.0)
    assert run(["cat", *given]).err == ""
