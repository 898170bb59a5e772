"""What the thread and asyncio producers have in common for their callers."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, TypedDict

from ..aws.calls import maybe_await, stream_for
from ..lazy import needing_extras
from ..shards.live_shard_map import LiveShardMap
from . import Pending, ProducerClosed, ProducerConfig, ProducerCore, ProducerFull
from .driver import Driver, Flush, Mailbox
from .lock import WouldDeadlock, driving, in_log, locked
from .metrics import Observe
from .producer_logging import Log, OnUndelivered, guarded, in_background, logger

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..ledger.ledger import Ledger, Writer


#: PRD-62: seconds between two readings of what the stream takes; how long a put waits for one.
SIZE_AGE: Final = 60.0
_SIZE_WAIT: Final = 10.0
#: Seconds after which a flush ends, whatever the time to live and `on_undelivered`.
LONGEST_FLUSH: Final = 3600.0


class ProducerOptions(TypedDict, total=False):
    """What both producers take by keyword, after the stream's name or ARN.

    ``client_settings`` go to ``boto3.client("kinesis", ...)`` or aiobotocore's create_client (endpoint_url,
    region_name ...; of an ARN its own region counts; of a botocore ``config`` all but its retries); or give
    ``client``, made without retries: boto3's then cannot be used after a fork, aiobotocore's is closed by the
    caller.
    ``observe(name, value, attributes)`` gets the metrics of `kpl_codec.producer.METRICS`: see
    `kpl_codec.producer.opentelemetry_metrics`. ``chance(n)``: one of 0..n-1. ``clock``: seconds, monotonic.
    ``ledger``: a
    `kpl_codec.audit.Ledger`, which notes what was put.

    ``on_undelivered(error)`` is called once for each user record that ends without being delivered, before
    its future has a result: ``error.user_record`` is what was put, ``error.may_be_stored`` whether a copy may
    be on the stream. The calls come one after the other, in a thread of their own; AsyncProducer runs a
    coroutine function in its event loop. It must bound its own time, because flush and close wait for it, and
    must not wait for its own producer (WouldDeadlock). What it raises is logged.
    """

    config: ProducerConfig | None
    ledger: Ledger | None
    client: Any
    client_settings: Mapping[str, Any] | None
    observe: Observe | None
    on_undelivered: OnUndelivered | None
    chance: Callable[[int], int]
    clock: Callable[[], float]


class ProducerBase(ABC):
    """Raises StreamNameError for a text that is neither a stream's name nor its ARN, and for a client of
    another region than the ARN's; TypeError for an unknown option."""

    _core: ProducerCore
    _driver: Driver
    _mailbox: Mailbox
    _started = _forked = False
    #: Wakes the driver, with the lock held.
    _wake: Callable[[], None]
    _log: Log = staticmethod(in_background)
    _in_log: Callable[[], bool] = staticmethod(in_log)

    def __init__(self, stream: str, **options: Unpack[ProducerOptions]) -> None:
        _check_options(type(self).__name__, options)
        self._client = options.get("client")
        if self._client is not None:
            _check_retries(self._client)
        self._stream = stream_for(self._client, stream)
        self.config = options.get("config") or ProducerConfig()
        self._client_settings = dict(options.get("client_settings") or {})
        if self._stream.region is not None:
            self._client_settings["region_name"] = self._stream.region
        self._ledger = options.get("ledger")
        self._observe = guarded(options.get("observe"), self._log)
        self._chance = options.get("chance", random.randrange)
        self._clock = options.get("clock", time.monotonic)
        self._on_undelivered = options.get("on_undelivered")

    def _new_core(self) -> ProducerCore:
        """A core for the stream. Its map has the closed shards, too: a record may still be stored on one."""
        draw = self._chance  # the map must not keep the producer
        live = LiveShardMap(
            self._stream.arn or self._stream.name,
            shard_filter="FROM_TRIM_HORIZON",
            chance=lambda: draw(1024) / 1024,
        )
        noted = self._ledger is not None
        self._size_asked_at, self._summaries = float("-inf"), 0
        return ProducerCore(self.config, live, self._chance, self._observe, noted=noted)

    def _new_notes(self) -> Writer | None:
        stream = self._stream.arn or self._stream.name
        return None if self._ledger is None else self._ledger.writer(stream, "produced")

    def _leave(self, pending: Pending) -> bool:
        """Leave a user record for the core; False if it has to wait for room. Called with the lock held.
        Raises ProducerFull."""
        mailbox, config, size = self._mailbox, self.config, pending.size
        room = mailbox.bytes + size <= config.max_outstanding_bytes
        if not room or mailbox.records - mailbox.dropped >= config.max_outstanding_records:
            full_of_drops = (
                self._on_undelivered is not None and mailbox.dropped >= config.max_outstanding_records
            )
            if config.when_full == "drop" and not full_of_drops:
                pending.size = size = 0  # what is dropped takes no room from others
                mailbox.dropped += 1
            elif config.when_full != "block" or driving.here or self._in_hook or self._in_log():
                raise ProducerFull(records=mailbox.records, bytes=mailbox.bytes)
            else:
                return False
        pending.accepted_at = self._clock()
        # Ctrl-C may come between any two of these lines: the driver looks after it has been woken, and counts
        # again.
        if not mailbox.awake:
            self._wake()
            mailbox.awake = True
        mailbox.records += 1
        mailbox.bytes += size
        mailbox.inbox.append(pending)
        return True

    @property
    @abstractmethod
    def _in_hook(self) -> bool: ...

    def _may_wait(self, method: str) -> None:
        if self._in_hook:
            instead = "on_undelivered must not wait for its own producer; let another thread or task do it"
            raise WouldDeadlock(code="in-callback", method=method, instead=instead)

    def _check_open(self) -> None:
        if self._mailbox.broken is not None:
            raise ProducerClosed(code="broken") from self._mailbox.broken
        if self._mailbox.closing:
            raise ProducerClosed(code="closed")
        if self._forked and self._client is not None:  # its connections are the parent's
            raise ProducerClosed(code="forked")

    @property
    def outstanding(self) -> int:
        """User records accepted that have not ended yet."""
        return self._mailbox.records

    def refresh_shard_map(self) -> None:
        """Request the shard map now, for example after a permanent error was fixed. Before the start there
        is nothing to do. Raises ProducerClosed."""
        with locked("refresh_shard_map"):
            self._check_open()
            self._mailbox.refresh_wanted = self._mailbox.unread = True
            self._wake()

    async def _have_map(self, timeout: float | None) -> bool:
        """See `Producer.wait_ready`. Called with the lock held."""
        live, mailbox = self._core.live, self._mailbox
        await maybe_await(
            mailbox.news.wait_for(
                lambda: live.state == "READY" or mailbox.broken is not None or mailbox.closing, timeout
            )
        )
        self._check_open()
        return live.state == "READY"

    async def _size_read(self) -> bool:
        """Whether what the stream takes was read in the last minute. If not it is read now. Called with the
        lock held. Raises ProducerClosed."""
        core, mailbox, now = self._core, self._mailbox, self._clock()
        if now >= self._size_asked_at + SIZE_AGE:
            self._size_asked_at, self._summaries = now, core.summaries
            mailbox.refresh_wanted = mailbox.unread = True
            self._wake()
        await maybe_await(
            mailbox.news.wait_for(
                lambda: core.summaries > self._summaries or mailbox.broken is not None or mailbox.closing,
                max(0.0, self._size_asked_at + _SIZE_WAIT - now),
            )
        )
        self._check_open()
        return core.summaries > self._summaries

    async def _wait_flush(self, timeout: float | None) -> bool:
        """See `Producer.flush`. Called with the lock held."""
        flush, mailbox = Flush(), self._mailbox
        if not self._started or mailbox.finished:
            return not mailbox.records
        mailbox.flushes.append(flush)
        self._wake()
        longest = LONGEST_FLUSH if timeout is None else timeout
        await maybe_await(mailbox.news.wait_for(lambda: flush.done or mailbox.finished, longest))
        return flush.done or (mailbox.finished and not mailbox.records)


