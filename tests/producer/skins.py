"""Producers of both kinds, used in the same way: `threads` and `asyncio`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kpl_codec.producer import AsyncProducer, Producer

from .model_client import AsyncModelClient, ModelClient

SKINS = pytest.mark.parametrize("skin", ["threads", "asyncio"])


def new_producer(skin: str, stream: str = "s", *, client: ModelClient | None = None, **options: Any) -> Any:
    """A producer of one of the two kinds, with the model's client or with ``client_settings``."""
    if client is not None:
        options["client"] = client if skin == "threads" else AsyncModelClient(client)
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
