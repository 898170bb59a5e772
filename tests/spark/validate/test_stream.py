"""validate --follow: a real server, splits in mid-stream, and going on where it stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ...validate.test_stream import Stream, read, stream

__all__ = ["stream"]
pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(400)]


@pytest.mark.slow
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
    capsys.readouterr()
    assert stream.validate(out, "--follow", "--once", "--json", quiet=False) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["totals"]["userRecords"] == sum(stream.sent.values())
    assert "so far: 43 Kinesis records, 430 user records" in said.err
    assert read(out) == stream.sent  # none missing, none twice
    assert stream.validate(out, "--follow", "--once") == 1
    assert read(out) == stream.sent
    summary = (out / "summary.txt").read_text()
    assert f"{sum(stream.sent.values())}" in summary.replace(",", "")
    assert (out / "report.html").exists()
    assert len(list((out / "totals").glob("*.json"))) <= 2
    said = capsys.readouterr()
    assert f"Results: {out}" in said.out
    assert "so far" not in said.err


@pytest.mark.slow
@pytest.mark.requirement("SPK-23")
def test_a_batch_that_fails_half_way_is_counted_once(
    spark: Any, stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kpl_codec.spark import validate_engine as live

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
