"""The counts of a tally, added up by shard, by verdict and by fate at the KCL."""

from __future__ import annotations

from collections import Counter
from typing import Any

from .counters import OTHERS, Tally, example
from .model import NOT_JUDGED, Landing


class Loads:
    """The groups of a tally, summed up by shard."""

    def __init__(self, tally: Tally) -> None:
        self.user_records: Counter[str | None] = Counter()
        self.bytes: Counter[str | None] = Counter()
        self.misplaced: Counter[str | None] = Counter()
        self.dropped: Counter[str | None] = Counter()
        self.belonging: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.kcl: Counter[str] = Counter()
        #: (shard, verdict) -> [user records, a sequence number]
        self.judged: dict[tuple[str | None, str], list[Any]] = {}
        pairs: Counter[tuple[str | None, str | None, str]] = Counter()
        for (shard_id, expected, verdict, kcl), (count, size, number) in tally.groups.items():
            verdict = verdict or NOT_JUDGED
            self.user_records[shard_id] += count
            self.bytes[shard_id] += size
            self.verdicts[verdict] += count
            if verdict == "stray":
                self.misplaced[shard_id] += count
            if kcl is not None:
                self.kcl[kcl] += count
            if kcl == "dropped":
                self.dropped[shard_id] += count
            if expected is not None and expected != OTHERS:
                self.belonging[expected] += count
            pairs[shard_id, expected, verdict] += count
            judged = self.judged.setdefault((shard_id, verdict), [0, None])
            judged[0] += count
            judged[1] = example(judged[1], number)
        self.landings = [
            Landing(shard_id, expected, verdict, count)
            for (shard_id, expected, verdict), count in pairs.items()
            if verdict != NOT_JUDGED
        ]
