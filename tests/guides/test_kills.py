"""Programs of the guides that go on by themselves are killed in the middle and started again: what was put is
there."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import boto3
import pytest

import kpl_codec as kpl
from kpl_codec.testing.local_kinesis import LocalKinesis

from .blocks import blocks
from .test_guides import ROOT, _environment, orders  # noqa: F401 - fixtures


def _program(page: str, name: str) -> str:
    (block,) = [
        block
        for block in blocks((ROOT / "spec" / "guides" / page).read_text())
        if block.options.get("file") == name
    ]
    return block.text


def _has_records(client: object, stream: str) -> bool:
    for shard in client.list_shards(StreamName=stream)["Shards"]:  # type: ignore[attr-defined]
        begin = {"StreamName": stream, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        iterator = client.get_shard_iterator(**begin)["ShardIterator"]  # type: ignore[attr-defined]
        if client.get_records(ShardIterator=iterator)["Records"]:  # type: ignore[attr-defined]
            return True
    return False


@pytest.mark.slow
def test_what_comes_twice_after_a_kill_is_of_one_kinesis_record(
    kinesis_local: LocalKinesis, stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """read.md's program with positions, killed in the middle and started again."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_KINESIS", kinesis_local.endpoint_url)
    client = kinesis_local.client()
    for n in range(60):
        users = [kpl.UserRecord("a", b"%d of %d" % (user, n)) for user in range(5)]
        client.put_record(StreamName=stream, PartitionKey=f"k{n}", Data=kpl.encode(users))
    program = _program("read.md", "read_on.py").replace('"orders"', repr(stream))
    (tmp_path / "read_on.py").write_text(program)
    (tmp_path / "positions.json").write_text("{}")
    command = ["python", "read_on.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        lines = [killed.stdout.readline() for _ in range(97)]
        killed.kill()
        lines += killed.stdout.readlines()
    again = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    got = Counter([*lines, *again.stdout.splitlines(keepends=True)])
    assert sorted(got) == sorted(f"a b'{user} of {n}'\n" for n in range(60) for user in range(5))
    twice = [line for line, count in got.items() if count > 1]
    assert max(got.values()) <= 2
    assert len({line.partition(" of ")[2] for line in twice}) <= 1
    assert 0 < again.stdout.count("\n") < 300


@pytest.mark.slow
@pytest.mark.parametrize("name", ["copy_stream.py", "follow.py"])
def test_a_program_that_is_killed_and_started_again_has_all_that_was_put(
    name: str,
    orders: None,  # noqa: F811
    kinesis_local: LocalKinesis,
    tmp_path: Path,
) -> None:
    client = boto3.client("kinesis", endpoint_url=kinesis_local.endpoint_url)
    if name == "copy_stream.py":
        kinesis_local.create_stream("orders-copy", shards=3)
        (tmp_path / name).write_text(_program("spark-write.md", name))
        expected = "0 missing in the copy\n"
        began: Callable[[], object] = lambda: _has_records(client, "orders-copy")  # noqa: E731
    else:
        (tmp_path / name).write_text(_program("spark.md", name))
        expected = "expected delivered 40\n"
        began = lambda: list(tmp_path.glob("checkpoint/offsets/0"))  # noqa: E731
    command, settings = ["python", name], {"cwd": tmp_path, "stdout": subprocess.PIPE, "text": True}
    killed = subprocess.Popen(command, start_new_session=True, **settings)  # type: ignore[call-overload]
    while not began():
        assert killed.poll() is None, "it ended before it could be killed"
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)  # with its JVM and its workers
    assert killed.communicate()[0] == ""
    assert killed.returncode == -signal.SIGKILL
    again = subprocess.run(command, check=True, **settings)  # type: ignore[call-overload]
    assert again.stdout == expected
