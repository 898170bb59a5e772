"""The options of `kpl-kinesis`: one table of their names, defaults and kinds, and how it is read.

What each option means is said in the guide; section 7.9 has the options of the other connectors. A test
compares both with this table. Options that change nothing here are accepted with a warning; options that are
not known are refused.
Specification: spec/07-spark-source.md, SPK-64, SPK-65 and section 7.9.
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
_CONSUMERS: Final = {"polling": False, "getrecords": False, "efo": True, "subscribetoshard": True}
#: The largest number of an option: what Spark and a clock can take.
_MOST: Final = 2**31 - 1
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class Kind(NamedTuple):
    """How a text becomes a value: ``value`` raises ValueError or KeyError for a text that is not
    ``expected``."""

    expected: str
    value: Callable[[str], Any]


class Option(NamedTuple):
    """``names``: ours, and those of the other connectors that mean the same. ``default``: as a text."""

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
    """0 is no limit."""
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


def _policy(text: str) -> str:
    if text.lower() not in (*POLICIES, "none"):
        raise ValueError
    return text.lower()


_TEXT: Final = Kind("a text", str)
_FLAG: Final = Kind("true or false", lambda text: _FLAGS[text.lower()])


def _table(*rows: tuple[str, str | None, Kind]) -> tuple[Option, ...]:
    return tuple(Option(tuple(names.split()), default, kind) for names, default, kind in rows)


OPTIONS: Final = _table(
    ("stream streamName streamARN", None, _TEXT),
    ("region regionName regionOverride kinesisRegion", None, _TEXT),
    ("endpointUrl endpoint", None, _TEXT),
    ("roleArn stsRoleArn awsSTSRoleARN", None, _TEXT),
    ("roleSessionName stsSessionName awsSTSSessionName", "kpl-codec", _TEXT),
    ("roleExternalId", None, _TEXT),
    ("stsEndpointUrl stsEndpoint", None, _TEXT),
    ("profile", None, _TEXT),
    ("awsAccessKeyId awsAccessKey", None, _TEXT),
    ("awsSecretAccessKey awsSecretKey", None, _TEXT),
    ("awsSessionToken sessionToken", None, _TEXT),
    ("startingPosition initialPosition", "TRIM_HORIZON", _TEXT),
    ("endingPosition", "LATEST", _TEXT),
    ("policy", "strict", Kind("strict, kcl, report or none", _policy)),
    ("placement", "false", _FLAG),
    ("tags", "false", _FLAG),
    ("maxDecompressedSize", None, _number(1)),
    ("unframe", "false", _FLAG),
    ("failOnDataLoss", "true", _FLAG),
    ("maxFetchRecordsPerShard", "0", _limit()),
    ("maxSecondsPerShard", "600", _limit(1000)),
    ("idleTimeBetweenReadsInMs", "250", _seconds("ms")),
    ("describeShardInterval shardFetchInterval", "10s", _seconds()),
    ("fetchCallsPerSecondPerShard", "4", _number(0, float)),
    ("fetchBytesPerSecondPerShard", "2097152", _number(0, float)),
    ("retryTimeoutSeconds", "300", _seconds()),
    ("maxBatchBytes", "4194304", _number(1024)),
    ("maxPartitions", "0", _limit()),
    (
        "consumerType consumerMode",
        None,
        Kind("polling (or GetRecords), efo (or SubscribeToShard)", lambda text: _CONSUMERS[text.lower()]),
    ),
    ("consumerName", None, _TEXT),
    ("consumerArn registeredConsumerId", None, _TEXT),
    ("fanoutConsumerARN", None, _TEXT),
    ("requireConsumerDeregistration", "false", _FLAG),
    ("sink.aggregationEnabled", "true", _FLAG),
    ("sink.recordMaxBufferedTimeMs", "100", _number(0)),
    ("sink.maxConnections", "24", _number(1)),
    ("sink.recordTtl", "300000", _number(100)),
    ("sink.ordering", "none", _TEXT),
    ("sink.compression", "none", _TEXT),
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
    """The value of every option, by its first name. Raises OptionError."""
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
    for names, default, kind in OPTIONS:
        given = [left.pop(name.lower()) for name in names if name.lower() in left]
        if len(given) > 1:
            raise OptionError(option=given[1][0], value="...", expected=f"only one of {', '.join(names)}")
        value = given[0][1] if given and given[0][1] else default  # an empty text is none
        try:
            values[names[0]] = None if value is None else kind.value(value)
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
        names_known = ", ".join(sorted(known.values(), key=str.lower))
        raise OptionError(
            option=name,
            value="..." if secret else text,
            expected=f"an option of kpl-kinesis{hint}: {names_known}",
        )
    return values


def changes_nothing(name: str, reason: str) -> None:
    """Warn of an option that was given."""
    _log.warning("option %s changes nothing: %s", name, reason)
