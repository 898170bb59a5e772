"""The table of `MapFreshness`, row by row; and against a machine that keeps its whole
history."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.aws_errors import Backoff
from kpl_codec.shards.live_shard_map import MapFreshness

BACKOFF = Backoff(10, 40)
Known = tuple[str, Collection[str] | None]


def known(trust: MapFreshness) -> Known:
    return trust.state, trust.in_doubt


def trusted(now: float = 1) -> MapFreshness:
    trust = MapFreshness(BACKOFF)
    assert not trust.accept(now, changed=True, now=now)
    return trust


def test_a_report_is_answered_by_a_listing_that_began_after_it() -> None:
    trust = trusted()
    assert trust.report("a", 3, 4)
    assert known(trust) == ("DOUBTED", {"a"})
    assert not trust.report("a", 9, 9)  # (a is in doubt already)
    assert trust.report("b", 5, 6)
    assert known(trust) == ("DOUBTED", {"a", "b"})
    assert trust.accept(4, changed=False, now=7)
    assert known(trust) == ("DOUBTED", {"a", "b"})
    assert not trust.accept(5, changed=False, now=8)
    assert known(trust) == ("TRUSTED", set())


def test_what_is_seen_later_than_now_counts_as_seen_now() -> None:
    trust = trusted()
    assert trust.report("a", 30, 4)
    assert not trust.accept(4, changed=True, now=5)


def test_a_report_of_no_shard_doubts_all() -> None:
    trust = trusted()
    assert trust.report("a", 2, 2)
    assert trust.report(None, 2, 2)
    assert known(trust) == ("DOUBTED", None)
    assert not trust.report("b", 3, 3)
    trust.dispute(1, {"c"})
    assert known(trust) == ("DOUBTED", None)


@pytest.mark.requirement("MAP-15")
def test_reports_in_vain_do_not_count_for_longer_and_longer() -> None:
    trust, now = trusted(), 100.0
    for wait in (10, 20, 40, 40):
        assert trust.report("a", now, now)
        assert not trust.accept(now, changed=False, now=now)
        assert not trust.report("a", now + wait - 0.1, now + wait - 0.1)
        assert known(trust) == ("TRUSTED", set())
        assert not trust.accept(now, changed=False, now=now)  # (of no report: it says nothing of them)
        now += wait
    assert trust.report("a", now, now)
    assert trust.accept(now - 1, changed=True, now=now)  # (too early, but it has changed the map)
    assert not trust.accept(now, changed=False, now=now)
    assert trust.report("a", now, now)
    assert not trust.accept(now, changed=False, now=now)
    assert not trust.report("a", now + 9.9, now + 9.9)
    assert not trust.accept(now, changed=True, now=now)  # a change: reports count again, at once
    assert trust.report("a", now, now)


def test_a_gap_or_an_overlap_doubts_what_it_concerns() -> None:
    for trust in (trusted(), MapFreshness(BACKOFF)):
        trust.dispute(2, ["a", "b"])
        assert known(trust) == ("DOUBTED", {"a", "b"})
        assert trust.accept(1.9, changed=False, now=3)
        assert not trust.accept(2, changed=False, now=3)
        assert trust.report("a", 3, 3)  # (the gap was a change: reports count)
    trust.dispute(2.9, ["c"])  # older than the report: the shard of the report stays in doubt
    assert known(trust) == ("DOUBTED", {"a", "c"})
    trust.dispute(3, ["d"])
    assert known(trust) == ("DOUBTED", {"d"})


@given(
    st.lists(st.tuples(st.sampled_from(["report", "listed", "end", "disputed"]), *[st.integers(0, 3)] * 3))
)
def test_a_listing_ends_doubt_exactly_if_it_began_after_all_that_raised_it(
    events: list[tuple[str, int, int, int]],
) -> None:
    """Naive: trust is there while the latest sound listing began no earlier than all causes of doubt."""
    trust, now, causes = MapFreshness(BACKOFF), 0.0, [float("-inf")]
    for event, back, shard, step in events:
        now += step
        before = max(now - back, 0)
        if event == "report":
            doubted = trust.state == "DOUBTED"
            if trust.report(f"shard {shard}", before, now):
                causes = [*causes, before] if doubted else [before]
        elif event == "end":
            trust.end(now)
            causes = [now]
        elif event == "listed":
            again = trust.accept(before, changed=bool(shard), now=now)
            assert again == any(before < cause for cause in causes)
            if not again:
                causes = []
        elif trust.state == "TRUSTED" or all(before >= cause for cause in causes):
            trust.dispute(before, {f"shard {shard}"})
            causes = [before]
        assert (trust.state == "TRUSTED") == (not causes)
