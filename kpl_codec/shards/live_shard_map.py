"""The live shard map of a stream, which follows its splits and merges. It does no I/O: its driver makes the
calls.

    driver                                   LiveShardMap
     | refresh(now) / invalidate(...)  ──▶   wants a refresh
     | ◀── next_request(now)                 Request("ListShards", {...}), one at a time
     | receive(request, response, now) ──▶   next page, or the end of the refresh: a Refreshed
     | fail(request, failure, now)     ──▶   the same
     | ◀── timer()                           when to call next_request again
     | predict(hash_key)               ──▶   shard id, None where it is not known

**Is the map fresh?** A listing answers what was asked before it began. A report asks about one shard (a
record is on another one than predicted: has this shard closed?); a sign that the stream is gone asks about
all. Such a shard is *in doubt* until a listing that began since the latest report, or one that shows that it
has closed; before the first map all are. A shard in doubt is not predicted: a user record sent alone needs no
prediction, but an aggregate made for a shard that has split would be misplaced. The others are predicted.

Times are seconds of one monotonic clock of the caller. Not thread-safe, but `predict` only reads one
attribute, replaced as a whole. Specification: spec/08-live-shard-map.md, 8.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from ..aws_errors import Backoff, failure_text, is_permanent
from ..errors import KplError, ShardMapError
from .known_shards import KnownShards, Listing, Operation, ShardFilterType, learn
from .shard import Shard
from .shard_map import NO_ROUTES
from .stream_name import stream_of

__all__ = ["Failure", "LiveShardMap", "Refreshed", "Request", "StreamUnavailable"]

#: The waits before the next refresh: after an error, and after an error that a retry cannot solve.
_BACKOFF, _PERMANENT_BACKOFF = Backoff(1.0, 30.0, 1.5), Backoff(1.0, 300.0)

#: READY: no shard is in doubt. UPDATING: not so, and a refresh runs. INVALID: not so, and none runs.
MapState = Literal["INVALID", "UPDATING", "READY"]


class Request(NamedTuple):
    """A call to make: ``operation`` as AWS names it, with its ``arguments``. The caller passes this object
    back with the response: only the response to the latest request counts."""

    operation: Operation
    arguments: Mapping[str, Any]


class Failure(NamedTuple):
    """How a call failed: ``code`` as AWS names it, or the name of the client's error."""

    code: str
    reason: str = ""


class StreamUnavailable(KplError):
    """A refresh failed. ``code``: AWS's name of the error, or a ShardMapError code. ``permanent``: a retry
    cannot solve it, somebody has to change something."""

    code: str
    requirement = "MAP-8"
    stream: str
    operation: str
    reason: str
    permanent: bool = False
    concerns = "Whoever needs the shard map now. A map read before stays in use."
    todo = (
        "The code is AWS's own. ResourceNotFoundException: check name and region; if the text names a shard "
        "or a record, the stream does not have that. AccessDeniedException: "
        "allow kinesis:ListShards and kinesis:DescribeStreamSummary. LimitExceededException: wait. "
        "RecordTrimmed: records are lost; begin at TRIM_HORIZON or at a time."
    )
    codes = ("ResourceNotFoundException", "AccessDeniedException", "LimitExceededException")

    def describe(self) -> str:
        return f"{self.operation} failed for stream {self.stream}: {failure_text(self.code, self.reason)}"


