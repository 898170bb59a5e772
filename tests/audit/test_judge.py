"""The audit against a world with a truth, and against plain sets."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kpl_codec.audit.index import NAMED, SLICE, TIMES, Run, Tally, runs_of
from kpl_codec.audit.judge import OPEN, STATES, Audit, judge
from kpl_codec.ledger.ledger_rows import Row

from ..examples import examples
from .model import SHARD, Odds, Outcome, World, index_of, names_of_runs, plain_audit, rows_of, run_audit

TROUBLES = (
    *("misplaced", "unanswered", "refused", "producer_crash", "consumer_crash", "split", "foreign", "aside"),
    *("lost_segment", "lost_block", "lost_handled", "vague"),
)
WORLDS = st.builds(
    Odds,
    seed=st.integers(0, 2**32),
    steps=st.integers(0, 60),
    largest=st.sampled_from([1, 3, 12, 100]),
    skip=st.sampled_from([0, 3, 50]),
    **dict.fromkeys(TROUBLES, st.sampled_from([0, 0, 0, 2, 5, 20])),
    drops_misplaced=st.booleans(),
    digests=st.booleans(),
    to_the_end=st.booleans(),
    clocks=st.sampled_from([0, 10**7]),
)


def check(world: World, outcome: Outcome, until: int | None) -> None:
    audit = outcome.audit
    states = plain_audit(outcome, until)
    for state in STATES[1:]:
        assert names_of_runs(runs_of(outcome.index, audit.of(state))) == states[state], state
    assert {state: audit.total(state) for state in STATES} == {
        name: len(some) for name, some in states.items()
    }
    assert audit.total("delivered") == sum(map(len, states.values()))
    duplicates = {name: times for run, times in audit.duplicates for name in names_of_runs([run])}
    handled = {name: outcome.handled[name] for name in states["handled"]}
    assert duplicates == {name: min(times, TIMES) for name, times in handled.items() if times > 1}
    is_open = any(states[state] for state in OPEN)
    assert audit.complete == (not is_open and not audit.lost_of_producers and not audit.conflicts)
    # By the truth: nothing that was handled is called missing; nothing is complete that is not.
    assert until is not None or not any(world.handled[name] for name in states["missing"])
    assert all(world.handled[name] > 1 for name in duplicates)
    lost = {
        name for name in world.delivered.values() if not world.handled[name] and name[:2] not in world.aside
    }
    assert not audit.complete or not lost
    in_ledgers = {(row.shard_id, row.sequence_number) for row in outcome.rows if row.kind == "delivered"}
    assert {name for name in lost if name[:2] in in_ledgers} <= set().union(
        *(states[state] for state in OPEN)
    )
    if not outcome.lost:
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


@pytest.mark.requirement("AUD-10", "AUD-11", "AUD-12", "AUD-14", "AUD-22")
@given(
    odds=WORLDS,
    back=st.none() | st.integers(0, 10**5),
    slice_of=st.sampled_from([7, SLICE]),
)
@settings(max_examples=examples(200))
def test_the_audit_says_what_is_true(odds: Odds, back: int | None, slice_of: int) -> None:
    """``back``: ms before the end of the world; what was put before must be handled. ``slice_of``: how many
    user records are looked at at a time."""
    world = World(odds).run()
    until = None if back is None else world.now - back
    with patch("kpl_codec.audit.index.SLICE", slice_of):
        check(world, run_audit(world, until=until), until)


def audit_of(put: list[Row], handled: list[Row]) -> Audit:
    index = index_of(put)
    tally = Tally(index)
    tally.add_rows(handled)
    return judge(index, tally)


@pytest.mark.requirement("AUD-9")
def test_ledgers_that_contradict_each_other_are_never_complete() -> None:
    put = [row for count in (2, 3, 1) for row in rows_of("delivered", 7, user_records=count)]
    audit = audit_of(put, rows_of("handled", 7, user_records=3))
    assert audit.total("handled") == audit.total("delivered") == 3
    assert audit.conflicts == 2
    assert not audit.complete


@pytest.mark.requirement("AUD-13")
def test_what_its_producer_sent_again_is_no_duplicate_of_a_consumer() -> None:
    """And a user record's times of handling are counted up to 63."""
    put = rows_of("again", 7, user_records=2) + rows_of("delivered", 8, user_records=2)
    for times in (2, 100):
        audit = audit_of(put, rows_of("handled", 7, 8, user_records=2) * times)
        assert audit.duplicates == [(Run(SHARD, "8", 0, 1), min(times, 63))]
        assert audit.copies == 2
