"""One event of SubscribeToShard, checked: a pure function of what boto3's event stream yields.

    event = shard_event({"SubscribeToShardEvent": {...}})      # .records .continuation .behind

Specification: spec/11-enhanced-fan-out.md, EFO-1 and EFO-2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from ..errors import KplError

_NAME: Final = "SubscribeToShardEvent"
#: More digits than any sequence number has.
_MOST_DIGITS: Final = 128


class EventError(KplError):
    """An event is not what the API says. ``member``: where it is wrong; ``reason``."""

    code = "event"
    requirement = "EFO-1"
    member: str
    reason: str = "is not what the API defines"
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


def _is_number(value: Any) -> bool:
    return isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS


#: What every record has.
_MEMBERS: Final[dict[str, Callable[[Any], bool]]] = {
    "SequenceNumber": _is_number,
    "Data": lambda value: isinstance(value, bytes),
    "PartitionKey": lambda value: isinstance(value, str),
    "ApproximateArrivalTimestamp": lambda value: isinstance(value, datetime) and value.tzinfo is not None,
}


def shard_event(event: Any) -> ShardEvent:
    """The event. Raises EventError, and nothing else whatever ``event`` is."""
    # EFO-1: "An event that differs from what the API defines MUST be taken for a call that failed, and none
    # of its records given."
    body = event.get(_NAME) if isinstance(event, Mapping) else None
    if not isinstance(body, Mapping) or len(event) > 1:
        raise EventError(member=_NAME, reason="is not the only member")
    records, behind = body.get("Records"), body.get("MillisBehindLatest")
    if not isinstance(records, list):
        raise EventError(member="Records")
    last = -1
    for record in records:
        last = _after(last, record)
    if type(behind) is not int or behind < 0:
        raise EventError(member="MillisBehindLatest")
    children = body.get("ChildShards")
    if children is not None and not (isinstance(children, list) and all(map(_is_child, children))):
        raise EventError(member="ChildShards")
    # EFO-2: "A shard MUST count as ended only where an event names its children and has no continuation
    # sequence number."
    continuation = body.get("ContinuationSequenceNumber")
    if (continuation is None) != bool(children):
        raise EventError(member="ContinuationSequenceNumber", reason="or ChildShards is there, never both")
    if continuation is not None and not _is_number(continuation):
        raise EventError(member="ContinuationSequenceNumber")
    return ShardEvent(records, continuation, behind)


def _after(last: int, record: Any) -> int:
    """The sequence number of a record that follows ``last``."""
    if not isinstance(record, Mapping):
        raise EventError(member="Records[]")
    for name, is_right in _MEMBERS.items():
        if not is_right(record.get(name)):
            raise EventError(member=f"Records[].{name}")
    number = int(record["SequenceNumber"])
    if number <= last:
        raise EventError(member="Records[].SequenceNumber", reason="does not follow the one before")
    return number


def _is_child(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("ShardId"), str)
