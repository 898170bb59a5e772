"""The native harness: it runs where clang is, and says what is missing where it is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.native.build import REPOSITORY, missing
from fuzz.native.defects import DEFECTS


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fuzz.native", *arguments]
    return subprocess.run(
        command, cwd=REPOSITORY, env={**os.environ, **environment}, capture_output=True, text=True
    )


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    done = run(PATH=str(tmp_path))
    assert done.returncode == 2
    assert "clang" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=f"install {' '.join(missing())} to run it")
def test_the_compiled_parser_reads_what_protobuf_reads(tmp_path: Path) -> None:
    done = run("--inputs", "20000", "--seed", "1", "--directory", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "20000 runs" in done.stderr


def test_every_defect_to_plant_has_one_place() -> None:
    texts = {name: (REPOSITORY / "kpl_codec/_native" / name).read_text() for name, _, _ in DEFECTS}
    assert [sound for name, sound, _ in DEFECTS if texts[name].count(sound) != 1] == []


def test_what_is_sanitized_runs_on_the_ordinary_build_too() -> None:
    """The long command is not a part of CI: it called a function of the extension that there was no more."""
    command = [sys.executable, "-m", "fuzz.sanitize", "--inside", "--seconds", "0.5", "--seed", "1"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "no bad access" in done.stdout
