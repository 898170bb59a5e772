"""What the KCL makes of a frame: two ways to it that must agree, and its text at every edge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from fuzz.invariants import check_kcl, frame
from kpl_codec.deaggregation import kcl
from kpl_codec.deaggregation.kcl import KclOutcome
from kpl_codec.testing import strategies

ranges = st.none() | st.builds(
    lambda a, b: kpl.HashKeyRange(min(a, b), max(a, b)), strategies.hash_keys(), strategies.hash_keys()
)


@pytest.mark.requirement("KCL-4", "KCL-5")
@given(strategies.aggregated_records(max_records=6) | strategies.non_canonical_records(max_records=6), ranges)
def test_a_sound_aggregate_by_its_tables_or_by_its_bytes(
    aggregate: strategies.Aggregate, hash_key_range: kpl.HashKeyRange | None
) -> None:
    keys = [kpl.effective_hash_key(r.partition_key, r.explicit_hash_key) for r in aggregate.user_records]
    outside = [i for i, key in enumerate(keys) if hash_key_range is not None and key not in hash_key_range]
    total = len(keys)
    expected = (
        KclOutcome(False, 0, total, "out-of-range", outside[0])
        if outside
        else KclOutcome(False, total, total)
    )
    assert kcl.outcome(aggregate.data, hash_key_range) == expected
    check_kcl(kpl.KinesisRecord("p", aggregate.data), hash_key_range)


#: Bytes of a key, and what Java makes of them (asked: `fuzz.real_kcl`).
JAVA = {
    b"p\xffk": "p\ufffdk",
    b"\xc3\xa9\xe2\x82": "é\ufffd",
    b"\xf0\x9f\x98": "\ufffd",
    b"\xed\x9f\xbf": "\ud7ff",
    b"\xed\xa0\x80a": "\ufffda",
    b"\xed\xa0\x80\xed\xb0\x80!": "\ufffd\ufffd!",
    b"\xed\xa0\xbf": "\ufffd",
    b"\xed\xbf\xbf": "\ufffd",
    b"\xed\xa0": "\ufffd",
    b"\xed\xbf": "\ufffd",
    b"\xed\xa0\x7f": "\ufffd\x7f",
    b"\xed\xa0\xc0": "\ufffd\ufffd",
    b"\xed\xc0": "\ufffd\ufffd",
}


@pytest.mark.requirement("KCL-6")
def test_keys_as_java_reads_them() -> None:
    for key, text in JAVA.items():
        data = frame(b"\x0a" + bytes([len(key)]) + key + b"\x1a\x05\x08\x00\x1a\x011")
        assert list(kcl.user_records(data, 1)) == [(text, b"1", None)]
