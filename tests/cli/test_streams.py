"""Every command and reader that takes a stream: by name, by ARN, and where nothing answers."""

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

import botocore.credentials
import botocore.httpsession
import pytest

import kpl_codec.aws.client
import kpl_codec.cli.progress
from kpl_codec import UserRecord, encode
from kpl_codec.aws.calls import stream_for
from kpl_codec.aws.stream_reading import fetch_lineage, fetch_shard_map, read_record, read_stream
from kpl_codec.cli.main import main
from kpl_codec.serving import ServerThread
from kpl_codec.shards.stream_name import Stream, StreamNameError, stream_of
from kpl_codec.testing.local_kinesis import LocalKinesis
from kpl_codec.watch.stream_watcher import StreamWatcher

pytestmark = pytest.mark.timeout(120)
SHARD = "shardId-000000000000"
#: Every command that makes calls itself. repair makes its calls in threads: tests/spark.
COMMANDS = [
    "cat --limit 1",
    "cat --follow --since 1h --limit 1",
    f"inspect --shard-id {SHARD} --sequence-number NUMBER",
    "keys allocate",
    "shards list",
    "shards history",
    "shards predict a",
    "watch --once",
    "watch --all --since 5m --once",
]
READERS = [
    lambda client, stream, _: fetch_shard_map(client, stream),
    lambda client, stream, _: fetch_lineage(client, stream),
    lambda client, stream, _: list(read_stream(client, stream)),
    lambda client, stream, _: list(read_stream(client, stream, shard_ids=[SHARD])),
    lambda client, stream, number: read_record(client, stream, SHARD, number),
    lambda client, stream, _: StreamWatcher(client, stream, sampling_rate=1.0).run(9, once=True),
]


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
@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_takes_a_name_and_an_arn_whose_region_counts(
    line: str,
    held: dict[str, str],
    sent: list[tuple[str, dict[str, Any]]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    region = stream_of(held["arn"]).region
    command = [*line.replace("NUMBER", held["number"]).split(), "--endpoint-url", held["url"], "--stream"]
    said = []
    for stream, more in ((held["arn"], []), (held["name"], ["--region", str(region)])):
        before = len(sent)
        assert main([*command, stream, *more]) == 0, capsys.readouterr().err
        out = re.sub("arn:[^:]*:[^/]*/", "", capsys.readouterr().out)
        said.append(re.sub(r"\d\d:\d\d:\d\d", "", out))
        calls = sent[before:]
        assert {where for where, _ in calls} == {region}
        for _, body in calls:
            named = {body[name] for name in ("StreamARN", "StreamName") if name in body}
            iterator = "ShardIterator" in body or "NextToken" in body
            assert named == ({stream} if stream == held["arn"] or not iterator else set())
            assert ("StreamARN" in body) == (stream == held["arn"])
    assert said[0] == said[1]


@pytest.mark.server
@pytest.mark.requirement("MAP-22")
@pytest.mark.parametrize("read", READERS)
def test_a_reader_takes_a_name_and_an_arn(
    read: Any, held: dict[str, str], kinesis_local: LocalKinesis, sent: list[tuple[str, dict[str, Any]]]
) -> None:
    for stream in (held["arn"], held["name"]):
        read(kinesis_local.client(), stream, held["number"])
        assert all(body.get("StreamARN", stream) == stream for _, body in sent)
        assert all(body.get("StreamName", stream) == stream for _, body in sent)
        sent.clear()


@pytest.mark.requirement("MAP-22")
@pytest.mark.parametrize(
    "text", ["", "a b", "arn:aws:s3:::bucket", "arn:aws:kinesis:x:1:table/orders", "x" * 129]
)
@pytest.mark.parametrize("line", ["cat --stream", "shards list --stream", "watch --once --stream"])
def test_what_is_no_stream_is_refused(line: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*line.split(), text])
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("kpl-codec: argument --stream: ")
    assert "its ARN" in said


def test_a_region_beside_an_arn_of_another_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
    assert main(["cat", "--stream", arn, "--region", "us-east-1"]) == 2
    assert "--region is us-east-1, but the stream is in eu-west-1" in capsys.readouterr().err
    import boto3

    with pytest.raises(StreamNameError, match="make one for eu-west-1"):
        stream_for(boto3.client("kinesis", region_name="us-east-1"), arn)
    there = boto3.client("kinesis", region_name="eu-west-1")
    assert stream_for(there, arn) == Stream("orders", arn, "eu-west-1")


class _Forbidden(BaseHTTPRequestHandler):
    """Answers as a proxy or a wrong endpoint does."""

    def do_POST(self) -> None:
        body = b"<?xml version='1.0'?><Error><Code>Forbidden</Code></Error>"
        self.send_response(403)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """No log."""


#: Seconds in which a command ends on a busy machine. MAP-24 allows 15; botocore's own times would be minutes.
ENDS_WITHIN = 60


@contextmanager
def nobody(kind: str) -> Iterator[list[str]]:
    """The options for a server that refuses with XML, one that is not there, one that never answers, one that
    takes no connection (a black hole), a name that DNS does not know, and a region that is none."""
    region = ["--region", "us-east-1", "--endpoint-url"]
    with ExitStack() as stack:
        if kind == "xml":
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


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results with a plan of a repair."""
    folder = tmp_path_factory.mktemp("planned")
    assert main(f"generate --user-records 1000 --mixed-every 2 --output {folder}/made".split()) == 0
    given = f"{folder}/made/capture --shards {folder}/made/shards.json --output {folder}/out --quiet"
    assert main(["validate", *given.split()]) == 1
    assert main(["repair", f"{folder}/out"]) == 0
    return folder


@pytest.mark.requirement("MAP-23", "MAP-24")
@pytest.mark.parametrize("line", [*COMMANDS, "validate --output FOLDER/new", "repair FOLDER/out --apply"])
def test_where_nothing_answers_a_command_ends_and_says_what_to_check(
    line: str, planned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With shorter times to wait, and without them in the next test."""
    monkeypatch.setattr(kpl_codec.aws.client, "_CONNECT", 0.2)
    monkeypatch.setattr(kpl_codec.aws.client, "_READ", 0.2)
    words = [*line.replace("NUMBER", "1").replace("FOLDER", str(planned)).split(), "--stream", "orders"]
    for kind in ("xml", "closed", "dns", "typo", "silent", "hole"):
        with nobody(kind) as options:
            began = time.monotonic()
            assert main([*words, *options]) == 2
            assert time.monotonic() - began < ENDS_WITHIN
            said = capsys.readouterr()
            assert said.out == ""
            assert re.search("; check the (network|name)", said.err), (kind, said.err)
    monkeypatch.setattr(botocore.credentials.CredentialResolver, "load_credentials", lambda self: None)
    assert main([*words, "--region", "us-east-1"]) == 2
    assert "no credentials: give --profile, or set AWS_PROFILE" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.requirement("MAP-24", "SPK-97")
@pytest.mark.parametrize("kind", ["silent", "hole"])
@pytest.mark.parametrize("line", ["cat", "shards list", "watch --once", "validate --output FOLDER/new"])
def test_a_server_that_never_answers_is_given_up(
    line: str, kind: str, planned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    with nobody(kind) as options:
        assert main([*line.replace("FOLDER", str(planned)).split(), "--stream", "orders", *options]) == 2
    assert 3 < time.monotonic() - began < ENDS_WITHIN
    first, last = capsys.readouterr().err.splitlines()
    assert first == "kpl-codec: asking Kinesis for orders ..."
    assert "check the network" in last


@pytest.mark.server
@pytest.mark.requirement("SPK-97")
def test_a_stream_with_nothing_to_show_is_said_to_be_read(
    held: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once here; `test_a_server_that_never_answers_is_given_up` waits."""
    given = ["--stream", held["name"], "--endpoint-url", held["url"], "--region", "us-east-1"]
    monkeypatch.setattr(kpl_codec.cli.progress, "_SOON", 0.0)
    assert main(["cat", *given, "--key", "nobody's"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert f"kpl-codec: reading {held['name']}, nothing to show yet ...\n" in said.err
    monkeypatch.setattr(kpl_codec.cli.progress, "_SOON", 5.0)
    assert main(["cat", *given]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.requirement("MAP-24", "GSR-10")
@pytest.mark.parametrize("kind", ["closed", "silent", "hole"])
def test_a_schema_registry_that_cannot_be_reached_ends_cat(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    header = b"\x03\x00" + bytes.fromhex("00000000000040008000000000000000")
    (tmp_path / "frame.bin").write_bytes(encode([UserRecord("a", header + b"x"), UserRecord("b", b"y")]))
    command = ["cat", str(tmp_path / "frame.bin"), "--decode"]
    with nobody(kind) as options:
        monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", options[-1])
        began = time.monotonic()
        assert main([*command, *options[:2]]) == 2
        assert time.monotonic() - began < ENDS_WITHIN
    assert "check the network" in capsys.readouterr().err
    for wrong, said in (([], "give --region"), (["--profile", "nobody"], "list-profiles")):
        assert main([*command, *wrong]) == 2
        assert said in capsys.readouterr().err
