"""Producers of both kinds, used in the same way: `threads` and `asyncio`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from kpl_codec.producer import AsyncProducer, Delivery, DeliveryError, Producer, ProducerConfig, Put

from .model_client import ModelClient

SKINS = pytest.mark.parametrize("skin", ["threads", "asyncio"])
FAST = ProducerConfig(record_max_buffered_time_ms=5, record_ttl_ms=300)


def new_producer(skin: str, stream: str = "s", *, client: ModelClient | None = None, **options: Any) -> Any:
    """A producer of one of the two kinds, with the model's client or with ``client_settings``."""
    if client is not None:
        options["client"] = client
    return (Producer if skin == "threads" else AsyncProducer)(stream, **options)


async def call(method: Callable[..., Any], *arguments: Any) -> Any:
    """Call a method of either producer."""
    given = method(*arguments)
    return await given if asyncio.iscoroutine(given) else given


async def result_of(future: Any, seconds: float) -> Any:
    """The Delivery, or the error, of a future of either producer, within so many seconds."""
    if not isinstance(future, asyncio.Future):
        return future.exception(seconds) or future.result(0)
    done, _ = await asyncio.wait([future], timeout=min(seconds, 1e6) or 0.001)
    assert done, "it has no result"
    return future.exception() or future.result()


def refuse(operation: str, answer: Any, code: str = "AccessDeniedException") -> Any:
    """For ``spoil`` of the model's client: PutRecords is refused."""
    if operation == "PutRecords":
        raise ClientError({"Error": {"Code": code}}, operation)
    return answer


class Caller:
    """Calls a producer of either kind on the model stream. ``starts``: the first call starts it.
    ``options``: of the producer. ``refusing``: the service refuses what is put. ``puts``: what was put, with
    its future."""

    def __init__(
        self,
        skin: str,
        hook: Callable[[DeliveryError], Any] | None,
        *,
        starts: bool = True,
        options: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self._starts = starts
        client = ModelClient(spoil=lambda name, answer: refuse(name, answer) if self.refusing else answer)
        self.refusing = False
        config = ProducerConfig(record_max_buffered_time_ms=1, **settings)
        options = {"client": client, "config": config, "on_undelivered": hook, **(options or {})}
        self.producer = new_producer(skin, **options)
        self.puts: list[tuple[Put, Any]] = []

    async def __call__(self, name: str, *arguments: Any) -> Any:
        if self._starts:
            self._starts = False
            await call(self.producer.start)
        return await call(getattr(self.producer, name), *arguments)

    async def put(self, *arguments: Any) -> Any:
        future = await self("put", *arguments)
        put = Put(*arguments)
        if put.partition_key is None and put.explicit_hash_key is not None:
            put = put._replace(partition_key="a")  # which makes no difference
        self.puts.append((put, future))
        return future

    def ended(self) -> list[tuple[Put, Any]]:
        return [(put, future.exception() or future.result()) for put, future in self.puts]


def check_handed_over(called: list[DeliveryError], ended: list[tuple[Put, Any]]) -> None:
    """Each user record was delivered, or handed over as it was put; never both."""
    assert all(isinstance(result, (Delivery, DeliveryError)) for _, result in ended)
    failed = [(put, result) for put, result in ended if isinstance(result, DeliveryError)]
    assert all(error.user_record == put for put, error in failed)
    assert Counter(map(id, called)) == Counter(id(error) for _, error in failed)
