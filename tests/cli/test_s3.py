"""Every path argument of every command, in S3 and on this machine, with and without a slash at the end: the
same answers, the same files. The S3 is moto's, over HTTP."""

from __future__ import annotations

import json
import os
import re
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import boto3
import pyarrow.parquet as pq
import pytest

from kpl_codec import UserRecord, encode
from kpl_codec.captures import Location
from kpl_codec.cli.main import COMMANDS, _parser, main

from ..moto_server import moto_server
from .commands import (
    LINES,
    PATH_LINES,
    STREAM_LINES,
    Line,
    parser_of,
    parsers,
    run,
    words,
    write_inputs,
    write_results,
)

pytestmark = pytest.mark.requirement("SPK-47")
BUCKET = "captures"
#: The lines with a path; but for these they are slow.
QUICK = {"cat AT/in/"}
WITH_PATHS = [line for line in (*LINES, *PATH_LINES) if "AT/" in line.words]


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    """A client of a moto server; nothing else of AWS is in the environment."""
    with moto_server() as url, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_ENDPOINT_URL_S3", url)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "mine")
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket=BUCKET)
        yield client


@pytest.fixture
def places(s3: Any, tmp_path: Path) -> list[str]:
    """The same inputs on this machine and in S3."""
    at = [str(tmp_path), f"s3://{BUCKET}/{tmp_path.name}"]
    for place in at:
        write_inputs(Location(place))
    return at


def held(folder: Location) -> dict[str, Any]:
    """Every file under ``folder``, by name; of Parquet its rows, of pages and pictures only that it is
    there."""
    found: dict[str, Any] = {}
    for item in folder.files():
        if item.kind() == "folder":
            found |= {f"{item.name}/{name}": content for name, content in held(item).items()}
        elif item.name.endswith(".parquet"):
            system, inner = item.filesystem()
            found[item.name] = pq.read_table(inner, filesystem=system).to_pylist()
        elif not item.name.endswith(".html"):
            found[item.name] = item.read()
        else:
            found[item.name] = len(item.read()) > 100
    return found


