"""What the producers write to the log "kpl_codec.producer": codes, counts, shard ids; never data or keys."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Final

from ..aws_errors import is_permanent
from ..producer.kinesis_record import PutRecordsRequest
from ..producer.metrics import Observe
from ..shards.live_shard_map import Failure, Request

# PRD-34: "Log lines MUST NOT hold data, partition keys or explicit hash keys."
logger: Final = logging.getLogger("kpl_codec.producer")


def guarded(observe: Observe | None) -> Observe | None:
    """Calls ``observe``. If it raises, only that measurement is lost; the first error is logged."""
    if observe is None:
        return None
    logged = False

    def guard(name: str, value: float, attributes: Mapping[str, str]) -> None:
        nonlocal logged
        # PRD-35: "An error in the caller's measuring MUST NOT cost a user record, nor its result."
        try:
            observe(name, value, attributes)
        except BaseException as error:
            in_main = threading.current_thread() is threading.main_thread()
            if in_main and isinstance(error, KeyboardInterrupt):
                raise  # Ctrl-C
            if not logged:
                logger.exception("observe failed for %s; further failures are not logged", name)
            logged = True

    return guard


def log_failure(request: PutRecordsRequest | Request, failure: Failure, answered: bool) -> None:
    facts: dict[str, object] = {"error_code": failure.code, "answered": answered}
    if isinstance(request, PutRecordsRequest):
        facts |= {"operation": "PutRecords", "kinesis_records": len(request.records)}
        logger.warning("PutRecords failed: %s", failure.code, extra=facts)
        return
    # Without ListShards there is no map, and without a map no aggregation: somebody must fix a permanent
    # error.
    lasting = request.operation == "ListShards" and is_permanent(failure.code)
    level = logging.WARNING if lasting else logging.INFO
    facts["operation"] = request.operation
    logger.log(level, "%s failed: %s", request.operation, failure.code, extra=facts)


def log_user_records(count: int, text: str, *facts: object, **extra: object) -> None:
    """One line about so many user records, the first fact of ``text``, if there are any."""
    if count:
        logger.error(text, count, *facts, extra={"user_records": count, **extra})


def log_left_behind(count: int, why: str) -> None:
    log_user_records(count, "%d user records not delivered: %s", why, outcome="closed")
