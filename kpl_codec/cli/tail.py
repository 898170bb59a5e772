"""All shards of a stream as records come, for `kpl-codec cat --follow`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from ..aws.cursor import Pace, ShardCursor
from ..aws.reading import PATIENCE, Start, place_of
from ..aws.shard_map import fetch_lineage
from ..format.records import KinesisRecord, answered_record
from ..shards.lineage import Lineage

#: Seconds between two calls on one shard.
_INTERVAL = 0.5


def tail(
    client: Any,
    stream: str,
    *,
    start: Start = "LATEST",
    shard_ids: Collection[str] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[KinesisRecord]:
    """The records of all shards in turn, without end; each shard after its parents.

    ``start``: where reading begins on present shards; later ones are read from their first record.
    ``shard_ids``: only these. Raises StreamUnavailable.
    """
    reader = _Reader(client, stream, start, shard_ids, sleep)
    while True:
        for shard_id, cursor in list(reader.cursors.items()):
            for record in cursor.fetch().records:
                yield answered_record(record, shard_id)
            if cursor.ended:
                reader.ended(shard_id)
        if not reader.cursors:
            return  # the shards asked for are closed and read


class _Reader:
    """A cursor for each shard that may be read now."""

    def __init__(
        self,
        client: Any,
        stream: str,
        start: Start,
        shard_ids: Collection[str] | None,
        sleep: Callable[[float], None],
    ) -> None:
        self._client, self._stream, self._shard_ids, self._sleep = client, stream, shard_ids, sleep
        self.cursors: dict[str, ShardCursor] = {}
        self._read: set[str] = set()
        lineage = self._lineage()
        for shard in lineage:
            # From LATEST a closed shard has nothing more; from a time it may have.
            if not shard.open and start == "LATEST":
                self._read.add(shard.shard_id)
        self._begin(lineage, start)

    def _lineage(self) -> Lineage:
        return fetch_lineage(self._client, self._stream, sleep=self._sleep)

    def _wanted(self, shard_id: str) -> bool:
        return self._shard_ids is None or shard_id in self._shard_ids

    def _begin(self, lineage: Lineage, start: Start) -> None:
        for shard in lineage:
            parents = (parent.shard_id for parent in lineage.parents(shard.shard_id))
            waits = any(self._wanted(parent) and parent not in self._read for parent in parents)
            known = shard.shard_id in self._read or shard.shard_id in self.cursors
            if known or waits or not self._wanted(shard.shard_id):
                continue
            self.cursors[shard.shard_id] = ShardCursor(
                self._client,
                self._stream,
                shard.shard_id,
                place_of(start),
                pace=Pace(1 / _INTERVAL, None, sleep=self._sleep),
                patience=PATIENCE,
                sleep=self._sleep,
            )

    def ended(self, shard_id: str) -> None:
        """A shard was read to its end: its children may begin."""
        del self.cursors[shard_id]
        self._read.add(shard_id)
        self._begin(self._lineage(), "TRIM_HORIZON")
