"""The options that lead a command to the local server."""

from __future__ import annotations

from typing import Any

import pytest

import kpl_codec.cli.progress

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
