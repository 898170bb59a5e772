"""The files that commands read, and the options that lead them to the local server."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import kpl_codec.cli.progress
from kpl_codec.cli.main import main

from .commands import words, write_inputs, write_results

#: Seconds after which a command says what it waits for.
SOON = kpl_codec.cli.progress._SOON


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine no command of a test says what it waits for, where that is not the test."""
    monkeypatch.setattr(kpl_codec.cli.progress, "_SOON", 600.0)


@pytest.fixture
def connection(kinesis_local: Any, stream: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """To a stream of two shards, as a user with some credentials."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "local")
    return ["--stream", stream, "--endpoint-url", kinesis_local.endpoint_url, "--region", "us-east-1"]


@pytest.fixture(scope="session")
def _written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    write_inputs(folder)
    (folder / "folder").mkdir()
    assert write_results(folder) == 1
    assert write_results(folder, "frame.json", "clean") == 0
    assert write_results(folder, "none.json", "nothing") == 1
    line = "audit --produced AT/put.jsonl --handled AT/handled.parquet --output AT/audited --json"
    assert main(words(line, str(folder))) == 1
    return folder


@pytest.fixture
def folder(
    _written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Path:
    """The inputs of the table, and results of validate and audit; the test runs in a copy of its own."""
    shutil.copytree(_written, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    capsys.readouterr()
    return tmp_path / "here"