def _check_options(producer: str, options: Mapping[str, Any]) -> None:
    """Raises TypeError for an unknown option, and for one of a wrong type: with what to give instead."""
    for name, value in options.items():
        if name in ProducerConfig.__dataclass_fields__:
            hint = f"it is a setting: config=ProducerConfig({name}={value!r})"
        elif name in _CLIENT_ARGUMENTS:
            hint = f"it is boto3's: client_settings={{{_CLIENT_ARGUMENTS[name]!r}: ...}}"
        elif name not in ProducerOptions.__annotations__:
            near = get_close_matches(name, ProducerOptions.__annotations__, 1)
            hint = (
                f"did you mean {near[0]}?" if near else f"it has {', '.join(ProducerOptions.__annotations__)}"
            )
        else:
            continue
        raise TypeError(f"{producer} has no option {name!r}; {hint}")
    for name, (fits, instead) in _OPTION_TYPES.items():
        value = options.get(name)
        if value is not None and not fits(value):
            raise TypeError(f"{name} of {producer} is of type {type(value).__name__}: give {name}={instead}")


#: Arguments of `boto3.client` that are often given to the producer itself, and their names there.
_CLIENT_ARGUMENTS: Final = {
    name: name
    for name in (
        "region_name", "endpoint_url", "verify", "use_ssl", "api_version",
        "aws_access_key_id", "aws_secret_access_key", "aws_session_token",
    )
} | {"region": "region_name", "endpoint": "endpoint_url"}  # fmt: skip
#: Options, whether a value is of the right type, and what is given.
_OPTION_TYPES: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "config": (lambda value: isinstance(value, ProducerConfig), "ProducerConfig(...)"),
    "ledger": (lambda value: hasattr(value, "writer"), "Ledger(...)"),
    "client_settings": (lambda value: isinstance(value, Mapping), '{"region_name": ...}'),
    "observe": (callable, "a function of name, value and attributes"),
    "on_undelivered": (callable, "a function of a DeliveryError"),
}


def import_boto3() -> Any:
    with needing_extras("kpl_codec.producer.Producer"):
        import boto3
    return boto3


def client_config(config: ProducerConfig, connections: int, caller_config: Any = None) -> dict[str, Any]:
    """Keyword arguments for a botocore Config; its timeouts are seconds. What ``caller_config``
    sets, a botocore Config, goes before, but for retries."""
    ours = {
        "connect_timeout": config.connect_timeout_ms / 1000,
        "read_timeout": config.request_timeout_ms / 1000,
        "max_pool_connections": connections,
    }
    theirs = {} if caller_config is None else caller_config._user_provided_options
    # PRD-71: "A call MUST be made once for each attempt that is reported: retries of a client are switched
    # off, and a given client that makes any MUST be logged."
    return {**ours, **theirs, "retries": {"total_max_attempts": 1, "mode": "standard"}}


def _check_retries(client: Any) -> None:
    config = getattr(getattr(client, "meta", None), "config", None)
    retries = getattr(config, "retries", None)
    if config is not None and (retries or {}).get("total_max_attempts") != 1:
        text = (
            "the client of this producer repeats calls by itself, and may store user records twice, unseen:"
            " make it with botocore's Config(retries={'total_max_attempts': 1}), or give client_settings"
        )
        logger.warning(text)
