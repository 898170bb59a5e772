"""The servers start, answer, are real, stay on loopback and always end."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.testing.local_kinesis import (
    _LOCKS,
    _REACH_TIMEOUT,
    VERSIONS,
    LocalKinesis,
    LocalKinesisError,
    find_node,
    install,
    local_kinesis,
)
from tests.cli.test_streams import ENDS_WITHIN, nobody

pytestmark = pytest.mark.server

LINUX = sys.platform.startswith("linux")
KINDS = ["kinesis-local", "kinesalite"]


def gone(pid: int, within: float = 60.0) -> bool:
    end = time.monotonic() + within
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
            if LINUX and Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True  # dead, and nobody has asked for its exit code
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


def test_kinesalite_cuts_the_key_space_as_aws_does(kinesalite, stream_name):
    kinesalite.create_stream(stream_name, shards=6)
    shards = kinesalite.client().list_shards(StreamName=stream_name)["Shards"]
    got = [tuple(int(v) for v in shard["HashKeyRange"].values()) for shard in shards]
    ours = [(r.starting_hash_key, r.ending_hash_key) for r in ALL_HASH_KEYS.split(6)]
    assert sorted(map(sorted, got)) == sorted(map(sorted, ours))
    # the real AWS answer that this rule was read from
    assert ours[2][0] == 113427455640312821154458202477256070484
    assert ours[3][0] == 170141183460469231731687303715884105726


@pytest.mark.skipif(not LINUX, reason="reads the table of sockets from /proc")
@pytest.mark.parametrize("kind", KINDS)
def test_it_listens_on_loopback_only_and_stop_ends_it(kind, monkeypatch):
    """Its Node is that of a package, whatever else is installed."""
    monkeypatch.setenv("PATH", "/nowhere")
    server = local_kinesis(kind)
    with server:
        pid, port = server._process.pid, int(server.endpoint_url.rsplit(":", 1)[1])
        table = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
        listeners = [line.split()[1] for line in table.splitlines()[1:] if line.split()[3:4] == ["0A"]]
        assert [a for a in listeners if a.endswith(f":{port:04X}")] == [f"0100007F:{port:04X}"]
        assert server.running
        server.create_stream("orders")
        server.delete_stream("orders")
        assert server.client().list_streams()["StreamNames"] == []
    assert gone(pid)
    assert not server.running
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=60):
        pass
    with pytest.raises(LocalKinesisError) as caught:
        _ = server.endpoint_url
    assert caught.value.code == "not-ready"
    server.stop()  # twice is fine


def test_the_server_ends_with_the_process_that_started_it(monkeypatch, tmp_path):
    """And nothing is left of it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    script = (
        "import time; from kpl_codec.testing.local_kinesis import local_kinesis\n"
        "server = local_kinesis('kinesis-local').start(); print(server._process.pid, flush=True)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as child:
        pid = int(child.stdout.readline())
        child.kill()
    assert gone(pid)
    assert [*tmp_path.iterdir()] == []


def test_a_forked_child_leaves_the_server_alone(kinesalite):
    pid = os.fork()
    if pid == 0:
        kinesalite.stop()
        os._exit(0)
    os.waitpid(pid, 0)
    assert kinesalite.running
    kinesalite.client().list_streams()


def test_a_server_that_cannot_start_says_so(monkeypatch):
    """With its last lines; and without Node what to install."""
    monkeypatch.setattr("kpl_codec.testing.local_kinesis._SHARD_LIMIT", "nonsense")
    with pytest.raises(LocalKinesisError) as caught:
        LocalKinesis("kinesis-local").start()
    assert caught.value.code == "died"
    assert "kinesis-local" in caught.value.detail
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(LocalKinesisError) as caught:
        find_node()
    assert caught.value.code == "no-node"
    assert '[testing]"' in str(caught.value)


def stand_in(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """A Node that runs ``script`` whatever it is asked for; $1 is npm, $2 its command."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    node = folder / "node/bin/node"
    node.parent.mkdir(parents=True)
    node.write_text(f"#!/bin/sh\n{script}\n")
    node.chmod(0o755)
    monkeypatch.setattr("kpl_codec.testing.local_kinesis.find_node", lambda: str(node))


def test_concurrent_installers_install_once_and_leave_nothing_behind(monkeypatch, tmp_path):
    # counts its calls and takes a while over the one package
    script = f"[ $2 = view ] && exit\necho call >> {tmp_path}/calls\nsleep 0.3\n"
    stand_in(monkeypatch, tmp_path, script + 'mkdir -p "$4/node_modules/some-package"')
    with ThreadPoolExecutor(8) as pool:
        paths = set(pool.map(lambda _: install("some-package", "1.0.0"), range(8)))
    assert paths == {tmp_path / "kpl-codec/npm/some-package-1.0.0/node_modules/some-package"}
    assert (tmp_path / "calls").read_text() == "call\n"
    assert sorted(p.name for p in (tmp_path / "kpl-codec/npm").iterdir()) == [
        "some-package-1.0.0",
        "some-package-1.0.0.lock",
    ]


@pytest.mark.slow
@pytest.mark.requirement("MAP-24")
@pytest.mark.parametrize("kind", ["closed", "hole"])
def test_a_registry_that_cannot_be_reached_is_told_within_15_seconds(kind, monkeypatch, tmp_path):
    """That is, after `_REACH_TIMEOUT`."""
    assert _REACH_TIMEOUT < ENDS_WITHIN - 2
    monkeypatch.setattr("kpl_codec.testing.local_kinesis._REACH_TIMEOUT", 2.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with nobody(kind) as options:
        monkeypatch.setenv("npm_config_registry", options[-1])
        began = time.monotonic()
        with pytest.raises(LocalKinesisError, match="check the network") as caught:
            install("some-package", "1.0.0")
    assert time.monotonic() - began < ENDS_WITHIN
    assert "\n" not in caught.value.detail


def test_a_failed_install_leaves_nothing_behind(monkeypatch, tmp_path):
    stand_in(monkeypatch, tmp_path, "echo no such package >&2\nexit 1")
    with pytest.raises(LocalKinesisError) as caught:
        install("some-package", "1.0.0")
    assert caught.value.code == "install-failed"
    assert "no such package" in caught.value.detail
    assert [p.name for p in (tmp_path / "kpl-codec/npm").iterdir()] == ["some-package-1.0.0.lock"]


def test_each_package_of_the_servers_is_locked_with_its_hash() -> None:
    for package, version in VERSIONS.items():
        locked = json.loads((_LOCKS / f"{package}.json").read_text())["packages"]
        assert locked[""]["dependencies"] == {package: version}
        below = {name: entry for name, entry in locked.items() if name}
        assert f"node_modules/{package}" in below
        assert [name for name, entry in below.items() if not entry["integrity"].startswith("sha512-")] == []


@pytest.mark.slow
@pytest.mark.server
def test_a_package_with_another_hash_is_not_installed(monkeypatch, tmp_path):
    text = (_LOCKS / "kinesis-local.json").read_text()
    wrong = re.sub(r"sha512-..", "sha512-AA", text)
    assert wrong != text
    (tmp_path / "kinesis-local.json").write_text(wrong)
    monkeypatch.setattr("kpl_codec.testing.local_kinesis._LOCKS", tmp_path)
    for cache in ("XDG_CACHE_HOME", "npm_config_cache"):
        monkeypatch.setenv(cache, str(tmp_path))
    with pytest.raises(LocalKinesisError, match="EINTEGRITY"):
        install("kinesis-local", VERSIONS["kinesis-local"])
