"""Decides of every user record that was put whether it was handled, without I/O.

    names = UserRecordIndex(rows of the producers' ledgers)
    tally = HandledCounts(names)
    tally.add(places, record, first, last)            # in any order
    audit = judge(names, tally, ...)

    handled   >= 1 times                                     handled; more than once: duplicates
    not handled, but a poison hook took it                   aside
    not handled, and the consumer is past it                 missing; unknown if its rows may be lost
    not handled, and the consumer may still come to it       too early
    handled, and no ledger has it                            unclaimed

A consumer is past a user record when it has handled a later one of the same shard, or when the caller says
until when everything must be handled. Specification: spec/15-audit.md, AUD-9 to AUD-17.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from ..ledger.ledger_rows import NO_DIGEST, Row
from .ledger_reader import Hole
from .user_record_index import (
    CODES,
    HandledCounts,
    Name,
    Place,
    Run,
    Runs,
    Unclaimed,
    UserRecordIndex,
    runs_in,
    runs_of,
)

#: What becomes of a delivered user record. In `Runs`, "repaired" has the value -1, "aside" -2, and so on.
STATES: Final = ("handled", "repaired", "aside", "missing", "unknown", "too_early")
#: Who has put a Kinesis record that no ledger names: a producer, by an attempt without a response (on a shard
#: that is not known) that it repeated ("unanswered") or did not ("stored"); a foreign writer; or either.
Origin = Literal["unanswered", "stored", "either", "foreign"]
#: Kinesis records that no ledger names: who may have put each, and its digest if that is known.
_Attributed = list[tuple[Origin, Unclaimed, bytes | None]]


@dataclass
class Audit:
    """The result of `judge`. ``shards``: by shard, how many user records were delivered, and how many are in
    each of `STATES`. ``runs``: the user records that were not handled exactly once. ``duplicates``: user
    records that were handled more than once, and how often (255: or more). ``copies``: how many user records
    were handled of Kinesis records that their producer had sent again. ``repaired_twice``: user records that
    were handled although a repair put a copy, which was handled, too. ``conflicts``: how many rows of ledgers
    contradict others. ``undelivered``: by shard and error code, how many user records a producer gave up."""

    shards: dict[str, dict[str, int]]
    runs: Runs
    duplicates: list[tuple[Run, int]]
    copies: int
    repaired_twice: list[Name]
    unclaimed: list[tuple[Origin, Unclaimed]]
    conflicts: int
    undelivered: dict[str, Counter[str]]
    holes: Sequence[Hole]
    handled_holes: Sequence[Hole]

    def of(self, state: str) -> Runs:
        """The user records in ``state``, one of `STATES` other than "handled"."""
        return self.runs.where(self.runs.value == -STATES.index(state))

    def total(self, name: str) -> int:
        return sum(sums[name] for sums in self.shards.values())

    @property
    def complete(self) -> bool:
        """Whether all that was put was handled, and no lost row could say otherwise."""
        # AUD-10: "An audit MUST say complete only where every ledger of a producer is whole to its last end
        # mark, and nothing is missing, unknown or too early."
        open_states = ("missing", "unknown", "too_early")
        return not (self.holes or self.conflicts or any(map(self.total, open_states)))


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
    digests: Mapping[Place, bytes] | None = None,
) -> Audit:
    """``unnamed``: rows of the producers' ledgers without a sequence number. ``until``: only what was put
    before it (ms since 1970) must be handled; by default what comes before the last handled user record of
    its shard, and nothing of a queue, which has no order. ``finished``: shards that the consumer has read to
    their end, as it has begun with their children. ``repaired``: names of user records that were put again,
    and of their copies. ``digests``: of unclaimed Kinesis records, where known."""
    if until is None and tally.has_no_order:
        until = 0
    # AUD-11: "A user record that was not handled MUST be called missing only where a later one of its shard
    # was handled, a child of its shard was begun, or the caller says that it must be handled by now; of a
    # queue only where the caller says so."
    if until is None:
        due = _ends(names, tally, set(finished))[names.shard]
    else:
        due = np.where(names.at < until, names.starts[1:], 0)
    copied, waiting, twice = _match_repairs(names, tally, due, repaired)
    unclaimed = _attribute_unclaimed(names, tally, unnamed, holes, digests or {})
    # AUD-12: "Where notes of a consumer are lost, a user record that they may have named MUST be called
    # unknown, not missing."
    doubtful = tally.doubtful | bool(handled_holes) | _in_doubt(names, unnamed, unclaimed)
    # AUD-22: "What a poison hook took MUST be called put aside, neither handled nor missing."
    aside = [np.arange(start, stop) for start, stop in tally.aside]
    # Each of these overrules those before it.
    overrules = {
        "aside": np.concatenate([np.empty(0, np.int64), *aside]),
        "repaired": copied,
        "too_early": waiting,
    }
    runs = _runs(names, tally, due, doubtful, overrules)
    again = np.flatnonzero(names.kinds == CODES["again"])
    undelivered = {"refused": Counter[str](), "left": Counter[str]()}
    for row in unnamed:
        if row.kind in undelivered:
            undelivered[row.kind][row.shard_id] += row.user_records
    duplicates = runs.where(runs.value > 1)
    return Audit(
        shards=_by_shard(names, runs),
        runs=runs,
        duplicates=list(zip(runs_of(names, duplicates), duplicates.value.tolist(), strict=True)),
        copies=sum(int(np.count_nonzero(tally.times[slice(*names.starts[at : at + 2])])) for at in again),
        repaired_twice=twice,
        unclaimed=[(origin, one) for origin, one, _ in unclaimed],
        conflicts=names.conflicts,
        undelivered=undelivered,
        holes=holes,
        handled_holes=handled_holes,
    )


def _ends(names: UserRecordIndex, tally: HandledCounts, finished: set[str]) -> Any:
    """By shard: the number of the first user record that the consumer is not past."""
    ends = names.starts[tally.passed]
    for code, shard in enumerate(names.shards):
        low, high = names.starts[names.bounds[code : code + 2]]
        if shard in finished:
            ends[code] = high
        handled = tally.times[low:high] > 0
        if handled.any():
            ends[code] = max(ends[code], high - 1 - np.argmax(handled[::-1]))
    return ends


def _runs(
    names: UserRecordIndex, tally: HandledCounts, due: Any, doubtful: Any, overrules: Mapping[str, Any]
) -> Runs:
    """The user records that were not handled exactly once. ``value``: how often one was handled, or minus the
    index of its state in `STATES`. ``due``: of each Kinesis record one past the last user record that must be
    handled by now."""
    delivered, again = (names.kinds == CODES[kind] for kind in ("delivered", "again"))
    parts = [runs_in(names, np.empty(0, np.int64), np.empty(0, np.int64))]
    for at in tally.not_once():
        record, times = names.record_of(at), tally.times[at]
        late = np.where(doubtful[record], -STATES.index("unknown"), -STATES.index("missing"))
        values = np.where(at < due[record], late, -STATES.index("too_early"))
        for state, user_records in overrules.items():
            values[np.isin(at, user_records)] = -STATES.index(state)
        values = np.where(times > 1, times, values)
        counts = np.where(times > 1, ~again[record], delivered[record])
        parts.append(runs_in(names, at[counts], values[counts]))
    arrays = zip(*((part.record, part.start, part.stop, part.value) for part in parts), strict=True)
    return Runs(*map(np.concatenate, arrays))


def _by_shard(names: UserRecordIndex, runs: Runs) -> dict[str, dict[str, int]]:
    size = len(names.shards)
    delivered = np.bincount(names.shard, names.counts * (names.kinds == CODES["delivered"]), size)
    counts = {}
    for value, state in enumerate(STATES[1:], 1):
        part = runs.where(runs.value == -value)
        counts[state] = np.bincount(names.shard[part.record], part.stop - part.start, size)
    counts = {"delivered": delivered, "handled": delivered - sum(counts.values()), **counts}
    return {
        shard: {name: int(many[code]) for name, many in counts.items()}
        for code, shard in enumerate(names.shards)
    }


def _match_repairs(
    names: UserRecordIndex, tally: HandledCounts, due: Any, repaired: Iterable[tuple[Name, Name]]
) -> tuple[list[int], list[int], list[Name]]:
    """The user records of which only a copy was handled, those whose copy may still be handled, and the names
    of those that were handled together with their copy. ``due``: as for `_runs`."""
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
    return copied, waiting, twice


def _attribute_unclaimed(
    names: UserRecordIndex,
    tally: HandledCounts,
    unnamed: Sequence[Row],
    holes: Sequence[Hole],
    digests: Mapping[Place, bytes],
) -> _Attributed:
    unanswered = [row for row in unnamed if row.kind == "unanswered"]
    unanswered_digests = {row.digest for row in unanswered}
    named_digests = {row.digest for row in names.rows}
    largest = max([row.user_records for row in unanswered], default=0)
    origins: _Attributed = []
    for place, one in sorted(tally.unclaimed.items()):
        digest = digests.get(place) or tally.queued.get(place)
        # AUD-14: "A handled user record that no ledger names MUST be reported: as an attempt without an
        # answer where its digest is that of one, as a foreign writer's where it cannot be such an attempt."
        if digest in unanswered_digests:
            origins.append(("unanswered" if digest in named_digests else "stored", one, digest))
        elif holes or (digest is None and one.last < largest):  # (on any shard)
            origins.append(("either", one, digest))
        else:
            origins.append(("foreign", one, digest))
    return origins


def _in_doubt(names: UserRecordIndex, unnamed: Sequence[Row], unclaimed: _Attributed) -> Any:
    """Which Kinesis records an earlier attempt without an answer, of the same bytes, may have delivered."""
    attempts = {row.digest for row in unnamed if row.kind == "unanswered"} - {NO_DIGEST}
    if all(origin != "either" for origin, *_ in unclaimed):
        attempts &= {digest for origin, _, digest in unclaimed if digest and origin == "unanswered"}
    if not attempts or not unclaimed:
        return np.zeros(len(names.rows), bool)
    return np.array([row.digest in attempts for row in names.rows], bool)
