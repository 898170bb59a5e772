"""A client of the model stream, with boto3's methods or aiobotocore's: no server, no network."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from kpl_codec.aws.calls import maybe_await
from kpl_codec.shards.live_shard_map import Request

from .model import ModelStream


class ModelClient:
    """``spoil(operation, answer)`` may change an answer or raise; ``latency``: seconds of a PutRecords."""

    def __init__(
        self,
        shards: int = 2,
        *,
        latency: float = 0.0,
        spoil: Callable[[str, dict[str, Any]], Any] = lambda operation, answer: answer,
    ) -> None:
        self.stream = ModelStream(shards)
        self.calls: list[str] = []
        self._spoil = spoil
        self._latency = latency
        self._lock = threading.Lock()

    def put_records(self, *, Records: list[dict[str, Any]], **_: Any) -> Any:
        time.sleep(self._latency)
        with self._lock:
            self.calls.append("PutRecords")
            return self._spoil("PutRecords", self.stream.put_records(Records))

    def list_shards(self, **arguments: Any) -> Any:
        return self._map("ListShards", arguments)

    def describe_stream_summary(self, **arguments: Any) -> Any:
        return self._map("DescribeStreamSummary", arguments)

    def _map(self, operation: Any, arguments: dict[str, Any]) -> Any:
        with self._lock:
            self.calls.append(operation)
            return self._spoil(operation, self.stream.answer(Request(operation, arguments)))


class AsyncModelClient:
    """The same for asyncio."""

    def __init__(self, client: ModelClient) -> None:
        self._client = client

    def __getattr__(self, operation: str) -> Any:
        async def call(**arguments: Any) -> Any:
            return await maybe_await(getattr(self._client, operation)(**arguments))

        return call
