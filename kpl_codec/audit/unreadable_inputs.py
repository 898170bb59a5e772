"""What of the audit's files could not be read: ledgers, log lines and tables alike. AUD-21 asks for it."""

from __future__ import annotations

from typing import NamedTuple


class UnreadableInput(NamedTuple):
    """What of a file could not be read, how often, and where that was first (row or line, from 1)."""

    file: str
    why: str
    times: int = 1
    row: int | None = None


class Hole(NamedTuple):
    """Rows that a writer's ledger, or a file, may lack; ``why`` in words."""

    writer: str
    why: str


class UnreadableInputs:
    """Collects them. ``lost``: which files may lack rows. ``unread``: why a file cannot be read."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], UnreadableInput] = {}
        self.lost: dict[Hole, None] = {}
        self.unread: dict[str, str] = {}

    @property
    def unreadable(self) -> list[UnreadableInput]:
        return list(self._entries.values())

    def report(self, file: str, why: str, times: int = 1, row: int | None = None) -> None:
        """Something in a file could not be read."""
        entry = self._entries.get((file, why), UnreadableInput(file, why, 0, row))
        self._entries[file, why] = entry._replace(times=entry.times + times)

    def report_lost(self, file: str, why: str, row: int | None = None) -> None:
        """Something in a file could not be read, so that what it says is lost."""
        self.lost[Hole(file, why)] = None
        self.report(file, why, row=row)
