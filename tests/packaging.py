"""Builds the sdist and the wheel, and installs them in fresh environments: `python -m tests.packaging`.

For every Python 3.10 to 3.13 found on this machine: an sdist and a wheel are built in a clean folder. The
wheel (made with a C compiler), the sdist (installed without one) and the wheel with each extra go into
environments of their own, and are used for what they are for. Prints one line each: size on disk, time to
import its part, whether it is compiled.

    python -m tests.packaging                   every Python, each extra: some GB, half an hour
    python -m tests.packaging --pythons 3.12 --extras cli aws
    python -m tests.packaging --extras          only the base install, with and without a compiler

Exit status 1 if one of them fails. What is not committed is left out. Needs the package index, and npm for
``testing``, ``demo`` and ``all``; not part of the test command.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
#: Run in the fresh environment: how long does the import take, is it compiled, does it work?
CHECK = """
import time
started = time.perf_counter()
{imports}
elapsed = time.perf_counter() - started
import kpl_codec as kpl
from kpl_codec.compiled import speedups
data = kpl.encode([kpl.UserRecord("key", b"one"), kpl.UserRecord("key", b"two")])
assert [record.data for record in kpl.decode(data)] == [b"one", b"two"]
{use}
print(f"{{elapsed * 1000:.0f}} {{'compiled' if speedups is not None else 'pure'}}")
"""


class Use(NamedTuple):
    """What an extra is for: what is imported and timed, Python that uses it, a command that does."""

    imports: str = "import kpl_codec"
    code: str = ""
    command: str = ""


_TEST = """
from hypothesis import given
from kpl_codec.testing import strategies

@given(strategies.aggregated_records())
def test_strategy(aggregate):
    assert aggregate.data

pytest_plugins = ["kpl_codec.testing.fixtures"]

def test_fixture(kinesis_local, stream_name):
    assert kinesis_local.client().list_streams()["StreamNames"] == []
"""
USES = {
    "aws": Use("from kpl_codec.aws import Producer, read_stream", "Producer('orders').close()"),
    "aio": Use("from kpl_codec.aws import AsyncProducer", "AsyncProducer('orders')"),
    "spark": Use(
        "from kpl_codec.arrow import deaggregate_table",
        "import pyarrow; assert deaggregate_table(pyarrow.table({'data': [data]})).table.num_rows == 2",
    ),
    "spark-local": Use(
        "from kpl_codec.spark import deaggregate, local_session",
        "df = local_session().createDataFrame([(data,)], 'data binary'); assert deaggregate(df).count() == 2",
    ),
    "cli": Use(
        "import kpl_codec.validate.validate_command",
        command="kpl-codec generate --output made --user-records 9 && "
        "kpl-codec validate made/capture --shards made/shards.json --output out",
    ),
    "otel": Use("from kpl_codec.watch.exporters import OpenTelemetryExporter", "OpenTelemetryExporter('a')"),
    "watch": Use(
        "import kpl_codec.watch.watch_command",
        command="kpl-codec watch --print cloudformation --stream orders",
    ),
    "testing": Use("from kpl_codec.testing import strategies", command="python -m pytest -q test_it.py"),
    "demo": Use("import kpl_codec.cli.demo", command="kpl-codec demo --user-records 100"),
    "all": Use("import kpl_codec.cli.demo", command="kpl-codec demo --user-records 100"),
}


def pythons() -> dict[str, str]:
    """The interpreters found, by version: on PATH, and beside the one that runs this."""
    folders = [*os.environ.get("PATH", "").split(os.pathsep)]
    folders += [str(path) for path in Path(sys.base_prefix).parent.glob("3.*/bin")]
    found = {}
    for version in VERSIONS:
        for folder in folders:
            python = Path(folder) / f"python{version}"
            works = (
                python.exists()
                and not subprocess.run(
                    [python, "-c", "import venv, ensurepip"], capture_output=True, check=False
                ).returncode
            )
            if works:
                found[version] = str(python)
                break
    return found


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """What the command prints. Raises SystemExit with its errors if it fails."""
    ran = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{ran.stdout[-2000:]}{ran.stderr[-4000:]}")
    return ran.stdout


def environment(python: str, folder: Path) -> Path:
    """A fresh virtual environment's interpreter."""
    run(python, "-m", "venv", folder, cwd=folder.parent)
    return folder / "bin" / "python"


