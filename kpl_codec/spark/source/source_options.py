"""The options of the data source `kpl-kinesis`. Each field of `SourceOptions` has its option's names, default
and parser.

The guide says what each option means; section 7.9 of spec/07-spark-source.md lists their names in others.
Specification: SPK-64 to SPK-66; spec/11-enhanced-fan-out.md, EFO-7 to EFO-10.
"""

# ruff: noqa: RUF009 - what `_option` gives are fields
from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from ...deaggregation.policy_rules import POLICIES, Policy, one_of_policies
from ...producer.config import ConfigError, ProducerConfig
from ...shards.stream_name import Stream, StreamNameError, stream_of
from .positions import InvalidPosition, OptionError, Position, Start, end_position, start_position

_log = logging.getLogger("kpl_codec.spark")

_ARN: Final = re.compile(
    r"(arn:aws[a-z-]*:kinesis:[a-z0-9-]+:\d+:stream/[a-zA-Z0-9_.-]{1,128})/consumer/[^:/]+:\d+"
)
#: What the connectors of awslabs and Qubole put before the names of their options.
_PREFIX: Final = re.compile(r"^(kinesis\.)?((executor|client)\.)?")
#: Options that Spark itself adds.
_OF_SPARK: Final = {"checkpointlocation", "queryname", "outputmode"}
_FLAGS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_SUBSCRIBES: Final = {"polling": False, "getrecords": False, "efo": True, "subscribetoshard": True}
#: The largest number of an option.
_MOST: Final = 2**31 - 1
#: How many characters of a value an error shows.
_MOST_SHOWN: Final = 100
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
#: A function that parses a text to an option's value. Raises InvalidPosition.
Parser = Callable[[str], Any]


class Option(NamedTuple):
    """``field``: of `SourceOptions`, `Connection` or `ProducerConfig`. ``default``: as a text."""

    field: str
    name: str
    default: str | None
    parse: Parser
    secret: bool = False


def _number(low: int, number: Callable[[str], float] = int) -> Parser:
    kind, form = (
        ("an integer", "[0-9]+") if number is int else ("a number", r"[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")
    )

    def parse(text: str) -> float:
        # (Python would read digits of any script, too, and 1_000.)
        if re.fullmatch(form, text.strip().lower()):
            with suppress(ValueError):  # thousands of digits
                amount = number(text)
                if low <= amount <= _MOST:
                    return amount
        raise InvalidPosition(f"{kind} from {low} to {_MOST}")

    return parse


def _text(text: str) -> str:
    # A key or name out of a file often ends with its line end, and no error of AWS says so.
    if text != text.strip():
        raise InvalidPosition("a text without spaces or line ends around it")
    return text


def _region(text: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9-]{1,63}", text):
        raise InvalidPosition("a region, as eu-west-1")
    return text


def _seconds(unit: str = "s") -> Parser:
    """Of a duration: a number of ``unit``, or a number with its unit."""

    def parse(text: str) -> float:
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|min|h|)", text.strip().lower())
        if match is None:
            raise InvalidPosition(f"a duration: a number of {unit}, or a text like 500ms, 10s, 2m")
        return min(float(match[1]), _MOST) * _UNITS[match[2] or unit]

    return parse


def _word(expected: str, words: Mapping[str, Any]) -> Parser:
    def parse(text: str) -> Any:
        if text.lower() not in words:
            raise InvalidPosition(expected)
        return words[text.lower()]

    return parse


_FLAG: Final = _word("true or false", _FLAGS)
_POLICY: Final = _word(one_of_policies("none"), {word: word for word in (*POLICIES, "none")})
_CONSUMER: Final = _word("polling (or GetRecords), efo (or SubscribeToShard)", _SUBSCRIBES)


def _stream(text: str) -> Stream:
    try:
        return stream_of(text)
    except StreamNameError as error:
        raise InvalidPosition(f"one stream: {error.reason}") from None


def _option(name: str, default: str | None = None, parse: Parser = _text, *, secret: bool = False) -> Any:
    return field(repr=not secret, metadata={"option": (name, default, parse, secret)})


