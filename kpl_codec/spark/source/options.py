"""The options of the data source `kpl-kinesis`: names, defaults, checks, and the client they make.

Named as the Kinesis connectors for Spark name theirs; case does not matter and a prefix ``kinesis.`` may
stand before any of them. An option that is not known is refused: a typo must not become a default.
Specification: spec/07-spark-source.md, SPK-64 to SPK-66.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Literal, cast

from ...deaggregation.policies import POLICIES, Policy
from ...errors import KplError
from ...producer.config import ConfigError, ProducerConfig
from ...shards.place import LATEST, TRIM_HORIZON, Place, after_record, at_record, at_time


class OptionError(KplError, ValueError):
    """``option`` has ``value``, which is not ``expected``."""

    code = "option"
    requirement = "SPK-64"
    option: str
    value: object
    expected: str
    text = "option {option} = {value!r}: expected {expected}"


#: What Spark itself puts among the options.
_SPARKS_OWN = {"path", "checkpointlocation", "queryname", "outputmode"}
_TRUE, _FALSE = {"true", "1", "yes"}, {"false", "0", "no"}

#: Where to begin or end: every shard at one place, or some shards each at its own.
Position = Place | Mapping[str, Place]


@dataclass(frozen=True, slots=True)
class Options:
    """All options, checked. Secrets do not show in ``repr``. Picklable: it goes to every task."""

    stream_name: str
    region: str | None
    endpoint_url: str | None
    role_arn: str | None
    role_session_name: str
    role_external_id: str | None
    access_key_id: str | None
    secrets: Secrets
    starting_position: Position
    ending_position: Position
    policy: Policy | Literal["none"]
    placement: bool
    tags: bool
    fail_on_data_loss: bool
    max_records: int | None
    max_span: int | None
    max_piece: int | None
    idle_time: float
    describe_interval: float
    calls_per_second: float
    bytes_per_second: float
    retry_timeout: float
    max_batch_bytes: int
    producer: ProducerConfig

    def client(self) -> Any:
        """A Kinesis client; the same one for the same settings in one process, tasks being many."""
        return _client(
            os.getpid(),
            region=self.region,
            endpoint_url=self.endpoint_url,
            role_arn=self.role_arn,
            role_session_name=self.role_session_name,
            role_external_id=self.role_external_id,
            access_key_id=self.access_key_id,
            secret_access_key=self.secrets.secret_access_key,
            session_token=self.secrets.session_token,
        )


@lru_cache(maxsize=8)
def _client(_process: int, **settings: Any) -> Any:
    from ...aws.client import kinesis_client

    return kinesis_client(**settings)


@dataclass(frozen=True, slots=True, repr=False)
class Secrets:
    """What must not be printed."""

    secret_access_key: str | None = None
    session_token: str | None = None

    # SPK-66: "A secret among the options MUST NOT show in a text form of them."
    def __repr__(self) -> str:
        return "Secrets(...)"


class _Taken:
    """Options being taken one by one, by any of their names."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._left = {
            name.lower().removeprefix("kinesis."): (name, value)
            for name, value in options.items()
            if name.lower() not in _SPARKS_OWN
        }
        self._known: list[str] = []

    def text(self, *names: str) -> str | None:
        self._known += names[:1]
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

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in _TRUE | _FALSE:
            raise OptionError(option=name, value=text, expected="true or false")
        return text.lower() in _TRUE

    def done(self) -> None:
        # SPK-64: "An option that is not known, or has a value it cannot have, MUST be refused before
        # anything is read, with its name and what was expected."
        if self._left:
            name, value = next(iter(self._left.values()))
            like = get_close_matches(name, self._known, 1)
            hint = f" ({like[0]}, perhaps)" if like else ""
            expected = f"an option of kpl-kinesis{hint}: {', '.join(sorted(self._known, key=str.lower))}"
            raise OptionError(option=name, value=value, expected=expected)