def without_place(value: Any, place: str) -> Any:
    """``value`` with AT for the place, and without times and the id of the run."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.+]+", "TIME", repr(value))
    text = re.sub(r'"run": ?"[0-9a-f]{32}"', "RUN", text)
    # A line is folded where its words end, which depends on how long the place is.
    return "".join(text.replace(place, "AT").replace("\\n", "").split())


@pytest.mark.parametrize(
    ("line", "slash"),
    [
        pytest.param(
            line,
            slash,
            marks=[pytest.mark.slow] * (not slash or line.words not in QUICK),
            id=line.words if slash else f"no slash: {line.words}",
        )
        for line in WITH_PATHS
        for slash in (True, False)
        if slash or "/ " in f"{line.words} "
    ],
)
def test_a_path_in_s3_is_as_good_as_one_of_this_machine(line: Line, slash: bool, places: list[str]) -> None:
    results = []
    for place in places:
        if "AT/results" in line.words:
            write_results(place)
        given = words(line.words, place)
        ended = run(given if slash else [word.rstrip("/") for word in given])
        assert ended.status == line.status, ended.err
        results.append(without_place((*ended, held(Location(place))), place))
    assert results[0] == results[1]


@pytest.mark.server
@pytest.mark.slow
def test_the_demo_goes_to_s3(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kpl_codec.testing.demo_command._PUT", 100)
    ended = run(f"demo --output s3://{BUCKET}/demo/")
    assert ended.status == 0, ended.err
    assert f"kpl-codec findings s3://{BUCKET}/demo" in ended.out
    names = set(held(Location(f"s3://{BUCKET}/demo")))
    assert {"shards.json", "report.html", "summary.json"} <= names


def test_every_argument_that_is_a_path_is_tried() -> None:
    """In the table: an option with AT behind it, or AT with none before it."""
    tried, wanted = {("kpl-codec demo", "--output")}, set()
    for line in WITH_PATHS:
        for before, word in pairwise(line.words.split()):
            if word.startswith("AT/"):
                tried.add((parser_of(line.words).prog, before if before.startswith("--") else ""))
    for name in COMMANDS:
        for parser in parsers(_parser([name])):
            for action in parser._actions:
                if action.metavar in ("PATH", "DIR", "FILE", "DATA"):
                    wanted.add((parser.prog, next(iter(action.option_strings), "")))
    assert wanted <= tried


def test_a_bucket_or_a_profile_that_is_not_there_is_said(s3: Any) -> None:
    for path, why in (
        ("no-such-bucket/in/", "there is no bucket no-such-bucket"),
        (f"{BUCKET}/nothing/", "no such file or folder"),
        (f"{BUCKET}/nothing/ --profile nobody", "nobody"),
    ):
        ended = run(f"cat s3://{path}")
        assert ended.status == 2
        assert why in ended.err


# -- --profile and --role-arn -----------------------------------------------------------------------

ROLE = "arn:aws:iam::123456789012:role/reader"


def policy(action: str) -> str:
    allowed = {"Effect": "Allow", "Action": [action], "Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [allowed]})


@pytest.fixture
def account(s3: Any, places: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A stream of one aggregate, where the user of a profile may only assume the role, and only the role may
    read; gives the sequence number."""
    url = os.environ["AWS_ENDPOINT_URL_S3"]

    def check_rights_after(calls: str) -> None:
        headers = {"Content-Type": "text/plain"}
        request = urllib.request.Request(f"{url}/moto-api/reset-auth", calls.encode(), headers)
        urllib.request.urlopen(request).close()

    iam, kinesis = (
        boto3.client(name, endpoint_url=url, region_name="us-east-1") for name in ("iam", "kinesis")
    )
    iam.create_user(UserName="me")
    iam.put_user_policy(UserName="me", PolicyName="p", PolicyDocument=policy("sts:AssumeRole"))
    key = iam.create_access_key(UserName="me")["AccessKey"]
    iam.create_role(RoleName="reader", AssumeRolePolicyDocument=policy("sts:AssumeRole"))
    iam.put_role_policy(RoleName="reader", PolicyName="p", PolicyDocument=policy("*"))
    kinesis.create_stream(StreamName="orders", ShardCount=1)
    data = encode([UserRecord("a", b"one"), UserRecord("a", b"two")])
    number = kinesis.put_record(StreamName="orders", Data=data, PartitionKey="a")["SequenceNumber"]
    config = tmp_path / "config"
    config.write_text(
        f"[profile me]\naws_access_key_id = {key['AccessKeyId']}\n"
        f"aws_secret_access_key = {key['SecretAccessKey']}\nregion = us-east-1\n"
    )
    write_results(places[1])
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(config.with_name("none")))
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    check_rights_after("0")
    yield number
    check_rights_after("inf")


@pytest.mark.slow
def test_the_role_reads_streams_and_s3_and_writes_s3(account: str, places: list[str]) -> None:
    """Also in the processes that a command starts, for what is read of a stream and written to S3, and beside
    credentials in the environment, which the next command has again."""
    before = dict(os.environ)
    both = Line("validate --stream orders --output AT/of-stream/ --quiet")
    for line in (*STREAM_LINES, *WITH_PATHS, both):
        given = words(line.words.replace("NUMBER", account), places[1])
        if line in STREAM_LINES:
            given += ["--stream", "orders"]
        if "watch" not in line.words:  # which would go on without the right to list shards
            denied = run([*given, "--profile", "me"])
            assert denied.status == 2
            assert re.search("(?i)access_?denied", denied.err)
        ended = run([*given, "--role-arn", ROLE, "--profile", "me"])
        assert ended.status == line.status, ended.err
        assert ended.out or ended.err
    # `run` would put the environment back itself.
    assert main(words(f"cat AT/in/ --role-arn {ROLE} --profile me", places[1])) == 1
    assert dict(os.environ) == before
    assert "ACCESS_DENIED" in run(["cat", f"{places[1]}/in"]).err
