"""What the planner gives the tasks besides the offsets: the records of a small batch, which it has read to
find its end, and from when on they may call. Nothing of it is written down, or decides what is read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...aws.cursor import Pace
from .access import Access
from .offsets import Piece

#: Bytes of records that the partitions of a batch carry together.
MOST_CARRIED: Final = 8 * 1024 * 1024
#: And of those of one shard.
CARRIED_OF_SHARD: Final = 512 * 1024
#: What a record takes besides its data, about.
_OVERHEAD: Final = 256

Records = list[dict[str, Any]]


class TaskHints:
    """To the tasks of the batch that was planned last. Shards may be planned in parallel."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._paces: dict[str, Pace] = {}
        self._records: dict[Piece, Records] = {}
        self._size = self._seen = 0
        self._reading: set[str] = set()
        self._lock = threading.Lock()

    def pace(self, shard_id: str) -> Pace:
        with self._lock:
            return self._paces.setdefault(shard_id, self._access.pace())

    def begin(self) -> None:
        """A new batch is planned: the tasks of the last one have ended."""
        # SPK-61: "The readers of a shard together MUST keep to the GetRecords and GetShardIterator calls
        # and the bytes a second that the options allow."
        for shard_id in self._reading:  # when a task made its last call is not known: it may be now
            pace = self.pace(shard_id)
            pace.spent("get_records")
            pace.spent("get_shard_iterator")
        self._reading.clear()
        self._records.clear()
        self._size = self._seen = 0

    def may_keep(self, records: Records) -> bool:
        """Whether there is room for records until the batch is planned: many shards may have some."""
        size = _size_of(records)
        with self._lock:
            self._seen += size
            return self._seen <= MOST_CARRIED

    def has_read(self, piece: Piece, records: Records) -> None:
        """These are all the records of a piece. They are kept if there is room."""
        size = _size_of(records)
        with self._lock:
            if size <= CARRIED_OF_SHARD and self._size + size <= MOST_CARRIED:
                self._size += size
                self._records[piece] = records

    def split(self, pieces: Iterable[Piece]) -> tuple[Mapping[Piece, Records], list[Piece]]:
        """Pieces with their records, and pieces that a task must read, with the time when it may begin."""
        # SPK-85: "Records that the planner gives the tasks MUST NOT change what a batch reads."
        # Only a piece that is equal to the planned one gets them.
        carried: dict[Piece, Records] = {}
        left: list[Piece] = []
        for piece in pieces:
            records = self._records.get(piece)
            if records is not None:
                carried[piece] = records
                continue
            pace = self.pace(piece.shard_id)
            wait = max(pace.delay("get_records"), pace.delay("get_shard_iterator"))
            begin = self._access.now() + wait
            left.append(piece._replace(not_before=begin))
            self._reading.add(piece.shard_id)
        return carried, left


def _size_of(records: Records) -> int:
    data = sum(len(record["Data"]) + len(record.get("PartitionKey") or "") for record in records)
    return data + _OVERHEAD * len(records)
