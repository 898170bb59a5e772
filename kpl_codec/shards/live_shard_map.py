"""The live shard map: a map of a stream that keeps itself right. Sans-I/O: requests out, answers in.

    skin                                     LiveShardMap
     | refresh(now) / invalidate(...)  ──▶   wants a refresh
     | ◀── next_request(now)                 Request("ListShards", {...}), one at a time
     | receive(request, answer, now)   ──▶   next page, or a new map; gives a MapChanged
     | fail(request, failure, now)     ──▶   backs off, or gives up; gives a RefreshFailed
     | ◀── timer()                           when to ask next_request again
     | predict(hash_key)               ──▶   shard id, or None: do not know

    state     | predict | what happens                      | becomes
    ----------+---------+-----------------------------------+------------------------------------------
    INVALID   | None    | nothing known, waits for timer()  | UPDATING when a refresh starts
    UPDATING  | None    | a refresh runs                    | READY if the listing is sound, else INVALID
    READY     | id      | map trusted (a routine refresh    | UPDATING when `invalidate` is believed,
              |         | does not change that)             | INVALID when the stream is gone

While the map is distrusted there is no prediction: a user record sent alone lands right without one,
an aggregate made for a shard that has split does not. Time is any monotonic clock of the caller's, in
seconds, the same for all calls. Not thread-safe, except that `predict` only reads.
Specification: spec/08-live-shard-map.md, MAP-1 to MAP-16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final, Literal, NamedTuple

from ..aws_errors import is_permanent
from ..backoff import Backoff
from ..errors import KplError, ShardMapError
from ..format.hash_keys import HashKeyRange
from .lineage import Lineage
from .listing import another_life, not_known_closed, superseded_shards
from .shard import listed_shards
from .shard_map import Distribution, Shard, ShardMap

ShardFilterType = Literal["AT_LATEST", "FROM_TRIM_HORIZON", "AT_TRIM_HORIZON"]
#: Listings in a row that contradict what is known before they are believed.
_CONTRADICTIONS: Final = 4


class State(str, Enum):
    """See the table of this module."""

    INVALID = "INVALID"
    UPDATING = "UPDATING"
    READY = "READY"

    def __str__(self) -> str:
        return self.value


class StreamUnavailable(KplError):
    """A refresh failed. ``stream``, ``operation``, ``code`` (AWS's name of the error, or a ShardMapError
    code), ``reason``; ``permanent``: nothing will be tried again until `refresh` is called."""

    code: str
    requirement = "MAP-8"
    stream: str
    operation: str
    reason: str
    permanent: bool = False
    text = "{operation} of stream {stream} failed: {code}: {reason}"


class Request(NamedTuple):
    """A call to make: ``operation`` as AWS names it, ``arguments`` as its input. Hand it back with the
    answer: an answer to any but the latest request is ignored."""

    operation: Literal["ListShards", "DescribeStreamSummary"]
    arguments: Mapping[str, Any]
    number: int


class Failure(NamedTuple):
    """How a call failed: ``code`` as AWS names it, or the name of the client's error."""

    code: str
    reason: str = ""


class MapChanged(NamedTuple):
    """A refresh has given a map, maybe the same as before.

    ``opened`` and ``closed`` shard ids against the map before; on the first map all open ones are
    opened. ``recreated``: the stream was deleted and created again under its name; nothing known of
    the old one holds. ``superseded``: listed as open, but together with children that replace them.
    """

    at: float
    shard_map: ShardMap
    opened: tuple[str, ...]
    closed: tuple[str, ...]
    recreated: bool
    superseded: tuple[str, ...]


class RefreshFailed(NamedTuple):
    """A refresh has failed; ``retry_at`` is when the next one starts, None when none will."""

    at: float
    error: StreamUnavailable
    retry_at: float | None


@dataclass(slots=True)
class _Refresh:
    """A refresh under way."""

    started: float
    pages: list[Mapping[str, Any]]
    tokens: set[str]
    described: bool = False
    restarted: bool = False
    in_flight: Request | None = None


