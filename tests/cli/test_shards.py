"""``kpl-codec shards`` on files and on real servers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from kpl_codec.cli.main import main
from kpl_codec.cli.shard_changes import tell
from kpl_codec.shards.live_shard_map import MapChanged, RefreshFailed, StreamUnavailable
from kpl_codec.shards.map_events import KnownShards
from kpl_codec.shards.shard_map import ShardMap

from ..shards.model import ModelStream, sequence_number

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


def test_predict(capsys, listing, tmp_path):
    out = run(capsys, "predict", "--shards", listing, "1", "6", "--json")
    assert [row["shardId"] for row in json.loads(out)] == ["shardId-000000000002", "shardId-000000000001"]
    keys = tmp_path / "keys"
    keys.write_text("0\n170141183460469231731687303715884105727\n170141183460469231731687303715884105728\n")
    out = run(capsys, "predict", "--shards", listing, "--explicit", "--keys-from", str(keys))
    assert [line.split()[-1][-1] for line in out.splitlines()[1:]] == ["1", "1", "2"]


def test_history(capsys, listing):
    out = run(capsys, "history", "--shards", listing)
    lines = out.splitlines()
    assert lines[0].split() == ["2018-12-16", "05:27:07", "2018-12-16", "05:51:15", "UTC"]
    assert [line.split()[0] for line in lines[1:]] == ["0", "1", "2"]
    assert lines[2].endswith(">  ◀ 0")
    found = json.loads(run(capsys, "history", "--shards", listing, "--json"))
    assert found["defects"] == []
    assert found["shards"][0]["created"] == "2018-12-16T05:27:07+00:00"
    assert found["shards"][0]["closed"] == "2018-12-16T05:49:04+00:00"
    assert found["shards"][0]["children"] == ["shardId-000000000001", "shardId-000000000002"]


def test_the_history_of_a_key_and_the_verdict_on_a_record(capsys, listing):
    out = run(capsys, "history", "--shards", listing, "--hash-key", "0", "--at", "2018-12-16T05:30:00Z")
    assert "open at 2018-12-16 05:30:00 UTC: shardId-000000000000" in out
    before = "49591109616310805454912940618220665305004298836394377218"
    question = ["history", "--shards", listing, "--hash-key", "0", "--sequence-number", before]
    out = run(capsys, *question, "--shard-id", "shardId-000000000000", "--aggregated")
    assert "verdict: expected" in out
    out = run(capsys, *question, "--shard-id", "shardId-000000000001", "--aggregated", code=1)
    assert "verdict: on-child" in out
    assert "the number itself hints at: shardId-000000000000" in out
    assert "the number lies before the shard's first" in out
    found = json.loads(
        run(capsys, *question, "--shard-id", "shardId-000000000002", "--aggregated", "--json", code=1)
    )
    assert found["verdict"] == "stray"
    assert found["chain"] == ["shardId-000000000000", "shardId-000000000001"]


def test_a_lineage_with_defects_is_a_finding(capsys, tmp_path):
    stream = ModelStream(2, now=0)
    stream.merge(0)
    broken = [s.to_aws() for s in stream.shards]
    broken[2]["SequenceNumberRange"]["StartingSequenceNumber"] = sequence_number(0, 0, 0)
    path = tmp_path / "broken.json"
    path.write_text(json.dumps({"Shards": broken}))
    assert "defect child-not-newer" in run(capsys, "history", "--shards", str(path), code=1)


@pytest.mark.parametrize(
    "argv",
    [
        ["list", "--shards", "/no/such/file"],
        ["predict", "--shards", "LISTING"],
        ["predict", "--shards", "LISTING", "--explicit", "x"],
        ["history", "--shards", "LISTING", "--at", "2018-12-16T05:30:00Z"],
        ["history", "--shards", "LISTING", "--hash-key", "1", "--at", "yesterday"],
        ["history", "--shards", "LISTING", "--hash-key", "1", "--sequence-number", "01"],
        ["watch", "--stream", "s", "--region", "us-east-1", "--interval", "0"],
    ],
)
def test_bad_usage_is_said_in_one_line(capsys, listing, argv):
    assert main(["shards", *(listing if word == "LISTING" else word for word in argv)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("kpl-codec")
    assert captured.err.count("\n") == 1


def test_an_unsound_listing(capsys, tmp_path):
    path = tmp_path / "gap.json"
    path.write_text(json.dumps({"Shards": json.loads(REAL)["Shards"][1:2]}))
    assert main(["shards", "list", "--shards", str(path)]) == 2
    assert "gap" in capsys.readouterr().err


def test_what_watch_tells_people(capsys):
    stream = ModelStream(2, now=0)
    old = stream.shards[0].shard_id
    stream.split(0)
    known = KnownShards({}, {s.shard_id: s for s in stream.shards}, "USER_PARTITION_KEY")
    opened = tuple(s.shard_id for s in stream.shards[2:])
    tell(MapChanged(known, opened, (old,), False), False, first=False)
    line, _, bar = capsys.readouterr().out.splitlines()
    said = "0 closed, 2 opened (25.0%, out of 0), 3 opened (25.0%, out of 0), 3 open shards"
    assert line.endswith("  " + said)
    assert bar.startswith("├──")
    tell(MapChanged(known, (), (), False), False, first=False)
    assert capsys.readouterr().out == ""  # nothing new, nothing said
    tell(MapChanged(known, opened, (), True), False, first=False)
    assert "the stream was made anew" in capsys.readouterr().out
    error = StreamUnavailable(
        stream="s", operation="ListShards", code="LimitExceededException", reason="slow"
    )
    tell(RefreshFailed(0.0, error, 2.0), False, first=False)
    assert capsys.readouterr().out.endswith("LimitExceededException: slow [MAP-8], again in 2 s\n")
    tell(RefreshFailed(0.0, error, 2.0), True, first=False)
    assert json.loads(capsys.readouterr().out)["failed"] == "LimitExceededException"


# -- real servers ---------------------------------------------------------------------------------


@pytest.fixture
def live(kinesis_local, stream, connection):
    return kinesis_local, stream, connection


@pytest.mark.server
@pytest.mark.timeout(60)
def test_a_live_stream(capsys, live):
    server, stream, connection = live
    assert len(json.loads(run(capsys, "list", *connection, "--json"))["shards"]) == 2
    server.client().split_shard(
        StreamName=stream, ShardToSplit="shardId-000000000000", NewStartingHashKey="5"
    )
    server.wait_active(stream)
    (row,) = json.loads(run(capsys, "predict", *connection, "--explicit", "4", "--json"))
    put = server.client().put_record(StreamName=stream, Data=b"x", PartitionKey="p", ExplicitHashKey="4")
    assert row["shardId"] == put["ShardId"] == "shardId-000000000002"
    out = run(capsys, "history", *connection)
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["0", "1", "2", "3"]
    out = run(
        capsys, "history", *connection, "--hash-key", "4", "--sequence-number", put["SequenceNumber"],
        "--shard-id", put["ShardId"],
    )  # fmt: skip
    assert "verdict: expected" in out
    from kpl_codec.cli.inspect import unwrap

    assert unwrap(b"x", "auto") == b"x"
    assert main(["inspect", *connection, "--shard-id", put["ShardId"], "--sequence-number",
                 put["SequenceNumber"]]) == 0  # fmt: skip
    assert "plain record" in capsys.readouterr().out


@pytest.mark.server
@pytest.mark.timeout(60)
def test_watch_tells_of_a_split_and_of_a_stream_that_is_gone(live):
    server, stream, connection = live
    command = [sys.executable, "-m", "kpl_codec.cli.main", "shards", "watch", *connection]
    watching = subprocess.Popen(
        [*command, "--interval", "0.05", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )

    def event() -> dict:
        while True:
            found = json.loads(watching.stdout.readline())
            if "failed" not in found:  # a listing in the middle of a split may not be whole
                return found

    try:
        assert event()["opened"] == ["shardId-000000000000", "shardId-000000000001"]
        server.client().split_shard(
            StreamName=stream, ShardToSplit="shardId-000000000000", NewStartingHashKey="5"
        )
        split = event()
        assert split["opened"] == ["shardId-000000000002", "shardId-000000000003"]
        assert split["closed"] == ["shardId-000000000000"]
        server.wait_active(stream)
        server.delete_stream(stream)
        # the stream is gone: that is said at once, and ends the watch
        assert watching.wait(20) == 2
        assert "ResourceNotFoundException" in watching.stderr.read()
    finally:
        watching.kill()
        watching.communicate()
        if stream not in server.client().list_streams()["StreamNames"]:
            server.create_stream(stream)


@pytest.mark.server
@pytest.mark.timeout(60)
def test_watch_for_people(capsys, live):
    out = run(capsys, "watch", *live[2], "--interval", "0.05", "--looks", "2")
    first, _, bar = out.splitlines()
    assert first.endswith("  2 open shards")
    assert bar.startswith("├──")


@pytest.mark.server
@pytest.mark.timeout(60)
def test_a_stream_that_is_not_there(capsys, live):
    _, _, connection = live
    wrong = ["--stream", "no-such-stream", *connection[2:]]
    for action in ("list", "history", "watch"):
        assert main(["shards", action, *wrong]) == 2
        captured = capsys.readouterr()
        assert "ResourceNotFoundException" in captured.err
