"""validate on a stream itself: a real server, splits in mid-stream, and going on where it stopped."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import kpl_codec as kpl
from kpl_codec.cli.main import main
from kpl_codec.testing.local_kinesis import LocalKinesis

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(400)]


@pytest.fixture
def stream(kinesis_local: LocalKinesis, stream_name: str) -> Any:
    kinesis_local.create_stream(stream_name, 2)
    return Stream(kinesis_local, stream_name)


class Stream:
    def __init__(self, server: LocalKinesis, name: str) -> None:
        self.server, self.name, self.client = server, name, server.client()
        self.sent: Counter[bytes] = Counter()

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

    def validate(self, output: Path, *more: str) -> int:
        given = ["--stream", self.name, "--endpoint-url", self.server.endpoint_url, "--region", "us-east-1"]
        return main(["validate", "--quiet", *given, "--output", str(output), *more])


def read(output: Path) -> Counter[bytes]:
    return Counter(pq.read_table(output / "user-records", columns=["data"])["data"].to_pylist())


@pytest.mark.requirement("SPK-17", "SPK-18", "SPK-19")
def test_a_stream_as_it_is(spark: Any, stream: Stream, tmp_path: Path, capsys: Any) -> None:
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
    missing = Stream(stream.server, "no-such")
    assert missing.validate(tmp_path / "none") == 2
    assert "no-such" in capsys.readouterr().err


@pytest.mark.requirement("SPK-23", "SPK-17")
def test_following_goes_on_where_it_stopped(spark: Any, stream: Stream, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "followed"
    stream.put(20)
    assert stream.validate(out, "--follow", "--once") == 0
    assert read(out) == stream.sent
    stream.put(10)
    stream.split()
    stream.put(10)
    stream.put(3, naive=True)
    assert stream.validate(out, "--follow", "--once") == 1
    assert read(out) == stream.sent  # none missing, none twice
    assert stream.validate(out, "--follow", "--once") == 1
    assert read(out) == stream.sent
    summary = (out / "summary.txt").read_text()
    assert f"{sum(stream.sent.values())}" in summary.replace(",", "")
    assert (out / "report.html").exists()
    assert len(list((out / "totals").glob("*.json"))) <= 2
    assert "so far" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.requirement("SPK-23")
def test_a_batch_that_fails_half_way_is_counted_once(
    spark: Any, stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kpl_codec.spark.validation import stream as live

    out = tmp_path / "followed"
    stream.put(10)
    assert stream.validate(out, "--follow", "--once") == 0
    stream.put(10)

    def broken(*_: Any) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(live, "_report", broken)  # user records, findings and totals are written by now
        assert stream.validate(out, "--follow", "--once") == 2
    assert stream.validate(out, "--follow", "--once") == 0
    assert read(out) == stream.sent
    summary = (out / "summary.txt").read_text().replace(",", "")
    assert " 200 " in summary
