"""The decision of the audit, enumerated; many runs."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from kpl_codec.audit.index import Run, Tally, runs_of
from kpl_codec.audit.judge import DECISIONS, RULES, STATES, Audit, judge
from kpl_codec.audit.lost_parts import LostPart, LostParts
from kpl_codec.ledger.ledger_rows import Row, RowKind

from .model import index_of

SHARD = "shardId-000000000000"
BOTH = (False, True)
ANSWERS = [*product(BOTH, BOTH, BOTH, BOTH)]


def state_of(handled: bool, aside: bool, past: bool, doubt: bool) -> str:
    return STATES[DECISIONS[handled + 2 * aside + 4 * past + 8 * doubt]]


@pytest.mark.requirement("AUD-10", "AUD-11", "AUD-12", "AUD-22")
def test_all_16_answers() -> None:
    assert len(DECISIONS) == len(ANSWERS) == 16
    for answers in ANSWERS:
        handled, aside, past, doubt = answers
        state = state_of(*answers)
        # Law 1: a good state has a witness.
        if state in ("handled", "aside"):
            assert handled or aside
        # Law 2: missing needs three noes.
        if state == "missing":
            assert (handled, aside, past, doubt) == (False, False, True, False)
        # Law 3: unknown needs a doubt, and that the consumer is past it.
        if state == "unknown":
            assert past
            assert doubt
        # No further evidence makes a state worse.
        better = [(True, aside, past, doubt), (handled, True, past, doubt)]
        assert all(STATES.index(state_of(*one)) <= STATES.index(state) for one in better)


def state_in_a_world(handled: bool, aside: bool, past: bool, doubt: bool) -> str:
    """The state of the user record 10, where rows and a lost part give these answers."""
    noted = rows("before", *[10] * handled) + rows("handled", *[20] * past)
    noted += rows("aside", *[10] * aside, count=0)
    lost = LostParts()
    if doubt:
        lost.add(LostPart("file", "a row that cannot be read", sequence_number="10"))
    audit = audit_of(rows("delivered", 10, 20), noted, lost_of_consumers=lost)
    values = audit.runs.value[audit.runs.record == 0].tolist()
    return STATES[-values[0]] if values else "handled"


def can_be(answers: tuple[Any, ...]) -> bool:
    """Whether rows can give these answers: who was handled or put aside is passed."""
    handled, aside, past, _ = answers
    return past or not (handled or aside)


@pytest.mark.requirement("AUD-10", "AUD-11", "AUD-12", "AUD-22")
def test_rows_and_lost_parts_lead_to_each_state_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """And whatever else a place of the table says, an audit shows it."""
    for answers in ANSWERS:
        handled, aside, past, doubt = answers
        expected = (
            "handled" if handled
            else "aside" if aside
            else "too_early" if not past
            else "unknown" if doubt
            else "missing"
        )  # fmt: skip
        assert state_of(*answers) == expected
        if not can_be(answers):
            continue
        assert state_in_a_world(*answers) == expected, answers
        place = handled + 2 * aside + 4 * past + 8 * doubt
        for wrong in range(len(STATES)):
            if wrong != STATES.index(expected):
                with monkeypatch.context() as patch:
                    table = DECISIONS.copy()
                    table[place] = wrong
                    patch.setattr("kpl_codec.audit.judge.DECISIONS", table)
                    assert state_in_a_world(*answers) != expected, (answers, STATES[wrong])


def test_each_line_of_the_table_decides_something() -> None:
    def line(answers: tuple[Any, ...]) -> int:
        return next(
            number
            for number, rule in enumerate(RULES)
            if all(answer in rule[at] for at, answer in enumerate(answers))
        )

    assert {line(answers) for answers in ANSWERS} == set(range(len(RULES)))


def audit_of(put: list[Row], handled: list[Row], **options: Any) -> Audit:
    index = index_of(put)
    tally = Tally(index)
    tally.add_rows(handled)
    return judge(index, tally, **options)


def rows(kind: RowKind, *numbers: int, digest: bytes = bytes(8), count: int = 1) -> list[Row]:
    return [
        Row(kind, SHARD, sequence_number=str(number), user_records=count, at=1, digest=digest)
        for number in numbers
    ]


@pytest.mark.requirement("AUD-12")
@pytest.mark.parametrize(
    ("legible", "unknown"),
    [
        ({"sequence_number": "20"}, {20}),
        ({"shard_id": SHARD}, {10, 20, 30}),
        ({"shard_id": "other"}, set()),
        ({}, {10, 20, 30}),
    ],
    ids=["a Kinesis record", "a shard", "another shard", "all"],
)
def test_unknown_reaches_no_further_than_what_is_lost(legible: dict[str, str], unknown: set[int]) -> None:
    lost = LostParts()
    lost.add(LostPart("file", "a row that cannot be read", **legible))  # type: ignore[arg-type]
    index = index_of(rows("delivered", 10, 20, 30, 40))
    tally = Tally(index)
    tally.add_rows(rows("handled", 40))
    audit = judge(index, tally, lost_of_consumers=lost)
    assert {int(run.sequence_number) for run in runs_of(index, audit.of("unknown"))} == unknown
    assert audit.total("missing") == 3 - len(unknown)


def test_the_order_of_rows_does_not_matter() -> None:
    chance = np.random.default_rng(1)
    put = [
        Row("delivered", f"shardId-{n % 3:012d}", sequence_number=str(1000 + n), user_records=5, at=n)
        for n in range(100)
    ]
    put += [
        Row("delivered", "shardId-000000000000", sequence_number="1000", user_records=7, at=0),
        Row("again", "shardId-000000000001", sequence_number="1001", user_records=5, at=1),
    ]
    kinds: list[RowKind] = ["handled", "before", "aside", "handled"]
    handled = [
        Row(
            kinds[n % 4],
            row.shard_id,
            sequence_number=row.sequence_number,
            user_records=2,
            at=0,
            first=int(n % 3),
        )
        for n, row in enumerate(put + put[:40])
        if n % 7
    ]
    results = set()
    for _ in range(6):
        audit = audit_of(
            [put[at] for at in chance.permutation(len(put))],
            [*map(handled.__getitem__, chance.permutation(len(handled)))],
        )
        duplicates = tuple(sorted(audit.duplicates))
        results.add((str(audit.shards), duplicates, audit.conflicts, audit.copies))
    assert len(results) == 1


def test_a_time_of_handling_is_counted_up_to_63() -> None:
    audit = audit_of(rows("delivered", 10), rows("handled", 10) * 100)
    assert audit.duplicates == [(Run(SHARD, "10", 0, 0), 63)]
