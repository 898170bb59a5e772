"""The producer's settings: names, defaults and ranges of the KPL, and a few new ones.

Values are the KPL's: sizes in bytes, times in milliseconds, which their names say. Everything else here takes
seconds.
A value out of range raises ConfigError with setting, value and range.
Specification: spec/05-producer.md, PRD-1 to PRD-4.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from ..errors import KplError
from ..format.compression import zstd_module
from ..limits import (
    DEFAULT_MAX_RECORD_SIZE,
    LARGEST_MAX_RECORD_SIZE,
    MAX_PUT_RECORDS,
    MAX_PUT_RECORDS_SIZE,
)

_LINE: Final = re.compile(r"([^=:\s]+)\s*[=:\s]\s*(.*)\Z")
_HUGE: Final = 2**63 - 1


class ConfigError(KplError, ValueError):
    """``setting`` has ``value``, which is not ``expected``."""

    code = "config"
    requirement = "PRD-1"
    setting: str
    value: object
    expected: str
    text = "{setting} = {value!r}: expected {expected}"
    todo = "Set the named option as the text says."


def _within(low: int, high: int, default: int | None) -> Any:
    """A setting, its lowest and highest value: the KPL's if it has the setting."""
    return field(default=default, metadata={"range": (low, high)})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """Settings of a producer. Raises ConfigError for a value out of range or of the wrong type.

    As in the KPL: ``aggregation_enabled``, ``aggregation_max_count`` (user records in an aggregate),
    ``aggregation_max_size`` (bytes of an aggregate), ``collection_max_count`` and
    ``collection_max_size`` (Kinesis records and bytes, keys included, in a PutRecords call),
    ``connect_timeout_ms``, ``request_timeout_ms``, ``max_connections`` (calls at a time),
    ``fail_if_throttled``, ``rate_limit`` (percent of a shard's 1000 records and 1 MiB a second),
    ``record_max_buffered_time_ms``, ``record_ttl_ms``.

    Not in the KPL:

    * ``aggregation_min_count``, ``aggregation_max_buffered_time_ms``: an aggregate with fewer user records
      waits longer than record_max_buffered_time_ms, so long at most, unless user records of its shard come
      too rarely for that.
    * ``max_record_size``: of a Kinesis record, data plus partition key. None: what the stream is set to take.
    * ``max_outstanding_records``, ``max_outstanding_bytes``: what may be outstanding at most. ``when_full``:
      "block", "fail" or "drop" further user records.
    * ``ordering``: "partition-key" sends the user records of a key strictly one after the other.
    * ``reshard_proof``: one explicit hash key for all user records of an aggregate, so that no split can
      separate them.
    * ``outer_key``: the partition key of an aggregate: "fixed" ("a", as the KPL) or "buckets" (one of
      ``outer_key_buckets``, always the same for a partition key; Lambda can then process so many batches of a
      shard in parallel and keep each key in order).
    * ``ignore_keys``, ``adaptive_partitioning``: KIP-794.
    * ``compression``: of each user record's data; only readers that are told to decompress undo it, KPL and
      KCL consumers get it compressed.
    """

    aggregation_enabled: bool = True
    aggregation_max_count: int = _within(1, _HUGE, 4294967295)
    aggregation_max_size: int = _within(64, LARGEST_MAX_RECORD_SIZE, 51200)
    collection_max_count: int = _within(1, MAX_PUT_RECORDS, 500)
    collection_max_size: int = _within(52224, MAX_PUT_RECORDS_SIZE, 5242880)
    connect_timeout_ms: int = _within(100, 300_000, 6000)
    request_timeout_ms: int = _within(100, 600_000, 6000)
    max_connections: int = _within(1, 256, 24)
    fail_if_throttled: bool = False
    rate_limit: int = _within(1, _HUGE, 150)
    record_max_buffered_time_ms: int = _within(0, _HUGE, 100)
    record_ttl_ms: int = _within(100, _HUGE, 30000)
    max_record_size: int | None = _within(DEFAULT_MAX_RECORD_SIZE, LARGEST_MAX_RECORD_SIZE, None)
    max_outstanding_records: int = _within(1, _HUGE, 100_000)
    max_outstanding_bytes: int = _within(DEFAULT_MAX_RECORD_SIZE, _HUGE, 128 * 1024 * 1024)
    when_full: Literal["block", "fail", "drop"] = "block"
    ordering: Literal["none", "partition-key"] = "none"
    reshard_proof: bool = False
    outer_key: Literal["fixed", "buckets"] = "fixed"
    outer_key_buckets: int = _within(1, 10_000, 10)
    ignore_keys: bool = False
    adaptive_partitioning: bool = True
    aggregation_min_count: int = _within(1, _HUGE, 1)
    aggregation_max_buffered_time_ms: int = _within(0, _HUGE, 0)
    compression: Literal["none", "gzip", "zlib", "zstd"] = "none"

    def __post_init__(self) -> None:
        for setting in fields(self):
            self._check(setting.name, getattr(self, setting.name))
        # PRD-4: "Strict order per partition key cannot be had together with settings that send a key's
        # records to another shard than its own; the combination MUST be refused."
        for other in ("reshard_proof", "ignore_keys"):
            if self.ordering == "partition-key" and getattr(self, other):
                raise ConfigError(setting=other, value=True, expected='False with ordering = "partition-key"')
        # PRD-3: "The memory bound MUST hold at least one record of the largest size."
        if self.max_outstanding_bytes < self.known_record_size:
            raise ConfigError(
                setting="max_outstanding_bytes",
                value=self.max_outstanding_bytes,
                expected=f"at least max_record_size ({self.known_record_size})",
            )
        if self.compression == "zstd" and zstd_module() is None:
            other = 'gzip or zlib; zstd needs Python 3.14 or later, or: pip install "kpl-codec[zstd]"'
            raise ConfigError(setting="compression", value="zstd", expected=other)

    @classmethod
    def from_kpl_properties(cls, properties: str | os.PathLike[str], **settings: Any) -> ProducerConfig:
        """The settings of a KPL configuration: the path of its properties file, or the file's text.

        Names as the KPL writes them, in any case (RecordTtl, recordTtl). One warning each names what says
        where the KPL writes (Region, KinesisEndpoint: `client_settings` of a producer takes that), the KPL's
        other settings without a counterpart here, and names that are none of the KPL's. ``settings``: more of
        them under their names here, which go before the configuration's. Raises ConfigError for a file that
        cannot be read and for a value out of range.
        """
        values = _properties(_text_of(properties))
        names = {_plain(name): name for name in values}
        # PRD-45: "A configuration of the KPL MUST give the same settings here; what is no setting here MUST
        # be ignored with a warning. Region and KinesisEndpoint, the KPL's other settings, and names that are
        # none of the KPL's MUST be told apart. A file that cannot be read MUST be refused."
        unknown = [name for plain, name in names.items() if plain not in _KPL_NAMES]
        where = _client_settings({plain: values[name] for plain, name in names.items()})
        mapped = ("region", "kinesisendpoint", "kinesisport" if "endpoint_url" in where else "", *_SETTINGS)
        ignored = [name for plain, name in names.items() if plain not in mapped and name not in unknown]
        for text, about in (
            ("where to write is no setting here: give the producer client_settings={}", where),
            ("settings of the KPL that have no counterpart here, ignored: {}", ", ".join(ignored)),
            ("no settings of the KPL, ignored: {}", ", ".join(map(_with_hint, unknown))),
        ):
            if about:
                warnings.warn(text.format(about), stacklevel=2)
        kpl_settings = {_SETTINGS[plain]: values[name] for plain, name in names.items() if plain in _SETTINGS}
        return cls(**{**kpl_settings, **settings})

    @property
    def known_record_size(self) -> int:
        """``max_record_size``, or what every stream takes."""
        return self.max_record_size or DEFAULT_MAX_RECORD_SIZE

    @property
    def ttl_seconds(self) -> float:
        """``record_ttl_ms`` in seconds."""
        return self.record_ttl_ms / 1000

    @property
    def buffering_seconds(self) -> float:
        """How long a user record may wait for others, in seconds."""
        # PRD-37: "A user record MUST NOT wait for company longer than half its time to live, whatever
        # record_max_buffered_time_ms is."
        return min(self.record_max_buffered_time_ms, self.record_ttl_ms / 2) / 1000

    @property
    def collecting_seconds(self) -> float:
        """How much of this an aggregate waits for those of other shards, in seconds; as in the KPL."""
        return min(0.05, 0.2 * self.buffering_seconds) if self.aggregation_enabled else 0.0

    # Times to live may be days, or never end. So each share of one has a limit in seconds.
    @property
    def map_wait(self) -> float:
        """How long a user record may wait for a shard map, in seconds."""
        return min(3.0, self.ttl_seconds / 10)

    @property
    def verdict_wait(self) -> float:
        """How long a stored aggregate may wait for a verdict, in seconds."""
        return min(5.0, self.ttl_seconds / 2)

    @property
    def retry_wait(self) -> float:
        """How long a user record may wait for others when it is sent again, in seconds."""
        return min(3.0, self.buffering_seconds / 2)

    @property
    def expiry_step(self) -> float:
        """Seconds between two looks for expired user records. So most Kinesis records are found with all of
        their user records expired, and few are written anew."""
        return min(3.0, self.ttl_seconds / 100)

    @property
    def aggregation_buffering_seconds(self) -> float:
        """How long an aggregate with few user records may wait, in seconds."""
        return min(self.aggregation_max_buffered_time_ms, self.record_ttl_ms / 2) / 1000

    def _check(self, name: str, value: object) -> None:
        # PRD-1: "A setting out of its range or of another type MUST be refused with an error that names
        # the setting, the value and what was expected."
        # PRD-2: "Settings the KPL has too MUST have its names (in snake case, with the unit `_ms` where it
        # is milliseconds), its defaults and its ranges, but no range beyond what the service takes."
        if name in RANGES:
            low, high = RANGES[name]
            fits = type(value) is int and low <= value <= high
            expected = f"an integer from {low} to {high}"
        elif name in _CHOICES:
            fits, expected = value in _CHOICES[name], f"one of {', '.join(_CHOICES[name])}"
        else:
            fits, expected = type(value) is bool, "True or False"
        if not fits and not (name == "max_record_size" and value is None):
            raise ConfigError(setting=name, value=value, expected=expected)


