"""How far a shard was read: which call is next, and what its response says.

It makes no call: a `ShardCursor` does, with boto3 or aiobotocore, and a watch, which plans the calls of many
shards. A subscription of enhanced fan-out gives it its events.

    operation, arguments = reading.call(limit, now)      # GetShardIterator or GetRecords
    reading.receive_iterator(response, now, began)       # or
    page = reading.receive(response, arguments["Limit"], now)
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple

from .starting_position import StartingPosition, after_record, at_record, at_time, iterator_arguments

#: The most records that GetRecords returns.
MOST_RECORDS: Final = 10_000
#: Seconds after which an iterator is made again: one lives for 300.
ITERATOR_LIVES: Final = 240.0
#: Milliseconds by which this machine's clock may be ahead of the service's. If the service refuses a starting
#: time as lying in the future, and it is at most so far ahead, the call is repeated.
_CLOCK_SKEW: Final = 300_000
#: Seconds for which every stream keeps a record, and less: clocks differ.
_KEPT: Final = 23 * 3600.0


def _service_time_ms(response: Mapping[str, Any] | None, now: float) -> int:
    """Milliseconds since 1970 when the service answered, by its own clock; ``now``, in seconds by the clock
    of this machine, where the response does not say."""
    # MAP-27: "Reading that began at LATEST, and is begun again before it gave a record, MUST go on from the
    # service's time of its beginning: a clock that is ahead would skip records."
    headers = (response or {}).get("ResponseMetadata", {}).get("HTTPHeaders", {})
    with suppress(ValueError, TypeError, OverflowError):
        now = parsedate_to_datetime(headers.get("date")).timestamp()
    return int(now * 1000)


class ShardPage(NamedTuple):
    """What one response gave. ``records``: those of boto3. ``behind``: milliseconds between the last of them
    and the tip of the shard. ``ended``: the shard is closed, and this is its end. ``near_tip``: a hint that
    no record follows now. ``trimmed``: the sequence number of the record at which reading began, or after
    which it goes on, if that record is gone: then those behind it may be, too."""

    records: list[dict[str, Any]]
    behind: int
    ended: bool
    near_tip: bool
    trimmed: str | None = None


class ShardReading:
    """One shard, read from ``position`` on. Times are seconds since 1970.

    ``iterator``: of the next GetRecords, None if one must be made; ``iterator_since``: when the service gave
    it. ``near_tip``: as of the last page. ``at_tip``: all that was stored when the last call began has been
    read; ``ended``: no record will ever follow."""

    __slots__ = (
        "_first", "_is_new", "_tip_at", "_was_read",
        "at_tip", "ended", "iterator", "iterator_since", "near_tip", "position",
    )  # fmt: skip

    def __init__(self, position: StartingPosition) -> None:
        self.ended = self.at_tip = self.near_tip = False
        self.iterator_since = 0.0
        self._tip_at = float("-inf")
        self.begin_at(position)

    def begin_at(self, position: StartingPosition) -> None:
        """Read from ``position`` on."""
        self.position: StartingPosition = position
        self.iterator: str | None = None
        self._is_new = False
        # The record that must come first, None for any; whether it was read before, and is not given again.
        self._first: str | None = None
        self._was_read = False

    def call(self, limit: int, now: float) -> tuple[str, dict[str, Any]]:
        """The operation and the arguments of the next call: GetShardIterator, without the shard, or
        GetRecords for at most ``limit`` records."""
        if self.iterator is not None and not 0 <= now - self.iterator_since <= ITERATOR_LIVES:
            self.iterator = None
        if self.iterator is not None:
            again = self._first is not None and self._was_read
            return "GetRecords", {"ShardIterator": self.iterator, "Limit": min(limit + again, MOST_RECORDS)}
        # WCH-9: "An iterator that has expired MUST be made again behind the last record read."
        # To go on after a record, reading begins at that record: if it comes, no record after it is missing.
        begin = self.position
        self._was_read = begin.kind == "AFTER_SEQUENCE_NUMBER"
        self._first = begin.sequence_number if begin.names_record else None
        if self._first is not None:
            begin = at_record(self._first)
        return "GetShardIterator", iterator_arguments(begin)

    def subscription(self) -> dict[str, Any]:
        """The StartingPosition of SubscribeToShard. The number that it goes on after may be of no record."""
        named = self.position.kind == "AT_SEQUENCE_NUMBER"
        self._first = self.position.sequence_number if named else None
        names = {"ShardIteratorType": "Type", "StartingSequenceNumber": "SequenceNumber"}
        return {names.get(name, name): value for name, value in iterator_arguments(self.position).items()}

    def receive_iterator(self, response: Mapping[str, Any], now: float, began: float) -> None:
        """Take a response of GetShardIterator to a call that ``began`` then."""
        self.hold_latest(response, began)
        self.iterator, self.iterator_since = str(response["ShardIterator"]), now
        self._is_new = True

    def hold_latest(self, response: Mapping[str, Any] | None, began: float) -> None:
        """Hold the position LATEST of a call that ``began`` then: if its iterator or subscription ends before
        it gives a record, a new one would skip some."""
        if self.position.kind == "LATEST":
            self.position = at_time(_service_time_ms(response, began))

    def receive(self, response: Mapping[str, Any], limit: int, now: float) -> ShardPage:
        """Take a response of GetRecords that was asked for ``limit`` records, and lacks no member (see
        `missing_member`)."""
        records = response["Records"]
        self.iterator, self.iterator_since = response.get("NextShardIterator"), now
        self._is_new = False
        if records:
            self.position = after_record(records[-1]["SequenceNumber"])
        behind = int(response.get("MillisBehindLatest") or 0)
        return self.page(records, behind, now, ended=self.iterator is None, full=len(records) >= limit)

    def page(
        self, records: list[dict[str, Any]], behind: int, now: float, *, ended: bool, full: bool
    ) -> ShardPage:
        """Take ``records``. ``full``: there may be more, although ``behind`` is 0: they arrived in the same
        millisecond."""
        # A response of 10 MiB may end within a millisecond, too. So what is near the tip is a hint, and only
        # the next response is certain.
        near_tip = ended or (behind == 0 and not full)
        self.at_tip = ended or (near_tip and (self.near_tip or not records))
        self.near_tip, self.ended = near_tip, ended
        trimmed, first = None, self._first
        if first is not None and (records or self.at_tip):
            if not records or records[0]["SequenceNumber"] != first:
                trimmed = first
            if records:
                self._first = None
            if self._was_read:
                records = [record for record in records if int(record["SequenceNumber"]) > int(first)]
                # Nothing followed the record at a time since which all records still exist.
                if 0 <= now - self._tip_at < _KEPT:
                    trimmed = None
        if self.at_tip:
            self._tip_at = now
        return ShardPage(records, behind, ended, near_tip, trimmed)

    def fail(self, code: str) -> bool:
        """Take the error of a call. Returns whether a repetition at once can help: not for an iterator that
        has expired before its first use, as then the service gives none that lives."""
        if code != "ExpiredIteratorException":
            return False
        self.iterator = None
        return not self._is_new

    def is_early(self, code: str, now: float) -> bool:
        """Whether the service refused a starting time that will come: this machine's clock is ahead."""
        begin = self.position
        early = begin.kind == "AT_TIMESTAMP" and begin.time_ms > now * 1000 - _CLOCK_SKEW
        return code == "InvalidArgumentException" and early
