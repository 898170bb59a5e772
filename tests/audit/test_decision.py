"""The decision of the audit, enumerated; copies of repairs; queues; many runs."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from kpl_codec.audit.index import Name, Run, Tally, runs_of
from kpl_codec.audit.judge import DECISIONS, RULES, STATES, Audit, judge
from kpl_codec.audit.sources import Holes
from kpl_codec.ledger.ledger_rows import Row, RowKind

from .model import index_of

SHARD = "shardId-000000000000"
BOTH = (False, True)
ANSWERS = [*product(BOTH, STATES, BOTH, BOTH, BOTH)]


def state_of(handled: bool, copy: str, aside: bool, past: bool, doubt: bool) -> str:
    return STATES[DECISIONS[handled + 2 * aside + 4 * past + 8 * doubt + 16 * STATES.index(copy)]]


@pytest.mark.requirement("AUD-10", "AUD-11", "AUD-12", "AUD-15", "AUD-22")
def test_all_96_answers() -> None:
    assert len(DECISIONS) == len(ANSWERS) == 96
    for answers in ANSWERS:
        handled, copy, aside, past, doubt = answers
        state = state_of(*answers)
        # Law 1: a good state has a witness.
        if state in ("handled", "repaired", "aside"):
            assert handled or copy in ("handled", "repaired", "aside") or aside
        # Law 2: missing needs four noes.
        if state == "missing":
            assert (handled, copy, aside, past, doubt) == (False, "missing", False, True, False)
        # Law 3: unknown needs a doubt, and that the consumer is past it.
        if state == "unknown":
            assert past
            assert doubt or copy == "unknown"
        # No further evidence makes a state worse.
        better = [(True, copy, aside, past, doubt), (handled, copy, True, past, doubt)]
        better += [(handled, one, aside, past, doubt) for one in STATES[: STATES.index(copy)]]
        assert all(STATES.index(state_of(*one)) <= STATES.index(state) for one in better)


#: What makes each state of a copy: numbers of its shard that were handled, put aside, reached by a hole.
COPIES: dict[str, tuple[list[int], list[int], list[str]]] = {
    "handled": ([100], [], []),
    "repaired": ([200], [], []),
    "aside": ([], [100], []),
    "too_early": ([], [], []),
    "unknown": ([300], [], ["100"]),
    "missing": ([300], [], []),
}


def state_in_a_world(handled: bool, copy: str, aside: bool, past: bool, doubt: bool) -> str:
    """The state of the user record 10, where rows and holes give these answers. Its copy is 100 on another
    shard, and the copy's is 200 where that is needed."""
    other = "shardId-000000000001"
    by_copies, by_hook, lost = COPIES[copy]
    put = rows("delivered", 10, 20)
    put += [row.replace(shard_id=other) for row in rows("delivered", 300)]
    noted = rows("before", *[10] * handled) + rows("handled", *[20] * past)
    noted += rows("aside", *[10] * aside, count=0)
    noted += [row.replace(shard_id=other) for row in rows("handled", *by_copies)]
    noted += [row.replace(shard_id=other) for row in rows("aside", *by_hook, count=0)]
    holes = Holes()
    for number in [*lost, *["10"] * doubt]:
        holes.add("file", "a row that cannot be read", number=number)
    pairs = [(name(10), (other, "100", 0)), ((other, "100", 0), (other, "200", 0))]
    pairs = pairs if copy == "repaired" else pairs[:1]
    audit = audit_of(put, noted, *pairs, handled_holes=holes)
    values = audit.runs.value[audit.runs.record == 0].tolist()
    return STATES[-values[0]] if values else "handled"


def can_be(answers: tuple[Any, ...]) -> bool:
    """Whether rows can give these answers: who was handled or put aside is passed."""
    handled, _, aside, past, _ = answers
    return past or not (handled or aside)


@pytest.mark.requirement("AUD-10", "AUD-11", "AUD-12", "AUD-15", "AUD-22")
def test_rows_and_holes_lead_to_each_state_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """And whatever else a place of the table says, an audit shows it."""
    for answers in ANSWERS:
        handled, copy, aside, past, doubt = answers
        expected = (
            "handled" if handled
            else "repaired" if copy in ("handled", "repaired")
            else "aside" if aside or copy == "aside"
            else "too_early" if copy == "too_early" or not past
            else "unknown" if doubt or copy == "unknown"
            else "missing"
        )  # fmt: skip
        assert state_of(*answers) == expected
        if not can_be(answers):
            continue
        assert state_in_a_world(*answers) == expected, answers
        place = handled + 2 * aside + 4 * past + 8 * doubt + 16 * STATES.index(copy)
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
            if all(answer in rule[at] for at, answer in enumerate(answers))  # type: ignore[operator]
        )

    assert {line(answers) for answers in ANSWERS} == set(range(len(RULES)))


def audit_of(put: list[Row], handled: list[Row], *repaired: tuple[Name, Name], **options: Any) -> Audit:
    copies = [Row("repaired", *new[:2], new[2] + 1, 1 << 62) for _, new in repaired]
    index = index_of([*put, *copies])
    tally = Tally(index)
    tally.add_rows(handled)
    return judge(index, tally, repaired=repaired, **options)


