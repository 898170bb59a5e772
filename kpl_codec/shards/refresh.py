"""One refresh of a live shard map: a call of DescribeStreamSummary if wanted, then each page of ListShards. A
listing is no snapshot: it may have parents together with their children, or be older than the listing before.
Specification: spec/08-live-shard-map.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from ..aws_errors import failure_text
from ..errors import KplError, ShardMapError
from .shard import Distribution, Shard, shards_of_pages
from .stream_name import Stream, stream_of_pages

ShardFilterType = Literal["AT_LATEST", "FROM_TRIM_HORIZON", "AT_TRIM_HORIZON"]
#: More shards than any stream has: a listing with more is taken for one that never ends.
_MOST_SHARDS: Final = 1_000_000
#: How many shards a page has.
_MAX_RESULTS: Final = 1000


class Request(NamedTuple):
    """A call to make: ``operation`` as AWS names it, with its ``arguments``. The caller passes it back with
    the response: only the response to the latest request counts."""

    operation: Literal["ListShards", "DescribeStreamSummary"]
    arguments: Mapping[str, Any]
    number: int


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
        "The code is AWS's own. ResourceNotFoundException: check name and region. AccessDeniedException: "
        "allow kinesis:ListShards and kinesis:DescribeStreamSummary. LimitExceededException: wait."
    )
    codes = ("ResourceNotFoundException", "AccessDeniedException", "LimitExceededException")

    def describe(self) -> str:
        return f"{self.operation} failed for stream {self.stream}: {failure_text(self.code, self.reason)}"


class RefreshFailed(NamedTuple):
    """``at`` and ``retry_at``: when it failed, and when the next one starts, in seconds of the caller's
    clock. ``routes_changed``: the listing had a gap or an overlap, and the map has taken over the other
    shards from it."""

    at: float
    error: StreamUnavailable
    retry_at: float
    routes_changed: bool = False


class StreamSummary(NamedTuple):
    """``created``: when this life of the stream began. ``retention``: seconds for which records are kept.
    ``stream``: as the response names it."""

    created: datetime | None
    distribution: Distribution
    retention: float | None
    stream: Stream | None = None


class Listing(NamedTuple):
    """All shards of a refresh that began at ``begun``, in seconds of the caller's clock. ``has_closed``: with
    every closed shard that still holds records."""

    shards: Sequence[Shard]
    summary: StreamSummary | None
    begun: float
    has_closed: bool


class Refresh:
    """A refresh under way. ``begun``: the listing shows every reshard before this time. ``outdated``: the
    stream may have been created again since then."""

    def __init__(
        self, begun: float, stream: Mapping[str, Any], shard_filter: ShardFilterType, *, describe: bool
    ) -> None:
        self.begun = begun
        self.outdated = False
        self._shards: list[Shard] = []
        self._summary: StreamSummary | None = None
        self._stream = stream
        self._filter = shard_filter
        self._describe = describe
        self._tokens: dict[str, None] = {}
        self._in_flight: Request | None = None

    def next_request(self, number: int) -> Request | None:
        """The call to make now; None while one is under way."""
        if self._in_flight is not None:
            return None
        if self._describe:
            self._in_flight = Request("DescribeStreamSummary", dict(self._stream), number)
            return self._in_flight
        arguments: dict[str, Any] = {"MaxResults": _MAX_RESULTS}
        # MAP-6: "The first page of ListShards names the stream and the filter; a later page MUST carry
        # NextToken and MaxResults only."
        if self._tokens:
            arguments["NextToken"] = next(reversed(self._tokens))
        else:
            arguments |= {**self._stream, "ShardFilter": {"Type": self._filter}}
        self._in_flight = Request("ListShards", arguments, number)
        return self._in_flight

    def finish(self, request: Request) -> bool:
        """Note that ``request`` has ended. Returns whether it was the call under way."""
        if self._in_flight != request:
            return False
        self._in_flight = None
        return True

    def add_summary(self, response: Any) -> None:
        """Take the response of DescribeStreamSummary, None of a call that failed. (botocore makes an empty
        response of a truncated one.)"""
        self._describe = False
        summary = response.get("StreamDescriptionSummary") if isinstance(response, Mapping) else None
        if not isinstance(summary, Mapping) or not summary:
            return
        created = summary.get("StreamCreationTimestamp")
        auto = summary.get("RecordDistributionStrategy") == "AUTO"
        hours = summary.get("RetentionPeriodHours")
        self._summary = StreamSummary(
            created if isinstance(created, datetime) else None,
            "AUTO" if auto else "USER_PARTITION_KEY",
            hours * 3600.0 if type(hours) is int and hours > 0 else None,
            stream_of_pages([summary]),
        )

    def add_page(self, response: Any, known: Mapping[str, Shard]) -> Listing | None:
        """Take a page of ListShards. Returns the listing after the last page. A shard that equals its entry
        in ``known`` is that same object in the listing. Raises ShardMapError(code="malformed")."""
        # MAP-14: "An answer without what was asked for MUST be taken for a call that failed."
        shards, _ = shards_of_pages([response])
        token = response.get("NextToken") or None
        # MAP-19: "A listing that repeats a NextToken, or has pages for more than 1,000,000 shards, MUST be
        # refused: it would never end."
        reason, most = "", 100 + _MOST_SHARDS // _MAX_RESULTS
        if token is not None and not isinstance(token, str):
            reason = "a NextToken is not text"
        elif token in self._tokens:
            reason = "a NextToken came twice"
        elif token and len(self._tokens) > most:
            reason = f"more than {most} pages"
        if reason:
            raise ShardMapError(code="malformed", reason=reason, shard_ids=())
        for shard in shards:
            before = known.get(shard.shard_id)
            self._shards.append(before if before == shard else shard)
        if token is not None:
            self._tokens[token] = None
            return None
        return Listing(self._shards, self._summary, self.begun, self._filter == "FROM_TRIM_HORIZON")
