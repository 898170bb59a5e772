"""The audit against a world with a truth."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.audit.index import NAMED, TIMES, Name, Run, Tally, runs_of
from kpl_codec.audit.judge import judge
from kpl_codec.ledger.ledger_rows import Row

from .model import Odds, Outcome, World, index_of, names_of_runs, plain_audit, run_audit

LOSSES = ("lost_segment", "lost_block", "lost_handled")
TROUBLES = ("misplaced", "unanswered", "refused", "producer_crash", "consumer_crash", "split", "foreign")
STATES = ("missing", "unknown", "too_early")
WORLDS = st.builds(
    Odds,
    seed=st.integers(0, 2**32),
    steps=st.integers(0, 60),
    largest=st.sampled_from([1, 3, 12, 300]),
    skip=st.sampled_from([0, 3, 50]),
    **dict.fromkeys((*TROUBLES, *LOSSES), st.sampled_from([0, 0, 2, 5, 20])),
    drops_misplaced=st.booleans(),
    digests=st.booleans(),
    to_the_end=st.booleans(),
    clocks=st.sampled_from([0, 10**7]),
)


def names_in(outcome: Outcome, state: str) -> set[Name]:
    return names_of_runs(runs_of(outcome.index, outcome.audit.of(state)))


def check(world: World, outcome: Outcome) -> None:
    """What holds of every audit, by the plain one and by the truth."""
    audit = outcome.audit
    missing, unknown, early = (names_in(outcome, state) for state in STATES)
    duplicates = {name: times for run, times in audit.duplicates for name in names_of_runs([run])}
    *plain, plain_duplicates = plain_audit(outcome)
    assert [missing, unknown, early] == plain
    assert duplicates == {name: min(times, TIMES) for name, times in plain_duplicates.items()}
    # By the truth: nothing that was handled is called missing; nothing is complete that is not.
    assert not any(world.handled[name] for name in missing)
    assert all(world.handled[name] > 1 for name in duplicates)
    lost = {name for name in world.delivered.values() if not world.handled[name]}
    assert not audit.complete or not lost
    in_ledgers = {(row.shard_id, row.sequence_number) for row in outcome.rows if row.kind == "delivered"}
    assert {name for name in lost if name[:2] in in_ledgers} <= missing | unknown | early
    # Where no note of the consumer is lost, only what may have been handled in an attempt without an answer
    # is unknown, and every duplicate is named.
    if not audit.lost_of_consumers:
        attempts = {row.digest for row in outcome.rows if row.kind == "unanswered"}
        places = {name[:2] for name in unknown}
        named = [row for row in outcome.rows if (row.shard_id, row.sequence_number) in places]
        assert all(row.digest in attempts for row in named)
        twice = {name for name, times in world.handled.items() if times > 1 and name[:2] in in_ledgers}
        assert duplicates.keys() == twice
    # What no ledger names.
    roles = {(shard, one.number): one.role for shard, at in world.shards.items() for one in at.records}
    whole = not audit.lost_of_producers
    for origin, one in audit.unclaimed:
        role = roles[one.shard_id, one.sequence_number]
        if origin in ("unanswered", "stored"):
            assert role == "unanswered" or (role in ("delivered", "again") and not whole)
        if origin == "foreign":
            assert role == "foreign"
        if origin == "stored":  # no record that a ledger names has its bytes
            digest = outcome.digests[one.shard_id, one.sequence_number]
            assert all(row.digest != digest for row in outcome.rows if row.kind in NAMED)
    for kind in ("refused", "left") if whole else ():
        assert sum(audit.undelivered[kind].values()) == world.refused[kind]
    totals = sum(map(Counter, audit.shards.values()), Counter[str]())
    states = ("handled", "missing", "unknown", "too_early")
    assert totals["delivered"] == sum(totals[state] for state in states)


@pytest.mark.requirement("AUD-10", "AUD-11", "AUD-12", "AUD-14")
@given(odds=WORLDS)
def test_the_audit_says_what_is_true(odds: Odds) -> None:
    world = World(odds).run()
    check(world, run_audit(world))


@pytest.mark.requirement("AUD-11")
@given(odds=WORLDS, back=st.integers(0, 10**5))
def test_until_decides_alone_where_it_is_given(odds: Odds, back: int) -> None:
    world = World(odds).run()
    until = world.now - back
    outcome = run_audit(world, until=until)
    plain = plain_audit(outcome, until)
    assert tuple(names_in(outcome, state) for state in STATES) == plain[:3]


@pytest.mark.requirement("AUD-10")
@given(odds=WORLDS)
def test_what_is_whole_is_called_complete(odds: Odds) -> None:
    calm = dict.fromkeys(("producer_crash", "skip", *LOSSES), 0)
    world = World(replace(odds, **calm, to_the_end=True)).run()
    assert run_audit(world).audit.complete


@pytest.mark.requirement("AUD-9")
def test_ledgers_that_contradict_each_other_are_never_complete() -> None:
    rows = [Row("delivered", "s", sequence_number="7", user_records=count, at=0) for count in (2, 3, 1)]
    names = index_of(rows)
    tally = Tally(names)
    tally.add_rows([Row("handled", "s", sequence_number="7", user_records=3, at=0)])
    audit = judge(names, tally)
    assert audit.total("handled") == audit.total("delivered") == 3
    assert audit.conflicts == 2
    assert not audit.complete


@pytest.mark.requirement("AUD-13")
def test_what_its_producer_sent_again_is_no_duplicate_of_a_consumer() -> None:
    names = index_of(
        [
            Row("again", "s", sequence_number="7", user_records=2, at=0),
            Row("delivered", "s", sequence_number="8", user_records=2, at=0),
        ]
    )
    tally = Tally(names)
    tally.add_rows(
        [Row("handled", "s", sequence_number=number, user_records=2, at=0) for number in ("7", "8") * 2]
    )
    audit = judge(names, tally)
    assert audit.duplicates == [(Run("s", "8", 0, 1), 2)]
    assert audit.copies == 2


@pytest.mark.slow
@pytest.mark.requirement("AUD-10", "AUD-11", "AUD-12", "AUD-14")
@pytest.mark.parametrize("steps", [400, pytest.param(4000, marks=pytest.mark.soak)])
def test_hundreds_of_thousands_of_user_records(steps: int) -> None:
    """All kinds of trouble at once, at size."""
    seldom = steps // 10
    odds = Odds(
        seed=7, steps=steps, largest=300, misplaced=40, unanswered=40, refused=60, producer_crash=seldom,
        consumer_crash=50, skip=997, split=seldom, foreign=50, lost_block=seldom, lost_handled=seldom,
    )  # fmt: skip
    world = World(odds).run()
    assert world.ids > 250 * steps
    for lost_handled in (0, odds.lost_handled):
        world.odds = replace(odds, lost_handled=lost_handled)
        outcome = run_audit(world)
        assert outcome.audit.total("unknown" if lost_handled else "missing") > 0.07 * steps
        assert outcome.audit.duplicates
        check(world, outcome)
