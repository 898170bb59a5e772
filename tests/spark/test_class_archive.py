"""The archive of classes: made once, used when whole, done without where it cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kpl_codec.spark.session import class_archive, ensure_java

SESSION = """
import sys
from kpl_codec.spark import local_session
spark = local_session("archive", cores=1, memory="600m", quick_start=True)
print(spark.range(5).count(), spark.conf.get("spark.driver.extraJavaOptions"))
"""


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("KPL_CODEC_NO_CACHE", raising=False)
    return ensure_java()


def test_it_is_done_without(java: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    assert class_archive(java, folder=tmp_path / "file" / "folder") == []
    assert class_archive(str(tmp_path / "no-java"), folder=tmp_path) == []
    monkeypatch.setenv("KPL_CODEC_NO_CACHE", "1")
    assert class_archive(java, folder=tmp_path) == []


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_second_session_maps_what_the_first_one_left(java: str, tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("KPL_CODEC_NO_CACHE", None)

    def session() -> str:
        done = subprocess.run(
            [sys.executable, "-c", SESSION], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert session().startswith("5 ")
    deadline = time.monotonic() + 120
    while not any(tmp_path.glob("kpl-codec/spark-*")) and time.monotonic() < deadline:
        time.sleep(0.5)
    while (second := session()).count("ArchiveClassesAtExit") and time.monotonic() < deadline:
        time.sleep(2)
    assert second.startswith("5 ")
    assert f"{tmp_path}/kpl-codec" in second
    assert any(tmp_path.glob("kpl-codec/spark-*.jsa"))
