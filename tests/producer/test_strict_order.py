"""Strict order per partition key, call by call: what is in a request, and what has ended before it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.producer import Pending
from kpl_codec.producer.record_builder import PutRecordsRequest

from ..examples import examples
from .bench import Bench, data_of

GAPS = st.sampled_from([0.0, 0.01, 0.1, 0.3, 0.45])
PUTS = st.lists(st.tuples(GAPS, st.sampled_from(["a", "a", "b"])), min_size=2, max_size=12)
#: How long a call takes, and what comes of it.
ANSWERS = st.lists(
    st.tuples(
        st.sampled_from([0.02, 0.4, 0.7, 0.9]),
        st.sampled_from(["stored", "InternalFailure", "ValidationException", "ReadTimeoutError"]),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.requirement("PRD-26")
@settings(max_examples=examples(400))
@given(PUTS, ANSWERS, st.sampled_from([20, 100, 500]), st.sampled_from([1, 2]), st.booleans())
def test_nothing_goes_out_before_an_earlier_user_record_of_its_key_has_ended(
    puts: list[tuple[float, str]],
    answers: list[tuple[float, str]],
    buffered: int,
    connections: int,
    reshard: bool,
) -> None:
    """Records of an aggregate expire one after the other, while it waits for a connection or a backoff."""
    bench = Bench(
        record_ttl_ms=1000,
        record_max_buffered_time_ms=buffered,
        ordering="partition-key",
        max_connections=connections,
    )
    accepted: list[Pending] = []
    sent = 0

    def answer(call: PutRecordsRequest) -> tuple[float, Callable[[], None]]:
        nonlocal sent
        for outgoing in bench.core._in_flight[call.number]:
            for pending in outgoing.records:
                for earlier in accepted:
                    if earlier.number < pending.number and earlier.record[0] == pending.record[0]:
                        assert earlier.token in bench.results or earlier in outgoing.records
        all_well = sent >= 3 * len(answers)
        seconds, outcome = (0.02, "stored") if all_well else answers[sent % len(answers)]
        sent += 1
        if outcome == "stored":
            return seconds, partial(bench.serve, call)
        return seconds, partial(bench.fail, call, outcome, answered=outcome != "ReadTimeoutError")

    for number, (gap, key) in enumerate(puts):
        bench.run(gap, answer)
        if reshard and number == 3:
            bench.stream.split(0)
        accepted.append(bench.put(b"%d" % number, key=key))
    bench.run(8, answer)
    assert not bench.core.outstanding


@pytest.mark.requirement("PRD-26")
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([1, 100, 250, 400, 800])), max_size=12))
def test_what_holds_up_others_of_its_key_goes_out_without_waiting_for_more(
    puts: list[tuple[str, int]],
) -> None:
    """What is left of the keys that are not under way is one open aggregate, so it fits into one."""
    bench = Bench(1, ordering="partition-key", aggregation_max_size=600)
    records = [kpl.UserRecord(key, b"%06d" % n + b"x" * size) for n, (key, size) in enumerate(puts)]
    for record in records:
        bench.put(record.data, key=record.partition_key)
    calls = bench.puts() + bench.puts(0.02)  # as long as what is ready waits for other shards
    sent = {data for call in calls for aggregate in data_of(call) for data in aggregate}
    under_way = {record.partition_key for record in records if record.data in sent}
    left = [record for record in records if record.partition_key not in under_way]
    assert not left or len(kpl.encode(left)) <= 600
