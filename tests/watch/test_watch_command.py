"""`kpl-codec watch`, as a process against a real server."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kpl_codec.testing.faults import error, slow
from kpl_codec.testing.local_kinesis import LocalKinesis

from .test_stream_watcher import naive

pytestmark = pytest.mark.server


def command(server: LocalKinesis, stream: str, *arguments: str) -> list[str]:
    connection = ["--region", "us-east-1", "--endpoint-url", server.endpoint_url]
    return [sys.executable, "-m", "kpl_codec.cli.main", "watch", "--stream", stream, *connection, *arguments]


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "local")


def run(arguments: list[str]) -> Any:
    return subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)


def test_a_gate_fails_on_critical_findings_and_not_on_a_clean_stream(kinesis_local, stream):
    clean = run(command(kinesis_local, stream, "--all", "--once", "--json-lines"))
    assert (clean.returncode, clean.stdout) == (0, "")
    assert "reading everything of 2 open shards, every 1 s" in clean.stderr
    assert "nothing was found in what was read" in clean.stderr
    assert re.search(r"read 0 Kinesis records \(0 bytes\) in \d polls, 0 skipped; ", clean.stderr)
    naive(kinesis_local.client(), stream, 5)
    gate = run(command(kinesis_local, stream, "--all", "--since", "1m", "--once", "--json-lines"))
    assert gate.returncode == 1, gate.stderr
    rows = [json.loads(line) for line in gate.stdout.splitlines()]
    assert {row["kind"] for row in rows} == {"naive-aggregator"}
    assert all(row["severity"] == "critical" and row["lost"]["seen"] for row in rows)
    assert "an order" not in gate.stdout
    assert "customer" not in gate.stdout + gate.stderr


@contextmanager
def written(server: LocalKinesis, stream: str) -> Iterator[None]:
    """Lossy aggregates come all the time, so it does not matter when a watch begins to read."""
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.05):
            naive(server.client(), stream, 1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


@pytest.mark.slow
def test_killed_and_started_again(kinesis_local, stream):
    arguments = command(kinesis_local, stream, "--all", "--json-lines")
    for end, status in ((signal.SIGKILL, -9), (signal.SIGTERM, 1)):
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        with written(kinesis_local, stream):
            assert json.loads(process.stdout.readline())["kind"] == "naive-aggregator"
        process.send_signal(end)
        assert process.wait(60) == status
        process.stdout.close()


def test_a_stream_that_is_not_there_is_a_failure(kinesis_local):
    missing = run(command(kinesis_local, "nowhere", "--for", "60s"))
    assert missing.returncode == 2
    (line,) = missing.stderr.splitlines()  # and no count of calls
    assert "ResourceNotFoundException" in line


@pytest.mark.slow
@pytest.mark.parametrize("end", [["--for", "4s"], ["--once"], ["--all", "--since", "5m", "--once"]])
def test_nothing_read_is_a_failure_not_a_clean_stream(kinesis_local, proxy, stream, end):
    """A run to the end of the shards gives up where no call succeeds."""
    proxy.on("GetRecords", error("AccessDeniedException"))
    arguments = command(kinesis_local, stream, *end)
    arguments[arguments.index("--endpoint-url") + 1] = proxy.endpoint_url
    blind = run(arguments)
    assert blind.returncode == 2
    said = " ".join(blind.stderr.split())  # in one line, however it was folded
    assert "could be read: most calls fail with AccessDeniedException; check what the role" in said


@pytest.mark.requirement("WCH-25")
@pytest.mark.parametrize("hangs", [pytest.param("*", marks=pytest.mark.slow), "GetRecords"])
def test_sigterm_ends_it_while_calls_hang(kinesis_local, proxy, stream, hangs):
    """No call is answered any more; ECS kills what does not end within 30 seconds."""
    naive(kinesis_local.client(), stream, 5)
    arguments = command(kinesis_local, stream, "--all", "--since", "1m", "--json-lines")
    arguments[arguments.index("--endpoint-url") + 1] = proxy.endpoint_url
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["kind"] == "naive-aggregator"
    rule = proxy.on(hangs, slow(600))
    while not rule.acted:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert all(json.loads(line) for line in output.splitlines())


def test_sigterm_before_a_shard_was_read_is_no_clean_stream_and_no_failure(kinesis_local, proxy, stream):
    rule = proxy.on("GetRecords", slow(600))
    arguments = command(kinesis_local, stream)
    arguments[arguments.index("--endpoint-url") + 1] = proxy.endpoint_url
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    while not rule.acted:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 143
    assert said.splitlines()[-1].endswith("SIGTERM came before a shard was read")


@pytest.mark.slow
def test_once_ends_while_records_come(kinesis_local, stream):
    naive(kinesis_local.client(), stream, 1)
    with written(kinesis_local, stream):
        gate = run(command(kinesis_local, stream, "--all", "--since", "1m", "--once"))
    assert gate.returncode == 1, gate.stderr


def test_a_gate_fails_also_when_the_reader_of_its_findings_is_gone(kinesis_local, stream):
    naive(kinesis_local.client(), stream, 5)
    gate = command(kinesis_local, stream, "--all", "--since", "1m", "--once", "--json-lines")
    with subprocess.Popen(gate, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        process.stdout.close()
        assert process.wait(60) == 1
