"""The options of `kpl-kinesis`: one table of their names, defaults and kinds, and how it is read.

The guide says what each means; section 7.9 of spec/07-spark-source.md has those of the other connectors.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ...deaggregation.policies import POLICIES
from .positions import OptionError

_log = logging.getLogger("kpl_codec.spark")

#: Options that Spark adds.
_SPARKS_OWN: Final = {"path", "checkpointlocation", "queryname", "outputmode"}
_FLAGS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_SUBSCRIBES: Final = {"polling": False, "getrecords": False, "efo": True, "subscribetoshard": True}
#: The largest number of an option: what Spark and a clock can take.
_MOST: Final = 2**31 - 1
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class Kind(NamedTuple):
    """``value`` of a text; ValueError or KeyError for one that is not ``expected``."""

    expected: str
    value: Callable[[str], Any]


class Option(NamedTuple):
    """``field``: of `Options`, `Connection` or `ProducerConfig`. ``names``: ours, and those of the other
    connectors that mean the same. ``default``: as a text."""

    field: str
    names: tuple[str, ...]
    default: str | None
    kind: Kind


def _number(low: int, number: Callable[[str], float] = int) -> Kind:
    def value(text: str) -> float:
        amount = number(text)
        if not low <= amount <= _MOST:
            raise ValueError
        return amount

    return Kind(f"{'an integer' if number is int else 'a number'} of at least {low}", value)


def _limit(factor: int = 1) -> Kind:
    number = _number(0, int if factor == 1 else float)
    return Kind(number.expected, lambda text: int(number.value(text) * factor) or None)


def _seconds(unit: str = "s") -> Kind:
    """A duration: a number of ``unit``, or with a unit of its own."""

    def value(text: str) -> float:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
        if match is None:
            raise ValueError
        return min(float(match[1]), _MOST) * _UNITS[match[2] or unit]

    return Kind(f"a duration: a number of {unit}, or a text like 500ms, 10s, 2m", value)


def _word(expected: str, words: Mapping[str, Any]) -> Kind:
    return Kind(expected, lambda text: words[text.lower()])


_TEXT: Final = Kind("a text", str)
_FLAG: Final = _word("true or false", _FLAGS)
_POLICY: Final = _word("strict, kcl, report or none", {word: word for word in (*POLICIES, "none")})
_CONSUMER: Final = _word("polling (or GetRecords), efo (or SubscribeToShard)", _SUBSCRIBES)

OPTIONS: Final = tuple(
    Option(field, tuple(names.split()), default, kind)
    for field, names, default, kind in (
        ("stream_name", "stream streamName streamARN", None, _TEXT),
        ("region", "region regionName regionOverride kinesisRegion", None, _TEXT),
        ("endpoint_url", "endpointUrl endpoint", None, _TEXT),
        ("role_arn", "roleArn stsRoleArn awsSTSRoleARN", None, _TEXT),
        ("role_session_name", "roleSessionName stsSessionName awsSTSSessionName", "kpl-codec", _TEXT),
        ("role_external_id", "roleExternalId", None, _TEXT),
        ("sts_endpoint_url", "stsEndpointUrl stsEndpoint", None, _TEXT),
        ("profile", "profile", None, _TEXT),
        ("access_key_id", "awsAccessKeyId awsAccessKey", None, _TEXT),
        ("secret_access_key", "awsSecretAccessKey awsSecretKey", None, _TEXT),
        ("session_token", "awsSessionToken sessionToken", None, _TEXT),
        ("starting_position", "startingPosition initialPosition", "TRIM_HORIZON", _TEXT),
        ("ending_position", "endingPosition", "LATEST", _TEXT),
        ("policy", "policy", "strict", _POLICY),
        ("placement", "placement", "false", _FLAG),
        ("tags", "tags", "false", _FLAG),
        ("max_decompressed_size", "maxDecompressedSize", None, _number(1)),
        ("unframe", "unframe", "false", _FLAG),
        ("fail_on_data_loss", "failOnDataLoss", "true", _FLAG),
        ("max_records", "maxFetchRecordsPerShard", "0", _limit()),
        ("max_span", "maxSecondsPerShard", "600", _limit(1000)),
        ("idle_time", "idleTimeBetweenReadsInMs", "250", _seconds("ms")),
        ("describe_interval", "describeShardInterval shardFetchInterval", "10s", _seconds()),
        ("calls_per_second", "fetchCallsPerSecondPerShard", "4", _number(0, float)),
        ("bytes_per_second", "fetchBytesPerSecondPerShard", "2097152", _number(0, float)),
        ("retry_timeout", "retryTimeoutSeconds", "300", _seconds()),
        ("max_batch_bytes", "maxBatchBytes", "4194304", _number(1024)),
        ("max_partitions", "maxPartitions", "0", _limit()),
        ("subscribes", "consumerType consumerMode", None, _CONSUMER),
        ("consumer_name", "consumerName", None, _TEXT),
        ("consumer_arn", "consumerArn registeredConsumerId", None, _TEXT),
        ("glue_consumer_arn", "fanoutConsumerARN", None, _TEXT),
        ("deregister", "requireConsumerDeregistration", "false", _FLAG),
        ("aggregation_enabled", "sink.aggregationEnabled", "true", _FLAG),
        ("record_max_buffered_time_ms", "sink.recordMaxBufferedTimeMs", "100", _number(0)),
        ("max_connections", "sink.maxConnections", "24", _number(1)),
        ("record_ttl_ms", "sink.recordTtl", "300000", _number(100)),
        ("ordering", "sink.ordering", "none", _TEXT),
        ("compression", "sink.compression", "none", _TEXT),
    )
)


_CHANGES_NOTHING: Final = """
addIdleTimeBetweenReads addRecordTimestamp avoidEmptyBatches checkNewRecordThreads clientMaxRetryIntervalMs
clientNumRetries clientRetryIntervalsMs coalesce coalesceBinSize coalesceThresholdBlockSize
consumerRefreshInterval dynamodb.tableName emitConsumerLagMetrics fetchBufferSize
getRecords.numberOfRecordsPerFetch internal.avoidEmptyBatches internal.dataQueueCapacity
internal.dataQueueWaitTimeoutSec internal.maintenanceTaskIntervalSec internal.maxDataQueueEmptyCount
maxFetchDuration maxFetchTimeInMs maxFetchTimePerShardSec maxRecordPerRead maxRecordsPerFetch
maxRetryIntervalMs maxShardsPerDescribe metadataCommitterType metadataMaxRetryIntervalMs metadataNumRetries
metadataPath metadataRetryIntervalsMs minBatchesToRetain numRetries retryIntervalMs sink.flushWaitTimeMs
subscribeToShard.maxRetries subscribeToShard.timeoutSec
"""
#: Options of the other connectors that change nothing here: section 7.9 says why. Accepted with a warning.
NOT_NEEDED: Final = _CHANGES_NOTHING.split()


def option_values(options: Mapping[str, str]) -> dict[str, Any]:
    """The value of every option, by its field. Raises OptionError."""
    # SPK-65: "Options MUST go by the names that the existing Kinesis connectors for Spark give them,
    # with or without their prefix and whatever their case."
    left: dict[str, tuple[str, str]] = {}
    for name, text in options.items():
        short = name.lower().removeprefix("kinesis.")
        if name.lower() in _SPARKS_OWN:
            continue
        if short in left:
            raise OptionError(option=name, value="...", expected=f"only one of {left[short][0]}, {name}")
        left[short] = name, text
    values: dict[str, Any] = {}
    for field, names, default, kind in OPTIONS:
        given = [left.pop(name.lower()) for name in names if name.lower() in left]
        if len(given) > 1:
            raise OptionError(option=given[1][0], value="...", expected=f"only one of {', '.join(names)}")
        value = given[0][1] if given and given[0][1] else default  # an empty text is none
        try:
            values[field] = None if value is None else kind.value(value)
        except (ValueError, KeyError):
            raise OptionError(option=given[0][0], value=value, expected=kind.expected) from None
    for name in NOT_NEEDED:
        if left.pop(name.lower(), None) is not None:
            changes_nothing(name, "spec/07-spark-source.md, 7.9, says what to use instead")
    # SPK-64: "An option that is not known, or has a value it cannot have, MUST be refused before
    # anything is read, with its name and what was expected."
    for short, (name, text) in left.items():
        known = {name.lower(): name for option in OPTIONS for name in option.names}
        like = " or ".join(known[close] for close in difflib.get_close_matches(short, known, 2))
        hint = f" ({like}, perhaps)" if like else ""
        secret = any(word in short for word in ("secret", "token", "password"))
        expected = f"an option of kpl-kinesis{hint}: {', '.join(sorted(known.values(), key=str.lower))}"
        raise OptionError(option=name, value="..." if secret else text, expected=expected)
    return values


def changes_nothing(name: str, reason: str) -> None:
    _log.warning("option %s changes nothing: %s", name, reason)