@dataclass(frozen=True, slots=True)
class Connection:
    """The arguments of `kinesis_client`. Equal connections share a client within a process."""

    region: str | None = _option("region", None, _region)
    endpoint_url: str | None = _option("endpointUrl")
    role_arn: str | None = _option("roleArn")
    role_session_name: str = _option("roleSessionName", "kpl-codec")
    role_external_id: str | None = _option("roleExternalId")
    sts_endpoint_url: str | None = _option("stsEndpointUrl")
    profile: str | None = _option("profile")
    access_key_id: str | None = _option("awsAccessKeyId")
    # SPK-66: "A secret among the options MUST NOT show in a text form of them."
    secret_access_key: str | None = _option("awsSecretAccessKey", secret=True)
    session_token: str | None = _option("awsSessionToken", secret=True)


@lru_cache(maxsize=8)
def _client(_process: int, connection: Connection) -> Any:
    from ...aws.client import kinesis_client

    return kinesis_client(**asdict(connection))


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All options, checked. Times are seconds; a limit of 0 is none. ``consumer``: name or ARN of an enhanced
    fan-out consumer, None for GetRecords."""

    connection: Connection
    producer: ProducerConfig
    consumer: str | None
    stream: Stream = _option("stream", None, _stream)
    starting_position: Start = _option("startingPosition", "TRIM_HORIZON", start_position)
    ending_position: Position = _option("endingPosition", "LATEST", end_position)
    policy: Policy | Literal["none"] = _option("policy", "strict", _POLICY)
    placement: bool = _option("placement", "false", _FLAG)
    tags: bool = _option("tags", "false", _FLAG)
    max_decompressed_size: int | None = _option("maxDecompressedSize", None, _number(1))
    fail_on_data_loss: bool = _option("failOnDataLoss", "true", _FLAG)
    max_records: int = _option("maxFetchRecordsPerShard", "0", _number(0))
    max_span: float = _option("maxSecondsPerShard", "600", _number(0, float))
    max_partitions: int = _option("maxPartitions", "0", _number(0))
    idle_time: float = _option("idleTimeBetweenReadsInMs", "250", _seconds("ms"))
    describe_interval: float = _option("describeShardInterval", "10s", _seconds())
    calls_per_second: float = _option("fetchCallsPerSecondPerShard", "4", _number(0, float))
    bytes_per_second: float = _option("fetchBytesPerSecondPerShard", "2097152", _number(0, float))
    retry_timeout: float = _option("retryTimeoutSeconds", "300", _seconds())
    max_batch_bytes: int = _option("maxBatchBytes", "4194304", _number(1024))

    def client(self) -> Any:
        return _client(os.getpid(), self.connection)

    @property
    def name_or_arn(self) -> str:
        """The stream's ARN if the options have it, else its name."""
        return self.stream.arn or self.stream.name


