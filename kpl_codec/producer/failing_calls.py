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
from ..rendering.labels import plural, safe
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


class _Kind:
    """Failures of a kind. ``begun``: when calls began to fail, None while they work; ``count``: how many have
    failed since then. ``said``: whether a line says so; ``said_at``: when the last such line was made."""

    def __init__(self) -> None:
        self.begun: float | None = None
        self.count = 0
        self.said = False
        self.said_at = float("-inf")


class FailingCalls:
    """The calls of one producer that fail at present, by operation and code."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._lines: list[LogLine] = []

    def failed(self, operation: str, failure: Failure, now: float, **facts: Any) -> None:
        """A call has failed, or its answer is of no use."""
        code, reason = failure
        kind = self._kinds.setdefault((operation, code), _Kind())
        if len(self._kinds) > _MOST_KINDS:
            del self._kinds[next(iter(self._kinds))]
        if kind.begun is None:
            kind.begun, kind.count, kind.said = now, 0, False
        kind.count += 1
        # PRD-81: "When calls begin to fail, the log MUST say so once, with the stream, the call, what the
        # service said and what to do; and when they work again."
        if kind.said or now < kind.said_at + _BETWEEN:
            return
        kind.said, kind.said_at = True, now
        # PRD-34: a message about what is invalid may repeat it.
        words = explain_failure(code, None if rule_of(code).kind == "invalid" else reason)
        since = f" ({plural(kind.count, 'call')} in {now - kind.begun:.0f} s)" if kind.count > 1 else ""
        level: Level = "info" if code in _OF_A_LISTING else "warning"
        facts = {"operation": operation, "error_code": code, **facts}
        self._lines.append(LogLine(level, f"{operation} failed: {words}{since}", facts))

    def worked(self, operation: str, now: float) -> None:
        """A call has worked."""
        for (of, code), kind in self._kinds.items():
            if of != operation or kind.begun is None:
                continue
            if kind.said:
                failed = f"{plural(kind.count, 'call')} failed in {now - kind.begun:.0f} s"
                level: Level = "info" if code in _OF_A_LISTING else "warning"
                facts = {"operation": operation, "error_code": code}
                text = f"{operation} works again: {failed} ({safe(code)[:_MOST_TEXT]})"
                self._lines.append(LogLine(level, text, facts))
            kind.begun = None

    def take(self) -> list[LogLine]:
        lines, self._lines = self._lines, []
        return lines
