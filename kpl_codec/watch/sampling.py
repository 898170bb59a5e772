"""Chooses the times of a shard that are read.

    period                                    60 s of one shard, one slot of it looked at (share 1/20)
    |----|----|----|----|####|----|-- ... --|
    slot 0                 4             19

The slot is drawn by a hash of seed, shard and period number, without state: a restarted watch draws the
same slots. Times are milliseconds since 1970, as arrival times are.
Specification: spec/10-watch.md, WCH-1.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple


class Window(NamedTuple):
    """From ``start`` up to, not including, ``end``; ``period_end``: where its period ends."""

    start: int
    end: int
    period_end: int


class Sampling(NamedTuple):
    """One slot of ``slots`` in every period of ``period_ms`` milliseconds. ``seed``: any text."""

    period_ms: int
    slots: int
    seed: str = ""

    def window(self, shard_id: str, number: int) -> Window:
        """The slot of period ``number`` (counted from 1970) of a shard."""
        # WCH-1: "A period MUST be cut into slots of equal length, of which one is looked at; a hash of
        # seed, shard and period draws it, so that each slot is as likely as any other and a restart draws
        # the same."
        place = f"{self.seed}\0{shard_id}\0{number}".encode()
        slot = int.from_bytes(blake2b(place, digest_size=8).digest(), "big") % self.slots
        begin = number * self.period_ms
        return Window(
            begin + slot * self.period_ms // self.slots,
            begin + (slot + 1) * self.period_ms // self.slots,
            begin + self.period_ms,
        )

    def number(self, at_ms: float) -> int:
        """The period that ``at_ms`` lies in."""
        return int(at_ms // self.period_ms)
