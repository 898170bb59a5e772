"""validate --stream: a real server, a split in mid-stream."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kpl_codec.aws import fetch_shard_map
from kpl_codec.captures.account import Account
from kpl_codec.cli.main import main
from kpl_codec.testing.local_kinesis import LocalKinesis
from kpl_codec.validate.task import read_shard, shard_parts

from ..spark.source.support import Stream

pytestmark = pytest.mark.server


@pytest.mark.slow
@pytest.mark.requirement("SPK-17", "SPK-18", "SPK-19", "SPK-40")
def test_a_stream_as_it_is(
    kinesis_local: LocalKinesis, stream_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = Stream(kinesis_local, stream_name, 2)

    def validate(output: str, *more: str, stream_name: str = stream_name) -> int:
        given = [
            "--stream",
            stream_name,
            "--endpoint-url",
            kinesis_local.endpoint_url,
            "--region",
            "us-east-1",
        ]
        return main(["validate", "--quiet", *given, "--output", str(tmp_path / output), *more])

    def check(output: str) -> None:
        columns = ["shardId", "sequenceNumber", "subSequenceNumber", "partitionKey", "data"]
        rows = pq.read_table(tmp_path / output / "user-records", columns=columns).to_pylist()
        stream.check((tuple(row.values())[:3], row["partitionKey"], row["data"]) for row in rows)

    before = tmp_path / "shards.json"
    before.write_text(fetch_shard_map(stream.client, stream_name).to_json())
    stream.put(20)
    stream.split("shardId-000000000000")
    stream.put(20)
    assert validate("clean") == 0
    check("clean")
    stream.put(5, size=10, naive=True)
    assert validate("naive") == 1
    check("naive")
    kinds = Counter(f["kind"] for f in pq.read_table(tmp_path / "naive" / "findings").to_pylist())
    assert kinds["mixed-aggregate"] >= 4
    # A map of before the split judges; the stream says which shards there are.
    assert validate("old", "--shards", str(before)) == 1
    check("old")
    assert validate("none", stream_name="no-such") == 2
    assert "no-such" in capsys.readouterr().err


def test_a_shard_is_read_up_to_one_moment(kinesis_local: LocalKinesis, stream_name: str) -> None:
    sent = Stream(kinesis_local, stream_name, 2).put(20)
    parts = shard_parts(kinesis_local.client_settings, stream_name, "TRIM_HORIZON")
    held = [batch.num_rows for part in parts for batch in read_shard(part, Account())]
    assert sum(held) == len({name[:2] for name in sent})
    past = datetime(2000, 1, 1, tzinfo=timezone.utc)
    assert not [batch for part in parts for batch in read_shard(replace(part, until=past), Account())]
