"""The settings that the options of the data source `kpl-kinesis` make, and the client.

Specification: spec/07-spark-source.md, SPK-64 to SPK-66; spec/11-enhanced-fan-out.md, EFO-7 to EFO-10.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal

from ...deaggregation.policies import Policy
from ...producer.config import ConfigError, ProducerConfig
from ...shards.stream import Stream, StreamNameError, stream_of
from .option_table import OPTIONS, changes_nothing, option_values
from .positions import OptionError, Position, parse_position

_ARN: Final = re.compile(
    r"arn:aws[a-z-]*:kinesis:[a-z0-9-]*:\d*:stream/([a-zA-Z0-9_.-]+)/consumer/[^:/]+:\d+"
)


@dataclass(frozen=True, slots=True)
class Connection:
    """The arguments of `kinesis_client`. Equal ones share a client within a process."""

    region: str | None
    endpoint_url: str | None
    profile: str | None
    role_arn: str | None
    role_session_name: str
    role_external_id: str | None
    sts_endpoint_url: str | None
    access_key_id: str | None
    # SPK-66: "A secret among the options MUST NOT show in a text form of them."
    secret_access_key: str | None = field(repr=False)
    session_token: str | None = field(repr=False)

    def client(self) -> Any:
        return _client(os.getpid(), self)


@lru_cache(maxsize=8)
def _client(_process: int, connection: Connection) -> Any:
    from ...aws.client import kinesis_client

    return kinesis_client(**asdict(connection))


@dataclass(frozen=True, slots=True)
class Consumer:
    """As whom tasks subscribe. ``name``: or ARN; by its name it is registered if it is not there.
    ``deregister`` when the query ends."""

    name: str
    deregister: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """All options, checked. Times are seconds, but ``max_span``, which is milliseconds of arrival time."""

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
        return self.connection.client()

    @property
    def called(self) -> str:
        return self.stream_arn or self.stream_name


def parse_options(options: Mapping[str, str]) -> Options:
    """Check the options of a read or write: those of `option_table`. Raises OptionError."""
    values = option_values(options)
    stream = _stream(values["stream_name"])
    # MAP-22: "an ARN is asked for in its own region"
    if stream.region not in (None, values["region"] or stream.region):
        expected = f"{stream.region}, where the stream of this ARN is"
        raise OptionError(option="region", value=values["region"], expected=expected)
    of_endpoint = re.search(r"\bkinesis(?:-fips)?\.([a-z]+-[a-z-]+-\d)\.", values["endpoint_url"] or "")
    values["region"] = values["region"] or stream.region or (of_endpoint and of_endpoint[1])
    opening = ("placement", "tags", "max_decompressed_size", "unframe")
    if values["policy"] == "none" and any(map(values.get, opening)):
        expected = "strict, kcl or report with placement, tags, maxDecompressedSize or unframe"
        raise OptionError(option="policy", value="none", expected=expected)
    made: dict[str, Any] = {
        "stream_name": stream.name,
        "stream_arn": stream.arn,
        "connection": Connection(**_fields(Connection, values)),
        "starting_position": parse_position("startingPosition", values["starting_position"]),
        "ending_position": parse_position("endingPosition", values["ending_position"]),
        "producer": _producer(_fields(ProducerConfig, values)),
        "consumer": _consumer(values, stream.name),
    }
    return Options(**{**_fields(Options, values), **made})


def _fields(made: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in made.__dataclass_fields__}


def _stream(text: str | None) -> Stream:
    expected = "the name or ARN of a stream"
    if text and "," in text:
        expected = "one stream: read several with several queries, or with the union of several DataFrames"
    elif text:
        try:
            return stream_of(text)
        except StreamNameError as error:
            expected = error.reason
    raise OptionError(option="stream", value=text, expected=expected)


def _producer(settings: dict[str, Any]) -> ProducerConfig:
    try:
        return ProducerConfig(**settings)
    except ConfigError as error:
        names = {option.field: option.names[0] for option in OPTIONS}
        value, expected = error.fields["value"], error.fields["expected"]
        raise OptionError(option=names[error.setting], value=value, expected=expected) from None


def _consumer(values: Mapping[str, Any], stream_name: str) -> Consumer | None:
    """The consumer that the options name, None to poll. Raises OptionError."""
    glue, subscribes, name = values["glue_consumer_arn"], values["subscribes"], values["consumer_name"]
    arn = values["consumer_arn"] or glue
    if not (glue if subscribes is None else subscribes):
        if name or arn:
            changes_nothing("consumerName" if name else "consumerArn", "consumerType is not efo")
        return None
    if (name is None) == (arn is None):
        raise OptionError(option="consumerName", value=name, expected="consumerName or consumerArn with efo")
    # EFO-8: "A consumer MUST be deregistered only where the options ask for it, and never one that was given
    # by its ARN."
    if name is None and values["deregister"]:
        expected = "false: a consumer that is given by consumerArn is not the query's"
        raise OptionError(option="requireConsumerDeregistration", value=True, expected=expected)
    if arn is not None:
        match = _ARN.fullmatch(arn)
        if match is None or match[1] != stream_name:
            expected = f"arn:aws:kinesis:REGION:ACCOUNT:stream/{stream_name}/consumer/NAME:TIME"
            raise OptionError(option="consumerArn", value=arn, expected=expected)
        return Consumer(arn)
    if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,128}", name):
        raise OptionError(option="consumerName", value=name, expected="1 to 128 of a-z A-Z 0-9 _ . -")
    return Consumer(name, values["deregister"])
