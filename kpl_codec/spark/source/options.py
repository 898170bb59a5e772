"""The options of the data source `kpl-kinesis`: names, defaults, checks, and the client they make.

The names are those of other Kinesis connectors for Spark, in any case, with or without the prefix
``kinesis.``. An unknown option is refused, so that a typo is noticed. Options of other connectors that are
not needed here give a warning (`NOT_NEEDED`).
Specification: spec/07-spark-source.md, SPK-64 to SPK-66, and the table of section 7.9.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Final, Literal, cast

from ...deaggregation.policies import POLICIES, Policy
from ...producer.config import ConfigError, ProducerConfig
from .positions import OptionError, Position, parse_position

_log = logging.getLogger("kpl_codec.spark")

#: Options that Spark adds.
_SPARKS_OWN = {"path", "checkpointlocation", "queryname", "outputmode"}
_TRUE, _FALSE = {"true", "1", "yes"}, {"false", "0", "no"}
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}

_FIXED_ENDS = "the end of a batch is fixed before it is read; maxSecondsPerShard limits it"
_NO_STORE = "Spark's checkpoint is all that is kept"
_RETRIES = "retryTimeoutSeconds says how long a call is tried again"
_ONLY_EFO = "there is no enhanced fan-out"
_FROM_OFFSET = "the offset says how many records a task asks for"
#: Options of the other connectors that change nothing here, and why. Accepted with a warning.
NOT_NEEDED: Final[Mapping[str, str]] = {
    "avoidEmptyBatches": "a batch is only made where there are records",
    "minBatchesToRetain": _NO_STORE,
    "metadataCommitterType": _NO_STORE,
    "metadataPath": _NO_STORE,
    "metadataNumRetries": _NO_STORE,
    "metadataRetryIntervalsMs": _NO_STORE,
    "metadataMaxRetryIntervalMs": _NO_STORE,
    "dynamodb.tableName": _NO_STORE,
    "checkNewRecordThreads": "the driver uses 32 threads",
    "clientNumRetries": _RETRIES,
    "clientRetryIntervalsMs": _RETRIES,
    "clientMaxRetryIntervalMs": _RETRIES,
    "maxFetchTimePerShardSec": _FIXED_ENDS,
    "maxFetchTimeInMs": _FIXED_ENDS,
    "maxFetchDuration": _FIXED_ENDS,
    "fetchBufferSize": "nothing is read before its batch begins",
    "getRecords.numberOfRecordsPerFetch": _FROM_OFFSET,
    "maxRecordsPerFetch": _FROM_OFFSET,
    "coalesceThresholdBlockSize": "records are not kept in blocks",
    "coalesce": "records are not kept in blocks",
    "coalesceBinSize": "records are not kept in blocks",
    "consumerName": _ONLY_EFO,
    "consumerNamePrefix": _ONLY_EFO,
    "consumerRefreshInterval": _ONLY_EFO,
    "registeredConsumerId": _ONLY_EFO,
    "registeredConsumerIdType": _ONLY_EFO,
    "requireConsumerDeregistration": _ONLY_EFO,
    "subscribeToShard.timeoutSec": _ONLY_EFO,
    "subscribeToShard.maxRetries": _ONLY_EFO,
    "sink.flushWaitTimeMs": "a task waits until each of its rows is in the stream",
}


@dataclass(frozen=True, slots=True, repr=False)
class Secrets:
    """A text that must not be printed."""

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
    fail_on_data_loss: bool
    max_records: int | None
    max_span: int | None
    max_piece: int | None
    shards_per_task: int | None
    idle_time: float
    describe_interval: float
    calls_per_second: float
    bytes_per_second: float
    retry_timeout: float
    max_batch_bytes: int
    producer: ProducerConfig

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


class _Taken:
    """Takes options one by one, by any of their names."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._known: list[str] = []
        self._left = {
            name.lower().removeprefix("kinesis."): (name, value)
            for name, value in options.items()
            if name.lower() not in _SPARKS_OWN
        }

    def text(self, *names: str) -> str | None:
        self._known += names
        found = [self._left.pop(name.lower()) for name in names if name.lower() in self._left]
        if len(found) > 1:
            raise OptionError(option=found[1][0], value="...", expected=f"only one of {', '.join(names)}")
        return found[0][1] if found else None

    def number(self, name: str, default: float, low: float, kind: Callable[[str], float] = float) -> float:
        text = self.text(name)
        if text is None:
            return default
        try:
            value = kind(text)
        except ValueError:
            value = low - 1
        if not low <= value < float("inf"):
            what = "an integer" if kind is int else "a number"
            raise OptionError(option=name, value=text, expected=f"{what} of at least {low:g}")
        return value

    def limit(self, name: str, default: int | None, factor: int = 1) -> int | None:
        """A positive number; 0 is no limit."""
        value = int(self.number(name, default or 0, 0, int if factor == 1 else float) * factor)
        return value or None

    def seconds(self, *names: str, default: float, unit: str = "s") -> float:
        """A duration: a number of ``unit``, or with a unit of its own ("500ms", "2m")."""
        text = self.text(*names)
        if text is None:
            return default
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
        if match is None or (match[2] or unit) not in _UNITS:
            expected = f"a duration: a number of {unit}, or a text like 500ms, 10s, 2m"
            raise OptionError(option=names[0], value=text, expected=expected)
        return float(match[1]) * _UNITS[match[2] or unit]

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in _TRUE | _FALSE:
            raise OptionError(option=name, value=text, expected="true or false")
        return text.lower() in _TRUE

    def done(self) -> None:
        for name, reason in NOT_NEEDED.items():
            if self._left.pop(name.lower(), None) is not None:
                _log.warning("option %s changes nothing: %s", name, reason)
        # SPK-64: "An option that is not known, or has a value it cannot have, MUST be refused before
        # anything is read, with its name and what was expected."
        if self._left:
            short, (name, value) = next(iter(self._left.items()))
            known = {name.lower(): name for name in self._known}
            like = " or ".join(known[found] for found in difflib.get_close_matches(short, known, 2))
            hint = f" ({like}, perhaps)" if like else ""
            raise OptionError(
                option=name,
                value="..." if "secret" in short or "token" in short else value,
                expected=f"an option of kpl-kinesis{hint}: {', '.join(sorted(self._known, key=str.lower))}",
            )


