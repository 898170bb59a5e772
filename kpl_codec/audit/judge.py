"""Decides of every user record that was put what became of it, without I/O. `RULES` is the decision: the
first line that fits. Specification: spec/15-audit.md, AUD-9 to AUD-17."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, Literal

import numpy as np

from ..format.limits import MOST_USER_RECORDS
from ..ledger.ledger_rows import NO_DIGEST
from .index import (
    ASIDE,
    BEFORE,
    CODES,
    TIMES,
    Index,
    Place,
    Run,
    Runs,
    Tally,
    Unclaimed,
    runs_in,
    runs_of,
)
from .lost_parts import LostPart, LostParts

#: What becomes of a delivered user record, best first. In `Runs`, "aside" has the value -1, "too_early" -2,
#: and so on.
STATES: Final = ("handled", "aside", "too_early", "unknown", "missing")
#: The states that make an audit incomplete.
OPEN: Final = ("missing", "unknown", "too_early")
_Either = tuple[bool, ...]
_Rule = tuple[_Either, _Either, _Either, _Either, str]
_YES, _NO, _ANY = (True,), (False,), (False, True)
#: Whether a row says that it was handled; whether it was put aside; whether the consumer is past it; whether
#: a lost part or an attempt without an answer may have named it; its state.
RULES: Final[tuple[_Rule, ...]] = (
    (_YES, _ANY, _ANY, _ANY, "handled"),
    # AUD-22: "What a poison hook took MUST be called put aside, neither handled nor missing."
    (_ANY, _YES, _ANY, _ANY, "aside"),
    # AUD-11: "A user record that was not handled MUST be called missing only where a later one of its shard
    # was handled, a child of its shard was begun, or the caller says that it must be handled by now."
    (_ANY, _ANY, _NO, _ANY, "too_early"),
    # AUD-12: "Where notes of a consumer are lost, a user record that they may have named MUST be called
    # unknown, not missing."
    (_ANY, _ANY, _ANY, _YES, "unknown"),
    (_ANY, _ANY, _ANY, _ANY, "missing"),
)  # fmt: skip
#: The weight of each answer in a number from 0 to 15; "handled" has 1.
_ASIDE, _PAST, _DOUBT = 2, 4, 8


def _decisions() -> Any:
    """The state of each combination of answers."""
    states = np.zeros(16, np.int8)
    for doubt, past, aside, handled in product(_ANY, _ANY, _ANY, _ANY):
        rule = next(
            rule
            for rule in RULES
            if handled in rule[0] and aside in rule[1] and past in rule[2] and doubt in rule[3]
        )
        at = handled + _ASIDE * aside + _PAST * past + _DOUBT * doubt
        states[at] = STATES.index(rule[4])
    return states


DECISIONS: Final = _decisions()
#: Who has put a Kinesis record that no ledger names: a producer, by an attempt without a response (on a shard
#: that is not known) that it repeated ("unanswered") or did not ("stored"); a foreign writer; or either.
Putter = Literal["unanswered", "stored", "either", "foreign"]


@dataclass
class Audit:
    """The result of `judge`. ``shards``: by shard, how many user records were delivered, and how many are in
    each of `STATES`. ``runs``: the user records that were not handled exactly once. ``duplicates``: user
    records that were handled more than once, and how often (63: or more). ``copies``: how many user records
    were handled of Kinesis records that their producer had sent again. ``conflicts``: how many rows of
    ledgers contradict others. ``undelivered``: by outcome and error code, how many user records a producer
    gave up."""

    shards: dict[str, dict[str, int]]
    runs: Runs
    duplicates: list[tuple[Run, int]]
    copies: int
    unclaimed: list[tuple[Putter, Unclaimed]]
    conflicts: int
    undelivered: dict[str, Counter[str]]
    lost_of_producers: list[LostPart]
    lost_of_consumers: LostParts

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
        return not (self.lost_of_producers or self.conflicts or any(map(self.total, OPEN)))


def judge(
    index: Index,
    tally: Tally,
    *,
    lost_of_producers: Iterable[LostPart] = (),
    lost_of_consumers: LostParts | None = None,
    until: int | None = None,
    finished: Iterable[str] = (),
    digests: Mapping[Place, bytes] | None = None,
) -> Audit:
    """``until``: user records that were put before this time (ms since 1970) must be handled; by default
    those before the last handled user record of their shard. ``finished``: shards that the consumer has read
    to their end, as it has begun with their children. ``digests``: of unclaimed Kinesis records, where
    known."""
    producers_lost = [*lost_of_producers]
    lost_of_consumers = LostParts() if lost_of_consumers is None else lost_of_consumers
    if until is None:
        past = tally.past.copy()
        past[[index.codes[shard] for shard in finished if shard in index.codes]] = index.starts[-1]
        due = np.minimum(past[index.shard], index.starts[1:])
    else:
        due = np.where(index.at < until, index.starts[1:], 0)
    unclaimed = _attribute_unclaimed(index, tally, digests or {}, incomplete=bool(producers_lost))
    doubtful = _may_be_named(index, lost_of_consumers) | _in_doubt(index, tally, unclaimed)
    answers = _Answers(index, tally.times, due, doubtful)
    runs = _runs(answers)
    again = np.flatnonzero(index.kinds == CODES["again"])
    duplicates = runs.where(runs.value > 1)
    return Audit(
        shards=_by_shard(index, runs),
        runs=runs,
        duplicates=list(zip(runs_of(index, duplicates), duplicates.value.tolist(), strict=True)),
        copies=sum(int(np.count_nonzero(tally.handled(*index.starts[at : at + 2]))) for at in again),
        unclaimed=[(putter, one) for putter, one, _ in unclaimed],
        conflicts=index.conflicts,
        undelivered=index.undelivered,
        lost_of_producers=producers_lost,
        lost_of_consumers=lost_of_consumers,
    )


class _Answers:
    """What is known of each user record, as a number below 16."""

    def __init__(self, index: Index, times: Any, due: Any, doubtful: Any) -> None:
        self.index, self.times, self._due, self._doubtful = index, times, due, doubtful

    def of(self, at: Any) -> Any:
        record, times = self.index.record_of(at), self.times[at]
        doubt = self._doubtful[record]
        handled, aside = (times & (TIMES | BEFORE)) > 0, (times & ASIDE) > 0
        return handled + _ASIDE * aside + _PAST * (at < self._due[record]) + _DOUBT * doubt


def _runs(answers: _Answers) -> Runs:
    """The user records that were not handled exactly once, by shard. ``value``: how often one was handled, or
    minus the index of its state in `STATES`."""
    index = answers.index
    delivered, again = (index.kinds == CODES[kind] for kind in ("delivered", "again"))
    parts = [runs_in(index, np.empty(0, np.int64), np.empty(0, np.int64))]
    for low, high in index.slices():
        at = np.flatnonzero(answers.times[low:high] != 1) + low
        times, record = (answers.times[at] & TIMES).astype(np.int64), index.record_of(at)
        states = -DECISIONS[answers.of(at)].astype(np.int64)
        values = np.where(times > 1, times, states)
        counts = np.where(times > 1, ~again[record], delivered[record]) & (values != 0)
        parts.append(runs_in(index, at[counts], values[counts]))
    arrays = zip(*((part.record, part.start, part.stop, part.value) for part in parts), strict=True)
    runs = Runs(*map(np.concatenate, arrays))
    by_name = np.argsort(np.argsort(np.array(index.shards))[index.shard[runs.record]], kind="stable")
    return runs.where(by_name)


def _by_shard(index: Index, runs: Runs) -> dict[str, dict[str, int]]:
    size = len(index.shards)
    delivered = np.bincount(index.shard, index.counts * (index.kinds == CODES["delivered"]), size)
    counts = {}
    for value, state in enumerate(STATES[1:], 1):
        part = runs.where(runs.value == -value)
        counts[state] = np.bincount(index.shard[part.record], part.stop - part.start, size)
    counts = {"delivered": delivered, "handled": delivered - sum(counts.values()), **counts}
    present = sorted((index.shards[code], code) for code in np.unique(index.shard).tolist())
    return {shard: {name: int(many[code]) for name, many in counts.items()} for shard, code in present}


def _number(digest: bytes) -> int:
    """A digest as in `Index.digests`."""
    return int(np.frombuffer(digest, np.uint64)[0])


def _attribute_unclaimed(
    index: Index, tally: Tally, digests: Mapping[Place, bytes], *, incomplete: bool
) -> list[tuple[Putter, Unclaimed, bytes | None]]:
    named = set(np.unique(index.digests).tolist()) if index.attempts else set()
    largest = max(index.attempts.values(), default=0)
    origins: list[tuple[Putter, Unclaimed, bytes | None]] = []
    for place, one in sorted(tally.unclaimed.items()):
        digest = digests.get(place)
        # AUD-14: "A handled user record that no ledger names MUST be reported: as an attempt without an
        # answer where its digest is that of one, as a foreign writer's where it cannot be such an attempt."
        if digest in index.attempts:
            is_named = _number(digest) in named
            origins.append(("unanswered" if is_named else "stored", one, digest))
        elif incomplete or (digest is None and one.last < largest):  # (on any shard)
            origins.append(("either", one, digest))
        else:
            origins.append(("foreign", one, digest))
    return origins


def _may_be_named(index: Index, lost: LostParts) -> Any:
    """Which Kinesis records the rows that are lost may name."""
    shards = [index.codes[shard] for shard, _ in lost.may_name if shard in index.codes]
    named = np.isin(index.shard, shards) | (("", "") in lost.may_name)
    named[index.records_with(number for _, number in lost.may_name)] = True
    return named


def _in_doubt(index: Index, tally: Tally, unclaimed: Sequence[tuple[Putter, Unclaimed, bytes | None]]) -> Any:
    """Which Kinesis records an earlier attempt of the same bytes may have delivered: one without an answer,
    or one on the wrong shard that was handled there."""
    known = {digest for _, _, digest in unclaimed if digest}
    lowest = min((one.last for _, one, digest in unclaimed if not digest), default=MOST_USER_RECORDS)
    lowest = -1 if tally.not_kept else lowest
    digests = {digest for digest, most in index.attempts.items() if digest in known or lowest < most}
    numbers = [_number(digest) for digest in digests - {NO_DIGEST}]
    for record in np.flatnonzero((index.kinds == CODES["again"]) & (index.digests != 0)).tolist():
        if tally.times[slice(*index.starts[record : record + 2])].any():
            numbers.append(int(index.digests[record]))
    return np.isin(index.digests, np.array(numbers, np.uint64)) if numbers else np.zeros(len(index), bool)
