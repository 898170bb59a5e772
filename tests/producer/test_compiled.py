"""The producer's compiled parts against the Python beside them: same fields, sizes, results."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.errors import KplError
from kpl_codec.format.limits import MAGIC
from kpl_codec.producer import Attempt, ProducerConfig, record
from kpl_codec.producer.record import PlainPending, PutValidator
from kpl_codec.producer.results import NO_HISTORY

speedups = pytest.importorskip(
    "kpl_codec._speedups",
    reason="built without a C compiler, or KPL_CODEC_PURE=1",
    exc_type=ImportError,
)

FIELDS = [field for field in PlainPending.__slots__ if field != "token"]
KEYS = st.sampled_from(["a", "b", "é", "x" * 256, "x" * 257, "", None, b"a", 5])
DATA = st.one_of(
    st.binary(max_size=30),
    st.binary(max_size=30).map(lambda data: MAGIC + data),
    st.sampled_from([bytes(1_048_576 - 1024 - 1), bytes(1_048_576 - 1), bytes(1_048_576), "text", None]),
)
CONFIGS = [
    ProducerConfig(),
    ProducerConfig(ignore_keys=True),
    ProducerConfig(outer_key="buckets"),
    ProducerConfig(max_record_size=2 * 1_048_576),
]


@given(
    st.sampled_from(CONFIGS),
    st.lists(st.tuples(KEYS, DATA, st.sampled_from([None, 5, "7", "007"])), min_size=1, max_size=6),
)
def test_a_user_record_is_prepared_in_the_same_way(config: ProducerConfig, puts: list[Any]) -> None:
    fast, slow = PutValidator(config), PutValidator(config)
    slow._most_are_plain = False

    def made(prepare: PutValidator, put: Any) -> Any:
        try:
            found = prepare.prepare(*put)
        except (KplError, TypeError) as error:
            return type(error), str(error)
        assert found.token is None
        return [getattr(found, field) for field in FIELDS]

    for put in puts:
        assert made(fast, put) == made(slow, put)


@given(st.lists(st.integers(0, 12), max_size=6))
def test_deliveries_are_equal(failed_before: list[int]) -> None:
    records = []
    failed = Attempt("throttled", 1.0, 2.0, None)
    for count in failed_before:
        one = PutValidator(ProducerConfig()).prepare("k", b"x")
        for _ in range(count):
            one.history = (one.history or NO_HISTORY).with_attempt(failed)
        records.append(one)
    last = Attempt("delivered", 3.0, 4.0, None, "shardId-000000000000", "17")
    record.deliver(records, last)
    compiled = [pending.result for pending in records]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record, "_deliver", record.deliver_in_python)
        record.deliver(records, last)
    python = [pending.result for pending in records]
    assert python == compiled
    assert list(map(type, compiled)) == list(map(type, python))
