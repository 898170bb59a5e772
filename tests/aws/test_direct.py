"""A direct call gives what botocore's gives, raises what it raises, and is signed and sent as it is."""

from __future__ import annotations

import io
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ClientError, SSLError
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import example, given
from hypothesis import strategies as st

from kpl_codec.aws.client import _session_in_utc, kinesis_client
from kpl_codec.aws.direct import make_direct
from kpl_codec.serving import ServerThread
from kpl_codec.testing.faults import (
    Answer,
    FaultProxy,
    cut_answer,
    cut_before,
    error,
    lose_answer,
    rewrite,
    throttle,
)
from kpl_codec.testing.local_kinesis import LocalKinesis

from .test_reading import put_numbered

Clients = tuple[Any, Any]
PLAIN = b'{"Records": [], "NextShardIterator": "n", "MillisBehindLatest": 0}'


class Wire:
    """In place of a client's HTTP session: ``sent`` is what it would have sent, ``given`` what it answers, a
    status and a body."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.given: tuple[int, bytes] = (200, PLAIN)

    def send(self, request: Any) -> AWSResponse:
        self.sent.append(request)
        return response(request, *self.given)


def response(request: Any, status: int, body: bytes) -> AWSResponse:
    raw = type("Raw", (io.BytesIO,), {"stream": lambda self: [self.getvalue()]})
    return AWSResponse(request.url, status, {"X-Amzn-RequestId": "r", "Server": "s"}, raw(body))


def pair(wires: Sequence[Wire] = (), **settings: Any) -> Clients:
    """botocore's own client, and one whose calls are direct. ``settings``: of the client."""
    settings = {"config": Config(retries={"total_max_attempts": 1}), **settings}
    sessions, clients = [], []
    for _ in range(2):
        core = _session_in_utc()
        core.set_credentials("local", "local", "token")
        sessions.append(boto3.Session(botocore_session=core, region_name="us-east-1"))
        clients.append(sessions[-1].client("kinesis", **settings))
    for client, wire in zip(clients, wires, strict=False):
        client._endpoint.http_session = wire
    return clients[0], make_direct(clients[1], sessions[1])


def botocores_requests(client: Any) -> list[str]:
    """The operations of those that botocore has made."""
    made: list[str] = []
    client.meta.events.register("request-created", lambda operation_name, **_: made.append(operation_name))
    return made


