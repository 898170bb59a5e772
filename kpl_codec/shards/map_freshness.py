"""Whether a live shard map may be used to predict: a state machine, by one table.

    state   | event                                     | becomes | and
    --------+-------------------------------------------+---------+--------------------------------------
    NONE    | a listing, begun since trust ended        | TRUSTED |
    NONE    | a listing, begun before                   | NONE    | another refresh is needed
    any     | a listing with a gap or an overlap, begun | DOUBTED | the shards that this concerns are in doubt
            | since trust ended and since the reports   |         |
    TRUSTED | a report, while reports count             | DOUBTED | a refresh is needed
    TRUSTED | a report, while they do not               | TRUSTED |
    TRUSTED | a listing that changed the map            | TRUSTED | reports count again
    TRUSTED | a listing that did not                    | TRUSTED |
    DOUBTED | a report of a shard that is not in doubt  | DOUBTED | a refresh is needed for it, too
    DOUBTED | a report of one that is                   | DOUBTED |
    DOUBTED | a listing, begun before the report        | DOUBTED | another refresh is needed
    DOUBTED | a listing, and the map has changed since  | TRUSTED | reports count again
    DOUBTED | a listing, and it has not                 | TRUSTED | reports do not count for a backoff
    any     | the stream is gone, or may be another one | NONE    |

A *report* says that a record is on another shard than predicted. Then the predicted shard is in doubt; the
others are predicted as before. A *listing* is the sound result of a refresh. Times are seconds of the
caller's clock.
Specification: spec/08-live-shard-map.md, MAP-1, MAP-15, MAP-17.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from ..aws_errors import Backoff

#: See the table of this module.
FreshnessState = Literal["NONE", "TRUSTED", "DOUBTED"]


class MapFreshness:
    """The state machine of the table. ``backoff``: for how long reports do not count."""

    def __init__(self, backoff: Backoff) -> None:
        self.state: FreshnessState = "NONE"
        self._in_doubt: set[str] | None = set()  # while DOUBTED: shard ids; None for all
        self._backoff = backoff
        self._since = float("-inf")  # while NONE or DOUBTED: listings begun before do not count
        self._map_changed = False  # while DOUBTED: whether a listing has changed the map
        self._vain_reports = 0  # reports in a row whose listings changed nothing
        self._reports_count_from = float("-inf")

    @property
    def in_doubt(self) -> Collection[str] | None:
        """The shards that may not be predicted; None if none may be."""
        return None if self.state == "NONE" else self._in_doubt

    def report(self, shard_id: str | None, seen_at: float, now: float) -> bool:
        """Take a report of what was seen at ``seen_at``; returns whether it needs a refresh. ``shard_id``:
        the shard that was predicted, None to doubt all."""
        # MAP-15: "After a report whose refresh changed nothing, reports MUST be ignored for a time that
        # grows as the backoff does, until a refresh changes the map."
        if self.state == "NONE" or now < self._reports_count_from:
            return False
        if self.state == "TRUSTED":
            self.state, self._since, self._map_changed = "DOUBTED", min(seen_at, now), False
        elif self._in_doubt is None or shard_id in self._in_doubt:
            return False
        self._since = max(self._since, min(seen_at, now))
        if shard_id is None or self._in_doubt is None:
            self._in_doubt = None
        else:
            self._in_doubt.add(shard_id)
        return True

    def end(self, now: float) -> None:
        """The stream is gone, or may be another one under its name."""
        self.state, self._since, self._in_doubt = "NONE", now, set()

    def dispute(self, begun: float, shard_ids: Collection[str]) -> None:
        """Take a listing with a gap or an overlap, of a refresh that began at ``begun``. ``shard_ids``: the
        shards that cannot be predicted because of it."""
        if self.state == "TRUSTED" or begun >= self._since:
            self.state, self._since, self._in_doubt = "DOUBTED", begun, set(shard_ids)
            self._map_changed = True
        elif self._in_doubt is not None:
            self._in_doubt.update(shard_ids)

    def accept(self, begun: float, *, changed: bool, now: float) -> bool:
        """Take a listing of a refresh that began at ``begun``. ``changed``: it changed the map. Returns
        whether another refresh is needed, because this one began before the last report."""
        self._map_changed |= changed
        if self.state != "TRUSTED" and begun < self._since:
            return True
        if self._map_changed:
            self._vain_reports, self._reports_count_from = 0, float("-inf")
        elif self.state == "DOUBTED":
            # The listing does not explain the misplaced records: it is older than a split, or the stream
            # ignores keys. Refreshing again at once could go on endlessly, and would leave the producer
            # without predictions most of the time.
            self._reports_count_from = now + self._backoff.seconds(self._vain_reports)
            self._vain_reports += 1
        self.state, self._map_changed, self._in_doubt = "TRUSTED", False, set()
        return False
