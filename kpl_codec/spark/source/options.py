"""The options of the data source `kpl-kinesis`: names, defaults, checks, and the client they make.

The names are those of other Kinesis connectors for Spark, in any case, with or without the prefix
``kinesis.``. An unknown option is refused, so that a typo is noticed. Options of other connectors that are
not needed here give a warning (`option_table.NOT_NEEDED`).
Specification: spec/07-spark-source.md, SPK-64 to SPK-66, and the table of section 7.9.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal, cast
from urllib.parse import quote

from ...deaggregation.policies import POLICIES, Policy
from ...producer.config import ConfigError, ProducerConfig
from .consumer import Consumer, consumer_option
from .option_texts import OptionTexts
from .positions import OptionError, Position, parse_position


@dataclass(frozen=True, slots=True, repr=False)
class Secrets:
    """Texts that must not be printed. The URL of a proxy may have a password."""

    secret_access_key: str | None = None
    session_token: str | None = None
    proxy_url: str | None = None

    # SPK-66: "A secret among the options MUST NOT show in a text form of them."
    def __repr__(self) -> str:
        return "Secrets(...)"


@dataclass(frozen=True, slots=True)
class Connection:
    """Region, endpoint and credentials of a stream. Equal ones share a client within a process."""

    region: str | None
    endpoint_url: str | None
    profile: str | None
    role_arn: str | None
    role_session_name: str
    role_external_id: str | None
    sts_endpoint_url: str | None
    access_key_id: str | None
    secrets: Secrets

    def client(self) -> Any:
        """A Kinesis client; the same one for the same settings in one process."""
        return _client(os.getpid(), self)


@lru_cache(maxsize=8)
def _client(_process: int, connection: Connection) -> Any:
    from ...aws.client import kinesis_client

    settings = asdict(connection)
    return kinesis_client(**settings.pop("secrets"), **settings)


@dataclass(frozen=True, slots=True)
class Options:
    """All options, checked. ``repr`` hides secrets. It is pickled for every task.

    Times are seconds, but ``max_span`` and ``max_piece``, which are milliseconds of arrival time.
    """

    stream_name: str
    stream_arn: str | None
    connection: Connection
    starting_position: Position
    ending_position: Position
    policy: Policy | Literal["none"]
    placement: bool
    tags: bool
    decompress: bool | int
    fail_on_data_loss: bool
    max_records: int | None
    max_span: int | None
    max_piece: int | None
    shards_per_task: int | None
    max_partitions: int | None
    idle_time: float
    describe_interval: float
    calls_per_second: float
    bytes_per_second: float
    retry_timeout: float
    max_batch_bytes: int
    producer: ProducerConfig
    consumer: Consumer | None

    def client(self) -> Any:
        """A Kinesis client; the same one for the same settings in one process."""
        return self.connection.client()

    @property
    def called(self) -> str:
        """The stream's ARN if given, else its name."""
        return self.stream_arn or self.stream_name

    @property
    def stream(self) -> dict[str, Any]:
        """The keyword argument that names the stream for `kpl_codec.aws`."""
        return {"stream_arn": self.stream_arn} if self.stream_arn else {"stream_name": self.stream_name}


def parse_options(options: Mapping[str, str]) -> Options:
    """Check the options of a read or write: those of `option_table`. Raises OptionError.

    Durations may have a unit: 500ms, 10s, 2m.
    """
    # SPK-65: "Options MUST go by the names that the existing Kinesis connectors for Spark give them,
    # with or without their prefix and whatever their case."
    taken = OptionTexts(options)
    stream, arn, region = _stream(taken)
    policy = (taken.text("policy") or "strict").lower()
    if policy not in (*POLICIES, "none"):
        raise OptionError(option="policy", value=policy, expected="strict, kcl, report or none")
    calls_per_second = taken.number("fetchCallsPerSecondPerShard", 4.0, 0)
    interval = taken.seconds("getRecords.fetchIntervalMs", "fetchIntervalMs", default=0, unit="ms")
    interval = interval or taken.seconds("minFetchPeriod", default=0)
    bytes_per_second = taken.number("fetchBytesPerSecondPerShard", 2.0 * 1024 * 1024, 0)
    found = Options(
        stream_name=stream,
        stream_arn=arn,
        connection=_connection(taken, region),
        starting_position=parse_position(
            "startingPosition", taken.text("startingPosition", "initialPosition") or "TRIM_HORIZON"
        ),
        ending_position=parse_position("endingPosition", taken.text("endingPosition") or "LATEST"),
        policy=cast("Policy | Literal['none']", policy),
        placement=taken.flag("placement", False),
        tags=taken.flag("tags", False),
        decompress=taken.flag_or_size("decompress"),
        fail_on_data_loss=taken.flag("failOnDataLoss", True),
        max_records=taken.limit("maxFetchRecordsPerShard", None),
        max_span=taken.limit("maxSecondsPerShard", 600, 1000),
        max_piece=taken.limit("maxSecondsPerPartition", 300, 1000),
        shards_per_task=taken.limit("shardsPerTask", None),
        max_partitions=taken.limit("maxPartitions", None),
        idle_time=taken.seconds("idleTimeBetweenReadsInMs", default=0.25, unit="ms"),
        describe_interval=taken.seconds("describeShardInterval", "shardFetchInterval", default=10.0),
        calls_per_second=min(calls_per_second, 1 / interval) if interval else calls_per_second,
        bytes_per_second=taken.number("maxFetchRate", bytes_per_second / 2**20, 0) * 2**20,
        retry_timeout=taken.seconds("retryTimeoutSeconds", default=300.0),
        max_batch_bytes=int(taken.number("maxBatchBytes", 4 * 1024 * 1024, 1024, int)),
        producer=_producer(taken),
        consumer=consumer_option(taken, stream),
    )
    taken.done()
    if found.policy == "none" and (found.placement or found.tags or found.decompress):
        expected = "strict, kcl or report with placement, tags or decompress"
        raise OptionError(option="policy", value="none", expected=expected)
    return found


