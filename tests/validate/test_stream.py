"""validate --stream: a real server, a split in mid-stream."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import kpl_codec as kpl
from kpl_codec.captures.account import Account
from kpl_codec.cli.main import main
from kpl_codec.testing.local_kinesis import LocalKinesis
from kpl_codec.validate.task import read_shard, shard_parts

pytestmark = pytest.mark.server


@pytest.fixture
def stream(kinesis_local: LocalKinesis, stream_name: str) -> Any:
    kinesis_local.create_stream(stream_name, 2)
    return Stream(kinesis_local, stream_name)


class Stream:
    def __init__(self, server: LocalKinesis, name: str) -> None:
        self.server, self.name, self.client = server, name, server.client()
        self.sent: Counter[bytes] = Counter()
        self.options = ["--stream", name, "--endpoint-url", server.endpoint_url, "--region", "us-east-1"]

    def put(self, count: int, *, naive: bool = False) -> None:
        """``count`` aggregates of ten user records; of one key each, or of many shards' keys."""
        for _ in range(count):
            number = sum(self.sent.values())
            users = [
                kpl.UserRecord(f"key-{number + (index if naive else 0)}", b"%d" % (number + index))
                for index in range(10)
            ]
            self.sent.update(user.data for user in users)
            self.client.put_record(
                StreamName=self.name, PartitionKey=users[0].partition_key, Data=kpl.encode(users)
            )

    def split(self) -> None:
        shard_map = kpl.ShardMap.from_list_shards(self.client.list_shards(StreamName=self.name))
        held = shard_map.open_shards[0]
        middle = (held.hash_key_range.starting_hash_key + held.hash_key_range.ending_hash_key) // 2
        self.client.split_shard(
            StreamName=self.name, ShardToSplit=held.shard_id, NewStartingHashKey=str(middle)
        )
        self.server.wait_active(self.name)

    def validate(self, output: Path, *more: str, quiet: bool = True) -> int:
        quietly = ["--quiet"] * quiet
        return main(["validate", *quietly, *self.options, "--output", str(output), *more])


def read(output: Path) -> Counter[bytes]:
    return Counter(pq.read_table(output / "user-records", columns=["data"])["data"].to_pylist())


@pytest.mark.slow
@pytest.mark.requirement("SPK-17", "SPK-18", "SPK-19", "SPK-40")
def test_a_stream_as_it_is(stream: Stream, tmp_path: Path, capsys: Any) -> None:
    before = tmp_path / "shards.json"
    before.write_text(
        kpl.ShardMap.from_list_shards(stream.client.list_shards(StreamName=stream.name)).to_json()
    )
    stream.put(20)
    stream.split()
    stream.put(20)
    assert stream.validate(tmp_path / "clean") == 0
    assert read(tmp_path / "clean") == stream.sent
    stream.put(5, naive=True)
    assert stream.validate(tmp_path / "naive") == 1
    assert read(tmp_path / "naive") == stream.sent
    kinds = Counter(f["kind"] for f in pq.read_table(tmp_path / "naive" / "findings").to_pylist())
    assert kinds["mixed-aggregate"] >= 4
    # A map of before the split judges; the stream says which shards there are.
    assert stream.validate(tmp_path / "old", "--shards", str(before)) == 1
    assert read(tmp_path / "old") == stream.sent
    missing = Stream(stream.server, "no-such")
    assert missing.validate(tmp_path / "none") == 2
    assert "no-such" in capsys.readouterr().err


def test_a_shard_is_read_up_to_one_moment(stream: Stream) -> None:
    stream.put(20)
    credentials = {"access_key_id": "local", "secret_access_key": "local"}
    client_settings = {"region": "us-east-1", "endpoint_url": stream.server.endpoint_url, **credentials}
    parts = shard_parts(client_settings, stream.name, "TRIM_HORIZON")
    held = [batch.num_rows for part in parts for batch in read_shard(part, Account())]
    assert sum(held) == 20
    past = datetime(2000, 1, 1, tzinfo=timezone.utc)
    assert not [batch for part in parts for batch in read_shard(replace(part, until=past), Account())]
