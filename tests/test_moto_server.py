"""The moto server of the tests: what one test leaves there is not found by another."""

from __future__ import annotations

import boto3
import pytest

from .moto_server import moto_server


def test_it_begins_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    for _ in range(2):
        with moto_server() as url:
            s3 = boto3.client("s3", endpoint_url=url, region_name="us-east-1")
            assert s3.list_buckets()["Buckets"] == []
            s3.create_bucket(Bucket="left-behind")
