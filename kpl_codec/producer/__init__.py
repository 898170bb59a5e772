"""Producers: `Producer` for threads, and `AsyncProducer` for the tasks of asyncio.

    >>> from kpl_codec.producer import DeliveryError, Producer, ProducerConfig
    >>> with Producer("orders", config=ProducerConfig(record_ttl_ms=60_000)) as producer:
    ...     future = producer.put("customer-1", b"data")
    >>> delivery = future.result()
    >>> delivery.shard_id, delivery.sub_sequence_number, delivery.attempts[-1].outcome
    ('shardId-00000000000...', 0, 'delivered')

    >>> nobody_answers = {"endpoint_url": "http://127.0.0.1:9"}
    >>> settings = ProducerConfig(record_ttl_ms=300)
    >>> with Producer("orders", config=settings, client_settings=nobody_answers) as producer:
    ...     try:
    ...         producer.put("customer-1", b"data").result()
    ...     except DeliveryError as error:
    ...         print(error.outcome, error.may_be_stored, error.user_record.partition_key)
    expired False customer-1

    >>> import asyncio
    >>> from kpl_codec.producer import AsyncProducer
    >>> async def put() -> None:
    ...     async with AsyncProducer("orders") as producer:
    ...         delivery = await (await producer.put("customer-1", b"data"))
    ...         print(delivery.sub_sequence_number)
    >>> asyncio.run(put())
    0

How a user record goes from `put` to its Delivery: record (is it valid) ─▶ mailbox ─▶ driver (a thread)
◀─▶ core (what to send, where and when, and what a response means) ─▶ results ─▶ future. The docstrings of
`driver` and `core` have the maps. What is of the whole process (the lock, forks, exits, the thread that logs)
is in `process`. `core.ProducerCore` has no clock, no thread and no network. Names that need boto3 are
imported on first use. Specification: spec/05-producer.md.
"""

from typing import TYPE_CHECKING

from ..base.lazy import lazy_names
from .config import ConfigError, ProducerConfig
from .core import ProducerCore as ProducerCore
from .mailbox import NotStarted, ProducerClosed, ProducerFull
from .record import Pending as Pending
from .record import RecordTooLarge
from .results import Attempt, Delivery, DeliveryError, Outcome, Put

if TYPE_CHECKING:  # what `lazy_names` gives, for type checkers
    from .async_producer import AsyncProducer as AsyncProducer
    from .future import DeliveryFuture as DeliveryFuture
    from .future import WouldDeadlock as WouldDeadlock
    from .lambda_handler import delivers as delivers
    from .metrics import OpenTelemetryMetrics as OpenTelemetryMetrics
    from .threads import Producer as Producer

_HOMES = {
    "AsyncProducer": "async_producer",
    "DeliveryFuture": "future",
    "OpenTelemetryMetrics": "metrics",
    "Producer": "threads",
    "WouldDeadlock": "future",
    "delivers": "lambda_handler",
}

__all__ = [
    "AsyncProducer", "Attempt", "ConfigError", "Delivery", "DeliveryError", "DeliveryFuture",
    "NotStarted", "OpenTelemetryMetrics", "Outcome", "Producer", "ProducerClosed", "ProducerConfig",
    "ProducerFull", "Put", "RecordTooLarge", "WouldDeadlock", "delivers",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
