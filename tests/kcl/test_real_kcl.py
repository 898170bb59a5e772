"""Our word on what the KCL delivers, and the executable spec's, against the KCL itself."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from fuzz import real_kcl as fuzz
from kpl_codec.testing import strategies as kpl_st

from .real_kcl import RealKcl, release

CHAPTER = Path(__file__).parents[2] / "spec/12-implementations.md"
#: A user record on each half of the hash keys, as an aggregate that both shards of two have.
MIXED = kpl.encode([kpl.UserRecord("a", b"0", "0"), kpl.UserRecord("b", b"1", str(2**127))])
LOWER = kpl.HashKeyRange(0, 2**127 - 1)

RANGES = st.none() | st.tuples(kpl_st.hash_keys(), kpl_st.hash_keys()).map(
    lambda ends: kpl.HashKeyRange(min(ends), max(ends))
)


@pytest.fixture(scope="module")
def real_kcl() -> Iterator[RealKcl]:
    with RealKcl() as kcl:
        yield kcl


def test_chapter_12_names_the_release() -> None:
    named = re.search(r"The tests run the KCL (\d+\.\d+\.\d+)", CHAPTER.read_text())
    assert named is not None
    assert named[1] == release()


@pytest.mark.requirement("KCL-1", "KCL-2", "KCL-3", "KCL-4", "KCL-6", "KCL-7")
@pytest.mark.slow
def test_frames_of_the_vectors_and_damaged_ones(real_kcl: RealKcl) -> None:
    chance = random.Random(0)
    asked, opened, differences = fuzz.compare(real_kcl, fuzz.frames(chance, 2000), chance)
    assert asked == 2000
    assert opened > 300
    assert differences == []


@pytest.mark.soak
def test_other_frames_in_each_run_and_odd_fields_at_every_place(real_kcl: RealKcl) -> None:
    chance = random.Random()
    for datas in (fuzz.frames(chance, 100_000), map(fuzz.frame, fuzz.placed())):
        _, opened, differences = fuzz.compare(real_kcl, datas, chance)
        assert opened > 300
        assert differences == []


@pytest.mark.requirement("KCL-4", "KCL-5")
@pytest.mark.slow
@given(
    frame=kpl_st.aggregated_records().map(lambda one: one.data)
    | kpl_st.non_canonical_records().map(lambda one: one.data)
    | kpl_st.defective_frames().map(lambda one: one.data)
    | kpl_st.plain_data(),
    hash_key_range=RANGES,
)
def test_frames_of_our_strategies(
    real_kcl: RealKcl, frame: bytes, hash_key_range: kpl.HashKeyRange | None
) -> None:
    assert fuzz.differences(real_kcl, frame, hash_key_range) == []


@pytest.mark.requirement("KCL-3", "KCL-4", "KCL-5")
@pytest.mark.slow
def test_a_whole_aggregate_is_dropped_without_a_line_in_the_log_and_not_where_the_range_is_unknown(
    real_kcl: RealKcl,
) -> None:
    outside = kpl.encode([kpl.UserRecord("a", b"0")])
    outside = fuzz.frame(outside[4:-16].replace(b"\x08\x00", b"\x08\x07"))  # an index outside of the table
    before = real_kcl.log()
    assert real_kcl.deaggregate(MIXED, LOWER) == []
    assert [row.data for row in real_kcl.deaggregate(MIXED)] == [b"0", b"1"]
    assert real_kcl.log() == before
    assert real_kcl.deaggregate(outside) == []
    assert "Unexpected exception during deaggregation" in real_kcl.log().removeprefix(before)