#: Lowest and highest value of the settings that are numbers, and the words of the others.
RANGES: Final[dict[str, tuple[int, int]]] = {
    one.name: one.metadata["range"] for one in fields(ProducerConfig) if one.metadata
}
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    name: get_args(hint)
    for name, hint in get_type_hints(ProducerConfig).items()
    if get_origin(hint) is Literal
}


def _plain(name: str) -> str:
    """The name of a setting in lower case, without the unit and underscores of ours."""
    return name.removesuffix("_ms").replace("_", "").lower()


#: The settings here by their plain names.
_SETTINGS: Final = {_plain(one.name): one.name for one in fields(ProducerConfig)}
#: Settings of the KPL that have no counterpart here.
_ONLY_OF_THE_KPL: Final = """
CaCertPath CloudwatchEndpoint CloudwatchPort CredentialsProvider CredentialsRefreshDelay EnableCoreDumps
GlueSchemaRegistryConfiguration GlueSchemaRegistryCredentialsProvider KinesisEndpoint KinesisPort LogLevel
MaxUserRecordSize MetricsCredentialsProvider MetricsGranularity MetricsLevel MetricsNamespace
MetricsUploadDelay MinConnections NativeExecutable ProxyHost ProxyPassword ProxyPort ProxyUserName Region
ReturnUserRecordOnFailure StsEndpoint StsPort TempDirectory ThreadingModel ThreadPoolSize
UserRecordTimeoutInMillis VerifyCertificate
"""
#: All names that a configuration may have, as the KPL writes them, by their plain names.
_KPL_NAMES: Final = {
    **{_plain(name): name for name in _ONLY_OF_THE_KPL.split()},
    **{_plain(name): name.removesuffix("_ms").title().replace("_", "") for name in _SETTINGS.values()},
}


