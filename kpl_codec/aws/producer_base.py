"""What the thread and asyncio producers have in common for their callers."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from ..lazy import needing_extras
from ..ledger import Ledger, Notes
from ..producer import Pending, ProducerClosed, ProducerConfig, ProducerCore, ProducerFull
from ..producer.metrics import Observe
from ..shards.live_shard_map import LiveShardMap
from .calls import settled, stream_for
from .one_lock import WouldDeadlock, driving, locked
from .producer_owner import Flush, Letters, Owner
from .producer_tells import OnUndelivered, guarded

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ProducerOptions(TypedDict, total=False):
    """What both producers take by keyword, after the stream's name or ARN.

    ``client_settings`` go to ``boto3.client("kinesis", ...)`` or aiobotocore's create_client (endpoint_url,
    region_name ...; of an ARN its own region counts); or give ``client``, made without retries:
    boto3's then cannot be used after a fork, aiobotocore's is closed by the caller.
    ``observe(name, value, attributes)`` gets the metrics of `kpl_codec.producer.METRICS`: see
    `kpl_codec.aws.telemetry`. ``chance(n)``: one of 0..n-1. ``clock``: seconds, monotonic. ``ledger``: a
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
    _owner: Owner
    _letters: Letters
    _started = _forked = False
    #: Wakes the driver, with the lock held.
    _wake: Callable[[], None]

    def __init__(self, stream: str, **options: Unpack[ProducerOptions]) -> None:
        unknown = sorted(options.keys() - ProducerOptions.__annotations__.keys())
        if unknown:
            raise TypeError(f"{type(self).__name__} has no option {unknown[0]!r}")
        self._client = options.get("client")
        self._stream = stream_for(self._client, stream)
        self.config = options.get("config") or ProducerConfig()
        self._client_settings = dict(options.get("client_settings") or {})
        if self._stream.region is not None:
            self._client_settings["region_name"] = self._stream.region
        self._ledger = options.get("ledger")
        self._observe = guarded(options.get("observe"))
        self._chance = options.get("chance", random.randrange)
        self._clock = options.get("clock", time.monotonic)
        self._on_undelivered = options.get("on_undelivered")

    def _new_core(self) -> ProducerCore:
        """A core for the stream. Its map has the closed shards, too: a record may still be stored on one."""
        live = LiveShardMap(self._stream.arn or self._stream.name, shard_filter="FROM_TRIM_HORIZON")
        noted = self._ledger is not None
        return ProducerCore(self.config, live, self._chance, self._observe, noted=noted)

    def _new_notes(self) -> Notes | None:
        stream = self._stream.arn or self._stream.name
        return None if self._ledger is None else self._ledger.writer(stream, "produced")

    def _leave(self, pending: Pending) -> bool:
        """Leave a user record for the core; False if it has to wait for room. Called with the lock held.
        Raises ProducerFull."""
        letters, config, size = self._letters, self.config, pending.size
        room = letters.bytes + size <= config.max_outstanding_bytes
        if not room or letters.records - letters.dropped >= config.max_outstanding_records:
            held = self._on_undelivered is not None and letters.dropped >= config.max_outstanding_records
            if config.when_full == "drop" and not held:
                pending.size = size = 0  # what is dropped takes no room from others
                letters.dropped += 1
            elif config.when_full != "block" or driving.here or self._in_hook:
                raise ProducerFull(records=letters.records, bytes=letters.bytes)
            else:
                return False
        pending.accepted_at = self._clock()
        # Ctrl-C may come between any two of these lines: the driver looks after it has been woken, and counts
        # again.
        if not letters.awake:
            self._wake()
            letters.awake = True
        letters.records += 1
        letters.bytes += size
        letters.inbox.append(pending)
        return True

    @property
    @abstractmethod
    def _in_hook(self) -> bool: ...

    def _may_wait(self, method: str) -> None:
        if self._in_hook:
            instead = "on_undelivered must not wait for its own producer; let another thread or task do it"
            raise WouldDeadlock(code="in-callback", method=method, instead=instead)

    def _check_open(self) -> None:
        if self._letters.broken is not None:
            raise ProducerClosed(code="broken") from self._letters.broken
        if self._letters.closing:
            raise ProducerClosed(code="closed")
        if self._forked and self._client is not None:  # its connections are the parent's
            raise ProducerClosed(code="forked")

    @property
    def outstanding(self) -> int:
        """User records accepted that have not ended yet."""
        return self._letters.records

    def refresh_shard_map(self) -> None:
        """Request the shard map now, for example after a permanent error was fixed. Before the start there
        is nothing to do. Raises ProducerClosed."""
        with locked("refresh_shard_map"):
            self._check_open()
            self._letters.refresh_wanted = self._letters.unread = True
            self._wake()

    async def _have_map(self, timeout: float | None) -> bool:
        """See `Producer.wait_ready`. Called with the lock held."""
        live, letters = self._core.live, self._letters
        await settled(
            letters.news.wait_for(
                lambda: live.state == "READY" or letters.broken is not None or letters.closing, timeout
            )
        )
        self._check_open()
        return live.state == "READY"

    async def _flushed(self, timeout: float | None) -> bool:
        """See `Producer.flush`. Called with the lock held."""
        flush, letters = Flush(), self._letters
        if not self._started or letters.finished:
            return not letters.records
        letters.flushes.append(flush)
        self._wake()
        await settled(letters.news.wait_for(lambda: flush.done or letters.finished, timeout))
        return flush.done or (letters.finished and not letters.records)


def import_boto3() -> Any:
    with needing_extras("kpl_codec.aws.Producer"):
        import boto3
    return boto3


def client_config(config: ProducerConfig) -> dict[str, Any]:
    """Keyword arguments for a botocore Config; its timeouts are seconds. Retries are off: a retry in botocore
    would be invisible, and may store records twice unnoticed."""
    return {
        "connect_timeout": config.connect_timeout_ms / 1000,
        "read_timeout": config.request_timeout_ms / 1000,
        "retries": {"total_max_attempts": 1, "mode": "standard"},
    }
