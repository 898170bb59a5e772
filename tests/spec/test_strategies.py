"""The public strategies keep their promises, and shrink."""

from __future__ import annotations

import sys

import pytest
from hypothesis import Phase, find, given, settings

import kpl_codec as kpl
from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.testing import strategies as kst
from tests.examples import examples
from tests.findings.test_kinds import defect_codes

from ..every import every

#: Where everything fails, to explain it takes much longer than to find it.
UNEXPLAINED = [Phase.generate, Phase.shrink]


@pytest.mark.requirement("ENC-3", "ENC-4")
@given(kst.aggregated_records())
def test_aggregates_are_what_encode_makes(example: kst.Aggregate) -> None:
    assert list(kpl.decode(example.data)) == list(example.user_records)
    assert kpl.encode(example.user_records) == example.data


@pytest.mark.requirement("MSG-2", "MSG-11", "MSG-12")
@given(kst.non_canonical_records())
def test_non_canonical_aggregates_mean_the_same(example: kst.Aggregate) -> None:
    assert list(kpl.decode(example.data)) == list(example.user_records)


def test_every_defect_of_the_decoder_has_frames() -> None:
    # What uses a bad entry is told by the report policy only: never raised, no frames.
    raised = defect_codes() - {"key-unusable"}
    framed = {code for code, *_ in kst.DEFECTS.values()}
    assert framed == raised, "a code needs a row of DEFECTS in testing/strategies/aggregates.py"


@every("name", kst.DEFECTS)
def test_defective_frames_have_the_defect_they_name(name: str) -> None:
    @given(kst.defective_frames(names=[name]))
    @settings(max_examples=examples(15))
    def check(frame: kst.DefectiveFrame) -> None:
        # If nothing is raised, a quick parser took it: quick_parse, or _native/wire.h (rebuild).
        with pytest.raises(kpl.DecodeError) as caught:
            kpl.decode(frame.data)
        assert caught.value.code == frame.code == kst.DEFECTS[name][0]
        assert caught.value.record_index == frame.record_index
        assert (frame.record_index is not None) == kst.DEFECTS[name][1]

    check()


@given(kst.plain_data())
def test_plain_data_is_plain(data: bytes) -> None:
    assert not kpl.is_aggregated(data)
    with pytest.raises(kpl.NotAggregated):
        kpl.decode(data)


@given(kst.reshard_histories())
def test_histories_are_streams(history: kst.ReshardHistory) -> None:
    for before, after in zip(history.maps, history.maps[1:], strict=False):
        for shard in before.values():
            assert after[shard.shard_id].hash_key_range == shard.hash_key_range
            if not shard.open:
                assert after[shard.shard_id] == shard
    for shard in history.now.values():
        covered = [p.hash_key_range for p in history.now.parents(shard.shard_id)] or [ALL_HASH_KEYS]
        assert any(shard.hash_key_range.overlaps(keys) for keys in covered)
        assert len(shard.starting_sequence_number or "") == 56
        number = int(history.sequence_number(shard.shard_id, len(history.maps) - 1))
        if shard.open:
            assert number > int(shard.starting_sequence_number or 0)


@given(kst.shard_maps())
def test_shard_maps_go_through_aws_and_back(shard_map: kpl.ShardMap) -> None:
    assert kpl.ShardMap.from_json(shard_map.to_json()) == shard_map


def test_strategies_shrink_to_the_least() -> None:
    quiet = settings(max_examples=2000, database=None, phases=UNEXPLAINED)
    least = find(kst.aggregated_records(), lambda example: True, settings=quiet)
    assert least.user_records == (kpl.UserRecord("a", b""),)
    assert len(find(kst.shard_maps(), lambda m: True, settings=quiet)) == 1
    frame = find(kst.defective_frames(), lambda f: f.code == "index-out-of-table", settings=quiet)
    assert frame.user_records == (kpl.UserRecord("a", b""),)
    split = find(kst.reshard_histories(), lambda h: len(h.maps) > 1, settings=quiet)
    assert len(split.maps) == 2


@pytest.mark.slow
@every("name", [name for name in kst.__all__ if name.islower()])
def test_a_shrunk_example_can_be_pasted(name: str) -> None:
    """What Hypothesis prints of a failure is code with public names that makes the same value again."""
    seen = []

    @settings(
        database=None, max_examples=20, print_blob=False, phases=UNEXPLAINED, report_multiple_bugs=False
    )
    @given(getattr(kst, name)())
    def fails(value: object) -> None:
        seen.append(value)
        raise AssertionError

    with pytest.raises(AssertionError) as caught:
        fails()
    if sys.version_info < (3, 11):
        pytest.skip("Python 3.10 keeps no notes with exceptions")
    printed = "\n".join(caught.value.__notes__)
    code = printed.partition("value=")[2].rpartition(")")[0]
    names = {**vars(kpl), **vars(kst)}
    assert eval(f"({code})", names) in (seen[-1], (seen[-1],))