OPTIONS: Final = (
    *(
        Option(f.name, *f.metadata["option"])
        for m in (Connection, SourceOptions)
        for f in fields(m)
        if f.metadata
    ),
    Option("subscribes", "consumerType", None, _CONSUMER),
    Option("consumer_name", "consumerName", None, _text),
    Option("consumer_arn", "consumerArn", None, _text),
    Option("aggregation_enabled", "sink.aggregationEnabled", "true", _FLAG),
    Option("record_max_buffered_time_ms", "sink.recordMaxBufferedTimeMs", "100", _number(0)),
    Option("max_connections", "sink.maxConnections", "24", _number(1)),
    Option("record_ttl_ms", "sink.recordTtl", "300000", _number(100)),
    Option("ordering", "sink.ordering", "none", str.lower),
    Option("compression", "sink.compression", "none", str.lower),
)
#: Of each option its names in the connectors of awslabs, Databricks, Glue and Qubole, and in other sources.
_NAMES_OF_OTHERS: Final = {
    "stream": "streamName streamARN path paths subscribe subscribePattern assign topic",
    "region": "regionName regionOverride kinesisRegion",
    "endpointUrl": "endpoint kafka.bootstrap.servers",
    "roleArn": "stsRoleArn awsSTSRoleARN",
    "roleSessionName": "stsSessionName awsSTSSessionName",
    "stsEndpointUrl": "stsEndpoint awsSTSEndpoint",
    "awsAccessKeyId": "awsAccessKey",
    "awsSecretAccessKey": "awsSecretKey",
    "awsSessionToken": "sessionToken",
    "startingPosition": "initialPosition initialPositionInStream startingTimestamp startingOffsets "
    "startingOffsetsByTimestamp",
    "endingPosition": "endingOffsets endingTimestamp endingOffsetsByTimestamp",
    "consumerType": "consumerMode",
    "consumerName": "consumerNamePrefix",
    "consumerArn": "registeredConsumerId registeredConsumerIdType fanoutConsumerARN",
    "describeShardInterval": "shardFetchInterval",
    "maxPartitions": "shardsPerTask minPartitions",
    "maxFetchRecordsPerShard": "maxOffsetsPerTrigger maxRecordsPerTrigger maxRowsPerTrigger "
    "maxBytesPerTrigger maxFilesPerTrigger",
    "maxSecondsPerShard": "maxFetchTimePerShardSec maxFetchTimeInMs maxFetchDuration",
    "fetchCallsPerSecondPerShard": "getRecords.fetchIntervalMs minFetchPeriod addIdleTimeBetweenReads",
    "fetchBytesPerSecondPerShard": "maxFetchRate",
    "retryTimeoutSeconds": "numRetries retryIntervalMs maxRetryIntervalMs clientNumRetries "
    "clientRetryIntervalsMs clientMaxRetryIntervalMs subscribeToShard.timeoutSec subscribeToShard.maxRetries",
    "tags": "includeHeaders",
    "sink.aggregationEnabled": "aggregationEnabled aggregationMaxSize aggregationMaxCount",
    "sink.recordMaxBufferedTimeMs": "recordMaxBufferedTime",
    "sink.maxConnections": "maxConnections",
}
#: Options of other connectors, and what to use instead: an option of ours, or what is no option here.
INSTEAD: Final = {
    **{name: f"it is {ours} here" for ours, names in _NAMES_OF_OTHERS.items() for name in names.split()},
    **dict.fromkeys(
        ("proxyAddress", "proxyPort", "proxyUsername", "proxyPassword"),
        "set HTTPS_PROXY in the environment of driver and workers: boto3 uses it",
    ),
    **dict.fromkeys(
        ("serviceCredential", "credentialProviderClass", "credentialProviderParam"),
        "boto3 cannot use it: give a role (roleArn) or a profile (profile)",
    ),
    # EFO-8: "A query MUST NOT deregister its consumer, and MUST refuse to: Spark notifies no source that its
    # query has ended, batch or streaming."
    "requireConsumerDeregistration": "Spark tells no source that its query has ended; afterwards run aws "
    "kinesis deregister-stream-consumer --stream-arn ARN --consumer-name NAME",
    "partitionKey": "the column partitionKey has the key of each row",
    **dict.fromkeys(("classification", "delimiter", "inferSchema"), "parse the column data in Spark"),
}


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Check the options of a read or write. Raises OptionError."""
    # SPK-118: "A table of Spark's catalog MUST be refused where it is made or used, before a row is put, with
    # what to use instead."
    if any(name.lower() == "provider" or name.lower().startswith("option.") for name in options):
        raise OptionError(code="catalog-table", option="provider", value=None, expected="a temporary view")
    values = _values(options)
    stream = values["stream"]
    if stream is None:
        expected = "the name or ARN of a stream"
        if not options:  # a query of a table that Spark has made
            expected += (
                "; a table of Spark's catalog hands on none of its options: use a temporary view, or give"
                " them with each use, as FROM name WITH (stream = 'orders')"
            )
        raise OptionError(option="stream", value=None, expected=expected)
    for option, position in (
        ("startingPosition", values["starting_position"]),
        ("endingPosition", values["ending_position"]),
    ):
        named = getattr(position, "stream_name", None)
        if named is not None and stream.is_another(_stream_of(option, named)):
            raise OptionError(option=option, value=named, expected=f"places on the stream {stream.name}")
    # MAP-22: "an ARN is asked for in its own region"
    if stream.region not in (None, values["region"] or stream.region):
        expected = f"{stream.region}, where the stream of this ARN is"
        raise OptionError(option="region", value=values["region"], expected=expected)
    of_endpoint = re.search(r"\bkinesis(?:-fips)?\.([a-z]+-[a-z-]+-\d)\.", values["endpoint_url"] or "")
    values["region"] = values["region"] or stream.region or (of_endpoint and of_endpoint[1])
    opening = ("placement", "tags", "max_decompressed_size")
    if values["policy"] == "none" and any(map(values.get, opening)):
        expected = f"{one_of_policies()} with placement, tags or maxDecompressedSize"
        raise OptionError(option="policy", value="none", expected=expected)
    connection = Connection(**_fields(Connection, values))
    producer = _producer(_fields(ProducerConfig, values))
    return SourceOptions(connection, producer, _consumer(values, stream), **_fields(SourceOptions, values))


def _stream_of(option: str, name: str) -> Stream:
    try:
        return stream_of(name)
    except StreamNameError as error:
        raise OptionError(option=option, value=name, expected=f"a stream: {error.reason}") from None


def _fields(cls: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in cls.__dataclass_fields__}


def _values(options: Mapping[str, str]) -> dict[str, Any]:
    """The value of each option, by its field. Raises OptionError."""
    spellings = {option.name.lower(): option for option in OPTIONS}
    instead = {name.lower(): name for name in INSTEAD}
    values: dict[str, Any] = {key: default and parse(default) for key, _, default, parse, _ in OPTIONS}
    names: dict[str, str] = {}
    for name, value in options.items():
        short = _PREFIX.sub("", name.lower())
        if short in spellings:
            option = spellings[short]
            if name == name.lower():  # as Spark gives all names
                name = name.removesuffix(short) + option.name
            if option.field in names:
                expected = f"only one of {names[option.field]}, {name}"
                raise OptionError(option=name, value="...", expected=expected)
            names[option.field] = name
            # SPK-128: "A position that is given as None or an empty text MUST be refused."
            if value in (None, "") and option.field in ("starting_position", "ending_position"):
                expected = f"a position; without this option {option.default}"
                raise OptionError(option=name, value=value, expected=expected)
            text = "" if value is None else str(value)
            try:
                if text:  # an empty text is no value
                    values[option.field] = option.parse(text)
            except InvalidPosition as error:
                expected, part = (*error.args, text)[:2]
                excerpt = part if len(part) <= _MOST_SHOWN else part[:_MOST_SHOWN] + "..."
                # SPK-66: "A secret among the options MUST NOT show in a text form of them."
                excerpt = "..." if option.secret else excerpt
                raise OptionError(option=name, value=excerpt, expected=expected) from None
        elif short in instead:
            # SPK-65: "An option of another connector MUST be refused as that connector spells it, with ours
            # that stands for it, or what to use instead."
            name = instead[short]
            raise OptionError(code="unknown-option", option=name, value="...", expected=INSTEAD[name])
        elif name.lower() not in _OF_SPARK:
            # SPK-64: "An option that is not known, or has a value it cannot have, MUST be refused before
            # anything is read, with its name and what was expected."
            known = {**instead, **{short: option.name for short, option in spellings.items()}}
            close = [known[like] for like in difflib.get_close_matches(short.replace("_", ""), known, 2)]
            close = [like for like in close if like not in INSTEAD] or close
            hint = "spec/guides/spark.md lists those there are"
            if close:
                hint = f"did you mean {' or '.join(close)}?"
            # A name like one of another connector gets that one's reason, too.
            hint = " ".join([hint, *(f"{like}: {INSTEAD[like]}" for like in close if like in INSTEAD)])
            raise OptionError(code="unknown-option", option=name, value="...", expected=hint)
    return values


def _producer(settings: dict[str, Any]) -> ProducerConfig:
    try:
        return ProducerConfig(**settings)
    except ConfigError as error:
        names = {option.field: option.name for option in OPTIONS}
        value, expected = error.fields["value"], error.fields["expected"]
        raise OptionError(option=names[error.setting], value=value, expected=expected) from None


def _consumer(values: Mapping[str, Any], stream: Stream) -> str | None:
    """The consumer that the options name, None for GetRecords. Raises OptionError."""
    name, arn = values["consumer_name"], values["consumer_arn"]
    if not values["subscribes"]:
        if name or arn:
            option = "consumerName" if name else "consumerArn"
            _log.warning("option %s changes nothing: consumerType is not efo", option)
        return None
    if (name is None) == (arn is None):
        raise OptionError(option="consumerName", value=name, expected="consumerName or consumerArn with efo")
    if arn is not None:
        match = _ARN.fullmatch(arn)
        of = None if match is None else stream_of(match[1])
        if of is None or stream.is_another(of) or of.region != (values["region"] or of.region):
            region = values["region"] or "REGION"
            whose = stream.arn or f"arn:aws:kinesis:{region}:ACCOUNT:stream/{stream.name}"
            raise OptionError(option="consumerArn", value=arn, expected=f"{whose}/consumer/NAME:TIME")
        return str(arn)
    if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,128}", name):
        raise OptionError(option="consumerName", value=name, expected="1 to 128 of a-z A-Z 0-9 _ . -")
    return str(name)
