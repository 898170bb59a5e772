"""Who is told what the producer does: metrics, lines of the log about calls that fail, the rows of a ledger.

`Reports` has a method for each thing that happens; only the core calls these. The log says of calls that fail
when failures of a kind begin, and when they end.

A *kind* is a call and an error code. Its first failure is said at once. What fails and works in turn is said
once a minute at most.

Specification: spec/05-producer.md, PRD-34 and PRD-81; spec/15-audit.md, AUD-1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from ..aws_errors import rule_of
from ..ledger.ledger_rows import Row, RowKind
from ..rendering.labels import safe
from ..shards.live_shard_map import Failure
from .batch import AnyCall, Batch, Call
from .config import Observe
from .metrics import Meter
from .record import Pending
from .results import MAY_BE_STORED, MOST_TEXT, Attempt, DeliveryError, explain_failure

#: Seconds between two lines that say that a kind of failure has begun.
_BETWEEN: Final = 60.0
#: The most kinds that are remembered.
_MOST_KINDS = 100
#: Codes of a listing of shards that is older than another one, or mixed of two. It passes within seconds.
_OF_A_LISTING: Final = ("gap", "overlap", "contradiction", "duplicate", "cycle")

#: A line of the log: its level, its text, attributes of the log record.
LogLine = tuple[Literal["info", "warning"], str, Mapping[str, Any]]


class FailingCalls:
    """The calls of one producer that fail at present, by operation and code."""

    def __init__(self) -> None:
        # When a line last said that calls of a kind fail; of which of them no line says since that they work.
        self._said_at: dict[tuple[str, str], float] = {}
        self._failing: set[tuple[str, str]] = set()
        self._lines: list[LogLine] = []

    def failed(self, operation: str, failure: Failure, now: float, **facts: Any) -> None:
        """A call has failed, or its answer is of no use."""
        code, reason = failure
        kind = (operation, code)
        # PRD-81: "When calls begin to fail, the log MUST say so once, with the stream, the call, what the
        # service said and what to do; and when they work again."
        if kind in self._failing or now < self._said_at.get(kind, float("-inf")) + _BETWEEN:
            return
        self._failing.add(kind)
        self._said_at[kind] = now
        if len(self._said_at) > _MOST_KINDS:
            self._failing.discard(oldest := next(iter(self._said_at)))
            del self._said_at[oldest]
        # PRD-34: a message about what is invalid may repeat it.
        words = explain_failure(code, None if rule_of(code).kind == "invalid" else reason)
        self._say(kind, f"failed: {words}", **facts)

    def worked(self, operation: str) -> None:
        """A call has worked."""
        for kind in [kind for kind in self._said_at if kind in self._failing and kind[0] == operation]:
            self._failing.remove(kind)
            self._say(kind, f"works again: it failed with {safe(kind[1])[:MOST_TEXT]}")

    def _say(self, kind: tuple[str, str], text: str, **facts: Any) -> None:
        operation, code = kind
        facts = {"operation": operation, "error_code": code, **facts}
        self._lines.append(("info" if code in _OF_A_LISTING else "warning", f"{operation} {text}", facts))

    def take(self) -> list[LogLine]:
        lines, self._lines = self._lines, []
        return lines


class LedgerRows:
    """Collects the rows of a producer's ledger: one for each attempt that has stored a Kinesis record, or may
    have, and counts of user records that were not delivered."""

    def __init__(self) -> None:
        self._rows: list[tuple[RowKind, str, str, int, float, bytes]] = []

    def add_attempt(self, batch: Batch, attempt: Attempt) -> None:
        """Add the row of an attempt that has ended."""
        # AUD-1: "Of each attempt that has stored a Kinesis record, or may have, a producer's ledger MUST have
        # a row: where it is, how many user records it has, and its digest."
        if attempt.outcome not in MAY_BE_STORED:
            return
        number, records = attempt.sequence_number, batch.records
        delivered = attempt.outcome == "delivered"
        kind: RowKind = "delivered" if delivered else "unanswered" if number is None else "again"
        shard_id = attempt.shard_id or attempt.predicted_shard or ""
        self._rows.append((kind, shard_id, number or "", len(records), records[0].accepted_at, batch.digest))

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
            Row(
                kind,
                shard_id,
                sequence_number=number,
                user_records=count,
                at=int((at + offset) * 1000),
                digest=digest,
            )
            for kind, shard_id, number, count, at, digest in rows
        ] + [
            Row(kind, code, sequence_number="", user_records=count, at=at * 1000)
            for (kind, code, at), count in failed.items()
        ]


class Reports(Meter):
    """All who are told: the metrics, and these. ``rows``: of a ledger, None without one."""

    def __init__(self, observe: Observe | None, *, keep_rows: bool) -> None:
        super().__init__(observe)
        self.failing_calls = FailingCalls()
        self.rows = LedgerRows() if keep_rows else None

    def answered(
        self, call: AnyCall, failure: Failure | None, now: float, *, no_map: bool = False, **facts: object
    ) -> None:
        """A call has ended. ``failure``: it has failed, or its answer is of no use. ``no_map``: so has the
        refresh of the shard map."""
        operation = "PutRecords"
        if isinstance(call, Call):
            facts["kinesis_records"] = len(call.batches)
            self.observe("RequestTime", (now - call.batches[0].sent_at) * 1000, {})
        else:
            operation = call.operation
        if failure is None:
            self.failing_calls.worked(operation)
            return
        self.failing_calls.failed(operation, failure, now, **facts)
        if no_map:
            self.observe("ShardMapErrors", 1, {"ErrorCode": failure.code})

    def attempt(self, batch: Batch, attempt: Attempt) -> None:
        """An attempt of a batch has ended. Call it while the batch has its user records."""
        if self.rows is not None:
            self.rows.add_attempt(batch, attempt)
        if attempt.outcome == "delivered":
            self.delivered(batch, attempt.shard_id or "")
        else:
            self.observe("ErrorsByCode", 1, {"ErrorCode": attempt.code or attempt.outcome})
            self.observe("AllErrors", 1, {})