def _stream(taken: OptionTexts) -> tuple[str, str | None, str | None]:
    """Name, ARN and region of the stream, the latter two where an ARN was given."""
    text = taken.text("streamName", "stream", "streamARN")
    if not text:
        raise OptionError(option="streamName", value=text, expected="the name or ARN of a stream")
    if "," in text:
        expected = "one stream: read several with several queries, or with the union of several DataFrames"
        raise OptionError(option="streamName", value=text, expected=expected)
    if not text.startswith("arn:"):
        return text, None, None
    match = re.fullmatch(r"arn:aws[a-z-]*:kinesis:([a-z0-9-]+):\d+:stream/([a-zA-Z0-9_.-]+)", text)
    if match is None:
        raise OptionError(
            option="streamARN", value=text, expected="arn:aws:kinesis:REGION:ACCOUNT:stream/NAME"
        )
    return match[2], text, match[1]


def _connection(taken: OptionTexts, region_of_arn: str | None) -> Connection:
    endpoint = taken.text("endpointUrl", "endpoint")
    of_endpoint = re.search(r"\bkinesis(?:-fips)?\.([a-z]+-[a-z-]+-\d)\.", endpoint or "")
    region = taken.text("region", "regionName", "regionOverride", "kinesisRegion")
    return Connection(
        region=region or region_of_arn or (of_endpoint[1] if of_endpoint else None),
        endpoint_url=endpoint,
        profile=taken.text("profile"),
        role_arn=taken.text("roleArn", "stsRoleArn", "awsSTSRoleARN"),
        role_session_name=taken.text("roleSessionName", "stsSessionName", "awsSTSSessionName") or "kpl-codec",
        role_external_id=taken.text("roleExternalId"),
        sts_endpoint_url=taken.text("stsEndpointUrl", "stsEndpoint"),
        access_key_id=taken.text("awsAccessKeyId", "awsAccessKey"),
        secrets=Secrets(
            taken.text("awsSecretAccessKey", "awsSecretKey"),
            taken.text("awsSessionToken", "sessionToken"),
            _proxy_url(taken),
        ),
    )


def _proxy_url(taken: OptionTexts) -> str | None:
    address, port = taken.text("proxyAddress"), taken.text("proxyPort")
    user, password = taken.text("proxyUsername"), taken.text("proxyPassword")
    if address is None:
        if port or user or password:
            raise OptionError(option="proxyAddress", value=None, expected="the host of an HTTP proxy")
        return None
    scheme, _, host = address.rpartition("://")
    who = f"{quote(user, safe='')}:{quote(password or '', safe='')}@" if user else ""
    return f"{scheme or 'http'}://{who}{host}{f':{port}' if port else ''}"


def _producer(taken: OptionTexts) -> ProducerConfig:
    try:
        return ProducerConfig(
            aggregation_enabled=taken.flag("sink.aggregationEnabled", True),
            record_max_buffered_time=int(taken.number("sink.recordMaxBufferedTimeMs", 100, 0, int)),
            max_connections=int(taken.number("sink.maxConnections", 24, 1, int)),
            record_ttl=int(taken.number("sink.recordTtl", 300_000, 100, int)),
            ordering=cast(Any, taken.text("sink.ordering") or "none"),
            compression=cast(Any, taken.text("sink.compression") or "none"),
        )
    except ConfigError as error:
        fields = error.fields
        raise OptionError(
            option=f"sink.{fields['setting']}", value=fields["value"], expected=fields["expected"]
        ) from None
