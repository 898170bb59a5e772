"""Options: what is refused when the command line is read, before anything is done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kpl_codec.cli.main import main

from ..test_arguments import PLACES
from .test_every_command import words

#: Commands that write to a folder, without the folder.
WRITERS = {
    "validate": "validate capture.json --shards shards.json --output",
    "audit": "audit --produced put.csv --handled handled.csv --output",
    "generate": "generate --output",
    "demo": "demo --output",
    "publish": "conformance --publish",
    "export": "conformance --export",
}


@pytest.mark.requirement("ARG-1")
@pytest.mark.parametrize("place", [name for name in PLACES if name not in ("empty", "home")])
@pytest.mark.parametrize("writer", WRITERS)
def test_a_folder_that_is_none_is_refused_at_the_option(
    writer: str,
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main([*words(WRITERS[writer]), PLACES[place]])
    assert caught.value.code == 2
    assert "is no folder to write to: give s3://BUCKET/PREFIX, or a folder" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["new", "./s3:/new", "~/new", "file:{}/new"])
def test_a_folder_of_this_machine_is_taken(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bash leaves the ~ of --output=~/new; the command replaces it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["generate", "--user-records", "10", f"--output={place.format(tmp_path)}"]) == 0
    assert (tmp_path / place.rpartition("./")[2].removeprefix("~/").replace("file:{}/", "")).is_dir()


def test_the_package_is_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """``python -m kpl_codec``, with the exit status of the command."""
    hashing = [sys.executable, "-m", "kpl_codec", "keys", "hash", "customer-1", "--json"]
    run = subprocess.run(hashing, capture_output=True, text=True, check=False)
    assert main(["keys", "hash", "customer-1", "--json"]) == 0
    assert (run.returncode, run.stdout, run.stderr) == (0, capsys.readouterr().out, "")
    assert subprocess.run([*hashing, "--no"], capture_output=True, check=False).returncode == 2
