"""Every command that takes a stream: by name, by ARN, and where nothing answers."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import boto3
import botocore.credentials
import botocore.httpsession
import pytest

import kpl_codec.aws.client
import kpl_codec.aws.s3
import kpl_codec.cli.progress
from kpl_codec import UserRecord, encode
from kpl_codec.aws.calls import stream_for
from kpl_codec.shards.stream_name import Stream, StreamNameError, stream_of
from kpl_codec.testing.local_kinesis import LocalKinesis
from kpl_codec.testing.serving import ServerThread
from tests.examples import share

from ..every import every
from .commands import HOSTILE, SHARDS, STREAM_LINES, UNSAFE, run
from .conftest import SOON
from .test_s3 import WITH_PATHS


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those of nobody, and nothing else of AWS."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "mine")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)


@pytest.fixture(scope="module")
def held(kinesis_local: LocalKinesis) -> Iterator[dict[str, str]]:
    """A stream of two shards, with an aggregate of both and a broken one in the first, and in its keys and
    data what a terminal would obey: its name, ARN, first sequence number and server."""
    name, client = "by-name-or-arn", kinesis_local.client()
    kinesis_local.create_stream(name, shards=2)
    data = encode([UserRecord(HOSTILE, b"one"), UserRecord("b", HOSTILE.encode(), "7")])
    numbers = [
        client.put_record(StreamName=name, Data=one, PartitionKey=HOSTILE, ExplicitHashKey="0")[
            "SequenceNumber"
        ]
        for one in (data, data[:-1] + bytes([data[-1] ^ 1]), HOSTILE.encode())
    ]
    arn = client.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]["StreamARN"]
    yield {"name": name, "arn": arn, "number": numbers[0], "url": kinesis_local.endpoint_url}
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
        assert ended.status == ("watch" in line), ended.err
        assert not UNSAFE.search(ended.out + ended.err)
        assert ("31m" in ended.out) == line.startswith(("cat", "inspect"))  # what does no harm of a key
        assert SHARDS[0] in ended.out or not line.startswith("shards")
        said.append(re.sub(r"arn:[^:]*:[^/]*/|\d\d:\d\d:\d\d", "", ended.out))
        assert {where for where, _ in sent} == {region}
        for _, body in sent:
            named = {body[name] for name in ("StreamARN", "StreamName") if name in body}
            iterator = "ShardIterator" in body or "NextToken" in body
            assert named == ({stream} if stream == held["arn"] or not iterator else set())
            assert ("StreamARN" in body) == (stream == held["arn"])
    assert said[0] == said[1]


@pytest.mark.requirement("MAP-22")
def test_a_client_for_another_region_than_that_of_an_arn_is_refused() -> None:
    arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
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
    ended = run(["cat", *given, "--shard-id", SHARDS[1]])
    assert (ended.status, ended.out) == (0, "")
    assert f"kpl-codec: reading {held['name']}, nothing to show yet ...\n" in ended.err
    monkeypatch.setattr(kpl_codec.cli.progress, "_SOON", 600.0)
    assert "nothing to show yet" not in run(["cat", *given]).err


@pytest.mark.server
@every("line", [line.words for line in STREAM_LINES])
def test_a_stream_that_is_not_there_is_said(line: str, held: dict[str, str]) -> None:
    given = [*line.replace("NUMBER", held["number"]).split(), "--stream", "no-such-stream"]
    ended = run([*given, "--endpoint-url", held["url"], "--region", "us-east-1"])
    assert (ended.status, ended.out) == (2, "")
    assert "ResourceNotFoundException" in ended.err


# -- where nothing answers, of Kinesis and of S3 ----------------------------------------------------


class _Forbidden(BaseHTTPRequestHandler):
    """Answers as a proxy or a wrong endpoint does."""

    def do_POST(self) -> None:
        self.send_error(403)

    def log_message(self, *_: object) -> None:
        """No log."""


#: Seconds in which a command ends on a busy machine. MAP-24 allows 15; botocore's own times would be minutes.
ENDS_WITHIN = 60


@contextmanager
def nobody(kind: str) -> Iterator[list[str]]:
    """The options for a server that refuses with HTML, one that is not there, one that never answers, one
    that takes no connection (a black hole), a name that DNS does not know, and a region that is none."""
    region = ["--region", "us-east-1", "--endpoint-url"]
    with ExitStack() as stack:
        if kind == "html":
            server = stack.enter_context(ServerThread(_Forbidden, "127.0.0.1", 0))
            yield [*region, f"http://127.0.0.1:{server.port}"]
        elif kind in ("silent", "hole"):
            listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
            port = listening.getsockname()[1]
            for _ in range(3 if kind == "hole" else 0):  # what is behind these is not even accepted
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(("127.0.0.1", port))
            yield [*region, f"http://127.0.0.1:{port}"]
        else:
            urls = {"closed": "http://127.0.0.1:9", "dns": "http://no-such-host.invalid"}
            yield [*region, urls[kind]] if kind in urls else ["--region", "us-esat-1"]


#: On a desk only this is tried with each kind of server.
EVERY_KIND = STREAM_LINES[0].words
OF_KINESIS = [
    *(line.words for line in STREAM_LINES),
    "validate --output FOLDER/new",
]
OF_S3 = [
    pytest.param(line.replace("AT/", "s3://captures/x/"), marks=[pytest.mark.slow] * (line != "cat AT/in/"))
    for line in sorted(line.words for line in WITH_PATHS)
]


def given_up(line: str, options: list[str]) -> str:
    """What a command says that has to end without a result. S3 is reached by the environment."""
    given, environment = [*line.split(), "--stream", "orders", *options], {}
    if "s3:" in line:
        given = line.split()
        environment = {"AWS_ENDPOINT_URL_S3": options[-1]} if "://" in options[-1] else {}
    began = time.monotonic()
    ended = run(given, **environment)
    assert time.monotonic() - began < ENDS_WITHIN
    assert (ended.status, ended.out) == (2, "")
    return ended.err


@pytest.mark.requirement("MAP-23", "MAP-24")
@pytest.mark.parametrize("line", [*OF_KINESIS, *OF_S3])
def test_where_nothing_answers_a_command_ends_and_says_what_to_check(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With shorter times to wait, and without them in the next test."""
    for module in (kpl_codec.aws.client, kpl_codec.aws.s3):
        monkeypatch.setattr(module, "_CONNECT", 0.2)
        monkeypatch.setattr(module, "_READ", 0.2)
    line = line.replace("NUMBER", "1").replace("FOLDER", str(tmp_path))
    kinds = ("html", "closed", "dns", "typo", "silent", "hole")
    advice = "; check the (network|name)"
    if "s3:" in line:
        kinds = ("closed", "dns", "silent", "hole") if line == "cat s3://captures/x/in/" else ("hole",)
        advice = "check the network, the region, and AWS_ENDPOINT_URL_S3"
    if share() > 1 and line != EVERY_KIND:
        kinds = kinds[-1:]
    for kind in kinds:
        with nobody(kind) as options:
            assert re.search(advice, given_up(line, options)), kind
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "")
    monkeypatch.setattr(botocore.credentials.CredentialResolver, "load_credentials", lambda self: None)
    said = given_up(line, ["--region", "us-east-1"])
    assert "no credentials: give --profile, or set AWS_PROFILE" in said


@pytest.mark.slow
@pytest.mark.requirement("MAP-24", "SPK-97")
@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("cat", "silent"),
        ("watch --once", "hole"),
        ("cat s3://captures/x", "silent"),
        ("cat s3://captures/x", "hole"),
    ],
)
def test_what_never_answers_is_given_up(line: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the times that users have."""
    monkeypatch.setattr(kpl_codec.cli.progress, "_SOON", SOON)
    began = time.monotonic()
    with nobody(kind) as options:
        said = given_up(line, options)
    assert time.monotonic() - began > 3
    first, *_, last = said.splitlines()
    assert first.endswith(" ...")
    assert "check the network" in last