class Refreshed(NamedTuple):
    """The end of a refresh. ``error``: why it gave no complete map; None if it did. ``routes_changed``: what
    is predicted comes from its listing. ``recreated``: the stream was deleted and created again since the map
    before."""

    error: StreamUnavailable | None = None
    routes_changed: bool = False
    recreated: bool = False


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
        self._shard_filter = shard_filter
        self._interval = refresh_interval
        self._describe = describe
        #: What is known of the stream, in doubt or not. Replaced as a whole.
        self.known = KnownShards(stream_of(stream))
        self._argument = self.known.stream.argument
        #: The prediction table, without the shards that are in doubt. Replaced as a whole: other threads read
        #: it.
        self.routes = NO_ROUTES
        #: The shards in doubt, and since when; and since when all are, None if not all are.
        self._in_doubt: dict[str, float] = {}
        self._all_in_doubt_since: float | None = float("-inf")
        self._changed_in_doubt = False  # a listing has changed the map since shards are in doubt
        self._vain_reports = 0  # in a row: their listings changed nothing
        self._reports_count_from = float("-inf")
        self._listing: Listing | None = None  # of the refresh under way
        self._in_flight: Request | None = None
        self._retry_at: float | None = None
        self._failures = 0
        #: Why the last refresh failed; None if it did not.
        self.error: StreamUnavailable | None = None

    @property
    def state(self) -> MapState:
        if self.known.complete and self._all_in_doubt_since is None and not self._in_doubt:
            return "READY"
        return "UPDATING" if self._listing is not None else "INVALID"

    def shard(self, shard_id: str) -> Shard | None:
        """A known shard, open or closed; None if it is unknown or forgotten."""
        return self.known.all.get(shard_id)

    @property
    def permanent_error(self) -> StreamUnavailable | None:
        """The error that a retry cannot solve, because of which there is no map; None without one."""
        return self.error if self.state == "INVALID" and self._failed_for_good else None

    @property
    def _failed_for_good(self) -> bool:
        return self.error is not None and self.error.permanent

    @property
    def map_may_come(self) -> bool:
        """Whether shards are in doubt, and a refresh may end that: there is no permanent error."""
        return self.state != "READY" and (
            self._listing is not None or (self._retry_at is not None and self.permanent_error is None)
        )

    def predict(self, hash_key: int) -> str | None:
        """The id of the open shard that takes ``hash_key``; None while that shard is in doubt, and on an AUTO
        stream. O(log n). Raises HashKeyError outside 0 to 2^128 - 1."""
        return self.routes.predict(hash_key)

    def _update_routes(self) -> None:
        # MAP-1: "A prediction MUST come from a map that is trusted for its shard; otherwise the answer is
        # that none can be made."
        # MAP-13: "On a stream that distributes records AUTO no prediction MUST be made."
        if self._all_in_doubt_since is not None or self.known.distribution == "AUTO":
            self.routes = NO_ROUTES
        else:
            self.routes = self.known.routes.without(self._in_doubt)

    def _doubt_all(self, since: float) -> None:
        self._all_in_doubt_since = since
        self._update_routes()

    def shard_of_record(
        self, shard_id: str, sequence_number: str, *, generation: int, answered_at: float
    ) -> Shard | Literal["unknown", "gone"]:
        """As `KnownShards.shard_of_record`."""
        shard = self.known.shard_of_record(
            shard_id, sequence_number, generation=generation, answered_at=answered_at
        )
        # After a sign that this may be another stream, nothing is known until the next listing.
        return "unknown" if self._all_in_doubt_since is not None and shard != "gone" else shard

    def refresh(self, now: float) -> bool:
        """Start a refresh, unless one runs or waits for its backoff; returns whether it did. After a
        permanent error it does not wait: the caller has fixed something."""
        # MAP-3: "At most one refresh MUST run at a time, however many callers ask."
        backing_off = self._failures and not self._failed_for_good
        if self._listing is not None or backing_off:
            return False
        self._start(now)
        return True

    def invalidate(self, seen_at: float, predicted_shard: str, now: float) -> bool:
        """Report that a record sent at ``seen_at`` is on another shard than ``predicted_shard``. Returns
        whether the report counts: then that shard is not predicted until a refresh that began since, which is
        asked for."""
        # MAP-4: "A report MUST be ignored if the map's refresh began at or after the record was sent: it
        # covers what the record saw."
        if self.known.listed_at is not None and seen_at <= self.known.listed_at:
            return False
        # MAP-5: "A report MUST be ignored if the predicted shard is not open in the map: the map has
        # learnt that already." So must another report of a shard that is in doubt.
        if predicted_shard not in self.routes:
            return False
        # MAP-15: "After a report whose refresh changed nothing, reports MUST be ignored for a time that
        # grows as the backoff does, until a refresh changes the map."
        if now < self._reports_count_from:
            return False
        self._in_doubt[predicted_shard] = min(seen_at, now)
        self.routes.remove(predicted_shard)
        self.refresh(now)
        return True

    def stream_gone(self, now: float) -> None:
        """Report that a call found no such stream, or that a record is of another life of the stream."""
        # MAP-17: "When a failure says that the stream is gone, trust in the map MUST end until a listing
        # that began after it." On a coarse clock one that runs has perhaps begun at the same time.
        self._doubt_all(math.nextafter(now, math.inf))
        if self._listing is None and not self._failures:
            self._start(now)

    def stream_seen(self, now: float) -> None:
        """Report that a call has found the stream: if a refresh did not, the next one starts soon."""
        not_found = self.error is not None and self.error.code == "ResourceNotFoundException"
        if not_found and self._retry_at is not None:
            self._retry_at = min(self._retry_at, now + _PERMANENT_BACKOFF.first)

    def _start(self, now: float) -> None:
        self._retry_at = None
        begun = now if self._all_in_doubt_since is None else max(now, self._all_in_doubt_since)
        self._listing = Listing(begun, self._argument, self._shard_filter, describe=self._describe)

    def timer(self) -> float | None:
        """When to call `next_request` again if nothing else happens; None for never."""
        return self._retry_at if self._listing is None else None

    def next_request(self, now: float) -> Request | None:
        """The call to make now; None if there is none, or it is under way."""
        if self._listing is None and self._retry_at is not None and now >= self._retry_at:
            self._start(now)
        if self._listing is None or self._in_flight is not None:
            return None
        self._in_flight = Request(*self._listing.next_call())
        return self._in_flight

    def receive(self, request: Request, response: Any, now: float) -> Refreshed | None:
        """Take the response to ``request``. Returns what came of the refresh when it is over."""
        if self._listing is None or request is not self._in_flight:
            return None
        self._in_flight = None
        if request.operation == "DescribeStreamSummary":
            self._listing.add_summary(response)
            return None
        try:
            is_last = self._listing.add_page(response, self.known.all)
        except ShardMapError as error:
            return self._end_with_error("ListShards", error.code, error.reason.partition(": ")[0], now)
        return self._end_with_listing(self._listing, now) if is_last else None

    def fail(self, request: Request, failure: Failure, now: float) -> Refreshed | None:
        """Take the failure of ``request``: an error, or no response."""
        if self._listing is None or request is not self._in_flight:
            return None
        self._in_flight = None
        if request.operation == "DescribeStreamSummary" and failure.code != "ResourceNotFoundException":
            # Many roles may not call it, and an account has only 20 calls a second. The map works without it
            # and keeps the last known summary.
            self._listing.add_summary(None)
            return None
        return self._end_with_error(request.operation, failure.code, failure.reason, now)

    def _end_with_error(
        self, operation: Operation, code: str, reason: str, now: float, *, routes_changed: bool = False
    ) -> Refreshed:
        self._listing = None
        permanent = is_permanent(code, reason)
        if permanent != self._failed_for_good:
            self._failures = 0
        self.error = StreamUnavailable(
            stream=self.stream, operation=operation, code=code, reason=reason, permanent=permanent
        )
        if code == "ResourceNotFoundException":
            self._doubt_all(now)
        # MAP-8: "An error that no retry can mend (no such stream, access denied) MUST be given at once to
        # every caller that waits. The map is asked for again after a backoff that grows from 1 s to at most
        # 300 s, and at once when a caller asks."
        # MAP-10: "A refresh that failed otherwise MUST be tried again after a backoff that grows
        # from 1 s to at most 30 s, less a random part of at most half, and starts anew once a map was
        # installed."
        backoff = _PERMANENT_BACKOFF if permanent else _BACKOFF
        self._retry_at = now + backoff.seconds(self._failures, self._chance())
        self._failures += 1
        return Refreshed(self.error, routes_changed)

    def _end_with_listing(self, listing: Listing, now: float) -> Refreshed:
        before = self.known
        self.known, error = learn(before, listing, now)
        # MAP-7: "A listing that contradicts itself or what is known (cycle, duplicate, contradiction)
        # MUST NOT become the map; the refresh has failed and is tried again."
        if error is not None and self.known.routes is before.routes:
            return self._end_with_error("ListShards", error.code, error.describe(), now)
        recreated = self.known.generation != before.generation
        if self._all_in_doubt_since is not None and self._all_in_doubt_since <= listing.begun:
            self._all_in_doubt_since = None
        in_doubt = {i: since for i, since in self._in_doubt.items() if i in self.known.routes}
        # Not one by one: shards reported in turn would be in doubt in turn, and the refreshes without end.
        if max(in_doubt.values(), default=listing.begun) <= listing.begun:
            in_doubt = {}
        if recreated or self.known.routes.shard_ids != before.routes.shard_ids:
            self._vain_reports, self._reports_count_from, self._changed_in_doubt = 0, float("-inf"), True
        elif self._in_doubt and not in_doubt and not self._changed_in_doubt:
            # The listing does not explain the misplaced records: it is older than a split, or the stream
            # ignores keys. Refreshing again at once could go on endlessly, and would leave the producer
            # without predictions most of the time.
            self._reports_count_from = now + _BACKOFF.seconds(self._vain_reports)
            self._vain_reports += 1
        self._in_doubt = in_doubt
        self._changed_in_doubt = self._changed_in_doubt and bool(in_doubt)
        self._update_routes()
        if error is not None:  # a gap or an overlap
            return self._end_with_error("ListShards", error.code, error.describe(), now, routes_changed=True)
        self._listing = self.error = None
        self._failures = 0
        self._retry_at = now + self._interval if self._interval is not None else None
        if self.state != "READY":
            self._start(now)
        return Refreshed(routes_changed=True, recreated=recreated)
