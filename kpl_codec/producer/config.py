"""The settings of a producer (`ProducerConfig`), its other options (`ProducerOptions`), and its client.

Names, defaults and ranges are the KPL's: sizes in bytes, times in milliseconds. All other times are seconds.
Specification: spec/05-producer.md, PRD-1 to PRD-4 and PRD-71.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    TypedDict,
    get_args,
    get_origin,
    get_type_hints,
)

from ..base.arguments import check_arguments, check_keywords, check_needs
from ..base.lazy import install
from ..errors import KplError
from ..format.compression import zstd_module
from ..format.limits import (
    DEFAULT_MAX_RECORD_SIZE,
    LARGEST_MAX_RECORD_SIZE,
    MAX_PUT_RECORDS,
    MAX_PUT_RECORDS_SIZE,
)
from .results import DeliveryError

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger

#: ``observe(name, value, attributes)`` gets one measurement.
Observe = Callable[[str, float, Mapping[str, str]], object]
#: ``chance(n)`` gives a random number of 0..n-1.
Chance = Callable[[int], int]
_HUGE: Final = 2**63 - 1


class ConfigError(KplError, ValueError):
    """``setting`` has ``value``, which is not ``expected``."""

    code = "config"
    requirement = "PRD-1"
    setting: str
    value: object
    expected: str
    text = "{setting} = {value!r}: expected {expected}"
    todo = "Give the setting of ProducerConfig that the error names a value in the range that it gives."


def _within(low: int, high: int, default: int | None) -> Any:
    return field(default=default, metadata={"range": (low, high)})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """Settings of a producer. Raises ConfigError for a value out of range or of the wrong type, TypeError for
    an unknown name.

    As in the KPL: ``aggregation_enabled``, ``aggregation_max_count`` (user records of an aggregate),
    ``aggregation_max_size`` (bytes of an aggregate), ``collection_max_count`` and ``collection_max_size``
    (Kinesis records and bytes, keys included, of a PutRecords call), ``connect_timeout_ms``,
    ``request_timeout_ms``, ``max_connections`` (parallel calls), ``fail_if_throttled``, ``rate_limit``
    (percent of a shard's 1000 records and 1 MiB a second), ``record_max_buffered_time_ms``,
    ``record_ttl_ms``.

    Not in the KPL:

    * ``max_record_size``: data plus partition key of a Kinesis record. None: the stream's own limit.
    * ``max_outstanding_records``, ``max_outstanding_bytes``: the limits of what is outstanding.
      ``when_full``: then "block" has put wait, "fail" has it raise ProducerFull.
    * ``ordering``: "partition-key" sends the user records of a key strictly one after the other.
    * ``reshard_proof``: one explicit hash key for all user records of an aggregate, so that no split
      separates them.
    * ``outer_key``: the partition key of an aggregate: "fixed" ("a", as the KPL) or "buckets" (one of
      ``outer_key_buckets``, always the same for a partition key: Lambda then processes as many batches of a
      shard in parallel, with each key in order).
    * ``ignore_keys``: choose the shard of each user record without an explicit hash key, whatever its key.
      ``adaptive_partitioning``: choose shards with long queues less often (Kafka's KIP-794).
    * ``compression``: of each user record's data. KPL and KCL consumers get it compressed.
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
    when_full: Literal["block", "fail"] = "block"
    ordering: Literal["none", "partition-key"] = "none"
    reshard_proof: bool = False
    outer_key: Literal["fixed", "buckets"] = "fixed"
    outer_key_buckets: int = _within(1, 10_000, 10)
    ignore_keys: bool = False
    adaptive_partitioning: bool = True
    compression: Literal["none", "gzip", "zlib", "zstd"] = "none"

    def __new__(cls, **settings: Any) -> ProducerConfig:
        check_keywords(cls.__name__, settings, cls.__init__)  # whose error names one that is like it
        return object.__new__(cls)

    def __post_init__(self) -> None:
        for setting in fields(self):
            self._check(setting.name, getattr(self, setting.name))
        # PRD-4: "Strict order per partition key cannot be had together with settings that send a key's
        # records to another shard than its own; the combination MUST be refused."
        for other in ("reshard_proof", "ignore_keys"):
            fits = self.ordering != "partition-key" or not getattr(self, other)
            self._expect(other, fits, 'False with ordering = "partition-key"')
        # ARG-2: "An option that does nothing without another one MUST be refused without it."
        for name, (other, without) in _NEEDS.items():
            default, value = _DEFAULTS[name], getattr(self, other)
            fits = getattr(self, name) == default or value not in without
            self._expect(name, fits, f"{default!r} while {other} is {value!r}: it does nothing then")
        most = self.max_record_size or LARGEST_MAX_RECORD_SIZE
        fits = self.aggregation_max_size <= most
        self._expect("aggregation_max_size", fits, f"at most max_record_size ({most})")
        # PRD-3: "The memory bound MUST hold at least one record of the largest size."
        least = self.known_record_size
        fits = self.max_outstanding_bytes >= least
        self._expect("max_outstanding_bytes", fits, f"at least max_record_size ({least})")
        other = f"gzip or zlib; zstd needs Python 3.14 or later, or: {install('backports.zstd>=1')}"
        self._expect("compression", self.compression != "zstd" or zstd_module() is not None, other)

    def _expect(self, name: str, fits: bool, expected: str) -> None:
        if not fits:
            raise ConfigError(setting=name, value=getattr(self, name), expected=expected)

    @property
    def known_record_size(self) -> int:
        """``max_record_size``, or what every stream takes."""
        return self.max_record_size or DEFAULT_MAX_RECORD_SIZE

    @property
    def ttl_seconds(self) -> float:
        """``record_ttl_ms`` in seconds."""
        return self.record_ttl_ms / 1000

    @property
    def end_seconds(self) -> float:
        """After so many seconds each user record that was put has its result, whoever answers."""
        return self.ttl_seconds + 3.0

    @property
    def buffering_seconds(self) -> float:
        """How long a user record may wait for other user records, in seconds."""
        # PRD-37: "A user record MUST NOT wait for others longer than half its time to live, whatever
        # record_max_buffered_time_ms is."
        return min(self.record_max_buffered_time_ms, self.record_ttl_ms / 2) / 1000

    @property
    def collecting_seconds(self) -> float:
        """The part of `buffering_seconds` for which a closed aggregate waits for the aggregates of other
        shards, to share a PutRecords call with them, in seconds; as in the KPL."""
        return min(0.05, 0.2 * self.buffering_seconds) if self.aggregation_enabled else 0.0

    @property
    def map_wait(self) -> float:
        """How long a user record may wait for a shard map, in seconds."""
        return min(3.0, self.ttl_seconds / 10)

    @property
    def expiry_step(self) -> float:
        """Seconds between two searches for expired user records. More frequent searches would find more
        Kinesis records with a few expired user records, each of which must be built again."""
        return min(3.0, self.ttl_seconds / 100)

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
        self._expect(name, fits or (name == "max_record_size" and value is None), expected)


#: ``RANGES``: the lowest and highest value of each setting that is a number. ``_CHOICES``: the values of each
#: setting that is a word.
RANGES: Final[dict[str, tuple[int, int]]] = {
    one.name: one.metadata["range"] for one in fields(ProducerConfig) if one.metadata
}
_DEFAULTS: Final[dict[str, object]] = {one.name: one.default for one in fields(ProducerConfig)}
#: Settings that do nothing while another one has one of these values. (``adaptive_partitioning`` is also of
#: user records without a key; ``outer_key`` also of aggregates of one.)
_NEEDS: Final[dict[str, tuple[str, tuple[object, ...]]]] = {
    "outer_key_buckets": ("outer_key", ("fixed",)),
    "aggregation_max_count": ("aggregation_enabled", (False,)),
    "reshard_proof": ("aggregation_enabled", (False,)),
}
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    name: get_args(hint)
    for name, hint in get_type_hints(ProducerConfig).items()
    if get_origin(hint) is Literal
}


class ProducerOptions(TypedDict, total=False):
    """What both producers take by keyword, after the stream's name or ARN.

    ``client_settings``: arguments of `kpl_codec.aws.kinesis_client`; an ARN's own region overrides theirs; a
    botocore ``config`` sets all but retries. Or give a ``client`` that makes no retries, which cannot be used
    after a fork; AsyncProducer takes one of aiobotocore, too, which the caller closes.
    ``observe(name, value, attributes)`` gets the metrics of `kpl_codec.producer.metrics`. ``ledger``: a
    `kpl_codec.audit.Ledger`, which notes the user records that were put.

    ``on_undelivered(error)`` is called once for each user record that ends without being delivered, before
    its future has a result: ``error.user_record`` is what was put, ``error.may_be_stored`` whether a copy may
    be on the stream. The calls come one after the other, in a thread of their own; AsyncProducer awaits a
    coroutine function in its event loop. flush and close wait for it, so it must bound its time, and must not
    wait for its own producer (WouldDeadlock). What it raises is logged.
    """

    config: ProducerConfig | None
    ledger: Ledger | None
    client: Any
    client_settings: Mapping[str, Any] | None
    observe: Observe | None
    on_undelivered: Callable[[DeliveryError], object] | None


def check_options(kind: type[Any], stream: str, options: Mapping[str, Any]) -> None:
    """Raises TypeError for an unknown option, and for one of a wrong type; the text says what to give."""
    # Of a subclass's own name nothing is known.
    kind = next(base for base in kind.__mro__ if base.__module__.startswith(__package__))
    producer = kind.__name__
    for name, value in options.items():
        if name in ProducerConfig.__dataclass_fields__:
            hint = f"it is a setting: config=ProducerConfig({name}={value!r})"
        elif name not in ProducerOptions.__annotations__ and name in _client_function().__kwdefaults__:
            hint = f"it is the client's: client_settings={{{name!r}: ...}}"
        else:
            continue
        raise TypeError(f"{producer} has no option {name!r}; {hint}")
    check_keywords(producer, options, kind.__init__, ProducerOptions)
    check_arguments(producer, {"stream": stream, **options}, awaits=producer == "AsyncProducer")
    settings = options.get("client_settings") or {}
    if options.get("client") is None:
        check_keywords(f"client_settings of {producer}", settings, _client_function())
    elif settings:
        raise ValueError(f"client_settings of {producer} is given with client, give one of them")
    check_arguments(f"client_settings of {producer}", settings)
    check_needs(f"client_settings of {producer}", settings)


def _client_function() -> Any:
    """`kinesis_client`, imported when a producer is made: a client of the caller's may need no boto3, and
    where a producer starts the main thread may have ended."""
    from ..aws.client import kinesis_client

    return kinesis_client


def new_client(config: ProducerConfig, connections: int, settings: Mapping[str, Any]) -> Any:
    """A client of boto3 with that many connections, from a session of its own: the session that
    `boto3.client` uses is not thread-safe."""
    from botocore.config import Config

    ours = Config(
        connect_timeout=config.connect_timeout_ms / 1000,
        read_timeout=config.request_timeout_ms / 1000,
        max_pool_connections=connections,
    )
    # PRD-71: "A call MUST be made once for each attempt that is reported: retries of a client are switched
    # off, and a given client that makes any MUST be logged." (`kinesis_client` switches them off.)
    merged = ours.merge(settings.get("config") or Config())
    return _client_function()(**{**settings, "config": merged})


def makes_retries(client: Any) -> bool:
    """Whether a client that the caller gave repeats failed calls by itself."""
    config = getattr(getattr(client, "meta", None), "config", None)
    return config is not None and (config.retries or {}).get("total_max_attempts") != 1
