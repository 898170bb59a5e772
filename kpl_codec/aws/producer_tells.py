"""What the producers tell besides results: the log "kpl_codec.producer" (codes, counts, shard ids; never data
or keys), the caller's measuring, and the way of user records that were not delivered through
``on_undelivered``.

    results ──▶ take ──▶ held: waiting, then called one after the other ──▶ their futures
                  └── delivered ──────────────────────────────────────────▶ their futures

So a user record that was not delivered ends when ``on_undelivered`` has returned: until then it counts as
outstanding, its future has no result, and flush and close wait for it.
Specification: spec/05-producer.md, PRD-33 to PRD-35 and PRD-63 to PRD-65.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ..aws_errors import is_permanent
from ..producer import DeliveryError, Pending
from ..producer.kinesis_record import PutRecordsRequest
from ..producer.metrics import Observe
from ..shards.live_shard_map import Failure, Request

# PRD-34: "Log lines MUST NOT hold data, partition keys or explicit hash keys."
logger: Final = logging.getLogger("kpl_codec.producer")

#: What both producers take as ``on_undelivered``.
OnUndelivered = Callable[[DeliveryError], object]

#: Seconds after which a call that has not returned is told.
SLOW: Final = 10.0


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
    lasting = request.operation == "ListShards" and is_permanent(*failure)
    level = logging.WARNING if lasting else logging.INFO
    facts["operation"] = request.operation
    logger.log(level, "%s failed: %s", request.operation, failure.code, extra=facts)


def log_user_records(count: int, text: str, *facts: object, **extra: object) -> None:
    """One line about so many user records, the first fact of ``text``, if there are any."""
    if count:
        logger.error(text, count, *facts, extra={"user_records": count, **extra})


class Undelivered:
    """``function``: the caller's; None: nothing is held. Used with the producers' lock held, but for `call`
    and `tell`."""

    def __init__(self, function: OnUndelivered | None, clock: Callable[[], float]) -> None:
        self.function = function
        self.held: set[Pending] = set()
        self.waiting: list[Pending] = []  # of these
        #: The thread or task that calls it now.
        self.caller: object = None
        self._clock = clock
        self._called_at: float | None = None
        self._raised: Counter[str] = Counter()

    def take(self, ended: list[Pending]) -> list[Pending]:
        """Hold those that were not delivered. Returns the others."""
        # PRD-64: "on_undelivered MUST be called exactly once for each user record that ends without being
        # delivered, with its DeliveryError, before its future has a result."
        if self.function is None:
            return ended
        kept = [pending for pending in ended if isinstance(pending.result, DeliveryError)]
        if not kept:
            return ended
        self.waiting += kept
        self.held.update(kept)
        return [pending for pending in ended if not isinstance(pending.result, DeliveryError)]

    def next(self, caller: object) -> list[Pending]:
        """Those to call it for now. Without any nobody calls it any more."""
        batch, self.waiting = self.waiting, []
        self.caller = caller if batch else None
        return batch

    def call(self, error: DeliveryError) -> Any:
        assert self.function is not None
        self._called_at = self._clock()
        # PRD-65: "Whatever on_undelivered raises, and however long it takes, MUST NOT cost another user
        # record its delivery or its result; both MUST be told in the log."
        try:
            return self.function(error)
        except BaseException as raised:  # noqa: BLE001 - see above
            self.has_raised(raised)
        finally:
            self._called_at = None

    def call_all(self, left: Iterator[Pending]) -> list[Any]:
        return [self.call(pending.result) for pending in left]

    async def finish(self, given: Any) -> None:
        if not hasattr(given, "__await__"):
            return
        self._called_at = self._clock()
        try:
            await given
        except Exception as raised:  # noqa: BLE001 - as in `call`
            self.has_raised(raised)
        finally:
            self._called_at = None

    def has_raised(self, raised: BaseException) -> None:
        """Remember what is wrong with it, without the text of the error, which may repeat data."""
        frames = traceback.extract_tb(raised.__traceback__)
        place = f" in {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
        self._raised[f"{type(raised).__name__}{place}"] += 1

    def tell(self) -> None:
        """Log what it has raised; and, once, that a call has not returned for long."""
        raised = self._raised
        if raised:
            self._raised = Counter()
        for what, count in raised.items():
            log_user_records(count, "on_undelivered failed for %d user records: %s", what)
        if self._called_at is not None and self._clock() >= self._called_at + SLOW:
            self._called_at = None
            text = "on_undelivered has not returned for %d s; %d user records wait for it"
            held = len(self.held)
            logger.warning(text, SLOW, held, extra={"user_records": held})
