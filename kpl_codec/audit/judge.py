"""What became of every user record that was put: a difference of two sets, and no I/O.

    names = Names(rows of the producers' ledgers)
    tally = Tally(names)
    tally.source("orders-sink"); tally.add(shards, numbers, subs)      # batch by batch, in any order
    audit = judge(names, tally, ...)

    handled   >= 1 times                                     once, twice (by whom)
    not handled, and the consumer is past it                 missing; unknown where its notes are lost
    not handled, and the consumer may still come to it       too early
    handled, and no ledger has it                            unclaimed

A consumer is past a user record when it has handled a later one of the same shard, or when the caller says
until when everything must be handled. Memory: two bytes a user record, and see `names`.
Specification: spec/15-audit.md, AUD-9 to AUD-17.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..ledger import CODES, Row
from .book import Hole
from .names import Name, Names, Run, runs_of
from .tally import SLICE, SOURCES, Tally, Unclaimed


class Double(NamedTuple):
    """User records that were handled ``times`` times each (255: or oftener), by ``sources``."""

    run: Run
    times: int
    sources: tuple[str, ...]


@dataclass
class ShardSums:
    """User records of one shard: delivered by a producer, and what became of them."""

    delivered: int = 0
    handled: int = 0
    repaired: int = 0
    missing: int = 0
    unknown: int = 0
    too_early: int = 0


@dataclass
class Audit:
    """See the module. ``complete``: all that was put until now was handled, and nothing that was lost could
    say otherwise. Arrays hold user records as `Names` counts them."""

    shards: dict[str, ShardSums]
    missing: Any
    unknown: Any
    too_early: Any
    doubles: list[Double]
    doubled: int
    copies: int  # handled user records of Kinesis records that their producer sent again
    repaired: int
    repaired_twice: list[Name]
    retries: list[Unclaimed]  # unclaimed, and an attempt without an answer
    perhaps_retries: list[Unclaimed]  # unclaimed: an attempt without an answer, or a foreign writer
    foreign: list[Unclaimed]
    conflicts: int  # rows of ledgers that contradict others
    refused: Counter[str]
    left: Counter[str]
    holes: list[Hole] = field(default_factory=list)
    handled_holes: list[Hole] = field(default_factory=list)

    def total(self, name: str) -> int:
        """The sum over all shards."""
        return sum(getattr(sums, name) for sums in self.shards.values())

    @property
    def complete(self) -> bool:
        # AUD-10: "An audit MUST say complete only where every ledger of a producer is whole to its last end
        # mark, and nothing is missing, unknown or too early."
        gaps = self.holes or self.conflicts
        return not (gaps or len(self.missing) or len(self.unknown) or len(self.too_early))


def judge(
    names: Names,
    tally: Tally,
    *,
    unnamed: Iterable[Row] = (),
    holes: Sequence[Hole] = (),
    handled_holes: Sequence[Hole] = (),
    until: int | None = None,
    finished: Iterable[str] = (),
    repaired: Iterable[tuple[Name, Name]] = (),
) -> Audit:
    """``unnamed``: rows of the producers' ledgers without a sequence number. ``until``: what was put before
    it, in ms since 1970, must be handled, and nothing later; by default what comes before the last handled
    user record of its shard. ``finished``: shards that the consumer has read to their end, for it has begun
    with their children. ``repaired``: names of user records that were put again, and of their copies, which
    `tally` has as unclaimed."""
    unnamed, repaired = list(unnamed), list(repaired)
    ends = _ends(names, tally, frozenset(finished))
    due = partial(_due, names, ends, until)
    copied, waiting, twice = _repaired(names, tally, due, repaired)
    lost = _in_holes(names, handled_holes)
    # missing, unknown, too early, doubled: of so many Kinesis records at a time
    parts: list[list[Any]] = [[], [], [], []]
    copies = 0
    for low, high in _slices(names):
        records = np.repeat(np.arange(low, high), names.counts[low:high])
        users = np.arange(names.starts[low], names.starts[high])
        kinds, times = names.kinds[records], tally.times[users]
        copies += int(((times > 0) & (kinds == CODES["again"])).sum())
        absent = (times == 0) & (kinds == CODES["delivered"])
        records, users, doubles = (
            records[absent],
            users[absent],
            users[(times > 1) & (kinds != CODES["again"])],
        )
        keep = ~np.isin(users, copied)
        records, users = records[keep], users[keep]
        late = due(records, users) & ~np.isin(users, waiting)
        # AUD-12: "Where notes of a consumer are lost, a user record that they may have named MUST be called
        # unknown, not missing."
        dark = late & lost[records]
        for part, found in zip(parts, (users[late & ~dark], users[dark], users[~late], doubles), strict=True):
            part.append(found)
    missing, unknown, too_early, doubled = (np.concatenate([np.zeros(0, np.int64), *part]) for part in parts)
    sums = _by_shard(names, copied, missing, unknown, too_early)
    retries, perhaps, foreign = _unclaimed(tally, unnamed, holes)
    refused, left = Counter[str](), Counter[str]()
    for row in unnamed:
        if row.kind in ("refused", "left"):
            (refused if row.kind == "refused" else left)[row.shard_id] += row.user_records
    return Audit(
        shards=sums,
        missing=missing,
        unknown=unknown,
        too_early=too_early,
        doubles=_doubles(names, tally, doubled),
        doubled=len(doubled),
        copies=copies,
        repaired=len(copied),
        repaired_twice=twice,
        retries=retries,
        perhaps_retries=perhaps,
        foreign=foreign,
        conflicts=names.conflicts,
        refused=refused,
        left=left,
        holes=list(holes),
        handled_holes=list(handled_holes),
    )


def _slices(names: Names) -> Iterator[tuple[int, int]]:
    """All Kinesis records, some user records at a time."""
    low = 0
    while low < len(names):
        high = max(int(np.searchsorted(names.starts, names.starts[low] + SLICE)), low + 1)
        yield low, min(high, len(names))
        low = high


def _ends(names: Names, tally: Tally, finished: frozenset[str]) -> Any:
    """Of each shard one past the last user record that the consumer is past."""
    ends = names.starts[tally.passed]
    for code, shard in enumerate(names.shards):
        low, high = names.starts[names.bounds[code]], names.starts[names.bounds[code + 1]]
        if shard in finished:
            ends[code] = high
        else:
            last = next(
                (at for at in range(high, low, -SLICE) if tally.times[max(low, at - SLICE) : at].any()), low
            )
            handled = np.flatnonzero(tally.times[max(low, last - SLICE) : last])
            if len(handled):
                ends[code] = max(ends[code], max(low, last - SLICE) + handled[-1])
    return ends


def _due(names: Names, ends: Any, until: int | None, records: Any, users: Any) -> Any:
    """Which user records the consumer is past."""
    # AUD-11: "A user record that was not handled MUST be called missing only where a later one of its shard
    # was handled, a child of its shard was begun, or the caller says that it must be handled by now."
    return users < ends[names.shard[records]] if until is None else names.at[records] < until


def _in_holes(names: Names, holes: Sequence[Hole]) -> Any:
    """Which Kinesis records lost notes may have named."""
    inside = np.zeros(len(names), bool)
    for hole in holes:
        if hole.ranges is None:
            inside[:] = True
            continue
        for shard, (low, high) in hole.ranges.items():
            place, behind, _ = names.find([shard, shard], np.array([low.encode(), high.encode()]))
            if behind[0] >= 0:  # else no ledger has the shard
                inside[behind[0] : behind[1] + (place[1] >= 0)] = True
    return inside


def _by_shard(names: Names, copied: Any, missing: Any, unknown: Any, early: Any) -> dict[str, ShardSums]:
    edges = names.starts[names.bounds]
    counts = np.where(names.kinds == CODES["delivered"], names.counts, 0)
    sums = {}
    for code, shard in enumerate(names.shards):
        low, high = edges[code], edges[code + 1]
        delivered = int(counts[names.bounds[code] : names.bounds[code + 1]].sum())
        parts = [
            int(np.diff(np.searchsorted(which, (low, high)))[0])
            for which in (copied, missing, unknown, early)
        ]
        sums[shard] = ShardSums(delivered, delivered - sum(parts), *parts)
    return sums


def _doubles(names: Names, tally: Tally, doubled: Any) -> list[Double]:
    found = []
    keys = tally.times[doubled].astype(np.int64) * 256 + tally.by(doubled)
    for key in np.unique(keys):
        times, bits = divmod(int(key), 256)
        sources = tuple(name for at, name in enumerate(tally.sources) if bits >> min(at, SOURCES - 1) & 1)
        found += [Double(run, times, sources) for run in runs_of(names, doubled[keys == key])]
    return sorted(
        found, key=lambda double: (double.run.shard_id, len(double.run.sequence_number), double.run)
    )


def _repaired(
    names: Names, tally: Tally, due: Callable[[Any, Any], Any], repaired: Sequence[tuple[Name, Name]]
) -> tuple[Any, Any, list[Name]]:
    """User records that were not handled, but a copy of them; those whose copy may still be; and the names of
    those that were handled, and their copy too."""
    copied: list[int] = []
    waiting: list[int] = []
    twice: list[Name] = []
    for old, new in repaired:
        at, copy = names.user_record(old), names.user_record(new)
        if at is None or copy is None:
            continue
        if tally.times[at]:
            twice += [old] * bool(tally.times[copy])
        # AUD-15: "A user record that was not handled MUST count as handled where its copy was, by the log of
        # the repair that put the copy; until the consumer is past the copy it is too early."
        elif tally.times[copy]:
            copied.append(at)
        elif not due(names.named(np.array([copy]))[0], np.array([copy]))[0]:
            waiting.append(at)
    return np.array(sorted(copied), np.int64), np.array(waiting, np.int64), twice


def _unclaimed(
    tally: Tally, unnamed: Sequence[Row], holes: Sequence[Hole]
) -> tuple[list[Unclaimed], list[Unclaimed], list[Unclaimed]]:
    """Those that are attempts without an answer, those that may be, and those that are not."""
    unanswered = [row for row in unnamed if row.kind == "unanswered"]
    digests = {row.digest for row in unanswered}
    largest = max([row.user_records for row in unanswered], default=0)
    retries, perhaps, foreign = [], [], []
    for _, one in sorted(tally.unclaimed.items()):
        # AUD-14: "What was handled and no ledger names MUST be told: as an attempt without an answer where
        # its digest is that of one, as a foreign writer's where it cannot be such an attempt."
        if one.digest is not None and one.digest in digests:
            retries.append(one)
        elif holes or (
            one.digest is None and one.last < largest
        ):  # (attempts without an answer lie anywhere)
            perhaps.append(one)
        else:
            foreign.append(one)
    return retries, perhaps, foreign
