"""validate --follow on a real server: it goes on where it stopped, after splits, failures and kill -9."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kpl_codec.spark import validate_engine
from kpl_codec.spark.source.offsets import DataLoss
from kpl_codec.validate.validate_command import interruption_of
from tests.spark.source.killable import Killable
from tests.validate.test_stream import Stream, read, stream

pytestmark = [pytest.mark.spark, pytest.mark.server]
__all__ = ["stream"]
ONCE = ("--follow", "--once")


def check_once_each(out: Path, stream: Stream) -> None:
    """Every user record that was sent is there, and no place in the stream twice."""
    columns = ["shardId", "sequenceNumber", "subSequenceNumber"]
    names = Counter(map(str, pq.read_table(out / "user-records", columns=columns).to_pylist()))
    assert max(names.values()) == 1
    assert read(out) == stream.sent
    summary = (out / "summary.txt").read_text().replace(",", "")
    assert f" {sum(stream.sent.values())} " in summary


@pytest.mark.requirement("SPK-60")
@pytest.mark.parametrize("code", DataLoss.codes)
def test_what_can_no_longer_be_read_asks_for_what_the_command_has(code: str) -> None:
    """The advice of the data source names an option that only a query has."""
    loss = DataLoss(
        code=code, shard_id="shardId-000000000000", sequence_number="7", reason="it is (not) there"
    )
    told = str(interruption_of(RuntimeError(f"[STREAM_FAILED] kpl_codec.spark: {loss}\nmore"), "checked"))
    assert code in told
    assert "(sequence number 7). checked keeps what was read until then. Give a new --output folder" in told
    assert "failOnDataLoss" not in told
    assert interruption_of(OSError("disk full"), "checked") is None


@pytest.mark.slow
@pytest.mark.requirement("SPK-23", "SPK-17", "ACC-10")
def test_following_goes_on_where_it_stopped_or_failed_half_way(
    spark: Any, stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    out = tmp_path / "followed"
    stream.put(20)
    assert stream.validate(out, *ONCE) == 0
    assert read(out) == stream.sent
    stream.put(10)
    stream.split()
    stream.put(10)
    stream.put(3, naive=True)
    capsys.readouterr()
    assert stream.validate(out, *ONCE, "--json", quiet=False) == 1
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert summary["totals"]["userRecords"] == sum(stream.sent.values())
    read_so_far = summary["read"]
    assert (read_so_far["unit"], read_so_far["records"], read_so_far["unread"]) == ("shard", 43, 0)
    assert read_so_far["sources"] == read_so_far["whole"] > 1
    assert "so far: 43 Kinesis records, 430 user records" in printed.err
    check_once_each(out, stream)
    assert (out / "report.html").exists()
    assert len(list((out / "totals").glob("*.json"))) <= 2
    stream.put(10)

    def broken(*_: Any) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(validate_engine, "_report", broken)  # after user records, findings and totals
        assert stream.validate(out, *ONCE) == 2
    capsys.readouterr()
    for _ in range(2):  # the second run finds nothing new
        assert stream.validate(out, *ONCE) == 1
        check_once_each(out, stream)
    printed = capsys.readouterr()
    assert f"Results: {out}" in printed.out
    assert "so far" not in printed.err


@pytest.mark.slow
@pytest.mark.requirement("SPK-23", "SPK-17")
def test_kill_9_of_driver_jvm_and_workers(spark: Any, stream: Stream, tmp_path: Path) -> None:
    out = tmp_path / "followed"
    stream.put(60)
    command = [sys.executable, "-m", "kpl_codec.cli.main", "validate", *ONCE, "--quiet", "--output", str(out)]
    where = ["--stream", stream.name, "--endpoint-url", stream.server.endpoint_url, "--region", "us-east-1"]
    with Killable([*command, *where], tmp_path / "log") as process:
        process.wait(lambda: any(out.glob("_work/*/tally")), 180)  # a batch's job has begun
    assert not (out / "totals" / "0.json").exists()
    for _ in range(2):
        stream.put(10)
        assert stream.validate(out, *ONCE) == 0
    check_once_each(out, stream)