def ordered(value: Any) -> str:
    """In which order members come does not count; that a number is none (NaN) is no difference."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k}: {ordered(v)}' for k, v in sorted(value.items()))}}}"
    return f"[{', '.join(map(ordered, value))}]" if isinstance(value, list) else repr(value)


#: What differs from call to call.
CHANGING = ("RequestId", "date", "x-amzn-requestid", "x-amz-id-2", "ShardIterator", "NextShardIterator")


def outcome(client: Any, method: str, arguments: dict[str, Any]) -> tuple[str, str, str]:
    """What a call gives or raises."""
    try:
        kind, text, answer = "", "", getattr(client, method)(**arguments)
    except Exception as failed:  # noqa: BLE001 - botocore raises anything for an odd answer
        kind, text, answer = type(failed).__name__, str(failed), dict(getattr(failed, "response", {}) or {})
    metadata = answer.get("ResponseMetadata", {})
    for found in (answer, metadata, metadata.get("HTTPHeaders", {})):
        found.update({name: "..." for name in CHANGING if name in found})
    return kind, text, ordered(answer)


@pytest.mark.server
@pytest.mark.requirement("MAP-25")
def test_answers_of_a_server_are_botocores(kinesis_local: LocalKinesis, stream: str) -> None:
    clients = pair(endpoint_url=kinesis_local.endpoint_url)
    (shard_id, number), *_ = put_numbered(clients[0], stream, 20)
    shard = {"StreamName": stream, "ShardId": shard_id}
    iterator = clients[0].get_shard_iterator(**shard, ShardIteratorType="TRIM_HORIZON")["ShardIterator"]
    hour_ago = datetime.now(timezone.utc) - timedelta(hours=1)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("get_shard_iterator", {**shard, "ShardIteratorType": "LATEST"}),
        ("get_shard_iterator", {**shard, "ShardIteratorType": "AT_TIMESTAMP", "Timestamp": hour_ago}),
        (
            "get_shard_iterator",
            {**shard, "ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": number},
        ),
        ("get_shard_iterator", {**shard, "ShardIteratorType": "NO_SUCH_TYPE"}),
        ("get_shard_iterator", {**shard, "ShardId": "shardId-000000000099", "ShardIteratorType": "LATEST"}),
        ("get_shard_iterator", {**shard, "StreamName": "nobodys", "ShardIteratorType": "LATEST"}),
        ("get_shard_iterator", shard),
        ("get_records", {"ShardIterator": iterator}),
        ("get_records", {"ShardIterator": iterator, "Limit": 3}),
        ("get_records", {"ShardIterator": iterator, "Limit": 0}),
        ("get_records", {"ShardIterator": iterator, "Limit": "3"}),
        ("get_records", {"ShardIterator": iterator, "Limit": 20_000}),
        ("get_records", {"ShardIterator": iterator, "Most": 3}),
        ("get_records", {"ShardIterator": "none"}),
        ("get_records", {}),
    ]
    for client in clients:  # the first call of each operation is botocore's
        for method, arguments in (calls[0], calls[7]):
            getattr(client, method)(**arguments)
    created = botocores_requests(clients[1])
    for number_of_call, (method, arguments) in enumerate(calls):
        already = len(created)
        theirs, ours = (outcome(client, method, arguments) for client in clients)
        assert ours == theirs, (method, arguments)
        if number_of_call in (0, 2, 7, 8):
            assert len(created) == already, "botocore has made a plain call"
    with pytest.raises(clients[1].exceptions.ResourceNotFoundException):
        clients[1].get_shard_iterator(**{**shard, "StreamName": "nobodys", "ShardIteratorType": "LATEST"})
    with pytest.raises(TypeError):
        clients[1].get_records(iterator)


RECORD: dict[str, Any] = {
    "SequenceNumber": "1",
    "Data": "AAAA",
    "PartitionKey": "k",
    "ApproximateArrivalTimestamp": 1.5,
}
ANSWER: dict[str, Any] = {"Records": [RECORD], "NextShardIterator": "n", "MillisBehindLatest": 0}


def answers() -> st.SearchStrategy[Any]:
    """Answers that are odd in one or two places."""
    any_json = st.recursive(
        st.none() | st.booleans() | st.integers(-1, 10**20) | st.floats() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
        max_leaves=4,
    )
    members = [*RECORD, "EncryptionType", "FirstReceiveTimestamp", "data"]
    times = st.sampled_from([1.5, 1, "1.5", "2026-11-25T00:00:00Z", "soon", -1, 1e300, "2026-11-25"])
    odd_records = st.builds(
        lambda name, value, dropped: {k: v for k, v in {**RECORD, name: value}.items() if k != dropped},
        st.sampled_from(members),
        any_json | times | st.sampled_from(["AAA", "A", "AA==", "====", "\u00e9"]),
        st.sampled_from([None, *members]),
    )
    tops = [*ANSWER, "ChildShards", "Message", "__type"]
    return any_json | st.builds(
        lambda records, name, value: {**ANSWER, "Records": records, name: value},
        st.lists(odd_records | any_json, max_size=3),
        st.sampled_from(tops),
        any_json,
    )


WIRES = Wire(), Wire()
WIRED = pair(WIRES)
for _client in WIRED:
    _client.get_records(ShardIterator="i")  # which is botocore's


@pytest.mark.requirement("MAP-25")
@given(
    answers().map(lambda answer: json.dumps(answer).encode()),
    st.sampled_from([200, 200, 200, 201, 204, 301, 400, 403, 404, 413, 500, 503]),
)
@example(b"", 200)
@example(b"", 500)
@example(b"null", 200)
@example(b"<html>", 403)
@example(json.dumps(ANSWER).encode()[:50], 200)
@example(b'{"message": "m", "__type": "a#B"}', 400)
@example(json.dumps({**ANSWER, "Records": [{**RECORD, "PartitionKey": None}]}).encode(), 200)
@example(json.dumps({**ANSWER, "Records": {}}).encode(), 200)
@example(b"\xef\xbb\xbf" + PLAIN, 200)
@example(PLAIN.decode().encode("utf-16"), 200)
@example(PLAIN.replace(b"n", b"\xff"), 200)
@example(b'{"ShardIterator": "s", ' + PLAIN[1:], 200)
def test_odd_answers_are_taken_as_botocore_takes_them(body: bytes, status: int) -> None:
    for wire in WIRES:
        wire.given = status, body
    theirs, ours = (outcome(client, "get_records", {"ShardIterator": "i"}) for client in WIRED)
    assert ours == theirs
    assert len(WIRES[0].sent) == len(WIRES[1].sent)


@pytest.mark.server
@pytest.mark.requirement("MAP-25")
def test_a_call_is_sent_once_and_failures_are_botocores(proxy: FaultProxy, stream: str) -> None:
    settings = {"endpoint_url": proxy.endpoint_url}
    clients = pair(**settings)
    shard = {"StreamName": stream, "ShardId": "shardId-000000000000", "ShardIteratorType": "TRIM_HORIZON"}
    iterator = clients[0].get_shard_iterator(**shard)["ShardIterator"]
    clients[1].get_records(ShardIterator=iterator)
    faults = [
        throttle(),
        error("InternalFailure", status=500),
        error("ExpiredIteratorException"),
        cut_before(),
        cut_answer(0.5),
        lose_answer(),
        lambda exchange: Answer(403, b"<html>", "text/html"),
        rewrite(lambda answer: {**answer, "NextShardIterator": None, "ChildShards": [{"ShardId": "s"}]}),
    ]
    for fault in faults:
        proxy.clear()
        proxy.on("GetRecords", fault)
        before = len(proxy.calls)
        theirs, ours = (outcome(client, "get_records", {"ShardIterator": iterator}) for client in clients)
        assert (ours, len(proxy.calls) - before) == (theirs, 2), fault


@pytest.mark.requirement("MAP-25")
def test_requests_are_botocores_with_the_credentials_of_the_moment() -> None:
    """A StreamARN leads to the host of its account, as do the credentials in newer versions of botocore."""
    wires = Wire(), Wire()
    clients = pair(wires)
    created = botocores_requests(clients[1])
    names = [
        None,
        "arn:aws:kinesis:us-east-1:111111111111:stream/o",
        "arn:aws:kinesis:us-east-1:222222222222:stream/o",
    ]
    for key, name in [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("b", 2), ("c", 0)]:
        for client in clients:
            one = client._request_signer._credentials
            one.access_key = one.secret_key = one.token = key
            one.account_id = "3" * 12 if key == "c" else "4" * 12
        arguments = {"StreamARN": names[name], "ShardIterator": "i", "Limit": 5}
        if names[name] is None:
            del arguments["StreamARN"]
        while True:  # until both are of the same second
            for client in clients:
                client.get_records(**arguments)
            theirs, ours = (described(wire.sent[-1]) for wire in wires)
            if theirs["X-Amz-Date"] == ours["X-Amz-Date"]:
                break
        assert ours == theirs
        assert f"Credential={key}/" in ours["Authorization"]
    assert len(created) == 4, "a call with each name, and one with another account, are botocore's"
    for odd in ({"StreamId": "a" * 20 + ".abc"}, {"StreamARN": ["x"]}, {"StreamARN": ""}):
        theirs, ours = (outcome(client, "get_records", {"ShardIterator": "i", **odd}) for client in clients)
        assert ours == theirs
        assert described(wires[0].sent[-1])["url"] == described(wires[1].sent[-1])["url"]


@pytest.mark.requirement("MAP-25")
def test_a_time_is_botocores_to_write() -> None:
    wires = Wire(), Wire()
    for time in (0, 1.5, "2026-11-25T00:00:00Z", datetime(2026, 11, 25, tzinfo=timezone.utc)):
        for client in pair(wires):
            for at in (
                {"ShardIteratorType": "LATEST"},
                {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": time},
            ):
                client.get_shard_iterator(StreamName="s", ShardId="0", **at)
        theirs, ours = ([json.loads(request.body) for request in wire.sent] for wire in wires)
        assert ours == theirs


@pytest.mark.requirement("MAP-25")
def test_a_call_within_a_call_and_one_after_ctrl_c_get_their_own_answers() -> None:
    wire = Wire()
    client = pair((Wire(), wire))[1]
    wire.send = (
        lambda request: response(  # type: ignore[method-assign]
            request,
            400 if b"refused" in request.body else 200,
            b'{"NextShardIterator": %b}' % request.body[18:26],
        )
    )
    asked: list[Any] = []

    def within(**_: Any) -> None:
        if not asked:
            asked.append(None)
            asked[0] = client.get_records(ShardIterator="within")["NextShardIterator"]

    client.get_records(ShardIterator="first1")
    client.meta.events.register("before-call", within)
    with pytest.raises(ClientError):
        client.get_records(ShardIterator="refused")
    assert asked == ["within"]
    client.meta.events.unregister("before-call", within)

    def interrupt(**_: Any) -> None:
        raise KeyboardInterrupt

    client.meta.events.register("before-call", interrupt)
    with pytest.raises(KeyboardInterrupt):
        client.get_records(ShardIterator="refused")
    client.meta.events.unregister("before-call", interrupt)
    assert client.get_records(ShardIterator="second")["NextShardIterator"] == "second"


@pytest.mark.requirement("MAP-25")
def test_where_a_handler_answers_all_calls_are_botocores() -> None:
    """moto is one, and so is whatever answers from a recording: once for each call."""
    client = pair()[1]
    recorded = [json.dumps({**ANSWER, "MillisBehindLatest": number}).encode() for number in range(9)]
    left = iter(recorded)
    client.meta.events.register("before-send", lambda request, **_: response(request, 200, next(left)))
    created = botocores_requests(client)
    found = [client.get_records(ShardIterator="i")["MillisBehindLatest"] for _ in recorded]
    assert found == [*range(9)]
    assert len(created) == 8


@pytest.mark.requirement("MAP-25")
def test_a_client_that_retries_does_so_for_direct_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda seconds: None)
    wires = Wire(), Wire()
    for client, wire in zip(
        pair(wires, config=Config(retries={"total_max_attempts": 3})), wires, strict=True
    ):
        client.get_records(ShardIterator="i")
        answers = iter([(500, b"{}"), (500, b"{}"), (200, PLAIN)])
        wire.send = lambda request, answers=answers: response(request, *next(answers))  # type: ignore
        assert client.get_records(ShardIterator="i")["ResponseMetadata"]["HTTPStatusCode"] == 200
        assert not list(answers)


@pytest.mark.requirement("MAP-25")
def test_a_client_that_adapts_its_rate_is_botocores() -> None:
    """It learns from botocore's calls how fast it may go."""
    client = pair(config=Config(retries={"mode": "adaptive"}))[1]
    assert type(client.get_records) is type(client.put_records)


