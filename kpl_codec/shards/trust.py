"""Whether a live shard map may be used to predict. One table.

    state   | event                                     | becomes | and
    --------+-------------------------------------------+---------+--------------------------------------
    NONE    | a listing, begun since trust ended        | TRUSTED |
    NONE    | a listing, begun before                   | NONE    | another refresh is needed
    TRUSTED | a report, while reports count             | DOUBTED | a refresh is needed
    TRUSTED | a report, while they do not               | TRUSTED |
    TRUSTED | a listing that changed the map            | TRUSTED | reports count again
    TRUSTED | a listing that did not                    | TRUSTED |
    DOUBTED | a report                                  | DOUBTED |
    DOUBTED | a listing, begun before the report        | DOUBTED | another refresh is needed
    DOUBTED | a listing, and the map has changed since  | TRUSTED | reports count again
    DOUBTED | a listing, and it has not                 | TRUSTED | reports do not count for a backoff
    any     | the stream is gone, or may be another one | NONE    |

A *report* says that a record landed on another shard than predicted. A *listing* is the sound answer of a
refresh. Times are seconds of the caller's clock.
Specification: spec/08-live-shard-map.md, MAP-1, MAP-15, MAP-17.
"""

from __future__ import annotations

from enum import Enum

from ..backoff import Backoff


class TrustState(str, Enum):
    """See the table of this module."""

    NONE = "NONE"
    TRUSTED = "TRUSTED"
    DOUBTED = "DOUBTED"


class Trust:
    """The table as a machine. ``backoff``: for how long reports do not count."""

    def __init__(self, backoff: Backoff) -> None:
        self.state = TrustState.NONE
        self._backoff = backoff
        self._since = float("-inf")  # of NONE and DOUBTED: listings begun before do not count
        self._changed = False  # of DOUBTED: whether a listing has changed the map
        self._in_vain = 0  # reports in a row whose listings changed nothing
        self._reports_count_from = float("-inf")

    def report(self, seen_at: float, now: float) -> bool:
        """A report of something seen at ``seen_at``. Returns whether a refresh is needed for it."""
        # MAP-15: "After a report whose refresh changed nothing, reports MUST be ignored for a time that
        # grows as the backoff does, until a refresh changes the map."
        if self.state is not TrustState.TRUSTED or now < self._reports_count_from:
            return False
        self.state, self._since, self._changed = TrustState.DOUBTED, min(seen_at, now), False
        return True

    def end(self, now: float) -> None:
        """The stream is gone, or may be another one under its name."""
        self.state, self._since = TrustState.NONE, now

    def listed(self, begun: float, *, changed: bool, now: float) -> bool:
        """A listing of a refresh that began at ``begun``; ``changed``: the map is another one by it.

        Returns whether another refresh is needed, because this one may not have seen what the last report
        saw.
        """
        self._changed |= changed
        if self.state is not TrustState.TRUSTED and begun < self._since:
            return True
        if self._changed:
            self._in_vain, self._reports_count_from = 0, float("-inf")
        elif self.state is TrustState.DOUBTED:
            # Records land elsewhere, and the listing says they should not: a listing that lags behind a
            # split, or a stream that ignores keys. To ask again at once would go on for ever, and leave
            # the producer without predictions most of the time.
            self._reports_count_from = now + self._backoff.seconds(self._in_vain)
            self._in_vain += 1
        self.state, self._changed = TrustState.TRUSTED, False
        return False