def rows(kind: RowKind, *numbers: int, digest: bytes = bytes(8), count: int = 1) -> list[Row]:
    return [Row(kind, SHARD, str(number), count, 1, digest) for number in numbers]


def name(number: int) -> Name:
    return SHARD, str(number), 0


@pytest.mark.requirement("AUD-13", "AUD-15", "AUD-22")
@pytest.mark.parametrize(
    ("handled", "state", "twice"),
    [
        ([300], "repaired", 0),
        ([200], "repaired", 0),
        ([200, 300], "repaired", 1),
        ([10, 300], "handled", 1),
        ([400], "missing", 0),
        ([250], "too_early", 0),
    ],
    ids=["copy of the copy", "copy", "both copies", "it and a copy", "none, and past", "none yet"],
)
@pytest.mark.parametrize("turned", BOTH, ids=["in order", "turned"])
def test_copies_of_copies(handled: list[int], state: str, twice: int, turned: bool) -> None:
    pairs = [(name(10), name(200)), (name(200), name(300))]
    audit = audit_of(rows("delivered", 10, 20), rows("handled", 20, *handled), *pairs[:: -1 if turned else 1])
    assert audit.total(state) - (state == "handled") == 1
    assert len(audit.repaired_twice) == twice


@pytest.mark.requirement("AUD-15")
def test_two_copies_of_which_one_is_enough_and_a_circle() -> None:
    two = [(name(10), name(200)), (name(10), name(300))]
    for turned in (1, -1):
        audit = audit_of(rows("delivered", 10, 20), rows("handled", 20, 200), *two[::turned])
        assert (audit.complete, audit.total("repaired")) == (True, 1)
    aside = audit_of(rows("delivered", 10, 20), [*rows("handled", 20), *rows("aside", 200, count=0)], two[0])
    assert (aside.complete, aside.total("aside")) == (True, 1)
    circle = [(name(10), name(200)), (name(200), name(10))]
    assert audit_of(rows("delivered", 10, 20), rows("handled", 400), *circle).total("missing") == 2


def queue_rows(ids: str, digest: bytes, count: int = 1) -> list[Row]:
    return [Row("handled", "", "", count, 1, digest, 0, record_id) for record_id in ids]


@pytest.mark.requirement("AUD-19")
@pytest.mark.parametrize(
    ("put", "named", "ids", "handled", "unknown"),
    [
        (rows("delivered", 10, 20, digest=b"D" * 8), [10], "a", 1, 1),
        (rows("delivered", 10, 20, digest=b"D" * 8), [20], "a", 1, 1),
        (rows("delivered", 10, 20, digest=b"D" * 8), [], "ab", 2, 0),
        (rows("delivered", 10, 20, digest=b"D" * 8), [], "a", 1, 0),
        ([*rows("again", 10, digest=b"D" * 8), *rows("delivered", 20, digest=b"D" * 8)], [], "ab", 1, 0),
        (
            [*rows("again", 10, digest=b"D" * 8), *rows("delivered", 20, 30, digest=b"D" * 8)],
            [],
            "ab",
            1,
            1,
        ),
    ],
    ids=["named first", "named last", "two ids", "one id", "again", "again and two"],
)
def test_records_of_queues_with_equal_bytes(
    put: list[Row], named: list[int], ids: str, handled: int, unknown: int
) -> None:
    """As many are handled as the rows prove; which of the others, nobody can know."""
    consumed = [*rows("handled", *named), *queue_rows(ids, b"D" * 8)]
    for some in (consumed, consumed[::-1]):
        audit = audit_of(put, some, until=5)
        assert (audit.total("handled"), audit.total("unknown")) == (handled, unknown)
    assert audit_of(put, consumed).total("missing") == 0


@pytest.mark.requirement("AUD-12")
@pytest.mark.parametrize(
    ("reach", "unknown"),
    [
        ({"number": "20"}, {20}),
        ({"shard": SHARD}, {10, 20, 30}),
        ({"shard": "other"}, set()),
        ({}, {10, 20, 30}),
    ],
    ids=["a Kinesis record", "a shard", "another shard", "all"],
)
def test_unknown_reaches_no_further_than_the_hole(reach: dict[str, str], unknown: set[int]) -> None:
    holes = Holes()
    holes.add("file", "a row that cannot be read", **reach)  # type: ignore[arg-type]
    index = index_of(rows("delivered", 10, 20, 30, 40))
    tally = Tally(index)
    tally.add_rows(rows("handled", 40))
    audit = judge(index, tally, handled_holes=holes)
    assert {int(run.sequence_number) for run in runs_of(index, audit.of("unknown"))} == unknown
    assert audit.total("missing") == 3 - len(unknown)


def test_the_order_of_rows_does_not_matter() -> None:
    chance = np.random.default_rng(1)
    put = [Row("delivered", f"shardId-{n % 3:012d}", str(1000 + n), 5, n) for n in range(100)]
    put += [
        Row("delivered", "shardId-000000000000", "1000", 7, 0),
        Row("again", "shardId-000000000001", "1001", 5, 1),
    ]
    kinds: list[RowKind] = ["handled", "before", "aside", "handled"]
    handled = [
        Row(kinds[n % 4], row.shard_id, row.sequence_number, 2, 0, first=int(n % 3))
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
