"""What is refused, with which code, and what the reason says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kpl_codec as kpl
from kpl_codec.format import hash_keys
from kpl_codec.format.hash_keys import MAX_HASH_KEY, HashKeyRange
from kpl_codec.shards.shard_map import NO_ROUTES
from kpl_codec.shards.skew import allocate, balanced_keys
from kpl_codec.shards.starting_position import StartingPosition

from ..every import every

SOME = HashKeyRange(10, 11)
OVERLAP = [HashKeyRange(0, 5), HashKeyRange(5, 9)]
PAGE = {
    "Shards": [
        {
            "ShardId": "s",
            "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": str(MAX_HASH_KEY)},
            "SequenceNumberRange": {"StartingSequenceNumber": "1"},
        }
    ]
}
NOT_JSON = "not JSON: line 1 column 1"
OUTSIDE = "outside 0 to 2^128 - 1"


HASH_KEYS: list[tuple[Callable[[], object], str, str]] = [
    (lambda: hash_keys.partition_key_hash("\ud800"), "hash-key", "the partition key has no UTF-8 form"),
    (lambda: hash_keys.explicit_hash_key_value("1" * 300), "hash-key", "300 characters"),
    (lambda: hash_keys.explicit_hash_key_value("a"), "hash-key", "not a decimal number"),
    (lambda: hash_keys.explicit_hash_key_value(str(2**128)), "hash-key", OUTSIDE),
    (lambda: hash_keys.parse_hash_key("07"), "hash-key", "not a canonical decimal number"),
    (lambda: hash_keys.parse_hash_key(str(2**128)), "hash-key", "above 2^128 - 1"),
    (lambda: hash_keys.format_hash_key(-1), "hash-key", OUTSIDE),
    (lambda: hash_keys.hash_key_to_bytes(2**128), "hash-key", OUTSIDE),
    (lambda: hash_keys.hash_key_from_bytes(b"123"), "hash-key", "3 bytes instead of 16"),
    (lambda: HashKeyRange(5, 4), "hash-key", "a range must run upwards within 0 to 2^128 - 1"),
    (lambda: SOME.split(3), "hash-key", "cannot cut 2 hash keys into 3 ranges"),
    (lambda: allocate(SOME, [10, 11]), "exhausted", "no free hash key among 2"),
    (lambda: next(balanced_keys(OVERLAP)), "overlap", "two ranges share a hash key"),
    (lambda: next(balanced_keys([SOME], [9, 10, 12])), "outside", "a hash key is in no range"),
    (lambda: next(balanced_keys([SOME], [10, 11])), "exhausted", "every range is full"),
    (lambda: NO_ROUTES.predict(2**128), "hash-key", OUTSIDE),
    (lambda: kpl.ShardMap.from_list_shards(PAGE).shard_for(2**128), "hash-key", OUTSIDE),
]


@every(("refused", "code", "reason"), HASH_KEYS)
def test_hash_keys(refused: Callable[[], object], code: str, reason: str) -> None:
    with pytest.raises(kpl.HashKeyError) as caught:
        refused()
    assert (caught.value.code, caught.value.fields["reason"]) == (code, reason)


def listed(*pages: Any, **more: Any) -> Callable[[], object]:
    return lambda: kpl.ShardMap.from_list_shards(pages, **more)


def of_shard(**members: Any) -> Callable[[], object]:
    return listed({"Shards": [{"ShardId": "s", **members}]})


def of_text(text: str | bytes) -> Callable[[], object]:
    return lambda: kpl.ShardMap.from_json(text)


SHARD = PAGE["Shards"][0]
OTHER = {**SHARD, "SequenceNumberRange": {"StartingSequenceNumber": "2"}}
OF_CODE = {"empty": "SHD-2", "incomplete": "SHD-7", "duplicate": "SHD-3", "malformed": "SHD-9"}
NO_OBJECTS = "HashKeyRange and SequenceNumberRange must be objects"
NO_SHARDS = 'a page has no list "Shards": aws kinesis list-shards prints one'
MORE = "pages are missing: the last one has a NextToken"
MAPS: list[tuple[Callable[[], object], str, str]] = [
    (listed(), "empty", "it has no shards"),
    (listed({"Shards": []}), "empty", "it has no shards"),
    (listed({**PAGE, "NextToken": "t"}), "incomplete", MORE),
    (listed({**PAGE, "HasMoreShards": True}), "incomplete", MORE),
    (listed(PAGE, {"Shards": [OTHER]}), "duplicate", "s is listed twice, differently"),
    (listed(5), "malformed", 'expected an object with "Shards", got int'),
    (listed({"Shards": 5}), "malformed", NO_SHARDS),
    (listed({"Shards": [5]}), "malformed", "a shard has no ShardId"),
    (listed({"Shards": [{"ShardId": ""}]}), "malformed", "a shard has no ShardId"),
    (of_shard(), "malformed", "s: HashKeyRange is missing"),
    (of_shard(HashKeyRange={}), "malformed", "s: StartingHashKey is missing"),
    (of_shard(HashKeyRange=None), "malformed", f"s: {NO_OBJECTS}"),
    (of_shard(**{**SHARD, "ParentShardId": 5}), "malformed",
     "s: parent ids and sequence numbers must be text, got 5"),
    (of_shard(HashKeyRange={"StartingHashKey": "x"}), "malformed",
     "s: invalid hash key: not a canonical decimal number"),
    (of_text("shards.txt"), "malformed", NOT_JSON),
    (of_text("shards.json"), "malformed", f"{NOT_JSON} (a path? give Path(...).read_text())"),
    (of_text(""), "malformed", NOT_JSON),
    (of_text("{"), "malformed", "not JSON: line 1 column 2"),
    (of_text(b"\xff"), "malformed", "not JSON: text"),
    (of_text("[" * 100_000), "malformed", "not JSON: text"),
    (of_text("5"), "malformed", 'expected an object with "Shards", got int'),
]  # fmt: skip


@pytest.mark.requirement("SHD-2", "SHD-3", "SHD-7", "SHD-9")
@every(("refused", "code", "reason"), MAPS)
def test_listings(refused: Callable[[], object], code: str, reason: str) -> None:
    with pytest.raises(kpl.ShardMapError) as caught:
        refused()
    error = caught.value
    assert (error.code, error.fields["reason"], error.requirement) == (code, reason, OF_CODE[code])
    assert error.shard_ids == (("s",) if reason.startswith(("s:", "s is")) else ())


def test_a_position_that_is_no_record_has_no_sequence_number_and_no_time() -> None:
    position = StartingPosition("LATEST")
    with pytest.raises(ValueError, match="LATEST names no record"):
        print(position.sequence_number)
    with pytest.raises(ValueError, match="LATEST is no time"):
        print(position.time_ms)
