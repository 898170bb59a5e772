"""What the log says about calls that fail: a line when failures of a kind begin, and one when they end.

A *kind* is a call and an error code. Its first failure is said at once. What fails and works in turn is said
once a minute at most; calls that fail for longer than that are said when the minute is over.

    time     0 s     1 s     5 s .. 50 s   60 s     62 s
    calls    fails   works   fail          fails    works
    said     failed  works                 failed   works

Specification: spec/05-producer.md, PRD-34 and PRD-81. No clock, no log: `take` gives the lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from ..aws_errors import advice_of, rule_of
from ..rendering.labels import safe
from ..shards.live_shard_map import Failure

#: Seconds between two lines that say that a kind of failure has begun.
_BETWEEN: Final = 60.0
#: The most kinds that are remembered, and the most characters of what the service said.
_MOST_KINDS, _MOST_TEXT = 100, 300
#: Codes of a listing of shards that is older than another one, or mixed of two. It passes within seconds.
_OF_A_LISTING: Final = ("gap", "overlap", "contradiction", "duplicate", "cycle")


Level = Literal["info", "warning"]


class LogLine(NamedTuple):
    """``facts``: attributes of the log record."""

    level: Level
    text: str
    facts: Mapping[str, Any]


def explain_failure(code: str, reason: str | None) -> str:
    """The code, what the service said, and what to do: one line without control characters."""
    advice = advice_of(code)
    said = safe(reason.partition("\n")[0].strip().rstrip("."))[:_MOST_TEXT] if reason else ""
    todo = advice.todo if advice.who == "nobody" and not said else advice.text
    return f"{safe(code)[:_MOST_TEXT]}: {said or advice.means}; {todo}"


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
            self._say(kind, f"works again: it failed with {safe(kind[1])[:_MOST_TEXT]}")

    def _say(self, kind: tuple[str, str], text: str, **facts: Any) -> None:
        operation, code = kind
        level: Level = "info" if code in _OF_A_LISTING else "warning"
        facts = {"operation": operation, "error_code": code, **facts}
        self._lines.append(LogLine(level, f"{operation} {text}", facts))

    def take(self) -> list[LogLine]:
        lines, self._lines = self._lines, []
        return lines
