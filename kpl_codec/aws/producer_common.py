"""What both producer skins share: the core and the client they make, the call, what its failures mean, how a
future ends, the log.

The log (logger "kpl_codec.producer") tells codes, counts and shard ids; never data, never keys.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError

from ..aws_errors import error_kind
from ..producer import Delivery, DeliveryError, Outcome, Pending, ProducerConfig, ProducerCore
from ..producer.collector import PutRecordsRequest
from ..producer.metrics import Observe
from ..producer.partitioner import Chance
from ..shards.live_shard_map import Failure, LiveShardMap, Request
from .calls import failure_of, send

# PRD-34: "Log lines MUST NOT hold data, partition keys or explicit hash keys."
logger: Final = logging.getLogger("kpl_codec.producer")


def client_config(config: ProducerConfig) -> dict[str, Any]:
    """Keyword arguments for a botocore Config. No retries below us: they would be invisible, and a call
    that is retried there may store its records twice without anybody knowing."""
    return {
        "connect_timeout": config.connect_timeout / 1000,
        "read_timeout": config.request_timeout / 1000,
        "retries": {"total_max_attempts": 1, "mode": "standard"},
        "max_pool_connections": config.max_connections + 1,
    }


def stream_argument(stream_name: str | None, stream_arn: str | None) -> dict[str, str]:
    """The argument that names the stream. Raises ValueError unless exactly one is given."""
    if stream_name is not None and stream_arn is None:
        return {"StreamName": stream_name}
    if stream_arn is not None and stream_name is None:
        return {"StreamARN": stream_arn}
    raise ValueError("give stream_name or stream_arn")


def new_core(
    stream: Mapping[str, str], config: ProducerConfig, chance: Chance, observe: Observe | None
) -> ProducerCore:
    """A core for ``stream`` (of `stream_argument`). Its map knows the closed shards too: a record may still
    land on one."""
    live = LiveShardMap(
        stream.get("StreamName"), stream_arn=stream.get("StreamARN"), shard_filter="FROM_TRIM_HORIZON"
    )
    return ProducerCore(config, live, chance, observe)


def guarded(observe: Observe | None) -> Observe | None:
    """``observe``, whose errors cost a measurement and nothing else. The first is logged."""
    if observe is None:
        return None
    told = False

    def guard(name: str, value: float, attributes: Mapping[str, str]) -> None:
        nonlocal told
        # PRD-35: "An error in the caller's measuring MUST NOT cost a user record, nor its result."
        try:
            observe(name, value, attributes)
        except Exception:
            if not told:
                logger.exception("observe failed for %s; further failures are not logged", name)
            told = True

    return guard


def drop(future: Future[Delivery] | asyncio.Future[Delivery], observe: Observe | None) -> None:
    """End the future of a user record that the full producer was told to drop."""
    end(future, DeliveryError(outcome=Outcome.DROPPED, code="dropped", attempts=()))
    if observe is not None:
        observe("ErrorsByCode", 1, {"ErrorCode": "dropped"})


def end(future: Future[Delivery] | asyncio.Future[Delivery], result: Delivery | DeliveryError) -> None:
    """Give a user record's future its result."""
    if isinstance(result, DeliveryError):
        future.set_exception(result)
    else:
        future.set_result(result)


def call(client: Any, request: PutRecordsRequest | Request, stream: Mapping[str, str]) -> Any:
    """Make a call of the core: its answer (boto3), or an awaitable of it (aiobotocore)."""
    if isinstance(request, PutRecordsRequest):
        return client.put_records(**stream, Records=request.records)
    return send(client, request)


def what_failed(error: BaseException) -> tuple[Failure, bool]:
    """The failure, and whether it is an answer (or came before sending): then nothing is stored.

    A 5xx is an answer; whether its records are stored is for the outcomes table to say.
    """
    if isinstance(error, (ClientError, BotoCoreError, OSError)):
        # botocore's errors that the table names come before anything was sent.
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


def log_failure(request: PutRecordsRequest | Request, failure: Failure, answered: bool) -> None:
    """One line for a call that failed as a whole."""
    if isinstance(request, PutRecordsRequest):
        logger.warning(
            "PutRecords failed: %s",
            failure.code,
            extra={
                "operation": "PutRecords",
                "error_code": failure.code,
                "answered": answered,
                "kinesis_records": len(request.records),
            },
        )
    else:
        logger.info(
            "%s failed: %s",
            request.operation,
            failure.code,
            extra={"operation": request.operation, "error_code": failure.code, "answered": answered},
        )


def log_never_closed(core: ProducerCore) -> None:
    """One line for a producer that went away with user records in it."""
    if core.outstanding:
        logger.error(
            "%d user records not delivered: the producer was never closed",
            core.outstanding,
            extra={"outcome": Outcome.CLOSED.value, "user_records": core.outstanding},
        )


def log_not_delivered(results: Iterable[tuple[Pending, Delivery | DeliveryError]]) -> None:
    """One line for those of the user records that failed for good, by outcome and code."""
    counts = Counter(
        (result.outcome.value, result.reason) for _, result in results if isinstance(result, DeliveryError)
    )
    for (outcome, code), count in counts.items():
        logger.error(
            "%d user records not delivered: %s (%s)",
            count,
            outcome,
            code,
            extra={"outcome": outcome, "error_code": code, "user_records": count},
        )
