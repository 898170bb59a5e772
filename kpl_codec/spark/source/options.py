"""The settings that the options of the data source `kpl-kinesis` make, and the client. `option_table` has the
names, defaults and kinds of the options.
Specification: spec/07-spark-source.md, SPK-64 to SPK-66, and the table of section 7.9.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal

from ...deaggregation.policies import Policy
from ...producer.config import ConfigError, ProducerConfig
from ...shards.stream import Stream, StreamNameError, stream_of
from .consumer import Consumer, consumer_option
from .option_table import option_values
from .positions import OptionError, Position, parse_position


@dataclass(frozen=True, slots=True, repr=False)
class Secrets:
    """Texts that must not be printed."""

    secret_access_key: str | None = None
    session_token: str | None = None

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

    Times are seconds, but ``max_span``, which is milliseconds of arrival time.
    """

    stream_name: str
    stream_arn: str | None
    connection: Connection
    starting_position: Position
    ending_position: Position
    policy: Policy | Literal["none"]
    placement: bool
    tags: bool
    max_decompressed_size: int | None
    unframe: bool
    fail_on_data_loss: bool
    max_records: int | None
    max_span: int | None
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


def parse_options(options: Mapping[str, str]) -> Options:
    """Check the options of a read or write: those of `option_table`. Raises OptionError.

    Durations may have a unit: 500ms, 10s, 2m.
    """
    values = option_values(options)
    stream = _stream(values["stream"])
    # MAP-22: "an ARN is asked for in its own region"
    if stream.region not in (None, values["region"] or stream.region):
        expected = f"{stream.region}, where the stream of this ARN is"
        raise OptionError(option="region", value=values["region"], expected=expected)
    opening = ("placement", "tags", "maxDecompressedSize", "unframe")
    if values["policy"] == "none" and any(map(values.get, opening)):
        expected = "strict, kcl or report with placement, tags, maxDecompressedSize or unframe"
        raise OptionError(option="policy", value="none", expected=expected)
    return Options(
        stream_name=stream.name,
        stream_arn=stream.arn,
        connection=_connection(values, stream.region),
        starting_position=parse_position("startingPosition", values["startingPosition"]),
        ending_position=parse_position("endingPosition", values["endingPosition"]),
        policy=values["policy"],
        placement=values["placement"],
        tags=values["tags"],
        max_decompressed_size=values["maxDecompressedSize"],
        unframe=values["unframe"],
        fail_on_data_loss=values["failOnDataLoss"],
        max_records=values["maxFetchRecordsPerShard"],
        max_span=values["maxSecondsPerShard"],
        max_partitions=values["maxPartitions"],
        idle_time=values["idleTimeBetweenReadsInMs"],
        describe_interval=values["describeShardInterval"],
        calls_per_second=values["fetchCallsPerSecondPerShard"],
        bytes_per_second=values["fetchBytesPerSecondPerShard"],
        retry_timeout=values["retryTimeoutSeconds"],
        max_batch_bytes=values["maxBatchBytes"],
        producer=_producer(values),
        consumer=consumer_option(values, stream.name),
    )


def _stream(text: str | None) -> Stream:
    if not text:
        raise OptionError(option="stream", value=text, expected="the name or ARN of a stream")
    if "," in text:
        expected = "one stream: read several with several queries, or with the union of several DataFrames"
        raise OptionError(option="stream", value=text, expected=expected)
    try:
        return stream_of(text)
    except StreamNameError as error:
        raise OptionError(option="stream", value=text, expected=error.reason) from None


def _connection(values: Mapping[str, Any], region_of_arn: str | None) -> Connection:
    endpoint = values["endpointUrl"]
    of_endpoint = re.search(r"\bkinesis(?:-fips)?\.([a-z]+-[a-z-]+-\d)\.", endpoint or "")
    return Connection(
        region=values["region"] or region_of_arn or (of_endpoint[1] if of_endpoint else None),
        endpoint_url=endpoint,
        profile=values["profile"],
        role_arn=values["roleArn"],
        role_session_name=values["roleSessionName"],
        role_external_id=values["roleExternalId"],
        sts_endpoint_url=values["stsEndpointUrl"],
        access_key_id=values["awsAccessKeyId"],
        secrets=Secrets(values["awsSecretAccessKey"], values["awsSessionToken"]),
    )


def _producer(values: Mapping[str, Any]) -> ProducerConfig:
    try:
        return ProducerConfig(
            aggregation_enabled=values["sink.aggregationEnabled"],
            record_max_buffered_time_ms=values["sink.recordMaxBufferedTimeMs"],
            max_connections=values["sink.maxConnections"],
            record_ttl_ms=values["sink.recordTtl"],
            ordering=values["sink.ordering"],
            compression=values["sink.compression"],
        )
    except ConfigError as error:
        fields = error.fields
        raise OptionError(
            option=f"sink.{fields['setting']}", value=fields["value"], expected=fields["expected"]
        ) from None
