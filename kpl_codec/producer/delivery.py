"""Gives user records their results: a Delivery, or a DeliveryError, with which on_undelivered is called
first. Also writes the log "kpl_codec.producer" and the rows of a ledger: codes, counts, shard ids, never data
or keys.

Specification: spec/05-producer.md, PRD-10, PRD-34 and PRD-63 to PRD-65; spec/15-audit.md, AUD-1.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..base.compiled import prefer_compiled
from ..errors import place_of
from ..format.compression import decompress
from ..ledger.ledger_rows import Row, RowKind
from ..rendering.labels import plural
from .config import ProducerConfig
from .outcomes import MAY_BE_STORED, NO_HISTORY, Attempt, Delivery, DeliveryError, Outcome, Put
from .pending import KEYLESS_PARTITION_KEY, Pending
from .process import logger
from .record_builder import KinesisRecordBuilder

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:  # before Python 3.11 it has no type arguments
    _Adapter = logging.LoggerAdapter


def deliver(records: list[Pending], attempt: Attempt) -> None:
    """``attempt`` has delivered the Kinesis record of these user records: give them their results."""
    shard_id, sequence_number = attempt.shard_id, attempt.sequence_number
    assert shard_id is not None
    assert sequence_number is not None
    _deliver(Delivery, records, shard_id, sequence_number, (attempt,))


def deliver_in_python(
    kind: type[Delivery], records: list[Pending], shard_id: str, number: str, last: tuple[Attempt]
) -> None:
    for index, pending in enumerate(records):
        history = pending.history or NO_HISTORY
        attempts = (*history.attempts, *last) if history.attempts else last
        pending.result = kind(shard_id, number, index, attempts, history.left_out)


_deliver = prefer_compiled("deliver", deliver_in_python)


def undelivered(
    config: ProducerConfig, stream: str, pending: Pending, outcome: Outcome, code: str | None = None
) -> Pending:
    """``pending`` with a DeliveryError as its result. ``stream``: its name. ``code``: the service's error
    code, if that ended it."""
    # PRD-63: "A DeliveryError MUST hold the user record as it was put."
    key, data, explicit_hash_key, tags = pending.record
    keyless = pending.keyless and key == KEYLESS_PARTITION_KEY
    if config.compression != "none":
        data = decompress(data, 2**62)  # as large as the caller's was
    # PRD-10: "Every accepted user record MUST end exactly once: as a Delivery, or as a DeliveryError with
    # the reason and all attempts."
    history = pending.history or NO_HISTORY
    pending.result = DeliveryError(
        user_record=Put(
            None if keyless else key, data, explicit_hash_key if pending.own_hash_key else None, tags
        ),
        outcome=outcome,
        stream=stream,
        code=code or outcome,
        attempts=history.attempts,
        attempts_left_out=history.left_out,
        left_out_may_be_stored=history.may_be_stored,
    )
    return pending


class StreamLog(_Adapter):
    """The log of one producer: each line begins with its stream, which is an attribute of the log record,
    too."""

    def __init__(self, stream: str) -> None:
        super().__init__(logger, {"stream": stream})

    def process(self, msg: object, kwargs: Any) -> tuple[object, Any]:
        """As `logging.LoggerAdapter.process`."""
        facts = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return f"stream {facts['stream']}: {msg}", {**kwargs, "extra": facts}

    def user_records(self, count: int, text: str, *facts: object, **extra: object) -> None:
        """One line about ``count`` user records, unless that is 0. ``count`` fills the first %s of
        ``text``."""
        if count:
            self.error(text, plural(count, "user record"), *facts, extra={"user_records": count, **extra})

    def undelivered(self, errors: Sequence[DeliveryError]) -> None:
        """One line for each outcome and code; those that may be stored apart, as a ledger has them, too."""
        kinds = Counter((error.outcome, error.reason, error.may_be_stored) for error in errors)
        words = {error.reason: error.explanation for error in errors}
        for (outcome, code, stored), count in kinds.items():
            text = "%s not delivered: %s (%s)" + stored * "; may be on the stream all the same"
            facts = {"outcome": outcome, "error_code": code, "may_be_stored": stored}
            self.user_records(count, text, outcome, words[code], **facts)


class LedgerRows:
    """Collects the rows of a producer's ledger: one for each attempt that has stored a Kinesis record, or may
    have, and counts of user records that were not delivered."""

    def __init__(self) -> None:
        self._rows: list[tuple[RowKind, str, str, int, float, bytes]] = []

    def add_attempt(self, outgoing: KinesisRecordBuilder, attempt: Attempt) -> None:
        """Add the row of an attempt that has ended. Call it while ``outgoing`` still has its user records."""
        # AUD-1: "Of each attempt that has stored a Kinesis record, or may have, a producer's ledger MUST have
        # a row: where it is, how many user records it has, and its digest."
        if attempt.outcome not in MAY_BE_STORED:
            return
        number, records = attempt.sequence_number, outgoing.records
        delivered = attempt.outcome == "delivered"
        kind: RowKind = "delivered" if delivered else "unanswered" if number is None else "again"
        shard_id = attempt.shard_id or attempt.predicted_shard or ""
        self._rows.append(
            (kind, shard_id, number or "", len(records), records[0].accepted_at, outgoing.digest)
        )

    def take(self, ended: Sequence[Pending], offset: float) -> list[Row]:
        """The rows since the last call, and those of the user records that have ended without being
        delivered. ``offset``: seconds to add to the producer's clock for seconds since 1970."""
        rows, self._rows = self._rows, []
        failed = Counter[tuple[RowKind, str, int]]()
        for pending in ended:
            if isinstance(error := pending.result, DeliveryError):
                kind: RowKind = "left" if error.may_be_stored else "refused"
                failed[kind, error.code, int(pending.accepted_at + offset)] += 1
        return [
            Row(kind, shard_id, number, count, int((at + offset) * 1000), digest)
            for kind, shard_id, number, count, at, digest in rows
        ] + [Row(kind, code, "", count, at * 1000) for (kind, code, at), count in failed.items()]


