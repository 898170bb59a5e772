"""What became of every user record that was put, without I/O.

    names = UserRecordIndex(rows of the producers' ledgers)
    tally = HandledCounts(names)
    tally.add(HandledRows(shards, numbers, ...))      # in any order
    audit = judge(names, tally, ...)

    handled   >= 1 times                                     once, twice (by whom)
    not handled, but a poison hook took it                   aside
    not handled, and the consumer is past it                 missing; unknown where its notes are lost
    not handled, and the consumer may still come to it       too early
    handled, and no ledger has it                            unclaimed

A consumer is past a user record when it has handled a later one of the same shard, or when the caller says
until when everything must be handled. Specification: spec/15-audit.md, AUD-9 to AUD-17.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from ..ledger.ledger_rows import NO_DIGEST, Row
from .ledger_reader import Hole
from .user_record_index import (
    CODES,
    HandledCounts,
    Name,
    Run,
    Runs,
    Unclaimed,
    UserRecordIndex,
    join,
    not_once,
    runs_in,
    runs_of,
)

_NONE: Final = np.empty(0, np.int64)
#: What becomes of a delivered user record.
STATES = ("handled", "repaired", "aside", "missing", "unknown", "too_early")
#: Who has put what no ledger has: the producer of an attempt without an answer, a foreign writer, or either.
Origin = Literal["unanswered", "either", "foreign"]


class Duplicate(NamedTuple):
    """User records that were handled ``times`` times each (255: or more often)."""

    run: Run
    times: int


@dataclass
class Audit:
    """``shards``: of each how many user records were delivered, and `STATES` of them. ``copies``: how many
    were handled of Kinesis records that their producer sent again. ``repaired_twice``: those handled, as was
    their copy. ``conflicts``: how many rows of ledgers contradict others. ``undelivered``: how many user
    records were refused and left, by error code."""

    shards: dict[str, dict[str, int]]
    repaired: Runs
    aside: Runs
    missing: Runs
    unknown: Runs
    too_early: Runs
    duplicates: list[Duplicate]
    copies: int
    repaired_twice: list[Name]
    unclaimed: list[tuple[Origin, Unclaimed]]
    conflicts: int
    undelivered: dict[str, Counter[str]]
    holes: Sequence[Hole]
    handled_holes: Sequence[Hole]

    def total(self, name: str) -> int:
        return sum(sums[name] for sums in self.shards.values())

    @property
    def complete(self) -> bool:
        """Whether all that was put was handled, and no lost row could say otherwise."""
        # AUD-10: "An audit MUST say complete only where every ledger of a producer is whole to its last end
        # mark, and nothing is missing, unknown or too early."
        gaps = self.holes or self.conflicts
        return not (gaps or len(self.missing) or len(self.unknown) or len(self.too_early))


def judge(
    names: UserRecordIndex,
    tally: HandledCounts,
    *,
    unnamed: Sequence[Row] = (),
    holes: Sequence[Hole] = (),
    handled_holes: Sequence[Hole] = (),
    until: int | None = None,
    finished: Iterable[str] = (),
    repaired: Iterable[tuple[Name, Name]] = (),
    digests: Mapping[tuple[str, str], bytes] | None = None,
) -> Audit:
    """``unnamed``: rows of the producers' ledgers without a sequence number. ``until``: only what was put
    before it (ms since 1970) must be handled; by default what comes before the last handled user record of
    its shard, and nothing of a queue, which has no order. ``finished``: shards that the consumer has read to
    their end, as it has begun with their children. ``repaired``: names of user records that were put again,
    and of their copies. ``digests``: the known ones of unclaimed Kinesis records."""
    ends = _ends(names, tally, set(finished))
    if until is None and tally.has_no_order:
        until = 0
    # AUD-11: "A user record that was not handled MUST be called missing only where a later one of its shard
    # was handled, a child of its shard was begun, or the caller says that it must be handled by now; of a
    # queue only where the caller says so."
    due = ends[names.shard] if until is None else np.where(names.at < until, names.starts[1:], 0)
    copied, waiting, twice = _match_repairs(names, tally, due, repaired)
    # AUD-22: "What a poison hook took MUST be called put aside, neither handled nor missing."
    taken = [np.flatnonzero(tally.times[start:stop] == 0) + start for start, stop in tally.aside]
    put_aside = np.setdiff1d(np.concatenate((_NONE, *taken)), np.concatenate((copied, waiting)))
    delivered = names.kinds == CODES["delivered"]
    aside = runs_in(names, put_aside[delivered[names.record_of(put_aside)]])
    runs = not_once(tally, np.concatenate((copied, waiting, put_aside)))
    absent = runs.where((runs.times == 0) & delivered[runs.record])
    late = absent.within(0, due[absent.record])
    # AUD-12: "Where notes of a consumer are lost, a user record that they may have named MUST be called
    # unknown, not missing."
    unclaimed = _attribute_unclaimed(tally, unnamed, holes, digests or {})
    doubtful = tally.doubtful | bool(handled_holes) | _in_doubt(names, unnamed, unclaimed)
    unsure = doubtful[late.record]
    missing, unknown = late.where(~unsure), late.where(unsure)
    too_early = absent.within(due[absent.record], len(tally.times))
    if len(waiting):
        too_early = join(too_early, runs_in(names, np.sort(waiting)))
        too_early = too_early.where(np.argsort(too_early.start))
    parts = {
        "repaired": runs_in(names, copied),
        "aside": aside,
        "missing": missing,
        "unknown": unknown,
        "too_early": too_early,
    }
    again = names.kinds == CODES["again"]
    undelivered = {"refused": Counter[str](), "left": Counter[str]()}
    for row in unnamed:
        if row.kind in undelivered:
            undelivered[row.kind][row.shard_id] += row.user_records
    return Audit(
        shards=_by_shard(names, parts),
        **parts,
        duplicates=_duplicates(names, runs.where((runs.times > 1) & ~again[runs.record])),
        copies=sum(
            int(np.count_nonzero(tally.times[names.starts[record] : names.starts[record + 1]]))
            for record in np.flatnonzero(again)
        ),
        repaired_twice=twice,
        unclaimed=[(origin, one) for origin, one, _ in unclaimed],
        conflicts=names.conflicts,
        undelivered=undelivered,
        holes=holes,
        handled_holes=handled_holes,
    )


def _ends(names: UserRecordIndex, tally: HandledCounts, finished: set[str]) -> Any:
    """Of each shard one past the last user record that the consumer is past."""
    ends = names.starts[tally.passed]
    for code, shard in enumerate(names.shards):
        low, high = names.starts[names.bounds[code : code + 2]]
        if shard in finished:
            ends[code] = high
        handled = tally.times[low:high] > 0
        if handled.any():
            ends[code] = max(ends[code], high - 1 - np.argmax(handled[::-1]))
    return ends


def _by_shard(names: UserRecordIndex, parts: dict[str, Runs]) -> dict[str, dict[str, int]]:
    size = len(names.shards)
    delivered = np.bincount(names.shard, names.counts * (names.kinds == CODES["delivered"]), size)
    counts = {
        name: np.bincount(names.shard[part.record], part.stop - part.start, size)
        for name, part in parts.items()
    }
    counts = {"delivered": delivered, "handled": delivered - sum(counts.values()), **counts}
    return {
        shard: {name: int(many[code]) for name, many in counts.items()}
        for code, shard in enumerate(names.shards)
    }


def _duplicates(names: UserRecordIndex, runs: Runs) -> list[Duplicate]:
    duplicates = map(Duplicate, runs_of(names, runs), runs.times.tolist())
    return sorted(
        duplicates,
        key=lambda duplicate: (duplicate.run.shard_id, len(duplicate.run.sequence_number), duplicate.run),
    )


def _match_repairs(
    names: UserRecordIndex, tally: HandledCounts, due: Any, repaired: Iterable[tuple[Name, Name]]
) -> tuple[Any, Any, list[Name]]:
    """The user records of which a copy was handled, those whose copy may still be, and the names of those
    that were handled, as was their copy. ``due``: of each Kinesis record one past the last user record that
    the consumer must be past."""
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
        elif copy >= due[names.record_of(copy)]:
            waiting.append(at)
    return np.array(sorted(copied), np.int64), np.array(waiting, np.int64), twice


def _attribute_unclaimed(
    tally: HandledCounts,
    unnamed: Sequence[Row],
    holes: Sequence[Hole],
    digests: Mapping[tuple[str, str], bytes],
) -> list[tuple[Origin, Unclaimed, bytes | None]]:
    """What no ledger names, who may have put it, and its digest where that is known."""
    unanswered = [row for row in unnamed if row.kind == "unanswered"]
    unanswered_digests = {row.digest for row in unanswered}
    largest = max([row.user_records for row in unanswered], default=0)
    origins: list[tuple[Origin, Unclaimed, bytes | None]] = []
    for place, one in sorted(tally.unclaimed.items()):
        digest = digests.get(place) or tally.queued.get(place)
        # AUD-14: "A handled user record that no ledger names MUST be reported: as an attempt without an
        # answer where its digest is that of one, as a foreign writer's where it cannot be such an attempt."
        if digest in unanswered_digests:
            origins.append(("unanswered", one, digest))
        elif holes or (digest is None and one.last < largest):  # (attempts without an answer lie anywhere)
            origins.append(("either", one, digest))
        else:
            origins.append(("foreign", one, digest))
    return origins


def _in_doubt(
    names: UserRecordIndex,
    unnamed: Sequence[Row],
    unclaimed: Sequence[tuple[Origin, Unclaimed, bytes | None]],
) -> Any:
    """Which Kinesis records an earlier attempt without an answer, of the same bytes, may have delivered."""
    attempts = {row.digest for row in unnamed if row.kind == "unanswered"} - {NO_DIGEST}
    if all(origin != "either" for origin, *_ in unclaimed):
        attempts &= {digest for origin, _, digest in unclaimed if digest and origin == "unanswered"}
    if not attempts or not unclaimed:
        return np.zeros(len(names.rows), bool)
    return np.array([row.digest in attempts for row in names.rows], bool)
