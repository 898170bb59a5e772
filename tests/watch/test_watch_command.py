"""`kpl-codec watch` against a real server; as a process where a signal or a pipe ends it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from kpl_codec.testing.faults import FaultRule, error, slow

from ..cli.commands import run
from .test_stream_watcher import naive

pytestmark = pytest.mark.server


def command(url: str, stream: str, *arguments: str) -> list[str]:
    return ["watch", "--stream", stream, "--region", "us-east-1", "--endpoint-url", url, *arguments]


def process(line: list[str], **outputs: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "kpl_codec", *line], text=True, **outputs)


def test_a_gate_fails_on_critical_findings_and_not_on_a_clean_stream(kinesis_local, stream):
    clean = run(command(kinesis_local.endpoint_url, stream, "--all", "--once", "--json-lines"))
    assert (clean.status, clean.out) == (0, "")
    assert "reading everything of 2 open shards, every 1 s" in clean.err
    assert "nothing was found in what was read" in clean.err
    assert re.search(r"read 0 Kinesis records \(0 bytes\) in \d polls, 0 skipped; ", clean.err)
    naive(kinesis_local.client(), stream, 5)
    gate = command(kinesis_local.endpoint_url, stream, "--all", "--since", "1m", "--once", "--json-lines")
    ended = run(gate)
    assert ended.status == 1, ended.err
    rows = [json.loads(line) for line in ended.out.splitlines()]
    assert {row["kind"] for row in rows} == {"naive-aggregator"}
    assert all(row["severity"] == "critical" and row["lost"]["seen"] for row in rows)
    assert "an order" not in ended.out
    assert "customer" not in ended.out + ended.err


def test_a_gate_fails_also_when_the_reader_of_its_findings_is_gone(kinesis_local, stream):
    naive(kinesis_local.client(), stream, 5)
    gate = command(kinesis_local.endpoint_url, stream, "--all", "--since", "1m", "--once", "--json-lines")
    with process(gate, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as piped:
        assert piped.stdout is not None
        piped.stdout.close()
        assert piped.wait(60) == 1


def test_a_stream_that_is_not_there_is_a_failure(kinesis_local):
    missing = run(command(kinesis_local.endpoint_url, "nowhere", "--for", "60s"))
    assert missing.status == 2
    (line,) = missing.err.splitlines()  # and no count of calls
    assert "ResourceNotFoundException" in line


@pytest.mark.slow
@pytest.mark.parametrize("end", ["--for 3s", "--once", "--all --since 5m --once"])
def test_nothing_read_is_a_failure_not_a_clean_stream(proxy, stream, end, monkeypatch):
    """A run to the end of the shards gives up where no call succeeds."""
    monkeypatch.setattr("kpl_codec.watch.watch.GIVE_UP", 1.0)  # seconds
    proxy.on("GetRecords", error("AccessDeniedException"))
    blind = run(command(proxy.endpoint_url, stream, *end.split()))
    assert blind.status == 2
    said = " ".join(blind.err.split())  # in one line, however it was folded
    assert "could be read: most calls fail with AccessDeniedException; check what the role" in said


def after_sigterm(watch: subprocess.Popen[str], rule: FaultRule) -> tuple[int, str, str]:
    """Its exit status and outputs, after a call hangs by ``rule``."""
    while not rule.acted:
        time.sleep(0.02)
    watch.send_signal(signal.SIGTERM)
    out, err = watch.communicate(timeout=60)
    return watch.returncode, out, err


@pytest.mark.requirement("WCH-25")
@pytest.mark.parametrize("hangs", [pytest.param("*", marks=pytest.mark.slow), "GetRecords"])
def test_sigterm_ends_it_while_calls_hang(kinesis_local, proxy, stream, hangs):
    """No call is answered any more; ECS kills what does not end within 30 seconds."""
    naive(kinesis_local.client(), stream, 5)
    arguments = command(proxy.endpoint_url, stream, "--all", "--since", "1m", "--json-lines")
    watch = process(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert watch.stdout is not None
    assert json.loads(watch.stdout.readline())["kind"] == "naive-aggregator"
    status, out, _ = after_sigterm(watch, proxy.on(hangs, slow(600)))
    assert status == 1
    assert all(json.loads(line) for line in out.splitlines())


def test_sigterm_before_a_shard_was_read_is_no_clean_stream_and_no_failure(proxy, stream):
    rule = proxy.on("GetRecords", slow(600))
    watch = process(command(proxy.endpoint_url, stream), stderr=subprocess.PIPE)
    status, _, said = after_sigterm(watch, rule)
    assert status == 143
    assert said.splitlines()[-1].endswith("SIGTERM came before a shard was read")


@pytest.mark.slow
def test_once_ends_while_records_come(kinesis_local, proxy, stream):
    """The watch is never at the end of a shard."""
    naive(kinesis_local.client(), stream, 5)
    time.sleep(1.0)

    def put_more(exchange: Any) -> Any:
        naive(kinesis_local.client(), stream, 1)
        answer = exchange.forward()
        return answer.with_json(answer.json | {"MillisBehindLatest": 500})

    rule = proxy.on("GetRecords", put_more)
    gate = run(command(proxy.endpoint_url, stream, "--all", "--since", "1m", "--once"))
    assert gate.status == 1, gate.err
    assert rule.acted
