"""A listing takes steps in proportion to its length."""

from __future__ import annotations

import pytest

from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.shards.live_shard_map import LiveShardMap
from kpl_codec.shards.shard import Shard

from ..steps import steps
from .model import ModelStream


def splits(count: int) -> list[Shard]:
    """A stream after so many splits of its first open shard."""
    stream = ModelStream(1, now=0)
    for _ in range(count):
        stream.split(0)
    return stream.shards


def chain(count: int) -> list[Shard]:
    """Shards of one range, each the child of the one before, all listed as open."""
    ids = [f"shardId-{number:012d}" for number in range(count)]
    return [Shard(*row, None, "1") for row in zip(ids, [ALL_HASH_KEYS] * count, [None, *ids], strict=False)]


def listings(kind: str, count: int) -> list[list[Shard]]:
    if kind == "older":
        return [splits(count), splits(count // 2)]
    if kind == "chain":
        return [chain(count), chain(count)]
    return [[shard.replace(ending_sequence_number=None) for shard in splits(count)]]


def read(pages: list[dict[str, object]]) -> None:
    """A live map takes these listings, one after the other."""
    live = LiveShardMap("s", describe=False, shard_filter="FROM_TRIM_HORIZON")
    for number, page in enumerate(pages):
        live.refresh(100.0 * number)
        request = live.next_request(100.0 * number)
        assert request is not None
        live.receive(request, page, 100.0 * number)


@pytest.mark.parametrize("kind", ["older", "chain", "parents open"])
def test_listings_take_steps_in_proportion_to_their_length(kind: str) -> None:
    short, long = (
        steps(read, [{"Shards": [shard.to_aws() for shard in page]} for page in listings(kind, count)])
        for count in (15, 120)
    )
    assert long < 12 * short  # eight times the shards