def parse_options(options: Mapping[str, str]) -> Options:
    """Check the options of a read or write. Raises OptionError.

    ============================== ==================== ====================================================
    option (other names)           default              meaning
    ============================== ==================== ====================================================
    streamName (stream)            required             the stream
    region, endpointUrl            boto3's              where it is
    roleArn (stsRoleArn)           none                 assume this role; roleSessionName, roleExternalId
    awsAccessKeyId ...             boto3's              awsSecretAccessKey (awsSecretKey), awsSessionToken
    startingPosition (init...)     TRIM_HORIZON         LATEST, AT_TIMESTAMP <time>, a time, or JSON
    endingPosition                 LATEST               batch reads only; the same forms
    policy                         strict               strict, kcl, report, or none: leave frames unopened
    placement                      false                judge every user record; adds columns
    tags                           false                the user record's tags; adds a column
    failOnDataLoss                 true                 fail when records were gone before they were read
    maxFetchRecordsPerShard        0 (no limit)         Kinesis records per shard and batch, exactly
    maxSecondsPerShard             600                  seconds of arrival time per shard and batch; 0: all
    maxSecondsPerPartition         300                  longer batches of a shard are cut; 0: never
    idleTimeBetweenReadsInMs       1000                 between two looks for new records
    describeShardInterval          10                   seconds between listings; one more when a shard ends
    fetchCallsPerSecondPerShard    4                    of the 5 a shard allows; one is for planning
    fetchBytesPerSecondPerShard    2097152              of the 2 MiB a shard allows
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
    stream = taken.text("streamName", "stream")
    if not stream:
        raise OptionError(option="streamName", value=stream, expected="the name of a stream")
    policy = (taken.text("policy") or "strict").lower()
    if policy not in (*POLICIES, "none"):
        raise OptionError(option="policy", value=policy, expected="strict, kcl, report or none")
    found = Options(
        stream_name=stream,
        region=taken.text("region", "regionName"),
        endpoint_url=taken.text("endpointUrl"),
        role_arn=taken.text("roleArn", "stsRoleArn", "awsSTSRoleARN"),
        role_session_name=taken.text("roleSessionName", "stsSessionName", "awsSTSSessionName") or "kpl-codec",
        role_external_id=taken.text("roleExternalId"),
        access_key_id=taken.text("awsAccessKeyId", "awsAccessKey"),
        secrets=Secrets(taken.text("awsSecretAccessKey", "awsSecretKey"), taken.text("awsSessionToken")),
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
        idle_time=taken.number("idleTimeBetweenReadsInMs", 1000, 0) / 1000,
        describe_interval=taken.number("describeShardInterval", 10.0, 0),
        calls_per_second=taken.number("fetchCallsPerSecondPerShard", 4.0, 0),
        bytes_per_second=taken.number("fetchBytesPerSecondPerShard", 2.0 * 1024 * 1024, 0),
        retry_timeout=taken.number("retryTimeoutSeconds", 300.0, 0),
        max_batch_bytes=int(taken.number("maxBatchBytes", 4 * 1024 * 1024, 1024, int)),
        producer=_producer(taken),
    )
    taken.done()
    if found.policy == "none" and (found.placement or found.tags):
        raise OptionError(
            option="policy", value="none", expected="strict, kcl or report with placement or tags"
        )
    return found


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


def parse_position(option: str, text: str) -> Position:
    """TRIM_HORIZON, LATEST, a time (ISO 8601, or ms since 1970; AT_TIMESTAMP may stand before it), or JSON:
    {shard id: any of these, or a sequence number, or {"iteratorType": ..., "iteratorPosition": ...}}.

    A sequence number is included, as a start and as an end. Raises OptionError.
    """
    if not text.lstrip().startswith("{"):
        return _place(option, text)
    try:
        found = json.loads(text)
    except ValueError:
        raise OptionError(option=option, value=text, expected="JSON") from None
    return {
        shard_id: _shard_place(option, value)
        for shard_id, value in found.items()
        if shard_id != "metadata"  # the awslabs connector's own
    }


def _place(option: str, text: str) -> Place:
    word = text.strip()
    if word.upper() in ("TRIM_HORIZON", "EARLIEST"):
        return TRIM_HORIZON
    if word.upper() == "LATEST":
        return LATEST
    when = word[len("AT_TIMESTAMP") :].strip() if word.upper().startswith("AT_TIMESTAMP") else word
    if when.isascii() and when.isdigit() and len(when) <= 15:
        return at_time(int(when))
    try:
        moment = datetime.fromisoformat(when[:-1] + "+00:00" if when.endswith(("Z", "z")) else when)
    except ValueError:
        expected = "TRIM_HORIZON, LATEST, a time (2026-11-21T10:00:00Z, or ms since 1970) or JSON by shard"
        raise OptionError(option=option, value=text, expected=expected) from None
    if moment.tzinfo is None:
        # A time without a zone means something else on every machine.
        raise OptionError(option=option, value=text, expected="a time with its zone, as 2026-11-21T10:00:00Z")
    return at_time(round(moment.astimezone(timezone.utc).timestamp() * 1000))


def _shard_place(option: str, value: Any) -> Place:
    start = option == "startingPosition"
    if isinstance(value, Mapping):
        kind, place = str(value.get("iteratorType", "")), str(value.get("iteratorPosition", ""))
        if kind == "AFTER_SEQUENCE_NUMBER" and place:
            return after_record(place)
        if kind == "AT_SEQUENCE_NUMBER" and place:
            return at_record(place) if start else after_record(place)
        return _place(option, f"{kind} {place}".strip())
    text = str(value)
    if text.isascii() and text.isdigit() and len(text) > 15:
        return at_record(text) if start else after_record(text)
    return _place(option, text)
