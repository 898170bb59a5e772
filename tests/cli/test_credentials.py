"""--profile and --role-arn: the user of the profile may only assume the role, and only the role may read."""

from __future__ import annotations

import json
import os
import re
import urllib.request
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from kpl_codec import UserRecord, encode
from kpl_codec.cli.main import main

from ..moto_server import moto_server

pytestmark = pytest.mark.timeout(120)
ROLE = "arn:aws:iam::123456789012:role/reader"
SHARD = "shardId-000000000000"
#: No command is to find credentials anywhere else.
_OTHERS = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "DEFAULT_REGION")


def policy(action: str) -> str:
    allowed = {"Effect": "Allow", "Action": [action], "Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [allowed]})


def check_rights_after(url: str, calls: str) -> None:
    headers = {"Content-Type": "text/plain"}
    request = urllib.request.Request(f"{url}/moto-api/reset-auth", calls.encode(), headers)
    urllib.request.urlopen(request).close()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with moto_server() as url:
        yield url


@pytest.fixture(scope="module")
def account(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A stream of one aggregate in a moto that checks rights, and a profile; gives the sequence number."""

    def client(service: str) -> Any:
        keys = {"aws_access_key_id": "root", "aws_secret_access_key": "x"}
        return boto3.client(service, endpoint_url=url, region_name="us-east-1", **keys)

    iam, kinesis = client("iam"), client("kinesis")
    iam.create_user(UserName="me")
    iam.put_user_policy(UserName="me", PolicyName="p", PolicyDocument=policy("sts:AssumeRole"))
    key = iam.create_access_key(UserName="me")["AccessKey"]
    iam.create_role(RoleName="reader", AssumeRolePolicyDocument=policy("sts:AssumeRole"))
    iam.put_role_policy(RoleName="reader", PolicyName="p", PolicyDocument=policy("*"))
    kinesis.create_stream(StreamName="orders", ShardCount=1)
    data = encode([UserRecord("a", b"one"), UserRecord("a", b"two")])
    number = kinesis.put_record(StreamName="orders", Data=data, PartitionKey="a")["SequenceNumber"]
    config = tmp_path_factory.mktemp("aws") / "config"
    config.write_text(
        f"[profile me]\naws_access_key_id = {key['AccessKeyId']}\n"
        f"aws_secret_access_key = {key['SecretAccessKey']}\nregion = us-east-1\n"
    )
    client("s3").create_bucket(Bucket="captures")
    check_rights_after(url, "0")
    with pytest.MonkeyPatch.context() as patch:
        for name in _OTHERS:
            patch.delenv(f"AWS_{name}", raising=False)
        patch.setenv("AWS_CONFIG_FILE", str(config))
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(config.with_name("none")))
        patch.setenv("AWS_ENDPOINT_URL", url)
        yield number
    check_rights_after(url, "inf")


@pytest.mark.requirement("SPK-47")
def test_the_role_reads_streams_and_s3_and_writes_s3(
    account: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also in the processes that a command starts, and for what is read of a stream and written to S3."""
    at = "s3://captures"
    for line, status in (
        ("cat --stream orders", 0),
        (f"inspect --stream orders --shard-id {SHARD} --sequence-number {account}", 0),
        ("shards list --stream orders", 0),
        ("shards history --stream orders", 0),
        ("shards predict --stream orders a", 0),
        ("watch --stream orders --all --once", 0),
        (f"generate --output {at}/made --user-records 1000 --mixed-every 2", 0),
        (f"cat {at}/made/capture --limit 1", 0),
        (f"validate {at}/made/capture --shards {at}/made/shards.json --output {at}/out --cores 2 --quiet", 1),
        (f"findings {at}/out", 1),
        (f"keys hot {at}/out", 0),
        (f"repair {at}/out", 0),
        (f"shards list --shards {at}/made/shards.json", 0),
        (f"conformance --export {at}/vectors", 0),
        (f"validate --stream orders --output {at}/of-stream --quiet", 0),
    ):
        command = [*line.split(), "--role-arn", ROLE, "--profile"]
        assert main([*command, "me"]) == status, capsys.readouterr().err
        said = capsys.readouterr()
        assert said.out or "in 1 poll," in said.err or "vectors" in line
        assert main([*command, "nobody"]) == 2
        assert "nobody" in capsys.readouterr().err
        if "watch" not in line:  # which would go on without the right to list shards
            assert main([*line.split(), "--profile", "me"]) == 2
            assert re.search("(?i)access_?denied", capsys.readouterr().err)
    assert "KPL_CODEC_ROLE_ARN" not in os.environ
