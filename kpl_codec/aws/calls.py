"""One call to Kinesis, and what its failure means. Shared by the thread and asyncio skins."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Protocol

from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError

from ..aws_errors import error_kind
from ..producer.collector import PutRecordsRequest
from ..shards.live_shard_map import Failure, Request

#: What a call may raise without there being a bug of ours: an error of the service, of the client, or
#: of the connection below it.
CALL_ERRORS: Final = (ClientError, BotoCoreError, OSError, asyncio.TimeoutError)


class KinesisClient(Protocol):
    """What is called of a client: boto3's gives answers, aiobotocore's awaitables of them."""

    def put_records(self, **arguments: Any) -> Any: ...
    def list_shards(self, **arguments: Any) -> Any: ...
    def describe_stream_summary(self, **arguments: Any) -> Any: ...


def failure_of(error: Exception) -> Failure:
    """AWS's code for an answer that is an error, else the name of the exception."""
    if isinstance(error, ClientError):
        detail = error.response.get("Error", {})
        return Failure(str(detail.get("Code") or "Unknown"), str(detail.get("Message") or ""))
    return Failure(type(error).__name__, str(error))


def stream_argument(stream: str) -> dict[str, str]:
    """How a call names a stream, given by its name or its ARN. The ARN reaches streams of other accounts."""
    return {"StreamARN" if stream.startswith("arn:") else "StreamName": stream}


def send(client: KinesisClient, request: Request) -> Any:
    """Make a call of the shard map: its answer (boto3), or an awaitable of it (aiobotocore)."""
    if request.operation == "ListShards":
        return client.list_shards(**request.arguments)
    return client.describe_stream_summary(**request.arguments)


def call(client: KinesisClient, request: PutRecordsRequest | Request, stream: Mapping[str, str]) -> Any:
    """Make a call of the producer's core: its answer (boto3), or an awaitable of it (aiobotocore)."""
    if isinstance(request, PutRecordsRequest):
        return client.put_records(**stream, Records=request.records)
    return send(client, request)


def what_failed(error: BaseException) -> tuple[Failure, bool]:
    """The failure of a call, and whether it is an answer (or came before sending): then nothing is stored.

    A 5xx is an answer; whether its records are stored is for the outcomes table to say.
    """
    if isinstance(error, (ClientError, BotoCoreError, OSError)):
        # botocore's errors that the table of codes names come before anything was sent.
        answered = isinstance(error, ClientError) or (
            error_kind(type(error).__name__) != "other" and not _was_connected(error)
        )
        return failure_of(error), answered
    return Failure(type(error).__name__), False


def _was_connected(error: Exception) -> bool:
    """Whether the connection broke after it was made: aiobotocore calls that EndpointConnectionError too."""
    if not isinstance(error, EndpointConnectionError):
        return False
    # PRD-36: "A failed call MUST count as one that may have stored its records unless it is known that
    # nothing was sent."
    causes = {kind.__name__ for kind in type(error.kwargs.get("error")).__mro__}
    return causes.isdisjoint(("NewConnectionError", "ClientConnectorError", "gaierror"))
