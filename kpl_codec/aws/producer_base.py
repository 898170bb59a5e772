"""The common parts of the thread and asyncio producers: settings, the core, and how a record ends."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from ..lazy import needing_extras
from ..ledger import Kind, Ledger, Notes, Row
from ..producer import Attempt, DeliveryError, Pending, ProducerConfig, ProducerCore
from ..producer.ledger import undelivered
from ..producer.metrics import Observe
from ..producer.outcomes import NO_HISTORY
from ..shards.live_shard_map import LiveShardMap
from .calls import KinesisClient, stream_for
from .producer_log import guarded
from .undelivered import OnUndelivered

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

    ``on_undelivered(error)`` is called once for each user record that ends without being delivered, whatever
    the reason, before its future has a result: ``error.user_record`` is what was put,
    ``error.may_be_stored`` whether a copy may be on the stream. The calls come one after the other, in a
    thread of their own; AsyncProducer awaits what they give, and runs a coroutine function in its event loop.
    Until it returns the user record counts as outstanding, and flush and close wait, without a timeout: it
    must bound its own time, and must not wait for its own producer (WouldDeadlock). What it raises is logged.
    """

    config: ProducerConfig | None
    ledger: Ledger | None
    client: KinesisClient | None
    client_settings: Mapping[str, Any] | None
    observe: Observe | None
    on_undelivered: OnUndelivered | None
    chance: Callable[[int], int]
    clock: Callable[[], float]


class ProducerBase:
    """Raises StreamNameError for a text that is neither a stream's name nor its ARN, and for a client of
    another region than the ARN's; TypeError for an unknown option."""

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
        """A writer of the ledger, if there is one."""
        return None if self._ledger is None else self._ledger.writer(self._stream.name, "produced")


def take_notes(
    notes: Notes | None, core: ProducerCore, ended: list[Pending], clock: Callable[[], float]
) -> None:
    """Give the ledger what `core` has to note, and those user records of ``ended`` that failed."""
    if notes is None:
        return
    offset = time.time() - clock()
    rows = core.rows(offset)
    failed = Counter[tuple[Kind, str, int]]()
    for pending in ended:
        if isinstance(error := pending.result, DeliveryError):
            kind: Kind = "left" if error.may_be_stored else "refused"
            failed[kind, error.code, int(pending.accepted_at + offset)] += 1
    rows += [Row(kind, code, "", count, at * 1000) for (kind, code, at), count in failed.items()]
    if rows:
        notes.note(rows)


def broken_off(config: ProducerConfig, pending: Pending, cause: BaseException, now: float) -> Pending:
    """Give a user record in a broken producer its result: it may be stored if the core has had it."""
    # PRD-41: "Whatever a call answers, and whatever breaks in the producer, every user record MUST get
    # its result; one that may be stored says so."
    if pending.number:
        attempt = Attempt("no-answer", pending.accepted_at, now, None, code="broken")
        pending.history = (pending.history or NO_HISTORY).with_attempt(attempt)
    undelivered(config, pending, "closed", "broken").result.__cause__ = cause
    return pending


def import_boto3() -> Any:
    """boto3, or ModuleNotFoundError with the name of the extra."""
    with needing_extras("kpl_codec.aws.Producer"):
        import boto3
    return boto3


def boto3_client(config: ProducerConfig, settings: Mapping[str, Any]) -> KinesisClient:
    """A client of its own session: `boto3.client` shares one that is not thread-safe. Several producers may
    share it, and it keeps a connection for each call that was under way at a time."""
    from botocore.config import Config

    ours = Config(**client_config(config), max_pool_connections=1000)
    client: KinesisClient = import_boto3().session.Session().client("kinesis", **{"config": ours, **settings})
    return client


def client_config(config: ProducerConfig) -> dict[str, Any]:
    """Keyword arguments for a botocore Config; its timeouts are seconds. Retries are off: a retry in botocore
    would be invisible, and may store records twice unnoticed."""
    return {
        "connect_timeout": config.connect_timeout_ms / 1000,
        "read_timeout": config.request_timeout_ms / 1000,
        "retries": {"total_max_attempts": 1, "mode": "standard"},
    }


class Flush:
    """A flush with a waiting caller: done when all user records accepted before it have ended."""

    def __init__(self) -> None:
        self.done = False
        self._up_to = 0
        self._remaining = 0

    def begin(self, accepted: int, unresolved: int) -> None:
        """Called when the core flushes. ``accepted``: so far, ``unresolved``: of them without a result."""
        self._up_to, self._remaining = accepted, unresolved
        self.done = not unresolved

    def ended(self, ended: list[Pending]) -> bool:
        """Count user records that got their results. Returns whether the flush is done."""
        self._remaining -= sum([0 < pending.number <= self._up_to for pending in ended])
        self.done = self.done or self._remaining <= 0
        return self.done
