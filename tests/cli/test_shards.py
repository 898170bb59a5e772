"""``kpl-codec shards`` and ``keys``, on files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.shards.shard import Shard
from kpl_codec.shards.shard_map import ShardMap

from .commands import run

REAL = """
{"Shards": [
 {"ShardId": "shardId-000000000000",
  "HashKeyRange": {"startingHashKey": "0", "endingHashKey": "340282366920938463463374607431768211455"},
  "SequenceNumberRange": {
   "StartingSequenceNumber": "49591109616310805454912940618220665305004298836394377218",
   "EndingSequenceNumber": "49591109616321955827512205929790224238321098822804045826"}},
 {"ShardId": "shardId-000000000001", "ParentShardId": "shardId-000000000000",
  "HashKeyRange": {"startingHashKey": "0", "endingHashKey": "170141183460469231731687303715884105727"},
  "SequenceNumberRange": {
   "StartingSequenceNumber": "49591110086254409023548762079802856464523311355470544914"}},
 {"ShardId": "shardId-000000000002", "ParentShardId": "shardId-000000000000",
  "HashKeyRange": {"startingHashKey": "170141183460469231731687303715884105728",
                   "endingHashKey": "340282366920938463463374607431768211455"},
  "SequenceNumberRange": {
   "StartingSequenceNumber": "49591110086276709768747292702944392182795959716976525346"}}
]}
"""


@pytest.fixture
def listing(tmp_path: Path) -> str:
    """The allocation article's stream: one shard, split by UpdateShardCount."""
    path = tmp_path / "shards.json"
    path.write_text(REAL)
    return str(path)


def printed(*argv: str) -> str:
    ended = run([*argv], COLUMNS="100")
    assert ended.status == 0, ended.err
    return ended.out


def test_list(listing: str) -> None:
    out = printed("shards", "list", "--shards", listing).splitlines()
    assert [line.split()[0][-1] for line in out[1:3]] == ["1", "2"]
    assert out[-1].startswith("├─────")
    assert " 1 " in out[-1]
    assert "shardId-000000000000" in printed("shards", "list", "--shards", listing, "--closed")
    found = json.loads(printed("shards", "list", "--shards", listing, "--json"))
    assert found["closedShardsLeftOut"] == ["shardId-000000000000"]
    found = json.loads(printed("shards", "list", "--shards", listing, "--closed", "--json"))
    for text in (json.dumps(found), REAL.encode("utf-16")):
        assert ShardMap.from_json(text) == ShardMap.from_json(REAL)
    assert "closedShardsLeftOut" not in found
    assert [shard["open"] for shard in found["shards"]] == [True, True, False]
    closed = found["shards"][2]
    assert (closed["created"], closed["closed"]) == ("2018-12-16T05:27:07+00:00", "2018-12-16T05:49:04+00:00")
    assert closed["children"] == ["shardId-000000000001", "shardId-000000000002"]


def test_predict(listing: str, tmp_path: Path) -> None:
    rows = json.loads(printed("shards", "predict", "--shards", listing, "1", "6", "--json"))
    assert [row["shardId"] for row in rows] == ["shardId-000000000002", "shardId-000000000001"]
    keys = tmp_path / "keys"
    keys.write_text("1\n\n6\n")
    out = printed("shards", "predict", "--shards", listing, "--keys-from", str(keys))
    assert [line.split()[1][-1] for line in out.splitlines()[1:]] == ["2", "1"]


def test_hash_and_allocate(tmp_path: Path) -> None:
    assert "243789333289005976465737331408549979447" in printed("keys", "hash", "partition-key-0001")
    (found,) = json.loads(printed("keys", "hash", "1", "--json"))
    assert found == {
        "key": "1",
        "hashKey": "261578874264819908609102035485573088411",
        "hex": "c4ca4238a0b923820dcc509a6f75849b",
    }
    assert int(printed("keys", "allocate")) == 2**127
    # Over shards, those with the fewest keys first.
    ranges = ALL_HASH_KEYS.split(4)
    listing, existing = tmp_path / "shards.json", tmp_path / "existing"
    listing.write_text(ShardMap([Shard(f"shardId-{i:012d}", one) for i, one in enumerate(ranges)]).to_json())
    existing.write_text("5\n")
    keys = printed("keys", "allocate", "3", "--shards", str(listing), "--existing", str(existing)).split()
    assert [next(i for i, one in enumerate(ranges) if int(key) in one) for key in keys] == [1, 2, 3]
