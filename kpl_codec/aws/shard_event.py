"""One event of SubscribeToShard, checked: a pure function of what boto3's event stream yields.

    event = shard_event({"SubscribeToShardEvent": {...}})      # .records .continuation .behind

Specification: spec/11-enhanced-fan-out.md, EFO-1 and EFO-2.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from ..errors import KplError

_NAME: Final = "SubscribeToShardEvent"
#: More digits than any sequence number has.
_MOST_DIGITS: Final = 128
#: The members that every record has, and their types.
_MEMBERS: Final[dict[str, type]] = {"SequenceNumber": str, "Data": bytes, "PartitionKey": str}


class EventError(KplError):
    """An event is not what the API says. ``member``: where it is wrong; ``reason``."""

    code = "event"
    requirement = "EFO-1"
    member: str
    reason: str
    text = "an event of SubscribeToShard: {member} {reason}"
    concerns = "Readers with enhanced fan-out. None of the event's records was given."
    todo = "Nothing: the reader subscribes again. If it recurs, look at the server or the proxy."


class ShardEvent(NamedTuple):
    """``records``: as boto3 gives them, in the order of their sequence numbers. ``continuation``: the
    sequence number after which reading goes on, None at the end of the shard. ``behind``: milliseconds to the
    tip of the shard."""

    records: list[dict[str, Any]]
    continuation: str | None
    behind: int

    @property
    def ended(self) -> bool:
        """Whether the shard is closed and this is its end."""
        return self.continuation is None


def shard_event(event: Any) -> ShardEvent:
    """The event. Raises EventError, and nothing else whatever ``event`` is."""
    # EFO-1: "An event that differs from what the API defines MUST be taken for a call that failed, and none
    # of its records given."
    if not isinstance(event, Mapping) or list(event) != [_NAME] or not isinstance(event[_NAME], Mapping):
        raise EventError(member=_NAME, reason="is not the only member")
    body = event[_NAME]
    records = body.get("Records")
    if not isinstance(records, list):
        raise EventError(member="Records", reason="is not a list")
    last = -1
    for record in records:
        last = _after(last, record)
    behind = body.get("MillisBehindLatest")
    if type(behind) is not int or behind < 0:
        raise EventError(member="MillisBehindLatest", reason="is not a number of milliseconds")
    continuation = body.get("ContinuationSequenceNumber")
    children = _has_children(body.get("ChildShards"))
    # EFO-2: "A shard MUST count as ended only where an event names its children and has no continuation
    # sequence number."
    if continuation is None:
        if not children:
            raise EventError(member="ContinuationSequenceNumber", reason="is missing, and so are children")
    elif children:
        raise EventError(member="ChildShards", reason="are there although the shard goes on")
    elif not _is_number(continuation):
        raise EventError(member="ContinuationSequenceNumber", reason="is not a sequence number")
    return ShardEvent(records, continuation, behind)


def _is_number(value: Any) -> bool:
    return isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS


def _after(last: int, record: Any) -> int:
    """The sequence number of a record that follows ``last``."""
    if not isinstance(record, Mapping):
        raise EventError(member="Records[]", reason="is not a record")
    for name, kind in _MEMBERS.items():
        if not isinstance(record.get(name), kind):
            raise EventError(member=f"Records[].{name}", reason=f"is not {kind.__name__}")
    arrived = record.get("ApproximateArrivalTimestamp")
    if not isinstance(arrived, datetime) or arrived.tzinfo is None:
        raise EventError(member="Records[].ApproximateArrivalTimestamp", reason="is not a time with its zone")
    if not _is_number(record["SequenceNumber"]):
        raise EventError(member="Records[].SequenceNumber", reason="is not a sequence number")
    number = int(record["SequenceNumber"])
    if number <= last:
        raise EventError(member="Records[].SequenceNumber", reason="does not follow the one before")
    return number


def _has_children(value: Any) -> bool:
    if value is None:
        return False
    if not isinstance(value, list):
        raise EventError(member="ChildShards", reason="is not a list")
    for child in value:
        if not isinstance(child, Mapping) or not isinstance(child.get("ShardId"), str):
            raise EventError(member="ChildShards[]", reason="has no ShardId")
    return bool(value)