class UndeliveredCallback:
    """The caller's on_undelivered, and the user records that wait for it. ``function`` None: there is none.

    ``held``: user records whose futures wait until the function has returned; ``waiting``: those of them for
    which it was not called yet. ``caller``: the thread or task that calls it now. ``called_at``: when the
    call under way began.
    """

    def __init__(
        self, function: Callable[[DeliveryError], object] | None, clock: Callable[[], float], log: StreamLog
    ) -> None:
        self.function, self._log = function, log
        self.held: set[Pending] = set()
        self.waiting: list[Pending] = []
        self.caller: object = None
        self.called_at: float | None = None
        self._clock = clock
        self._raised: Counter[str] = Counter()

    def hold(self, ended: list[Pending]) -> list[Pending]:
        """Hold the user records that were not delivered. Returns the others."""
        # PRD-64: "on_undelivered MUST be called exactly once for each user record that ends without being
        # delivered, with its DeliveryError, before its future has a result."
        if self.function is None:
            return ended
        failed = [pending for pending in ended if isinstance(pending.result, DeliveryError)]
        self.waiting += failed
        self.held.update(failed)
        return [pending for pending in ended if pending not in self.held] if failed else ended

    def take_waiting(self, caller: object) -> list[Pending]:
        """The user records for which ``caller`` is to call the function now. If there are none, it stops
        calling."""
        batch, self.waiting = self.waiting, []
        self.caller = caller if batch else None
        return batch

    def call(self, error: DeliveryError) -> Any:
        """Call the function. Returns what it returns: an awaitable, for `finish`, from a coroutine
        function."""
        assert self.function is not None
        self.called_at = self._clock()
        # PRD-65: "Whatever on_undelivered raises, and however long it takes, MUST NOT cost another user
        # record its delivery or its result; what it raises MUST be logged."
        try:
            return self.function(error)
        except BaseException as raised:  # noqa: BLE001 - see above
            self.has_raised(raised)
        finally:
            self.called_at = None

    def call_all(self, records: Iterator[Pending]) -> list[Any]:
        return [self.call(pending.result) for pending in records]

    async def finish(self, result: Any) -> None:
        import asyncio  # the thread producer need not load it

        if not hasattr(result, "__await__"):
            return
        self.called_at = self._clock()
        try:
            await result
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - as in `call`
            self.has_raised(raised)
        except asyncio.CancelledError as raised:
            # What it awaited was cancelled, or this task. (Python 3.10 does not say which.)
            if getattr(asyncio.current_task(), "cancelling", lambda: 1)():
                raise
            self.has_raised(raised)
        finally:
            self.called_at = None

    def has_raised(self, raised: BaseException) -> None:
        """Count an error by its place, without its text, which may repeat data."""
        self._raised[place_of(raised)] += 1

    def log_calls(self) -> list[Callable[[], object]]:
        """The log calls to make about errors that the function has raised."""
        raised, self._raised = self._raised, Counter()
        text = "on_undelivered failed for %s: %s"
        return [partial(self._log.user_records, count, text, place) for place, count in raised.items()]
