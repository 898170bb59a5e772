"""Pictures: what is drawn is what is there, at any width."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.format.hash_keys import ALL_HASH_KEYS, HashKeyRange
from kpl_codec.rendering.diagrams import key_space
from kpl_codec.rendering.labels import plural, share, short_id

from ..shards.model import ModelStream


@given(st.integers(1, 60), st.integers(20, 160))
def test_every_open_shard_has_its_place_in_the_bar(count, width):
    top, bar = key_space(ModelStream(count, now=0).shards, width).splitlines()
    assert len(top) == len(bar) == width
    if 2 * count < width:
        assert bar.count("┼") == count - 1
        assert (bar[0], bar[-1]) == ("├", "┤")
    else:  # no room for each: how many begin in each column
        assert sum(int(digit) for digit in bar if digit != "─") == count


def test_five_hundred_shards_fit_eighty_columns():
    bar = key_space(ModelStream(500, now=0).shards, 80).splitlines()[1]
    assert len(bar) == 80
    assert set(bar) <= set("67")
    assert key_space(ModelStream(2000, now=0).shards, 80).splitlines()[1] == "+" * 80


def test_shares_and_ids_are_short():
    assert share(ALL_HASH_KEYS) == "100.0%"
    assert share(HashKeyRange(0, 0)) == "3e-37%"
    assert short_id("shardId-000000000012") == "12"
    assert short_id("other-12") == "other-12"


def test_a_count_has_the_noun_of_its_number():
    assert [plural(n, "row") for n in (0, 1, 2_000)] == ["0 rows", "1 row", "2,000 rows"]
    assert plural(1, "row names", "rows name") == "1 row names"
