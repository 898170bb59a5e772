"""One call to Kinesis, and what its failure is called. Shared by the thread and asyncio skins."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from ..shards.live_shard_map import Failure, Request

#: What a call may raise without there being a bug of ours: an error of the service, of the client, or
#: of the connection below it.
CALL_ERRORS: Final = (ClientError, BotoCoreError, OSError, asyncio.TimeoutError)

_METHODS: Final = {"ListShards": "list_shards", "DescribeStreamSummary": "describe_stream_summary"}


def failure_of(error: Exception) -> Failure:
    """AWS's code for an answer that is an error, else the name of the exception."""
    if isinstance(error, ClientError):
        detail = error.response.get("Error", {})
        return Failure(str(detail.get("Code") or "Unknown"), str(detail.get("Message") or ""))
    return Failure(type(error).__name__, str(error))


def send(client: Any, request: Request) -> Any:
    """Call ``client`` for ``request``: the answer (boto3), or an awaitable of it (aiobotocore)."""
    return getattr(client, _METHODS[request.operation])(**request.arguments)
