"""Functions, batch and streaming reads, writes and validate on Spark Connect, as on a classic session."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kpl_codec as kpl
from kpl_codec.testing.local_kinesis import LocalKinesis
from tests.spark.source.support import Stream

pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.requirement("SPK-5", "SPK-7", "SPK-17", "SPK-58", "SPK-62", "SPK-67")
def test_everything_runs_on_connect(kinesis_local: LocalKinesis, stream_name: str, tmp_path: Path) -> None:
    stream, target = Stream(kinesis_local, stream_name, 2), f"{stream_name}-target"
    kinesis_local.create_stream(target)
    stream.put(10)
    listing = {"Shards": stream.client.list_shards(StreamName=stream.name)["Shards"]}
    data = kpl.encode([kpl.UserRecord("a", b"1"), kpl.UserRecord("b", b"2")])
    record = {"SequenceNumber": "1", "PartitionKey": "a", "Data": base64.b64encode(data).decode()}
    (tmp_path / "capture.jsonl").write_text(
        json.dumps({"ShardId": "shardId-000000000000", "Records": [record]})
    )
    settings: dict[str, Any] = {
        "options": stream.options(),
        "target": target,
        "shards": json.dumps(listing),
        "capture": str(tmp_path / "capture.jsonl"),
        "folder": str(tmp_path),
    }
    command = [sys.executable, "-m", "tests.spark.connect.session", json.dumps(settings)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    last = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert last, done.stdout[-2000:] + done.stderr[-4000:]
    found = json.loads(last[0].removeprefix("RESULT "))
    assert found["session"] == "pyspark.sql.connect.session"
    count, placements, aggregated = found["functions"]
    assert (count, aggregated) == (3, 1)
    assert len(placements) == 3
    sent = sorted([*name, key, body.decode()] for name, (key, body) in stream.data.items())
    assert found["batch"] == sent
    assert found["stream"] == sent
    assert found["write"] == sorted(str(number) for number in range(20))
    assert found["validate"] == [False, 2]
