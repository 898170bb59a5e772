"""--profile and --role-arn: the user of the profile may only assume the role, and only the role may read."""

from __future__ import annotations

import json
import os
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import boto3
import pytest

from kpl_codec import UserRecord, encode
from kpl_codec.captures import Location

from .commands import STREAM_LINES, Line, run, words, write_inputs, write_results
from .test_s3 import WITH_PATHS

ROLE = "arn:aws:iam::123456789012:role/reader"
#: Where the lines of the table have their files.
PLACE = "s3://captures/in-s3"
#: No command is to find credentials anywhere else.
_OTHERS = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "DEFAULT_REGION")


def policy(action: str) -> str:
    allowed = {"Effect": "Allow", "Action": [action], "Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [allowed]})


def check_rights_after(url: str, calls: str) -> None:
    headers = {"Content-Type": "text/plain"}
    request = urllib.request.Request(f"{url}/moto-api/reset-auth", calls.encode(), headers)
    urllib.request.urlopen(request).close()


@pytest.fixture
def account(moto_url: str, tmp_path: Path) -> Iterator[str]:
    """A stream of one aggregate in a moto that checks rights, and a profile; gives the sequence number."""
    url = moto_url

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
    config = tmp_path / "config"
    config.write_text(
        f"[profile me]\naws_access_key_id = {key['AccessKeyId']}\n"
        f"aws_secret_access_key = {key['SecretAccessKey']}\nregion = us-east-1\n"
    )
    client("s3").create_bucket(Bucket="captures")
    keys = {"AWS_ACCESS_KEY_ID": "root", "AWS_SECRET_ACCESS_KEY": "x", "AWS_ENDPOINT_URL": url}
    with mock.patch.dict(os.environ, keys):
        write_inputs(Location(PLACE))
        write_results(Location(PLACE))
    check_rights_after(url, "0")
    with pytest.MonkeyPatch.context() as patch:
        for name in _OTHERS:
            patch.delenv(f"AWS_{name}", raising=False)
        patch.setenv("AWS_CONFIG_FILE", str(config))
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(config.with_name("none")))
        patch.setenv("AWS_ENDPOINT_URL", url)
        yield number
    check_rights_after(url, "inf")


@pytest.mark.slow
@pytest.mark.requirement("SPK-47")
def test_the_role_reads_streams_and_s3_and_writes_s3(account: str) -> None:
    """Also in the processes that a command starts, and for what is read of a stream and written to S3."""
    both = Line("validate --stream orders --output AT/of-stream/ --quiet")
    for line in (*STREAM_LINES, *WITH_PATHS, both):
        given = words(line.words.replace("NUMBER", account), PLACE)
        if line in STREAM_LINES:
            given += ["--stream", "orders"]
        refused = run([*given, "--role-arn", ROLE, "--profile", "nobody"])
        assert refused.status == 2
        assert "nobody" in refused.err
        if "watch" not in line.words:  # which would go on without the right to list shards
            denied = run([*given, "--profile", "me"])
            assert denied.status == 2
            assert re.search("(?i)access_?denied", denied.err)
        ended = run([*given, "--role-arn", ROLE, "--profile", "me"])
        assert ended.status == line.status, ended.err
        assert ended.out or ended.err
    assert "KPL_CODEC_ROLE_ARN" not in os.environ
