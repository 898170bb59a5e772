"""A call that the producer's core asks for, and what its failure means: for threads and asyncio alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError, SSLError

from ..aws.calls import failure_of, send
from ..aws_errors import rule_of
from ..shards.live_shard_map import Failure, Request
from .record_builder import PutRecordsRequest


def call(client: Any, request: PutRecordsRequest | Request, stream: Mapping[str, str]) -> Any:
    """Make a call of the producer's core: its answer (boto3), or an awaitable of it (aiobotocore)."""
    if isinstance(request, PutRecordsRequest):
        return client.put_records(**stream, Records=request.records)
    return send(client, request)


def what_failed(error: BaseException, request: PutRecordsRequest | Request) -> tuple[Failure, bool]:
    """The failure of a call, and whether it is an answer or came before sending: then nothing is stored.

    A 5xx is an answer; the outcomes table says whether its records may be stored.
    """
    if not isinstance(error, (ClientError, BotoCoreError, OSError)):
        return Failure(type(error).__name__), False
    failure = failure_of(error, getattr(request, "operation", "PutRecords"))
    # PRD-36: "A failed call MUST count as one that may have stored its records unless it is known that
    # nothing was sent, or that it was refused."
    answered = isinstance(error, ClientError) or rule_of(failure.code).producer in ("not-sent", "invalid")
    if isinstance(error, EndpointConnectionError):
        # aiobotocore raises it where an existing connection broke, too.
        causes = {kind.__name__ for kind in type(error.kwargs.get("error")).__mro__}
        answered = not causes.isdisjoint(("NewConnectionError", "ClientConnectorError", "gaierror"))
    elif isinstance(error, SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return Failure("SSLCertVerificationError", failure.reason), True  # no request before the handshake
    return failure, answered