def _text_of(properties: str | os.PathLike[str]) -> str:
    """The text of a properties file. A single line that sets nothing is the path of one."""
    if isinstance(properties, str):
        line = properties.strip()
        sets = "=" in line or ": " in line or _plain(line.partition(" ")[0]) in _KPL_NAMES
        if not line or "\n" in line or line[0] in "#!" or (sets and not os.path.isfile(line)):
            return properties
    try:
        return Path(properties).read_text("latin-1")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        expected = f"the path of a properties file that can be read ({reason}), or its text"
        raise ConfigError(setting="properties", value=os.fspath(properties), expected=expected) from None


def _client_settings(values: Mapping[str, object]) -> dict[str, object]:
    """boto3's arguments for what says where the KPL writes; ``values`` by plain names."""
    settings: dict[str, object] = {}
    if "region" in values:
        settings["region_name"] = values["region"]
    if "kinesisendpoint" in values:
        port = f":{values['kinesisport']}" if "kinesisport" in values else ""
        settings["endpoint_url"] = f"https://{values['kinesisendpoint']}{port}"
    return settings


def _with_hint(name: str) -> str:
    near = get_close_matches(_plain(name), _KPL_NAMES, 1, 0.75)
    return f"{name} (did you mean {_KPL_NAMES[near[0]]}?)" if near else name


def _properties(text: str) -> dict[str, object]:
    """The names and values of a Java properties file, as far as the KPL's settings need it: comments,
    ``=``, ``:`` or a blank between name and value, lines continued with a backslash."""
    settings: dict[str, object] = {}
    for line in map(str.strip, re.sub(r"\\\r?\n\s*", "", text).splitlines()):
        if line and line[0] not in "#!":
            match = _LINE.match(line)
            name, value = match.groups() if match else (line, "")
            value = value.strip()
            settings[name] = int(value) if value.isascii() and value.isdigit() else value
            if value.lower() in ("true", "false"):
                settings[name] = value.lower() == "true"
    return settings