def site_bytes(python: Path) -> int:
    """Bytes of all installed packages but pip and setuptools."""
    code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    site = Path(run(python, "-c", code, cwd=python.parent).strip())
    return sum(
        path.stat().st_size
        for path in site.rglob("*")
        if path.is_file() and not path.relative_to(site).parts[0].startswith(("pip", "setuptools"))
    )


def try_install(python: str, source: Path, scratch: Path, *, extra: str = "", compiler: bool = True) -> str:
    """Install ``source`` with an extra and use it; one line about it."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    inside = environment(python, folder / "venv")
    settings = {} if compiler else {"CC": "no-such-compiler"}
    what = f"{source}[{extra}]" if extra else str(source)
    # With hashes pip takes nothing that has none, and so no wheel built here.
    versions = folder / "constraints.txt"
    versions.write_text(re.sub(r" \\\n +--hash=\S+", "", (ROOT / "requirements.lock").read_text()))
    run(inside, "-m", "pip", "install", "-q", "-c", versions, what, cwd=folder, **settings)
    size = site_bytes(inside) / 1e6
    use = USES.get(extra, Use())
    (folder / "test_it.py").write_text(_TEST)
    code = CHECK.format(imports=use.imports, use=use.code)
    path = f"{inside.parent}{os.pathsep}{os.environ['PATH']}"
    milliseconds, kind = run(inside, "-c", code, cwd=folder).split()
    if (kind == "compiled") != compiler:
        raise SystemExit(f"{what}: {kind}, with{'' if compiler else 'out'} a compiler")
    if use.command:
        run("bash", "-ec", use.command, cwd=folder, PATH=path)
    shutil.rmtree(folder)
    name = f"[{extra}]" if extra else source.suffix.removeprefix(".")
    return f"  {name:14} {size:7.1f} MB  {milliseconds:>5} ms  {kind:8}  {use.imports}"


def extras_of(wheel: Path) -> list[str]:
    """The extras that the wheel declares, but for ``dev``."""
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
        lines = packed.read(name).decode().splitlines()
    found = [line.partition(": ")[2] for line in lines if line.startswith("Provides-Extra: ")]
    return [extra for extra in found if extra != "dev"]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.packaging", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--extras", nargs="*", metavar="EXTRA", help="default: each of them")
    parser.add_argument("--pythons", nargs="*", default=list(VERSIONS), metavar="VERSION")
    args = parser.parse_args()
    found = {version: path for version, path in pythons().items() if version in args.pythons}
    if not found:
        raise SystemExit("no Python 3.10 to 3.13 with venv found")
    os.environ.pop("PYTHONPATH", None)  # the environments see only what is installed in them
    with tempfile.TemporaryDirectory(prefix="kpl-codec-packaging-") as name:
        scratch = Path(name)
        clean = scratch / "source"
        run("git", "clone", "-q", ROOT, clean, cwd=scratch)
        for version, python in found.items():
            dist = scratch / f"dist-{version}"
            builder = environment(python, scratch / f"builder-{version}")
            run(builder, "-m", "pip", "install", "-q", "build", cwd=scratch)
            started = time.monotonic()
            run(builder, "-m", "build", "-o", dist, clean, cwd=scratch)
            (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
            sizes = ", ".join(f"{file.name} {file.stat().st_size / 1e6:.1f} MB" for file in (sdist, wheel))
            print(f"Python {version}: {sizes}, built in {time.monotonic() - started:.0f} s", flush=True)
            print(try_install(python, wheel, scratch), flush=True)
            print(try_install(python, sdist, scratch, compiler=False), flush=True)
            for extra in extras_of(wheel) if args.extras is None else args.extras:
                print(try_install(python, wheel, scratch, extra=extra), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