class LiveShardMap:
    """The state machine of one stream. Give ``stream_name`` or ``stream_arn``.

    ``shard_filter``: AT_LATEST lists open shards only, FROM_TRIM_HORIZON also the closed ones that still
    hold records (for lineage). ``closed_shard_ttl``: how long `hash_key_range` answers for a shard after
    it closed. ``refresh_interval``: refresh this long after the last, None for only when asked.
    ``describe``: ask DescribeStreamSummary too, which tells AUTO distribution and a re-created stream.
    """

    def __init__(
        self,
        stream_name: str | None = None,
        *,
        stream_arn: str | None = None,
        shard_filter: ShardFilterType = "AT_LATEST",
        closed_shard_ttl: float = 60.0,
        refresh_interval: float | None = None,
        describe: bool = True,
        first_backoff: float = 1.0,
        max_backoff: float = 30.0,
        backoff_factor: float = 1.5,
        max_results: int = 1000,
    ) -> None:
        if (stream_name is None) == (stream_arn is None):
            raise ValueError("give stream_name or stream_arn")
        self._stream = {"StreamName": stream_name} if stream_name else {"StreamARN": stream_arn}
        self._shard_filter = shard_filter
        self._ttl = closed_shard_ttl
        self._interval = refresh_interval
        self._describe = describe
        self._backoff = Backoff(first_backoff, max_backoff, backoff_factor)
        self._max_results = max_results
        self._trusted: ShardMap | None = None
        self._map: ShardMap | None = None
        self._lineage = Lineage(())
        self._closed: dict[str, tuple[Shard, float]] = {}
        self._gone: set[str] = set()
        self._distribution: Distribution = "USER_PARTITION_KEY"
        self._created: datetime | None = None
        self._created_listed: datetime | None = None
        self._refresh: _Refresh | None = None
        self._retry_at: float | None = None
        self._failures = 0
        self._numbers = 0
        self._updated_at: float | None = None
        self._doubted_at: float | None = None
        self._doubt_changed = False
        self._barren = 0
        self._contradictions = 0
        self._deaf_until = float("-inf")
        #: How often the stream was seen to be deleted and created again.
        self.generation = 0
        #: Why the last refresh failed; None once one has not.
        self.error: StreamUnavailable | None = None

    # -- what is known ------------------------------------------------------------------------

    @property
    def stream(self) -> str:
        """The name or ARN."""
        return str(next(iter(self._stream.values())))

    @property
    def state(self) -> State:
        """See the table of this module."""
        if self._trusted is not None:
            return State.READY
        return State.UPDATING if self._refresh is not None else State.INVALID

    @property
    def shard_map(self) -> ShardMap | None:
        """The last sound map, trusted or not; None before the first."""
        return self._map

    @property
    def lineage(self) -> Lineage:
        """Every shard seen in this life of the stream: its range is answered for ever."""
        return self._lineage

    @property
    def updated_at(self) -> float | None:
        """When the refresh that gave the map began: what happened before is in it."""
        return self._updated_at

    @property
    def given_up(self) -> StreamUnavailable | None:
        """The permanent error that ended the refreshing, until `refresh` starts it again."""
        over = self._trusted is None and self._refresh is None and self._retry_at is None
        return self.error if over else None

    def predict(self, hash_key: int) -> str | None:
        """The open shard that takes ``hash_key``; None unless READY, and None on an AUTO stream.

        O(log n). Raises HashKeyError outside 0 to 2^128 - 1.
        """
        # MAP-1: "A prediction MUST come from a trusted map only; otherwise the answer is that none can
        # be made."
        trusted = self._trusted
        if trusted is None or trusted.distribution == "AUTO":
            return None
        return trusted.shard_for(hash_key).shard_id

    def hash_key_range(self, shard_id: str, now: float) -> HashKeyRange | None:
        """The range of a shard that is open, or closed at most ``closed_shard_ttl`` ago; else None.

        In any state. (`lineage` answers for every shard ever seen.)
        """
        # MAP-2: "A closed shard MUST stay answerable for its TTL, counted from the refresh that noticed,
        # and its range in the lineage for ever."
        closed = self._closed.get(shard_id)
        if closed is not None:
            return closed[0].hash_key_range if now - closed[1] <= self._ttl else None
        if self._map is not None and shard_id in self._map and self._map[shard_id].open:
            return self._map[shard_id].hash_key_range
        return None

    # -- asking for a refresh -----------------------------------------------------------------

    def refresh(self, now: float) -> bool:
        """Start a refresh, unless one runs or waits for its backoff to end. Returns whether it did.

        A map that is READY stays so meanwhile. Also the way to try again after a permanent error.
        """
        # MAP-3: "At most one refresh MUST run at a time, however many callers ask."
        if self._refresh is not None or (self._failures and self._retry_at is not None):
            return False
        self._start(now)
        return True

    def invalidate(self, seen_at: float, predicted_shard: str | None, now: float) -> bool:
        """A record sent at ``seen_at`` landed elsewhere than ``predicted_shard``. Returns whether the
        map is distrusted for it, in which case a refresh runs.

        ``predicted_shard`` is the shard that was predicted, not the one the record landed on: after a
        split that one is not in the map, and the map would never learn of it.
        """
        if self._trusted is None or self._updated_at is None:
            return False
        # MAP-4: "A report MUST be ignored if the map's refresh began at or after the record was sent: it
        # covers what the record saw."
        if seen_at <= self._updated_at:
            return False
        # MAP-5: "A report MUST be ignored if the predicted shard is not open in the map: the map has
        # learnt that already."
        if predicted_shard is not None and (
            predicted_shard not in self._trusted or not self._trusted[predicted_shard].open
        ):
            return False
        # MAP-15: "After a report whose refresh changed nothing, reports MUST be ignored for a time that
        # grows as the backoff does, until a refresh changes the map."
        if now < self._deaf_until:
            return False
        self._trusted = None
        self._doubted_at = seen_at
        self._doubt_changed = False
        if self._refresh is None:
            self._start(now)
        return True

    def _start(self, now: float) -> None:
        self._retry_at = None
        self._refresh = _Refresh(started=now, pages=[], tokens=set(), described=not self._describe)

    # -- requests and answers -----------------------------------------------------------------

    def timer(self) -> float | None:
        """When to call `next_request` again if nothing else happens; None for never."""
        return self._retry_at if self._refresh is None else None

    def next_request(self, now: float) -> Request | None:
        """The call to make now, None if there is none (or it is under way)."""
        if self._refresh is None and self._retry_at is not None and now >= self._retry_at:
            self._start(now)
        refresh = self._refresh
        if refresh is None or refresh.in_flight is not None:
            return None
        self._numbers += 1
        if not refresh.described:
            refresh.in_flight = Request("DescribeStreamSummary", dict(self._stream), self._numbers)
            return refresh.in_flight
        arguments: dict[str, Any] = {"MaxResults": self._max_results}
        # MAP-6: "The first page of ListShards names the stream and the filter; a later page MUST carry
        # NextToken and MaxResults only."
        if refresh.pages:
            arguments["NextToken"] = refresh.pages[-1]["NextToken"]
        else:
            arguments |= {**self._stream, "ShardFilter": {"Type": self._shard_filter}}
        refresh.in_flight = Request("ListShards", arguments, self._numbers)
        return refresh.in_flight

    def receive(
        self, request: Request, answer: Mapping[str, Any], now: float
    ) -> MapChanged | RefreshFailed | None:
        """The answer to ``request``; gives what came of it once the refresh is over."""
        refresh = self._answered(request)
        if refresh is None:
            return None
        if request.operation == "DescribeStreamSummary":
            self._described(refresh, answer.get("StreamDescriptionSummary"))
            return None
        refresh.pages.append(answer)
        token = answer.get("NextToken")
        if token:
            if token in refresh.tokens:
                return self._failed(refresh, "ListShards", "malformed", "a NextToken came twice", now)
            refresh.tokens.add(token)
            return None
        try:
            return self._install(refresh, now)
        except ShardMapError as error:
            # MAP-7: "A listing that is not sound (gap, overlap, cycle, duplicate, contradiction) MUST NOT
            # become the map; the refresh has failed and is tried again."
            return self._failed(refresh, "ListShards", error.code, error.describe(), now)

    def fail(self, request: Request, failure: Failure, now: float) -> RefreshFailed | None:
        """``request`` got an error, or no answer."""
        refresh = self._answered(request)
        if refresh is None:
            return None
        if request.operation == "DescribeStreamSummary" and failure.code != "ResourceNotFoundException":
            # Many a role may not call it, and it allows 20 calls a second for a whole account. The map
            # does without: what it would tell stays as last known.
            self._described(refresh, None)
            return None
        if failure.code == "ExpiredNextTokenException" and not refresh.restarted:
            # MAP-9: "An expired NextToken MUST start the listing again from its first page, at once the
            # first time, with backoff after that."
            refresh.pages.clear()
            refresh.tokens.clear()
            refresh.restarted = True
            refresh.started = now
            return None
        return self._failed(refresh, request.operation, failure.code, failure.reason, now)

    def _described(self, refresh: _Refresh, summary: Mapping[str, Any] | None) -> None:
        # A cut answer comes out of botocore as an empty one: that tells nothing, and changes nothing.
        refresh.described = True
        self._created_listed = summary.get("StreamCreationTimestamp") if summary else None
        if summary:
            # MAP-13: "On a stream that distributes records AUTO no prediction MUST be made."
            auto = summary.get("RecordDistributionStrategy") == "AUTO"
            self._distribution = "AUTO" if auto else "USER_PARTITION_KEY"

    def _answered(self, request: Request) -> _Refresh | None:
        refresh = self._refresh
        if refresh is None or refresh.in_flight != request:
            return None
        refresh.in_flight = None
        return refresh

    def _failed(self, refresh: _Refresh, operation: str, code: str, reason: str, now: float) -> RefreshFailed:
        self._refresh = None
        permanent = is_permanent(code)
        self.error = StreamUnavailable(
            stream=self.stream, operation=operation, code=code, reason=reason, permanent=permanent
        )
        if permanent:
            # MAP-8: "An error that no retry can mend (no such stream, access denied) MUST end the
            # refreshing at once and be given to every caller that waits."
            self._trusted = None
            self._retry_at = None
        else:
            # MAP-10: "A refresh that failed otherwise MUST be tried again after a backoff that grows
            # from 1 s to at most 30 s, and starts anew once a map was installed."
            self._retry_at = now + self._backoff.seconds(self._failures)
            self._failures += 1
        return RefreshFailed(now, self.error, self._retry_at)

    # -- a new map ----------------------------------------------------------------------------

    def _install(self, refresh: _Refresh, now: float) -> MapChanged:
        listed, _ = listed_shards(refresh.pages)
        superseded = superseded_shards(listed)
        recreated = self._recreated(listed)
        lineage = (
            Lineage(listed) if recreated else self._lineage.merged(not_known_closed(listed, self._lineage))
        )
        new = ShardMap((shard for shard in listed if shard.shard_id not in superseded), self._distribution)
        # From here nothing fails: the map changes as a whole or not at all.
        old = {shard.shard_id: shard for shard in self._map.open_shards} if self._map else {}
        if recreated:
            self.generation += 1
            old = {}
            self._closed.clear()
            self._gone.clear()
        open_now = {shard.shard_id for shard in new.open_shards}
        closed = {shard_id: shard for shard_id, shard in old.items() if shard_id not in open_now}
        self._closed = {i: entry for i, entry in self._closed.items() if now - entry[1] <= self._ttl}
        self._closed |= {shard_id: (shard, now) for shard_id, shard in closed.items()}
        self._gone |= closed.keys() | superseded | {shard.shard_id for shard in listed if not shard.open}
        self._map = new
        self._lineage = lineage
        self._created = self._created_listed or (None if recreated else self._created)
        self._updated_at = refresh.started
        self._refresh = None
        self._failures = self._contradictions = 0
        self.error = None
        self._retry_at = now + self._interval if self._interval is not None else None
        opened = tuple(sorted(open_now - old.keys()))
        self._regain_trust(new, refresh.started, bool(opened or closed or recreated), now)
        return MapChanged(now, new, opened, tuple(sorted(closed)), recreated, tuple(sorted(superseded)))

    def _regain_trust(self, new: ShardMap, started: float, changed: bool, now: float) -> None:
        self._doubt_changed |= changed
        if self._doubted_at is not None and started < self._doubted_at:
            # A routine refresh was under way when a report was believed: this listing may be older
            # than what the report saw.
            self._doubted_at = None
            self._start(now)
            return
        if self._doubt_changed:
            self._barren, self._deaf_until = 0, float("-inf")
        elif self._trusted is None:
            # Records land elsewhere, and the listing says they should not: a listing that lags behind a
            # split, or a stream that ignores keys. Asking again at once would go on for ever, and leave
            # the producer without predictions most of the time.
            self._deaf_until = now + self._backoff.seconds(self._barren)
            self._barren += 1
        self._trusted = new
        self._doubted_at = None

    def _recreated(self, listed: Sequence[Shard]) -> bool:
        """Whether ``listed`` is another life of the stream. Raises ShardMapError(code="contradiction")."""
        # MAP-11: "A stream deleted and created again under its name MUST be told from the old one, and
        # nothing known of the old one kept."
        same_creation = None
        if self._created is not None and self._created_listed is not None:
            same_creation = self._created == self._created_listed
        try:
            return another_life(listed, self._lineage, self._gone, same_creation)
        except ShardMapError:
            # MAP-16: "A listing that contradicts what is known MUST be refused, but one that comes a fourth
            # time running MUST be believed: it is another life of the stream."
            self._contradictions += 1
            if self._contradictions < _CONTRADICTIONS:
                raise
            return True
