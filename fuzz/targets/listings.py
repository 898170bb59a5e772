"""ListShards answers and shard map files."""

from __future__ import annotations

import contextlib

from kpl_codec import ShardMap, ShardMapError

from .. import corpus, invariants
from .target import Target, loaded, repeated


def shards(given: bytes) -> None:
    """A map that finds what linear search finds, or ShardMapError."""
    invariants.check_json_listing(given)
    pages = loaded(given)
    if isinstance(pages, list | dict):
        invariants.check_listing(pages, [])


_SHARD = (
    b'{"ShardId":"shardId-%012d","HashKeyRange":{"StartingHashKey":"%d","EndingHashKey":"%d"},'
    b'"SequenceNumberRange":{"StartingSequenceNumber":"1"}},'
)


def listing(count: int, *, gaps: bool = False) -> bytes:
    """``count`` even shards; with ``gaps``, none touches the next."""
    width = 2**128 // count
    ends = [(i + 1) * width - 1 - gaps for i in range(count - 1)] + [2**128 - 1]
    made = b"".join(_SHARD % (i, i * width, end) for i, end in enumerate(ends))
    return b'{"Shards":[' + made[:-1] + b"]}"


GROWN = {
    "even": lambda size: listing(max(1, size // 250)),
    "gaps": lambda size: listing(max(1, size // 250), gaps=True),
    "one range, many shards": repeated(_SHARD % (1, 0, 2**128 - 1), head=b'{"Shards":[', tail=b"{}]}"),
    "empty shards": repeated(b"{},", head=b'{"Shards":[', tail=b"{}]}"),
    "pages": repeated(b'{"Shards":[]},', head=b"[", tail=b'{"Shards":[]}]'),
    "values": repeated(b'{"Shards":[]} '),
    "broken values": repeated(b'{"Shards":\n'),
}


def work(given: bytes) -> None:
    with contextlib.suppress(ShardMapError):
        ShardMap.from_json(given)


TARGETS = {"shards": Target(shards, corpus.listings, GROWN, json=True, work=work)}
