"""One S3 object, put with boto3 alone: no pyarrow, so it works in a Lambda function."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ..lazy import needing_extras


@lru_cache(maxsize=1)
def _client() -> Any:
    with needing_extras("kpl_codec.aws.objects"):
        import boto3
    return boto3.session.Session().client("s3")


def put_object(uri: str, data: bytes) -> None:
    """Put ``data`` as the object ``s3://bucket/key``. Raises botocore's errors."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    _client().put_object(Bucket=bucket, Key=key, Body=data)