def described(request: Any) -> dict[str, Any]:
    """But for what botocore counts its attempts by."""
    headers = {name: v.decode() if isinstance(v, bytes) else v for name, v in request.headers.items()}
    told = {name: value for name, value in headers.items() if not name.startswith("amz-sdk-")}
    return {**told, "url": request.url, "method": request.method, "body": request.body}


@pytest.mark.requirement("MAP-25")
def test_certificates_and_proxies_are_the_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = tmp_path / "certificate.pem"
    certificate.write_bytes(self_signed())
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            paths.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", str(len(PLAIN)))
            self.end_headers()
            self.wfile.write(PLAIN)

        def log_message(self, format: str, *args: object) -> None:
            """No log."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with ServerThread(Handler, "127.0.0.1", 0) as plain, ServerThread(Handler, "127.0.0.1", 0) as secure:
        server = secure._server
        server.socket = context.wrap_socket(server.socket, server_side=True)
        keys = {"region": "us-east-1", "access_key_id": "a", "secret_access_key": "a"}
        url = f"https://localhost:{secure.port}"
        client = kinesis_client(**keys, endpoint_url=url)
        for _ in range(2):
            with pytest.raises(SSLError):
                client.get_records(ShardIterator="i")
        assert not paths
        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
        client = kinesis_client(**keys, endpoint_url=url)
        assert [client.get_records(ShardIterator="i")["Records"] for _ in range(2)] == [[], []]
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{plain.port}")
        beyond = "http://kinesis.example"
        client = kinesis_client(**keys, endpoint_url=beyond)
        assert [client.get_records(ShardIterator="i")["Records"] for _ in range(2)] == [[], []]
    assert paths == ["/", "/", beyond + "/", beyond + "/"]


def self_signed() -> bytes:
    """A key and a certificate of localhost, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, encoding = key.private_bytes, serialization.Encoding.PEM
    private = pem(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return private + certificate.public_bytes(encoding)


@pytest.mark.requirement("MAP-25")
def test_the_newest_boto3_lets_calls_be_direct(newest_boto3: Path) -> None:
    program = (
        "from tests.aws.test_direct import Wire, botocores_requests, pair; import boto3\n"
        "wire = Wire(); client = pair((Wire(), wire))[1]; made = botocores_requests(client)\n"
        "for _ in range(3): client.get_records(ShardIterator='i')\n"
        "print(boto3.__version__, len(wire.sent), len(made))"
    )
    paths = os.pathsep.join([str(newest_boto3), str(Path(__file__).parents[2])])
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    version, *counts = done.stdout.split() or [done.stderr]
    assert version != boto3.__version__
    assert counts == ["3", "1"], done.stderr
