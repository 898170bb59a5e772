"""What is watched, what is not, and what the findings say of it: with splits, refused calls, shards that
cannot be listed, and few calls for many shards. The model knows every shard and when it was last read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.watch import LastHour, Limits, Watch
from kpl_codec.watch.shard_readers import FOLLOWS, IS_NEW, Schedule
from kpl_codec.watch.sliding_window import OTHERS

from .model import START, ModelStream, open_map, run, watched


@pytest.mark.requirement("WCH-22")
def test_a_stream_whose_shards_were_never_listed_is_a_finding():
    watch = Watch(LastHour("orders"))
    watch.listing_error = "ListShards fails with LimitExceededException"
    findings = run(watch, ModelStream(open_map(1)), START, START + 70)
    (finding,) = findings
    assert (finding.kind, finding.shard_id, finding.severity) == ("not-watched", None, "error")
    assert "its shards are not known; ListShards fails with LimitExceededException" in finding.text


@pytest.mark.requirement("WCH-42", "WCH-6")
@pytest.mark.parametrize(
    ("shards", "limits", "sampling_rate"),
    [
        (700, Limits(calls=2), 0.05),
        (700, Limits(calls=2), 1.0),
        pytest.param(1_501, Limits(calls=5), 0.05, marks=pytest.mark.slow),
        (6, Limits(calls=0.02), 0.05),
        (6, Limits(calls=0.02, shard_calls=0.01), 1.0),
        (40, Limits(calls=20, shard_calls=0.1), 0.05),
    ],
    ids=["few-calls", "few-calls-whole", "many-shards", "tiny", "tiny-whole", "few-calls-a-shard"],
)
def test_few_calls_for_many_shards_read_every_shard_as_often_as_is_promised(shards, limits, sampling_rate):
    """An iterator lives for five minutes, and every first call could come before the first second one."""
    stream = ModelStream(open_map(shards))
    watch = watched(stream, sampling_rate=sampling_rate, limits=limits)
    (promised,) = (float(part.split()[0]) for part in [watch.cost().partition("every ")[2]])
    findings = run(watch, stream, START, START + promised + 400)
    assert set(stream.read_at) == set(stream.shard_map)
    assert watch.up_to_date(START + promised + 400)  # a run with --once ends
    first = dict(stream.read_at)
    for n in range(2):
        at = START + promised + 400 + n * promised
        findings += run(watch, stream, at, at + promised)
    assert all(stream.read_at[shard_id] > first[shard_id] for shard_id in first)
    assert not watch.call_counts.failed
    assert not findings


@pytest.mark.requirement("WCH-42")
def test_limits_under_which_every_iterator_would_expire_are_refused():
    for limits in (Limits(calls=0.005), Limits(shard_calls=0.005)):
        with pytest.raises(ValueError, match=r"at least 0\.01 a second"):
            Watch(LastHour("orders"), limits=limits)


@pytest.mark.requirement("WCH-7", "WCH-22")
def test_a_call_that_always_fails_is_waited_for_longer_though_its_iterator_comes():
    """A role that may call GetShardIterator and not GetRecords."""
    for code in ("InternalFailure", "ExpiredIteratorException", "AccessDeniedException"):
        stream = ModelStream(
            open_map(1), refuse=lambda call, now, code=code: code if call.operation == "GetRecords" else None
        )
        watch = watched(stream)
        (finding,) = run(watch, stream, START, START + 600)
        assert finding.kind == "not-watched"
        assert f"most calls fail with {code}" in finding.text
        assert watch.call_counts.calls["GetRecords"] < 45
        assert watch.failing_shards(START + 600) == list(watch.shards)


@pytest.mark.requirement("WCH-22", "WCH-10", "WCH-20")
def test_the_finding_of_the_other_shards_stays_open_until_all_of_them_are_polled(monkeypatch):
    """There are more shards than findings; one of them answers."""
    monkeypatch.setattr("kpl_codec.watch.sliding_window.MAX_FINDINGS", 20)
    healthy = "shardId-000000000000"
    failing = True
    stream = ModelStream(
        open_map(31),
        refuse=lambda call, now: "InternalFailure" if failing and call.shard_id != healthy else None,
    )
    watch = watched(stream)
    findings = run(watch, stream, START, START + 200)
    assert len({f.shard_id for f in findings}) == len(findings) == 21
    (others,) = (f for f in watch.last_hour.findings() if f.shard_id == OTHERS)
    assert (others.kind, others.detail) == ("not-watched", "10 shards")
    failing = False
    findings = run(watch, stream, START + 200, START + 300)
    assert {f.state for f in findings if f.shard_id == OTHERS} == {"resolved"}
    assert not watch.last_hour.findings()


@given(
    st.lists(
        st.tuples(
            st.integers(0, 9), st.floats(0, 20), st.sampled_from([FOLLOWS, IS_NEW, 2]), st.floats(0, 3)
        ),
        max_size=60,
    )
)
def test_a_schedule_gives_the_lowest_rank_that_is_due_and_each_shard_once(steps):
    schedule, due, now = Schedule(), dict[str, tuple[int, float]](), 0.0
    for shard, at, rank, pause in steps:
        now += pause
        schedule.put(str(shard), at, rank)
        due[str(shard)] = rank, at
        if shard == 9:
            schedule.remove("0")
            due.pop("0", None)
        assert (schedule.next_due() <= now) == any(at <= now for _, at in due.values())
        ready = {one: key for one, key in due.items() if key[1] <= now}
        popped = schedule.pop(now)
        if ready:
            assert popped is not None
            assert due.pop(popped[0])[0] == popped[1] == min(rank for rank, _ in ready.values())
        else:
            assert popped is None
