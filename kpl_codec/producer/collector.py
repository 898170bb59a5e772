"""Collects Kinesis records of all shards into PutRecords requests.

A request goes out when it is full, when 256 KiB wait for one shard, when its time has come, or at once in a
flush.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .config import ProducerConfig
from .kinesis_record import Outgoing

#: Like the KPL, a request goes out early when so many bytes wait for one shard.
SHARD_BYTES = 256 * 1024


class PutRecordsRequest(NamedTuple):
    """A PutRecords call to make: ``records`` is its Records argument. Answer with the same ``number``."""

    number: int
    records: list[dict[str, Any]]


class Collector:
    """The Kinesis records for the next request. State: these, their bytes, and until when they may wait."""

    def __init__(self, config: ProducerConfig) -> None:
        self._max_count = config.collection_max_count
        self._max_size = config.collection_max_size
        self._delay = config.collecting_seconds
        self.kinesis_records: list[Outgoing] = []
        self._size = 0
        self._full = False
        self._by_shard: dict[str | None, int] = {}
        self._until = 0.0

    def fits(self, outgoing: Outgoing) -> bool:
        # PRD-16: "A PutRecords request MUST hold at most collection_max_count records and, partition keys
        # included, collection_max_size bytes; a single larger record goes by itself."
        fits = not self.kinesis_records or (
            len(self.kinesis_records) < self._max_count and self._size + outgoing.full_size <= self._max_size
        )
        self._full = self._full or not fits
        return fits

    def add(self, outgoing: Outgoing, now: float) -> None:
        # One that comes late, because there was no map or no token, has less time left to wait.
        until = min(now, outgoing.deadline) + self._delay
        self._until = min(self._until, until) if self.kinesis_records else until
        self._count(outgoing)

    def _count(self, outgoing: Outgoing) -> None:
        size = outgoing.full_size
        self.kinesis_records.append(outgoing)
        self._size += size
        self._by_shard[outgoing.shard] = self._by_shard.get(outgoing.shard, 0) + size

    def ready_at(self) -> float | None:
        """When the request has to go out: None while empty, minus infinity if it is full enough now."""
        if not self.kinesis_records:
            return None
        if (
            self._full
            or len(self.kinesis_records) >= self._max_count
            or max(self._by_shard.values()) >= SHARD_BYTES
        ):
            return float("-inf")
        return self._until

    def keep(self, kinesis_records: list[Outgoing]) -> None:
        """Keep only these. They are some of those in here, perhaps smaller than before."""
        self.take()
        for outgoing in kinesis_records:
            self._count(outgoing)

    def take(self) -> list[Outgoing]:
        kinesis_records, self.kinesis_records = self.kinesis_records, []
        self._size = 0
        self._full = False
        self._by_shard = {}
        return kinesis_records
