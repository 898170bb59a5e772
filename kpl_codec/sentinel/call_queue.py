"""Whose call is next, within the budgets of one shard and of all.

Calls are spent when they begin. Bytes are reserved when a GetRecords call begins and settled by its answer.
Specification: spec/10-sentinel.md, SEN-3, SEN-4.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush

from .budget import Budget
from .costs import Limits, Measured
from .shard_watch import Call, Operation, ShardWatch


class CallQueue:
    """Shards by the time at which their next call is due. ``measured`` counts the calls that begin; where
    records are ``pushed``, who subscribes counts them."""

    def __init__(self, limits: Limits, measured: Measured, *, pushed: bool = False) -> None:
        self._limits, self._measured, self._pushed = limits, measured, pushed
        self._calls, self._bytes = Budget(limits.calls), Budget(limits.bytes)
        self._heap: list[tuple[float, str]] = []
        self._numbers = 0
        self._not_before = 0.0

    def push(self, state: ShardWatch) -> None:
        """The next call for this shard is due at ``state.due``."""
        heappush(self._heap, (state.due, state.shard_id))

    def clear(self) -> None:
        """No shard is due any more."""
        self._heap.clear()

    def set_back(self, seconds: float) -> None:
        """The caller's clock was set back by so much; no shard is due any more."""
        self._calls.set_back(seconds)
        self._bytes.set_back(seconds)
        self._not_before -= seconds
        self.clear()

    def pause(self, until: float) -> None:
        """Begin no call before ``until``."""
        self._not_before = until

    def timer(self) -> float:
        """When `next_call` should be asked again; infinity where no shard is due."""
        return max(self._heap[0][0] if self._heap else float("inf"), self._not_before)

    def next_call(self, shards: Mapping[str, ShardWatch], now: float) -> Call | None:
        """The call to make now for one of ``shards``, None if there is none yet."""
        if now < self._not_before:
            return None
        # SEN-3: "In any span of time the calls for one shard, and for all, MUST NOT be more than their rate
        # times the span, plus those of one second; calls that fail and calls again count like any other."
        # SEN-4: "No call MUST begin while bytes that were read are more than the rates have allowed so far."
        blocked = max(self._calls.free_at(now, 1), self._bytes.free_at(now))
        if blocked > now:
            self._not_before = blocked
            return None
        while self._heap and self._heap[0][0] <= now:
            _, shard_id = heappop(self._heap)
            state = shards.get(shard_id)
            if state is None or state.under_way is not None:
                continue
            if state.due <= now:
                state.due = max(state.calls.free_at(now, 1), state.bytes.free_at(now))
                if state.due <= now:
                    return self._begin(state, now)
            self.push(state)
        return None

    def _begin(self, state: ShardWatch, now: float) -> Call:
        self._numbers += 1
        state.under_way = self._numbers
        if state.iterator is None:
            self._spend("GetShardIterator", state, now)
            if not state.look_calls:
                state.look = self._numbers
            place = {"ShardId": state.shard_id, **state.place}
            begin: Operation = "SubscribeToShard" if self._pushed else "GetShardIterator"
            return Call(begin, state.shard_id, place, self._numbers)
        limit = state.limit(self._limits)
        state.reserved = limit * state.records_size
        self._bytes.spend(state.reserved, now)
        state.look_calls += 1
        self._spend("GetRecords", state, now)
        arguments = {"ShardIterator": state.iterator, "Limit": limit}
        go_on: Operation = "NextEvent" if self._pushed else "GetRecords"
        return Call(go_on, state.shard_id, arguments, self._numbers)

    def _spend(self, operation: str, state: ShardWatch, now: float) -> None:
        if not self._pushed:
            state.calls.spend(1, now)
            self._calls.spend(1, now)
            self._measured.calls[operation] += 1

    def settle(self, state: ShardWatch, size: int, now: float) -> None:
        """The answer to the shard's call held ``size`` bytes of data; 0 for a call that failed."""
        state.bytes.spend(size, now)
        self._bytes.spend(size - state.reserved, now)
        state.reserved = 0.0