def parse_options(options: Mapping[str, str]) -> Options:
    """Check the options of a read or write. Raises OptionError. Durations may have a unit: 500ms, 10s, 2m.

    ============================== ==================== ====================================================
    option (other names)           default              meaning
    ============================== ==================== ====================================================
    streamName (stream, streamARN) required             the stream: a name, or an ARN
    region, endpointUrl            boto3's              where it is
    roleArn (stsRoleArn)           none                 assume this role; roleSessionName, roleExternalId,
                                                        stsEndpointUrl
    profile                        boto3's              a profile of the AWS configuration
    awsAccessKeyId ...             boto3's              awsSecretAccessKey (awsSecretKey), awsSessionToken
    startingPosition (init...)     TRIM_HORIZON         LATEST, AT_TIMESTAMP <time>, a time, or JSON
    endingPosition                 LATEST               batch reads only; the same forms
    policy                         strict               strict, kcl, report, or none: do not deaggregate
    placement                      false                judge every user record; adds columns
    tags                           false                the user record's tags; adds a column
    failOnDataLoss                 true                 fail when records were gone before they were read
    maxFetchRecordsPerShard        0 (no limit)         Kinesis records per shard and batch, exactly
    maxSecondsPerShard             600                  seconds of arrival time per shard and batch; 0: all
    maxSecondsPerPartition         300                  longer batches of a shard are cut; 0: never
    shardsPerTask                  automatic            shards that one task reads, at the same time
    idleTimeBetweenReadsInMs       250                  between two looks for new records
    describeShardInterval          10s                  between two listings; one more when a shard ends
    fetchCallsPerSecondPerShard    4                    of the 5 that a shard allows, planning included
    fetchBytesPerSecondPerShard    2097152              of the 2 MiB that a shard allows
    retryTimeoutSeconds            300                  how long throttling and errors are tried again
    maxBatchBytes                  4194304              bytes of an Arrow batch
    sink.aggregationEnabled        true                 writes: many user records in a Kinesis record
    sink.recordMaxBufferedTimeMs   100                  writes: how long a user record may wait for others
    sink.maxConnections            24                   writes: calls at a time, per task
    sink.recordTtl                 300000               writes: ms until an undelivered row fails its task
    sink.ordering                  none                 writes: partition-key keeps each key in order
    ============================== ==================== ====================================================
    """
    # SPK-65: "Options MUST go by the names that the existing Kinesis connectors for Spark give them,
    # with or without their prefix and whatever their case."
    taken = _Taken(options)
    stream, arn, region = _stream(taken)
    policy = (taken.text("policy") or "strict").lower()
    if policy not in (*POLICIES, "none"):
        raise OptionError(option="policy", value=policy, expected="strict, kcl, report or none")
    consumer = taken.text("consumerType", "consumerMode") or "GetRecords"
    if consumer.lower() not in ("getrecords", "polling"):
        raise OptionError(
            option="consumerType", value=consumer, expected="GetRecords or polling: " + _ONLY_EFO
        )
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
        fail_on_data_loss=taken.flag("failOnDataLoss", True),
        max_records=taken.limit("maxFetchRecordsPerShard", None),
        max_span=taken.limit("maxSecondsPerShard", 600, 1000),
        max_piece=taken.limit("maxSecondsPerPartition", 300, 1000),
        shards_per_task=taken.limit("shardsPerTask", None),
        idle_time=taken.seconds("idleTimeBetweenReadsInMs", default=0.25, unit="ms"),
        describe_interval=taken.seconds("describeShardInterval", "shardFetchInterval", default=10.0),
        calls_per_second=min(calls_per_second, 1 / interval) if interval else calls_per_second,
        bytes_per_second=taken.number("maxFetchRate", bytes_per_second / 2**20, 0) * 2**20,
        retry_timeout=taken.seconds("retryTimeoutSeconds", default=300.0),
        max_batch_bytes=int(taken.number("maxBatchBytes", 4 * 1024 * 1024, 1024, int)),
        producer=_producer(taken),
    )
    taken.done()
    if found.policy == "none" and (found.placement or found.tags):
        raise OptionError(
            option="policy", value="none", expected="strict, kcl or report with placement or tags"
        )
    return found


def _stream(taken: _Taken) -> tuple[str, str | None, str | None]:
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


def _connection(taken: _Taken, region_of_arn: str | None) -> Connection:
    endpoint = taken.text("endpointUrl")
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
            taken.text("awsSecretAccessKey", "awsSecretKey"), taken.text("awsSessionToken", "sessionToken")
        ),
    )


def _producer(taken: _Taken) -> ProducerConfig:
    try:
        return ProducerConfig(
            aggregation_enabled=taken.flag("sink.aggregationEnabled", True),
            record_max_buffered_time=int(taken.number("sink.recordMaxBufferedTimeMs", 100, 0, int)),
            max_connections=int(taken.number("sink.maxConnections", 24, 1, int)),
            record_ttl=int(taken.number("sink.recordTtl", 300_000, 100, int)),
            ordering=cast(Any, taken.text("sink.ordering") or "none"),
        )
    except ConfigError as error:
        fields = error.fields
        raise OptionError(
            option=f"sink.{fields['setting']}", value=fields["value"], expected=fields["expected"]
        ) from None
