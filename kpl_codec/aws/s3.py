"""S3 as a file system of pyarrow, with boto3's credentials, region and endpoint.

boto3 takes credentials from the environment, a profile (AWS_PROFILE) or the instance, and another server from
AWS_ENDPOINT_URL_S3. KPL_CODEC_ROLE_ARN: a role that these credentials assume first (`--role-arn`). Each
process makes one call about a bucket, so it notices at once if the bucket is missing or cannot be reached.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

from ..aws_errors import failure_text, what_to_check
from ..base.lazy import require_extras
from ..errors import KplError
from .calls import failure_of
from .client import assume_role

with require_extras("kpl_codec.aws.s3"):
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError
    from pyarrow import fs

#: Seconds for a connection and for a response, and attempts of one call: at most 12 s together.
_CONNECT, _READ, _TRIES = 2.0, 4.0, 2
_ROLE: Final = "KPL_CODEC_ROLE_ARN"


class S3Error(KplError, OSError):
    """A bucket that cannot be used. ``code``: that of AWS or botocore; ``reason`` also says what to check."""

    code: str
    bucket: str
    reason: str
    text = "{reason}"
    concerns = "Whoever runs the command. Nothing was written."
    todo = (
        "Set AWS_PROFILE or AWS_ACCESS_KEY_ID (of a command: --profile); check the name of the bucket, the "
        "network, and AWS_ENDPOINT_URL_S3, which names another server than AWS."
    )
    codes = ("NoCredentialsError", "NoSuchBucket", "EndpointConnectionError")


def s3_file_system(bucket: str) -> fs.S3FileSystem:
    """The file system that has ``bucket``. Raises S3Error within 15 seconds."""
    try:
        session, client = _client(_settings())
        credentials = session.get_credentials()
        if credentials is None:
            raise _error(bucket, "NoCredentialsError", "")
        region = _region(_settings(), bucket)
        frozen = credentials.get_frozen_credentials()  # botocore renews credentials that expire
    except (BotoCoreError, ClientError, ResponseParserError) as error:
        raise _error(bucket, *failure_of(error)) from None
    return _file_system(frozen.access_key, frozen.secret_key, frozen.token, region, client.meta.endpoint_url)


def _settings() -> tuple[tuple[str, str], ...]:
    return tuple(sorted(item for item in os.environ.items() if item[0].startswith(("AWS_", _ROLE))))


@lru_cache(maxsize=8)
def _client(_settings: tuple[tuple[str, str], ...]) -> tuple[Any, Any]:
    timeouts = Config(connect_timeout=_CONNECT, read_timeout=_READ, retries={"total_max_attempts": _TRIES})
    session = boto3.Session()
    if _ROLE in os.environ:
        role = {"RoleArn": os.environ[_ROLE], "RoleSessionName": "kpl-codec"}
        session = assume_role(session, role, timeouts)
    config = timeouts.merge(Config(s3={"addressing_style": "path"}))
    return session, session.client("s3", region_name=session.region_name or "us-east-1", config=config)


@lru_cache(maxsize=64)
def _region(settings: tuple[tuple[str, str], ...], bucket: str) -> str:
    _, client = _client(settings)
    try:
        response, failure = client.head_bucket(Bucket=bucket), None
    except ClientError as error:
        response, failure = error.response, failure_of(error)
    metadata = response["ResponseMetadata"]
    status, region = metadata["HTTPStatusCode"], metadata["HTTPHeaders"].get("x-amz-bucket-region")
    if status == 404:
        raise _error(bucket, "NoSuchBucket", f"there is no bucket {bucket}")
    if failure is not None and region is None and status not in (301, 403):  # else the bucket exists
        raise _error(bucket, *failure)
    return str(region or client.meta.region_name)


@lru_cache(maxsize=8)
def _file_system(
    access_key: str, secret_key: str, token: str | None, region: str, endpoint: str
) -> fs.S3FileSystem:
    server: dict[str, Any] = {}
    parts = urlsplit(endpoint)
    if not str(parts.hostname).endswith((".amazonaws.com", ".amazonaws.com.cn")):
        server = {"endpoint_override": parts.netloc + parts.path, "scheme": parts.scheme}
    return fs.S3FileSystem(
        access_key=access_key,
        secret_key=secret_key,
        session_token=token,
        region=region,
        connect_timeout=_CONNECT,
        request_timeout=30.0,
        **server,
    )


def _error(bucket: str, code: str, reason: str) -> S3Error:
    variables = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    variable = next((name for name in variables if os.environ.get(name)), None)
    text = failure_text(code, reason).replace("connect to the endpoint URL: ", "connect to S3 at ")
    if variable is not None:
        text = text.replace("the endpoint URL", variable)
    if what_to_check(code) is None:
        text += "; check the name of the bucket" + (f" and {variable}" if variable else "")
    return S3Error(code=code, bucket=bucket, reason=text)
