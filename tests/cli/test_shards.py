"""``kpl-codec shards`` on files and on real servers."""

from __future__ import annotations

import json

import pytest

from kpl_codec.cli.main import main
from kpl_codec.shards.shard_map import ShardMap

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


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("FORCE_COLOR", raising=False)


@pytest.fixture
def listing(tmp_path):
    """The allocation article's stream: one shard, split by UpdateShardCount."""
    path = tmp_path / "shards.json"
    path.write_text(REAL)
    return str(path)


def run(capsys, *argv, code=0):
    assert main(["shards", *argv]) == code
    return capsys.readouterr().out


def test_list(capsys, listing):
    out = run(capsys, "list", "--shards", listing)
    assert [line.split()[0] for line in out.splitlines()[1:3]] == [
        "shardId-000000000001",
        "shardId-000000000002",
    ]
    assert out.splitlines()[-1].startswith("├─────")
    assert " 1 " in out.splitlines()[-1]
    assert "shardId-000000000000" in run(capsys, "list", "--shards", listing, "--closed")
    found = json.loads(run(capsys, "list", "--shards", listing, "--closed", "--json"))
    assert [shard["open"] for shard in found["shards"]] == [True, True, False]
    assert ShardMap.from_json(json.dumps(found)) == ShardMap.from_json(REAL)
    assert "closedShardsLeftOut" not in found
    found = json.loads(run(capsys, "list", "--shards", listing, "--json"))
    assert found["closedShardsLeftOut"] == ["shardId-000000000000"]


def test_predict(capsys, listing, tmp_path):
    out = run(capsys, "predict", "--shards", listing, "1", "6", "--json")
    assert [row["shardId"] for row in json.loads(out)] == ["shardId-000000000002", "shardId-000000000001"]
    keys = tmp_path / "keys"
    keys.write_text("1\n\n6\n")
    out = run(capsys, "predict", "--shards", listing, "--keys-from", str(keys))
    assert [line.split()[1][-1] for line in out.splitlines()[1:]] == ["2", "1"]


def test_a_listing_has_times_and_children_of_each_shard(capsys, listing):
    found = json.loads(run(capsys, "list", "--closed", "--shards", listing, "--json"))
    (closed,) = (shard for shard in found["shards"] if not shard["open"])
    assert (closed["created"], closed["closed"]) == ("2018-12-16T05:27:07+00:00", "2018-12-16T05:49:04+00:00")
    assert closed["children"] == ["shardId-000000000001", "shardId-000000000002"]


def test_an_unsound_listing(capsys, tmp_path):
    path = tmp_path / "gap.json"
    path.write_text(json.dumps({"Shards": json.loads(REAL)["Shards"][1:2]}))
    assert main(["shards", "list", "--shards", str(path)]) == 2
    assert "gap" in capsys.readouterr().err


# -- real servers ---------------------------------------------------------------------------------


@pytest.mark.server
def test_a_live_stream(capsys, kinesis_local, stream, connection):
    assert len(json.loads(run(capsys, "list", *connection, "--json"))["shards"]) == 2
    kinesis_local.client().split_shard(
        StreamName=stream, ShardToSplit="shardId-000000000000", NewStartingHashKey="5"
    )
    kinesis_local.wait_active(stream)
    (row,) = json.loads(run(capsys, "predict", *connection, "p", "--json"))
    put = kinesis_local.client().put_record(StreamName=stream, Data=b"x", PartitionKey="p")
    assert row["shardId"] == put["ShardId"]
    assert len(json.loads(run(capsys, "list", "--closed", *connection, "--json"))["shards"]) == 4
    assert main(["inspect", *connection, "--shard-id", put["ShardId"], "--sequence-number",
                 put["SequenceNumber"]]) == 0  # fmt: skip
    assert "plain record" in capsys.readouterr().out


@pytest.mark.server
def test_a_stream_that_is_not_there(capsys, connection):
    wrong = ["--stream", "no-such-stream", *connection[2:]]
    for action in (["list"], ["predict", "key"]):
        assert main(["shards", *action, *wrong]) == 2
        captured = capsys.readouterr()
        assert "ResourceNotFoundException" in captured.err
