"""Where a shard ended at some moment, found out later."""

from __future__ import annotations

from ...aws.cursor import ShardCursor


class Tip:
    """The tip of a shard as it was: an iterator that was made there. Later records lie beyond it."""

    def __init__(self, cursor: ShardCursor) -> None:
        self._cursor = cursor
        self._beyond: str | None = None
        self._poll()

    def _poll(self) -> None:
        while self._beyond is None and not self._cursor.ended:
            answer = self._cursor.fetch(1)
            if answer.records:
                self._beyond = answer.records[0]["SequenceNumber"]
            if answer.at_tip(1):
                return

    def beyond(self) -> str | None:
        """The first record that arrived later, None if none has. Asked after a read, it is true of it."""
        self._poll()
        return self._beyond
