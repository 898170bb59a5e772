"""Verdicts on records, and where all of them are listed. The table itself is spec/vectors/placement.json."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec import verify_placement
from kpl_codec.shards import placement as placement_module
from kpl_codec.shards.placement import PlacementChecker, Verdict

from .test_shard_map import MERGED, SPLIT

SPLIT_MAP, MERGED_MAP = kpl.ShardMap(SPLIT), kpl.ShardMap(MERGED)
SPEC = Path(__file__).parents[2] / "spec"
ID = [f"shardId-{i:012d}" for i in range(9)]


def test_a_single_range_stands_in_for_a_map() -> None:
    judge = PlacementChecker(None, kpl.HashKeyRange(0, 5)).on(None)
    inside, outside = judge.check(5, certain=True), judge.check(6, certain=True)
    assert (inside.verdict, outside.verdict) == ("expected", "stray")


@pytest.mark.requirement("LIN-4")
@given(st.none() | st.integers(0, 2**190).map(str), st.sampled_from(ID[:4]))
def test_what_a_sequence_number_hints_at_changes_no_verdict(number, shard_id) -> None:
    record = kpl.KinesisRecord("a", b"", number, shard_id)
    without = record.replace(sequence_number=None)
    assert verify_placement(record, MERGED_MAP) == verify_placement(without, MERGED_MAP)


@pytest.mark.requirement("LIN-8")
def test_a_record_on_a_shard_that_is_not_known_and_one_whose_hash_key_is_none() -> None:
    record = kpl.KinesisRecord("a", b"", "1", "shardId-9")
    assert verify_placement(record, SPLIT_MAP).verdict == "unknown-shard"
    with pytest.raises(kpl.HashKeyError):
        verify_placement(record.replace(explicit_hash_key="x"), SPLIT_MAP)


def test_every_verdict_is_in_both_tables_the_schema_and_the_executable_spec() -> None:
    texts = {
        "the docstring of shards/placement.py": (placement_module.__doc__ or "", "| {}\n"),
        "section 4.2": ((SPEC / "04-shards-and-placement.md").read_text(), "| `{}` |\n"),
        "spec/vectors/schema.json": ((SPEC / "vectors" / "schema.json").read_text(), '"{}"'),
        "spec/reference/shards.py": ((SPEC / "reference" / "shards.py").read_text(), '"{}"'),
    }
    for name, (text, form) in texts.items():
        assert {word for word in get_args(Verdict) if form.format(word) not in text} == set(), name
