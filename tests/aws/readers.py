"""The readers of both skins as plain functions: those of boto3, and those of aiobotocore in an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kpl_codec import aws
from kpl_codec.aws import aio, calls


class Asyncio:
    """`kpl_codec.aws.aio` with the names of `kpl_codec.aws`: a stream is read to its end. Takes a client of
    boto3, and makes another that calls the same server."""

    def __getattr__(self, name: str) -> Any:
        def call(client: Any, *arguments: Any, **options: Any) -> Any:
            async def main() -> Any:
                async with of_asyncio(client) as other:
                    answer = getattr(aio, name)(other, *arguments, **options)
                    if isinstance(answer, AsyncIterator):
                        return [record async for record in answer]
                    return await answer

            return asyncio.run(main())

        return call


def of_asyncio(client: Any) -> Any:
    # It imports for a second, which each process that collects the tests would wait.
    from aiobotocore.config import AioConfig
    from aiobotocore.session import get_session

    config = client.meta.config
    return get_session().create_client(
        "kinesis",
        region_name=client.meta.region_name,
        endpoint_url=client.meta.endpoint_url,
        config=AioConfig(
            connect_timeout=config.connect_timeout,
            read_timeout=config.read_timeout,
            retries={"total_max_attempts": 1},
        ),
    )


def sleep_with(monkeypatch: pytest.MonkeyPatch, sleep: Callable[[float], object]) -> None:
    """Let both kinds of readers wait with ``sleep``."""
    monkeypatch.setattr(calls, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    monkeypatch.setattr(calls, "async_sleep", sleep)


READERS = {"boto3": aws, "aiobotocore": Asyncio()}
