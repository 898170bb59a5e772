"""Java is found, or brought along, or asked for; the command says what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kpl_codec.spark import session


def fake_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("21", 21), ("25-ea", 25), ("nonsense", None)]
)
def test_versions_of_java(tmp_path: Path, version: str, major: int | None) -> None:
    assert session.java_version(str(fake_java(tmp_path, version))) == major
    assert session.java_version(str(tmp_path / "none")) is None


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "old", "11.0.2")
    new = fake_java(tmp_path / "new", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(new.parent))
    session.ensure_java()
    assert "JAVA_HOME" not in os.environ


def test_without_java_the_one_from_pypi_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    session.ensure_java()
    java = str(Path(os.environ["JAVA_HOME"], "bin", "java"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    # Spark 4 hands it a module that its image lacks.
    done = subprocess.run(
        [java, "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(session.NoJava, match="spark-local"):
        session.ensure_java()


#: Makes a folder of a session, and prints what is left of it when a forked child has ended.
FORKS = """
import os
from kpl_codec.spark.session import _temporary_folder
folder = _temporary_folder()
if os.fork():
    os.wait()
    print(folder, folder.exists(), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a fork is what is tested: this system has none")
def test_a_forked_child_that_ends_leaves_the_folders_of_its_parent() -> None:
    folder, exists = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, check=True
    ).stdout.split()
    assert exists == "True"
    assert not Path(folder).exists()
