"""Walks through a release on this machine: `python -m tests.release`. It publishes nothing.

Builds the sdist and the wheel of what is committed, serves both from an index on this machine, and then, in
folders without a checkout:

1. installs the wheel with the extra ``demo`` by its name, and runs README's first command, `kpl-codec demo`;
2. unpacks the sdist, and runs README's second command, which passes the tests.

What the packages depend on comes from the package index that pip knows. Takes about ten minutes. Exit status
1 if a step fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tarfile
import tempfile
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from . import packaging
from .guides.blocks import blocks

ROOT = Path(__file__).parents[1]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print no requests."""


def commands() -> tuple[str, str]:
    """README's two commands: its demo, its tests."""
    texts = [block.text for block in blocks((ROOT / "README.md").read_text()) if block.language == "sh"]
    demo, tests = (text.replace("\\\n", "").strip() for text in texts if text.startswith("python3 -m venv"))
    return demo, tests


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.release", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--no-tests", action="store_true", help="leave the second step out")
    no_tests = parser.parse_args().no_tests
    os.environ.pop("PYTHONPATH", None)

    def say(what: str) -> None:
        print(f"{time.monotonic() - started:5.0f} s  {what}", flush=True)

    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kpl-codec-release-") as name:
        scratch = Path(name)
        clean, index = scratch / "source", scratch / "index" / "simple" / "kpl-codec"
        packaging.run("git", "clone", "-q", ROOT, clean, cwd=scratch)
        builder = packaging.environment(sys.executable, scratch / "builder")
        packaging.run(builder, "-m", "pip", "install", "-q", "build", cwd=scratch)
        packaging.run(builder, "-m", "build", "-o", index, clean, cwd=scratch)
        shutil.rmtree(clean)
        (wheel,), (sdist,) = index.glob("*.whl"), index.glob("*.tar.gz")
        say(f"built {sdist.name} ({sdist.stat().st_size / 1e6:.1f} MB), {wheel.name}")

        handler = partial(_Quiet, directory=str(index.parents[1]))
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            address = f"http://127.0.0.1:{server.server_port}/simple/"
            demo, tests = commands()
            empty = scratch / "empty"
            empty.mkdir()
            with tarfile.open(sdist) as packed:
                packed.extractall(scratch, filter="data")
            unpacked = scratch / sdist.name.removesuffix(".tar.gz")
            named = demo.replace('".[demo]"', f'--no-cache-dir --extra-index-url {address} "kpl-codec[demo]"')
            printed = packaging.run("bash", "-ec", named, cwd=empty)
            say(f"{named.replace(address, 'INDEX')}\n\n{printed}")
            server.shutdown()
        if not no_tests:
            packaging.run("bash", "-ec", tests, cwd=unpacked)
            say(tests)
    return 0


if __name__ == "__main__":
    sys.exit(main())
