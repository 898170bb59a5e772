"""Makes a boto3 client of Kinesis for a region, endpoint, profile, access key or role.

client = kinesis_client(region="eu-west-1", role_arn="arn:aws:iam::123456789012:role/reader")
"""

from __future__ import annotations

import json
from binascii import a2b_base64
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ..base.arguments import check_arguments, check_needs
from ..base.lazy import require_extras

with require_extras("kpl_codec.aws.client"):
    import boto3
    from botocore.config import Config
    from botocore.credentials import DeferredRefreshableCredentials
    from botocore.exceptions import ClientError
    from botocore.session import get_session
    from botocore.utils import parse_timestamp

if TYPE_CHECKING:  # of boto3-stubs; without them it is as untyped as boto3's
    from mypy_boto3_kinesis.client import KinesisClient

from .. import __version__
from ..aws_errors import region_named
from ..shards.stream_name import Stream

_USER_AGENT = f"kpl_codec/{__version__} Boto3/{boto3.__version__}"
#: The most connections of a client.
_MAX_CONNECTIONS: Final = 32
#: Seconds that `check_reachable` waits for a connection, and for a response.
_CONNECT, _READ = 4.0, 8.0


def kinesis_client(
    *,
    region: str | None = None,
    endpoint_url: str | None = None,
    role_arn: str | None = None,
    role_session_name: str = "kpl-codec",
    role_external_id: str | None = None,
    sts_endpoint_url: str | None = None,
    profile: str | None = None,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    config: Config | None = None,
    verify: bool | str | None = None,
) -> KinesisClient:
    """A boto3 client that tries each call once: its callers decide about retries.

    For missing arguments boto3's defaults hold (environment, profile, instance). With ``role_arn`` the client
    assumes the role through STS, again and again before its credentials expire. Times in its responses are in
    UTC. ``config``: botocore's, for all but retries: proxies, pools, timeouts (unless it has them, 10 s for a
    connection, 30 s for an answer). ``verify``: False, or the path of a bundle of certificates. Raises
    botocore's errors for invalid settings.
    """
    check_arguments("kinesis_client", locals())
    check_needs("kinesis_client", locals(), {"role_session_name": "kpl-codec"})
    once = Config(
        connect_timeout=10.0,
        read_timeout=30.0,
        max_pool_connections=_MAX_CONNECTIONS,
        # One for all calls: botocore builds its own for each, which takes a quarter of a call's CPU time.
        user_agent=_USER_AGENT,
    )
    once = once.merge(config or Config()).merge(Config(retries={"total_max_attempts": 1, "mode": "standard"}))
    session = boto3.Session(
        access_key_id, secret_access_key, session_token, region, _session_in_utc(), profile_name=profile
    )
    if role_arn is not None:
        role = {"RoleArn": role_arn, "RoleSessionName": role_session_name}
        if role_external_id is not None:
            role["ExternalId"] = role_external_id
        session = assume_role(session, role, once, sts_endpoint_url, verify)
    with region_named():
        client: Any = session.client("kinesis", endpoint_url=endpoint_url, config=once, verify=verify)
    # Versions of botocore without this event never call it.
    client.meta.events.register("before-parse.kinesis.GetRecords", parse_records)
    return client  # type: ignore[no-any-return, unused-ignore]


#: The members of a record in a response of GetRecords.
_RECORD: Final = {"SequenceNumber", "ApproximateArrivalTimestamp", "Data", "PartitionKey", "EncryptionType"}


def parse_records(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object
) -> None:
    """A handler of botocore's event before-parse.kinesis.GetRecords: it moves records with the usual members
    from the body to the response. botocore's parser, which takes most of a call's time, reads the rest."""
    # MAP-25: "A faster way to read an answer MUST give or raise what botocore would."
    if response_dict["status_code"] != 200:
        return
    with suppress(ValueError, TypeError, LookupError, AttributeError, OverflowError, OSError):
        rest = json.loads(response_dict["body"].decode())
        records = rest.pop("Records")
        if type(records) is not list:
            return
        for record in records:
            if not record.keys() <= _RECORD or None in record.values():
                return
            if "Data" in record:
                record["Data"] = a2b_base64(record["Data"])
            if "ApproximateArrivalTimestamp" in record:
                record["ApproximateArrivalTimestamp"] = utc_time(record["ApproximateArrivalTimestamp"])
        response_dict["body"] = json.dumps(rest).encode()
        customized_response_dict["Records"] = records


def utc_time(value: Any) -> datetime:
    """A time of a response, in UTC. botocore's own takes half of the CPU time of a call with 50 records."""
    if isinstance(value, (int, float)):
        return datetime.fromtimestamp(value, timezone.utc)
    return parse_timestamp(value)  # type: ignore[no-any-return]


def _session_in_utc() -> Any:
    session: Any = get_session()
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=utc_time)
    return session


def assume_role(
    session: boto3.Session,
    role: Mapping[str, str],
    config: Config,
    endpoint_url: str | None = None,
    verify: bool | str | None = None,
) -> boto3.Session:
    """A session of a role, which is assumed again before its credentials expire. ``role``: arguments of
    AssumeRole; ``config``, ``endpoint_url``, ``verify``: of the client of STS."""
    region, how = session.region_name or "us-east-1", {"config": config, "verify": verify}
    sts = session.client("sts", region, endpoint_url=endpoint_url, **how)

    def assume() -> dict[str, str]:
        credentials = sts.assume_role(**role)["Credentials"]
        return {
            "access_key": credentials["AccessKeyId"],
            "secret_key": credentials["SecretAccessKey"],
            "token": credentials["SessionToken"],
            "expiry_time": credentials["Expiration"].isoformat(),
        }

    assumed = _session_in_utc()
    # botocore has no public way to set credentials that renew themselves.
    assumed._credentials = DeferredRefreshableCredentials(assume, "assume-role")
    return boto3.Session(botocore_session=assumed, region_name=session.region_name)


def check_reachable(stream: Stream, **settings: Any) -> None:
    """Make one call about ``stream``. ``settings``: those of `kinesis_client`. An error response
    shows that the server is reachable, too.

    Raises botocore's error if no server answers within 13 seconds, and if there are no credentials.
    """
    # MAP-24: "A command MUST end within 15 seconds where nothing answers, and say what to check."
    client = kinesis_client(**settings, config=Config(connect_timeout=_CONNECT, read_timeout=_READ))
    with suppress(ClientError):
        client.list_shards(**stream.argument, MaxResults=1)


@lru_cache(maxsize=1)
def _s3() -> Any:
    return boto3.session.Session().client("s3")


def put_object(uri: str, data: bytes) -> None:
    """Put ``data`` as the object ``s3://bucket/key`` with boto3. Raises botocore's errors."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    _s3().put_object(Bucket=bucket, Key=key, Body=data)
