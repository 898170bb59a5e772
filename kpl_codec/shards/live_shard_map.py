"""The live shard map of a stream, which follows its splits and merges. It does no I/O: its driver makes the
calls.

    driver                                   LiveShardMap
     | refresh(now) / invalidate(...)  ──▶   wants a refresh
     | ◀── next_request(now)                 Request("ListShards", {...}), one at a time
     | receive(request, response, now) ──▶   next page, or a new map; returns a MapChanged
     | fail(request, failure, now)     ──▶   the refresh has failed; returns a RefreshFailed
     | ◀── timer()                           when to call next_request again
     | predict(hash_key)               ──▶   shard id, None where it is not known

A map that is not trusted predicts nothing: a user record sent alone needs no prediction, and an aggregate
made for a shard that has split would be misplaced. But one split does not stop the others: after
`invalidate`, or a listing with a gap or an overlap, only the shards and hash keys that this concerns are not
predicted. Times are seconds of one monotonic clock of the caller. Not thread-safe, but `predict` only reads
one attribute, replaced as a whole. Specification: spec/08-live-shard-map.md, 8.1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal

from ..aws_errors import Backoff, is_permanent
from ..errors import ShardMapError
from .lineage import Lineage
from .refresh import Failure, Listing, Refresh, RefreshFailed, Request, ShardFilterType, StreamUnavailable
from .shard import Shard
from .shard_map import NO_ROUTES, ShardMap
from .stream_name import stream_of
from .stream_state import KnownShards, MapChanged, RefusedListing, StreamState, learn, shard_of_record

__all__ = [
    "Failure",
    "LiveShardMap",
    "MapChanged",
    "RefreshFailed",
    "Request",
    "StreamUnavailable",
]

#: The waits before the next refresh: after an error, and after an error that a retry cannot solve.
_BACKOFF, _PERMANENT_BACKOFF = Backoff(1.0, 30.0, 1.5), Backoff(1.0, 300.0)


#: READY: the map is trusted. UPDATING: it is not, and a refresh runs. INVALID: it is not, and none runs.
MapState = Literal["INVALID", "UPDATING", "READY"]


class MapFreshness:
    """Decides whether a live shard map may be used to predict: a state machine.

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

    A *report* says that a record is on another shard than predicted: that shard is then in doubt. A *listing*
    is the sound result of a refresh. ``backoff``: seconds for which reports do not count. Times are seconds.
    """

    def __init__(self, backoff: Backoff) -> None:
        self.state: Literal["NONE", "TRUSTED", "DOUBTED"] = "NONE"
        self._in_doubt: set[str] | None = set()  # while DOUBTED: shard ids; None for all
        self._backoff = backoff
        self._since = float("-inf")  # while NONE or DOUBTED: listings begun before do not count
        self._map_changed = False  # while DOUBTED: whether a listing has changed the map
        self._vain_reports = 0  # reports in a row whose listings changed nothing
        self._reports_count_from = float("-inf")

    @property
    def in_doubt(self) -> Collection[str] | None:
        """The shards that may not be predicted; None: all."""
        return None if self.state == "NONE" else self._in_doubt

    def report(self, shard_id: str | None, seen_at: float, now: float) -> bool:
        """Take a report of a record that was seen at ``seen_at``; returns whether it needs a refresh.
        ``shard_id``: the predicted shard, None to doubt all."""
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
        """Trust nothing any more: the stream is gone, or may be another one under the same name."""
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
        """Take a sound listing of a refresh that began at ``begun``. Returns whether another refresh is
        needed, because this one began before the last report."""
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


class LiveShardMap:
    """The live shard map of one stream, given by its name or ARN.

    ``shard_filter``: AT_LATEST lists open shards only, FROM_TRIM_HORIZON also the closed ones that still hold
    records (for lineage). ``refresh_interval``: seconds between routine refreshes, None for none.
    ``describe``: call DescribeStreamSummary, too, which shows AUTO distribution and that a stream was created
    again. ``chance``: returns a random number from 0 up to 1.
    """

    def __init__(
        self,
        stream: str,
        *,
        shard_filter: ShardFilterType = "AT_LATEST",
        refresh_interval: float | None = None,
        describe: bool = True,
        chance: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.stream = stream
        self._chance = chance
        stream_name = stream_of(stream)
        self._argument = stream_name.argument
        self._shard_filter = shard_filter
        self._interval = refresh_interval
        self._describe = describe
        self._freshness = MapFreshness(_BACKOFF)
        #: The shards and the summary of the stream, trusted or not. Replaced as a whole.
        self.stream_state = StreamState(KnownShards({}, {}, "USER_PARTITION_KEY", stream_name))
        #: The prediction table, without the shards that are in doubt. Replaced as a whole: other threads read
        #: it.
        self.routes = NO_ROUTES
        self._refresh: Refresh | None = None
        self._retry_at: float | None = None
        self._failures = 0
        self._failed_at = float("-inf")
        self._requests = 0
        #: Why the last refresh failed; None if it did not.
        self.error: StreamUnavailable | None = None

    @property
    def state(self) -> MapState:
        if self._freshness.state == "TRUSTED":
            return "READY"
        return "UPDATING" if self._refresh is not None else "INVALID"

    @property
    def shard_map(self) -> ShardMap | None:
        """The last sound map, trusted or not; None before the first."""
        return self.stream_state.shards.shard_map

    @property
    def lineage(self) -> Lineage:
        """Every shard of this life of the stream that is not forgotten (MAP-20)."""
        return self.stream_state.shards.lineage

    def shard(self, shard_id: str) -> Shard | None:
        """A known shard, open or closed; None if it is unknown or forgotten."""
        return self.stream_state.shards.all.get(shard_id)

    @property
    def permanent_error(self) -> StreamUnavailable | None:
        """The error that a retry cannot solve, because of which there is no map; None without one."""
        return self.error if self.state == "INVALID" and self._failed_for_good else None

    @property
    def map_may_come(self) -> bool:
        """Whether there is no trusted map yet, and no permanent error."""
        return self.state != "READY" and (
            self._refresh is not None or (self._retry_at is not None and self.permanent_error is None)
        )

    def predict(self, hash_key: int) -> str | None:
        """The id of the open shard that takes ``hash_key``; None while that shard is in doubt, and on an AUTO
        stream. O(log n). Raises HashKeyError outside 0 to 2^128 - 1."""
        return self.routes.predict(hash_key)

    def _update_routes(self) -> None:
        in_doubt = self._freshness.in_doubt
        # MAP-1: "A prediction MUST come from a map that is trusted for its shard; otherwise the answer is
        # that none can be made."
        # MAP-13: "On a stream that distributes records AUTO no prediction MUST be made."
        if in_doubt is None or self.stream_state.shards.distribution == "AUTO":
            self.routes = NO_ROUTES
        else:
            self.routes = self.stream_state.routes.without(in_doubt)

    def shard_of_record(
        self, shard_id: str, sequence_number: str, *, generation: int, answered_at: float
    ) -> Shard | Literal["unknown", "gone"]:
        """As `stream_state.shard_of_record`."""
        shard = shard_of_record(self.stream_state, shard_id, sequence_number, generation, answered_at)
        # After a sign that this may be another stream, nothing is known until the next listing.
        return "unknown" if self._freshness.state == "NONE" and shard != "gone" else shard

    def refresh(self, now: float) -> bool:
        """Start a refresh, unless one runs or waits for its backoff; returns whether it did. After a
        permanent error it does not wait: the caller has fixed something."""
        # MAP-3: "At most one refresh MUST run at a time, however many callers ask."
        backing_off = self._failures and self._retry_at is not None and not self._failed_for_good
        if self._refresh is not None or backing_off:
            return False
        self._start(now)
        return True

    @property
    def _failed_for_good(self) -> bool:
        return self.error is not None and self.error.permanent

    def invalidate(self, seen_at: float, predicted_shard: str | None, now: float) -> bool:
        """Report that a record sent at ``seen_at`` is on another shard than ``predicted_shard``, None to
        doubt all. Returns whether the report counts: then a refresh starts, and that shard is not predicted
        until its end."""
        listed_at = self.stream_state.listed_at
        # MAP-4: "A report MUST be ignored if the map's refresh began at or after the record was sent: it
        # covers what the record saw."
        if listed_at is not None and seen_at <= listed_at:
            return False
        # MAP-5: "A report MUST be ignored if the predicted shard is not open in the map: the map has
        # learnt that already."
        if predicted_shard is not None and not self.stream_state.is_open(predicted_shard):
            return False
        if not self._freshness.report(predicted_shard, seen_at, now):
            return False
        if predicted_shard is None:
            self._update_routes()
        else:
            self.routes.remove(predicted_shard)
        if self._refresh is None:
            self._start(now)
        return True

    def stream_gone(self, now: float) -> None:
        """Report that a call found no such stream, or that a record is of another life of the stream."""
        # MAP-17: "When a failure says that the stream is gone, trust in the map MUST end until a listing
        # that began after it."
        self._freshness.end(now)
        self._update_routes()
        if self._refresh is not None:
            self._refresh.outdated = True
        elif not self._failures:
            self._start(now)

    def stream_seen(self, now: float) -> None:
        """Report that a call has found the stream: a refresh that did not find it may start again."""
        error = self.permanent_error
        if error is not None and error.code == "ResourceNotFoundException" and now >= self._failed_at + 1:
            self.refresh(now)

    def _start(self, now: float) -> None:
        self._retry_at = None
        self._refresh = Refresh(now, self._argument, self._shard_filter, describe=self._describe)

    def timer(self) -> float | None:
        """When to call `next_request` again if nothing else happens; None for never."""
        return self._retry_at if self._refresh is None else None

    def next_request(self, now: float) -> Request | None:
        """The call to make now; None if there is none, or it is under way."""
        if self._refresh is None and self._retry_at is not None and now >= self._retry_at:
            self._start(now)
        if self._refresh is None:
            return None
        request = self._refresh.next_request(self._requests + 1)
        if request is not None:
            self._requests += 1
        return request

    def receive(self, request: Request, response: Any, now: float) -> MapChanged | RefreshFailed | None:
        """Take the response to ``request``. Returns an event when the refresh is over."""
        refresh = self._refresh
        if refresh is None or not refresh.finish(request):
            return None
        if request.operation == "DescribeStreamSummary":
            refresh.add_summary(response)
            return None
        try:
            listing = refresh.add_page(response, self.stream_state.shards.all)
        except ShardMapError as error:
            return self._end_with_error("ListShards", error.code, error.reason.partition(": ")[0], now)
        return None if listing is None else self._end_with_listing(listing, refresh, now)

    def fail(self, request: Request, failure: Failure, now: float) -> RefreshFailed | None:
        """Take the failure of ``request``: an error, or no response."""
        refresh = self._refresh
        if refresh is None or not refresh.finish(request):
            return None
        if request.operation == "DescribeStreamSummary" and failure.code != "ResourceNotFoundException":
            # Many roles may not call it, and an account has only 20 calls a second. The map works without it
            # and keeps the last known summary.
            refresh.add_summary(None)
            return None
        return self._end_with_error(request.operation, failure.code, failure.reason, now)

    def _end_with_error(
        self, operation: str, code: str, reason: str, now: float, *, routes_changed: bool = False
    ) -> RefreshFailed:
        self._refresh = None
        permanent = is_permanent(code, reason)
        if permanent != self._failed_for_good:
            self._failures = 0
        self.error = StreamUnavailable(
            stream=self.stream, operation=operation, code=code, reason=reason, permanent=permanent
        )
        if code == "ResourceNotFoundException":
            self._freshness.end(now)
            self._update_routes()
        # MAP-8: "An error that no retry can mend (no such stream, access denied) MUST be given at once to
        # every caller that waits. The map is asked for again after a backoff that grows from 1 s to at most
        # 300 s, and at once when a caller asks."
        # MAP-10: "A refresh that failed otherwise MUST be tried again after a backoff that grows
        # from 1 s to at most 30 s, less a random part of at most half, and starts anew once a map was
        # installed."
        backoff = _PERMANENT_BACKOFF if permanent else _BACKOFF
        self._retry_at = now + backoff.seconds(self._failures, self._chance())
        self._failures += 1
        self._failed_at = now
        return RefreshFailed(now, self.error, self._retry_at, routes_changed)

    def _end_with_listing(self, listing: Listing, refresh: Refresh, now: float) -> MapChanged | RefreshFailed:
        before, outcome = self.stream_state, learn(self.stream_state, listing, now)
        begun = float("-inf") if refresh.outdated else listing.begun
        # MAP-7: "A listing that contradicts itself or what is known (cycle, duplicate, contradiction)
        # MUST NOT become the map; the refresh has failed and is tried again."
        if isinstance(outcome, RefusedListing):
            self.stream_state, error = outcome.state, outcome.error
            if outcome.disputed is not None:
                self._freshness.dispute(begun, outcome.disputed)
                self._update_routes()
            routes_changed = outcome.disputed is not None
            return self._end_with_error(
                "ListShards", error.code, error.describe(), now, routes_changed=routes_changed
            )
        self.stream_state = outcome
        recreated = outcome.generation != before.generation
        changed = recreated or outcome.shards.open_ids != before.shards.open_ids
        self._refresh = self.error = None
        self._failures = 0
        self._retry_at = now + self._interval if self._interval is not None else None
        if self._freshness.accept(begun, changed=changed, now=now):
            self._start(now)
        self._update_routes()
        return MapChanged(recreated)
